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


def test_interleaved_is_a_rotary_for_each_block_of_features():
    p, q = ww.Positions.grid(5, 7), draw(1, 2, 35, 24)
    made = ww.AxialRotary(24, interleaved=True)(q, q, p)[0]
    block = ww.Rotary(12, interleaved=True)
    rows, columns = (ww.Positions.from_position_ids(axis) for axis in p.index)
    blocks = [block(x, x, at)[0] for x, at in zip(q.chunk(2, dim=-1), (rows, columns), strict=True)]
    assert torch.equal(made, torch.cat(blocks, dim=-1))


def test_every_axis_has_its_fast_and_slow_pairs():
    rope = ww.AxialRotary(24, 3, 100.0)
    each = ww.frequencies.inverse_frequencies(8, 100.0)
    assert torch.equal(rope.inverse_frequencies, torch.cat([each, each, each]))
    assert ww.AxialRotary(16, 3, sections=(3, 3, 2)).inverse_frequencies.shape == (8,)


@LAYOUTS
def test_a_score_depends_on_the_distance_along_each_axis(interleaved):
    rope, q, k = ww.AxialRotary(16, interleaved=interleaved), draw(1, 1, 1, 16), draw(1, 1, 1, 16, seed=1)

    def score(at_query, at_key):
        ids = [torch.tensor(at)[:, None, None] for at in (at_query, at_key)]
        rotated_q, rotated_k = rope(q, k, *map(ww.Positions.from_position_ids, ids))
        return float((rotated_q * rotated_k).sum())

    assert score((5, 9), (2, 8)) == pytest.approx(score((1003, 10), (1000, 9)), abs=3e-6)
    assert abs(score((5, 9), (2, 8)) - score((9, 5), (8, 2))) > 1e-2  # the axes are not alike
    assert abs(score((5, 9), (2, 8)) - score((5, 9), (2, 7))) > 1e-2


def test_text_has_the_same_position_on_all_axes():
    rope, q = ww.AxialRotary(16), draw(1, 2, 6, 16)
    diagonal = ww.Positions.from_position_ids(torch.arange(6).expand(2, 1, 6))
    assert torch.equal(rope(q, q, ww.positions(6))[0], rope(q, q, diagonal)[0])


def test_the_way_out_of_an_uneven_head_works():
    assert ww.AxialRotary(64, 3, sections=(11, 11, 10)).inverse_frequencies.shape == (32,)
