"""Attention with a bias by distance in one pass over tiles of keys, on a GPU: no table, and gradients that repeat.

    s_ij = <q_i, k_j> scale + f_h(x_i - x_j)        f_h: slopes, KERPLE's curves, or one of a few numbers by distance

The kernels are in cuda/attention.py, the PyTorch implementation is attention with a table. A mask compares numbers of a
query and a key: order, document, and window or chunk. Gradients of learned numbers are sums over the tiles of each
query block, added in one order, so that the same inputs give the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor

from whatwhere.kernels import backend
from whatwhere.kernels.backend import differentiable_once
from whatwhere.kernels.blockwise_attention import NO_SECOND_DERIVATIVE

Kind = Literal["none", "linear", "log", "power", "rows"]

MAX_LEARNED = 64  # numbers of a head that can have gradients: a program keeps a sum for each in registers
HEAD_SIZES = range(16, 257)  # features of a head that kernels on a GPU have room for, FlexAttention's too
LN_2 = log(2)


@dataclass(frozen=True)
class ByDistance:
    """A bias f_h(d) by distance.

        linear    -a |d|                 numbers (heads, 1): a
        log       -a ln(1 + b |d|)       numbers (heads, 2): a, b
        power     -a |d| ** b            numbers (heads, 2): a, b
        rows      numbers[h, rows[d - low]]    distances below low, or beyond the last of the rows, count as these

    Args:
        numbers: what is learned, or fixed; in float32.
        rows: which number each distance from low on has, for the kind of that name.
    """

    kind: Kind
    numbers: Float[Tensor, "heads count"]
    rows: Int64[Tensor, " distances"] | None = None
    low: int = 0

    def why_not(self) -> str | None:
        """Return why its gradients cannot be computed, or None where they can, or are not needed."""
        learned = self.numbers.requires_grad and torch.is_grad_enabled()
        if learned and self.kind == "rows" and self.numbers.shape[1] > MAX_LEARNED:
            return f"it has gradients of {MAX_LEARNED} learned numbers a head, not of {self.numbers.shape[1]}"
        return None


class TileLists(NamedTuple):
    """The tiles to visit: of each row of tiles (query block) and of each column, first those with masked pairs."""

    of_rows: Int32[Tensor, "batch row_tiles column_tiles"]
    row_counts: Int32[Tensor, "batch row_tiles 2"]  # those with masked pairs; all to visit
    of_columns: Int32[Tensor, "batch column_tiles row_tiles"]
    column_counts: Int32[Tensor, "batch column_tiles 2"]


@dataclass(frozen=True)
class FlashMask:
    """The mask, as numbers of each token, and the tiles to visit; of batch 1 for all sequences."""

    queries: Int32[Tensor, "batch 4 queries"]  # coordinate, order, document, and t or the number of the chunk
    keys: Int32[Tensor, "batch 5 keys"]  # the same, and 1 for the first tokens, which a window keeps
    causal: bool  # as the next two and `first`: whether it counts
    documents: bool
    window: Literal["none", "sliding", "chunked"]
    size: int  # of a sliding window
    first: bool
    lists: Callable[[int, int], TileLists]  # (queries, keys) of a tile -> the tiles to visit


def tile_lists(
    some: Bool[Tensor, "batch row_tiles column_tiles"], whole: Bool[Tensor, "batch row_tiles column_tiles"]
) -> TileLists:
    """Return the tiles to visit: those where some pair is visible, and of these those where all are."""
    kinds = torch.where(whole, 1, torch.where(some, 0, 2)).to(torch.uint8)

    def listed(kinds: Tensor) -> tuple[Tensor, Tensor]:
        counts = torch.stack([(kinds == 0).sum(-1), (kinds < 2).sum(-1)], -1)
        return kinds.argsort(dim=-1, stable=True).to(torch.int32), counts.to(torch.int32)

    return TileLists(*listed(kinds), *listed(kinds.mT.contiguous()))


def why_not_flash(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    """Return why the kernels cannot take these tensors, or None where they can."""
    if q.dtype not in (torch.bfloat16, torch.float16) or not q.dtype == k.dtype == v.dtype:
        return f"it takes bfloat16 and float16, but q is {q.dtype}, k {k.dtype} and v {v.dtype}"
    if q.shape[-1] not in HEAD_SIZES or v.shape[-1] not in HEAD_SIZES:
        return f"it takes heads of 16 to 256 features, but q has {q.shape[-1]} and v {v.shape[-1]}"
    if torch.compiler.is_compiling():
        return "torch.compile cannot trace it"
    if backend.on_gpu("flash_attention", q, k, v) is None:
        return (
            f"it needs Triton, and plain tensors on one NVIDIA GPU of compute capability 8.0 or later, not {q.device}"
        )
    return None


def flash_attention(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    mask: FlashMask,
    bias: ByDistance | None,
    scale: float,
    sink: Float[Tensor, " heads"] | None = None,
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Compute attention and the logarithms of the sums of exp(score), that of the sink included."""
    q, k, v = map(_readable, (q, k, v))
    bias = ByDistance("none", q.new_empty(1, 0, dtype=torch.float32)) if bias is None else bias
    y, logs = _Flash.apply(q, k, v, bias.numbers.float(), sink, mask, bias, scale)  # type: ignore[no-untyped-call]
    return y, logs


def _readable(x: Tensor) -> Tensor:
    """Copy what the kernels cannot read: within a tile, of up to 128 tokens, they count numbers in 32 bits."""
    return x if x.stride(-1) == 1 and x.stride(-2) <= 2**24 else x.contiguous()


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, numbers: Tensor, sink: Tensor | None, *given: Any
    ) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
        attend, ctx.back = (backend.on_gpu(f"flash_attention{part}", q, k, v) for part in ("", "_backward"))
        assert attend is not None
        # Of rounded outputs the gradients of a row would not sum to 0, and a number that all keys share would drift.
        dtype = torch.float32 if ctx.needs_input_grad[3] else q.dtype
        mask, bias, scale = ctx.given = given
        y, logs = attend(q, k, v, mask, bias, numbers, scale, sink, dtype)
        ctx.save_for_backward(q, k, v, numbers, sink, y, logs)
        ctx.set_materialize_grads(False)
        natural = logs * LN_2
        if sink is not None:
            ctx.mark_non_differentiable(natural)
        return y.to(q.dtype), natural

    @staticmethod
    def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
        compute = partial(_Flash.gradients, ctx)
        return *differentiable_once(compute, NO_SECOND_DERIVATIVE, *g, *ctx.saved_tensors), None, None, None

    @staticmethod
    def gradients(ctx: Any, g: Tensor | None, g_logs: Tensor | None, *saved: Any) -> tuple[Tensor | None, ...]:
        (mask, bias, scale), needs, (q, k, v, numbers, sink, y, logs) = ctx.given, ctx.needs_input_grad, saved
        g = torch.zeros_like(y, dtype=q.dtype) if g is None else g
        g = _readable(g)
        mean = (g.float() * y.float()).sum(-1)
        unseen = logs == -torch.inf
        logs = logs.masked_fill(unseen, torch.inf)  # so that the weights of these queries are 0
        of_sink = None
        if sink is not None and needs[4]:
            of_sink = -((sink.float()[:, None] / LN_2 - logs).exp2() * mean).sum((0, 2)).to(sink.dtype)
        if g_logs is not None:
            mean = mean - g_logs.masked_fill(unseen, 0)
        return *ctx.back(q, k, v, g, mask, bias, numbers, scale, logs, mean, needs[3]), of_sink
