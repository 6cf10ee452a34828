"""Shaw: queries meet a learned vector of the clipped distance."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw_float64 as draw
from tests.samples import table
from whatwhere import reference

ENGINES = ["dense", "sdpa"]


def sampled(head_dim: int = 4, num_heads: int = 2, past: int = 3, future: int = 2, **settings) -> ww.Shaw:
    torch.manual_seed(0)
    return ww.Shaw(head_dim, num_heads, past, future, std=1.0, **settings).double()


@pytest.mark.parametrize(("past", "future"), [(3, 2), (1, 0), (40, 40)])
def test_it_is_that_of_the_reference(past, future):
    scheme, q = sampled(past=past, future=future), draw(2, 2, 3, 4)
    at_queries, at_keys = np.array([0, 4, 30]), np.array([0, 1, 2, 3, 5, 29, 999])
    made = table(
        scheme,
        ww.Positions.from_position_ids(torch.tensor(at_queries)),
        ww.Positions.from_position_ids(torch.tensor(at_keys)),
        q,
    )
    for row in range(2):
        wanted = reference.shaw_bias(q[row].numpy(), scheme.weight.detach().numpy(), at_queries, at_keys, past)
        np.testing.assert_allclose(made[row].detach().numpy(), wanted, rtol=0, atol=1e-14)


def test_its_gradients_are_those_of_the_reference():
    scheme, q = sampled(), draw(1, 2, 3, 4).requires_grad_()
    at_queries, at_keys, g = np.array([0, 4, 30]), np.array([0, 1, 2, 28]), draw(2, 3, 4, seed=1)
    keys = ww.Positions.from_position_ids(torch.tensor(at_keys))
    table(scheme, ww.Positions.from_position_ids(torch.tensor(at_queries)), keys, q)[0].backward(g)
    require_gradients(
        (q.grad[0], scheme.weight.grad),
        lambda q, weight: reference.shaw_bias(q, weight, at_queries, at_keys, 3),
        (q[0], scheme.weight),
        g,
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_the_paper_s_form_of_keys_with_a_vector_added(engine):
    """Equation 4: e_ij = <q_i, k_j + a_ij> / sqrt(head_dim), through (queries, keys, head_dim)."""
    scheme, p = sampled(), ww.positions(7)
    q, k, v = (draw(2, 2, 7, 4, seed=n) for n in range(3))
    index = torch.arange(7)
    a = scheme.weight[(index - index[:, None]).clamp(-3, 2) + 3]  # (queries, keys, head_dim)
    logits = (q[:, :, :, None] * (k[:, :, None] + a)).sum(-1) / 2
    for causal in (True, False):
        seen = logits.masked_fill(~p.mask(causal=causal), -torch.inf)
        y = ww.Where(score=scheme).at(p).attention(q, k, v, causal=causal, engine=engine)
        torch.testing.assert_close(y, seen.softmax(-1) @ v)


def test_distances_beyond_the_clip_are_one():
    scheme, q = sampled(), draw(1, 2, 1, 4)
    made = table(scheme, ww.positions(1, start=50), ww.positions(101), q)[0, 0, 0]
    assert made[:48].unique().numel() == 1
    assert made[52:].unique().numel() == 1
    assert made[47:53].unique().numel() == 6


def test_heads_share_the_rows():
    scheme, p = sampled(), ww.positions(5)
    q = draw(1, 1, 5, 4).expand(1, 2, 5, 4)
    made = table(scheme, p, p, q)
    assert torch.equal(made[:, 0], made[:, 1])


def test_bfloat16_queries_are_multiplied_with_the_rows_in_float32():
    scheme, p = sampled(head_dim=64).float(), ww.positions(5)
    q = draw(1, 2, 5, 64).bfloat16()
    exact = table(sampled(head_dim=64), p, p, q.double())
    assert table(scheme, p, p, q).dtype == torch.float32
    torch.testing.assert_close(table(scheme, p, p, q).double(), exact, rtol=0, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(table(scheme, p, p, q).double(), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"head_dim": 0}, "head_dim=0"),
        ({"num_heads": -1}, "num_heads=-1"),
        ({"max_distance": 0}, "max_distance=0"),
        ({"max_future_distance": -1}, "max_future_distance=-1"),
        ({"max_future_distance": 1.5}, "max_future_distance"),
        ({"max_future_distance": True}, "max_future_distance=True"),
        ({"std": 0.0}, "std=0.0"),
    ],
)
@pytest.mark.usefixtures("our_own_checks")
def test_settings_that_make_no_sense_raise(settings, text):
    with pytest.raises(ww.WhatWhereError, match=text):
        ww.Shaw(**{"head_dim": 8, "num_heads": 2} | settings)


def test_it_needs_queries_of_its_size():
    scheme, p = ww.Shaw(8, 2), ww.positions(3)
    with pytest.raises(ww.errors.DoorError, match="depends on queries and keys"):
        scheme(p)
    with pytest.raises(ww.errors.DoorError, match="depends on queries and keys"):
        scheme.score_mod(p)
    with pytest.raises(ww.errors.DoorError, match="q is missing"):
        scheme.bind(p, p)
    q = torch.ones(1, 2, 3, 6)
    with pytest.raises(ww.errors.ShapeError, match="head_dim=8, but q has shape"):
        ww.Where(score=scheme).at(p).attention(q, q, q)
    with pytest.raises(ww.errors.PositionError, match="one axis"):
        scheme.bind(ww.Positions.grid(1, 3), ww.Positions.grid(1, 3), q=torch.ones(1, 2, 3, 8))


def test_it_can_be_copied_pickled_printed_and_reset():
    scheme = ww.Shaw(4, 2, max_distance=3, max_future_distance=0, std=0.5)
    for other in (scheme, deepcopy(scheme), pickle.loads(pickle.dumps(scheme))):
        assert repr(other) == "Shaw(head_dim=4, num_heads=2, max_distance=3, max_future_distance=0, std=0.5)"
        assert torch.equal(other.weight, scheme.weight)
    before = scheme.weight.detach().clone()
    scheme.reset_parameters()
    assert bool((scheme.weight != before).any(-1).all())
    assert repr(ww.Shaw(4, 2, 3)) == "Shaw(head_dim=4, num_heads=2, max_distance=3, max_future_distance=3, std=0.02)"
    assert ww.Shaw(4, 2, device="meta", dtype=torch.float16).weight.dtype == torch.float16


def test_it_is_initialized_with_its_std():
    torch.manual_seed(0)
    # 129 rows of 256: 33,024 values, one standard error of the deviation is 0.4 %.
    assert abs(float(ww.Shaw(256, 2, 64, 64, std=0.3).weight.detach().std()) / 0.3 - 1) < 0.02
