"""Transformer-XL: queries meet the projected sinusoid of the distance."""

import math
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

ROUNDED = 2e-6
"""Sine and cosine are rounded to float32, by 3e-8 each, in sums of a few dozen products of size 1 to 3."""


def sampled(head_dim: int = 4, num_heads: int = 2, **settings) -> ww.TransformerXL:
    torch.manual_seed(0)
    return ww.TransformerXL(head_dim, num_heads, std=1.0, **settings).double()


def arrays(scheme: ww.TransformerXL) -> list[np.ndarray]:
    return [parameter.detach().numpy() for parameter in (scheme.u, scheme.v, scheme.weight)]


@pytest.mark.parametrize("settings", [{}, {"dim": 12}, {"theta": 50.0}])
def test_it_is_that_of_the_reference(settings):
    """Also for later keys, across gaps and far from the start."""
    scheme, q, k = sampled(**settings), draw(2, 2, 3, 4), draw(2, 2, 6, 4, seed=1)
    for start in (0, 1_000_000):
        at_queries, at_keys = start + np.array([0, 4, 300]), start + np.array([0, 1, 2, 5, 299, 9999])
        ours = table(scheme, *(ww.Positions.from_position_ids(torch.tensor(at)) for at in (at_queries, at_keys)), q, k)
        for row in range(2):
            contents = q[row].numpy(), k[row].numpy()
            wanted = reference.transformer_xl_bias(*contents, at_queries, at_keys, *arrays(scheme), scheme.theta)
            np.testing.assert_allclose(ours[row].detach().numpy(), wanted, rtol=0, atol=ROUNDED)


def test_its_gradients_are_those_of_the_reference():
    scheme, g = sampled(), draw(2, 3, 4, seed=3)
    q, k = draw(1, 2, 3, 4).requires_grad_(), draw(1, 2, 4, 4, seed=1).requires_grad_()
    at_queries, at_keys = np.array([0, 4, 30]), np.array([0, 1, 2, 28])
    table(scheme, *(ww.Positions.from_position_ids(torch.tensor(at)) for at in (at_queries, at_keys)), q, k)[
        0
    ].backward(g)
    require_gradients(
        (q.grad[0], k.grad[0], scheme.u.grad, scheme.v.grad, scheme.weight.grad),
        lambda q, k, *weights: reference.transformer_xl_bias(q, k, at_queries, at_keys, *weights),
        (q[0], k[0], *arrays(scheme)),
        g,
        atol=1e-6,
    )


@pytest.mark.parametrize("engine", ["dense", "sdpa"])
def test_attention_is_the_paper_s_four_terms(engine):
    scheme, p = sampled(), ww.positions(7)
    q, k, v = (draw(2, 2, 7, 4, seed=n) for n in range(3))
    distance = torch.arange(7)[:, None] - torch.arange(7)
    frequencies = ww.frequencies.inverse_frequencies(8)
    angles = distance[..., None] * frequencies
    r = torch.einsum("hdn,ijn->ijhd", scheme.weight, torch.cat([angles.sin(), angles.cos()], dim=-1))
    a = q @ k.mT
    b = torch.einsum("bhid,ijhd->bhij", q, r)
    c = torch.einsum("hd,bhjd->bhj", scheme.u, k)[:, :, None]
    d = torch.einsum("hd,ijhd->hij", scheme.v, r)
    logits = (a + b + c + d) / math.sqrt(4)
    for causal in (True, False):
        seen = logits.masked_fill(~p.mask(causal=causal), -torch.inf)
        y = ww.Where(score=scheme).at(p).attention(q, k, v, causal=causal, engine=engine)
        torch.testing.assert_close(y, seen.softmax(-1) @ v, rtol=0, atol=ROUNDED)


def test_grouped_keys_are_those_of_their_group():
    scheme, p = sampled(num_heads=4), ww.positions(5)
    q, k, v = draw(1, 4, 5, 4), draw(1, 2, 5, 4, seed=1), draw(1, 2, 5, 4, seed=2)
    here = ww.Where(score=scheme).at(p)
    repeated = here.attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    torch.testing.assert_close(here.attention(q, k, v), repeated)


def test_each_sequence_of_a_batch_has_other_positions():
    scheme, q, k = sampled(), draw(2, 2, 3, 4), draw(2, 2, 5, 4, seed=1)
    queries, keys = ww.positions(3, start=torch.tensor([2, 50])), ww.positions(5, start=torch.tensor([0, 48]))
    both = table(scheme, queries, keys, q, k)
    for row, start in enumerate((0, 48)):
        alone = table(
            scheme, ww.positions(3, start=start + 2), ww.positions(5, start=start), q[row, None], k[row, None]
        )
        torch.testing.assert_close(both[row], alone[0], rtol=0, atol=1e-12)


def test_past_and_future_differ():
    scheme, p = sampled(), ww.positions(3)
    same = draw(1, 2, 1, 4).expand(1, 2, 3, 4)
    made = table(scheme, p, p, same, same)
    assert (made[..., 0, 1] - made[..., 1, 0]).abs().min() > 1e-2
    torch.testing.assert_close(made[..., 0, 1], made[..., 1, 2], rtol=0, atol=ROUNDED)


def test_bfloat16_contents_and_autocast_leave_the_sinusoid_alone():
    """In bfloat16 a turned sinusoid of position 100,000 would be off by 2 ** -9, and no longer relative."""
    scheme, exact, p = sampled(head_dim=16).float(), sampled(head_dim=16), ww.positions(5, start=100_000)
    q, k = (draw(1, 2, 5, 16, seed=n).bfloat16() for n in range(2))
    wanted = table(exact, p, p, q.double(), k.double())
    assert table(scheme, p, p, q, k).dtype == torch.float32
    torch.testing.assert_close(table(scheme, p, p, q, k).double(), wanted, rtol=0, atol=2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(table(scheme, p, p, q, k).double(), wanted, rtol=0, atol=2e-5)


def test_a_bfloat16_model_loses_no_more_than_its_numbers():
    """Queries and parameters are bfloat16, sums of them are not."""
    narrow, p = sampled(head_dim=16).bfloat16(), ww.positions(5)
    q, k = (draw(1, 2, 5, 16, seed=n).bfloat16() for n in range(2))
    made = table(narrow, p, p, q, k).double()
    wide = deepcopy(narrow).double()
    torch.testing.assert_close(made, table(wide, p, p, q.double(), k.double()), rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"head_dim": 0}, "head_dim=0"),
        ({"num_heads": True}, "num_heads=True"),
        ({"dim": 7}, "a sine and a cosine"),
        ({"dim": 0}, "dim=0"),
        ({"head_dim": 3, "num_heads": 3}, "dim=9"),
        ({"theta": 0.0}, "theta=0.0"),
        ({"std": 0.0}, "std=0.0"),
    ],
)
def test_settings_that_make_no_sense_raise(settings, text):
    with pytest.raises(ww.WhatWhereError, match=text):
        ww.TransformerXL(**{"head_dim": 8, "num_heads": 2} | settings)


def test_it_needs_queries_and_keys_of_its_size():
    scheme, p, q = ww.TransformerXL(8, 2), ww.positions(3), torch.ones(1, 2, 3, 8)
    with pytest.raises(ww.errors.DoorError, match="depends on queries and keys"):
        scheme(p)
    with pytest.raises(ww.errors.DoorError, match="q is missing"):
        scheme.bind(p, p, k=q)
    with pytest.raises(ww.errors.DoorError, match="k is missing"):
        scheme.bind(p, p, q=q)
    with pytest.raises(ww.errors.ShapeError, match="head_dim=8, but q has shape"):
        ww.Where(score=scheme).at(p).attention(q[..., :6], q[..., :6], q)
    with pytest.raises(ww.errors.PositionError, match="one axis"):
        scheme.bind(ww.Positions.grid(1, 3), ww.Positions.grid(1, 3), q=q, k=q)


def test_it_can_be_copied_pickled_printed_and_reset():
    scheme = ww.TransformerXL(4, 2, 6, theta=50.0, std=0.5)
    for other in (scheme, deepcopy(scheme), pickle.loads(pickle.dumps(scheme))):
        assert repr(other) == "TransformerXL(head_dim=4, num_heads=2, dim=6, theta=50.0, std=0.5)"
        assert all(torch.equal(a, b) for a, b in zip(other.parameters(), scheme.parameters(), strict=True))
    before = [parameter.detach().clone() for parameter in scheme.parameters()]
    scheme.reset_parameters()
    assert all(bool((new != old).any(-1).all()) for new, old in zip(scheme.parameters(), before, strict=True))
    assert ww.TransformerXL(4, 2, device="meta", dtype=torch.float16).u.dtype == torch.float16


def test_it_is_initialized_with_its_std():
    torch.manual_seed(0)
    scheme = ww.TransformerXL(64, 256, 4, std=0.3)
    for parameter in scheme.parameters():  # 16,384 values at least: one standard error of the deviation is 0.6 %
        assert abs(float(parameter.detach().std()) / 0.3 - 1) < 0.03
