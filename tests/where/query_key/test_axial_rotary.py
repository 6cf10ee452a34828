"""Rotary positions on a grid."""

import pickle
from copy import deepcopy

import jaxtyping
import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.samples import draw_float64 as draw
from whatwhere import reference

LAYOUTS = pytest.mark.parametrize("interleaved", [False, True], ids=["half", "interleaved"])


def scattered(axes, tokens=7):
    """Coordinates that differ between the axes, some of them large."""
    index = torch.randint(2000, (axes, 2, tokens), generator=torch.Generator().manual_seed(axes))
    return ww.Positions.from_position_ids(index)


@LAYOUTS
@pytest.mark.parametrize("sections", [(4, 4), (2, 2, 2, 2), (8,), (3, 3, 2), (1, 7)], ids=str)
def test_it_is_the_reference_forward_and_backward(sections, interleaved):
    p, axes = scattered(len(sections)), len(sections)
    rope = ww.AxialRotary(16, axes, 500.0, interleaved=interleaved, sections=sections)
    x, g = draw(2, 3, 7, 16), draw(2, 3, 7, 16, seed=1)
    q, k = x.clone().requires_grad_(), -x
    rotated_q, rotated_k = rope(q, k, p)
    rotated_q.backward(g)
    for row in range(2):
        at = p.index[:, row].numpy()
        wanted = reference.axial_rotary(x[row].numpy(), at, sections, 500.0, interleaved)
        back = reference.axial_rotary(g[row].numpy(), -at, sections, 500.0, interleaved)
        # float32 cosines and sines, of pairs up to 5 long.
        np.testing.assert_allclose(rotated_q[row].detach().numpy(), wanted, rtol=0, atol=5e-7)
        np.testing.assert_allclose(rotated_k[row].numpy(), -wanted, rtol=0, atol=5e-7)
        np.testing.assert_allclose(q.grad[row].numpy(), back, rtol=0, atol=5e-7)


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


def test_low_precision_is_rotated_in_float32():
    p = scattered(2)
    q = draw(2, 3, 7, 16)
    rotated, _ = ww.AxialRotary(16)(q.bfloat16(), q.bfloat16(), p)
    exact, _ = ww.AxialRotary(16)(q.bfloat16().double(), q.bfloat16().double(), p)
    assert rotated.dtype == torch.bfloat16
    assert (rotated.double() - exact).abs().max() < 0.016  # half a step of bfloat16 below 4, and no more


def test_construction_and_copies():
    rope = ww.AxialRotary(16, 2, 100.0, interleaved=True, sections=[3, 5])
    text = "AxialRotary(head_dim=16, axes=2, theta=100.0, interleaved=True, sections=(3, 5))"
    for other in (rope, deepcopy(rope), pickle.loads(pickle.dumps(rope))):
        assert repr(other) == text
        assert not other.state_dict()
    q = torch.empty(1, 2, 4, 16, device="meta")
    assert rope(q, q, ww.Positions.grid(2, 2, device="meta"))[0].device.type == "meta"


ERRORS = {
    "odd": (lambda: ww.AxialRotary(7), "AxialRotary got head_dim=7, but needs an even number"),
    "no axis": (lambda: ww.AxialRotary(8, 0), "AxialRotary got axes=0, but needs a whole number of at least 1"),
    "not whole": (
        lambda: ww.AxialRotary(64, 3),
        r"head_dim=64, whose 32 pairs do not divide among axes=3.\n"
        r"For larger first sections, pass sections=\(11, 11, 10\)",
    ),
    "too few": (lambda: ww.AxialRotary(4, 3), r"head_dim=4, whose 2 pairs do not divide among axes=3.$"),
    "sections of another sum": (
        lambda: ww.AxialRotary(16, sections=(4, 5)),
        r"sections=\(4, 5\) for axes=2, but needs 2 numbers, 8 in total: that is how many pairs head_dim=16 has",
    ),
    "sections of other axes": (lambda: ww.AxialRotary(16, sections=(3, 3, 2)), "for axes=2, but needs 2 numbers"),
    "a section of none": (lambda: ww.AxialRotary(16, sections=(8, 0)), r"sections\[1\]=0, but needs a whole number"),
    "theta": (lambda: ww.AxialRotary(8, theta=0.0), "AxialRotary got theta=0.0"),
    "another grid": (
        lambda: ww.AxialRotary(8)(*[torch.zeros(1, 1, 8, 8)] * 2, ww.Positions.grid(2, 2, 2)),
        "AxialRotary measures along 2 axes, but these positions have 3",
    ),
    "another head": (
        lambda: ww.AxialRotary(8)(*[torch.zeros(1, 1, 4, 6)] * 2, ww.Positions.grid(2, 2)),
        "AxialRotary was made for head_dim=8, but q has shape",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_state_what_is_needed(name, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    make, message = ERRORS[name]
    with pytest.raises(ww.WhatWhereError, match=message):
        make()


def test_the_way_out_of_an_uneven_head_works():
    assert ww.AxialRotary(64, 3, sections=(11, 11, 10)).inverse_frequencies.shape == (32,)
