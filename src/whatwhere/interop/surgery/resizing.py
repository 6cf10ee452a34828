"""Another number of rows, more tokens, another length: on files."""

from collections.abc import Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from whatwhere.errors import CheckpointError, SettingError, ShapeError
from whatwhere.interop.checkpoint.contents import Entry
from whatwhere.interop.checkpoint.writing import Part, computed
from whatwhere.interop.surgery import finding
from whatwhere.interop.surgery.configs import with_positions, with_vocabulary
from whatwhere.interop.surgery.report import Changed, Report, told
from whatwhere.interop.surgery.source import Edits, Source, Told, as_json
from whatwhere.interop.surgery.vocabulary import STALE, built, with_added

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.what.surgery import Draw, Rearrangement
    from whatwhere.where.interpolation import Align, Rule

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
    rows: Rows = "mean",
    seed: int = 0,
    rule: "Rule" = "linear",
    align: "Align" = "ends",
    force: bool = False,
    progress: Told | None = None,
) -> Report:
    """Write a checkpoint with another number of tokens, or of learned positions, and leave the rest as it is.

    The token table, its copies, an untied head and their biases are changed alike; configuration and tokenizer.json
    with them. All other tensors are copied byte for byte.

    Args:
        path: a folder, or one file of safetensors, which then has no tokenizer.
        out: what is written, of the same kind; it must not be there.
        vocab_size: rows of the token table.
        add_tokens: texts that become tokens; their rows stand where the tokenizer numbers them, also where a padded
            vocabulary had rows already.
        multiple_of: round the rows up, so that products with the table run well.
        positions: positions of the learned table, interpolated; rows before position 0 stay.
        rows: what new rows are: `mean`, `noise` or `covariance` (see Rearrangement), or `subtokens`: the mean of the
            rows of the tokens that the text was before.
        seed: of the noise.
        rule, align: of the interpolation, see `whatwhere.where.interpolation`.
        force: replace what is there.
        progress: called with the number of bytes of each chunk.
    """
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    if rows not in ROWS:
        raise SettingError(f"resize got rows={rows!r}, but knows only: {', '.join(ROWS)}.")
    if rows == "subtokens" and not add_tokens:
        raise SettingError("rows of sub-tokens are for tokens that have a text.\nName them: --add-token TEXT.")
    if vocab_size is None and not add_tokens and multiple_of is None and positions is None:
        raise SettingError("resize was told no size.\nGive --vocab-size, --add-token, --multiple-of or --positions.")
    parts: dict[str, Part] = {}
    changed: list[Changed] = []
    files: dict[str, bytes | None] = {}
    measured: dict[str, Any] = {}
    notes: list[str] = []
    config = source.checkpoint.config if source.folder is not None else None
    if vocab_size is not None or add_tokens or multiple_of is not None:
        pieces = _add(source, add_tokens, rows, files)
        old = finding.vocabulary(source.checkpoint)
        change = _change(source, old[0], vocab_size, pieces, multiple_of, "mean" if rows == "subtokens" else rows, seed)
        rearrange(source, change, old, parts, changed, measured)
        config = None if config is None else with_vocabulary(config, change.rows, len(change.source))
        notes += _notes(source, old, change)
        measured["new ids"] = list(pieces)
    if positions is not None:
        interpolated = _interpolate(source, positions, rule, align, parts, changed)
        config = None if config is None else with_positions(config, *interpolated)
        notes.append("a model needs some training to read interpolated positions")
    if config is not None and config != source.checkpoint.config:
        files["config.json"] = as_json(config)
    written = source.write(out, Edits(parts, files), force, progress)
    return Report(
        "resize", str(source.path), str(out), tuple(changed), written.kept, written.bytes, measured, tuple(notes),
        written.left_out,
    )  # fmt: skip


def rearrange(
    source: Source,
    change: "Rearrangement",
    tables: Sequence[Entry],
    parts: dict[str, Part],
    changed: list[Changed],
    measured: dict[str, Any],
) -> None:
    """Let every table of the vocabulary be rearranged when its turn comes, and measured then."""
    known = int((change.source != -1).sum())
    what = f"{known:,} rows kept, {len(change.source) - known:,} new"
    for entry in tables:
        shape = (1, len(change.source)) if entry.shape[0] == 1 else (len(change.source), *entry.shape[1:])
        make = partial(_rearranged, source, change, entry, measured)
        parts[entry.name] = computed(entry.name, entry.dtype, shape, make)
        changed.append(Changed(entry.name, told(entry.shape, entry.dtype), told(shape, entry.dtype), what))


def _rearranged(source: Source, change: "Rearrangement", entry: Entry, measured: dict[str, Any]) -> "Tensor":
    old = source.checkpoint.tensor(entry.name)
    if entry.shape[0] == 1 and len(entry.shape) == 2:
        return change.apply(old[0])[None]
    new = change.apply(old)
    if new.dim() == 2:
        measured[entry.name] = _norms(old, change.source[change.source != -1]) | (
            {"new rows": _norms(new, np.flatnonzero(change.source == -1))} if (change.source == -1).any() else {}
        )
    return new


def _norms(table: "Tensor", rows: np.ndarray) -> dict[str, Any]:
    """Give the median length of some rows, and how much their numbers spread about their mean row."""
    import torch

    some = torch.from_numpy(rows)[torch.linspace(0, len(rows) - 1, min(len(rows), 2048)).long()]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[table.element_size()]
    values = table.view(bits)[some].view(table.dtype).double()
    spread = (values - values.mean(0)).square().mean().sqrt()
    return {"rows": len(rows), "median norm": float(values.norm(dim=1).median()), "standard deviation": float(spread)}


def _add(source: Source, texts: Sequence[str], rows: Rows, files: dict[str, bytes | None]) -> dict[int, list[int]]:
    """Add tokens to the tokenizer's files, and give for each new id the sub-tokens whose mean it shall be, or none."""
    if not texts:
        return {}
    said = source.json("tokenizer.json")
    if said is None:
        raise CheckpointError(
            f"{source.path} has no tokenizer.json, so a token cannot be given an id.\n"
            "Pass the folder of the model, or add rows alone: --vocab-size."
        )
    before = built(said)
    made, ids = with_added(said, texts)
    files["tokenizer.json"] = as_json(made)
    if source.folder is not None and any((source.folder / name).is_file() for name in STALE):
        listed = dict(zip(texts, ids, strict=True))  # where tokenizers of an older kind look for what was added
        files["added_tokens.json"] = as_json({**(source.json("added_tokens.json") or {}), **listed})
    settings = source.json("tokenizer_config.json")
    if settings is not None and isinstance(settings.get("added_tokens_decoder"), dict):
        entries = [dict(token) for token in made["added_tokens"][-len(ids) :]]
        new = {str(entry.pop("id")): entry for entry in entries}
        files["tokenizer_config.json"] = as_json(
            {**settings, "added_tokens_decoder": {**settings["added_tokens_decoder"], **new}}
        )
    if rows != "subtokens":
        return {number: [] for number in ids}
    return {n: before.encode(text, add_special_tokens=False).ids for n, text in zip(ids, texts, strict=True)}


def _change(
    source: Source,
    table: Entry,
    vocab_size: int | None,
    pieces: dict[int, list[int]],
    multiple_of: int | None,
    draw: "Draw",
    seed: int,
) -> "Rearrangement":
    """Work out the new number of rows, and which of them are new."""
    from whatwhere.what.surgery import Rearrangement

    rows, words = table.shape[0], len(source.checkpoint.words or ())
    size = max(vocab_size if vocab_size is not None else rows, max(pieces, default=-1) + 1)
    if vocab_size is not None and size > vocab_size:
        raise SettingError(f"--vocab-size {vocab_size} has no room for the tokens that are added, up to #{size - 1}.")
    if multiple_of is not None:
        if multiple_of < 1:
            raise SettingError(f"--multiple-of got {multiple_of}, but needs a whole number of at least 1.")
        size = ceil(size / multiple_of) * multiple_of
    if size < 1 or (size < words <= rows):
        raise ShapeError(
            f"{size:,} rows are too few for the tokenizer, which has {words:,} tokens.\n"
            "To remove tokens, use: whatwhere trim."
        )
    made = Rearrangement.enlarged(rows, size, pieces, draw, seed, min(words, rows) or None)
    made.source[[n for n in pieces if n < size]] = -1
    return made


def _notes(source: Source, old: Sequence[Entry], change: "Rearrangement") -> list[str]:
    notes = []
    config = source.checkpoint.config or {}
    if source.folder is None:
        notes.append("one file was read, so no configuration was changed: its vocab_size must be that of the table")
    elif config.get("vocab_size") not in (None, change.rows):
        notes.append(f"vocab_size of config.json was {config['vocab_size']}, not the table's {change.rows}, and stays")
    if others := finding.alike(source.checkpoint, old):
        notes.append(f"as many rows have, and are left as they were: {', '.join(others[:4])}")
    return notes


def _interpolate(
    source: Source, positions: int, rule: "Rule", align: "Align", parts: dict[str, Part], changed: list[Changed]
) -> tuple[int, int, int]:
    """Let tables of positions be interpolated, and give old length, new length and rows before position 0."""
    offset = source.checkpoint.position_offset
    tables = finding.positions(source.checkpoint)
    if offset is None:
        raise CheckpointError(
            f"which row of {tables[0].name} is position 0 is not known for this model, and rows before it must stay.\n"
            "Add its model_type to config.json, if it is one of those that are known."
        )
    if positions < 1:
        raise ShapeError(f"--positions got {positions}, but needs a whole number of at least 1.")
    length = tables[0].shape[0] - offset

    def make(entry: Entry) -> "Tensor":
        import torch

        from whatwhere.where.interpolation import resized_rows

        table = source.checkpoint.tensor(entry.name)
        return torch.cat([table[:offset], resized_rows(table[offset:], positions, rule, align)])

    for entry in tables:
        shape = (positions + offset, entry.shape[1])
        parts[entry.name] = computed(entry.name, entry.dtype, shape, partial(make, entry))
        what = f"interpolated ({rule}, {align})" + (f", {offset} rows before position 0 stay" if offset else "")
        changed.append(Changed(entry.name, told(entry.shape, entry.dtype), told(shape, entry.dtype), what))
    _count_anew(source, length, positions, offset, parts, changed)
    return length, positions, offset


def _count_anew(
    source: Source, old: int, new: int, offset: int, parts: dict[str, Part], changed: list[Changed]
) -> None:
    """Make what older files store of positions: their numbers, and causal masks."""
    import torch

    def numbers(dtype: str) -> "Tensor":
        return torch.arange(new + offset)[None].to(getattr(torch, dtype))

    def mask(dtype: str) -> "Tensor":
        return torch.ones(new, new, dtype=torch.bool).tril()[None, None].to(getattr(torch, dtype))

    for entry in source.checkpoint.tensors.values():
        make, shape = None, entry.shape
        if entry.name.endswith("position_ids") and entry.shape == (1, old + offset):
            make, shape = numbers, (1, new + offset)
        elif entry.name.endswith("attn.bias") and entry.shape == (1, 1, old, old):
            make, shape = mask, (1, 1, new, new)
        if make is not None:
            parts[entry.name] = computed(entry.name, entry.dtype, shape, partial(make, entry.dtype))
            changed.append(Changed(entry.name, told(entry.shape, entry.dtype), told(shape, entry.dtype), "made anew"))
