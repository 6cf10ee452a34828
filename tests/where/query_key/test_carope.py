"""CARoPE: rotations that sum up what tokens decide."""

import jaxtyping
import numpy as np
import pytest
import torch
from torch.testing import assert_close

import whatwhere as ww
from tests.gradients import require_gradients
from tests.samples import draw
from whatwhere import reference


def trained(dtype=torch.float32, **settings):
    """Return a scheme of three heads whose tokens differ."""
    scheme = ww.CARoPE(5, 8, 3, dtype=dtype, **settings)
    with torch.no_grad():
        scheme.weight.copy_(draw(3, 5, seed=9))
        scheme.bias.copy_(draw(3, seed=8))
    return scheme


@pytest.mark.parametrize("settings", [{}, {"interleaved": True}], ids=str)
def test_it_is_the_reference_forward_and_backward(settings):
    scheme = trained(torch.float64, **settings)
    x, q, k, g = draw(1, 6, 5, seed=1).double(), *(draw(1, 3, 6, 8, seed=n).double() for n in (2, 3, 4))
    x.requires_grad_(), q.requires_grad_()
    here = ww.Where(scheme).at(6)
    increments = here.increments(x)
    mapped_q, mapped_k = here.query_key(q, k, increments=increments)
    weights = (scheme.weight.detach().numpy(), scheme.bias.detach().numpy())
    expected = reference.carope_increments(x[0].detach().numpy(), *weights)
    np.testing.assert_allclose(increments[0].detach().numpy(), expected, rtol=1e-12)
    for ours, given in ((mapped_q, q), (mapped_k, k)):
        rotated = reference.carope(given[0].detach().numpy(), expected, **settings)
        np.testing.assert_allclose(ours[0].detach().numpy(), rotated, rtol=0, atol=1e-12)
    mapped_q.backward(g)
    require_gradients(
        (q.grad[0], x.grad[0], *(parameter.grad for parameter in scheme.parameters())),
        lambda q, x, *weights: reference.carope(q, reference.carope_increments(x, *weights), **settings),
        (q[0], x[0], *weights),
        g[0],
    )


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


def test_grouped_queries_have_what_repeated_keys_have():
    scheme, n = ww.CARoPE(5, 8, 4), 9
    with torch.no_grad():
        scheme.weight.copy_(draw(4, 5, seed=9))
    x, q, k, v = draw(1, n, 5, seed=1), draw(1, 4, n, 8, seed=2), *(draw(1, 2, n, 8, seed=s) for s in (3, 4))
    here = ww.Where(scheme).at(n)
    grouped = here.attention(*here.query_key(q, k, increments=here.increments(x)), v)
    every = [x.repeat_interleave(2, dim=1) for x in (k, v)]
    assert_close(grouped, here.attention(*here.query_key(q, every[0], increments=here.increments(x)), every[1]))


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


def test_what_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    scheme, q, x = trained(), draw(1, 3, 4, 8), draw(1, 4, 5)
    here = ww.Where(scheme, window=2).at(4)
    with pytest.raises(ww.errors.SettingError, match="CARoPE needs the increments of all keys, but got none"):
        here.query_key(q, q)
    with pytest.raises(ww.errors.SettingError, match="increments were given, but Rotary needs none"):
        ww.Where(ww.Rotary(8)).at(4).query_key(q, q, increments=scheme.increments(x))
    with pytest.raises(ww.errors.SettingError, match="but there is no map of queries and keys"):
        ww.Where().at(4).query_key(q, q, increments=scheme.increments(x))
    with pytest.raises(ww.errors.ShapeError, match="append the new ones to the cached"):
        here.query_key(q, q, increments=scheme.increments(x)[..., :3])
    with pytest.raises(ww.errors.ShapeError, match="made for dim=5"):
        here.increments(draw(1, 4, 6))
    with pytest.raises(ww.errors.ShapeError, match="num_heads=3, but q has 2 heads"):
        here.query_key(q[:, :2], q, increments=scheme.increments(x))
    with pytest.raises(ww.errors.ShapeError, match="do not divide"):
        here.query_key(q, q[:, :2], increments=scheme.increments(x))
    with pytest.raises(ww.errors.DoorError, match="it needs more than positions"):
        scheme(q, q, ww.positions(4))
    with pytest.raises(ww.errors.DoorError, match="needs a map by position alone"):
        ww.SSMax(8, 3, scheme)
    with pytest.raises(ww.errors.SettingError, match="so none can be deleted"):
        ww.Where(scheme, window=2).kept(ww.positions(4))
    with pytest.raises(ww.errors.SettingError, match="theta"):
        ww.CARoPE(5, 8, 3, theta=1.0)
    with pytest.raises(ww.errors.SettingError, match="supports causal attention only"):
        here.attention(q, q, q, causal=False)
