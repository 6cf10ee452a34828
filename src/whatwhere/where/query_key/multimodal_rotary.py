"""Rotary positions of text, images and video in one sequence."""

from collections.abc import Sequence
from typing import Literal, final

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.ruler import Positions
from whatwhere.where.doors import Bound, QueryKeyMap
from whatwhere.where.frequencies import turn_tables
from whatwhere.where.rotation import between, rotate_both, rotate_first
from whatwhere.where.scaling import Frequencies, Scaling, rule

Deal = Literal["chunked", "interleaved"]
DEALS: tuple[Deal, ...] = ("chunked", "interleaved")


@final
class MultimodalRotary(QueryKeyMap):
    """Turn each pair as rotary does, by the coordinate of time, height or width that the pair was dealt (M-RoPE).

        pair i turns by p_a(i) w_i        w_i = theta ** (-2i / rotary_dim), as of one whole head

        chunked         a = 0 for the first sections[0] pairs, 1 for the next sections[1], and so on
        interleaved     a = 0, 1, 2, 0, 1, 2, ... until an axis has its sections[a] pairs; the rest is axis 0

    A token of text has the same number on all axes, and the scheme is then Rotary itself: a test with text never
    catches a mix-up. Wang et al. 2024, Qwen2-VL, https://arxiv.org/abs/2409.12191, section 2.1; the interleaved layout
    is Qwen3-VL's, https://arxiv.org/abs/2511.21631. Chunked, time has the fastest pairs and width the slowest;
    interleaved, each axis has some of all speeds.

    Args:
        head_dim: features of a head.
        sections: pairs of each axis, time first, rotary_dim/2 in sum; Qwen2-VL has (16, 24, 24).
        theta: above 0; 1,000,000 in Qwen2-VL.
        layout: `chunked` (Qwen2-VL, GLM-4V) or `interleaved` (Qwen3-VL): which pair is of which axis.
        interleaved: which features make a pair, as in Rotary.
        rotary_dim: turn only the first features, an even number up to head_dim; None turns all.
        scaling: a rule of `whatwhere.where.scaling`, as in Rotary; a length is the largest coordinate plus 1.

    Fixed: no parameters, no state. Any length. On a ruler with one axis, as of text, that one stands for all. The
    features that turn are multiplied by the scaling's `magnitude`. Used by: Qwen2-VL, Qwen2.5-VL, Qwen3-VL, GLM-4V.

    >>> MultimodalRotary(head_dim=12, sections=(2, 2, 2)).axis_of_pair
    (0, 0, 1, 1, 2, 2)
    >>> MultimodalRotary(head_dim=12, sections=(2, 2, 2), layout="interleaved").axis_of_pair
    (0, 1, 2, 0, 1, 2)
    """

    def __init__(
        self,
        head_dim: int,
        sections: Sequence[int],
        theta: float = 10_000.0,
        *,
        layout: Deal = "chunked",
        interleaved: bool = False,
        rotary_dim: int | None = None,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__()
        rotary_dim = head_dim if rotary_dim is None else rotary_dim
        require_whole("MultimodalRotary", head_dim=head_dim, rotary_dim=rotary_dim)
        require_even("MultimodalRotary", "it turns pairs of features", rotary_dim=rotary_dim)
        if rotary_dim > head_dim:
            raise ShapeError(
                f"MultimodalRotary got rotary_dim={rotary_dim}, but a head has only head_dim={head_dim} features."
            )
        require_positive("MultimodalRotary", theta=theta)
        require_choice("MultimodalRotary", "layout", layout, DEALS)
        if scaling is not None and not isinstance(scaling, Scaling):
            raise SettingError(
                f"MultimodalRotary got scaling={scaling!r}, but needs a scaling, such as Linear(factor=4.0)."
            )
        self.head_dim, self.theta, self.interleaved, self.rotary_dim = head_dim, theta, interleaved, rotary_dim
        self.sections, self.layout, self.scaling = tuple(sections), layout, scaling
        self.follows_length = rule(scaling).follows_length
        _require_sections(self.sections, rotary_dim // 2)
        self.axis_of_pair = _deal(self.sections, layout)
        self.frequencies(device="cpu")  # a scaling that does not fit is told now
        self._frequencies = Frequencies()

    @property
    def axes(self) -> int:
        """How many coordinates a token has."""
        return len(self.sections)

    @property
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """How far each pair turns per step along its axis, in radians; as Rotary has them."""
        return self.frequencies()

    @property
    def magnitude(self) -> float:
        """What the features that turn are multiplied by."""
        return rule(self.scaling).magnitude

    def frequencies(
        self, lengths: Int64[Tensor, "*batch"] | None = None, device: torch.device | str | None = None
    ) -> Float64[Tensor, "*batch pairs"]:
        """Give how far each pair turns per step, in sequences of these lengths."""
        return rule(self.scaling).frequencies(self.rotary_dim, self.theta, device, lengths)

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> Bound:
        """Give cos and sin of every angle, (batch, 1, tokens, pairs): one table for all heads and layers."""
        index = positions.on_axes("MultimodalRotary", self.axes)
        scaling = rule(self.scaling)
        frequencies = self._frequencies.at(scaling, self.rotary_dim, self.theta, positions, lengths)
        return turn_tables(index, frequencies, scaling.magnitude, self.axis_of_pair)

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

    def rerotate(
        self, k: Float[Tensor, "batch heads tokens head_dim"], old: Bound, new: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn keys of a cache on, from how they were bound to how they shall be, as Rotary's does."""
        cos, sin = between(old, new, self.magnitude)
        return rotate_first(k, cos, sin, self.interleaved)

    def extra_repr(self) -> str:
        """Show the settings."""
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        return (
            f"head_dim={self.head_dim}, sections={self.sections}, theta={self.theta}, layout={self.layout!r}, "
            f"interleaved={self.interleaved}, rotary_dim={self.rotary_dim}{scaling}"
        )


def _require_sections(sections: tuple[int, ...], pairs: int) -> None:
    for section in sections:
        if isinstance(section, bool) or not isinstance(section, int) or section < 0:
            raise ShapeError(f"MultimodalRotary got sections={sections}, but needs whole numbers, 0 or more.")
    if sum(sections) != pairs:
        raise ShapeError(
            f"MultimodalRotary got sections={sections}, {sum(sections)} pairs in sum, but {2 * pairs} features turn, "
            f"which are {pairs} pairs: each needs one axis."
        )


def _deal(sections: tuple[int, ...], layout: Deal) -> tuple[int, ...]:
    """Say which axis each pair turns by."""
    axes, pairs = len(sections), sum(sections)
    if layout == "chunked":
        return tuple(axis for axis, section in enumerate(sections) for _ in range(section))
    dealt = [0] * pairs
    for axis, section in enumerate(sections[1:], start=1):
        for place in range(axis, axes * section, axes):
            if place >= pairs:
                raise ShapeError(
                    f"MultimodalRotary got sections={sections} for layout='interleaved', in which axis {axis} has one "
                    f"pair in {axes}, {section} in all: the last would be pair {axes * (section - 1) + axis}, but they "
                    f"end at {pairs - 1}.\nGive the other axes equally many, and axis 0 the same or more."
                )
            dealt[place] = axis
    return tuple(dealt)
