"""Convert Hugging Face configurations to a Description; PyTorch is imported only when it is built."""

from collections.abc import Mapping
from dataclasses import replace
from json import JSONDecodeError, loads
from pathlib import Path
from stat import S_ISREG
from typing import Any, Protocol, runtime_checkable

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.factors import read_embedding_scale, read_scales, read_temperatures
from whatwhere.models.configuration.keys import ELSEWHERE, Json, Keys, affects_positions, equal_values, short_repr
from whatwhere.models.configuration.layers import BIDIRECTIONAL, read_windows
from whatwhere.models.configuration.model_type import ModelType
from whatwhere.models.configuration.model_types import (
    DATA,
    MODEL_TYPES,
    READ_TYPES,
    TEXT_KEYS,
    TEXT_TYPES,
    find_model_type,
    require_likeness,
    suggest_model_type,
)
from whatwhere.models.configuration.plan import CurvePlan, Plan
from whatwhere.models.configuration.positions import read_positions
from whatwhere.models.configuration.repeated_keys import agreeing_values
from whatwhere.models.configuration.sizes import read_sizes
from whatwhere.where.window import Window

__all__ = ["Config", "HasDict", "from_huggingface"]

MAX_FILE_SIZE, MAX_KEYS = 10_000_000, 10_000
ROPE = ("rope", "rotary")
"""Parts of key names that show that queries and keys are rotated."""


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
    values, outer, path, nested_part = _text_of(*_inner(_values(config), part))
    _require_keys(values)
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
    keys = Keys(values, defaults, name, path, kind.aliases)
    sizes, notes = read_sizes(kind, keys, part)
    position = read_positions(keys, sizes, kind)
    scales = read_scales(keys, sizes, kind, position)
    embedding_scale = read_embedding_scale(keys, kind)
    windows, window_notes = read_windows(keys, kind.windows, sizes, position)
    temperatures = read_temperatures(keys, sizes, kind, position)
    none: tuple[None, ...] = (None,) * sizes.layers
    description = Description(
        model_type=name if like is None else like,
        part=part,
        vocab_size=sizes.vocab_size,
        dim=sizes.dim,
        token_dim=sizes.token_dim,
        heads=sizes.heads,
        layers=sizes.layers,
        input=position.input,
        query_key=position.query_key or none,
        score=position.score or none,
        scales=scales,
        embedding_scale=embedding_scale,
        tied=_tied(outer, name, sizes.tied) and kind.can_tie,
        padding_idx=sizes.padding_idx,
        max_length=position.max_length or sizes.max_length,
        layer_types=position.layer_types,
        windows=windows,
        sinks=_sinks(kind, windows),
        temperatures=temperatures,
        segments=sizes.segments,
        rotary_part=sizes.rotary_part,
        output_dim=sizes.output_dim,
        extra_rows=sizes.extra_rows,
        causal=sizes.causal and BIDIRECTIONAL not in window_notes,
        notes=(
            *notes,
            *position.notes,
            *kind.notes,
            *window_notes,
            *_temperature_notes(temperatures),
            *_outer_notes(outer),
            *(note for key, note in DATA.long_text_notes.items() if values.get(key) is not None),
        ),
    )
    repeated = agreeing_values(description, keys, None if kind.windows is None else kind.windows.key)
    unread = (*kind.unread, *DATA.outer_unread.get(str(outer.get("model_type")), ()))
    keys.finish(unread, kind.fixed, kind.all_names, repeated)
    if like is not None and like != name:
        accepted = (*kind.unread, *kind.fixed, *kind.all_names, *repeated)  # those that contradict were refused
        keys.finish_like(like, ROPE if position.query_key is not None else (), accepted)
    tied = ("tie_word_embeddings",) if outer.get("tie_word_embeddings") is not None else ()
    return replace(description, used=("model_type", *keys.used, *tied), assumed=tuple(keys.assumed))


def _model_type(name: str, like: str | None) -> ModelType:
    """Return the registry's entry for a model type, or for the one that it is read as."""
    if like is None or like == name:
        return find_model_type(name)
    if name in READ_TYPES:
        raise SettingError(
            f"model_type {name!r} is known, so like={like!r} is not needed: leave it out.\nIf the file has the wrong "
            f"type, replace it: from_huggingface({{**config, 'model_type': {like!r}}})."
        )
    require_likeness(name)
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
            raise CheckpointError(f"{path} is no regular file.\nPass a config.json, or a folder with one.")
        if status.st_size > MAX_FILE_SIZE:
            raise CheckpointError(f"{path} has {status.st_size:,} bytes, which is no configuration.")
        values = loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        if isinstance(problem, CheckpointError):
            raise
        reason = (
            "is not JSON"
            if isinstance(problem, JSONDecodeError | UnicodeDecodeError | RecursionError)
            else "cannot be read"
        )
        detail = getattr(problem, "strerror", None) or problem
        raise CheckpointError(f"{path} {reason}: {detail}.\nPass a config.json, or a folder with one.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} contains a {type(values).__name__}, but a configuration is a dictionary.")
    return values


def _require_keys(values: Json) -> None:
    """Raise SettingError if there are too many keys, or keys that are not strings."""
    if len(values) > MAX_KEYS:
        raise SettingError(f"this configuration has {len(values):,} keys, but at most {MAX_KEYS:,} are read.")
    for name in values:
        if not isinstance(name, str):
            raise SettingError(f"this configuration has the key {short_repr(name)}, but keys are strings.")


def _inner(values: Json, part: str | None) -> tuple[Json, Json, str, str | None]:
    """Return the configuration of a part that is a model of its own, that of the whole, its path and its name."""
    name = values.get("model_type")
    if isinstance(name, str) and name in DATA.spread:
        spread: Any = values
        for key in DATA.spread[name]:
            spread = spread.get(key) if isinstance(spread, Mapping) else None
        return ({**values, **spread} if isinstance(spread, Mapping) else values), {}, "", None
    if not isinstance(name, str) or name not in DATA.inner:
        return values, {}, "", None
    paths = DATA.inner[name]
    chosen = next(iter(paths)) if part is None else part
    if chosen not in paths:
        raise SettingError(
            f"part={part!r} is not one of {name!r}, of which are read: {', '.join(filter(None, paths))}."
        )
    inner: Any = values
    path = ""
    for key in paths[chosen]:
        inner, path = inner.get(key), f"{path}{key}."
        inner = inner.to_dict() if isinstance(inner, HasDict) and not isinstance(inner, Mapping) else inner
        if not isinstance(inner, Mapping):
            raise SettingError(
                f"{path[:-1]} is {short_repr(inner)}, but must be a dictionary: {name!r} has its text there."
            )
        _require_keys(inner)
    if inner.get("model_type") is None and name in TEXT_TYPES:
        inner = {**inner, "model_type": TEXT_TYPES[name]}
    return inner, values, path, chosen or None


def _text_of(values: Json, whole: Json, path: str, part: str | None) -> tuple[Json, Json, str, str | None]:
    """Return the configuration of the text, that of the whole model if it is nested in one, its path and its part."""
    outer = str(values.get("model_type"))
    key = next((key for key in TEXT_KEYS if values.get(key) is not None), TEXT_KEYS[0])
    text = values.get(key)
    if isinstance(text, HasDict) and not isinstance(text, Mapping):
        text = text.to_dict()
    if text is not None and not isinstance(text, Mapping):
        raise SettingError(f"{key} is {short_repr(text)}, but must be a dictionary.")
    if text is None:
        # In older files of these models, and in those of LLaVA's authors, the keys of the text are not nested.
        if outer not in TEXT_TYPES:
            return values, whole, path, part
        classes = values.get("architectures")
        own = DATA.classes.get(str(classes[0])) if isinstance(classes, list) and classes else None
        flat = {name: value for name, value in values.items() if not str(name).startswith("mm_")}
        return {**flat, "model_type": own or TEXT_TYPES[outer]}, whole, path, part
    _require_keys(values)
    if text.get("model_type") is None and outer in TEXT_TYPES:
        text = {**text, "model_type": TEXT_TYPES[outer]}
    kind = MODEL_TYPES.get(str(text.get("model_type")))
    # A size that the text leaves out is its type's default there.
    known = text if kind is None else {**kind.defaults, **kind.nested, **text}
    ignored = {*ELSEWHERE, *DATA.of_others.get(outer, ())}
    for name, value in values.items():
        ours = name not in ignored and not name.startswith("mm_")
        if ours and affects_positions(name, value) and not equal_values(known.get(name), value):
            raise SettingError(
                f"{name} is {short_repr(value)} beside {key}, and {short_repr(text.get(name))} in it: keep "
                "one of them.\nTransformers reads the text's own."
            )
    return text, values, f"{path}{key}.", part


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


def _sinks(kind: ModelType, windows: tuple[Window | None, ...]) -> tuple[bool, ...]:
    if not kind.sinks:
        return ()
    return tuple(kind.sinks is True or window is not None for window in windows)


def _outer_notes(outer: Json) -> tuple[str, ...]:
    note = DATA.outer_notes.get(str(outer.get("model_type")))
    return () if note is None else (note,)


def _temperature_notes(temperatures: tuple[CurvePlan | Plan | None, ...]) -> tuple[str, ...]:
    count = sum(curve is not None for curve in temperatures)
    of = f"{count} of {len(temperatures)} layers multiply queries by a function of their position: see `temperatures`"
    return (of,) if count else ()
