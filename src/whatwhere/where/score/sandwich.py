"""Sandwich: the position-to-position scores of the sinusoidal encoding."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import torch
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.where.frequencies import inverse_frequencies, to_device
from whatwhere.where.head_shards import for_heads
from whatwhere.where.score_bias import Curve, DistanceBias


@final
class Sandwich(DistanceBias):
    """Add the dot product of the sinusoidal vectors of two positions, scaled by head.

        score(h, i, j) += <PE(i), PE(j)> / r_h = sum_n cos((i - j) w_n) / r_h
        w_n = theta ** (-2n / sinusoid_dim),  n = 0 .. sinusoid_dim/2 - 1        r_h = 8 (h + 1) / H,  h = 0..H-1

    Chi et al. 2023, https://arxiv.org/abs/2212.10356, who keep only the position-to-position part of the scores of the
    sinusoidal encoding. n counts from 0, as in the listing of the paper's appendix and in attention-gym, so that the
    sum is the dot product of two vectors of `Sinusoidal(sinusoid_dim)`. It decreases roughly with the logarithm of the
    distance, but not monotonically. It is not divided by sqrt(head_dim). For an encoder the bias is symmetric.

    Args:
        num_heads: H, any positive integer.
        sinusoid_dim: features of the sinusoid, even, whatever the model's dim; 128 in the paper.
        theta: base of the frequencies, above 0; 10,000 in the paper.
        ratios: r_h, one number above 0 for each head, in place of the rule.

    Fixed: no parameters, no state. Any length: angles are float64. Engines: dense, sdpa, flex. Used by: its authors'
    models.

    Examples:
        >>> Sandwich(num_heads=8, sinusoid_dim=4)(torch.tensor([0, 1]))[0, :2, 1]
        tensor([[1.5403, 2.0000],
                [0.7701, 1.0000]])
    """

    head_axes: ClassVar = {}

    def __init__(
        self, num_heads: int, sinusoid_dim: int = 128, theta: float = 10_000.0, ratios: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        require_whole("Sandwich", num_heads=num_heads, sinusoid_dim=sinusoid_dim)
        require_even("Sandwich", "a sine and a cosine share one frequency", sinusoid_dim=sinusoid_dim)
        require_positive("Sandwich", theta=theta)
        self.num_heads, self.sinusoid_dim, self.theta = num_heads, sinusoid_dim, theta
        self._chosen = ratios is not None
        rule = (torch.arange(1, num_heads + 1, device="cpu") * (8 / num_heads)).tolist()  # 8 h / H, in float32
        self._ratios = tuple(rule) if ratios is None else for_heads("Sandwich", "ratios", ratios, num_heads)

    def attributes_of_heads(self, first: int, count: int, total: int) -> Mapping[str, object]:
        """Return the ratios of some heads."""
        return {"_ratios": self._ratios[first : first + count], "_chosen": True}

    def curve(self, device: torch.device) -> Curve:
        """Return the sum of cosines over r_h."""
        frequencies = inverse_frequencies(self.sinusoid_dim, self.theta, device)
        ratios = to_device(self._ratios, device)

        def bias(head: Tensor, distance: Tensor) -> Tensor:
            absolute = distance.abs().to(torch.float64)
            total = torch.zeros_like(absolute)
            for n in range(self.sinusoid_dim // 2):  # one at a time: at once they would be 64 tables
                total = total + (absolute * frequencies[n]).cos()
            return total.float() / ratios[head]

        return bias

    def extra_repr(self) -> str:
        """Return the settings."""
        ratios = f", ratios={self._ratios}" if self._chosen else ""
        return f"num_heads={self.num_heads}, sinusoid_dim={self.sinusoid_dim}, theta={self.theta}{ratios}"
