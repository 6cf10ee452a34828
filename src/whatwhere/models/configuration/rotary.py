"""Keys of rotary positions: `rope_parameters` of transformers 5, `rope_scaling` and others of transformers 4."""

from collections.abc import Mapping
from dataclasses import replace

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Json, Keys
from whatwhere.models.configuration.layers import Labels, read_labels
from whatwhere.models.configuration.model_types import FRACTION, MAX_FEATURES, ModelType, Rope, RopeSet
from whatwhere.models.configuration.plan import Plan
from whatwhere.models.configuration.rope_scaling import (
    FACTOR_OF_VLLM,
    ORIGINAL,
    ROPE_TYPES,
    Context,
    read_scaling,
    require_fit,
)

IGNORED = ("finetuned",)  # a remark in the files of YaRN's authors, which affects nothing
NEUTRAL = dict.fromkeys(("attention_factor", "extrapolation_factor", "factor"), (1.0,))
"""Rope parameters that change nothing where the rope_type does not read them -> the value."""
MAX_AXES = 8
"""More axes than any model has; tokens of videos have 3 coordinates."""


def read_rope(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Add the rotary plan of each layer."""
    rope = kind.rope or Rope()
    labels, types = read_labels(keys, kind.layers, model.layers)
    parameters = _parameters(keys, rope)
    if rope.required:
        _require_sets(keys, labels)
    interleaved = rope.interleaved
    if rope.interleaved_key is not None:
        interleaved = keys.flag(rope.interleaved_key, default=interleaved)
    plans = {}
    for label in rope.sets:
        dims = {heads.head_dim for heads, own in zip(model.heads, labels, strict=True) if own == label}
        if len(dims) > 1:
            raise SettingError(
                f"{keys.path}layers that rotate alike have heads of {' and '.join(map(str, sorted(dims)))} features, "
                f"but whatwhere reads one size for each layer type of {keys.owner!r}."
            )
        head_dim = dims.pop() if dims else model.heads[0].head_dim
        plans[label] = _plan(keys, head_dim, model.max_length, rope, parameters.get(label, {}), label, interleaved)
    unknown = [label for label in labels if label is not None and label not in plans] if rope.by_type else []
    if unknown:
        raise SettingError(
            f"layer_types has {unknown[0]!r}, for which {keys.owner!r} has no rope parameters: it knows "
            f"{', '.join(rope.sets)}."
        )
    by_layer = tuple(None if label is None else plans[label if rope.by_type else ""] for label in labels)
    notes = (*model.notes, *_notes(rope, parameters))
    return replace(model, query_key=by_layer, layer_types=types, notes=notes)


def _parameters(keys: Keys, rope: Rope) -> dict[str, Json | None]:
    """Return the parameters of each label, in the form of transformers 5 or 4."""
    newer, older = (keys.take(name, default=None) for name in ("rope_parameters", "rope_scaling"))
    _require_dictionaries(keys, {"rope_parameters": newer, "rope_scaling": older})
    if older and not rope.reads_rope_scaling:
        raise SettingError(
            f"{keys.path}rope_scaling is given, but the code of {keys.owner!r} reads rope_parameters only: write "
            f"{{{next(iter(rope.sets))!r}: {{...}}, ...}}."
        )
    if newer and older and dict(newer) != dict(older):
        raise SettingError(
            f"{keys.path}rope_parameters and {keys.path}rope_scaling are both given, and differ: keep one.\n"
            "The first is the form of transformers 5, the second that of transformers 4."
        )
    if newer and rope.by_type:
        return _parameters_by_type(keys, rope, newer)
    parameters = newer or older
    if not parameters:
        return {label: defaults.parameters for label, defaults in rope.sets.items()}
    return {label: parameters if defaults.scaled else {} for label, defaults in rope.sets.items()}


def _parameters_by_type(keys: Keys, rope: Rope, newer: Json) -> dict[str, Json | None]:
    unknown = [key for key in newer if key not in rope.sets]
    if unknown:
        raise SettingError(
            f"{keys.path}rope_parameters of {keys.owner!r} has one set for each layer type, "
            f"{', '.join(rope.sets)}, but has {unknown[0]!r}.\n"
            f"Write them as {{{next(iter(rope.sets))!r}: {{...}}, ...}}."
        )
    _require_dictionaries(keys, {f"rope_parameters.{label}": value for label, value in newer.items()})
    return dict(newer)


def _require_sets(keys: Keys, labels: Labels) -> None:
    given = keys.values.get("rope_parameters") or {}
    absent = [label for label in dict.fromkeys(labels) if label is not None and label not in given]
    if absent:
        raise SettingError(
            f"{keys.path}rope_parameters has no entry for layers of the type {absent[0]}, without which "
            f"transformers fails: write {{{absent[0]!r}: {{'rope_type': 'default', 'rope_theta': ...}}}}, or null "
            "if they do not rotate."
        )


def _plan(
    keys: Keys,
    whole_dim: int,
    max_length: int | None,
    rope: Rope,
    parameters: Json | None,
    label: str,
    interleaved: bool,
) -> Plan | None:
    """Return the plan of the layers that have a label, with heads of `whole_dim` features."""
    if parameters is None:
        return None
    name = "rope_scaling" if keys.values.get("rope_scaling") else "rope_parameters"
    given = keys.nested(f"{name}{'.' if label else ''}{label}.", parameters)
    defaults = rope.sets[label]
    rope_type = _rope_type(given, rope)
    extra = (*rope.extra.get("", ()), *rope.extra.get(rope_type, ()))
    given.defaults = dict.fromkeys(extra)
    theta = _inside_or_beside(given, "rope_theta", keys, defaults.theta_key, defaults.theta)
    head_dim = whole_dim if rope.dim_key is None else keys.whole(rope.dim_key, most=MAX_FEATURES)
    fraction = _fraction(keys, whole_dim, rope, given, defaults, head_dim, rope_type)
    if label and given.values.get("truncate") is False:
        raise SettingError(
            f"{given.path}truncate is false, but transformers looks for it beside the parameters of layer types, "
            "and rounds the bounds of YaRN's ramp: remove it, if the model was trained so."
        )
    original = keys.whole(ORIGINAL, default=None)
    scaling = read_scaling(rope_type, given, Context(max_length, original, fraction))
    whole_head = fraction == 1.0 or rope_type == "proportional"
    rotary_dim = None if whole_head else int(head_dim * fraction)
    sections = _sections(given, rope)
    given.known |= {*IGNORED, *extra, ORIGINAL}
    given.finish_all({**NEUTRAL, "max_position_embeddings": (max_length,)})
    require_rotary_dim(given.path, head_dim, rotary_dim)
    require_fit(scaling, given.path, rotary_dim or head_dim, theta)
    plan = rotary_plan(head_dim, theta, interleaved, rotary_dim, scaling, sections, rope.axis_layout, given.path)
    if rope.reversed:
        plan = plan.with_settings(reversed=True)
    if rope.learned:
        plan = replace(plan, scheme="rotary-learned")
    if rope.whole:  # the rotated features are the last ones of a head
        rotated = plan.rotary_dim
        plan = plan.with_settings(head_dim=whole_dim, rotary_dim=rotated, rotary_start=whole_dim - rotated)
    return plan


def _rope_type(given: Keys, rope: Rope) -> str:
    """Return the `rope_type`, from either of its keys; `su` and the model type's own names are replaced."""
    renamed = {"su": "longrope", **rope.renamed}
    choices = tuple(dict.fromkeys((*ROPE_TYPES, *renamed)))
    names = [name for name in ("rope_type", "type") if given.values.get(name) is not None] or ["rope_type"]
    stated = {name: given.choice(name, choices, default="default") for name in names}
    given.known |= {"rope_type", "type"}
    types = {name: renamed.get(value, value) for name, value in stated.items()}
    if len(set(types.values())) > 1:
        raise SettingError(
            f"{given.path}rope_type is {stated['rope_type']!r} and {given.path}type is {stated['type']!r}: keep one."
        )
    rope_type = next(iter(types.values()))
    if rope.by_type and "rope_type" not in types and rope_type != "default":
        raise SettingError(
            f"{given.path}type is {stated['type']!r}, but in {given.owner!r} transformers reads rope_type only, and "
            f"leaves positions unscaled: write rope_type={stated['type']!r}, or remove the parameters."
        )
    return rope_type


def _fraction(
    keys: Keys, whole_dim: int, rope: Rope, given: Keys, defaults: RopeSet, head_dim: int, rope_type: str
) -> float:
    """Return the fraction of `head_dim` features that is rotated."""
    # Mistral 4 states the fraction of the whole head, of which only the features that are kept apart are rotated.
    states_whole = rope.whole and not rope.learned
    if states_whole:
        usual = _rotated_fraction(head_dim, whole_dim)
    else:
        key = rope.rotary_dim_key
        stated = None if key is None else keys.whole(key, default=None, most=MAX_FEATURES)
        usual = defaults.fraction if stated is None else _rotated_fraction(stated, head_dim)
    if usual == defaults.fraction != 1 and keys.values.get(defaults.fraction_key or "", usual) is None:
        if rope.fails_at_null and given.values.get(FRACTION) is None:
            raise SettingError(
                f"{keys.path}{defaults.fraction_key} is null, with which transformers fails in {keys.owner!r}: "
                f"write the fraction of a head that is rotated, or remove the key for {usual}."
            )
        usual = 1.0
    fraction = _inside_or_beside(given, FRACTION, keys, defaults.fraction_key, usual)
    if rope.fraction_of is not None or states_whole:
        name = rope.fraction_of
        features = whole_dim if name is None else keys.whole(name, most=MAX_FEATURES)
        if (part := int(features * fraction)) != head_dim:
            of = f"a head of {features}" if name is None else f"{keys.path}{name}={features}"
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
    unread = rope.rotary_dim_unread
    stated = None if unread is None else keys.whole(unread, default=None, most=MAX_FEATURES)
    if stated not in (None, int(head_dim * fraction)):
        raise SettingError(
            f"{keys.path}{unread} is {stated}, but the code of {keys.owner!r} does not read it, and rotates "
            f"{int(head_dim * fraction)} features, by rope_parameters.{FRACTION}: make them agree."
        )
    return fraction


def _sections(given: Keys, rope: Rope) -> tuple[int, ...] | None:
    """Return the number of pairs of each axis; None if tokens have one coordinate."""
    if rope.sections is None:
        return None
    expected = rope.axis_layout == "interleaved"
    interleaved = given.flag("mrope_interleaved", default=expected)
    if interleaved != expected:
        raise given.wrong("mrope_interleaved", interleaved, f"{given.owner!r} has {rope.axis_layout} ones.")
    sections = given.listed("mrope_section", MAX_AXES, default=rope.sections) or ()
    needed = "must be a number of pairs, at least 0."
    given.require_each("mrope_section", sections, lambda each: type(each) is int and 0 <= each <= MAX_FEATURES, needed)
    return tuple(sections)


def _notes(rope: Rope, parameters: Mapping[str, Json | None]) -> tuple[str, ...]:
    factors = {each.get(FACTOR_OF_VLLM, 1.0) for each in parameters.values() if each} - {1.0}
    notes = tuple(
        f"{FACTOR_OF_VLLM} is not read, as in transformers; vLLM multiplies the magnitude by {factor:.6g}"
        for factor in sorted(factors)
    )
    if rope.dim_key is None or rope.whole:
        return notes
    return (
        *notes,
        f"heads keep the rotated features apart, {rope.dim_key} of them: map only these, then join both "
        "parts; the softmax scale is that of the whole",
    )


def _require_dictionaries(keys: Keys, values: Json) -> None:
    for name, value in values.items():
        if value is not None and not isinstance(value, Mapping):
            raise keys.wrong(name, value, "must be a dictionary or null.")


def _inside_or_beside(given: Keys, inner: str, keys: Keys, outer: str | None, default: float) -> float:
    """Return a number that is in the rope parameters or beside them."""
    inside = given.number(inner, default=None)
    if outer is None:
        return default if inside is None else inside
    beside = keys.number(outer, default=None)
    if inside is not None and beside not in (None, inside):
        raise SettingError(
            f"{given.path}{inner} is {inside} and {keys.path}{outer} is {beside}: keep one of them.\n"
            "Transformers would use the first silently."
        )
    if inside is None and beside is None:
        keys.assume(outer, default)
    return next(value for value in (inside, beside, default) if value is not None)


def _rotated_fraction(rotary_dim: int, head_dim: int) -> float:
    """Return the fraction of a head of which a model's code, `int(head_dim * fraction)`, makes these features again."""
    exact = rotary_dim / head_dim
    return exact if int(head_dim * exact) == rotary_dim else (rotary_dim + 0.5) / head_dim


def require_rotary_dim(path: str, head_dim: int, rotary_dim: int | None) -> None:
    """Raise ShapeError unless the number of rotated features is even, and at most that of the head; None is all."""
    rotated = head_dim if rotary_dim is None else rotary_dim
    if rotated % 2 or not 2 <= rotated <= head_dim:
        raise ShapeError(
            f"this configuration makes {path}rotary_dim={rotated} of head_dim={head_dim}, but needs an even number of\n"
            f"features, from 2 to {head_dim}: they are rotated in pairs."
        )


def rotary_plan(
    head_dim: int,
    theta: float,
    interleaved: bool,
    rotary_dim: int | None,
    scaling: Plan | None,
    sections: tuple[int, ...] | None = None,
    axis_layout: str = "chunked",
    path: str = "",
) -> Plan:
    """Return the plan of rotary positions; arguments are those of Rotary and MultimodalRotary, `path` of messages."""
    settings = {
        "head_dim": head_dim,
        "theta": theta,
        "interleaved": interleaved,
        "rotary_dim": rotary_dim,
        "scaling": scaling,
    }
    if sections is None:
        return Plan("rotary", settings)
    _require_sections(path, sections, (rotary_dim or head_dim) // 2, axis_layout)
    return Plan("rotary-multimodal", {**settings, "sections": sections, "layout": axis_layout})


def _require_sections(path: str, sections: tuple[int, ...], pairs: int, axis_layout: str) -> None:
    """Raise ShapeError unless every pair belongs to exactly one axis."""
    if sum(sections) != pairs:
        raise ShapeError(
            f"{path}mrope_section is {list(sections)}, {sum(sections)} pairs in total, but {2 * pairs} rotated "
            f"features are {pairs} pairs: each needs one axis."
        )
    for axis, section in enumerate(sections[1:], start=1):
        # Interleaved axes take turns: each has one of as many consecutive pairs as there are axes.
        if axis_layout == "interleaved" and section and len(sections) * (section - 1) + axis >= pairs:
            raise ShapeError(
                f"{path}mrope_section is {list(sections)}, but interleaved axis {axis} has one pair in "
                f"{len(sections)}: its last would be beyond the {pairs} pairs that there are.\n"
                "Make the other sections equal, and that of axis 0 the same or larger."
            )
