"""Attention with linear biases."""

from collections.abc import Mapping, Sequence
from math import floor, log2
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.checks import require_whole
from whatwhere.kernels.flash_attention import ByDistance
from whatwhere.where.frequencies import to_device
from whatwhere.where.head_shards import for_heads
from whatwhere.where.score_bias import Curve, DistanceBias


@final
class ALiBi(DistanceBias):
    """Penalize distance linearly, with one slope per head.

        score(h, i, j) += -m_h * |i - j|        m_h = 2 ** (-8 (h + 1) / H),  h = 0..H-1,  H a power of two

    Press, Smith and Lewis 2022, https://arxiv.org/abs/2108.12409. The bias is not divided by sqrt(head_dim). For H
    not a power of two, two rules are in use; this is the authors' own: the slopes of the power of two below H, then
    every other slope of the one above. Distances are computed as integers: the variant slope * key position is equal
    after softmax in exact arithmetic only, and in bfloat16 does not separate neighboring keys. For an encoder the bias
    is symmetric.

    Args:
        num_heads: H, any positive integer.
        slopes: m_h, one number above 0 for each head, in place of the rule: for MPT with another `alibi_bias_max`, or
            Falcon, whose slopes are rounded and divided by sqrt(head_dim).

    Fixed: no parameters, no state. Any length. Engines: dense, sdpa, flex. Used by: BLOOM, MPT.

    Examples:
        >>> ALiBi(num_heads=4).slopes
        tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """

    head_axes: ClassVar = {}

    def __init__(self, num_heads: int, slopes: Sequence[float] | None = None) -> None:
        super().__init__()
        require_whole("ALiBi", num_heads=num_heads)
        self.num_heads = num_heads
        self._slopes = None if slopes is None else for_heads("ALiBi", "slopes", slopes, num_heads)

    @property
    @final
    def slopes(self) -> Float[Tensor, " heads"]:
        """m_h of each head."""
        return torch.tensor(self._slope_values())

    def attributes_of_heads(self, first: int, count: int, total: int) -> Mapping[str, object]:
        """Return the slopes of some heads."""
        return {"_slopes": self._slope_values()[first : first + count]}

    def curve(self, device: torch.device) -> Curve:
        """Return -m_h |distance|."""
        values = to_device(self._slope_values(), device)
        return lambda head, distance: -values[head] * distance.abs()

    def by_distance(self, most: int | None, device: torch.device) -> ByDistance:
        """Return m_h."""
        return ByDistance("linear", to_device(self._slope_values(), device)[:, None])

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"num_heads={self.num_heads}" + ("" if self._slopes is None else f", slopes={self._slopes}")

    def _slope_values(self) -> tuple[float, ...]:
        return tuple(slopes(self.num_heads)) if self._slopes is None else self._slopes


def slopes(num_heads: int) -> list[float]:
    """Return the slopes of the authors' rule, the largest first within each of its two series."""
    power = 2 ** floor(log2(num_heads))
    series = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return series + between[: num_heads - power]
