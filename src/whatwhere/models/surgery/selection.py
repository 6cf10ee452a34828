"""Select what surgery changes: tensors of the vocabulary and of positions, and keys of configurations."""

from collections.abc import Mapping, Sequence

from whatwhere.errors import CheckpointError, WhatWhereError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.names import (
    OTHER_MODALITIES,
    OUTPUT_PROJECTIONS,
    POSITIONS,
    TOKENS,
    WHOLE_OUTPUT_PROJECTIONS,
    is_per_layer,
)
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import TEXT_KEYS, nested_text
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.models.surgery.source import Source
from whatwhere.what.token_ids import nested_configs, padding_dependence, shares_vocabulary, token_ids, why_fixed

_BIASES = (
    "final_logits_bias", "lm_head.bias", "predictions.bias", "predictions.decoder.bias", "lm_head.decoder.bias",
    "vocab_projector.bias", "generator_lm_head.bias", "lm_loss.bias", "pred_layer.proj.bias", "embed_out.bias",
    "proj_out.bias", "output_projection.bias",
)  # fmt: skip
_FURTHER = ("value_embeddings.weight",)
"""Suffixes of tables with a vector for each token that enter elsewhere than at the input: at the values, in NeoMME."""
_WHOLE_BIASES = ("output.bias", "decoder.bias", "head.bias")

CONFIGS = ("config.json", "generation_config.json")
_VOCABULARY_SIZES = (
    "vocab_size", "n_words", "n_token", "org_vocab_size", "decoder_vocab_size", "unpadded_vocab_size",
)  # fmt: skip
_PER_LAYER = "vocab_size_per_layer_input"
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
_TEXT = (*TEXT_KEYS, "thinker_config", "decoder")


# Tensors


def vocabulary_tensors(checkpoint: Checkpoint) -> list[Entry]:
    """Find every tensor with one row, or one value, for each token.

    Returns:
        The token table first, then its copies, the output projection, and biases of logits.

    Raises:
        CheckpointError: If no token table is known, or one is stored in parts, as quantized tables are.
    """
    table = checkpoint.token_table
    if table is None:
        raise checkpoint.without_table("Its tensors are listed by whatwhere.read(path).tensors.")
    rows = checkpoint.entry(table).shape[0]
    whole = (*WHOLE_OUTPUT_PROJECTIONS, checkpoint.output_projection)

    def belongs(entry: Entry) -> bool:
        if is_other_modality(entry):
            return False
        if is_per_layer(entry.name) or (
            entry.name == f"{table}_integer" and entry.shape[0] == rows
        ):  # the quantized copy in I-BERT
            return True
        if len(entry.shape) == 2 and entry.shape[0] == rows:
            return _has_suffix(entry.name, (*TOKENS, *OUTPUT_PROJECTIONS, *_FURTHER)) or entry.name in whole
        return entry.shape in ((rows,), (1, rows)) and (_has_suffix(entry.name, _BIASES) or entry.name in _WHOLE_BIASES)

    excluded = (table, checkpoint.names.position_table)
    others = [entry for entry in checkpoint.tensors.values() if entry.name not in excluded and belongs(entry)]
    found = [checkpoint.entry(table), *others]
    checkpoint.require_stored(entry.name for entry in found)
    if (why := checkpoint.why_unread(table)) is not None:
        raise CheckpointError(f"{quoted(table)} of {checkpoint.path} {why}.\nPass a table in a floating-point type.")
    modules = tuple(f"{entry.name.removesuffix('.weight')}." for entry in found if len(entry.shape) == 2)
    beside = [name for name in possibly_missed(checkpoint, found) if name.startswith(modules)]
    if beside:
        raise CheckpointError(
            f"{quoted(beside[0])} has as many rows as the table beside which it is stored, and is not known: it may be "
            "a scale.\nSave the model without it first, its tables in a floating-point type."
        )
    return found


def possibly_missed(checkpoint: Checkpoint, changed: Sequence[Entry]) -> list[str]:
    """Return the names of other tensors with as many rows as the vocabulary, which may belong to it.

    Tables of positions do not, though a model may have as many positions as tokens.
    """
    rows, names = changed[0].shape[0], {entry.name for entry in changed}
    return [
        entry.name
        for entry in checkpoint.tensors.values()
        if entry.shape and entry.shape[0] == rows and entry.name not in names and len(entry.shape) <= 2
        if not _has_suffix(entry.name, POSITIONS)
    ]


def notes_on_missed(checkpoint: Checkpoint, changed: Sequence[Entry]) -> list[str]:
    """Return a note on other tensors with as many rows as the vocabulary: four, and how many more."""
    others = possibly_missed(checkpoint, changed)
    more = f" and {len(others) - 4:,} more" if len(others) > 4 else ""
    return [f"unchanged, though they have as many rows: {', '.join(others[:4])}{more}"] if others else []


def require_none_missed(checkpoint: Checkpoint, changed: Sequence[Entry]) -> None:
    """Raise CheckpointError if a table that is not known may have rows by token ids."""
    tables = [name for name in possibly_missed(checkpoint, changed) if "embed" in name and name.endswith("weight")]
    if tables := [name for name in tables if len(checkpoint.entry(name).shape) == 2]:
        raise CheckpointError(
            f"{tables[0]} has as many rows as the vocabulary, and is not known: if token ids select its rows, new ids "
            "would select others.\nKeep the vocabulary of this model; whatwhere resize adds tokens at its end."
        )


def position_tensors(checkpoint: Checkpoint) -> list[Entry]:
    """Find the learned position tables of encoder and decoder, but not those for images.

    Returns:
        The tables, at least one.

    Raises:
        CheckpointError: If there is none.
    """
    table = checkpoint.position_table
    if table is None:
        raise CheckpointError(
            f"{checkpoint.path} has no table of learned positions, so there is none to interpolate.\nRotary positions "
            "are extended by RoPE scaling in the configuration, such as YaRN; ALiBi needs nothing."
        )
    checkpoint.require_stored([table])
    shape, suffix = checkpoint.entry(table).shape, next(one for one in POSITIONS if _has_suffix(table, [one]))
    return [
        entry
        for entry in checkpoint.tensors.values()
        if entry.shape == shape and _has_suffix(entry.name, [suffix]) and not is_other_modality(entry)
    ]


def position_tensors_after_padding(checkpoint: Checkpoint) -> list[Entry]:
    """Find the learned tables in which position 0 is the row after pad_token_id: of positions, and of boxes in LiLT.

    Returns:
        The tables; none in ESM-2, which has rotary positions.
    """
    if checkpoint.position_table is None:
        return []
    rows = checkpoint.entry(checkpoint.position_table).shape[0]
    boxes = [one for one in checkpoint.tensors.values() if _has_suffix(one.name, ["box_position_embeddings.weight"])]
    tables = [*position_tensors(checkpoint), *(entry for entry in boxes if entry.shape[0] == rows)]
    rounded = [f"{entry.name}_integer" for entry in tables]  # the quantized copies in I-BERT
    return [*tables, *(checkpoint.entry(name) for name in rounded if name in checkpoint.tensors)]


def _has_suffix(name: str, suffixes: Sequence[str]) -> bool:
    return any(name == suffix or name.endswith((f".{suffix}", f"/{suffix}")) for suffix in suffixes)


def is_other_modality(entry: Entry) -> bool:
    """Return whether a tensor is for images, sound or video rather than text, by its name."""
    return any(part in entry.name.lower() for part in OTHER_MODALITIES)


# Configurations


def with_vocabulary_size(config: Json, old: int, new: int) -> Json:
    """Return a configuration with another vocabulary size, wherever the old one is stated or is the default.

    Examples:
        >>> with_vocabulary_size({"vocab_size": 5, "text_config": {"vocab_size": 5}}, 5, 8)
        {'vocab_size': 8, 'text_config': {'vocab_size': 8}}
        >>> with_vocabulary_size({"text_config": {"model_type": "gemma3_text"}}, 5, 8)
        {'text_config': {'model_type': 'gemma3_text', 'vocab_size': 8}}
    """
    changed = _with_sizes(config, _VOCABULARY_SIZES, {old: new})
    if any(key in part for part in nested_configs(config) for key in (*_VOCABULARY_SIZES, "tgt_vocab_size")):
        return changed
    return _with_stated_size(changed, new)


def _with_stated_size(config: Json, size: int) -> Json:
    inner = next((key for key in _TEXT if isinstance(config.get(key), Mapping)), None)
    if inner is None:
        return {**config, "vocab_size": size}
    return {**config, inner: _with_stated_size(dict(config[inner]), size)}


def with_per_layer_size(config: Json, new: int) -> Json:
    """Return a configuration with another size of the token tables of each layer (Gemma 3n, Gemma 4)."""
    inner = next((key for key in _TEXT if isinstance(config.get(key), Mapping)), None)
    if _PER_LAYER in config or inner is None:
        return {**config, _PER_LAYER: new}
    return {**config, inner: with_per_layer_size(config[inner], new)}


def with_position_count(config: Json, old: int, new: int, offset: int) -> Json:
    """Return a configuration with another number of positions, with or without the rows before position 0.

    Args:
        offset: rows of the table before position 0.

    Examples:
        >>> with_position_count({"max_position_embeddings": 514}, old=512, new=1024, offset=2)
        {'max_position_embeddings': 1026}
    """
    return _with_sizes(config, _LENGTHS, {old: new, old + offset: new + offset})


def _with_sizes(config: Json, keys: tuple[str, ...], sizes: Mapping[int, int]) -> Json:
    changed = dict(config)
    for key, value in config.items():
        if key in keys and isinstance(value, int) and value in sizes:
            changed[key] = sizes[value]
        if isinstance(value, Mapping) and shares_vocabulary(key, value, None):
            changed[key] = _with_sizes(value, keys, sizes)
    return changed


def with_stated_padding(source: Source) -> Json | None:
    """Return config.json, with the padding id of the model type if it has none; None without the file.

    After renumbering tokens, the default of the model type would be another token, or none at all.
    """
    config = source.json("config.json")
    if config is None or any("pad_token_id" in part for part in nested_configs(config)):
        return config
    table = source.checkpoint.token_table
    rows = source.checkpoint.entry(table).shape[0] if table is not None else 1
    try:
        padding = from_huggingface(with_vocabulary_size(config, rows, rows)).padding_idx
    except WhatWhereError:  # a model type that is not known or not supported
        padding = (padding_dependence(config) or (None, None))[1]
    if padding is None:
        return config
    stated = {"pad_token_id": padding}
    key, text = nested_text(config)
    return {**config, key: {**text, **stated}} if key else {**config, **stated}


def ids_in_configs(source: Source, rows: int) -> dict[str, dict[str, list[int]]]:
    """Return the token ids in the configurations of a folder: file -> key -> ids."""
    ids = {name: token_ids(source.json(name) or {}, rows) for name in CONFIGS}
    return {name: keys for name, keys in ids.items() if keys}


def notes_on_other_files(source: Source, rows: int) -> list[str]:
    """Return notes on other files of the folder with token ids, which are not renumbered."""
    if source.folder is None:
        return []
    names = ("preprocessor_config.json", "processor_config.json", "adapter_config.json")
    keys = {name: sorted(token_ids(source.json(name) or {}, rows)) for name in names}
    return [f"{', '.join(some)} of {name} hold old ids" for name, some in keys.items() if some]


def notes_on_size(config: Json, rows: int) -> list[str]:
    """Return notes on vocabulary sizes in a configuration that differ from that of the table."""
    return [
        f"{key} of config.json was {part[key]}, not the table's {rows}, and stays"
        for part in nested_configs(config)
        for key in _VOCABULARY_SIZES
        if part.get(key) not in (None, rows)
    ]


def require_one_vocabulary(source: Source, renumbering: bool = True) -> None:
    """Raise CheckpointError if token ids are more than row numbers of one table, so that they cannot be changed.

    Args:
        renumbering: whether tokens get other ids, rather than rows being added or removed at the end.
    """
    if (why := why_fixed(source.checkpoint.config or {}, source.checkpoint.tensors, renumbering)) is not None:
        raise CheckpointError(why)
    if extra := _extra_rows(source.checkpoint):
        raise CheckpointError(
            f"the token table of this model has {extra} rows more than its output projection, and its code counts them "
            "from vocab_size on: with another size they would be other tokens.\n"
            "Such a vocabulary cannot be changed."
        )


def _extra_rows(checkpoint: Checkpoint) -> int:
    """Return how many rows the token table has beyond the output projection, by their shapes or the model type."""
    table, output = checkpoint.token_table, checkpoint.output_projection
    if table is not None and output is not None:
        return checkpoint.entry(table).shape[0] - checkpoint.entry(output).shape[0]
    try:
        return checkpoint.description.extra_rows
    except WhatWhereError:  # a model type that is not known or not supported
        return 0


def require_ids_inside(source: Source, rows: int, size: int) -> None:
    """Raise CheckpointError if a configuration has a token id whose row would be removed."""
    for name, keys in ids_in_configs(source, rows).items():
        for key, ids in keys.items():
            if max(ids) >= size:
                raise CheckpointError(
                    f"{key} of {name} is {max(ids)}, but {size:,} rows have the ids 0..{size - 1}.\n"
                    "To remove other tokens and keep this one, use: whatwhere trim. Or set the key to null first."
                )
