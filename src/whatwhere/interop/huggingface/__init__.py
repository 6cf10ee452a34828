"""Hugging Face configurations, both ways: what they say of tokens and positions, and how to say it to them."""

from collections.abc import Mapping
from json import JSONDecodeError, loads
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.interop.huggingface.description import Description, Plan
from whatwhere.interop.huggingface.families import OUTER, family_of
from whatwhere.interop.huggingface.family import Family, Position
from whatwhere.interop.huggingface.keys import ELSEWHERE, Keys, bears_on_position

__all__ = ["Description", "Plan", "from_huggingface", "to_huggingface"]

LARGEST_FILE = 10_000_000


@runtime_checkable
class HasDict(Protocol):
    """An object that gives its settings as a dictionary, as a configuration of transformers does."""

    def to_dict(self) -> dict[str, Any]:
        """Give the settings."""


Config = Mapping[str, Any] | HasDict | str | Path


def from_huggingface(config: Config, *, part: str | None = None, like: str | None = None) -> Description:
    """Read what a configuration says of tokens and positions.

    Every key that bears on position is read or refused, with a near name; keys of other matters are left alone. What
    was read is in `used`, what transformers would take for absent keys in `assumed`. Which features make a pair, and
    where positions start, no key says: it is known for each model type. Of a model of text and images the text is read.

    Args:
        config: a dictionary, a configuration of transformers (which need not be installed), or the path of a
            config.json or of a folder that holds one.
        part: `decoder` or `encoder` of a model that has both; None is the decoder.
        like: read a model type that is not known as if it were this one, which it must be in all that no key says.

    >>> description = from_huggingface({
    ...     "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
    ...     "rope_theta": 500_000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    ...     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})
    >>> description.head_dim, description.key_heads, description.wheres()[0].query_key.scaling
    (128, 8, Llama3(factor=8.0, original_length=8192, low_frequency_factor=1.0, high_frequency_factor=4.0))
    """
    values, outer, place = _inner(_values(config))
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise CheckpointError(
            "this configuration has no model_type, so its keys have no meaning.\n"
            "If you know it, say so: from_huggingface({**config, 'model_type': 'llama'})."
        )
    family = family_of(model_type if like is None else like)
    part = _part(family, model_type, part)
    keys = Keys(values, family.defaults, model_type, place)
    sizes, notes = family.read_sizes(keys, part)
    position = _together([reader.read(keys, sizes) for reader in family.readers])
    scales = family.scale.read(keys, sizes, position)
    embedding_scale = family.embedding.read(keys, sizes)
    keys.finish(family.beside)
    none: tuple[None, ...] = (None,) * sizes.layers
    tied = outer.get("tie_word_embeddings")
    return Description(
        model_type=model_type if like is None else like,
        part=part,
        vocab_size=sizes.vocab_size,
        dim=sizes.dim,
        token_dim=sizes.token_dim,
        num_heads=sizes.num_heads,
        key_heads=sizes.key_heads,
        head_dim=sizes.head_dim,
        layers=sizes.layers,
        input=position.input,
        query_key=position.query_key or none,
        score=position.score or none,
        scales=scales,
        embedding_scale=embedding_scale,
        tied=sizes.tied if tied is None else bool(tied),
        padding_id=sizes.padding_id,
        max_length=position.max_length or sizes.max_length,
        layer_types=position.layer_types,
        notes=(*notes, *position.notes, *family.notes),
        used=("model_type", *keys.used, *(() if tied is None else ("tie_word_embeddings",))),
        assumed=tuple(keys.assumed),
    )


def to_huggingface(description: Description) -> dict[str, Any]:
    """Give the keys of a configuration that say what a description says, in the form of transformers 5.

    They are the keys that bear on tokens and positions, to be laid over a configuration; reading them gives the
    description again.

    >>> config = {"model_type": "gptj", "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}
    >>> description = from_huggingface(config)
    >>> to_huggingface(description)["rotary_dim"], from_huggingface(to_huggingface(description)) == description
    (4, True)
    """
    family = family_of(description.model_type)
    written = {"model_type": description.model_type, **family.write_sizes(description)}
    for reader in family.readers:
        written |= reader.write(description)
    return {**written, **family.scale.write(description), **family.embedding.write(description)}


def _values(config: Config) -> Mapping[str, Any]:
    """Give the dictionary that a configuration is, or that a file holds."""
    if isinstance(config, Mapping):
        return config
    if isinstance(config, HasDict):
        return config.to_dict()
    if not isinstance(config, str | Path):
        raise SettingError(
            f"a configuration is a dictionary, has to_dict(), or is a path, but this has the type "
            f"{type(config).__name__}.\nOf a model pass model.config."
        )
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes, which is no configuration.")
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
        raise CheckpointError(f"{path} {reason}: {detail}.\nPass a config.json, or a folder that holds one.") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds a {type(values).__name__}, but a configuration is a dictionary.")
    return values


def _inner(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
    """Give the text's own dictionary, where a model of text and images has one, what is around it, and its place."""
    text, outer = values.get("text_config"), values.get("model_type")
    if isinstance(text, HasDict) and not isinstance(text, Mapping):
        text = text.to_dict()
    if not isinstance(text, Mapping):
        # Older files of these models have the keys of the text beside those of the images.
        renamed = {"model_type": OUTER[outer]} if isinstance(outer, str) and outer in OUTER else {}
        return {**values, **renamed}, {}, ""
    for name, value in values.items():
        if name not in ELSEWHERE and bears_on_position(name, value) and text.get(name) != value:
            raise SettingError(
                f"{name} is {value!r} beside text_config, and {text.get(name)!r} in it: keep one of them.\n"
                "Transformers reads the text's own."
            )
    if text.get("model_type") is None and isinstance(outer, str) and outer in OUTER:
        text = {**text, "model_type": OUTER[outer]}
    return text, values, "text_config."


def _part(family: Family, model_type: str, part: str | None) -> str | None:
    if not family.parts:
        if part is not None:
            raise SettingError(f"{model_type!r} has one part only: leave part={part!r} out.")
        return None
    part = "decoder" if part is None else part
    if part not in family.parts:
        raise SettingError(f"part={part!r} is not one of {model_type!r}, which has: {', '.join(family.parts)}.")
    return part


def _together(found: list[Position]) -> Position:
    """Lay the doors of several readers together; no two of a family read the same one."""
    return Position(
        input=next((p.input for p in found if p.input is not None), None),
        query_key=next((p.query_key for p in found if p.query_key is not None), None),
        score=next((p.score for p in found if p.score is not None), None),
        layer_types=next((p.layer_types for p in found if p.layer_types is not None), None),
        max_length=next((p.max_length for p in found if p.max_length is not None), None),
        notes=tuple(note for p in found for note in p.notes),
    )
