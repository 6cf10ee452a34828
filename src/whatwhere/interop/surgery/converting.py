"""The same numbers in another layout, type or format: on files."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.interop.checkpoint.checkpoint import LAYOUT_KEY, LAYOUTS, Layout
from whatwhere.interop.checkpoint.contents import Entry
from whatwhere.interop.checkpoint.files import shown
from whatwhere.interop.checkpoint.numbers import BLOCKS
from whatwhere.interop.checkpoint.writing import Part, computed
from whatwhere.interop.surgery.finding import Projection, projections
from whatwhere.interop.surgery.report import Changed, Report, told
from whatwhere.interop.surgery.source import Edits, Source, Told, as_json

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
_CAST = ("float64", "float32", "bfloat16", "float16")


def convert_layout(
    path: str | Path, out: str | Path, layout: Layout, *, force: bool = False, progress: Told | None = None
) -> Report:
    """Write a checkpoint whose query and key projections have their rotary pairs in the other layout.

    Weights, biases and the norms over queries and keys are moved, each by its own number of heads; see
    `whatwhere.layout`. The header says which layout it is, for nothing else does: code that reads the model type's own
    would run without complaint, and wrongly.

    Args:
        path, out, force, progress: as in `resize_checkpoint`.
        layout: `interleaved` or `half-split`.
    """
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    if layout not in LAYOUTS:
        raise SettingError(f"convert got layout={layout!r}, but knows only: {', '.join(LAYOUTS)}.")
    moved = projections(source.checkpoint)
    present: Layout = "interleaved" if moved[0].interleaved else "half-split"
    marked = LAYOUT_KEY in source.checkpoint.metadata  # only a layout that is not the model type's own is
    own = _other(present) if marked else present
    if present == layout:
        why = "its header says so" if marked else "as its model type has"
        raise CheckpointError(f"{source.path} is {layout} already: {why}.\nThere is nothing to convert.")
    measured: dict[str, Any] = {"moved back to the bit": 0}
    parts, changed = {}, []
    for one in moved:
        entry = one.entry
        parts[entry.name] = computed(
            entry.name, entry.dtype, entry.shape, partial(_moved, source, one, layout, measured)
        )
        what = f"{one.num_heads} heads, {one.rotary_dim} features of each"
        changed.append(Changed(entry.name, told(entry.shape, entry.dtype), told(entry.shape, entry.dtype), what))
    metadata = {LAYOUT_KEY: None if layout == own else layout}
    written = source.write(out, Edits(parts, metadata=metadata), force, progress)
    model_type = source.checkpoint.description.model_type
    notes = [] if layout == own else [f"code for {model_type} reads {own} pairs: this file is for code that does not"]
    return Report(
        "convert", str(source.path), str(out), tuple(changed), written.kept, written.bytes, measured, tuple(notes),
        written.left_out,
    )  # fmt: skip


def _other(layout: Layout) -> Layout:
    return "half-split" if layout == "interleaved" else "interleaved"


def _moved(source: Source, one: Projection, layout: Layout, measured: dict[str, Any]) -> "Tensor":
    import torch

    from whatwhere.interop.layout import to_half_split, to_interleaved

    weight = source.checkpoint.tensor(one.entry.name)
    there, back = (to_interleaved, to_half_split) if layout == "interleaved" else (to_half_split, to_interleaved)
    moved = there(weight, one.num_heads, one.rotary_dim)
    again = back(moved, one.num_heads, one.rotary_dim)
    measured["moved back to the bit"] += torch.equal(again.view(torch.uint8), weight.view(torch.uint8))
    return moved


def convert_dtype(
    path: str | Path, out: str | Path, dtype: str, *, force: bool = False, progress: Told | None = None
) -> Report:
    """Write a checkpoint in another type of number, and measure what that does.

    Numbers are rounded to the nearest; one that would become infinite or NaN is an error. Types of eight bits are given
    to tables and matrices alone, without scales. Whole numbers, and what has eight bits already, stay.

    Args:
        path, out, force, progress: as in `resize_checkpoint`.
        dtype: one of DTYPES.
    """
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    parts, changed, measured = cast_parts(source.checkpoint, dtype)
    files = {}
    if source.folder is not None and (config := source.checkpoint.config) is not None:
        files["config.json"] = as_json(_with_dtype(config, dtype))
    written = source.write(out, Edits(parts, files), force, progress)
    return Report(
        "convert", str(source.path), str(out), tuple(changed), written.kept, written.bytes, finished(measured), (),
        written.left_out,
    )  # fmt: skip


def cast_parts(checkpoint: Any, dtype: str) -> tuple[dict[str, Part], list[Changed], dict[str, Any]]:
    """Give the tensors that are cast, what is told of them, and where their damage will be."""
    if dtype not in DTYPES:
        raise SettingError(f"convert got dtype={dtype!r}, but knows only: {', '.join(DTYPES)}.")
    measured: dict[str, Any] = {"error": 0.0, "size": 0.0, "worst": ("", 0.0)}
    parts, changed = {}, []
    for entry in checkpoint.tensors.values():
        small = dtype.startswith("float8") and len(entry.shape) < 2
        if entry.dtype not in (*_CAST, *BLOCKS) or entry.dtype == dtype or small:
            continue
        parts[entry.name] = computed(entry.name, dtype, entry.shape, partial(_cast, checkpoint, entry, dtype, measured))
        changed.append(Changed(entry.name, told(entry.shape, entry.dtype), told(entry.shape, dtype), "cast"))
    return parts, changed, measured


def _cast(checkpoint: Any, entry: Entry, dtype: str, measured: dict[str, Any]) -> "Tensor":
    import torch

    before = checkpoint.tensor(entry.name)
    after: Tensor = before.to(getattr(torch, dtype))
    error = size = 0.0
    flat, cast, kind = before.reshape(-1), after.reshape(-1), torch.finfo(after.dtype)
    most = kind.max * (1 + kind.eps / 4)  # a little above the end rounds to it; some types clip what is far above
    for begin in range(0, len(flat), 1 << 20):
        x, y = flat[begin : begin + (1 << 20)].double(), cast[begin : begin + (1 << 20)].double()
        lost = torch.isfinite(x) & (~torch.isfinite(y) | (x.abs() > most))
        if lost.any():
            number = float(x[lost][0])
            raise CheckpointError(
                f"{shown(entry.name)} holds {number:.6g}, which {dtype} cannot: it ends at "
                f"{kind.max:.6g}.\nChoose bfloat16, which reaches as far as float32."
            )
        whole = torch.isfinite(x)
        error += float((y - x)[whole].square().sum())
        size += float(x[whole].square().sum())
    measured["error"] += error
    measured["size"] += size
    relative = (error / size) ** 0.5 if size else 0.0
    if relative >= measured["worst"][1]:
        measured["worst"] = (entry.name, relative)
    if entry.name == checkpoint.token_table:
        measured["table"] = damage(before.float().numpy(), after.float().numpy())
    return after


def damage(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Measure what became of the rows of a table.

    Gives the relative error of all numbers, the worst and the median cosine of a row to what it was, and the share of
    the ten nearest rows that are so still, for up to 512 rows.

    >>> table = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    >>> damage(table, table)["share of 10 nearest kept"]
    1.0
    """
    from whatwhere.analysis.difference import movement, overlap

    whole = np.isfinite(before).all(1) & np.isfinite(after).all(1)
    before, after = before[whole], after[whole]
    if not len(before):
        return {}
    moved = movement(before, after)
    lengths = (before**2).sum(1) > 0  # a row of zeros has no direction
    cosine = moved.cosine[lengths] if lengths.any() else np.ones(1)
    told = {
        "relative error": moved.relative_error,
        "worst row cosine": float(cosine.min()),
        "median row cosine": float(np.median(cosine)),
    }
    if len(before) > 10:
        told["share of 10 nearest kept"] = float(overlap(before, after).kept.mean())
    return told


def finished(measured: dict[str, Any]) -> dict[str, Any]:
    """Give the damage of a cast, once all was written."""
    error = (measured["error"] / measured["size"]) ** 0.5 if measured["size"] else 0.0
    name, worst = measured["worst"]
    told: dict[str, Any] = {"relative error": error, "worst tensor": name, "its relative error": worst}
    return told | ({"token table": measured["table"]} if "table" in measured else {})


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    made = dict(config)
    for key in ("dtype", "torch_dtype"):
        if isinstance(config.get(key), str):
            made[key] = dtype
    if isinstance(config.get("text_config"), dict):
        made["text_config"] = _with_dtype(config["text_config"], dtype)
    return made
