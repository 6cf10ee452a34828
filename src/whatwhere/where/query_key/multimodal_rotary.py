"""Rotary positions of text, images and video in one sequence."""

from collections.abc import Sequence
from typing import Literal, final

from jaxtyping import Int64
from torch import Tensor

from whatwhere.checks import require_choice
from whatwhere.errors import ShapeError
from whatwhere.position.positions import Positions
from whatwhere.where.base import Bound
from whatwhere.where.frequencies import rotary_tables
from whatwhere.where.rotary_map import ScaledRotaryMap
from whatwhere.where.scaling import Scaling

AxisLayout = Literal["chunked", "interleaved"]
AXIS_LAYOUTS: tuple[AxisLayout, ...] = ("chunked", "interleaved")


@final
class MultimodalRotary(ScaledRotaryMap):
    """Rotate each pair as Rotary does, by the coordinate of the axis it belongs to: time, height or width (M-RoPE).

        pair i: angle p_a(i) w_i          w_i = theta ** (-2i / rotary_dim), as of one whole head

        chunked         a = 0 for the first sections[0] pairs, 1 for the next sections[1], and so on
        interleaved     a = 0, 1, 2, 0, 1, 2, ... until an axis has its sections[a] pairs; the rest is axis 0

    A text token has the same coordinate on all axes, and the scheme is then Rotary itself: a test on text alone never
    detects wrong axes. Wang et al. 2024, Qwen2-VL, https://arxiv.org/abs/2409.12191, section 2.1; the interleaved
    layout is Qwen3-VL's, https://arxiv.org/abs/2511.21631. Chunked, time has the fastest pairs and width the slowest;
    interleaved, each axis has some of all speeds.

    Args:
        head_dim: features of a head.
        sections: pairs of each axis, time first, rotary_dim/2 in total; Qwen2-VL has (16, 24, 24).
        theta: base of the frequencies, above 0; 1,000,000 in Qwen2-VL.
        layout: `chunked` (Qwen2-VL, GLM-4V) or `interleaved` (Qwen3-VL): which pair belongs to which axis.
        interleaved: which features make a pair, as in Rotary.
        rotary_dim, rotary_start: rotate only so many features, from this one on, as in Rotary.
        scaling: a RoPE scaling, as in Rotary; the length is the largest coordinate plus 1.

    Fixed: no parameters, no state. Any length. Positions with one axis, as of text, serve as the coordinate on every
    axis. The rotated features are multiplied by the scaling's `magnitude`. Used by: Qwen2-VL, Qwen2.5-VL, Qwen3-VL,
    GLM-4V.

    Raises:
        ShapeError: If head_dim, rotary_dim or rotary_start does not fit, or sections do not give each pair one axis.
        SettingError: If theta is out of range, the layout is unknown, or scaling is not a scaling.

    Examples:
        >>> MultimodalRotary(head_dim=12, sections=(2, 2, 2)).axis_of_pair
        (0, 0, 1, 1, 2, 2)
        >>> MultimodalRotary(head_dim=12, sections=(2, 2, 2), layout="interleaved").axis_of_pair
        (0, 1, 2, 0, 1, 2)
    """

    settings_in_repr = ("head_dim", "sections", "theta", "layout", *ScaledRotaryMap.settings_in_repr[2:])

    def __init__(
        self,
        head_dim: int,
        sections: Sequence[int],
        theta: float = 10_000.0,
        *,
        layout: AxisLayout = "chunked",
        interleaved: bool = False,
        rotary_dim: int | None = None,
        rotary_start: int = 0,
        scaling: Scaling | None = None,
    ) -> None:
        require_choice("MultimodalRotary", "layout", layout, AXIS_LAYOUTS)
        super().__init__(head_dim, theta, interleaved, rotary_dim, scaling, rotary_start)
        self.sections, self.layout = tuple(sections), layout
        pairs = self.rotary_dim // 2
        if not all(type(section) is int and section >= 0 for section in self.sections):
            raise ShapeError(f"MultimodalRotary got sections={self.sections}, but needs whole numbers, 0 or more.")
        if sum(self.sections) != pairs:
            raise ShapeError(
                f"MultimodalRotary got sections={self.sections}, {sum(self.sections)} pairs in total, but {2 * pairs} "
                f"features are rotated, which are {pairs} pairs: each needs one axis."
            )
        self.axis_of_pair = _axis_of_pair(self.sections, layout)

    @property
    def axes(self) -> int:
        """Number of coordinates of a token."""
        return len(self.sections)

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Return cosine and sine of every angle, (batch, 1, tokens, pairs)."""
        index = positions.on_axes("MultimodalRotary", self.axes, real=True)
        return rotary_tables(index, self._frequencies_at(positions, lengths), self.magnitude, self.axis_of_pair)


def _axis_of_pair(sections: tuple[int, ...], layout: AxisLayout) -> tuple[int, ...]:
    """Return the axis of each pair."""
    axes, pairs = len(sections), sum(sections)
    if layout == "chunked":
        return tuple(axis for axis, section in enumerate(sections) for _ in range(section))
    axis_of_pair = [0] * pairs
    for axis, section in enumerate(sections[1:], start=1):
        for pair in range(axis, axes * section, axes):
            if pair >= pairs:
                raise ShapeError(
                    f"MultimodalRotary got sections={sections} for layout='interleaved', in which axis {axis} has one "
                    f"pair in {axes}, {section} in all: the last would be pair {axes * (section - 1) + axis}, but they "
                    f"end at {pairs - 1}.\nGive the other axes equal sections, and axis 0 the same or a larger one."
                )
            axis_of_pair[pair] = axis
    return tuple(axis_of_pair)
