"""Keys of rotary positions: `rope_parameters` of transformers 5, `rope_scaling` and others of transformers 4."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isclose, log
from typing import Any

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import Description, Plan
from whatwhere.models.configuration.keys import REQUIRED, Json, Keys
from whatwhere.models.configuration.layers import read_labels
from whatwhere.models.configuration.model_types import FRACTION, MAX_FEATURES, ModelType, Rope, RopeSet

ORIGINAL = "original_max_position_embeddings"
FACTOR_OF_VLLM = "attn_factor"
"""vLLM multiplies YaRN's magnitude by it (DeepSeek-R1-0528-Qwen3-8B); transformers does not read it."""
ROPE_TYPES = ("default", "linear", "ntk", "dynamic", "yarn", "longrope", "su", "llama3", "proportional")
IGNORED = ("finetuned",)  # a remark in the files of YaRN's authors, which affects nothing
NEUTRAL = dict.fromkeys(("attention_factor", "extrapolation_factor", "factor"), (1.0,))
"""Rope parameters that change nothing where the rope_type does not read them -> the value."""
MAX_AXES = 8  # more axes than any model has; tokens of videos have 3 coordinates


def read_rope(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Add the rotary plan of each layer."""
    rope = kind.rope or Rope()
    labels, types = read_labels(keys, kind.layers, model.layers)
    labels = labels if rope.by_type else tuple(label and "" for label in labels)
    parameters = _parameters(keys, rope)
    for label in dict.fromkeys(labels):
        if label is not None and label not in rope.sets:
            raise SettingError(
                f"layer_types has {label!r}, for which {keys.owner!r} has no rope parameters: it knows "
                f"{', '.join(rope.sets)}."
            )
        if label is not None and rope.required and label not in (keys.values.get("rope_parameters") or {}):
            raise SettingError(
                f"{keys.path}rope_parameters has no entry for layers of the type {label}, without which transformers "
                f"fails: write {{{label!r}: {{'rope_type': 'default', 'rope_theta': ...}}}}, or null if they do not "
                "rotate."
            )
    plans: dict[str | None, Plan | None] = {None: None}
    for label in rope.sets:
        dims = {heads.head_dim for heads, own in zip(model.heads, labels, strict=True) if own == label}
        if len(dims) > 1:
            raise SettingError(
                f"{keys.path}layers that rotate alike have heads of {' and '.join(map(str, sorted(dims)))} features, "
                f"but whatwhere reads one size for each layer type of {keys.owner!r}."
            )
        head_dim = dims.pop() if dims else model.heads[0].head_dim
        plans[label] = _of_label(keys, model.max_length, rope, parameters.get(label, {}), label, head_dim)
    factors = {each.get(FACTOR_OF_VLLM, 1.0) for each in parameters.values() if each} - {1.0}
    notes = [
        f"{FACTOR_OF_VLLM} is not read, as in transformers; vLLM multiplies the magnitude by {factor:.6g}"
        for factor in sorted(factors)
    ]
    if rope.dim_key is not None and not rope.whole:
        notes.append(
            f"heads keep the rotated features apart, {rope.dim_key} of them: map only these, then join both parts; "
            "the softmax scale is that of the whole"
        )
    by_layer = tuple(plans[label] for label in labels)
    return replace(model, query_key=by_layer, layer_types=types, notes=(*model.notes, *notes))


def _parameters(keys: Keys, rope: Rope) -> dict[str, Json | None]:
    """Return the parameters of each label, in the form of transformers 5 or 4."""
    newer, older = (
        _dictionary(keys, name, keys.take(name, default=None)) for name in ("rope_parameters", "rope_scaling")
    )
    way = f"write {{{next(iter(rope.sets))!r}: {{...}}, ...}}."
    if older and not rope.reads_rope_scaling:
        raise SettingError(
            f"{keys.path}rope_scaling is given, but the code of {keys.owner!r} reads rope_parameters only: {way}"
        )
    if newer and older and dict(newer) != dict(older):
        raise SettingError(
            f"{keys.path}rope_parameters and {keys.path}rope_scaling are both given, and differ: keep one.\n"
            "The first is the form of transformers 5, the second that of transformers 4."
        )
    if newer and rope.by_type:
        unknown = [key for key in newer if key not in rope.sets]
        if unknown:
            raise SettingError(
                f"{keys.path}rope_parameters of {keys.owner!r} has one set for each layer type, "
                f"{', '.join(rope.sets)}, but has {unknown[0]!r}: {way}"
            )
        return {label: _dictionary(keys, f"rope_parameters.{label}", own) for label, own in newer.items()}
    given = newer or older
    if not given:
        return {label: defaults.parameters for label, defaults in rope.sets.items()}
    return {label: given if defaults.scaled else {} for label, defaults in rope.sets.items()}


def _dictionary(keys: Keys, name: str, value: Any) -> Json | None:
    if value is not None and not isinstance(value, Mapping):
        raise keys.wrong(name, value, "must be a dictionary or null.")
    return value


def _of_label(
    keys: Keys, max_length: int | None, rope: Rope, parameters: Json | None, label: str, whole_dim: int
) -> Plan | None:
    """Return the plan of the layers that have a label, with heads of `whole_dim` features."""
    if parameters is None:
        return None
    name = "rope_scaling" if keys.values.get("rope_scaling") else "rope_parameters"
    given, defaults = keys.nested(f"{name}{'.' if label else ''}{label}.", parameters), rope.sets[label]
    rope_type = _rope_type(given, rope)
    extra = (*rope.extra.get("", ()), *rope.extra.get(rope_type, ()))
    given.defaults = dict.fromkeys(extra)
    theta = _once(given, "rope_theta", keys, defaults.theta_key, defaults.theta)
    head_dim = whole_dim if rope.dim_key is None else keys.whole(rope.dim_key, most=MAX_FEATURES)
    fraction, rotary_dim = _rotated(keys, whole_dim, rope, given, defaults, head_dim, rope_type)
    if label and given.values.get("truncate") is False:
        raise SettingError(
            f"{given.path}truncate is false, but transformers looks for it beside the parameters of layer types, "
            "and rounds the bounds of YaRN's ramp: remove it, if the model was trained so."
        )
    original = _once(given, ORIGINAL, keys, ORIGINAL, read=Keys.whole)
    scaling = read_scaling(rope_type, given, original, max_length, fraction)
    sections = None if rope.sections is None else _sections(given, rope.sections, rope.axis_layout)
    interleaved = rope.interleaved
    if rope.interleaved_key is not None:
        interleaved = keys.flag(rope.interleaved_key, default=interleaved)
    given.known |= {*IGNORED, *extra, ORIGINAL}
    given.finish(repeated={**NEUTRAL, "max_position_embeddings": (max_length,)}, every=True)
    plan = rotary_plan(given.path, head_dim, theta, interleaved, rotary_dim, scaling, sections, rope.axis_layout)
    if rope.reversed:
        plan = plan.with_settings(reversed=True)
    if rope.learned:
        plan = replace(plan, scheme="rotary-learned")
    if rope.whole:  # the rotated features are the last ones of a head
        rotated = plan.rotary_dim
        plan = plan.with_settings(head_dim=whole_dim, rotary_dim=rotated, rotary_start=whole_dim - rotated)
    return plan


def _once(
    given: Keys,
    name: str,
    keys: Keys,
    beside: str | None,
    default: float | None = None,
    read: Callable[..., Any] = Keys.number,
) -> Any:
    """Return a number that is in the rope parameters, or beside them under a name of its own."""
    inside, outside = read(given, name, default=None), None if beside is None else read(keys, beside, default=None)
    if None not in (inside, outside) and inside != outside:
        raise SettingError(
            f"{given.path}{name} is {inside} and {keys.path}{beside} is {outside}: keep one of them.\n"
            "Transformers would use one of them silently."
        )
    if inside is None and outside is None and beside is not None and default is not None:
        keys.assume(beside, default)
    return next((value for value in (inside, outside) if value is not None), default)


def _rope_type(given: Keys, rope: Rope) -> str:
    """Return the `rope_type`, from either of its keys; `su` and the model type's own names are replaced."""
    renamed = {"su": "longrope", **rope.renamed}
    choices = dict.fromkeys((*ROPE_TYPES, *renamed))
    names = [name for name in ("rope_type", "type") if given.values.get(name) is not None] or ["rope_type"]
    stated = {name: given.choice(name, choices, default="default") for name in names}
    given.known |= {"rope_type", "type"}
    types = {renamed.get(value, value) for value in stated.values()}
    if len(types) > 1:
        raise SettingError(
            f"{given.path}rope_type is {stated['rope_type']!r} and {given.path}type is {stated['type']!r}: keep one."
        )
    rope_type = types.pop()
    if rope.by_type and "rope_type" not in stated and rope_type != "default":
        raise SettingError(
            f"{given.path}type is {stated['type']!r}, but in {given.owner!r} transformers reads rope_type only, and "
            f"leaves positions unscaled: write rope_type={stated['type']!r}, or remove the parameters."
        )
    return rope_type


def _rotated(
    keys: Keys, whole_dim: int, rope: Rope, given: Keys, defaults: RopeSet, head_dim: int, rope_type: str
) -> tuple[float, int | None]:
    """Return the fraction of `head_dim` features that is rotated, and how many these are; None is all."""
    key = defaults.fraction_key
    usual = 1.0 if key is not None and key in keys.values else defaults.fraction  # where it has null, heads are whole
    if (
        usual != defaults.fraction
        and rope.fails_at_null
        and all(each.values.get(name) is None for each, name in ((keys, key or ""), (given, FRACTION)))
    ):
        raise SettingError(
            f"{keys.path}{key} is null, with which transformers fails in {keys.owner!r}: write the fraction of a head "
            f"that is rotated, or remove the key for {defaults.fraction}."
        )
    stated = None if rope.rotary_dim_key is None else keys.whole(rope.rotary_dim_key, default=None, most=MAX_FEATURES)
    fraction = _once(given, FRACTION, keys, key, None if rope.fraction_of == "" else usual)
    if stated is not None and not (given.values.get(FRACTION) or keys.values.get(key or "")):
        return stated / head_dim, None if stated == head_dim else stated
    if rope.fraction_of is not None:
        name = rope.fraction_of
        features = keys.whole(name, most=MAX_FEATURES) if name else whole_dim
        if fraction is not None and (part := int(features * fraction)) != head_dim:
            of = f"{keys.path}{name}={features}" if name else f"a head of {features}"
            raise SettingError(
                f"{FRACTION} is {fraction} of {of}, {part} features, but "
                f"{keys.path}{rope.dim_key} is {head_dim}: make them agree."
            )
        fraction = 1.0
    if fraction > 1:
        raise SettingError(f"{FRACTION} is {fraction}, but a fraction of a head is at most 1.")
    if not rope.partial and fraction != 1.0 and rope_type != "proportional":
        raise SettingError(
            f"{FRACTION} is {fraction}, but heads of {keys.owner!r} are rotated whole: transformers does not read "
            "this key there, or fails.\nIf the model does rotate a part, read it as a type that does: like='phi'."
        )
    whole = fraction == 1.0 or rope_type == "proportional"
    return fraction, None if whole else int(head_dim * fraction)


def _sections(given: Keys, usual: tuple[int, ...], axis_layout: str) -> tuple[int, ...]:
    """Return the number of pairs of each axis."""
    expected = axis_layout == "interleaved"
    interleaved = given.flag("mrope_interleaved", default=expected)
    if interleaved != expected:
        raise given.wrong("mrope_interleaved", interleaved, f"{given.owner!r} has {axis_layout} ones.")
    sections = given.listed("mrope_section", MAX_AXES, default=usual) or ()
    needed = "must be a number of pairs, at least 0."
    given.require_each("mrope_section", sections, lambda each: type(each) is int and 0 <= each <= MAX_FEATURES, needed)
    return tuple(sections)


def rotary_plan(
    path: str,
    head_dim: int,
    theta: float,
    interleaved: bool,
    rotary_dim: int | None = None,
    scaling: Plan | None = None,
    sections: tuple[int, ...] | None = None,
    axis_layout: str = "chunked",
) -> Plan:
    """Return the plan of rotary positions; raise SettingError or ShapeError, with `path`, if it could not be built."""
    rotated = head_dim if rotary_dim is None else rotary_dim
    if rotated % 2 or not 2 <= rotated <= head_dim:
        raise ShapeError(
            f"this configuration makes {path}rotary_dim={rotated} of head_dim={head_dim}, but needs an even number of\n"
            f"features, from 2 to {head_dim}: they are rotated in pairs."
        )
    if scaling is not None:
        _require_fit(scaling, path, rotated, theta)
    settings = {
        "head_dim": head_dim,
        "theta": theta,
        "interleaved": interleaved,
        "rotary_dim": rotary_dim,
        "scaling": scaling,
    }
    if sections is None:
        return Plan("rotary", settings)
    pairs = rotated // 2
    if sum(sections) != pairs:
        raise ShapeError(
            f"{path}mrope_section is {list(sections)}, {sum(sections)} pairs in total, but {rotated} rotated features "
            f"are {pairs} pairs: each needs one axis."
        )
    for axis, section in enumerate(sections[1:], start=1):
        # Interleaved axes take turns: each has one of as many consecutive pairs as there are axes.
        if axis_layout == "interleaved" and section and len(sections) * (section - 1) + axis >= pairs:
            raise ShapeError(
                f"{path}mrope_section is {list(sections)}, but interleaved axis {axis} has one pair in "
                f"{len(sections)}: its last would be beyond the {pairs} pairs that there are.\n"
                "Make the other sections equal, and that of axis 0 the same or larger."
            )
    return Plan("rotary-multimodal", {**settings, "sections": sections, "layout": axis_layout})


def _require_fit(scaling: Plan, path: str, rotated: int, theta: float) -> None:
    """Raise unless a scaling can be applied to so many features of a head that rotate by `theta`."""
    settings, pairs = scaling.settings, rotated // 2
    match scaling.scheme:
        case "rotary-ntk" | "rotary-dynamic-ntk" if rotated <= 2:
            raise ShapeError(
                f"{path}rope_type raises theta by dim / (dim - 2), so more than {rotated} features must be rotated."
            )
        case "rotary-yarn" if theta <= 1:
            raise SettingError(
                f"{path}rope_theta is {theta}, but YaRN needs one above 1: pairs must differ in frequency."
            )
        case "rotary-longrope":
            for name in ("short_factor", "long_factor"):
                if (count := len(settings[name])) != pairs:
                    raise ShapeError(
                        f"{path}{name} has {count} numbers, but {rotated} rotated features are {pairs} pairs, and each "
                        "needs its own."
                    )
        case "rotary-proportional" if int(settings["share"] * rotated // 2) == 0:
            raise SettingError(
                f"{path}partial_rotary_factor is {settings['share']}, which of {rotated} features rotates no pair."
            )


# Scaling


def read_scaling(
    rope_type: str, rope: Keys, original: int | None, max_length: int | None, fraction: float
) -> Plan | None:
    """Return the scaling of a `rope_type`, one of ROPE_TYPES; None for `default`."""
    match rope_type:
        case "default":
            return None
        case "linear" | "ntk":
            return Plan(f"rotary-{rope_type}", {"factor": rope.number("factor")})
        case "proportional":
            return Plan("rotary-proportional", {"share": fraction, "factor": rope.number("factor", default=1.0)})
        case "dynamic":
            return _dynamic(rope, max_length)
    trained = original or max_length
    if trained is None:
        raise rope.missing(ORIGINAL, "the length that was trained")
    factor = rope.number("factor", default=REQUIRED if rope_type == "llama3" else None)
    if factor is None and max_length is None:
        raise rope.missing("factor", "new length over trained length")
    factor = (max_length or 0) / trained if factor is None else factor
    others = {"yarn": _yarn, "longrope": _longrope, "llama3": _llama3}[rope_type](rope, trained, factor)
    return Plan(f"rotary-{rope_type}", {"factor": factor, "original_length": trained, **others})


def _dynamic(rope: Keys, max_length: int | None) -> Plan:
    # HunYuan's alpha multiplies theta by a constant, although its rope_type is called dynamic.
    alpha = rope.number("alpha", default=None) if "alpha" in rope.defaults else None
    if alpha is not None:
        rope.take("factor", default=None)
        return Plan("rotary-ntk", {"factor": alpha})
    if max_length is None:
        raise Keys({}, {}, rope.owner).missing("max_position_embeddings", "dynamic scaling starts beyond it")
    factor = rope.number("factor")
    if factor < 1:
        raise rope.wrong("factor", factor, "dynamic scaling needs a number of at least 1.")
    return Plan("rotary-dynamic-ntk", {"factor": factor, "original_length": max_length})


def _yarn(rope: Keys, trained: int, factor: float) -> dict[str, Any]:
    # Transformers reads zero as absent in these two.
    beta_fast = rope.number("beta_fast", default=None, zero=True) or 32.0
    beta_slow = rope.number("beta_slow", default=None, zero=True) or 1.0
    if beta_fast < beta_slow:
        raise SettingError(
            f"{rope.path}beta_fast is {beta_fast} and beta_slow {beta_slow}, but fast pairs rotate more often: "
            "beta_fast must not be smaller. The paper has 32 and 1."
        )
    rope.number(FACTOR_OF_VLLM, default=None)
    magnitude = _magnitude(rope)
    mscale, mscale_all_dim = _mscales(rope, factor, magnitude)
    return {
        "beta_fast": beta_fast,
        "beta_slow": beta_slow,
        "attention_factor": magnitude,
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
        "truncate": rope.flag("truncate", default=True),
    }


def _magnitude(rope: Keys) -> float | None:
    """Return the factor of queries and keys, if the parameters have it."""
    magnitude = rope.number("attention_factor", default=None)
    if magnitude is not None and not 1e-18 <= magnitude <= 1e18:
        needed = "must be from 1e-18 to 1e18: queries and keys are both multiplied by it, in float32."
        raise rope.wrong("attention_factor", magnitude, needed)
    return magnitude


def _mscales(rope: Keys, factor: float, magnitude: float | None) -> tuple[float | None, float | None]:
    """Return both factors of YaRN's logarithm, or none where transformers' and DeepSeek's formulas agree without."""
    # Transformers takes 1 and 0 unless both are above 0, DeepSeek's code where one is absent.
    stated = {name: rope.number(name, default=None, zero=True) for name in ("mscale", "mscale_all_dim")}
    one, all_dim = stated.values()
    if magnitude is not None or (bool(one) == bool(all_dim) and one != 0):
        return one or None, all_dim or None

    def of(number: float) -> float:
        return 0.1 * number * log(factor) + 1.0 if factor > 1 else 1.0

    theirs = of(1.0 if one is None else one) / of(all_dim or 0.0)
    if not isclose(theirs, of(1.0)):
        shown = ", ".join(
            f"{rope.path}{name} is {'absent' if value is None else f'{value:g}'}" for name, value in stated.items()
        )
        raise SettingError(
            f"{shown}: from these DeepSeek's code makes the magnitude {theirs:.6g}, and transformers {of(1.0):.6g}, "
            f"for it takes them only if both are above 0.\nWrite the one that you mean: attention_factor={theirs:.6g}."
        )
    return None, None


def _longrope(rope: Keys, trained: int, factor: float) -> dict[str, Any]:
    names = [name for name in ("short_mscale", "long_mscale") if name in rope.defaults]
    magnitudes = {name: rope.number(name, default=None) for name in names}
    if len(set(magnitudes.values())) > 1:
        raise SettingError(
            f"{rope.path}short_mscale is {magnitudes['short_mscale']} and long_mscale {magnitudes['long_mscale']}, "
            "but LongRoPE has one magnitude for both."
        )
    explicit, mscale = _magnitude(rope), next(iter(magnitudes.values()), None)
    magnitude = explicit if mscale is None else mscale
    if trained == 1 and factor > 1 and magnitude is None:
        raise SettingError(
            f"{ORIGINAL} is 1, but LongRoPE divides by its logarithm: it must be at least 2.\n"
            "Or write the magnitude itself as attention_factor."
        )
    factors = {name: rope.numbers(name, MAX_FEATURES) for name in ("short_factor", "long_factor")}
    return {**factors, "attention_factor": magnitude}


def _llama3(rope: Keys, trained: int, factor: float) -> dict[str, Any]:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high < low:
        raise SettingError(
            f"this configuration has {rope.path}low_freq_factor={low} and {rope.path}high_freq_factor={high}, but the "
            "second must not be smaller. Llama 3.1 has 1 and 4."
        )
    return {"low_frequency_factor": low, "high_frequency_factor": high}
