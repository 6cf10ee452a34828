"""CARoPE: rotations that sum up what tokens decide."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import whatwhere as ww
from tests.samples import draw


@pytest.mark.parametrize("settings", [{}, {"theta": 500.0, "interleaved": True}], ids=str)
def test_it_starts_as_rotary(settings):
    """Of a text of any vectors; rotary counts from 0 and the sum from 1, which moves no score."""
    scheme, rope, n = ww.CARoPE(5, 8, 3, **settings), ww.Rotary(8, **settings), 50
    x, q, k, v = draw(2, n, 5, seed=1), *(draw(2, 3, n, 8, seed=s) for s in (2, 3, 4))
    here, plain = ww.Where(scheme).at(n), ww.Where(rope).at(n)
    y = here.attention(*here.query_key(q, k, increments=here.increments(x)), v)
    assert_close(y, plain.attention(*plain.query_key(q, k), v), rtol=0, atol=2e-5)


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
