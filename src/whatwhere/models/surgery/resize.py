"""Resize the vocabulary or the position table of a checkpoint."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Literal

import numpy as np

from whatwhere.errors import CheckpointError, SettingError, ShapeError
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.names import is_per_layer
from whatwhere.models.configuration.keys import Json
from whatwhere.models.surgery.report import Report, Resized, RowStatistics, TableRows
from whatwhere.models.surgery.selection import (
    notes_on_missed,
    notes_on_size,
    position_tensors,
    require_ids_inside,
    require_one_vocabulary,
    vocabulary_tensors,
    with_per_layer_size,
    with_position_count,
    with_vocabulary_size,
)
from whatwhere.models.surgery.source import Edits, Progress, Source, as_json
from whatwhere.models.surgery.tokenizer_json import STALE, built, with_added
from whatwhere.what.text import encodings

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.what.resizing import Draw, Rearrangement
    from whatwhere.where.input.learned import Align, Rule

Rows = Literal["mean", "subtokens", "noise", "covariance"]
ROWS: tuple[Rows, ...] = ("mean", "subtokens", "noise", "covariance")


def resize_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    vocab_size: int | None = None,
    add_tokens: Sequence[str] = (),
    multiple_of: int | None = None,
    positions: int | None = None,
    rows: Rows | None = None,
    seed: int = 0,
    rule: "Rule" = "linear",
    align: "Align" = "ends",
    force: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Write a checkpoint with another number of tokens, or of learned positions.

    The token table, its copies, an untied output projection and biases of logits are changed together, and so are
    config.json and tokenizer.json. All other tensors are copied byte for byte.

    Args:
        path: a folder, or one file of safetensors, which then has no tokenizer.
        out: the output, of the same kind; it must not exist.
        add_tokens: texts that become tokens; their rows are at the ids of the tokenizer, even if a padded vocabulary
            had such rows already.
        multiple_of: round the number of rows up, which makes products with the table faster.
        positions: number of learned positions, which are interpolated; rows before position 0 are kept.
        rows: initial values of new rows: `mean`, `noise` or `covariance` (see Rearrangement), or `subtokens`: the mean
            of the rows of the tokens that the text was split into before. None is `noise` for tokens, so that
            they differ and have norms as the others do, and `mean` for padding, which is no token's.
        seed: of `noise` and `covariance`.
        rule, align: of the interpolation, see `whatwhere.where.input.learned`.
        force: replace an existing output.
        progress: called with the number of bytes of each chunk.

    Returns:
        The report, with statistics of kept and new rows.

    Raises:
        SettingError: If no size is given, or they contradict each other.
        ShapeError: If there are too few rows for the tokenizer, or more than fit on the disk.
        CheckpointError: If the checkpoint cannot be changed, or the output cannot be written.
        TokenError: If a text cannot become a token.
    """
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    words = source.checkpoint.words or ()
    default = rows is None and (words or add_tokens)  # tokens are known from padding
    rows = rows or ("noise" if default else "mean")
    if rows not in ROWS:
        raise SettingError(f"resize got rows={rows!r}, but knows only: {', '.join(ROWS)}.")
    if rows == "subtokens" and not add_tokens:
        raise SettingError("--rows subtokens needs tokens with a text.\nAdd some: --add-token TEXT.")
    if vocab_size is None and not add_tokens and multiple_of is None and positions is None:
        raise SettingError("resize got no size.\nPass --vocab-size, --add-token, --multiple-of or --positions.")
    edits = Edits()
    new_ids: tuple[int, ...] = ()
    measured: list[TableRows] = []
    config = source.checkpoint.config if source.folder is not None else None
    if vocab_size is not None or add_tokens or multiple_of is not None:
        require_one_vocabulary(source, renumbering=False)
        pieces = _add(source, add_tokens, rows, edits.files)
        old = vocabulary_tensors(source.checkpoint)
        change = _change(
            source, out, old[0], vocab_size, pieces, multiple_of, "mean" if rows == "subtokens" else rows, seed
        )
        if default:
            sampled = np.flatnonzero(change.sampled).tolist()
            named = pieces.keys() | {n for n in sampled if n < len(words) and words[n]}
            change = replace(change, padding=[n for n in sampled if n not in named])
        measured = rearrange(source, change, old, edits)
        config = None if config is None else with_rows(config, old, change.rows, len(change.source))
        edits.notes += _notes(source, old, change)
        edits.notes += _notes_on_new_rows(change, pieces, rows, seed)
        if change.padding:
            edits.notes.append(
                "padding is the mean of the other rows, and no token's: leave its logits out when you sample"
            )
        new_ids = tuple(pieces)
    if positions is not None:
        interpolated = _interpolate(source, positions, rule, align, edits)
        config = None if config is None else with_position_count(config, *interpolated)
        edits.notes.append("a model needs some training to read interpolated positions")
    if config is not None and config != source.checkpoint.config:
        edits.files["config.json"] = as_json(config)
    report = source.write("resize", out, edits, force, progress)
    return replace(report, measured=Resized(new_ids, tuple(measured)))


def with_rows(config: Json, tables: Sequence[Entry], old: int, new: int) -> Json:
    """Return a configuration with another number of rows of the vocabulary's tables."""
    changed = with_vocabulary_size(config, old, new)
    return with_per_layer_size(changed, new) if any(is_per_layer(each.name) for each in tables) else changed


def rearrange(source: Source, change: "Rearrangement", tables: Sequence[Entry], edits: Edits) -> list[TableRows]:
    """Rearrange the tables of the vocabulary; return their statistics, a list that is filled as they are written."""
    measured: list[TableRows] = []
    known, empty = int((change.source != -1).sum()), len(change.padding)
    what = f"{known:,} rows kept, {len(change.source) - known - empty:,} new{f', {empty:,} padding' if empty else ''}"
    for entry in tables:
        shape = (1, len(change.source)) if entry.shape[0] == 1 else (len(change.source), *entry.shape[1:])
        own_change = change.of_rows(entry.shape[0]) if is_per_layer(entry.name) else change
        edits.compute(entry, partial(_rearranged, source, own_change, entry, measured), what, shape)
    return measured


def _rearranged(source: Source, change: "Rearrangement", entry: Entry, measured: list[TableRows]) -> "Tensor":
    old = source.checkpoint.tensor(entry.name)
    if entry.shape[0] == 1 and len(entry.shape) == 2:
        return change.apply(old[0])[None]
    new = change.apply(old)
    if new.dim() == 2:
        kept, added = change.source[change.source != -1], np.flatnonzero(change.source == -1)
        if len(added) > len(change.padding):  # of rows that are alike
            added = np.setdiff1d(added, list(change.padding))
        measured.append(TableRows(entry.name, _statistics(old, kept), _statistics(new, added) if len(added) else None))
    return new


def _statistics(table: "Tensor", rows: np.ndarray) -> RowStatistics:
    import torch

    some = torch.from_numpy(rows)[torch.linspace(0, len(rows) - 1, min(len(rows), 2048)).long()]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[table.element_size()]
    values = table.view(bits)[some].view(table.dtype).double()
    spread = float((values - values.mean(0)).square().mean().sqrt()) if len(rows) > 1 else None
    return RowStatistics(len(rows), float(values.norm(dim=1).median()), spread)


def _add(source: Source, texts: Sequence[str], rows: Rows, files: dict[str, bytes | None]) -> dict[int, list[int]]:
    """Add tokens to the tokenizer's files; return new id -> subtokens whose mean row it gets, or an empty list."""
    if not texts:
        return {}
    contents = source.require_tokenizer(
        "a token cannot be given an id", "Pass the folder of the model, or add rows alone: --vocab-size."
    )
    before = built(contents)
    extended, ids = with_added(contents, texts)
    files["tokenizer.json"] = as_json(extended)
    if source.folder is not None and any((source.folder / name).is_file() for name in STALE):
        listed = dict(zip(texts, ids, strict=True))  # older tokenizers read added tokens from this file
        files["added_tokens.json"] = as_json({**(source.json("added_tokens.json") or {}), **listed})
    settings = source.json("tokenizer_config.json")
    if settings is not None and isinstance(settings.get("added_tokens_decoder"), dict):
        entries = [dict(token) for token in extended["added_tokens"][-len(ids) :]]
        new = {str(entry.pop("id")): entry for entry in entries}
        files["tokenizer_config.json"] = as_json(
            {**settings, "added_tokens_decoder": {**settings["added_tokens_decoder"], **new}}
        )
    if rows != "subtokens":
        return {number: [] for number in ids}
    return {n: encoding.ids for n, encoding in zip(ids, encodings(before, texts), strict=True)}


def _change(
    source: Source,
    out: Path,
    table: Entry,
    vocab_size: int | None,
    pieces: dict[int, list[int]],
    multiple_of: int | None,
    draw: "Draw",
    seed: int,
) -> "Rearrangement":
    """Return the rearrangement of rows for the new size."""
    from whatwhere.what.resizing import Rearrangement

    rows, words = table.shape[0], len(source.checkpoint.words or ())
    size = max(vocab_size if vocab_size is not None else rows, max(pieces, default=-1) + 1)
    if vocab_size is not None and size > vocab_size:
        raise SettingError(f"--vocab-size {vocab_size} is too small for the tokens that are added, up to #{size - 1}.")
    if multiple_of is not None:
        if multiple_of < 1:
            raise SettingError(f"--multiple-of got {multiple_of}, but needs a whole number of at least 1.")
        size = ceil(size / multiple_of) * multiple_of
    if size < 1 or (size < words <= rows):
        raise ShapeError(
            f"{size:,} rows are too few for the tokenizer, which has {words:,} tokens.\n"
            "To remove tokens, use: whatwhere trim."
        )
    require_ids_inside(source, rows, size)
    _require_space(out, table, size)
    change = Rearrangement.enlarged(rows, size, pieces, draw, seed, min(words, rows) or None)
    change.source[[n for n in pieces if n < size]] = -1  # a padded vocabulary may have had a row there
    return change


def _require_space(out: Path, table: Entry, size: int) -> None:
    """Raise ShapeError if a table with so many rows is larger than the free space on the output's disk."""
    folder = next(path for path in out.absolute().parents if path.exists())
    needed, free = size * (table.bytes // max(table.shape[0], 1)), disk_usage(folder).free
    if needed > free:
        raise ShapeError(
            f"{size:,} rows of {table.name} take {needed / 1e9:,.1f} GB, but the disk has {free / 1e9:,.1f} GB left.\n"
            "Choose a smaller number of rows."
        )


def _notes(source: Source, old: Sequence[Entry], change: "Rearrangement") -> list[str]:
    notes = []
    if source.folder is None:
        notes.append("the input is one file, so no configuration was changed: its vocab_size must be that of the table")
    else:
        notes += notes_on_size(source.checkpoint.config or {}, change.rows)
    notes += notes_on_missed(source.checkpoint, old)
    return notes


def _notes_on_new_rows(change: "Rearrangement", pieces: dict[int, list[int]], rows: Rows, seed: int) -> list[str]:
    """Return how the rows of added tokens were made, and which of them are equal."""
    if rows in ("noise", "covariance") and np.count_nonzero(change.sampled) > len(change.padding):
        return [f"the rows of new tokens are sampled by {rows}, seed {seed}: they differ, and need training"]
    equal = [n for n in pieces if change.sampled[n]] if rows == "mean" else []
    if rows == "subtokens":
        parts = [tuple(sorted(ids)) for ids in pieces.values()]
        equal = [n for n, own in zip(pieces, parts, strict=True) if parts.count(own) > 1]
    if len(equal) < 2:
        return []
    named = ", ".join(f"#{n}" for n in equal[:8]) + (", ..." if len(equal) > 8 else "")
    return [
        f"the rows of {named} are equal, so the model cannot tell these tokens apart before training; "
        "--rows noise samples them"
    ]


def _interpolate(source: Source, positions: int, rule: "Rule", align: "Align", edits: Edits) -> tuple[int, int, int]:
    """Interpolate the position tables; return the old and new length, and the row of position 0."""
    offset = source.checkpoint.position_offset
    tables = position_tensors(source.checkpoint)
    if offset is None:
        raise CheckpointError(
            f"the row of position 0 in {tables[0].name} is not known for this model, and rows before it must stay.\n"
            "Add its model_type to config.json, if it is a known one."
        )
    if positions < 1:
        raise ShapeError(f"--positions got {positions}, but needs a whole number of at least 1.")
    length = tables[0].shape[0] - offset

    def make(entry: Entry) -> "Tensor":
        import torch

        from whatwhere.where.input.learned import resized_rows

        table = source.checkpoint.tensor(entry.name)
        return torch.cat([table[:offset], resized_rows(table[offset:], positions, rule, align)])

    for entry in tables:
        what = f"interpolated ({rule}, {align})" + (f", {offset} rows before position 0 stay" if offset else "")
        edits.compute(entry, partial(make, entry), what, (positions + offset, entry.shape[1]))
    _recount(source, length, positions, offset, edits)
    return length, positions, offset


def _recount(source: Source, old: int, new: int, offset: int, edits: Edits) -> None:
    """Recompute buffers of older files that depend on the number of positions: position_ids and causal masks."""
    import torch

    def numbers(dtype: str) -> "Tensor":
        return torch.arange(new + offset)[None].to(getattr(torch, dtype))

    def mask(dtype: str) -> "Tensor":
        return torch.ones(new, new, dtype=torch.bool).tril()[None, None].to(getattr(torch, dtype))

    for entry in source.checkpoint.tensors.values():
        if entry.name.endswith("position_ids") and entry.shape == (1, old + offset):
            edits.compute(entry, partial(numbers, entry.dtype), "recomputed", (1, new + offset))
        elif entry.name.endswith("attn.bias") and entry.shape == (1, 1, old, old):
            edits.compute(entry, partial(mask, entry.dtype), "recomputed", (1, 1, new, new))
