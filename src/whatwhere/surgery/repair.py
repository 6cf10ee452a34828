"""Repair rows of a checkpoint's token tables that training did not write, or broke."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64

from whatwhere.analysis.diagnostics import FAR, diagnostics, row_norms
from whatwhere.checks import require_choice
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.large_arrays import finite_rows, row_blocks, rows_at_a_time, selected_rows
from whatwhere.long_work import begin_step
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import read_rows
from whatwhere.models.checkpoint.names import is_per_layer
from whatwhere.models.checkpoint.safetensors import Chunk, Part
from whatwhere.models.checkpoint.tokenizer_files import built
from whatwhere.models.model_text import marking, shown_texts, texts
from whatwhere.surgery.changed_copy import ChangedCopy
from whatwhere.surgery.report import Repaired, RepairedRow, RepairedTable, Report
from whatwhere.surgery.selection import checked_ids, token_tensors
from whatwhere.surgery.tokenizer_json import ids_of, needed, trimmed
from whatwhere.what.text import ids_of_each
from whatwhere.what.token_ids import nested_configs

NewRows = Mapping[int, Float64[np.ndarray, " dim"]]
Method = Literal["covariance", "subtokens"]
METHODS: tuple[Method, ...] = ("covariance", "subtokens")
_SAMPLE = 4096  # rows at most that new ones are sampled from


def repair_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    rows: Method = "covariance",
    ids: Iterable[int] | None = None,
    force: bool = False,
) -> Report:
    """Write a checkpoint in which broken rows of the token table and the output projection are repaired.

    Broken are rows of zeros, rows with NaN or infinity, and rows that `diagnostics` finds to be under-trained or far
    from the others by their norm or nearness to the mean, or finds once these are gone; each table is judged by itself.
    The row of the padding token may be zero, and rows beyond the tokenizer need no values: of these, only rows that are
    not finite are repaired, because they make all logits NaN. Special tokens may be far from the others. New rows have
    the median norm of those that are not broken, or the mean norm of the pieces that they are made of.

    Args:
        rows: the direction of new rows: `covariance` takes that of the token's row in an output projection which is not
            tied, where that row is not broken, and else samples from mean and covariance of the rows that are not
            broken; `subtokens` is the mean of the rows of the tokens into which the text is split without the broken
            ones, and `covariance` where it cannot be split.
        ids: rows to repair in every table instead, broken or not.
    """
    require_choice("repair", "rows", rows, METHODS)
    copy = ChangedCopy(path, out, force)
    entries = token_tensors(copy.checkpoint)
    number = entries[0].shape[0]
    by_token = [each for each in entries if len(each.shape) == 2 and each.shape[0] == number]
    tables = [each for each in by_token if "float" in each.dtype and not is_per_layer(each.name)]
    requested = None if ids is None else dict.fromkeys(checked_ids("repair", ids, number), "requested")
    broken = {each.name: _broken(copy.checkpoint, each) if requested is None else requested for each in tables}
    # Special tokens are trained apart from the text, if at all: a low norm, as that of BERT's [MASK], may be learned.
    left = {n for reasons in broken.values() for n, why in reasons.items() if why in FAR} & _special(copy)
    for name, reasons in broken.items():
        broken[name] = {n: why for n, why in reasons.items() if n not in left or why not in FAR}
    every = sorted({n for reasons in broken.values() for n in reasons})
    if not every:
        raise SettingError(
            f"{copy.path} has no row of zeros, none that is not finite, and none that is found to be under-trained "
            "or far from the others, so there is nothing to repair.\nName rows yourself: --ids FILE."
        )
    pieces = _pieces(copy, every) if rows == "subtokens" else {}
    measured: list[RepairedTable] = []
    for entry in (each for each in tables if broken[each.name]):
        new, repaired = _repaired(copy.checkpoint, entry, broken, pieces)
        measured.append(repaired)
        part = Part(entry.name, entry.dtype, entry.shape, partial(_with_new_rows, copy.checkpoint, entry, new))
        copy.replace(entry, part, f"{len(new):,} rows repaired")
    if left:
        named = ", ".join(map(str, sorted(left)))
        copy.notes.append(
            f"special tokens stay, though far from the others by norm or distance: {named}; --ids repairs them"
        )
    unsplit = max(sum(not row.pieces for row in table.rows) for table in measured)
    if rows == "subtokens" and unsplit:
        copy.notes.append(
            f"the text of {unsplit:,} of them cannot be split into other tokens, so they are made as by covariance"
        )
    return copy.write("repair", lambda: Repaired(rows, tuple(measured)))


def _broken(checkpoint: Checkpoint, entry: Entry) -> dict[int, str]:
    """Return the broken rows of a table, and why each is: a row that has two reasons has the first one."""
    words = checkpoint.words
    begin_step(f"looking for broken rows of {entry.name}")
    table = read_rows(checkpoint, entry.name)
    found = diagnostics(table, None if words is None else len(words))
    reasons = dict.fromkeys(found.non_finite.tolist(), "not finite")
    padding = (part.get("pad_token_id") for part in nested_configs(checkpoint.config or {}))
    allowed = {*found.beyond_vocabulary.tolist(), *(n for n in padding if isinstance(n, int))}
    ids = np.arange(len(table))
    # Until none is left: without the rows found first, others may stand out, and would do so in what is written.
    while suspected := (
        dict.fromkeys(found.zero.tolist(), "zero")
        | found.far
        | (dict.fromkeys(found.under_trained.tolist(), "under-trained") if found.decisive else {})
    ):
        for n, why in suspected.items():
            if ids[n] not in allowed:
                reasons.setdefault(int(ids[n]), why)
        ids = np.delete(ids, [*suspected, *found.non_finite])
        if not len(ids):
            break
        found = diagnostics(selected_rows(table, ids))
    return dict(sorted(reasons.items()))


def _special(copy: ChangedCopy) -> set[int]:
    added = [] if isinstance(copy.tokenizer, str) else copy.tokenizer.get("added_tokens") or []
    return {int(token["id"]) for token in added if token.get("special")}


def _pieces(copy: ChangedCopy, broken: Sequence[int]) -> Mapping[int, list[int]]:
    """Return the tokens into which the text of each broken token is split by a tokenizer that lacks all of them."""
    contents, words = copy.tokenizer, copy.checkpoint.words
    if isinstance(contents, str) or words is None:
        raise SettingError(
            f"{copy.path}: {contents}, which splits texts into tokens.\nPass --rows covariance, or the folder of "
            "the model with its tokenizer."
        )
    gone = set(broken) - (stay := needed(contents, ()))
    kept = [number for number, word in enumerate(words) if word and number not in gone]
    plain = {**contents, "post_processor": None}  # what is put around texts is not a piece of them
    tokenizer = built(trimmed(plain, {old: new for new, old in enumerate(kept)}))
    model = contents["model"]
    unusable = {model.get("unk_id"), ids_of(contents).get(str(model.get("unk_token"))), *broken}
    decoded = texts([words[number] if number < len(words) else "" for number in broken], marking(words))
    pieces: dict[int, list[int]] = {}
    for number, text in zip(broken, decoded, strict=True):
        if isinstance(text, str) and text and number not in stay:
            ids = [kept[new] for new in ids_of_each(tokenizer, [text])[0]]
            if ids and not unusable.intersection(ids):
                pieces[number] = ids
    return pieces


def _repaired(
    checkpoint: Checkpoint, entry: Entry, broken: Mapping[str, Mapping[int, str]], pieces: Mapping[int, list[int]]
) -> tuple[NewRows, RepairedTable]:
    """Return the new rows of a table by id, and what is reported of them."""
    table, words, reasons = read_rows(checkpoint, entry.name), checkpoint.words, broken[entry.name]
    whole, norms = finite_rows(table), row_norms(table)
    whole &= norms > 0
    whole[[n for each in broken.values() for n in each]] = False
    whole[len(table) if words is None else len(words) :] = False
    if not whole.any():
        raise CheckpointError(
            f"{entry.name} has no row that is not to be repaired, so there is nothing to sample from.\n"
            "Repair fewer rows: --ids FILE."
        )
    sound = np.flatnonzero(whole)
    typical = float(np.median(norms[sound]))
    # In the order of preference; a direction of length 0, as of pieces that cancel out, leaves the next one.
    offered: list[tuple[str, NewRows]] = [
        ("pieces", {n: table[own].mean(axis=0, dtype=np.float64) for n in reasons if (own := pieces.get(n))}),
        ("output row", _output_rows(checkpoint, entry, broken)),
        ("covariance", _sampled(selected_rows(table, sound[:: -(-len(sound) // _SAMPLE)]), reasons)),
    ]
    new: dict[int, np.ndarray] = {}
    rows = []
    names = [words[n] if words and n < len(words) else "" for n in reasons]
    for (n, why), word, text in zip(reasons.items(), names, shown_texts(names, words or ()), strict=True):
        made_of, direction = next((name, each[n]) for name, each in offered if n in each and each[n].any())
        own = pieces[n] if made_of == "pieces" else []
        new[n] = direction * ((norms[own].mean() if own else typical) / np.linalg.norm(direction))
        before = float(norms[n]) if np.isfinite(norms[n]) else None
        token = word if words and n < len(words) else None
        rows.append(RepairedRow(n, token, text, why, made_of, tuple(own), before, float(np.linalg.norm(new[n]))))
    usable = np.delete(norms, list(reasons))
    return new, RepairedTable(entry.name, tuple(rows), float(np.median(usable[np.isfinite(usable)])))


def _output_rows(checkpoint: Checkpoint, entry: Entry, broken: Mapping[str, Mapping[int, str]]) -> NewRows:
    """Return the rows of an untied output projection that are not broken, for a table which is not that projection."""
    name = checkpoint.output_projection
    if name is None or name == entry.name or checkpoint.entry(name).shape != entry.shape:
        return {}
    ids = [n for n in broken[entry.name] if n not in broken.get(name, {})]
    return dict(zip(ids, checkpoint.array(name, rows=ids).astype(np.float64), strict=True)) if ids else {}


def _sampled(rows: np.ndarray, reasons: Mapping[int, str]) -> NewRows:
    import torch

    from whatwhere.what.resizing.new_rows import Rearrangement

    change = Rearrangement(np.full(len(reasons), -1), len(rows), draw="covariance")
    return dict(zip(reasons, change.apply(torch.from_numpy(rows).double()).numpy(), strict=True))


def _with_new_rows(checkpoint: Checkpoint, entry: Entry, new: NewRows) -> Iterator[Chunk]:
    """Yield the bytes of a table with new rows, some rows at a time; all other rows keep their bits."""
    import torch

    ids = np.array(sorted(new))
    for part in row_blocks(entry.shape[0], rows_at_a_time(entry.shape[1])):
        block = checkpoint.tensor(entry.name, part)
        own = ids[np.searchsorted(ids, part.start) : np.searchsorted(ids, part.stop)].tolist()
        if own:
            rows = torch.from_numpy(np.stack([new[number] for number in own])).to(block.dtype)
            stored = block.view(torch.uint8).view(len(block), -1)
            stored[torch.tensor(own) - part.start] = rows.view(torch.uint8).view(len(own), -1)
        yield memoryview(block.view(torch.uint8).numpy().reshape(-1).data)
