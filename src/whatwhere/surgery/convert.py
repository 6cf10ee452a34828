"""Convert checkpoints to another floating-point type, layout of rotary pairs, or format."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from whatwhere.checks import require_choice
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.escape import quoted
from whatwhere.long_work import begin_step, counted
from whatwhere.models.checkpoint.base import QUANTIZED, Entry
from whatwhere.models.checkpoint.checkpoint import LAYOUT_KEY, LAYOUTS, Checkpoint, Layout
from whatwhere.models.checkpoint.lookup import table_name
from whatwhere.models.checkpoint.names import KEYS, QUERIES, is_other_modality, layer_of
from whatwhere.models.checkpoint.safetensors import computed, new_folder, require_writable_output
from whatwhere.models.checkpoint.tokenizer_files import tokens_in
from whatwhere.models.checkpoint.word_vectors import write_projector
from whatwhere.models.configuration.keys import Json
from whatwhere.models.configuration.model_types import nested_text
from whatwhere.surgery.changed_copy import ChangedCopy, as_json
from whatwhere.surgery.report import Cast, Changed, Report, TableDamage

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.models.configuration.description import Plan

DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
Format = Literal["safetensors", "projector"]
FORMATS: tuple[Format, ...] = ("safetensors", "projector")
_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_CASTABLE = ("float64", "float32", "bfloat16", "float16")
_BLOCK = 1 << 20

_FUSED = {
    "qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv", "qkv", "attn_qkv", "in_proj_weight", "in_proj", "to_qkv",
}  # fmt: skip
"""Last parts of the names of tensors with queries, keys and values; a parameter may have no module of its own."""
_QUERY_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "attn_q_norm")
_KEY_NORMS = ("k_norm", "k_layernorm", "key_layernorm", "attn_k_norm")


# Type


def convert_dtype(path: str | Path, out: str | Path, dtype: str, *, force: bool = False) -> Report:
    """Write a checkpoint in another floating-point type, one of DTYPES or a short name, and measure the error.

    Values are rounded to nearest; a value beyond the range of the type is an error. Only tables and matrices are cast
    to 8-bit types, without scales. Integers and 8-bit tensors are kept.
    """
    return _written_as(ChangedCopy(path, out, force), dtype)


@dataclass
class _CastErrors:
    """Sums of squared errors and squared values, accumulated while tensors are cast."""

    error: float = 0.0
    size: float = 0.0
    worst_tensor: str = ""
    worst: float = 0.0
    table: TableDamage | None = None

    def result(self) -> Cast:
        relative = (self.error / self.size) ** 0.5 if self.size else 0.0
        return Cast(relative, self.worst_tensor, self.worst, self.table)


def _written_as(copy: ChangedCopy, dtype: str) -> Report:
    """Cast the tensors of a copy, and write it; the errors are measured when each is written."""
    dtype = _ALIASES.get(dtype, dtype)
    require_choice("convert", "dtype", dtype, DTYPES)
    errors = _CastErrors()
    for entry in copy.checkpoint.tensors.values():
        kept = entry.dtype not in (*_CASTABLE, *QUANTIZED) or entry.dtype == dtype
        if not kept and not (dtype.startswith("float8") and len(entry.shape) < 2):
            cast = partial(_cast, copy.checkpoint, entry, dtype, errors)
            copy.replace(entry, computed(entry.name, dtype, entry.shape, cast), "cast")
    if copy.folder is not None and (config := copy.checkpoint.config) is not None:
        copy.files["config.json"] = as_json(_with_dtype(config, dtype))
    return copy.write("convert", errors.result)


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
    """
    copy = ChangedCopy(path, out, force)
    require_choice("convert", "layout", layout, LAYOUTS)
    permuted = _projections(copy.checkpoint)
    present: Layout = "interleaved" if permuted[0][2].settings.get("interleaved", False) else "half"
    marked = LAYOUT_KEY in copy.checkpoint.metadata  # only a layout that is not the model type's is recorded
    if present == layout:
        why = "its header says so" if marked else "as its model type has"
        raise CheckpointError(f"{copy.path} has the {layout} layout already: {why}.\nThere is nothing to convert.")
    copy.metadata[LAYOUT_KEY] = None if marked else layout
    from whatwhere.models.rotary_layout import to_half, to_interleaved

    def make(entry: Entry, heads: int, rotary_dim: int) -> "Tensor":
        permute = to_interleaved if layout == "interleaved" else to_half
        return permute(copy.checkpoint.tensor(entry.name), heads, rotary_dim)

    for entry, heads, plan in permuted:
        what = f"{heads} heads, {plan.rotary_dim} features of each"
        copy.compute(entry, partial(make, entry, heads, plan.rotary_dim), what)
    if not marked:
        model_type = copy.checkpoint.description.model_type
        copy.notes.append(f"code for {model_type} expects the {present} layout: this file is for code that does not")
    return copy.write("convert")


def _projections(checkpoint: Checkpoint) -> "list[tuple[Entry, int, Plan]]":
    """Find every tensor whose rows follow the layout, with its number of heads and the rotation of its layer."""
    description = checkpoint.description
    plans = [plan for plan in description.query_key if plan is not None]
    if not plans or any(plan.scheme != "rotary" for plan in plans) or description.part is not None:
        raise CheckpointError(
            f"{description.model_type} does not rotate queries and keys by Rotary alone: it has no layout to convert.\n"
            "Plain rotary positions have one: those of Llama, Mistral, Qwen, Gemma, GPT-J."
        )
    fused = [name for name in checkpoint.tensors if not _FUSED.isdisjoint(name.split(".")[-2:])]
    if fused:
        raise CheckpointError(
            f"{quoted(fused[0])} holds queries, keys and values in one tensor, in an order that differs between "
            "models, so its rows are not permuted.\nSplit it first: load the model, and call whatwhere.rotary_layout "
            "on the rows of queries and of keys."
        )
    heads_of = dict.fromkeys((*QUERIES, *_QUERY_NORMS), description.num_heads)
    heads_of |= dict.fromkeys((*KEYS, *_KEY_NORMS), description.key_heads)
    found, weights = [], []
    for entry in checkpoint.tensors.values():
        layer, module, parameter = layer_of(entry.name, description.layers)
        known = module in heads_of and layer < description.layers and not is_other_modality(entry.name)
        plan = description.query_key[layer] if known else None
        if plan is None:
            continue
        heads, head_dim, norm = heads_of[module], plan.settings["head_dim"], module in (*_QUERY_NORMS, *_KEY_NORMS)
        heads = 1 if norm and entry.shape == (head_dim,) else heads
        rows = entry.shape[0] if parameter in ("weight", "bias") and entry.shape and len(entry.shape) <= 2 else 0
        if rows != heads * head_dim or (norm and len(entry.shape) != 1):
            raise CheckpointError(
                f"{quoted(entry.name)} of shape {entry.shape} does not hold {heads} heads of {head_dim} features by "
                "rows, so the features of each pair are not known.\nQuantized, packed and adapted weights: merge "
                "them into plain ones first. Rows that hold a gate too, as in Qwen3-Next, are not converted."
            )
        found.append((entry, heads, plan))
        weights += [module] if len(entry.shape) == 2 else []
    queries = sum(module in QUERIES for module in weights)
    if queries != len(plans) or len(weights) != 2 * len(plans):
        raise CheckpointError(
            f"{checkpoint.path} has {queries} query and {len(weights) - queries} key projections that are known, but "
            f"{len(plans)} rotary layers.\nConvert them by hand, with whatwhere.rotary_layout."
        )
    return found


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
    """Convert a checkpoint of any readable format to another format, one of FORMATS.

    `safetensors` has every tensor, in the stored type or cast as by `convert_dtype`; quantized types of GGUF become
    float32. Of a folder it is a folder with configuration and tokenizer, unless `out` ends in .safetensors.
    `projector` (the TSV pair) has a row of the token table for each token, with its text. Numbers in text have nine
    digits, from which float32 is restored exactly.
    """
    path, out = Path(path), Path(out)
    require_choice("convert", "format", format, FORMATS)
    if dtype is not None and format != "safetensors":
        raise SettingError(f"{format} has a fixed type.\nOmit --dtype, or choose safetensors.")
    checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    if format == "safetensors":
        copy, words = ChangedCopy(path, out, force, checkpoint), checkpoint.words
        lost = [f"{len(words):,} tokens"] if words and (copy.folder is None or not tokens_in(copy.folder)()) else []
        lost += ["the configuration"] if checkpoint.config is not None and copy.json("config.json") is None else []
        copy.notes += [f"not written, as safetensors hold tensors alone: {' and '.join(lost)}"] if lost else []
        if dtype is not None:
            return _written_as(copy, dtype)
        if widened := [entry.dtype for entry in checkpoint.tensors.values() if entry.dtype in QUANTIZED]:
            copy.notes.append(f"{', '.join(sorted({*widened}))} became float32")
        report = copy.write("convert")
        return replace(report, kept=report.kept - len(widened))
    require_writable_output(out, {path, *(entry.file for entry in checkpoint.tensors.values())}, force)
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
