"""Attention with a bias that is never a dense table: a block of query rows at a time, with the keys that they see.

    y_i = sum_j a_ij v_j        a_ij = exp(s_ij - l_i)        s_ij = <q_i, k_j> scale + bias(h, i, j)
    dL/ds_ij = a_ij (<g_i, v_j> - <g_i, y_i>)                 l_i = log sum_j exp(s_ij),  g = dL/dy

A sink, a number s for each head, is one more term of the sum in l_i and has no value. The gradients above hold as they
are, with the weights a_ij that sum to less than 1, and

    dL/ds = -sum_i exp(s - l_i) <g_i, y_i>

The logarithms l_i are returned too, so that outputs over other keys can be merged; where they get a gradient d_i, it is
added to the difference of the products: dL/ds_ij = a_ij (<g_i, v_j> - <g_i, y_i> + d_i).

PyTorch's CPU attention takes a table of all pairs, and where the bias is learned it allocates more of the same size.
Here the bias is computed block by block, and so is its gradient. The PyTorch implementation is attention with a table.

Rows of a block are in reverse, the last query first: the distance then falls by one from row to row, as it does from
key to key, so that a bias of the distance is a strided view of one line of numbers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from whatwhere.kernels.backend import differentiable_once, full_precision

NO_SECOND_DERIVATIVE = "this attention has no second derivative.\nFor one, pass engine='dense' to the attention."

_ROWS = 192
"""Query rows of a block: with fewer, PyTorch's kernel computes smaller products; with more, more masked pairs."""
_ROWS_BACK = 64
_NUMBERS = 1 << 21
"""Scores of a block in the backward pass, 8 MB in float32: up to there, sequences are computed together."""

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class HeadRange:
    """How far some heads attend: `back` to earlier keys, `ahead` to later ones, in tokens."""

    heads: slice
    back: int
    ahead: int


@dataclass(frozen=True)
class Block:
    """The pairs of a block: heads, query rows from top to bottom, keys from left to right, ends excluded."""

    heads: slice
    top: int
    bottom: int
    left: int
    right: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Heads, rows and keys."""
        return self.heads.stop - self.heads.start, self.bottom - self.top, self.right - self.left

    def rows(self, x: Float[Tensor, "batch heads tokens *size"]) -> Float[Tensor, "batch some rows *size"]:
        """Return the query rows of this block, in reverse."""
        return x[:, self.heads, self.top : self.bottom].flip(2)

    def put_rows(
        self, x: Float[Tensor, "batch heads tokens *size"], rows: Float[Tensor, "batch some rows *size"]
    ) -> None:
        """Write reversed query rows of this block into x."""
        x[:, self.heads, self.top : self.bottom] = rows.flip(2)

    def keys(self, x: Float[Tensor, "batch heads tokens size"]) -> Float[Tensor, "batch some keys size"]:
        """Return the keys of this block, as a view."""
        return x[:, self.heads, self.left : self.right]


class Bias(ABC):
    """A bias and a mask, computed block by block; queries and keys are one contiguous run of tokens."""

    ranges: list[HeadRange]  # effective ranges of all heads, in order

    @abstractmethod
    def block(self, block: Block) -> Float[Tensor, "1 some rows keys"]:
        """Return the bias of a block, rows in reverse; minus infinity where a key is masked."""

    @abstractmethod
    def totals(self) -> tuple[Tensor, ...]:
        """Return zeros, to which the gradients of blocks are added."""

    @abstractmethod
    def add(self, totals: tuple[Tensor, ...], block: Block, gradient: Float[Tensor, "batch some rows keys"]) -> None:
        """Add the gradient of a block's scores, rows in reverse, to the totals."""

    @abstractmethod
    def gradients(self, totals: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tensors that the bias was made of, in their order, from the totals."""


@dataclass(frozen=True)
class ByBlocks:
    """How to make a bias that is computed block by block."""

    make: Callable[..., Bias]  # (q, k, *made_of, scale=) -> the bias; q and k have equally many heads
    made_of: tuple[Tensor, ...]  # the tensors that get its gradients
    serves: Callable[[torch.dtype], bool]  # whether it supports queries of a dtype


def attention_by_blocks(
    q: Float[Tensor, "batch heads tokens head_dim"],
    k: Float[Tensor, "batch key_heads tokens head_dim"],
    v: Float[Tensor, "batch key_heads tokens value_dim"],
    bias: ByBlocks,
    scale: float,
    sink: Float[Tensor, " heads"] | None = None,
) -> tuple[Float[Tensor, "batch heads tokens value_dim"], Float[Tensor, "batch heads tokens"]]:
    """Compute attention with a bias, block by block."""
    y, logs = _Attention.apply(*_fitted(q, k, v), bias.make, scale, sink, *bias.made_of)  # type: ignore[no-untyped-call]
    return y if y.shape[-1] == v.shape[-1] else y[..., : v.shape[-1]], logs


def attention_with_table(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    table: Float[Tensor, "#batch #heads queries keys"] | None,
    scale: float,
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Compute attention with a bias as a table that gets no gradient, and the logarithms l, which have one."""
    y, logs = _WithTable.apply(*_fitted(q, k, v), table, scale)  # type: ignore[no-untyped-call]
    return y if y.shape[-1] == v.shape[-1] else y[..., : v.shape[-1]], logs


def sdpa(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Use PyTorch's attention, whose kernels lack the second derivative; the error for it names the way out."""
    y = F.scaled_dot_product_attention(q, k, v, **options)
    if not torch.compiler.is_compiling() and y.grad_fn is not None and "ScaledDotProduct" in y.grad_fn.name():
        y.grad_fn.register_hook(_refuse_second_derivative)
    return y


def _refuse_second_derivative(gradients: tuple[Tensor | None, ...], _: Any) -> tuple[Tensor | None, ...] | None:
    return differentiable_once(lambda *x: x, NO_SECOND_DERIVATIVE, *gradients) if torch.is_grad_enabled() else None


def _fitted(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values with as many heads and features, contiguous in memory, as the kernel needs."""
    if (groups := q.shape[1] // k.shape[1]) > 1:
        k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    widest = max(q.shape[-1], v.shape[-1])
    q, k, v = (F.pad(x, (0, widest - x.shape[-1])) if x.shape[-1] < widest else x for x in (q, k, v))
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    return q, k, v


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        make: Callable[..., Bias],
        scale: float,
        sink: Tensor | None,
        *made_of: Tensor,
    ) -> tuple[Float[Tensor, "batch heads tokens head_dim"], Float[Tensor, "batch heads tokens"]]:
        with full_precision(q.device):
            bias = make(q, k, *made_of, scale=scale)
            y, logs = _forward(q, k, v, bias, scale)
            if sink is not None:
                with_sink = torch.logaddexp(logs, sink.to(logs.dtype)[:, None])
                y, logs = y.mul_((logs - with_sink).exp_()[..., None].to(y.dtype)), with_sink
                ctx.mark_non_differentiable(logs)
        ctx.save_for_backward(q, k, v, y, logs, sink, *made_of)
        ctx.set_materialize_grads(False)
        ctx.bias, ctx.scale = bias, scale
        return y, logs

    @staticmethod
    def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
        return differentiable_once(partial(_Attention.gradients, ctx), NO_SECOND_DERIVATIVE, *g, *ctx.saved_tensors)

    @staticmethod
    def gradients(ctx: Any, g: Tensor | None, g_logs: Tensor | None, *saved: Any) -> tuple[Tensor | None, ...]:
        bias, scale, needs = ctx.bias, ctx.scale, ctx.needs_input_grad
        (*kept, sink), totals = saved[:6], bias.totals() if any(needs[6:]) else ()
        *_, y, logs = kept
        with full_precision(y.device):
            g = torch.zeros_like(y) if g is None else g
            # PyTorch's kernel is slower than float32 where it does not multiply a dtype natively.
            fast = g.dtype in (torch.float32, torch.float64) or torch.cpu._is_avx512_bf16_supported()
            if totals or g_logs is not None or not fast:
                of_inputs = _backward(g, g_logs, kept, bias, scale, totals)
            else:
                of_inputs = _backward_of_fixed(g, kept, bias, scale)
            of_sink = None
            if needs[5]:
                weights = torch.exp(sink.to(logs.dtype)[:, None] - logs)
                of_sink = -(weights * (g.to(weights.dtype) * y).sum(-1)).sum((0, 2)).to(sink.dtype)
            return *of_inputs, None, None, of_sink, *(bias.gradients(totals) if totals else (None,) * len(needs[6:]))


class _WithTable(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, scale: float
    ) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch heads queries"]]:
        with full_precision(q.device):
            y, logs = _flash(q, k, v, 0.0, False, attn_mask=table, scale=scale)
        # Of a query without any visible key the kernel returns zeros, also as the logarithm.
        empty = None if table is None else (table == -torch.inf).all(-1)
        ctx.save_for_backward(q, k, v, table, y, logs, empty)
        ctx.set_materialize_grads(False)
        ctx.scale = scale
        return y, logs if empty is None else logs.masked_fill(empty, -torch.inf)

    @staticmethod
    def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
        compute = partial(_WithTable.gradients, ctx.scale)
        return *differentiable_once(compute, NO_SECOND_DERIVATIVE, *g, *ctx.saved_tensors), None, None

    @staticmethod
    def gradients(scale: float, g: Tensor | None, g_logs: Tensor | None, *saved: Any) -> tuple[Tensor | None, ...]:
        q, k, v, table, y, logs, empty = saved
        with full_precision(y.device):
            g, dtype, size = torch.zeros_like(y) if g is None else g, y.dtype, y.shape[-1]
            if g_logs is not None:
                # The kernel subtracts <g, y>: one more feature, where y is -1, keys and values 0, and g is d, adds d.
                g_logs = g_logs if empty is None else g_logs.masked_fill(empty, 0)
                g, q, k, v, y = (x.to(_wide(x)) for x in (g, q, k, v, y))
                g, y = torch.cat([g, g_logs.to(g.dtype)[..., None]], dim=-1), F.pad(y, (0, 1), value=-1)
                q, k, v = (F.pad(x, (0, 1)) for x in (q, k, v))
            parts = _flash_backward(g, q, k, v, y, logs, 0.0, False, attn_mask=table, scale=scale)
        return tuple(x[..., :size].to(dtype) for x in parts)


def _forward(q: Tensor, k: Tensor, v: Tensor, bias: Bias, scale: float) -> tuple[Tensor, Tensor]:
    y, logs = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=_wide(q))
    for block in _blocks(bias, q.shape[2], _ROWS):
        inputs = (block.rows(q), block.keys(k), block.keys(v))
        part, part_logs = _flash(*inputs, 0.0, False, attn_mask=bias.block(block), scale=scale)
        block.put_rows(y, part)
        block.put_rows(logs, part_logs)
    return y, logs


def _backward_of_fixed(g: Tensor, kept: list[Tensor], bias: Bias, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the backward pass with PyTorch's kernel, which returns no gradient of the bias."""
    q, k, v, y, logs = kept
    d_q, d_k, d_v = _empty(q, k, v)
    for block in _blocks(bias, q.shape[2], _ROWS):
        of_g, of_q, of_y, of_logs = (block.rows(x) for x in (g, q, y, logs))
        inputs = (of_g, of_q, block.keys(k), block.keys(v), of_y, of_logs)
        parts = _flash_backward(*inputs, 0.0, False, attn_mask=bias.block(block), scale=scale)
        block.put_rows(d_q, parts[0])
        block.keys(d_k).add_(parts[1])
        block.keys(d_v).add_(parts[2])
    return d_q, d_k.to(k.dtype), d_v.to(v.dtype)


def _backward(
    g: Tensor, g_logs: Tensor | None, kept: list[Tensor], bias: Bias, scale: float, totals: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute it with matrix products in float32 at least, which also gives the gradient of the scores to the bias."""
    q, k, v, _, logs = kept
    wide = _wide(q)
    d_q, d_k, d_v = _empty(q, k, v)
    buffers = [q.new_empty(0, dtype=wide) for _ in range(2)]  # new ones cost more than the arithmetic in them

    def take(which: int, shape: tuple[int, ...]) -> Tensor:
        if buffers[which].numel() < prod(shape):
            buffers[which] = q.new_empty(prod(shape), dtype=wide)
        return buffers[which][: prod(shape)].view(shape)

    # The last block first: it has the most keys, so its buffers are large enough for all others.
    for block in reversed(list(_blocks(bias, q.shape[2], _ROWS_BACK))):
        of_pairs = bias.block(block)
        # Widened copies need memory too.
        step = max(1, (_NUMBERS if q.dtype == wide else _NUMBERS // 2) // of_pairs.numel())
        for some in (slice(first, first + step) for first in range(0, q.shape[0], step)):
            sizes = (len(q[some]), *block.sizes)
            pairs = (sizes[0] * sizes[1], *sizes[2:])
            queries, upstream = (block.rows(x[some]).to(wide).flatten(0, 1) for x in (q, g))
            keys, values = (block.keys(x[some]).to(wide).flatten(0, 1) for x in (k, v))
            scores = torch.sub(of_pairs, block.rows(logs[some])[..., None], out=take(0, sizes)).view(pairs)
            weights = torch.baddbmm(scores, queries, keys.mT, alpha=scale, out=scores).exp_()
            d_scores = torch.bmm(upstream, values.mT, out=take(1, pairs)).mul_(weights)
            # Not <g, y>, whose y is rounded: a row's gradients must sum to 0, else a bias that all keys share drifts.
            mean = d_scores.sum(-1, keepdim=True)
            if g_logs is not None:
                mean -= block.rows(g_logs[some]).to(wide).flatten(0, 1)[..., None]
            d_scores.addcmul_(weights, mean, value=-1)
            if totals:
                bias.add(totals, block, d_scores.view(sizes))
            block.put_rows(d_q[some], (d_scores @ keys).mul_(scale).view(*sizes[:3], -1))
            block.keys(d_k[some]).add_((d_scores.mT @ queries).view(*sizes[:2], sizes[3], -1), alpha=scale)
            block.keys(d_v[some]).add_((weights.mT @ upstream).view(*sizes[:2], sizes[3], -1))
    return d_q, d_k.to(k.dtype), d_v.to(v.dtype)


def _blocks(bias: Bias, tokens: int, rows: int) -> Iterator[Block]:
    for top in range(0, tokens, rows):
        bottom = min(top + rows, tokens)
        for of_heads in bias.ranges:
            left, right = max(0, top - of_heads.back), min(tokens, bottom + of_heads.ahead)
            yield Block(of_heads.heads, top, bottom, left, right)


def _empty(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate the gradients; those of k and v are sums over blocks, in float32 at least."""
    return torch.empty_like(q), torch.zeros_like(k, dtype=_wide(k)), torch.zeros_like(v, dtype=_wide(v))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
