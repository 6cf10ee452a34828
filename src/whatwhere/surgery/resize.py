"""Resize the vocabulary or the position table of a checkpoint, or extend the length of a rotary one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Literal

import numpy as np

from whatwhere.checks import require_choice
from whatwhere.errors import CheckpointError, SettingError, ShapeError
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.names import is_per_layer
from whatwhere.models.checkpoint.tokenizer_files import built
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import Rope, find_model_type, nested_text
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.models.configuration.rotary import ORIGINAL
from whatwhere.surgery.changed_copy import ChangedCopy, as_json
from whatwhere.surgery.report import Extended, Report, Resized, RowStatistics, TableRows
from whatwhere.surgery.selection import (
    change_added_tokens,
    ids_in_configs,
    notes_on_vocabulary,
    position_tensors,
    recompute_buffers,
    vocabulary_tensors,
    with_position_count,
    with_rows,
)
from whatwhere.surgery.tokenizer_json import STALE, with_added
from whatwhere.what.text import ids_of_each

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.what.resizing import Rearrangement
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
) -> Report:
    """Write a checkpoint with another number of tokens, or of learned positions, which are interpolated.

    The token table, its copies, an untied output projection and biases of logits are changed together, and so are
    config.json and tokenizer.json. All other tensors are copied byte for byte. Rows of added tokens are at the ids of
    the tokenizer, even if a padded vocabulary had such rows. Of `rows`, None is `noise` for tokens, so that they differ
    and have norms as the others do, and `mean` for padding; `subtokens` is the mean of the rows of the tokens that the
    text was split into before.
    """
    copy = ChangedCopy(path, out, force)
    words = copy.checkpoint.words or ()
    default = rows is None and bool(words or add_tokens)  # tokens are known from padding
    rows = rows or ("noise" if default else "mean")
    require_choice("resize", "rows", rows, ROWS)
    if rows == "subtokens" and not add_tokens:
        raise SettingError("--rows subtokens needs tokens with a text.\nAdd some: --add-token TEXT.")
    resized = vocab_size is not None or bool(add_tokens) or multiple_of is not None
    if not resized and positions is None:
        raise SettingError("resize got no size.\nPass --vocab-size, --add-token, --multiple-of or --positions.")
    pieces: Mapping[int, list[int]] = {}
    measured: list[TableRows] = []
    config = copy.checkpoint.config if copy.folder is not None else None
    if resized:
        pieces = _add(copy, add_tokens, rows)
        tables = vocabulary_tensors(copy, renumbering=False)
        size = _size(copy, tables[0], vocab_size, max(pieces, default=-1) + 1, multiple_of)
        change = _enlarged(tables[0].shape[0], size, pieces, rows, seed, words, default)
        measured = rearrange(copy, change, tables)
        config = None if config is None else with_rows(config, tables, change.rows, size)
        if copy.folder is None:
            note = "the input is one file, so no configuration was changed: its vocab_size must be that of the table"
            copy.notes.append(note)
        copy.notes += notes_on_vocabulary(copy, tables, renumbered=False)
        copy.notes += _notes_on_new_rows(change, pieces, rows)
    if positions is not None:
        length, offset = _interpolate(copy, positions, rule, align)
        stated, config = config, None if config is None else with_position_count(config, length, positions, offset)
        if positions != length and config is not None and config == stated:
            copy.notes.append(f"no key of config.json states {length:,} positions: write the new number into it")
        copy.notes.append("a model needs some training to read interpolated positions")
    if config is not None and config != copy.checkpoint.config:
        copy.files["config.json"] = as_json(config)
    return copy.write("resize", lambda: Resized(tuple(pieces), tuple(measured)))


def _enlarged(
    old: int, size: int, pieces: Mapping[int, list[int]], rows: Rows, seed: int, words: Sequence[str], default: bool
) -> "Rearrangement":
    """Return the change of the table; by default, rows that no token has are its mean whatever `rows` is."""
    from whatwhere.what.resizing import Rearrangement

    draw = "mean" if rows == "subtokens" else rows
    change = Rearrangement.enlarged(old, size, pieces, draw, seed, min(len(words), old) or None)
    change.source[[n for n in pieces if n < size]] = -1  # a padded vocabulary may have had a row there
    if not default:
        return change
    sampled = np.flatnonzero(change.sampled).tolist()
    return replace(change, padding=[n for n in sampled if n not in pieces and not (n < len(words) and words[n])])


def rearrange(copy: ChangedCopy, change: "Rearrangement", tables: Sequence[Entry]) -> list[TableRows]:
    """Rearrange the tables of the vocabulary; return their statistics, a list that is filled as they are written."""
    measured: list[TableRows] = []
    known, empty = int((change.source != -1).sum()), len(change.padding)
    what = f"{known:,} rows kept, {len(change.source) - known - empty:,} new{f', {empty:,} padding' if empty else ''}"

    def make(entry: Entry, own_change: "Rearrangement") -> "Tensor":
        old = copy.checkpoint.tensor(entry.name)
        if entry.shape[0] == 1 and len(entry.shape) == 2:
            return own_change.apply(old[0])[None]
        new = own_change.apply(old)
        if new.dim() == 2:
            added = np.flatnonzero(change.source == -1)
            if len(added) > empty:  # padding rows are alike
                added = np.setdiff1d(added, list(change.padding))
            kept = _statistics(old, own_change.source[own_change.source != -1])
            measured.append(TableRows(entry.name, kept, _statistics(new, added) if len(added) else None))
        return new

    for entry in tables:
        shape = (1, len(change.source)) if entry.shape[0] == 1 else (len(change.source), *entry.shape[1:])
        own_change = change.of_rows(entry.shape[0]) if is_per_layer(entry.name) else change
        copy.compute(entry, partial(make, entry, own_change), what, shape)
    return measured


def _statistics(table: "Tensor", rows: np.ndarray) -> RowStatistics:
    import torch

    some = torch.from_numpy(rows)[torch.linspace(0, len(rows) - 1, min(len(rows), 2048)).long()]
    # By bytes: torch selects no rows of 8-bit floating-point types.
    values = table.view(torch.uint8)[some].view(table.dtype).double()
    spread = float((values - values.mean(0)).square().mean().sqrt()) if len(rows) > 1 else None
    return RowStatistics(len(rows), float(values.norm(dim=1).median()), spread)


def _add(copy: ChangedCopy, texts: Sequence[str], rows: Rows) -> dict[int, list[int]]:
    """Add tokens to the tokenizer's files; return new id -> subtokens whose mean row it gets, or an empty list."""
    if not texts:
        return {}
    contents = copy.require_tokenizer(
        "a token cannot be given an id", "Pass the folder of the model, or add rows alone: --vocab-size."
    )
    extended, ids = with_added(contents, texts)
    copy.files["tokenizer.json"] = as_json(extended)
    if copy.folder is not None and any((copy.folder / name).is_file() for name in STALE):
        listed = dict(zip(texts, ids, strict=True))  # older tokenizers read added tokens from this file
        copy.files["added_tokens.json"] = as_json({**(copy.json("added_tokens.json") or {}), **listed})
    new = extended["added_tokens"][-len(ids) :]
    entries = {str(token["id"]): {key: token[key] for key in token if key != "id"} for token in new}
    change_added_tokens(copy, lambda decoder: {**decoder, **entries})
    if rows != "subtokens":
        return {number: [] for number in ids}
    return dict(zip(ids, ids_of_each(built(contents), texts), strict=True))


def _size(copy: ChangedCopy, table: Entry, vocab_size: int | None, least: int, multiple_of: int | None) -> int:
    """Return the new number of rows: at least those of added tokens, and of all tokens and ids that are named."""
    rows, words = table.shape[0], len(copy.checkpoint.words or ())
    size = max(vocab_size if vocab_size is not None else rows, least)
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
    for name, key, ids in ((name, *item) for name, keys in ids_in_configs(copy, rows).items() for item in keys.items()):
        if max(ids) >= size:
            raise CheckpointError(
                f"{key} of {name} is {max(ids)}, but {size:,} rows have the ids 0..{size - 1}.\n"
                "To remove other tokens and keep this one, use: whatwhere trim. Or set the key to null first."
            )
    folder = next(path for path in copy.out.absolute().parents if path.exists())
    needed, free = size * (table.bytes // max(rows, 1)), disk_usage(folder).free
    if needed > free:
        raise ShapeError(
            f"{size:,} rows of {table.name} take {needed / 1e9:,.1f} GB, but the disk has {free / 1e9:,.1f} GB left.\n"
            "Choose a smaller number of rows."
        )
    return size


def _notes_on_new_rows(change: "Rearrangement", pieces: Mapping[int, list[int]], rows: Rows) -> list[str]:
    """Return how the rows of added tokens and of padding were made, and which of them are equal."""
    notes = []
    if rows in ("noise", "covariance") and np.count_nonzero(change.sampled) > len(change.padding):
        notes.append(
            f"the rows of new tokens are sampled by {rows}, seed {change.seed}: they differ, and need training"
        )
    made_of = {n: tuple(sorted(ids)) for n, ids in pieces.items() if rows == "subtokens" or change.sampled[n]}
    times = Counter(made_of.values())
    equal = [n for n, own in made_of.items() if times[own] > 1]
    if len(equal) > 1 and rows in ("mean", "subtokens"):
        named = ", ".join(f"#{n}" for n in equal[:8]) + (", ..." if len(equal) > 8 else "")
        notes.append(
            f"the rows of {named} are equal, so the model cannot tell these tokens apart before training; "
            "--rows noise samples them"
        )
    if change.padding:
        notes.append("padding is the mean of the other rows, and no token's: leave its logits out when you sample")
    return notes


def _interpolate(copy: ChangedCopy, positions: int, rule: "Rule", align: "Align") -> tuple[int, int]:
    """Interpolate the position tables; return the old length, and the row of position 0."""
    offset, tables = copy.checkpoint.position_offset, position_tensors(copy.checkpoint)
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

        table = copy.checkpoint.tensor(entry.name)
        return torch.cat([table[:offset], resized_rows(table[offset:], positions, rule, align)])

    for entry in tables:
        what = f"interpolated ({rule}, {align})" + (f", {offset} rows before position 0 stay" if offset else "")
        copy.compute(entry, partial(make, entry), what, (positions + offset, entry.shape[1]))
    recompute_buffers(copy, length, positions, offset)
    return length, offset


# The length of a rotary model


SCALINGS: Mapping[str, str] = {
    "linear": "rotary-linear", "dynamic": "rotary-dynamic-ntk", "yarn": "rotary-yarn", "llama3": "rotary-llama3",
}  # fmt: skip
"""A rope_type that `extend_checkpoint` writes -> its scheme."""


def extend_checkpoint(
    path: str | Path, out: str | Path, *, to: int, scaling: str = "yarn", force: bool = False
) -> Report:
    """Write a checkpoint whose configuration has a RoPE scaling for longer texts; all tensors stay as they are.

    The scaling is written as `rope_parameters` and as `rope_scaling`, of transformers 5 and 4, with the factor of the
    new and the trained length. Read again, the configuration must differ in nothing else. A tiny random model of each
    configuration is probed, if transformers is installed. What the weights do at that length is not measured.
    Of a model that is scaled already `scaling` is the same one, and its other settings are kept.
    """
    require_choice("extend", "scaling", scaling, tuple(SCALINGS))
    copy = ChangedCopy(path, out, force)
    config = copy.json("config.json")
    if config is None:
        raise CheckpointError(f"{copy.path} has no config.json, which extend changes.\nPass the folder of a model.")
    before = from_huggingface(config)
    original = _trained_length(before, scaling)
    if to <= original:
        raise SettingError(f"--to {to:,} is not longer than the trained length, {original:,}.\nPass a larger number.")
    changed = _with_scaling(config, before, scaling, original, to)
    after = from_huggingface(changed)
    scalings = [plan.scaling for plan in after.query_key if plan is not None and plan.scaling is not None]
    made = scalings and all(each.scheme == SCALINGS[scaling] for each in scalings)
    if not made or _without_length(before) != _without_length(after):
        raise SettingError(
            f"with a {scaling} scaling this configuration of {before.model_type!r} would change in more than its "
            "length, or not at all.\nEdit config.json by hand, and compare: whatwhere diff, whatwhere check."
        )
    copy.files["config.json"] = as_json(changed)
    tokenizer = copy.json("tokenizer_config.json") or {}
    if tokenizer.get("model_max_length") == before.max_length:
        copy.files["tokenizer_config.json"] = as_json({**tokenizer, "model_max_length": to})
    if scaling == "dynamic":
        copy.notes.append(f"max_position_embeddings stays {original:,}, beyond which dynamic scaling begins")
    copy.notes.append("what the weights do at this length is not measured: score long texts, or train on some")
    from whatwhere.models.probe.differences import rotations  # which imports torch

    measured = Extended(scaling, original, to, scalings[0].settings["factor"], rotations(config), rotations(changed))
    return copy.write("extend", lambda: measured)


def _trained_length(model: Description, scaling: str) -> int:
    plans = [plan for plan in model.query_key if plan is not None]
    if not plans:
        raise SettingError(
            f"no layer of this {model.model_type!r} rotates queries and keys, so no RoPE scaling extends it.\n"
            "Learned positions: whatwhere resize --positions. ALiBi and T5's bias need nothing."
        )
    scaled = [plan.scaling for plan in plans if plan.scaling is not None]
    for each in scaled:
        if each.scheme != SCALINGS[scaling] or "original_length" not in each.settings:
            raise SettingError(
                f"this model is scaled already, by {each}, which {scaling} would contradict.\nPass the --scaling that "
                "it has, if that is dynamic, yarn or llama3; or begin from a configuration without."
            )
    lengths = {each.settings["original_length"] for each in scaled} or {model.max_length}
    if len(lengths) > 1 or None in lengths:
        raise SettingError("the trained length is not known.\nWrite it in config.json, as max_position_embeddings.")
    return int(lengths.pop())


def _with_scaling(config: Json, model: Description, scaling: str, original: int, to: int) -> Json:
    key, text = nested_text(config)
    if key:
        return {**config, key: _with_scaling(text, model, scaling, original, to)}
    kind = find_model_type(model.model_type)
    rope, newer = kind.rope or Rope(), config.get("rope_parameters")
    own = {"rope_type": scaling, "type": scaling, "factor": to / original}
    own |= {ORIGINAL: original} if scaling in ("yarn", "llama3") else {}
    usual = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if scaling == "llama3" else {}
    one = {**usual, **(newer or config.get("rope_scaling") or {}), **own}
    if rope.by_type and newer:  # one set for each type of layers
        sets = {label: {**usual, **old, **own} if rope.sets[label].scaled else old for label, old in newer.items()}
        changed = {**config, "rope_parameters": sets}
    elif rope.by_type:
        changed = {**config, "rope_scaling": one}
    else:
        one["rope_theta"] = next(plan.settings["theta"] for plan in model.query_key if plan is not None)
        beside = rope.sets[""].theta_key
        changed = {**config, "rope_parameters": one, **({beside: one["rope_theta"]} if beside else {})}
        changed |= {"rope_scaling": one} if rope.reads_rope_scaling else {}
    if scaling != "dynamic" and model.max_length is not None:
        names = kind.names_of(model.part)["max_length"]
        changed = dict(with_position_count(changed, model.max_length, to))
        changed[next((name for name in names if changed.get(name) is not None), names[0])] = to
    return changed


def _without_length(model: Description) -> Description:
    """Return a description without what a scaling may change."""
    plans = tuple(plan and plan.with_settings(scaling=None) for plan in model.query_key)
    return replace(model, query_key=plans, max_length=None, scales=(), notes=())
