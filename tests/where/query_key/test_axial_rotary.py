"""Rotary positions on a grid."""

import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw

LAYOUTS = pytest.mark.parametrize("interleaved", [False, True], ids=["half", "interleaved"])


@LAYOUTS
def test_one_axis_is_rotary(interleaved):
    p, q = ww.positions(9, start=100), draw(1, 2, 9, 16)
    plain = ww.Rotary(16, interleaved=interleaved)(q, q, p)[0]
    assert torch.equal(ww.AxialRotary(16, 1, interleaved=interleaved)(q, q, p)[0], plain)


def test_text_has_the_same_position_on_all_axes():
    rope, q = ww.AxialRotary(16), draw(1, 2, 6, 16)
    diagonal = ww.Positions.from_position_ids(torch.arange(6).expand(2, 1, 6))
    assert torch.equal(rope(q, q, ww.positions(6))[0], rope(q, q, diagonal)[0])


def test_the_way_out_of_an_uneven_head_works():
    assert ww.AxialRotary(64, 3, sections=(11, 11, 10)).inverse_frequencies.shape == (32,)
