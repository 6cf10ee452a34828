"""Inkling: queries mix learned profiles of the distance."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw_float64 as draw
from tests.samples import table
from whatwhere import reference, temperature

QUERIES, KEYS = np.array([0, 4, 30]), np.array([0, 1, 2, 4, 26, 29, 999])


def sampled(extent: int = 5, **settings) -> ww.Inkling:
    torch.manual_seed(0)
    scheme = ww.Inkling(8, 2, 4, extent, std=1.0, **settings).double()
    if scheme.gain is not None:
        torch.nn.init.uniform_(scheme.gain, 0.5, 2.0)
    return scheme


def at(numbers: np.ndarray) -> ww.Positions:
    return ww.Positions.from_position_ids(torch.tensor(numbers))


@pytest.mark.parametrize("max_norm", [None, 0.5, 4.0, 1000.0])
def test_gates_are_those_of_the_reference(max_norm):
    scheme, x = sampled(max_norm=max_norm), draw(2, 6, 8)
    gain = None if scheme.gain is None else scheme.gain.detach().numpy()
    for row in range(2):
        wanted = reference.inkling_gates(x[row].numpy(), scheme.weight.detach().numpy(), 2, gain, max_norm)
        # Inkling 2 adds 1e-6 to the norm, which a formula need not.
        np.testing.assert_allclose(scheme.gates(x)[row].detach().numpy(), wanted, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("extent", [1, 5, 40])
def test_it_is_the_reference_forward_and_backward(extent):
    scheme, r, g = sampled(extent), draw(2, 2, 3, 4).requires_grad_(), draw(2, 2, 3, 7, seed=1)
    made = table(scheme, at(QUERIES), at(KEYS), gates=r)
    made.backward(g)

    def by_reference(mixed, profiles):
        return np.stack([reference.inkling_bias(row, profiles, QUERIES, KEYS) for row in mixed])

    given = (r.detach().numpy(), scheme.profiles.detach().numpy())
    np.testing.assert_allclose(made.detach().numpy(), by_reference(*given), rtol=0, atol=1e-13)
    require_gradients((r.grad, scheme.profiles.grad), by_reference, given, g)


def test_one_query_needs_its_own_gates_only():
    """In decoding the gates of the new token are as good as those of all keys."""
    scheme, p = sampled(), ww.Positions.packed([3, 4])
    x, q, k, v = draw(1, 7, 8), draw(1, 2, 7, 4, seed=1), draw(1, 2, 7, 4, seed=2), draw(1, 2, 7, 4, seed=3)
    here = ww.Where(scheme).at(p)
    wanted = here.attention(q, k, v, gates=here.gates(x))
    for t in range(7):
        step = ww.Where(scheme).at(p[t : t + 1], p)
        for gates in (step.gates(x[:, t : t + 1]), here.gates(x)):
            y = step.attention(q[:, :, t : t + 1], k, v, gates=gates)
            torch.testing.assert_close(y, wanted[:, :, t : t + 1], rtol=0, atol=1e-13)


def test_earlier_keys_within_the_extent_only():
    scheme, p = sampled(extent=3), ww.positions(6)
    bias = table(scheme, p, p, gates=scheme.gates(draw(1, 6, 8)))[0, 0]
    i = torch.arange(6)
    n = i[:, None] - i
    assert bool((bias != 0).eq((n >= 0) & (n < 3)).all())


def test_a_temperature_multiplies_the_bias():
    curve, r = temperature.ClampedLog(alpha=0.5, length=4), draw(1, 2, 3, 4)
    warm, plain = (table(sampled(temperature=one), at(QUERIES), at(KEYS), gates=r) for one in (curve, None))
    torch.testing.assert_close(warm, plain * curve.at(torch.tensor(QUERIES))[:, None], rtol=0, atol=1e-13)
    assert not torch.equal(warm, plain)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"dim": 0}, "dim=0"),
        ({"features": 0}, "features=0"),
        ({"extent": -1}, "extent=-1"),
        ({"max_norm": 0.0}, "max_norm=0.0"),
        ({"std": 0.0}, "std=0.0"),
        ({"temperature": 2.0}, "temperature=2.0, but needs a curve"),
    ],
)
@pytest.mark.usefixtures("our_own_checks")
def test_settings_that_make_no_sense_raise(settings, text):
    with pytest.raises(ww.WhatWhereError, match=text):
        ww.Inkling(**{"dim": 8, "num_heads": 2} | settings)


@pytest.mark.usefixtures("our_own_checks")
def test_gates_of_other_tokens_raise():
    scheme, p = sampled(), ww.positions(4)
    q, here = torch.ones(1, 2, 4, 4), ww.Where(scheme).at(p)
    with pytest.raises(ww.errors.SettingError, match="needs the gates of the queries"):
        here.attention(q, q, q)
    for gates in (draw(1, 2, 3, 4), draw(1, 3, 4, 4), draw(1, 2, 4, 5), draw(1, 2, 4)):
        with pytest.raises(ww.errors.ShapeError, match="Inkling needs gates of shape"):
            here.attention(q, q, q, gates=gates)
    with pytest.raises(ww.errors.ShapeError, match="was made for dim=8"):
        here.gates(torch.ones(1, 4, 9))
    late = ww.Where(scheme).at(ww.positions(2, start=9), p)
    with pytest.raises(ww.errors.ShapeError, match="a query is not among the keys"):
        late.attention(q[:, :, :2], q, q, gates=draw(1, 2, 4, 4))
    assert late.attention(q[:, :, :2].double(), q.double(), q.double(), gates=draw(1, 2, 2, 4)).shape == (1, 2, 2, 4)
