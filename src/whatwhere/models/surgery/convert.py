"""Convert checkpoints to another floating-point type, layout of rotary pairs, or format."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.escape import quoted
from whatwhere.long_work import begin_step, counted
from whatwhere.models.checkpoint.base import QUANTIZED, Entry
from whatwhere.models.checkpoint.checkpoint import LAYOUT_KEY, LAYOUTS, Checkpoint, Layout
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
from whatwhere.models.checkpoint.word_vectors import write_projector
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import nested_text
from whatwhere.models.surgery.changed_copy import ChangedCopy, as_json, copy_other_files
from whatwhere.models.surgery.report import Cast, Changed, NotCopied, Report, TableDamage
from whatwhere.models.surgery.selection import is_other_modality

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.models.configuration.description import Description

DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
Format = Literal["safetensors", "projector"]
FORMATS: tuple[Format, ...] = ("safetensors", "projector")
_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_CASTABLE = ("float64", "float32", "bfloat16", "float16")
_BLOCK = 1 << 20

# Modules by the last but one part of a tensor's name; of fused ones a parameter may have no module of its own.
_QUERIES = ("q_proj", "wq", "attn_q", "query_proj", "to_q", "query", "q")
_KEYS = ("k_proj", "wk", "attn_k", "key_proj", "to_k", "key", "k")
_QUERY_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "attn_q_norm")
_KEY_NORMS = ("k_norm", "k_layernorm", "key_layernorm", "attn_k_norm")
_FUSED = (
    "qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv", "qkv", "attn_qkv", "in_proj_weight", "in_proj", "to_qkv",
)  # fmt: skip


# Type


def convert_dtype(path: str | Path, out: str | Path, dtype: str, *, force: bool = False) -> Report:
    """Write a checkpoint in another floating-point type, and measure the error.

    Values are rounded to nearest; a value beyond the range of the type is an error. Only tables and matrices are cast
    to 8-bit types, without scales. Integers and 8-bit tensors are kept.

    Args:
        path, out, force: as in `resize_checkpoint`.
        dtype: one of DTYPES, or a short name such as bf16.

    Raises:
        SettingError: If the type is not known.
        CheckpointError: If a value is beyond its range.
    """
    copy, errors = ChangedCopy(path, out, force), _CastErrors()
    for entry, part in _casts(copy.checkpoint, dtype, errors):
        copy.replace(entry, part, "cast")
    if copy.folder is not None and (config := copy.checkpoint.config) is not None:
        copy.files["config.json"] = as_json(_with_dtype(config, _ALIASES.get(dtype, dtype)))
    return copy.write("convert", errors.result)


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


def _casts(checkpoint: Checkpoint, dtype: str, errors: _CastErrors) -> list[tuple[Entry, Part]]:
    """Return the tensors that are cast, each with its cast; the errors are measured when it is written."""
    dtype = _ALIASES.get(dtype, dtype)
    if dtype not in DTYPES:
        raise SettingError(f"convert got dtype={dtype!r}, but knows only: {', '.join(DTYPES)}.")
    return [
        (entry, computed(entry.name, dtype, entry.shape, partial(_cast, checkpoint, entry, dtype, errors)))
        for entry in checkpoint.tensors.values()
        if entry.dtype in (*_CASTABLE, *QUANTIZED) and entry.dtype != dtype
        if not (dtype.startswith("float8") and len(entry.shape) < 2)
    ]


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
    """Measure the difference of a table (rows, dim) before and after a cast; None if no row is finite."""
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


# Layout of rotary pairs


def convert_layout(path: str | Path, out: str | Path, layout: Layout, *, force: bool = False) -> Report:
    """Write a checkpoint whose query and key projections have their rotary pairs in the other layout.

    Weights, biases and the norms over queries and keys are permuted, each by its own number of heads; see
    `whatwhere.rotary_layout`. The layout is recorded in the header, and nowhere else: code that expects the layout of
    the model type would compute wrong scores without an error.

    Args:
        path, out, force: as in `resize_checkpoint`.
        layout: `interleaved` or `half`.

    Raises:
        SettingError: If the layout is not known.
        CheckpointError: If the checkpoint has the layout already, or its projections are not known.
    """
    copy = ChangedCopy(path, out, force)
    if layout not in LAYOUTS:
        raise SettingError(f"convert got layout={layout!r}, but knows only: {', '.join(LAYOUTS)}.")
    permuted = _projections(copy.checkpoint)
    present: Layout = "interleaved" if permuted[0].interleaved else "half"
    marked = LAYOUT_KEY in copy.checkpoint.metadata  # only a layout that is not the model type's is recorded
    if present == layout:
        why = "its header says so" if marked else "as its model type has"
        raise CheckpointError(f"{copy.path} has the {layout} layout already: {why}.\nThere is nothing to convert.")
    copy.metadata[LAYOUT_KEY] = None if marked else layout
    for one in permuted:
        what = f"{one.num_heads} heads, {one.rotary_dim} features of each"
        copy.compute(one.entry, partial(_permuted, copy.checkpoint, one, layout), what)
    if not marked:
        model_type = copy.checkpoint.description.model_type
        copy.notes.append(f"code for {model_type} expects the {present} layout: this file is for code that does not")
    return copy.write("convert")


@dataclass(frozen=True)
class _Projection:
    """A tensor whose rows follow the layout: a weight (out, in) of queries or keys, their bias, or a norm's weight."""

    entry: Entry
    num_heads: int
    rotary_dim: int
    interleaved: bool


def _permuted(checkpoint: Checkpoint, one: _Projection, layout: Layout) -> "Tensor":
    from whatwhere.models.rotary_layout import to_half, to_interleaved

    permute = to_interleaved if layout == "interleaved" else to_half
    return permute(checkpoint.tensor(one.entry.name), one.num_heads, one.rotary_dim)


def _projections(checkpoint: Checkpoint) -> list[_Projection]:
    """Find every tensor whose rows follow the layout of rotary pairs."""
    description = checkpoint.description
    plans = [plan for plan in description.query_key if plan is not None]
    if not plans or any(plan.scheme != "rotary" for plan in plans) or description.part is not None:
        raise CheckpointError(
            f"{description.model_type} does not rotate queries and keys by Rotary alone: it has no layout to convert.\n"
            "Plain rotary positions have one: those of Llama, Mistral, Qwen, Gemma, GPT-J."
        )
    fused = [name for name in checkpoint.tensors if _module_and_parameter(name)[0] in _FUSED]
    if fused:
        raise CheckpointError(
            f"{quoted(fused[0])} holds queries, keys and values in one tensor, in an order that differs between "
            "models, so its rows are not permuted.\nSplit it first: load the model, and call whatwhere.rotary_layout "
            "on the rows of queries and of keys."
        )
    tensors = [one for entry in checkpoint.tensors.values() if (one := _projection(entry, description)) is not None]
    _require_both(checkpoint, tensors, len(plans))
    return tensors


def _projection(entry: Entry, description: "Description") -> _Projection | None:
    module, parameter = _module_and_parameter(entry.name)
    first = next((part for part in entry.name.split(".") if part.isdecimal() and len(part) < 6), None)
    sides = ((_QUERIES, _QUERY_NORMS, description.num_heads), (_KEYS, _KEY_NORMS, description.key_heads))
    for names, norms, heads in sides:
        if module not in (*names, *norms) or first is None or is_other_modality(entry):
            continue
        plan = description.query_key[int(first)] if int(first) < description.layers else None
        if plan is None:
            return None
        head_dim = plan.settings["head_dim"]
        heads = 1 if module in norms and entry.shape == (head_dim,) else heads
        rows = entry.shape[0] if parameter in ("weight", "bias") and entry.shape and len(entry.shape) <= 2 else 0
        if rows != heads * head_dim or (module in norms and len(entry.shape) != 1):
            raise CheckpointError(
                f"{quoted(entry.name)} of shape {entry.shape} does not hold {heads} heads of {head_dim} features by "
                "rows, so the features of each pair are not known.\nQuantized, packed and adapted weights: merge "
                "them into plain ones first."
            )
        return _Projection(entry, heads, plan.rotary_dim, bool(plan.settings.get("interleaved", False)))
    return None


def _require_both(checkpoint: Checkpoint, tensors: Sequence[_Projection], layers: int) -> None:
    """Raise CheckpointError unless each rotary layer has a weight for queries and one for keys."""
    weights = [one.entry.name for one in tensors if len(one.entry.shape) == 2]
    queries = sum(_module_and_parameter(name)[0] in _QUERIES for name in weights)
    if queries != layers or len(weights) != 2 * layers:
        raise CheckpointError(
            f"{checkpoint.path} has {queries} query and {len(weights) - queries} key projections that are known, but "
            f"{layers} rotary layers.\nConvert them by hand, with whatwhere.rotary_layout."
        )


def _module_and_parameter(name: str) -> tuple[str, str]:
    parts = name.split(".")
    if parts[-1] in _FUSED:
        return parts[-1], parts[-1]
    return (parts[-2] if len(parts) > 1 else ""), parts[-1]


# Format


def convert_format(
    path: str | Path,
    out: str | Path,
    format: Format,
    *,
    dtype: str | None = None,
    allow_pickle: bool = False,
    force: bool = False,
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
        force: as in `resize_checkpoint`.

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
        return _as_safetensors(checkpoint, path, out, dtype, force)
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
    return Report("convert", str(path), str(out), (changed,), 0, size, None, notes)


def _as_safetensors(checkpoint: Checkpoint, path: Path, out: Path, dtype: str | None, force: bool) -> Report:
    checkpoint.require_stored(checkpoint.tensors)
    parts: dict[str, Part] = {}
    for entry in checkpoint.tensors.values():
        kept = entry.dtype if entry.dtype in TYPES.values() and entry.dtype not in QUANTIZED else "float32"
        parts[entry.name] = computed(entry.name, kept, entry.shape, partial(checkpoint.tensor, entry.name))
    errors = _CastErrors()
    casts = [] if dtype is None else _casts(checkpoint, dtype, errors)
    parts |= {entry.name: part for entry, part in casts}
    changed = tuple(Changed.of(entry, part, "cast") for entry, part in casts)
    metadata = {k: v for k, v in checkpoint.metadata.items() if isinstance(v, str) and len(v) < 1000}
    metadata.setdefault("format", "pt")
    not_copied: list[NotCopied] = []
    in_folder = path.is_dir() and out.suffix != ".safetensors"
    with (new_folder if in_folder else new_file)(out, force) as unfinished:
        file = unfinished / "model.safetensors" if in_folder else unfinished
        if in_folder:
            not_copied = copy_other_files(path, unfinished, {file.name}, {})
        with counted("writing", sum(part.bytes for part in parts.values()), "bytes") as advance:
            size = write_safetensors(file, list(parts.values()), metadata, advance)
    widened = {entry.dtype for entry in checkpoint.tensors.values()} & QUANTIZED.keys()
    notes = (f"{', '.join(sorted(widened))} became float32",) if widened and dtype is None else ()
    return Report(
        "convert", str(path), str(out), changed, len(parts) - len(changed), size,
        None if dtype is None else errors.result(), notes, tuple(not_copied),
    )  # fmt: skip
