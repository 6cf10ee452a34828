"""Rotary positions of text, images and video: which pair turns by which coordinate."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw

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


def test_the_length_of_a_picture_is_its_largest_coordinate():
    dynamic = ww.scaling.DynamicNTK(4.0, 8)
    rope, q = ww.MultimodalRotary(16, (2, 3, 3), scaling=dynamic), draw(1, 1, 20, 16)
    wide = ww.Positions.grid(1, 1, 20)
    assert torch.equal(rope(q, q, wide)[0], rope(q, q, wide, regime_length=20)[0])
    assert (rope(q, q, wide)[0] - rope(q, q, wide, regime_length=8)[0]).abs().max() > 1e-2
