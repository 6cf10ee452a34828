"""Repair rows of a checkpoint's token tables that training did not write, or broke."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float64, Int64

from whatwhere.analysis.diagnostics import diagnostics
from whatwhere.analysis.token_types import marking, texts
from whatwhere.checks import require_choice
from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.safetensors import Part, computed
from whatwhere.models.checkpoint.token_tables import is_per_layer
from whatwhere.models.surgery.report import Changed, Repaired, RepairedRow, RepairedTable, Report
from whatwhere.models.surgery.selection import vocabulary_tensors
from whatwhere.models.surgery.source import Edits, Progress, Source
from whatwhere.models.surgery.tokenizer_json import built, ids_around, trimmed
from whatwhere.what.token_ids import nested_configs

if TYPE_CHECKING:
    from torch import Tensor

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
            make = partial(_repaired, source, entry, np.array(list(reasons)), new)
            parts[entry.name] = computed(entry.name, entry.dtype, entry.shape, make)
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
    found = diagnostics(source.checkpoint.array(entry.name), None if words is None else len(words), hub_queries=0)
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
            ids = [kept[new] for new in tokenizer.encode(text, add_special_tokens=False).ids]
            if ids and not unknown.intersection(ids):
                pieces[number] = ids
    return pieces


def _new_rows(
    source: Source, entry: Entry, reasons: Mapping[int, str], broken: Sequence[int], pieces: Mapping[int, list[int]]
) -> Float64[np.ndarray, "rows dim"]:
    """Return the new rows of a table, in the order of `reasons`."""
    table = source.checkpoint.array(entry.name)
    whole = np.isfinite(table).all(axis=1) & table.any(axis=1)
    whole[list(broken)] = False
    words = source.checkpoint.words
    if words is not None:
        whole[len(words) :] = False
    if not whole.any():
        raise CheckpointError(
            f"{entry.name} has no row that is not to be repaired, so there is no mean.\nRepair fewer rows: --ids FILE."
        )
    mean = table[whole].mean(axis=0, dtype=np.float64)
    made = [table[own].mean(axis=0, dtype=np.float64) if (own := pieces.get(n)) else mean for n in reasons]
    return np.stack(made)


def _measured(
    source: Source,
    entry: Entry,
    reasons: Mapping[int, str],
    new: Float64[np.ndarray, "rows dim"],
    pieces: Mapping[int, list[int]],
) -> RepairedTable:
    table, words = source.checkpoint.array(entry.name).astype(np.float64), source.checkpoint.words or []
    norms = np.linalg.norm(table, axis=1)
    usable = np.delete(norms, list(reasons))
    rows = [
        RepairedRow(
            id=number,
            token=words[number] if number < len(words) else None,
            why=why,
            pieces=tuple(pieces.get(number, ())),
            norm_before=float(norms[number]) if np.isfinite(norms[number]) else None,
            norm_after=float(np.linalg.norm(after)),
        )
        for (number, why), after in zip(reasons.items(), new, strict=True)
    ]
    return RepairedTable(entry.name, tuple(rows), float(np.median(usable[np.isfinite(usable)])))


def _repaired(
    source: Source, entry: Entry, ids: Int64[np.ndarray, " rows"], new: Float64[np.ndarray, "rows dim"]
) -> "Tensor":
    """Return a table with new rows; all other rows keep their bits."""
    import torch

    table = source.checkpoint.tensor(entry.name)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[table.element_size()]
    table.view(bits)[torch.from_numpy(ids)] = torch.from_numpy(new).to(table.dtype).view(bits)
    return table


def _notes(measured: Sequence[RepairedTable], rows: Method) -> list[str]:
    notes = []
    equal = max(sum(not row.pieces for row in table.rows) for table in measured)
    if equal > 1:
        notes.append(f"{equal:,} rows are equal, the mean, so the model cannot tell these tokens apart before training")
    if rows == "subtokens" and equal:
        notes.append(f"the text of {equal:,} of them cannot be split into other tokens, so they have the mean")
    return notes
