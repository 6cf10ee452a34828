"""Convert Hugging Face configurations to a Description; PyTorch is imported only when it is built."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from json import JSONDecodeError, loads
from pathlib import Path
from stat import S_ISREG
from typing import Any, Protocol, runtime_checkable

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import ANY, ELSEWHERE, Json, Keys, affects_positions, equal_values, short_repr
from whatwhere.models.configuration.layers import BIDIRECTIONAL, read_windows
from whatwhere.models.configuration.model_types import (
    DATA,
    MODEL_TYPES,
    READ_TYPES,
    TEXT_KEYS,
    TEXT_TYPES,
    ModelType,
    find_model_type,
    require_readable,
    suggest_model_type,
)
from whatwhere.models.configuration.positions import POSITIONS
from whatwhere.models.configuration.scores import TEMPERATURES, read_embedding_scale, read_scales
from whatwhere.models.configuration.sizes import BOTH_WAYS, read_sizes

__all__ = ["Config", "HasDict", "from_huggingface"]

MAX_FILE_SIZE, MAX_KEYS = 10_000_000, 10_000
ROPE = ("rope", "rotary")  # parts of key names that show that queries and keys are rotated


@runtime_checkable
class HasDict(Protocol):
    """An object with `to_dict()`, such as a configuration of transformers."""

    def to_dict(self) -> Json:
        """Return the settings."""


Config = Json | HasDict | str | Path


def from_huggingface(config: Config, *, part: str | None = None, like: str | None = None) -> Description:
    """Read the tokens and positions of a model from its configuration, without importing PyTorch.

    Every key that affects positions is used or rejected, and so are misspelled names of such keys; other keys are
    ignored. The keys that were read are in `used`, defaults of transformers for absent keys in `assumed`. No key states
    which features make a rotary pair, or at which row positions start: that is known for each model type. Of a model
    with text and images the text part is read, also where its authors call it llm_config or language_config, or have
    its keys among others. Malformed values are rejected.

    Args:
        config: a dictionary, a configuration of transformers (which need not be installed), or the path of a
            config.json or of a folder with one.
        part: `decoder` or `encoder` of a model that has both; None is the decoder.
        like: read an unknown model type as this one, which must agree with it in everything that is in no key. A key
            that this type does not have is rejected, unless its name shows that it does not concern positions.

    Returns:
        The tokens and positions, as data.

    Raises:
        CheckpointError: If the file cannot be read, the model type is not known, or a required key is absent.
        SettingError, ShapeError: If a value cannot be read, or contradicts another.

    Examples:
        >>> description = from_huggingface({
        ...     "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "num_hidden_layers": 32,
        ...     "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
        ...     "rope_theta": 500_000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        ...     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})
        >>> description.head_dim, description.key_heads, description.query_key[0].settings["scaling"]
        (128, 8, Llama3(factor=8.0, original_length=8192, low_frequency_factor=1.0, high_frequency_factor=4.0))
    """
    return read_configuration(config, part, like)


def read_configuration(config: Config, part: str | None, like: str | None, way_out: str | None = None) -> Description:
    """Read a configuration as `from_huggingface` does; `way_out` is for keys that nobody can remove from it."""
    values, outer, path, nested_part = _text_of(_values(config), part)
    values = _dictionary(values)
    name = values.get("model_type")
    if not isinstance(name, str):
        suggested = suggest_model_type(values.get("architectures"))
        raise CheckpointError(
            "this configuration has no model_type, so its keys have no meaning.\n"
            f"If you know it, add it: from_huggingface({{**config, 'model_type': {suggested}}})."
        )
    key, value, other = DATA.otherwise.get(name, ("", None, ""))
    if other and values.get(key) == value:
        values, name = {**values, "model_type": other}, other
    kind = _model_type(name, like)
    part = nested_part or _part(kind, name, part)
    defaults = {**kind.defaults, **(kind.nested if path and name in READ_TYPES else {})}
    keys = Keys(values, defaults, name, path, kind.aliases, way_out)
    model = read_sizes(kind, keys, name if like is None else like, part)
    for rule in kind.positions:
        model = POSITIONS[rule.name](keys, model, kind, **rule.settings)
    scales = read_scales(keys, model, kind)
    embedding_scale = None if kind.embedding is None else read_embedding_scale(keys, kind.embedding)
    windows, both_sides = read_windows(keys, kind.windows, model, BOTH_WAYS in model.notes)
    outer_type, none = str(outer.get("model_type")), (None,) * model.layers
    temperatures = none if kind.temperature is None else TEMPERATURES[kind.temperature](keys, model, kind)
    rotated = model.query_key != ()
    model = replace(
        model,
        query_key=model.query_key or none,
        score=model.score or none,
        scales=scales,
        embedding_scale=embedding_scale,
        tied=_tied(outer, name, model.tied) and kind.can_tie,
        windows=windows,
        sinks=tuple(kind.sinks is True or window is not None for window in windows) if kind.sinks else (),
        temperatures=temperatures,
        causal=model.causal and not both_sides,
        notes=(
            *model.notes,
            *kind.notes,
            *((BIDIRECTIONAL,) if both_sides else ()),
            *_counted(windows, "have windows: see `windows`"),
            *_counted(temperatures, "multiply queries by a function of their position: see `temperatures`"),
            *(note for name, note in DATA.outer_notes.items() if name == outer_type),
            *(note for key, note in DATA.long_text_notes.items() if values.get(key) is not None),
        ),
    )
    fixed = {key: (value,) for key, value in kind.fixed.items()}
    repeated = {**_agreeing_values(model, keys, None if kind.windows is None else kind.windows.key), **fixed}
    of_parts = {key for names in kind.parts.values() for own in names.values() for key in own}
    accepted = (*kind.unread, *DATA.outer_unread.get(outer_type, ()), *of_parts)
    keys.finish(accepted, repeated)
    if like is not None and like != name:
        keys.finish_like(like, ROPE if rotated else (), (*accepted, *repeated))  # those that contradict were refused
    tied = ("tie_word_embeddings",) if outer.get("tie_word_embeddings") is not None else ()
    return replace(model, used=("model_type", *keys.used, *tied), assumed=tuple(keys.assumed))


def _counted(of_layers: tuple[object, ...], do: str) -> tuple[str, ...]:
    """Return a note on how many layers do what only some do; none where there are none."""
    count = sum(one is not None for one in of_layers)
    return (f"{count} of {len(of_layers)} layers {do}",) if count else ()


def _model_type(name: str, like: str | None) -> ModelType:
    """Return the registry's entry for a model type, or for the one that it is read as."""
    if like is None or like == name:
        return find_model_type(name)
    if name in READ_TYPES:
        raise SettingError(
            f"model_type {name!r} is known, so like={like!r} is not needed: leave it out.\nIf the file has the wrong "
            f"type, replace it: from_huggingface({{**config, 'model_type': {like!r}}})."
        )
    require_readable(name, "cannot be read as a different type")
    return find_model_type(like)


def _values(config: Config) -> Json:
    """Return a configuration as a dictionary; read it if it is a path."""
    if isinstance(config, Mapping):
        return config
    if isinstance(config, HasDict):
        values = config.to_dict()
        if not isinstance(values, Mapping):
            raise SettingError(f"to_dict() returned {short_repr(values)}, but a configuration is a dictionary.")
        return values
    if not isinstance(config, str | Path):
        raise SettingError(
            f"a configuration is a dictionary, has to_dict(), or is a path, but this has the type "
            f"{type(config).__name__}.\nOf a model pass model.config."
        )
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):  # a pipe or a device may never end
            raise CheckpointError(f"{path} is not a regular file.\nPass a config.json, or a folder with one.")
        if status.st_size > MAX_FILE_SIZE:
            raise CheckpointError(f"{path} has {status.st_size:,} bytes, which is not a configuration.")
        values = loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        if isinstance(problem, CheckpointError):
            raise
        no_json = isinstance(problem, JSONDecodeError | UnicodeDecodeError | RecursionError)
        reason = "is not JSON" if no_json else "cannot be read"
        detail = getattr(problem, "strerror", None) or problem
        raise CheckpointError(f"{path} {reason}: {detail}.\nPass a config.json, or a folder with one.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} contains a {type(values).__name__}, but a configuration is a dictionary.")
    return values


def _dictionary(value: Any, path: str = "", why: str = "") -> Json:
    """Return a configuration, nested in another at a path, as a dictionary whose keys are strings."""
    value = value.to_dict() if isinstance(value, HasDict) and not isinstance(value, Mapping) else value
    if not isinstance(value, Mapping):
        raise SettingError(f"{path} is {short_repr(value)}, but must be a dictionary{why}.")
    if len(value) > MAX_KEYS:
        raise SettingError(f"this configuration has {len(value):,} keys, but at most {MAX_KEYS:,} are read.")
    for name in value:
        if not isinstance(name, str):
            raise SettingError(f"this configuration has the key {short_repr(name)}, but keys are strings.")
    return value


def _text_of(values: Json, part: str | None) -> tuple[Json, Json, str, str | None]:
    """Return the configuration of the text, that of the whole around it, its path in it, and the part that it is."""
    name, path, chosen = str(values.get("model_type")), "", None
    whole: Json = {}
    spread: Any = values
    for key in DATA.spread.get(name, ()):
        spread = spread.get(key) if isinstance(spread, Mapping) else None
    values = {**values, **spread} if isinstance(spread, Mapping) else values
    if name in DATA.inner:  # it is made of other configurations
        chosen = next(iter(DATA.inner[name])) if part is None else part
        if chosen not in DATA.inner[name]:
            known = ", ".join(filter(None, DATA.inner[name]))
            raise SettingError(f"part={part!r} is not one of {name!r}, of which are read: {known}.")
        whole, chosen = values, chosen or None
        for key in DATA.inner[name][chosen or ""]:
            values = _dictionary(values.get(key), f"{path}{key}", f": {name!r} has its text there")
            path = f"{path}{key}."
        values = _typed(values, name)
    name, key = str(values.get("model_type")), next((key for key in TEXT_KEYS if values.get(key) is not None), "")
    if key:
        text = _typed(_dictionary(values[key], key), name)
        _require_same(_dictionary(values), text, key, name)
        return text, values, f"{path}{key}.", chosen
    if name in TEXT_TYPES:  # in older files, and in those of LLaVA's authors, the keys of the text are not nested
        classes = values.get("architectures")
        own = DATA.classes.get(str(classes[0])) if isinstance(classes, list) and classes else None
        flat = {name: value for name, value in values.items() if not str(name).startswith("mm_")}
        values = {**flat, "model_type": own or TEXT_TYPES[name]}
    return values, whole, path, chosen


def _typed(text: Json, outer: str) -> Json:
    """Return the configuration of a text with its type, if that of the whole implies it."""
    implied = text.get("model_type") is None and outer in TEXT_TYPES
    return {**text, "model_type": TEXT_TYPES[outer]} if implied else text


def _require_same(whole: Json, text: Json, key: str, outer: str) -> None:
    """Raise SettingError if a key beside the text, which affects positions, has a different value in it."""
    kind = MODEL_TYPES.get(str(text.get("model_type")))
    # A size that the text leaves out is its type's default there.
    known = text if kind is None else {**kind.defaults, **kind.nested, **text}
    ignored = {*ELSEWHERE, *DATA.of_others.get(outer, ())}
    for name, value in whole.items():
        ours = name not in ignored and not name.startswith("mm_")
        if ours and affects_positions(name, value) and not equal_values(known.get(name), value):
            raise SettingError(
                f"{name} is {short_repr(value)} beside {key}, and {short_repr(text.get(name))} in it: keep "
                "one of them.\nTransformers reads the text's own."
            )


def _tied(outer: Json, name: str, default: bool) -> bool:
    """Return whether the output projection is tied, as the configuration of the whole model states it."""
    keys = Keys(outer, {}, name)
    tied = keys.flag("tie_word_embeddings", default=default)
    for key, value in outer.items():
        if key not in keys.known:
            keys.refuse_misspelling(key, value)
    return tied


def _part(kind: ModelType, name: str, part: str | None) -> str | None:
    if not kind.parts:
        if part is not None:
            raise SettingError(f"{name!r} has one part only: leave part={part!r} out.")
        return None
    part = "decoder" if part is None else part
    if part not in kind.parts:
        raise SettingError(f"part={part!r} is not one of {name!r}, which has: {', '.join(kind.parts)}.")
    return part


# Keys that a model's code does not read, but that repeat in other words what was read, or contradict it

THETA = (
    "rope_base", "rope_freq_base", "rope_theta", "rotary_base", "rotary_emb_base", "rotary_embedding_base", "theta",
)  # fmt: skip
FRACTION = ("partial_rotary_factor", "rope_pct", "rotary_emb_fraction", "rotary_pct", "rotary_percentage")
ROTARY_DIM = ("rotary_dim", "rotary_ndims")
INTERLEAVED = (
    "rope_interleave", "rope_interleaved", "rope_traditional", "rotary_emb_interleaved", "rotary_interleaved",
)  # fmt: skip
HALF = ("is_neox_style", "rope_is_neox_style")
ROTATED = ("rope", "rotary", "use_rope", "use_rotary", "use_rotary_embeddings", "use_rotary_pos_emb")
UNSCALED = ("rope_ratio", "rope_scaling_factor", "rotary_scaling_factor")
WINDOW = ("sliding_window", "sliding_window_size")
HEAD_DIM = ("head_dim", "head_size")
IN_WINDOWS = {
    "num_heads": "swa_num_attention_heads",
    "key_heads": "swa_num_key_value_heads",
    "head_dim": "swa_head_dim",
}
"""Fields of Heads -> key of the layers with a window."""
ENCODING = ("pos_emb_type", "position_embedding", "position_embedding_type", "position_encoding")
ENCODINGS = {
    "learned": ("absolute", "learned", "learned_absolute"),
    "rotary": ("rope", "rotary"),
    "alibi": ("alibi",),
    "sinusoidal": ("sinusoidal",),
    "": ("none", "nope"),
}
"""Scheme, or none -> its words under the keys of ENCODING."""


def _agreeing_values(description: Description, keys: Keys, window_key: str | None) -> Mapping[str, tuple[object, ...]]:
    """Return keys with the values by which they repeat a description; `window_key` has a window as it is written."""
    plans = [plan for plan in description.query_key if plan is not None]
    scores = {plan.scheme for plan in description.score if plan is not None}
    schemes = scores | {"rotary" for _ in plans} | {plan.scheme for plan in (description.input,) if plan is not None}
    found: dict[str, tuple[object, ...]] = {}

    def state(names: Iterable[str], values: Iterable[object]) -> None:
        """State a value for keys where all layers share it."""
        if len(distinct := set(values)) == 1:
            found.update(dict.fromkeys(names, tuple(distinct)))

    state(THETA, [plan.settings["theta"] for plan in plans])
    state(FRACTION, [plan.rotary_dim / plan.settings["head_dim"] for plan in plans])
    state(INTERLEAVED, [plan.settings["interleaved"] for plan in plans])
    state(ROTARY_DIM, [plan.rotary_dim for plan in plans])
    state(HALF, [not plan.settings["interleaved"] for plan in plans])
    state(UNSCALED, [1 for _ in plans])
    state(ROTATED, [bool(plans)])
    state(("alibi", "use_alibi"), ["alibi" in scores])
    state(("relative_attention",), [bool(scores - {"alibi"})])
    state(("causal",), [description.causal])
    state(("bidirectional", "use_bidirectional_attention"), [not description.causal])
    if not schemes:  # what has no positions does not rotate, by whatever theta
        found |= dict.fromkeys((*THETA, *FRACTION), (ANY,))
    if len(schemes or {""}) == 1:
        found |= dict.fromkeys(ENCODING, ENCODINGS.get(next(iter(schemes), ""), ()))
    found |= _of_heads(description)
    state(("softmax_scale",), description.scales)
    state(("scale_attn_weights",), [scale != 1.0 for scale in description.scales])
    state(("query_pre_attn_scalar",), [scale**-2 for scale in description.scales])
    factor = description.embedding_scale
    state(("scale_embedding", "scale_embeddings"), [factor is not None])
    state(("embedding_multiplier", "scale_emb"), [1.0 if factor is None else factor])
    state(("max_position_embeddings", "n_positions"), [description.max_length or ANY])
    if window_key in WINDOW:
        state(WINDOW, [keys.values.get(window_key, keys.defaults.get(window_key))])
    return found


def _of_heads(description: Description) -> dict[str, tuple[object, ...]]:
    """Return the keys of heads: of all layers, where they are alike, and of those with a window."""
    found: dict[str, tuple[object, ...]] = {}
    if not description.heads:
        return found
    if description.rotary_part is not None:  # of latent attention, whose older files may divide features by heads
        one, rotates = description.heads[0], any(description.query_key)
        others = () if rotates else (description.dim // one.num_heads,)
        found["head_dim"] = (description.rotary_part, one.head_dim, *others)
    windowed = [window is not None for window in description.windows or (None,) * len(description.heads)]
    for layers, names in (
        (() if found else description.heads, {"head_dim": HEAD_DIM}),
        (_where(description.heads, windowed), {field: (name,) for field, name in IN_WINDOWS.items()}),
    ):
        for field, keys in names.items():
            if len(sizes := {getattr(heads, field) for heads in layers}) == 1:
                found |= dict.fromkeys(keys, tuple(sizes))
    if len(set(description.heads)) == 1:
        heads = description.heads[0]
        found["multi_query"] = (heads.key_heads == 1,)
        kind = {1: "multiquery", heads.num_heads: "multihead"}.get(heads.key_heads, "grouped")
        found["attention_head_type"] = (kind,)
    if any(windowed):
        found["hybrid_layer_pattern"] = ([int(has) for has in windowed],)
        sinks = description.sinks or (False,) * description.layers
        found["add_swa_attention_sink_bias"] = (any(_where(sinks, windowed)),)
        found["add_full_attention_sink_bias"] = (any(_where(sinks, [not has for has in windowed])),)
    return found


def _where(values: Iterable[Any], chosen: Iterable[bool]) -> list[Any]:
    return [value for value, one in zip(values, chosen, strict=True) if one]
