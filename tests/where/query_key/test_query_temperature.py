"""QueryTemperature: queries that grow by a curve of their position."""

from math import log

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.samples import draw
from whatwhere import reference, temperature

FAR = (0, 1, 6, 7, 8, 4095, 100_000, 1_000_000_000)
CURVES = [
    (temperature.SteppedLog(0.1, 8), reference.stepped_log_temperature(FAR, 0.1, 8)),
    (temperature.SteppedLog(0.3, 8, offset=0), reference.stepped_log_temperature(FAR, 0.3, 8, 0)),
    (temperature.ClampedLog(0.2, 7), reference.clamped_log_temperature(FAR, 0.2, 7)),
    (temperature.Power(0.1, 2048), reference.power_temperature(FAR, 0.1, 2048)),
    (temperature.LogN(8), reference.log_n_temperature(FAR, 8)),
]


@pytest.mark.parametrize(("curve", "factors"), CURVES, ids=lambda value: str(value)[:20])
def test_it_is_the_reference_forward_and_backward(curve, factors):
    x, g = (draw(3, len(FAR), 8, seed=n, dtype=torch.float64) for n in (1, 2))
    np.testing.assert_allclose(curve.at(torch.tensor(FAR)).numpy(), factors, rtol=1e-14)
    q = x[None].clone().requires_grad_()
    mapped, key = ww.QueryTemperature(8, curve)(q, x[None], torch.tensor(FAR)[None])
    expected = reference.query_temperature(x.numpy(), factors)
    np.testing.assert_allclose(mapped[0].detach().numpy(), expected, rtol=2**-23)  # the factor is float32
    assert torch.equal(key, x[None])
    mapped.backward(g[None])
    np.testing.assert_allclose(q.grad[0].numpy(), reference.query_temperature(g.numpy(), factors), rtol=2**-23)


def test_steps_are_found_in_whole_numbers():
    """In float32 a position beyond 2 ** 24 is rounded, and with it the step."""
    period = 2**24 + 1
    curve = temperature.SteppedLog(1.0, period, offset=0)
    assert curve.at(torch.tensor([period - 1, period])).tolist() == [1.0, pytest.approx(1 + log(2))]


def test_within_its_length_a_curve_changes_nothing():
    q = draw(1, 2, 10, 4)
    for curve in (temperature.SteppedLog(0.1, 11), temperature.ClampedLog(0.1, 10), temperature.LogN(10)):
        assert torch.equal(ww.QueryTemperature(4, curve)(q, q)[0], q)
        assert not torch.equal(ww.QueryTemperature(4, curve)(q, q, ww.positions(10, start=2))[0], q)


@pytest.mark.parametrize("inner", [ww.Rotary(8), ww.PoPE(8, 3), ww.SSMax(8, 3, ww.Rotary(8))], ids=repr)
def test_another_map_is_applied_first(inner):
    scheme, p = ww.QueryTemperature(8, temperature.SteppedLog(0.5, 4), then=inner), ww.positions(9, start=3)
    q, k = draw(2, 3, 9, 8, seed=1), draw(2, 3, 9, 8, seed=2)
    with torch.no_grad():
        mapped_q, mapped_k = scheme(q, k, p)
        inner_q, inner_k = inner(q, k, p)
    factor = torch.tensor(reference.stepped_log_temperature(p.index[0, 0].numpy(), 0.5, 4)).float()[:, None]
    torch.testing.assert_close(mapped_q, inner_q * factor, rtol=1e-6, atol=1e-6)
    assert torch.equal(mapped_k, inner_k)
    assert scheme.scale == inner.scale


def test_bfloat16_is_rounded_once():
    scheme = ww.QueryTemperature(8, temperature.Power(), then=ww.Rotary(8))
    q, p = draw(1, 3, 9, 8).bfloat16(), ww.positions(9, start=100_000)
    assert torch.equal(scheme(q, q, p)[0], scheme(q.float(), q.float(), p)[0].bfloat16())


def test_a_name_has_its_curve_and_the_map_inside():
    where = ww.scheme("temperature@curve=stepped,period=8,then=rotary", 16, 2, 32)
    wanted = ww.QueryTemperature(8, temperature.SteppedLog(0.1, 8), ww.Rotary(8))
    assert repr(where.query_key) == repr(wanted)
    assert ww.scheme("temperature", 16, 2, 32).query_key.curve == temperature.Power(0.1, 8)
