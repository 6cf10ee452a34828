"""Convert checkpoints between the two layouts of rotary pairs: interleaved and half."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import LAYOUT_KEY, LAYOUTS, Checkpoint, Layout
from whatwhere.models.surgery.report import LayoutConverted, Report
from whatwhere.models.surgery.selection import is_other_modality
from whatwhere.models.surgery.source import Edits, Progress, Source

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.models.configuration.description import Description

_QUERIES = ("q_proj", "wq", "attn_q", "query_proj", "to_q", "query", "q")
_KEYS = ("k_proj", "wk", "attn_k", "key_proj", "to_k", "key", "k")
_QUERY_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "attn_q_norm")
_KEY_NORMS = ("k_norm", "k_layernorm", "key_layernorm", "attn_k_norm")
_FUSED = (
    "qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv", "qkv", "attn_qkv", "in_proj_weight", "in_proj", "to_qkv",
)  # fmt: skip


@dataclass(frozen=True)
class Projection:
    """A tensor whose rows follow the layout of rotary pairs.

    Args:
        entry: a weight (out, in) of queries or keys, their bias, or the weight of a norm over them.
        num_heads: heads of its rows.
        rotary_dim: features of each head that are rotated.
        interleaved: whether pairs are adjacent features in this checkpoint.
    """

    entry: Entry
    num_heads: int
    rotary_dim: int
    interleaved: bool


def convert_layout(
    path: str | Path, out: str | Path, layout: Layout, *, force: bool = False, progress: Progress | None = None
) -> Report:
    """Write a checkpoint whose query and key projections have their rotary pairs in the other layout.

    Weights, biases and the norms over queries and keys are permuted, each by its own number of heads; see
    `whatwhere.rotary_layout`. The layout is recorded in the header, and nowhere else: code that expects the layout of
    the model type would compute wrong scores without an error.

    Args:
        path, out, force, progress: as in `resize_checkpoint`.
        layout: `interleaved` or `half`.

    Returns:
        The report.

    Raises:
        SettingError: If the layout is not known.
        CheckpointError: If the checkpoint has the layout already, or its projections are not known.
    """
    source, out = Source(path), Path(out)
    source.require_output(out, force)
    if layout not in LAYOUTS:
        raise SettingError(f"convert got layout={layout!r}, but knows only: {', '.join(LAYOUTS)}.")
    permuted = projections(source.checkpoint)
    present: Layout = "interleaved" if permuted[0].interleaved else "half"
    marked = LAYOUT_KEY in source.checkpoint.metadata  # only a layout that is not the model type's is recorded
    native = _other(present) if marked else present
    if present == layout:
        why = "its header says so" if marked else "as its model type has"
        raise CheckpointError(f"{source.path} has the {layout} layout already: {why}.\nThere is nothing to convert.")
    restored: list[bool] = []
    edits = Edits(metadata={LAYOUT_KEY: None if layout == native else layout})
    for one in permuted:
        what = f"{one.num_heads} heads, {one.rotary_dim} features of each"
        edits.compute(one.entry, partial(_permuted, source, one, layout, restored), what)
    if layout != native:
        model_type = source.checkpoint.description.model_type
        edits.notes.append(f"code for {model_type} expects the {native} layout: this file is for code that does not")
    report = source.write("convert", out, edits, force, progress)
    return replace(report, measured=LayoutConverted(sum(restored)))


def _other(layout: Layout) -> Layout:
    return "half" if layout == "interleaved" else "interleaved"


def _permuted(source: Source, one: Projection, layout: Layout, restored: list[bool]) -> "Tensor":
    import torch

    from whatwhere.models.rotary_layout import to_half, to_interleaved

    weight = source.checkpoint.tensor(one.entry.name)
    there, back = (to_interleaved, to_half) if layout == "interleaved" else (to_half, to_interleaved)
    permuted = there(weight, one.num_heads, one.rotary_dim)
    again = back(permuted, one.num_heads, one.rotary_dim)
    restored.append(torch.equal(again.view(torch.uint8), weight.view(torch.uint8)))
    return permuted


def projections(checkpoint: Checkpoint) -> list[Projection]:
    """Find every tensor whose rows follow the layout of rotary pairs.

    Returns:
        Weights and biases of queries and keys, and norms over them.

    Raises:
        CheckpointError: If positions are not plain rotary ones, or the projections are fused or not known.
    """
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
    _require_both(checkpoint, tensors, sum(plan is not None for plan in description.query_key))
    return tensors


def _projection(entry: Entry, description: "Description") -> Projection | None:
    module, parameter = _module_and_parameter(entry.name)
    sides = ((_QUERIES, _QUERY_NORMS, description.num_heads), (_KEYS, _KEY_NORMS, description.key_heads))
    for names, norms, heads in sides:
        layer = _layer(entry.name)
        if module not in (*names, *norms) or layer is None or is_other_modality(entry):
            continue
        plan = description.query_key[layer] if layer < description.layers else None
        if plan is None:
            return None
        head_dim = plan.whole("head_dim")
        heads = 1 if module in norms and entry.shape == (head_dim,) else heads
        rows = entry.shape[0] if parameter in ("weight", "bias") and entry.shape and len(entry.shape) <= 2 else 0
        if rows != heads * head_dim or (module in norms and len(entry.shape) != 1):
            raise CheckpointError(
                f"{quoted(entry.name)} of shape {entry.shape} does not hold {heads} heads of {head_dim} features by "
                "rows, so the features of each pair are not known.\nQuantized, packed and adapted weights: merge "
                "them into plain ones first."
            )
        return Projection(entry, heads, plan.rotary_dim, bool(plan.settings.get("interleaved", False)))
    return None


def _require_both(checkpoint: Checkpoint, tensors: Sequence[Projection], layers: int) -> None:
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


def _layer(name: str) -> int | None:
    """Return the first number in a name."""
    first = next((part for part in name.split(".") if part.isdecimal()), None)
    return int(first) if first is not None and len(first) < 6 else None
