"""Convert checkpoints to another floating-point type or another format."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.escape import quoted
from whatwhere.long_work import begin_step, counted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.byte_ranges import QUANTIZED
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.embedding_projector import write_projector
from whatwhere.models.checkpoint.lookup import table_name
from whatwhere.models.checkpoint.safetensors import (
    TYPES,
    Part,
    computed,
    new_file,
    new_folder,
    require_writable_output,
    write_safetensors,
)
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import nested_text
from whatwhere.models.surgery.report import Cast, Changed, Exported, NotCopied, Report, TableDamage
from whatwhere.models.surgery.source import Edits, Progress, Source, as_json, copy_other_files, writing

if TYPE_CHECKING:
    from torch import Tensor

DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
DTYPE_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
Format = Literal["safetensors", "projector"]
FORMATS: tuple[Format, ...] = ("safetensors", "projector")
_CASTABLE = ("float64", "float32", "bfloat16", "float16")
_BLOCK = 1 << 20


def convert_dtype(
    path: str | Path, out: str | Path, dtype: str, *, force: bool = False, progress: Progress | None = None
) -> Report:
    """Write a checkpoint in another floating-point type, and measure the error.

    Values are rounded to nearest; a value beyond the range of the type is an error. Only tables and matrices are cast
    to 8-bit types, without scales. Integers and 8-bit tensors are kept.

    Args:
        path, out, force, progress: as in `resize_checkpoint`.
        dtype: one of DTYPES, or a short name such as bf16.

    Returns:
        The report, with the relative errors.

    Raises:
        SettingError: If the type is not known.
        CheckpointError: If a value is beyond its range.
    """
    source, out = Source(path), Path(out)
    dtype = DTYPE_ALIASES.get(dtype, dtype)
    source.require_output(out, force)
    edits, errors = _cast_all(source.checkpoint, dtype)
    if source.folder is not None and (config := source.checkpoint.config) is not None:
        edits.files["config.json"] = as_json(_with_dtype(config, dtype))
    report = source.write("convert", out, edits, force, progress)
    return replace(report, measured=errors.result())


@dataclass
class _CastErrors:
    """Sums of squared errors and squared values, accumulated while tensors are cast."""

    error: float = 0.0
    size: float = 0.0
    worst_tensor: str = ""
    worst: float = 0.0
    table: TableDamage | None = None

    def result(self) -> Cast:
        """Return the measurements, after all tensors were written."""
        relative = (self.error / self.size) ** 0.5 if self.size else 0.0
        return Cast(relative, self.worst_tensor, self.worst, self.table)


def _cast_all(checkpoint: Checkpoint, dtype: str) -> tuple[Edits, _CastErrors]:
    """Return the cast of all tensors that are cast, and the errors, which are measured when they are written."""
    if dtype not in DTYPES:
        raise SettingError(f"convert got dtype={dtype!r}, but knows only: {', '.join(DTYPES)}.")
    edits, errors = Edits(), _CastErrors()
    for entry in checkpoint.tensors.values():
        small = dtype.startswith("float8") and len(entry.shape) < 2
        if entry.dtype not in (*_CASTABLE, *QUANTIZED) or entry.dtype == dtype or small:
            continue
        edits.compute(entry, partial(_cast, checkpoint, entry, dtype, errors), "cast", dtype=dtype)
    return edits, errors


def _cast(checkpoint: Checkpoint, entry: Entry, dtype: str, errors: _CastErrors) -> "Tensor":
    import torch

    before = checkpoint.tensor(entry.name)
    after: Tensor = before.to(getattr(torch, dtype))
    error = size = 0.0
    flat, cast, limits = before.reshape(-1), after.reshape(-1), torch.finfo(after.dtype)
    # Values just above the maximum are rounded to it, but some types also clip larger values.
    largest = limits.max * (1 + limits.eps / 4)
    with counted(f"casting {entry.name}", len(flat), "numbers") as advance:
        for x, y in zip(flat.split(_BLOCK), cast.split(_BLOCK), strict=True):
            x, y = x.double(), y.double()
            lost = torch.isfinite(x) & (~torch.isfinite(y) | (x.abs() > largest))
            if lost.any():
                raise CheckpointError(
                    f"{quoted(entry.name)} holds {float(x[lost][0]):.6g}, beyond the range of {dtype}, which ends at "
                    f"{limits.max:.6g}.\nChoose bfloat16, which has the range of float32."
                )
            finite = torch.isfinite(x)
            error += float((y - x)[finite].square().sum())
            size += float(x[finite].square().sum())
            advance(len(x))
    errors.error += error
    errors.size += size
    relative = (error / size) ** 0.5 if size else 0.0
    if relative >= errors.worst:
        errors.worst_tensor, errors.worst = entry.name, relative
    if entry.name == checkpoint.token_table:
        begin_step(f"comparing neighbors in {entry.name}")
        errors.table = damage(before.float().numpy(), after.float().numpy())
    return after


def damage(before: np.ndarray, after: np.ndarray) -> TableDamage | None:
    """Measure the difference of a table before and after a cast; None if no row is finite.

    Args:
        before, after: tables of the same shape (rows, dim).

    Returns:
        Errors of values, cosines of rows, and the share of nearest neighbors that remain.

    Examples:
        >>> table = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
        >>> damage(table, table).nearest_kept
        1.0
    """
    from whatwhere.analysis.table_difference import movement, overlap

    finite = np.isfinite(before).all(1) & np.isfinite(after).all(1)
    before, after = before[finite], after[finite]
    if not len(before):
        return None
    moved = movement(before, after)
    nonzero = (before**2).sum(1) > 0  # a zero row has no direction; one that became zero has lost it
    cosine = np.nan_to_num(moved.cosine[nonzero]) if nonzero.any() else np.ones(1)
    kept = float(overlap(before, after).kept.mean()) if len(before) > 10 else None
    return TableDamage(moved.relative_error, float(cosine.min()), float(np.median(cosine)), kept)


def _with_dtype(config: Json, dtype: str) -> Json:
    changed = dict(config)
    for key in ("dtype", "torch_dtype"):
        if isinstance(config.get(key), str):
            changed[key] = dtype
    key, text = nested_text(config)
    return {**changed, key: _with_dtype(text, dtype)} if key else changed


def convert_format(
    path: str | Path,
    out: str | Path,
    format: Format,
    *,
    dtype: str | None = None,
    allow_pickle: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Convert a checkpoint of any readable format to another format.

    `safetensors` has every tensor, in the stored type; quantized types of GGUF become float32. `projector` (the TSV
    pair) has a row of the token table for each token, with its text. Numbers in text have nine digits, from which
    float32 is restored exactly.

    Args:
        path: a file or folder.
        out: a file; for `projector` a folder. For `safetensors` a folder too if the input is one and this name does not
            end in .safetensors; then configuration and tokenizer are copied.
        dtype: cast tensors to this type, see `convert_dtype`; for `safetensors` only.
        allow_pickle: read pickles of PyTorch. Pass True only if you trust the author.
        force, progress: as in `resize_checkpoint`.

    Returns:
        The report.

    Raises:
        SettingError: If the format is not known, or has a fixed type.
        CheckpointError: If there is no token table, or there are no tokens as strings.
    """
    path, out = Path(path), Path(out)
    if format not in FORMATS:
        raise SettingError(f"convert got format={format!r}, but knows only: {', '.join(FORMATS)}.")
    if dtype is not None and format != "safetensors":
        raise SettingError(f"{format} has a fixed type.\nOmit --dtype, or choose safetensors.")
    checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    require_writable_output(out, {path, *(entry.file for entry in checkpoint.tensors.values())}, force)
    if format == "safetensors":
        return _as_safetensors(checkpoint, path, out, dtype, force, progress)
    if checkpoint.token_table is None:
        raise checkpoint.without_table("Use --format safetensors.")
    name = table_name(checkpoint, "input")
    entry, words = checkpoint.entry(name), checkpoint.words
    if words is None:
        raise CheckpointError(f"{path} has no tokens as strings, which {format} needs.\nUse --format safetensors.")
    rows = min(entry.shape[0], len(words))
    with new_folder(out, force) as unfinished:
        write_projector(unfinished, checkpoint.array(name, slice(0, rows)), words[:rows])
        size = sum(one.stat().st_size for one in unfinished.iterdir())
    written = replace(entry, shape=(rows, *entry.shape[1:]), dtype="float32")
    changed = Changed.of(entry, written, f"written as {format}")
    notes = (f"{len(checkpoint.tensors) - 1:,} other tensors are not written",) if len(checkpoint.tensors) > 1 else ()
    return Report("convert", str(path), str(out), (changed,), 0, size, Exported(rows), notes)


def _as_safetensors(
    checkpoint: Checkpoint, path: Path, out: Path, dtype: str | None, force: bool, progress: Progress | None
) -> Report:
    checkpoint.require_stored(checkpoint.tensors)
    parts: dict[str, Part] = {}
    for entry in checkpoint.tensors.values():
        kept = entry.dtype if entry.dtype in TYPES.values() and entry.dtype not in QUANTIZED else "float32"
        parts[entry.name] = computed(entry.name, kept, entry.shape, partial(checkpoint.tensor, entry.name))
    changed: list[Changed] = []
    errors = None
    if dtype is not None:
        dtype = DTYPE_ALIASES.get(dtype, dtype)
        edits, errors = _cast_all(checkpoint, dtype)
        parts, changed = parts | edits.parts, edits.changed
    metadata = {k: v for k, v in checkpoint.metadata.items() if isinstance(v, str) and len(v) < 1000}
    metadata.setdefault("format", "pt")
    not_copied: list[NotCopied] = []
    if path.is_dir() and out.suffix != ".safetensors":
        with new_folder(out, force) as unfinished:
            not_copied = copy_other_files(path, unfinished, {"model.safetensors"}, {})
            with writing(parts.values(), progress) as count:
                size = write_safetensors(unfinished / "model.safetensors", list(parts.values()), metadata, count)
    else:
        with new_file(out, force) as unfinished, writing(parts.values(), progress) as count:
            size = write_safetensors(unfinished, list(parts.values()), metadata, count)
    widened = {entry.dtype for entry in checkpoint.tensors.values()} & QUANTIZED.keys()
    notes = [f"{', '.join(sorted(widened))} became float32"] if widened and dtype is None else []
    return Report(
        "convert", str(path), str(out), tuple(changed), len(parts) - len(changed), size,
        None if errors is None else errors.result(), tuple(notes), tuple(not_copied),
    )  # fmt: skip
