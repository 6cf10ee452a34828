"""Repair rows of a checkpoint's token tables that training did not write, or broke."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64

from whatwhere.analysis.diagnostics import diagnostics, row_norms
from whatwhere.analysis.token_types import marking, texts
from whatwhere.checks import require_choice
from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.long_work import begin_step
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.lookup import read_rows
from whatwhere.models.checkpoint.safetensors import Chunk, Part
from whatwhere.models.checkpoint.token_tables import is_per_layer
from whatwhere.models.surgery.report import Changed, Repaired, RepairedRow, RepairedTable, Report
from whatwhere.models.surgery.selection import vocabulary_tensors
from whatwhere.models.surgery.source import Edits, Progress, Source
from whatwhere.models.surgery.tokenizer_json import built, ids_around, trimmed
from whatwhere.what.matrix_file import finite_rows, row_blocks, rows_at_a_time, selected_rows
from whatwhere.what.text import ids_of_each
from whatwhere.what.token_ids import nested_configs

NewRows = Mapping[int, Float64[np.ndarray, " dim"]]
Method = Literal["mean", "subtokens"]
METHODS: tuple[Method, ...] = ("mean", "subtokens")
_REQUESTED = "requested"


def repair_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    rows: Method = "mean",
    ids: Iterable[int] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Write a checkpoint in which broken rows of the token table and the output projection are repaired.

    Broken are rows of zeros, rows with NaN or infinity, and rows that `diagnostics` finds to be under-trained; each
    table is judged by itself. The row of the padding token may be zero, and rows beyond the tokenizer need no values:
    of these, only rows that are not finite are repaired, because they make all logits NaN.

    Args:
        path: a folder, or one file of safetensors, which then has no tokenizer.
        out: the output, of the same kind; it must not exist.
        rows: new values: `mean`, the mean of all rows that are not broken; or `subtokens`, the mean of the rows of the
            tokens into which the text is split without the broken ones. A token whose text cannot be split into others
            gets the mean.
        ids: rows to repair in every table instead, broken or not.
        force: replace an existing output.
        progress: called with the number of bytes of each chunk.

    Returns:
        The report, with each row, why it was repaired, what it was made of, and its norm before and after.

    Raises:
        SettingError: If `rows` is unknown, nothing is to be repaired, or `subtokens` lacks a tokenizer.
        TokenError: If an id is out of range.
        CheckpointError: If the checkpoint cannot be changed, or the output cannot be written.
    """
    require_choice("repair", "rows", rows, METHODS)
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    tables = _tables(source)
    requested = None if ids is None else _checked(ids, tables[0].shape[0])
    broken = {entry.name: _broken(source, entry) if requested is None else requested for entry in tables}
    broken = {name: reasons for name, reasons in broken.items() if reasons}
    if not broken:
        raise SettingError(
            f"{source.path} has no row of zeros, none that is not finite, and none that is found to be under-trained, "
            "so there is nothing to repair.\nName rows yourself: --ids FILE."
        )
    every = sorted({number for reasons in broken.values() for number in reasons})
    pieces = _pieces(source, every) if rows == "subtokens" else {}
    parts: dict[str, Part] = {}
    changed: list[Changed] = []
    measured: list[RepairedTable] = []
    for entry in tables:
        if reasons := broken.get(entry.name):
            new = _new_rows(source, entry, reasons, every, pieces)
            measured.append(_measured(source, entry, reasons, new, pieces))
            parts[entry.name] = Part(entry.name, entry.dtype, entry.shape, partial(_repaired, source, entry, new))
            changed.append(Changed.of(entry, entry.shape, f"{len(reasons):,} rows repaired"))
    written = source.write(out, Edits(parts, {}), force, progress)
    return Report(
        "repair", str(source.path), str(out), tuple(changed), written.kept, written.bytes,
        Repaired(rows, tuple(measured)), tuple(_notes(measured, rows)), written.not_copied,
    )  # fmt: skip


def _tables(source: Source) -> list[Entry]:
    """Return the tables with a vector for each token: the token table, its copies and an untied output projection."""
    entries = vocabulary_tensors(source.checkpoint)
    rows = entries[0].shape[0]
    return [
        entry
        for entry in entries
        if len(entry.shape) == 2 and entry.shape[0] == rows and "float" in entry.dtype and not is_per_layer(entry.name)
    ]


def _checked(ids: Iterable[int], rows: int) -> dict[int, str]:
    chosen = dict.fromkeys(ids, _REQUESTED)
    if not chosen:
        raise SettingError("repair got no ids.\nName at least one row, or none at all to repair those that are broken.")
    for number in chosen:
        if not 0 <= number < rows:
            raise TokenError(f"row {number:,} lies outside the token table, which has the rows 0..{rows - 1:,}.")
    return chosen


def _broken(source: Source, entry: Entry) -> dict[int, str]:
    """Return the broken rows of a table, and why each is: a row that has two reasons has the first one."""
    words = source.checkpoint.words
    begin_step(f"looking for broken rows of {entry.name}")
    found = diagnostics(read_rows(source.checkpoint, entry.name), None if words is None else len(words), hub_queries=0)
    reasons = dict.fromkeys(found.non_finite.tolist(), "not finite")
    beyond = set(found.beyond_vocabulary.tolist()) | _padding(source)
    others = [(number, "zero") for number in found.zero.tolist()]
    if found.decisive:
        others += [(number, "under-trained") for number in found.under_trained.tolist()]
    for number, why in others:
        if number not in beyond:
            reasons.setdefault(number, why)
    return dict(sorted(reasons.items()))


def _padding(source: Source) -> set[int]:
    """Return the ids of padding tokens, whose rows may be zero."""
    parts = nested_configs(source.checkpoint.config or {})
    ids = (part.get("pad_token_id") for part in parts)
    return {number for number in ids if isinstance(number, int)}


def _pieces(source: Source, broken: Sequence[int]) -> Mapping[int, list[int]]:
    """Return the tokens into which the text of each broken token is split by a tokenizer that lacks all of them.

    Tokens that the tokenizer adds or needs stay in it; their text has no pieces.
    """
    contents, words = source.json("tokenizer.json"), source.checkpoint.words
    if contents is None or words is None:
        raise SettingError(
            f"{source.path} has no tokenizer.json, which splits texts into tokens.\nPass --rows mean, or the folder of "
            "the model with its tokenizer."
        )
    model = contents["model"]
    stay = {int(token["id"]) for token in contents.get("added_tokens") or []} | ids_around(
        contents.get("post_processor")
    )
    stay |= {number for number, word in enumerate(words) if word == model.get("unk_token") or not word}
    if isinstance(model.get("unk_id"), int):
        stay.add(model["unk_id"])
    kept = [number for number, word in enumerate(words) if word and (number not in set(broken) or number in stay)]
    new_ids = {old: new for new, old in enumerate(kept)}
    tokenizer = built(trimmed(contents, new_ids))
    unknown = {number for number, word in enumerate(words) if word == model.get("unk_token")} | set(broken)
    decoded = texts([words[number] if number < len(words) else "" for number in broken], marking(words))
    pieces: dict[int, list[int]] = {}
    for number, text in zip(broken, decoded, strict=True):
        if isinstance(text, str) and text and number not in stay:
            ids = [kept[new] for new in ids_of_each(tokenizer, [text])[0]]
            if ids and not unknown.intersection(ids):
                pieces[number] = ids
    return pieces


def _new_rows(
    source: Source, entry: Entry, reasons: Mapping[int, str], broken: Sequence[int], pieces: Mapping[int, list[int]]
) -> NewRows:
    """Return the new rows of a table by id."""
    table = read_rows(source.checkpoint, entry.name)
    whole = finite_rows(table)
    for part in row_blocks(len(table), rows_at_a_time(table.shape[1])):
        whole[part] &= table[part].any(axis=1)
    whole[list(broken)] = False
    words = source.checkpoint.words
    if words is not None:
        whole[len(words) :] = False
    if not whole.any():
        raise CheckpointError(
            f"{entry.name} has no row that is not to be repaired, so there is no mean.\nRepair fewer rows: --ids FILE."
        )
    mean = selected_rows(table, np.flatnonzero(whole)).mean(axis=0, dtype=np.float64)
    return {n: table[own].mean(axis=0, dtype=np.float64) if (own := pieces.get(n)) else mean for n in reasons}


def _measured(
    source: Source, entry: Entry, reasons: Mapping[int, str], new: NewRows, pieces: Mapping[int, list[int]]
) -> RepairedTable:
    norms, words = row_norms(read_rows(source.checkpoint, entry.name)), source.checkpoint.words or []
    usable = np.delete(norms, list(reasons))
    rows = [
        RepairedRow(
            id=number,
            token=words[number] if number < len(words) else None,
            why=why,
            pieces=tuple(pieces.get(number, ())),
            norm_before=float(norms[number]) if np.isfinite(norms[number]) else None,
            norm_after=float(np.linalg.norm(new[number])),
        )
        for number, why in reasons.items()
    ]
    return RepairedTable(entry.name, tuple(rows), float(np.median(usable[np.isfinite(usable)])))


def _repaired(source: Source, entry: Entry, new: NewRows) -> Iterator[Chunk]:
    """Yield the bytes of a table with new rows, some rows at a time; all other rows keep their bits."""
    import torch

    ids = np.array(sorted(new))
    for part in row_blocks(entry.shape[0], rows_at_a_time(entry.shape[1])):
        block = source.checkpoint.tensor(entry.name, part)
        own = ids[np.searchsorted(ids, part.start) : np.searchsorted(ids, part.stop)].tolist()
        if own:
            rows = torch.from_numpy(np.stack([new[number] for number in own])).to(block.dtype)
            stored = block.view(torch.uint8).view(len(block), -1)
            stored[torch.tensor(own) - part.start] = rows.view(torch.uint8).view(len(own), -1)
        yield memoryview(block.view(torch.uint8).numpy().reshape(-1).data)


def _notes(measured: Sequence[RepairedTable], rows: Method) -> list[str]:
    notes = []
    equal = max(sum(not row.pieces for row in table.rows) for table in measured)
    if equal > 1:
        notes.append(f"{equal:,} rows are equal, the mean, so the model cannot tell these tokens apart before training")
    if rows == "subtokens" and equal:
        notes.append(f"the text of {equal:,} of them cannot be split into other tokens, so they have the mean")
    return notes
