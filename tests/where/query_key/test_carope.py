"""CARoPE: rotations that sum up what tokens decide."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import whatwhere as ww
from tests.samples import draw


def trained(dtype=torch.float32, **settings):
    """Return a scheme of three heads whose tokens differ."""
    scheme = ww.CARoPE(5, 8, 3, dtype=dtype, **settings)
    with torch.no_grad():
        scheme.weight.copy_(draw(3, 5, seed=9))
        scheme.bias.copy_(draw(3, seed=8))
    return scheme


@pytest.mark.parametrize("settings", [{}, {"theta": 500.0, "interleaved": True}], ids=str)
def test_it_starts_as_rotary(settings):
    """Of a text of any vectors; rotary counts from 0 and the sum from 1, which moves no score."""
    scheme, rope, n = ww.CARoPE(5, 8, 3, **settings), ww.Rotary(8, **settings), 50
    x, q, k, v = draw(2, n, 5, seed=1), *(draw(2, 3, n, 8, seed=s) for s in (2, 3, 4))
    here, plain = ww.Where(scheme).at(n), ww.Where(rope).at(n)
    y = here.attention(*here.query_key(q, k, increments=here.increments(x)), v)
    assert_close(y, plain.attention(*plain.query_key(q, k), v), rtol=0, atol=2e-5)


def test_heads_of_any_size_start_finite():
    for head_dim in (2, 64, 256):
        assert ww.CARoPE(4, head_dim, 2).bias.isfinite().all()


def test_angles_far_from_the_start_are_exact():
    """A sum of a million increments in float32 would have lost the second pair's last digits."""
    scheme, n = ww.CARoPE(1, 4, 1), 1_000_000
    with torch.no_grad():
        scheme.bias.fill_(0.1)
    increments = scheme.increments(torch.zeros(1, n, 1)).detach()
    p = ww.positions(n)
    (cos, sin), _ = scheme.bind_content(p[-2:], p, increments)
    exact = float(increments[0, 0, 0].double()) * np.array([n - 1, n])
    np.testing.assert_allclose(cos[0, 0, :, 1].numpy(), np.cos(exact), rtol=0, atol=1e-6)
    np.testing.assert_allclose(sin[0, 0, :, 1].numpy(), np.sin(exact), rtol=0, atol=1e-6)


def test_a_gated_bias_goes_beside_it():
    """Phases and gates are two things of one token, each cached."""
    where = ww.Where(trained(), ww.FoX(5, 3))
    x, q, k, v = draw(2, 7, 5, seed=1), *(draw(2, 3, 7, 8, seed=s) for s in (2, 3, 4))
    here = where.at(7)
    whole = here.attention(*here.query_key(q, k, increments=here.increments(x)), v, gates=here.gates(x))
    p = ww.positions(7)
    step = where.at(p[6:], p)
    _, cached = where.at(6).query_key(q[:, :, :6], k[:, :, :6], increments=here.increments(x[:, :6]))
    increments, gates = (torch.cat([of(x[:, :6]), of(x[:, 6:])], dim=2) for of in (step.increments, step.gates))
    last, new = step.query_key(q[:, :, 6:], k[:, :, 6:], increments=increments)
    y = step.attention(last, torch.cat([cached, new], dim=2), v, gates=gates)
    assert_close(y, whole[:, :, 6:], rtol=0, atol=1e-5)
