"""Polar coordinate position embedding."""

from math import pi
from typing import ClassVar, final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_positive, require_whole
from whatwhere.kernels.rotary import rotate
from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound, Heads, MappedHeads, QueryKeyMap, require_query_heads
from whatwhere.where.frequencies import rotary_tables
from whatwhere.where.rotary_map import difference


@final
class PoPE(QueryKeyMap):
    """Map each feature of a query or key to a vector whose norm is the feature and whose angle is the position.

        score(i, j) = sum_c softplus(q_ic) softplus(k_jc) cos((p_i - p_j) w_c - delta_hc) / sqrt(head_dim)
        w_c = theta ** (-c / head_dim),  c = 0..head_dim-1

    Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534. Rotary rotates two features by one angle, so content
    and position mix; here each feature has its own angle, and the result has 2 head_dim features, all cosines before
    all sines. The softmax scale is still 1 / sqrt(head_dim).

    Differences: the authors add delta to the angle of the keys, here it is subtracted from that of the queries. The
    scores are the same, and with grouped queries one key head serves query heads of different delta. They clamp delta
    to [-2 pi, 0] and initialize it to 0, the end of that range, where the clamp has no gradient. A phase is periodic,
    so delta is unconstrained here; `phases` returns it within the range.

    Args:
        head_dim: features of a head before the map, any number.
        num_heads: heads of the queries.
        theta: base of the frequencies, above 0.

    Learned: `delta`, (num_heads, head_dim), initially 0. Any length. Engines: dense, sdpa, flex. Used by: the paper's
    language models.

    Examples:
        >>> pope = PoPE(head_dim=2, num_heads=1)
        >>> q = torch.zeros(1, 1, 1, 2)
        >>> pope(q, q, torch.tensor([0]))[1]
        tensor([[[[0.6931, 0.6931, 0.0000, 0.0000]]]])
    """

    settings_in_repr = ("head_dim", "num_heads", "theta")
    head_axes: ClassVar = {"delta": 0}
    delta: Float[Tensor, "heads head_dim"]

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        theta: float = 10_000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("PoPE", head_dim=head_dim, num_heads=num_heads)
        require_positive("PoPE", theta=theta)
        self.head_dim, self.num_heads, self.theta = head_dim, num_heads, theta
        self.scale = head_dim**-0.5
        self.delta = nn.Parameter(torch.empty(num_heads, head_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set all phases to 0."""
        nn.init.zeros_(self.delta)

    @property
    @final
    def inverse_frequencies(self) -> Float64[Tensor, " head_dim"]:
        """The angle of each feature per position, in radians."""
        return self._frequencies()

    @property
    @final
    def phases(self) -> Float[Tensor, "heads head_dim"]:
        """Delta as in the paper, within [-2 pi, 0].

        Examples:
            >>> pope = PoPE(head_dim=1, num_heads=2)
            >>> _ = pope.delta.data.copy_(torch.tensor([[0.5], [-0.5]]))
            >>> pope.phases.flatten()
            tensor([-5.7832, -0.5000])
        """
        return -torch.remainder(-self.delta.detach(), 2 * pi)

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine of every angle, (batch, 1, tokens, head_dim)."""
        index = positions.on_axes("PoPE", 1)
        return rotary_tables(index, self._frequencies(index.device))

    def map_query(self, q: Heads, bound: Bound) -> MappedHeads:
        """Return softplus(q) (cos, sin) of p w - delta."""
        require_query_heads("PoPE", self.num_heads, q)
        cos, sin = bound
        norm = _norm(q)
        phase = self.delta.to(torch.promote_types(self.delta.dtype, torch.float32))[:, None]  # (heads, 1, head_dim)
        along, across = norm * phase.cos(), norm * phase.sin()
        # cos(a - b) = cos a cos b + sin a sin b, and sin(a - b) = sin a cos b - cos a sin b
        return torch.cat([cos * along + sin * across, sin * along - cos * across], dim=-1).to(q.dtype)

    def map_key(self, k: Heads, bound: Bound) -> MappedHeads:
        """Return softplus(k) (cos, sin) of p w."""
        cos, sin = bound
        norm = _norm(k)
        return torch.cat([cos * norm, sin * norm], dim=-1).to(k.dtype)

    def rerotate(self, k: MappedHeads, old: Bound, new: Bound) -> MappedHeads:
        """Rotate cached keys to other positions: feature c is a pair with feature c + head_dim."""
        cos, sin = difference((old[0], old[1]), (new[0], new[1]))
        return rotate(k, cos, sin, interleaved=False)

    def _frequencies(self, device: torch.device | None = None) -> Float64[Tensor, " head_dim"]:
        return self.theta ** -(torch.arange(self.head_dim, dtype=torch.float64, device=device) / self.head_dim)


def _norm(x: Heads) -> Heads:
    return F.softplus(x.to(torch.promote_types(x.dtype, torch.float32)))
