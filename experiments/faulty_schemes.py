"""Schemes with a known mistake, made on purpose to measure what it costs; no model should use one.

Two mistakes need a class of their own; others are an existing scheme with another setting, see silent_faults.py.
"""

from typing import final

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from whatwhere.position.positions import Positions, PositionsLike, as_positions
from whatwhere.where.base import Bound, InputEncoding
from whatwhere.where.binding import Where
from whatwhere.where.frequencies import inverse_frequencies
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.rotary_map import RotaryMap
from whatwhere.where.score.alibi import ALiBi


@final
class MisprintedSinusoid(InputEncoding):
    """Encode positions by a formula in which i counts features, not pairs, so that no two features share a frequency.

        PE[p, i] = sin(p theta ** (-2 i / dim)) for even i, cos(p theta ** (-2 i / dim)) for odd i

    The fourth tutorial prints it so. No rotation maps PE[p] to PE[p + k], and the slower half of the features hardly
    changes within 10,000 positions.

    Args:
        dim: features.
        theta: base of the frequencies.

    Examples:
        >>> row = MisprintedSinusoid(dim=4)(torch.tensor([1]))[0, 0]  # the paper: sin 1, cos 1, sin 0.01, cos 0.01
        >>> [round(value, 5) for value in row.tolist()]
        [0.84147, 0.99995, 0.0001, 1.0]
    """

    def __init__(self, dim: int, theta: float = 10_000.0) -> None:
        super().__init__()
        self.dim, self.theta = dim, theta

    def forward(self, positions: PositionsLike) -> Float32[Tensor, "batch tokens dim"]:
        """Return the vector of each position."""
        index = as_positions(positions).single_axis("MisprintedSinusoid").double()
        features = torch.arange(self.dim, dtype=torch.float64, device=index.device)
        angles: Float64[Tensor, "batch tokens dim"] = index[..., None] * self.theta ** (-2 * features / self.dim)
        return torch.where(features % 2 == 0, angles.sin(), angles.cos()).float()


@final
class Bfloat16Rotary(RotaryMap):
    """Rotate by angles that are computed in bfloat16, where 257 is 256.

    Args:
        head_dim: features of a head, even.

    Examples:
        >>> cos, _ = Bfloat16Rotary(head_dim=2).bind(Positions.from_position_ids(torch.tensor([[256, 257]])))
        >>> cos.flatten().unique().numel()  # the two positions are one
        1
    """

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim, self.interleaved = head_dim, False

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine of every angle."""
        index = positions.single_axis("Bfloat16Rotary").bfloat16()
        frequencies = inverse_frequencies(self.head_dim, device=index.device).bfloat16()
        angles = (index[:, None, :, None] * frequencies).float()
        return angles.cos(), angles.sin()


def misprinted_sinusoid(dim: int, num_heads: int, max_length: int) -> Where:
    """Build the misprinted sinusoid, for `compare`."""
    return Where(MisprintedSinusoid(dim))


def divided_alibi(dim: int, num_heads: int, max_length: int) -> Where:
    """Build ALiBi whose slopes are divided by the root of head_dim, as the scores are, for `compare`."""
    return Where(divide_slopes(num_heads, dim // num_heads))


def divide_slopes(num_heads: int, head_dim: int) -> ALiBi:
    """Return ALiBi as it is where the bias is added before the scores are divided by the root of head_dim."""
    return ALiBi(num_heads, slopes=(ALiBi(num_heads).slopes.double() / head_dim**0.5).tolist())


def other_theta(head_dim: int) -> Rotary:
    """Return rotary with the theta of Llama 3, 500,000, where a model was trained with 10,000."""
    return Rotary(head_dim, theta=500_000.0)
