"""Biases that are polylines of a ratio: how far back a key lies, by how far back its query can look.

    bias[h, i, j] = slopes[h, s] x + levels[h, s]        x = climb(i - j) / reach_i
    climb(d) = ln(1 + rate d)                            s = how many knots lie below x

An MLP of one number with ReLUs between its layers is such a polyline. Along a row x only falls from key to key, so the
pieces of a row are found once for all heads, and a kernel fills each piece by one product and one sum; by element FIRE
takes 32 of each for every pair and head. The gradient is gathered in the same pieces. The plain twin is the scheme's
formula by element.
"""

from collections.abc import Callable
from ctypes import c_int64, c_void_p
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels import native
from whatwhere.kernels.blocks import Bias, Block, Reach


class Polyline(Bias):
    """Hold a bias that is a polyline of climb over reach, toward earlier keys.

    Args:
        q, k: the queries and keys that will meet, of as many heads.
        rate: of the climb, 0 or more.
        reach: of each query.
        slopes, levels: of each head between two knots.
        knots: where slopes change, rising.
        scale: of the inner product.
    """

    def __init__(
        self,
        q: Float[Tensor, "batch heads tokens head_dim"],
        k: Float[Tensor, "batch heads tokens head_dim"],
        rate: Float[Tensor, ""],
        reach: Float[Tensor, " tokens"],
        slopes: Float[Tensor, "heads segments"],
        levels: Float[Tensor, "heads segments"],
        knots: Float[Tensor, " knots"],
        *,
        scale: float,
    ) -> None:
        self.reaches = [Reach(slice(0, q.shape[1]), q.shape[2], 0)]
        self._reach, self._slopes, self._levels = reach.contiguous(), slopes.contiguous(), levels.contiguous()
        distance = torch.arange(q.shape[2], dtype=torch.float32)
        climb = (rate * distance).log1p()
        # Piece 0 begins at distance 0, piece s at the first distance beyond its knot.
        self._begins = torch.searchsorted(climb, knots * reach[:, None], right=True, out_int32=True)
        self._begins = torch.nn.functional.pad(self._begins, (1, 0))
        # What falls from key to key stands in the order of the keys.
        self._climb, self._tangent = climb.flip(0), (distance / (1 + rate * distance)).flip(0)
        self._room = q.new_empty(0, dtype=torch.float32)

    def block(self, block: Block) -> Float[Tensor, "1 some rows keys"]:
        """Fill a block; the next one takes its place."""
        heads, rows, keys = sizes = block.sizes
        numbers = heads * rows * keys
        if self._room.numel() < numbers:
            self._room = self._room.new_empty(numbers)
        parts = (self._climb, self._reach, self._begins, self._slopes[block.heads], self._levels[block.heads])
        _kernel("fill")(
            self._room.data_ptr(),
            *(part.data_ptr() for part in parts),
            *self._begins.shape,
            *sizes,
            block.bottom,
            block.left,
            torch.get_num_threads(),
        )
        return self._room[:numbers].view(1, *sizes)

    def totals(self) -> tuple[Tensor, ...]:
        """Give zeros for rate, reach, slopes and levels."""
        return tuple(torch.zeros_like(x) for x in (self._reach[0], self._reach, self._slopes, self._levels))

    def add(self, totals: tuple[Tensor, ...], block: Block, gradient: Float[Tensor, "batch some rows keys"]) -> None:
        """Gather a block's gradient, piece by piece."""
        of_rate, of_reach, of_slopes, of_levels = totals
        heads, rows, _ = block.sizes
        sums = self._reach.new_empty(3, heads, rows, self._begins.shape[1])
        parts = (self._climb, self._tangent, self._begins)
        _kernel("sums")(
            sums.data_ptr(),
            gradient.contiguous().data_ptr(),
            *(part.data_ptr() for part in parts),
            *self._begins.shape,
            *gradient.shape,
            block.bottom,
            block.left,
            torch.get_num_threads(),
        )
        plain, rising, turning = sums.flip(2)
        reach, slopes = self._reach[block.top : block.bottom, None], self._slopes[block.heads, None]
        of_rate += (turning * slopes / reach).sum()
        of_reach[block.top : block.bottom] -= (rising * slopes / reach**2).sum((0, 2))
        of_slopes[block.heads] += (rising / reach).sum(1)
        of_levels[block.heads] += plain.sum(1)

    def gradients(self, totals: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        """Give them as they are; knots have none, for the polyline does not jump there."""
        return (*totals, None)


def fills(dtype: torch.dtype) -> bool:
    """Tell whether the kernel is there, for queries of a dtype."""
    return dtype in (torch.float32, torch.bfloat16, torch.float16) and native.library() is not None


@cache
def _kernel(name: Literal["fill", "sums"]) -> Callable[..., None]:
    library = native.library()
    assert library is not None  # as `fills` has found
    pointers = {"fill": 6, "sums": 5}[name]
    return library.function(f"polyline_{name}", *[c_void_p] * pointers, *[c_int64] * {"fill": 8, "sums": 9}[name])


def polyline_of_relus(
    weight_in: Float[Tensor, " width"],
    bias_in: Float[Tensor, " width"],
    weight_out: Float[Tensor, "heads width"],
    bias_out: Float[Tensor, " heads"],
) -> tuple[Float[Tensor, "heads segments"], Float[Tensor, "heads segments"], Float[Tensor, " width"]]:
    """Give slopes, levels and knots of the MLP  bias_out + weight_out relu(weight_in x + bias_in)  for x in 0..1.

    >>> one = torch.ones(1)
    >>> slopes, levels, knots = polyline_of_relus(2 * one, -one, 3 * one[None], one)
    >>> slopes, levels, knots
    (tensor([[0., 6.]]), tensor([[ 1., -2.]]), tensor([0.5000]))
    """
    with torch.no_grad():
        turns = torch.where(weight_in == 0, 0, -bias_in / weight_in).clamp(0, 1)
        knots = turns.sort().values
        ends = torch.nn.functional.pad(knots, (1, 0)), torch.cat([knots, knots.new_ones(1)])
        middle = (ends[0] + ends[1]) / 2
        awake = (weight_in[:, None] * middle + bias_in[:, None] > 0).to(weight_in.dtype)  # (width, segments)
    slopes = (weight_out * weight_in) @ awake
    levels = (weight_out * bias_in) @ awake + bias_out[:, None]
    return slopes, levels, knots
