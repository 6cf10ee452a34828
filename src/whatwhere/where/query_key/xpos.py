"""Rotary positions whose scores decay with the distance."""

from math import floor, log2
from typing import final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import PositionError, SettingError
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_range
from whatwhere.where.base import Bound
from whatwhere.where.frequencies import angles, inverse_frequencies
from whatwhere.where.rotary_map import RotaryMap, Tables

HEADROOM = 8
"""Powers of two left free at the top of a dtype, so that keys of up to 256 stay finite under the largest factor."""


@final
class XPos(RotaryMap):
    """Rotate as Rotary does, and scale queries down and keys up with position, so that scores decay with distance.

        q -> R_p q * zeta_i ** ((p - c) / scale_base)        zeta_i = (2i + 0.4 head_dim) / (1.4 head_dim)
        k -> R_p k / zeta_i ** ((p - c) / scale_base)        i = 0 .. head_dim/2 - 1
        <q_m, k_n>: pair i is multiplied by zeta_i ** ((m - n) / scale_base)

    Sun et al. 2022, https://arxiv.org/abs/2212.10554. Fast pairs decay most: zeta_0 = 2/7. In exact arithmetic scores
    do not depend on the center c, if queries and keys share it. torchscale, x-transformers, flash-attention and
    rotary-embedding-torch use half of the current length, which changes while decoding: cached keys of one length do
    not match queries of the next. Here it is a setting. Positions are limited by the range of floats, to 33,994 from
    the center in float32 and bfloat16, 2,266 in float16; beyond, an error is raised rather than infinities returned.

    Args:
        head_dim: features of a head, even.
        theta: base of the frequencies, above 0.
        interleaved: which features make a pair, as in Rotary; True in the paper's code.
        scale_base: distance at which the part of pair i in a score has decayed to zeta_i, above 0; 512 in the paper.
        center: c, the position at which the factor is 1, the same in prefill and decoding; in the middle of the
            positions in use it doubles the length that is possible.

    Fixed: no parameters, no state. Causal only: scores would grow with the distance of a later key. Used by: Kosmos-1.

    Raises:
        ShapeError: If head_dim is odd or below 2.
        SettingError: If theta, scale_base or center is out of range.

    Examples:
        >>> xpos, ones = XPos(head_dim=2), torch.ones(1, 1, 2, 2)
        >>> q, k = xpos(ones, ones, torch.tensor([0, 512]))
        >>> (q.norm(dim=-1) / 2**0.5).flatten(), (k.norm(dim=-1) / 2**0.5).flatten()
        (tensor([1.0000, 0.2857]), tensor([1.0000, 3.5000]))
    """

    settings_in_repr = ("head_dim", "theta", "interleaved", "scale_base", "center")
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
        require_even("XPos", "it rotates pairs of features", head_dim=head_dim)
        require_positive("XPos", theta=theta, scale_base=scale_base)
        if isinstance(center, bool) or not isinstance(center, int) or center < 0:
            raise SettingError(f"XPos got center={center!r}, but needs a position: a whole number, 0 or more.")
        self.head_dim, self.theta, self.interleaved = head_dim, theta, interleaved
        self.scale_base, self.center = scale_base, center

    @property
    @final
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """The angle of each pair per position, in radians."""
        return inverse_frequencies(self.head_dim, self.theta)

    @property
    @final
    def decay(self) -> Float64[Tensor, " pairs"]:
        """zeta_i: the factor of each pair's part of a score at a distance of scale_base.

        Examples:
            >>> XPos(head_dim=4).decay
            tensor([0.2857, 0.6429], dtype=torch.float64)
        """
        return self._decay("cpu")

    def max_distance(self, dtype: torch.dtype) -> int:
        """Return the largest distance of a position from the center for which the factors fit the dtype.

        Examples:
            >>> XPos(head_dim=64).max_distance(torch.float32), XPos(head_dim=64).max_distance(torch.float16)
            (33994, 2266)
        """
        # The tables are float32, whatever the dtype of queries; the factor is up to 3.5 ** (distance / scale_base).
        largest = min(torch.finfo(dtype).max, torch.finfo(torch.float32).max)
        return floor(self.scale_base * (round(log2(largest)) - HEADROOM) / log2(3.5))

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine times the factor, (batch, 1, tokens, pairs), for queries and for keys; and the
        positions.
        """
        index = positions.single_axis("XPos")
        max_length = positions.max_length
        if max_length is None or max(max_length - 1 - self.center, self.center) > self.max_distance(torch.float32):
            self._require_in_range(index, torch.float32)
        radians = angles(index, inverse_frequencies(self.head_dim, self.theta, index.device))
        exponent = (index - self.center).to(torch.float64)[..., None] / self.scale_base
        factor = self._decay(index.device) ** exponent
        tables = (radians.cos() * factor, radians.sin() * factor, radians.cos() / factor, radians.sin() / factor)
        return (*(table.float()[:, None] for table in tables), index)

    def _decay(self, device: torch.device | str) -> Float64[Tensor, " pairs"]:
        twice = torch.arange(0, self.head_dim, 2, dtype=torch.float64, device=device)
        return (twice + 0.4 * self.head_dim) / (1.4 * self.head_dim)

    def _query_tables(self, bound: Bound, dtype: torch.dtype) -> Tables:
        cos, sin, _, _, index = bound
        self._require_dtype(dtype, index)
        return cos, sin

    def _key_tables(self, bound: Bound, dtype: torch.dtype) -> Tables:
        _, _, cos, sin, index = bound
        self._require_dtype(dtype, index)
        return cos, sin

    def _require_dtype(self, dtype: torch.dtype, index: Int64[Tensor, "batch tokens"]) -> None:
        # bind has checked the positions for float32 already.
        if self.max_distance(dtype) < self.max_distance(torch.float32):
            self._require_in_range(index, dtype)

    def _require_in_range(self, index: Int64[Tensor, "batch tokens"], dtype: torch.dtype) -> None:
        limit = self.max_distance(dtype)

        def error(distance: int, slot: tuple[int, ...]) -> PositionError:
            wider = "" if limit == self.max_distance(torch.float32) else ", or pass q.float() and k.float()"
            return PositionError(
                f"position {int(index[slot])} is {distance} away from XPos's center {self.center}, but {dtype} can "
                f"represent its factors, up to 3.5 ** (distance / {self.scale_base:g}), only up to a distance of "
                f"{limit}.\n"
                f"Choose a center amid the positions in use, the same in prefill and decoding{wider}; "
                "or choose Rotary, which has no such limit."
            )

        require_range((index - self.center).abs(), limit + 1, error)
