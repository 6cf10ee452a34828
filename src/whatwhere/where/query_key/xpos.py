"""Rotary positions whose scores fade with the distance."""

from math import floor, log2
from typing import final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_range, require_whole
from whatwhere.errors import PositionError, SettingError
from whatwhere.ruler import Positions
from whatwhere.where.doors import Bound, QueryKeyMap
from whatwhere.where.frequencies import angles, inverse_frequencies
from whatwhere.where.rotation import rotate_both, rotate_first

ROOM = 8
"""Powers of two left free at the top of a dtype, so that keys of up to 256 stay finite under the largest factor."""


@final
class XPos(QueryKeyMap):
    """Turn as rotary does, and shrink queries and grow keys with their position, so that scores fade with the distance.

        q -> R_p q * zeta_i ** ((p - c) / scale_base)        zeta_i = (2i + 0.4 head_dim) / (1.4 head_dim)
        k -> R_p k / zeta_i ** ((p - c) / scale_base)        i = 0 .. head_dim/2 - 1
        <q_m, k_n>: pair i is multiplied by zeta_i ** ((m - n) / scale_base)

    Sun et al. 2022, https://arxiv.org/abs/2212.10554. Fast pairs fade most: zeta_0 = 2/7. In exact arithmetic the
    center c plays no part, if queries and keys share it. torchscale, x-transformers, flash-attention and
    rotary-embedding-torch take half of the length at hand, which moves while decoding: keys mapped under one length do
    not fit queries of the next. Here it is a setting. The range of floats still ends the scheme, 33,994 positions from
    the center in float32 and bfloat16, 2,266 in float16, told by an error and not by an infinity.

    Args:
        head_dim: features of a head, even.
        theta: above 0.
        interleaved: which features make a pair; True in the paper's code, the default is as in Rotary.
        scale_base: above 0; how far apart a score fades to zeta_i. 512 in the paper.
        center: c, the position at which nothing shrinks or grows, the same in prefill and decoding; in the middle of
            the positions in use it doubles what fits.

    Fixed: no parameters, no state. Causal only: a later key would make the score grow. Used by: Kosmos-1.

    >>> xpos, ones, stands = XPos(head_dim=2), torch.ones(1, 1, 2, 2), torch.tensor([0, 512])
    >>> q, k = xpos(ones, ones, stands)
    >>> (q.norm(dim=-1) / 2**0.5).flatten(), (k.norm(dim=-1) / 2**0.5).flatten()
    (tensor([1.0000, 0.2857]), tensor([1.0000, 3.5000]))
    """

    causal_only = True

    def __init__(
        self,
        head_dim: int,
        theta: float = 10_000.0,
        *,
        interleaved: bool = False,
        scale_base: float = 512.0,
        center: int = 0,
    ) -> None:
        super().__init__()
        require_whole("XPos", head_dim=head_dim)
        require_even("XPos", "it turns pairs of features", head_dim=head_dim)
        require_positive("XPos", theta=theta, scale_base=scale_base)
        if isinstance(center, bool) or not isinstance(center, int) or center < 0:
            raise SettingError(f"XPos got center={center!r}, but needs a position: a whole number of 0 or more.")
        self.head_dim, self.theta, self.interleaved = head_dim, theta, interleaved
        self.scale_base, self.center = scale_base, center

    @property
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """How far each pair turns per position, in radians."""
        return inverse_frequencies(self.head_dim, self.theta)

    @property
    def decay(self) -> Float64[Tensor, " pairs"]:
        """zeta_i: what is left of each pair's part of the score at a distance of scale_base.

        >>> XPos(head_dim=4).decay
        tensor([0.2857, 0.6429], dtype=torch.float64)
        """
        return self._decay("cpu")

    def reach(self, dtype: torch.dtype) -> int:
        """Give how far from the center a position may stand, so that the factors fit the dtype.

        >>> XPos(head_dim=64).reach(torch.float32), XPos(head_dim=64).reach(torch.float16)
        (33994, 2266)
        """
        # The tables are float32, whatever the dtype of queries; the factor is up to 3.5 ** (distance / scale_base).
        largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
        return floor(self.scale_base * (round(log2(largest)) - ROOM) / log2(3.5))

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Give cos and sin times the factor, (batch, 1, tokens, pairs), for queries and for keys; and the positions."""
        index = positions.single_axis("XPos")
        longest, reach = positions.longest, self.reach(torch.float32)
        if longest is None or max(longest - 1 - self.center, self.center) > reach:
            self._require_reach(index, torch.float32)
        turned = angles(index, inverse_frequencies(self.head_dim, self.theta, index.device))
        exponent = (index - self.center).to(torch.float64)[..., None] / self.scale_base
        factor = self._decay(index.device) ** exponent
        tables = (turned.cos() * factor, turned.sin() * factor, turned.cos() / factor, turned.sin() / factor)
        return (*(table.float()[:, None] for table in tables), index)

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn and shrink queries."""
        cos, sin, _, _, index = bound
        self._require_room(q.dtype, index)
        return rotate_first(q, cos, sin, self.interleaved)

    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn and grow keys."""
        _, _, cos, sin, index = bound
        self._require_room(k.dtype, index)
        return rotate_first(k, cos, sin, self.interleaved)

    def map_both(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        at_queries: Bound,
        at_keys: Bound,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch key_heads keys head_dim"]]:
        """Turn and shrink queries, turn and grow keys."""
        for x, (*_, index) in ((q, at_queries), (k, at_keys)):
            self._require_room(x.dtype, index)
        return rotate_both(q, k, at_queries[:2], at_keys[2:4], self.interleaved, in_place)

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"head_dim={self.head_dim}, theta={self.theta}, interleaved={self.interleaved}, "
            f"scale_base={self.scale_base}, center={self.center}"
        )

    def _decay(self, device: torch.device | str) -> Float64[Tensor, " pairs"]:
        twice = torch.arange(0, self.head_dim, 2, dtype=torch.float64, device=device)
        return (twice + 0.4 * self.head_dim) / (1.4 * self.head_dim)

    def _require_room(self, dtype: torch.dtype, index: Int64[Tensor, "batch tokens"]) -> None:
        if self.reach(dtype) < self.reach(torch.float32):
            self._require_reach(index, dtype)

    def _require_reach(self, index: Int64[Tensor, "batch tokens"], dtype: torch.dtype) -> None:
        reach = self.reach(dtype)

        def beyond(value: int, place: tuple[int, ...]) -> PositionError:
            wider = "" if reach == self.reach(torch.float32) else ", or pass q.float() and k.float()"
            return PositionError(
                f"position {int(index[place])} is {value} away from XPos's center {self.center}, but {dtype} holds its "
                f"factors, up to 3.5 ** (distance / {self.scale_base:g}), only up to {reach} positions away.\n"
                f"Choose a center amid the positions in use, the same in prefill and decoding{wider}; "
                "or choose Rotary, which has no end."
            )

        require_range((index - self.center).abs(), reach + 1, beyond)
