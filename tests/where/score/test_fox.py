"""FoX: each token says how much of what came before it is forgotten."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import whatwhere as ww
from tests.samples import draw_float64 as draw

DIM, HEADS, KEY_HEADS, HEAD_DIM = 12, 4, 2, 6


def sampled() -> ww.FoX:
    """Gates from nearly shut to nearly open; as they start, all are near a half."""
    scheme = ww.FoX(DIM, HEADS).double()
    with torch.no_grad():
        scheme.weight.copy_(draw(HEADS, DIM, seed=7))
        scheme.bias.copy_(draw(HEADS, seed=8))
    return scheme


def vectors(tokens: int = 9) -> tuple[Tensor, ...]:
    """Token vectors, and q, k, v."""
    heads = (draw(2, count, tokens, HEAD_DIM, seed=seed) for seed, count in enumerate((HEADS, KEY_HEADS, KEY_HEADS)))
    return draw(2, tokens, DIM, seed=3), *heads


@torch.no_grad()
def test_a_query_that_is_not_among_the_keys():
    """Its own gate is in every sum or in none: softmax takes no notice."""
    where, p = ww.Where(score=sampled()), ww.positions(9)
    x, q, k, v = vectors()
    whole = where.at(p)
    gates = whole.gates(x)
    own = torch.eye(9, dtype=torch.bool)[None, None]
    others = whole.attention(q, k, v, gates=gates, mask=~own)
    without = where.at(p[8:], p[:8]).attention(q[:, :, 8:], k[:, :, :8], v[:, :, :8], gates=gates[..., :8])
    assert_close(without, others[:, :, 8:], rtol=0, atol=1e-12)


@torch.no_grad()
def test_neighbors_stay_distinct_far_from_the_start():
    """A running sum in float32, as it circulates, has steps of 1/32 at 300,000: gates of -0.01 vanish in it."""
    tokens = 300_000
    gates = torch.cat([torch.full((1, 1, tokens), -1.0), torch.full((1, 1, 8), -0.01)], dim=-1)
    p = ww.positions(tokens + 8)
    element = ww.FoX(2, 1).bind(p[-8:], p, gates=gates)
    zero, last = torch.zeros(1, dtype=torch.int64), torch.arange(tokens, tokens + 8)
    bias = element(zero, zero, torch.tensor([7]), last)
    assert bias.dtype == torch.float32
    assert_close(bias, -0.01 * torch.arange(7.0, -1.0, -1.0), rtol=0, atol=1e-7)
    assert gates.cumsum(-1)[0, 0, last].unique().numel() < 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_gates_are_computed_in_float32(dtype):
    scheme = sampled().to(dtype)
    x = draw(1, 9, DIM, seed=3).to(dtype)
    gates = scheme.gates(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = scheme.gates(x)
    wide = deepcopy(scheme).double().gates(x.double())
    assert gates.dtype == inside.dtype == torch.float32
    assert_close(gates.double(), wide, rtol=1e-5, atol=1e-6)
    assert torch.equal(inside, gates)


@torch.no_grad()
def test_it_starts_as_the_authors_models_do():
    torch.manual_seed(0)
    scheme = ww.FoX(300, 200)
    assert float(scheme.weight.std()) == pytest.approx(0.02, rel=0.015)  # of 60,000 values, one error is 0.3 %
    assert not scheme.bias.any()
