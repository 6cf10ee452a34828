"""Rotary positions of text, images and video: which pair turns by which coordinate."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from whatwhere import reference

AXIS_LAYOUTS = pytest.mark.parametrize(
    ("layout", "sections"),
    [("chunked", (2, 3, 3)), ("chunked", (5, 0, 3)), ("interleaved", (4, 2, 2)), ("interleaved", (3, 3, 2))],
    ids=str,
)


@AXIS_LAYOUTS
@pytest.mark.parametrize(
    "scaling", [None, ww.scaling.YaRN(4.0, 64), ww.scaling.DynamicNTK(4.0, 8)], ids=["plain", "yarn", "dynamic"]
)
def test_text_is_rotary(layout, sections, scaling):
    """With one axis, and with three that say the same."""
    q, p = draw(2, 2, 9, 16), ww.positions(9, start=torch.tensor([0, 50]))
    rope = ww.MultimodalRotary(16, sections, layout=layout, scaling=scaling)
    plain = ww.Rotary(16, scaling=scaling)(q, q, p)[0]
    alike = ww.Positions.from_position_ids(p.index.expand(3, -1, -1))
    assert torch.equal(rope(q, q, p)[0], plain)
    assert torch.equal(rope(q, q, alike)[0], plain)


@pytest.mark.parametrize("layout", ["chunked", "interleaved"])
def test_each_axis_rotates_its_own_pairs_and_no_others(layout):
    sections = (4, 2, 2)
    rope = ww.MultimodalRotary(16, sections, layout=layout)
    # time 0 1 2 3, height 4 5, width 6 7; or in turn, and what is left is of time
    dealt = [0, 0, 0, 0, 1, 1, 2, 2] if layout == "chunked" else [0, 1, 2, 0, 1, 2, 0, 0]
    assert list(rope.axis_of_pair) == dealt
    q, origin = draw(1, 1, 1, 16), torch.zeros(3, 1, 1, dtype=torch.int64)
    for axis in range(3):
        index = origin.clone()
        index[axis] = 9
        moved = rope(q, q, ww.Positions.from_position_ids(index))[0]
        own = [pair for pair in range(8) if dealt[pair] == axis]
        rotated = (moved != q).flatten()
        assert rotated.nonzero().flatten().tolist() == own + [pair + 8 for pair in own]


def test_interleaved_sections_of_real_models():
    """Qwen3-VL: THWTHW... for sixty pairs, and T for the last four."""
    dealt = ww.MultimodalRotary(128, (24, 20, 20), 5e6, layout="interleaved").axis_of_pair
    assert dealt == (0, 1, 2) * 20 + (0,) * 4
    for sections in ((24, 20, 20), (11, 11, 10)):
        made = ww.MultimodalRotary(2 * sum(sections), sections, layout="interleaved").axis_of_pair
        assert tuple(made.count(axis) for axis in range(3)) == sections
        assert list(made) == reference.multimodal_axes(sections, "interleaved")


def test_the_length_of_a_picture_is_its_largest_coordinate():
    dynamic = ww.scaling.DynamicNTK(4.0, 8)
    rope, q = ww.MultimodalRotary(16, (2, 3, 3), scaling=dynamic), draw(1, 1, 20, 16)
    wide = ww.Positions.grid(1, 1, 20)
    assert torch.equal(rope(q, q, wide)[0], rope(q, q, wide, regime_length=20)[0])
    assert (rope(q, q, wide)[0] - rope(q, q, wide, regime_length=8)[0]).abs().max() > 1e-2
