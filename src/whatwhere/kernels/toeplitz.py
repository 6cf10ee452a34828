"""Biases of the distance alone: a strided view of one number for each distance, limited to the effective range.

    bias[h, i, j] = line[h, i - j]          a Toeplitz matrix: 2T - 1 numbers fill it

With rows in reverse it is a Hankel matrix: a view of the line with strides (2T - 1, 1, 1). Where the bias falls far
enough, keys need not be read:

    s_ij - s_ii  <=  |q_i| max |k| scale - <q_i, k_i> scale + line[h, i - j] - line[h, 0]

Where the right side is below -ln(8 T / epsilon) for every query, all such keys together have less weight than an eighth
of a rounding error, so they are skipped. For ALiBi's steep heads these are most keys, and weights that small are
denormal numbers, which take processors many times as long to multiply. Beyond a sliding window the line is minus
infinity, and all those keys are skipped.
"""

from functools import cache, partial
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels.backend import full_precision
from whatwhere.kernels.blockwise_attention import Bias, Block, ByBlocks, HeadRange, attention_by_blocks

_STEP = 256
"""Keys: ranges are rounded up to powers of two times it, so that heads of similar range are computed together."""


class Toeplitz(Bias):
    """A bias that depends on the distance alone.

    Args:
        q, k: queries and keys, of equally many heads.
        line: the bias at distances -(T-1) .. T-1, query minus key, of each head; or one line for all heads.
        causal: whether keys later than the query are masked.
        scale: softmax scale.
        size: keys at this distance and beyond are masked, on both sides; None masks none.
    """

    def __init__(
        self,
        q: Float[Tensor, "batch heads tokens head_dim"],
        k: Float[Tensor, "batch heads tokens head_dim"],
        line: Float[Tensor, "lines distances"],
        *,
        causal: bool,
        scale: float,
        size: int | None = None,
    ) -> None:
        self._tokens, self._learned_dtype = q.shape[2], line.dtype
        wide = line.to(torch.promote_types(q.dtype, torch.float32))
        distance = torch.arange(line.shape[1]) - (self._tokens - 1)
        if causal:
            wide = wide.masked_fill(distance < 0, -torch.inf)
        if size is not None:
            wide = wide.masked_fill(distance.abs() >= size, -torch.inf)
        if len(line) == q.shape[1]:
            wide = wide.masked_fill(wide < _least(q, k, wide, scale)[:, None], -torch.inf)
            self.ranges = _ranges(wide, size)
        else:  # one line for all heads
            only = _ranges(wide, size)[0]
            self.ranges = [HeadRange(slice(0, q.shape[1]), only.back, only.ahead)]
        self._line = wide.flip(1)  # from distance T - 1 downward
        self._head_stride = wide.shape[1] if len(line) == q.shape[1] else 0

    def block(self, block: Block) -> Float[Tensor, "1 some rows keys"]:
        """Return line[h, T - 1 - (i - j)] as a matrix that is a view."""
        first = block.heads.start * self._head_stride + self._start(block)
        return self._line.as_strided((1, *block.sizes), (0, self._head_stride, 1, 1), first)

    def totals(self) -> tuple[Tensor, ...]:
        """Return a zero for each number of the line."""
        return (torch.zeros_like(self._line),)

    def add(self, totals: tuple[Tensor, ...], block: Block, gradient: Float[Tensor, "batch some rows keys"]) -> None:
        """Add the sums along the diagonals."""
        sums = sums_of_diagonals(gradient.sum(0) if len(gradient) > 1 else gradient[0])
        start = self._start(block)
        totals[0][block.heads, start : start + sums.shape[1]] += sums

    def gradients(self, totals: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        """Return the gradient of the line."""
        return (totals[0].flip(1).to(self._learned_dtype),)

    def _start(self, block: Block) -> int:
        """Return the index in the line at which a block begins: the distance of its last query and first key."""
        return self._tokens - block.bottom + block.left


def toeplitz(line: Float[Tensor, "lines distances"], causal: bool, size: int | None = None) -> ByBlocks:
    """Return the bias of a line in the form that blockwise attention reads."""
    return ByBlocks(partial(Toeplitz, causal=causal, size=size), (line,), reads_views)


def sums_of_diagonals(block: Float[Tensor, "heads rows columns"]) -> Float[Tensor, "heads diagonals"]:
    """Sum x[i, j] over i + j = c, for every c.

    Each row is written one element further into a buffer one column wider; read without that column, rows are skewed.
    """
    heads, rows, columns = block.shape
    width = rows + columns - 1
    buffer = block.new_zeros(heads, rows * (width + 1))
    buffer.as_strided((heads, rows, columns), (rows * (width + 1), width + 1, 1)).copy_(block)
    return buffer[:, : rows * width].view(heads, rows, width).sum(1)


def _least(q: Tensor, k: Tensor, line: Tensor, scale: float) -> Float[Tensor, " heads"]:
    """Return the lowest bias of each head at which a key can still affect a row; see the module's bound."""
    tokens, wide = q.shape[2], line.dtype
    max_norm = torch.linalg.vector_norm(k, dim=-1, dtype=wide).amax(-1, keepdim=True)
    most = torch.linalg.vector_norm(q, dim=-1, dtype=wide) * max_norm * abs(scale)
    # One percent more, since products are rounded, in bfloat16 by up to 1/256.
    over_own = 1.01 * most - (q * k).sum(-1, dtype=wide) * scale
    spread = over_own.amax((0, 2)) if over_own.numel() else over_own.new_zeros(q.shape[1])
    least: Tensor = line[:, tokens - 1] - spread - log(8 * tokens / torch.finfo(wide).eps)
    return least


def _ranges(line: Float[Tensor, "heads distances"], size: int | None) -> list[HeadRange]:
    """Return how far heads attend; neighboring heads of similar range are joined."""
    tokens = (line.shape[1] + 1) // 2
    farthest = tokens if size is None else min(size - 1, tokens)
    distance = torch.arange(1 - tokens, tokens)
    seen = torch.where(line == -torch.inf, 0, distance)
    ranges: list[HeadRange] = []
    for head, (low, high) in enumerate(zip(seen.amin(1).tolist(), seen.amax(1).tolist(), strict=True)):
        back, ahead = _rounded_up(high, farthest), _rounded_up(-low, farthest)
        if ranges and (ranges[-1].back, ranges[-1].ahead) == (back, ahead):
            ranges[-1] = HeadRange(slice(ranges[-1].heads.start, head + 1), back, ahead)
        else:
            ranges.append(HeadRange(slice(head, head + 1), back, ahead))
    return ranges


def _rounded_up(distance: int, farthest: int) -> int:
    """Return the next of 0, 256, 512, 1024, ...; at most the farthest distance."""
    step = _STEP
    while step < distance:
        step *= 2
    return min(step, farthest) if distance else 0


@cache
def reads_views(dtype: torch.dtype) -> bool:
    """Return whether PyTorch's kernel reads a view with overlapping rows correctly; tried once."""
    g = torch.Generator().manual_seed(0)
    tokens = 2 * _STEP
    q, k, v, upstream = (torch.randn(1, 2, tokens, 16, generator=g).to(dtype) for _ in range(4))
    line = torch.randn(2, 2 * tokens - 1, generator=g)
    slots = torch.arange(tokens)
    bias = line[:, slots[:, None] - slots + tokens - 1].masked_fill(slots > slots[:, None], -torch.inf)

    def table(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / 4 + bias).softmax(-1) @ v

    def by_view(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention_by_blocks(q, k, v, toeplitz(line, causal=True), 0.25)[0]

    tolerance = 16 * torch.finfo(dtype).eps
    try:
        with torch.enable_grad(), full_precision(q.device):
            expected, actual = (
                [y, *torch.autograd.grad(y, inputs, upstream.to(y.dtype))]
                for attend, wide in ((table, torch.float64), (by_view, dtype))
                for inputs in [[x.detach().to(wide).requires_grad_() for x in (q, k, v)]]
                for y in [attend(*inputs)]
            )
    except (RuntimeError, TypeError, AttributeError):  # a kernel of another version
        return False
    return all(bool((x - y).norm() <= tolerance * y.norm()) for x, y in zip(actual, expected, strict=True))
