"""Rotary positions on a grid."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.ruler import Positions
from whatwhere.where.doors import Bound, QueryKeyMap
from whatwhere.where.frequencies import inverse_frequencies, turn_tables
from whatwhere.where.rotation import rotate_both, rotate_first


@final
class AxialRotary(QueryKeyMap):
    """Turn one share of the pairs by the first coordinate, the next share by the second, and so on.

        pair i of axis a turns by p_a w_i        w_i = theta ** (-i / n_a),  i = 0 .. n_a - 1 pairs of this axis

    Scores depend on the distance along each axis only. Heo et al. 2024, https://arxiv.org/abs/2403.13298.
    Every axis has its own fast and slow pairs: the frequencies start anew, as in rotary-embedding-torch
    (`get_axial_freqs`), timm, EVA-02 and the vision part of Qwen2-VL; Pixtral deals those of one whole head out in
    turn instead. Coordinates are whole numbers: scaling a grid to -1..1, or to the trained size, is not done here.

    Args:
        head_dim: features of a head, even.
        axes: 2 for images, 3 for video; on a ruler with one axis, as of text, that one stands for all.
        theta: above 0.
        interleaved: pairs are (2i, 2i+1), so each axis has a block of features, as timm and rotary-embedding-torch do;
            the default pairs (i, i + head_dim/2), as DINOv3 and Hugging Face's vision models do.
        sections: pairs of each axis, head_dim/2 in sum; None gives every axis the same number.

    Fixed: no parameters, no state. Any length. Used by: EVA-02, Qwen2-VL (vision).

    >>> from whatwhere import grid
    >>> rope, q = AxialRotary(head_dim=4, interleaved=True), torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(1, 1, 4, 4)
    >>> rope(q, q, grid(2, 2))[0][0, 0]
    tensor([[1.0000, 0.0000, 1.0000, 0.0000],
            [1.0000, 0.0000, 0.5403, 0.8415],
            [0.5403, 0.8415, 1.0000, 0.0000],
            [0.5403, 0.8415, 0.5403, 0.8415]])
    """

    def __init__(
        self,
        head_dim: int,
        axes: int = 2,
        theta: float = 10_000.0,
        *,
        interleaved: bool = False,
        sections: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        require_whole("AxialRotary", head_dim=head_dim, axes=axes)
        require_even("AxialRotary", "it turns pairs of features", head_dim=head_dim)
        require_positive("AxialRotary", theta=theta)
        self.head_dim, self.axes, self.theta, self.interleaved = head_dim, axes, theta, interleaved
        self.sections = self._equal_sections() if sections is None else tuple(sections)
        self._require_sections()

    @property
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """How far each pair turns per step along its axis, in radians; the pairs of the first axis come first."""
        return torch.cat(self._by_axis("cpu"))

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Give cos and sin of every angle, (batch, 1, tokens, pairs): one table for all heads and layers."""
        index = positions.on_axes("AxialRotary", self.axes)
        axis_of_pair = tuple(axis for axis, pairs in enumerate(self.sections) for _ in range(pairs))
        return turn_tables(index, torch.cat(self._by_axis(index.device)), axis_of_pair=axis_of_pair)

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn queries."""
        cos, sin = bound
        return rotate_first(q, cos, sin, self.interleaved)

    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn keys, as queries are."""
        return self.map_query(k, bound)

    def map_both(
        self,
        q: Float[Tensor, "batch heads queries head_dim"],
        k: Float[Tensor, "batch key_heads keys head_dim"],
        at_queries: Bound,
        at_keys: Bound,
        in_place: bool = False,
    ) -> tuple[Float[Tensor, "batch heads queries head_dim"], Float[Tensor, "batch key_heads keys head_dim"]]:
        """Turn queries and keys, at once where their tables are the same."""
        return rotate_both(q, k, at_queries, at_keys, self.interleaved, in_place)

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"head_dim={self.head_dim}, axes={self.axes}, theta={self.theta}, interleaved={self.interleaved}, "
            f"sections={self.sections}"
        )

    def _by_axis(self, device: torch.device | str) -> list[Float64[Tensor, " pairs"]]:
        return [inverse_frequencies(2 * pairs, self.theta, device) for pairs in self.sections]

    def _equal_sections(self) -> tuple[int, ...]:
        pairs, rest = divmod(self.head_dim // 2, self.axes)
        if rest or not pairs:
            shares = tuple(pairs + (axis < rest) for axis in range(self.axes))
            given = f"\nTo give the first axes more, pass sections={shares}." if pairs else ""
            raise ShapeError(
                f"AxialRotary got head_dim={self.head_dim}, whose {self.head_dim // 2} pairs do not divide among "
                f"axes={self.axes}.{given}"
            )
        return (pairs,) * self.axes

    def _require_sections(self) -> None:
        require_whole("AxialRotary", **{f"sections[{axis}]": pairs for axis, pairs in enumerate(self.sections)})
        if len(self.sections) != self.axes or sum(self.sections) != self.head_dim // 2:
            raise ShapeError(
                f"AxialRotary got sections={self.sections} for axes={self.axes}, but needs {self.axes} numbers, "
                f"{self.head_dim // 2} in sum: so many pairs of features are head_dim={self.head_dim}."
            )
