"""Rotary positions on a grid."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound
from whatwhere.where.frequencies import inverse_frequencies, rotary_tables
from whatwhere.where.rotary_map import RotaryMap


@final
class AxialRotary(RotaryMap):
    """Rotate the first section of pairs by the first coordinate, the next section by the second, and so on.

        pair i of axis a: angle p_a w_i          w_i = theta ** (-i / n_a),  i = 0 .. n_a - 1 pairs of this axis

    Scores depend on the distance along each axis only. Heo et al. 2024, https://arxiv.org/abs/2403.13298. Each axis has
    the full range of frequencies, from fast to slow, as in rotary-embedding-torch (`get_axial_freqs`), timm, EVA-02 and
    the vision part of Qwen2-VL; Pixtral instead assigns the frequencies of one whole head to the axes alternately.
    Whole coordinates are those of the grid, at every resolution; real ones can span one range instead, as in DINOv3:
    AxialRotary(head_dim, theta=100.0) at `Positions.centered_grid(height, width)`.

    Args:
        head_dim: features of a head, even.
        axes: 2 for images, 3 for video; positions with one axis, as of text, serve as the coordinate on every axis.
        theta: base of the frequencies, above 0.
        interleaved: pairs are (2i, 2i+1), so each axis has a block of features, as in timm and rotary-embedding-torch;
            the default, the "half" layout, pairs (i, i + head_dim/2), as DINOv3 and Hugging Face's vision models do.
        sections: pairs of each axis, head_dim/2 in total; None gives every axis the same number.

    Fixed: no parameters, no state. Any length. Used by: EVA-02, Qwen2-VL (vision), DINOv3.

    Examples:
        >>> from whatwhere import Positions
        >>> rope, q = AxialRotary(head_dim=4, interleaved=True), torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(1, 1, 4, 4)
        >>> rope(q, q, Positions.grid(2, 2))[0][0, 0]
        tensor([[1.0000, 0.0000, 1.0000, 0.0000],
                [1.0000, 0.0000, 0.5403, 0.8415],
                [0.5403, 0.8415, 1.0000, 0.0000],
                [0.5403, 0.8415, 0.5403, 0.8415]])
    """

    settings_in_repr = ("head_dim", "axes", "theta", "interleaved", "sections")

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
        require_even("AxialRotary", "it rotates pairs of features", head_dim=head_dim)
        require_positive("AxialRotary", theta=theta)
        self.head_dim, self.axes, self.theta, self.interleaved = head_dim, axes, theta, interleaved
        self.sections = self._equal_sections() if sections is None else tuple(sections)
        self._require_sections()

    @property
    @final
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """The angle of each pair per step along its axis, in radians; the pairs of the first axis come first."""
        return torch.cat(self._by_axis("cpu"))

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine of every angle, (batch, 1, tokens, pairs)."""
        index = positions.on_axes("AxialRotary", self.axes, real=True)
        axis_of_pair = tuple(axis for axis, pairs in enumerate(self.sections) for _ in range(pairs))
        return rotary_tables(index, torch.cat(self._by_axis(index.device)), axis_of_pair=axis_of_pair)

    def _by_axis(self, device: torch.device | str) -> list[Float64[Tensor, " pairs"]]:
        return [inverse_frequencies(2 * pairs, self.theta, device) for pairs in self.sections]

    def _equal_sections(self) -> tuple[int, ...]:
        pairs, rest = divmod(self.head_dim // 2, self.axes)
        if rest or not pairs:
            shares = tuple(pairs + (axis < rest) for axis in range(self.axes))
            hint = f"\nFor larger first sections, pass sections={shares}." if pairs else ""
            raise ShapeError(
                f"AxialRotary got head_dim={self.head_dim}, whose {self.head_dim // 2} pairs do not divide among "
                f"axes={self.axes}.{hint}"
            )
        return (pairs,) * self.axes

    def _require_sections(self) -> None:
        require_whole("AxialRotary", **{f"sections[{axis}]": pairs for axis, pairs in enumerate(self.sections)})
        if len(self.sections) != self.axes or sum(self.sections) != self.head_dim // 2:
            raise ShapeError(
                f"AxialRotary got sections={self.sections} for axes={self.axes}, but needs {self.axes} numbers, "
                f"{self.head_dim // 2} in total: that is how many pairs head_dim={self.head_dim} has."
            )
