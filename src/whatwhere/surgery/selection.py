"""Select what surgery changes: tensors of the vocabulary and of positions, and keys of configurations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from whatwhere.errors import CheckpointError, TokenError, WhatWhereError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.names import (
    OUTPUT_PROJECTIONS,
    POSITIONS,
    TOKENS,
    WHOLE_OUTPUT_PROJECTIONS,
    is_other_modality,
    is_per_layer,
)
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import TEXT_KEYS, nested_text
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.surgery.changed_copy import ChangedCopy, as_json
from whatwhere.what.token_ids import nested_configs, padding_dependence, shares_vocabulary, token_ids, why_fixed

if TYPE_CHECKING:
    from torch import Tensor

_BIASES = (
    "final_logits_bias", "lm_head.bias", "predictions.bias", "predictions.decoder.bias", "lm_head.decoder.bias",
    "vocab_projector.bias", "generator_lm_head.bias", "lm_loss.bias", "pred_layer.proj.bias", "embed_out.bias",
    "proj_out.bias", "output_projection.bias",
)  # fmt: skip
_FURTHER = ("value_embeddings.weight",)
"""Suffixes of tables with a vector for each token that enter elsewhere than at the input: at the values, in NeoMME."""
_WHOLE_BIASES = ("output.bias", "decoder.bias", "head.bias")

_CONFIGS = ("config.json", "generation_config.json")
_VOCABULARY_SIZES = (
    "vocab_size", "n_words", "n_token", "org_vocab_size", "decoder_vocab_size", "unpadded_vocab_size",
)  # fmt: skip
_PER_LAYER = "vocab_size_per_layer_input"
_LENGTHS = (
    "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_target_positions",
    "max_decoder_position_embeddings", "max_sequence_length",
)  # fmt: skip
_TEXT = (*TEXT_KEYS, "thinker_config", "decoder")


# Tensors


def vocabulary_tensors(copy: ChangedCopy, renumbering: bool = True) -> list[Entry]:
    """Return `token_tensors`, or refuse a model whose token ids are more than row numbers of one table."""
    checkpoint = copy.checkpoint
    if (why := why_fixed(checkpoint.config or {}, checkpoint.tensors, renumbering)) is not None:
        raise CheckpointError(why)
    if extra := _extra_rows(checkpoint):
        raise CheckpointError(
            f"the token table of this model has {extra} rows more than its output projection, and its code counts them "
            "from vocab_size on: with another size they would be other tokens.\n"
            "Such a vocabulary cannot be changed."
        )
    found = token_tensors(checkpoint)
    tables = [name for name in _possibly_missed(checkpoint, found) if "embed" in name and name.endswith("weight")]
    if renumbering and (tables := [name for name in tables if len(checkpoint.entry(name).shape) == 2]):
        raise CheckpointError(
            f"{tables[0]} has as many rows as the vocabulary, and is not known: if token ids select its rows, new ids "
            "would select others.\nKeep the vocabulary of this model; whatwhere resize adds tokens at its end."
        )
    return found


def _extra_rows(checkpoint: Checkpoint) -> int:
    """Return how many rows the token table has beyond the output projection, by their shapes or the model type."""
    table, output = checkpoint.token_table, checkpoint.output_projection
    if table is not None and output is not None:
        return checkpoint.entry(table).shape[0] - checkpoint.entry(output).shape[0]
    try:
        return checkpoint.description.extra_rows
    except WhatWhereError:  # a model type that is not known or not supported
        return 0


def token_tensors(checkpoint: Checkpoint) -> list[Entry]:
    """Find every tensor with one row, or one value, for each token, the token table first."""
    table = checkpoint.token_table
    if table is None:
        raise checkpoint.without_table("Its tensors are listed by whatwhere.read(path).tensors.")
    rows = checkpoint.entry(table).shape[0]
    whole = (*WHOLE_OUTPUT_PROJECTIONS, checkpoint.output_projection)

    def belongs(entry: Entry) -> bool:
        if is_other_modality(entry.name):
            return False
        if is_per_layer(entry.name) or (entry.name == f"{table}_integer" and entry.shape[0] == rows):  # as in I-BERT
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
    beside = [name for name in _possibly_missed(checkpoint, found) if name.startswith(modules)]
    if beside:
        raise CheckpointError(
            f"{quoted(beside[0])} has as many rows as the table beside which it is stored, and is not known: it may be "
            "a scale.\nSave the model without it first, its tables in a floating-point type."
        )
    return found


def _possibly_missed(checkpoint: Checkpoint, changed: Sequence[Entry]) -> list[str]:
    """Return the names of other tensors with as many rows as the vocabulary, but for tables of positions."""
    rows, names = changed[0].shape[0], {entry.name for entry in changed}
    return [
        entry.name
        for entry in checkpoint.tensors.values()
        if entry.shape and entry.shape[0] == rows and entry.name not in names and len(entry.shape) <= 2
        if not _has_suffix(entry.name, POSITIONS)
    ]


def checked_ids(command: str, ids: Iterable[int], rows: int) -> list[int]:
    """Return ids that a user passed, each once; raise TokenError where there are none, or one has no row."""
    chosen = list(dict.fromkeys(ids))
    if not chosen:
        raise TokenError(f"{command} got no ids.\nPass at least one.")
    if outside := [number for number in chosen if not 0 <= number < rows]:
        raise TokenError(f"id {outside[0]:,} is outside the vocabulary, which has ids 0..{rows - 1:,}.")
    return chosen


def position_tensors(checkpoint: Checkpoint) -> list[Entry]:
    """Find the learned position tables of encoder and decoder, at least one, but not those for images."""
    table = checkpoint.position_table
    if table is None:
        raise CheckpointError(
            f"{checkpoint.path} has no table of learned positions, so there is none to interpolate.\nRotary positions "
            "are extended by RoPE scaling: whatwhere extend. ALiBi needs nothing."
        )
    checkpoint.require_stored([table])
    shape, suffix = checkpoint.entry(table).shape, next(one for one in POSITIONS if _has_suffix(table, [one]))
    return [
        entry
        for entry in checkpoint.tensors.values()
        if entry.shape == shape and _has_suffix(entry.name, [suffix]) and not is_other_modality(entry.name)
    ]


def position_tensors_after_padding(checkpoint: Checkpoint) -> list[Entry]:
    """Find the learned tables in which position 0 is the row after pad_token_id: of positions, and of boxes in LiLT."""
    if checkpoint.position_table is None:  # as in ESM-2, which has rotary positions
        return []
    rows = checkpoint.entry(checkpoint.position_table).shape[0]
    boxes = [one for one in checkpoint.tensors.values() if _has_suffix(one.name, ["box_position_embeddings.weight"])]
    tables = [*position_tensors(checkpoint), *(entry for entry in boxes if entry.shape[0] == rows)]
    rounded = [f"{entry.name}_integer" for entry in tables]  # the quantized copies in I-BERT
    return [*tables, *(checkpoint.entry(name) for name in rounded if name in checkpoint.tensors)]


def recompute_buffers(copy: ChangedCopy, old: int, new: int, offset: int = 0) -> None:
    """Recompute buffers of older files that depend on the number of positions: ids of positions, and causal masks."""
    import torch

    def make(entry: Entry) -> "Tensor":
        if entry.name.endswith("attn.bias"):
            made = torch.ones(new, new, dtype=torch.bool).tril()[None, None]
        else:
            made = torch.arange(new + offset)[None] * entry.name.endswith("position_ids")
        return made.to(getattr(torch, entry.dtype))

    for entry in copy.checkpoint.tensors.values():
        if entry.name.endswith(("position_ids", "token_type_ids")) and entry.shape == (1, old + offset):
            copy.compute(entry, partial(make, entry), "recomputed", (1, new + offset))
        elif entry.name.endswith("attn.bias") and entry.shape == (1, 1, old, old):
            copy.compute(entry, partial(make, entry), "recomputed", (1, 1, new, new))


def _has_suffix(name: str, suffixes: Sequence[str]) -> bool:
    return any(name == suffix or name.endswith((f".{suffix}", f"/{suffix}")) for suffix in suffixes)


# Configurations


def with_rows(config: Json, tables: Sequence[Entry], old: int, new: int) -> Json:
    """Return a configuration with another vocabulary size, wherever the old one is stated or is the default."""
    changed = _with_sizes(config, _VOCABULARY_SIZES, {old: new})
    if not any(key in part for part in nested_configs(config) for key in (*_VOCABULARY_SIZES, "tgt_vocab_size")):
        changed = _with_text_size(changed, "vocab_size", new)
    if any(is_per_layer(each.name) for each in tables):  # of Gemma 3n and Gemma 4
        changed = _with_text_size(changed, _PER_LAYER, new)
    return changed


def _with_text_size(config: Json, key: str, size: int) -> Json:
    """Return a configuration with a size where it is stated, or else in that of the text."""
    inner = next((name for name in _TEXT if isinstance(config.get(name), Mapping)), None)
    if key in config or inner is None:
        return {**config, key: size}
    return {**config, inner: _with_text_size(config[inner], key, size)}


def with_position_count(config: Json, old: int, new: int, offset: int = 0) -> Json:
    """Return a configuration with another number of positions, with or without the rows before position 0."""
    return _with_sizes(config, _LENGTHS, {old: new, old + offset: new + offset})


def _with_sizes(config: Json, keys: tuple[str, ...], sizes: Mapping[int, int]) -> Json:
    changed = dict(config)
    for key, value in config.items():
        if key in keys and isinstance(value, int) and value in sizes:
            changed[key] = sizes[value]
        if isinstance(value, Mapping) and shares_vocabulary(key, value, None):
            changed[key] = _with_sizes(value, keys, sizes)
    return changed


def configs_of(copy: ChangedCopy) -> dict[str, Json]:
    """Return the configurations of a folder with token ids, by file; each states its padding id, not a default."""
    configs = {name: config for name in _CONFIGS if (config := copy.json(name)) is not None}
    config = configs.get("config.json")
    if config is None or any("pad_token_id" in part for part in nested_configs(config)):
        return configs
    table = copy.checkpoint.token_table
    rows = copy.checkpoint.entry(table).shape[0] if table is not None else 1
    try:
        padding = from_huggingface(with_rows(config, [], rows, rows)).padding_idx
    except WhatWhereError:  # a model type that is not known or not supported
        padding = (padding_dependence(config) or (None, None))[1]
    if padding is not None:
        key, text = nested_text(config)
        stated = {"pad_token_id": padding}
        configs["config.json"] = {**config, key: {**text, **stated}} if key else {**config, **stated}
    return configs


def ids_in_configs(copy: ChangedCopy, rows: int) -> dict[str, dict[str, list[int]]]:
    """Return the token ids in the configurations of a folder: file -> key -> ids."""
    return {name: token_ids(config, rows) for name, config in configs_of(copy).items()}


def change_added_tokens(copy: ChangedCopy, change: Callable[[Json], Json]) -> None:
    """Change the tokens by id in tokenizer_config.json, where it lists them."""
    settings = copy.json("tokenizer_config.json") or {}
    if isinstance(decoder := settings.get("added_tokens_decoder"), dict):
        copy.files["tokenizer_config.json"] = as_json({**settings, "added_tokens_decoder": change(decoder)})


# Notes for the user


def notes_on_vocabulary(copy: ChangedCopy, tables: Sequence[Entry], renumbered: bool) -> list[str]:
    """Return notes on what may belong to the vocabulary and is not changed: ids in other files, sizes and tensors."""
    rows, others = tables[0].shape[0], _possibly_missed(copy.checkpoint, tables)
    others_with_ids = ("preprocessor_config.json", "processor_config.json", "adapter_config.json") if renumbered else ()
    notes = [
        f"{', '.join(keys)} of {name} hold old ids"
        for name in others_with_ids
        if (keys := sorted(token_ids(copy.json(name) or {}, rows)))
    ]
    if copy.folder is not None:
        notes += [
            f"{key} of config.json was {part[key]}, not the table's {rows}, and stays"
            for part in nested_configs(copy.checkpoint.config or {})
            for key in _VOCABULARY_SIZES
            if part.get(key) not in (None, rows)
        ]
    if others:
        more = f" and {len(others) - 4:,} more" if len(others) > 4 else ""
        notes.append(f"unchanged, though they have as many rows: {', '.join(others[:4])}{more}")
    return notes
