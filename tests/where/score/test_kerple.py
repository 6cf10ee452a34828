"""KERPLE: a learned kernel of the distance, logarithm or power."""

import math

import pytest
import torch
from torch.testing import assert_close

import whatwhere as ww

KINDS = ("log", "power")


@pytest.mark.parametrize("kind", KINDS)
def test_it_starts_as_the_authors_do(kind):
    """p uniform below 2 and a below 1, what is drawn below 0.01 set there: 0.5 % of one range, 1 % of the other."""
    torch.manual_seed(0)
    scheme = ww.KERPLE(40_000, kind)
    for x, end in ((scheme.p.detach(), 2.0), (scheme.a.detach(), 1.0)):
        floor = float((x < 0.0101).float().mean())
        # One standard error of a share s of n is sqrt(s / n): 4 of 0.0005; of the deviation 0.2 %.
        assert abs(floor - 0.01 / end) < 0.002
        assert float(x.min()) > 0.0099
        assert float(x.max()) < end
        assert float(x.mean()) == pytest.approx(end / 2, rel=0.012)
        assert float(x.std()) == pytest.approx(end / math.sqrt(12), rel=0.012)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_assigned_parameters_are_those_of_the_formula(kind, dtype):
    p, a = torch.tensor([0.01, 0.7, 1.0, 1.99]), torch.tensor([0.01, 0.5, 4.0, 90.0])
    scheme = ww.KERPLE(4, kind, dtype=dtype)
    scheme.assign(p, a)
    # The free parameter is rounded by half of eps of itself; 2 sigmoid and softplus do not enlarge that by more than 6.
    tolerance = 4 * torch.finfo(dtype).eps
    assert_close(scheme.p.detach().double(), p.double(), rtol=max(tolerance, 1e-6), atol=0)
    assert_close(scheme.a.detach().double(), a.double(), rtol=max(tolerance, 1e-6), atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_leads_out_of_the_range(kind):
    """Whatever an optimizer makes of the free parameters, the kernel stays one; the authors clamp instead."""
    scheme = ww.KERPLE(5, kind)
    with torch.no_grad():
        for free in (scheme.free_p, scheme.free_a):
            free.copy_(torch.tensor([-80.0, -3.0, 0.0, 3.0, 80.0]))
    assert bool((scheme.p > 0).all())
    assert bool((scheme.a > 0).all())
    assert kind == "log" or bool((scheme.p <= 2).all())
    table = scheme(ww.positions(3, start=999_997), ww.positions(2))
    table.sum().backward()
    assert bool(table.isfinite().all())
    assert all(bool(free.grad.isfinite().all()) for free in (scheme.free_p, scheme.free_a))


def test_a_bias_of_the_power_is_that_of_the_formula():
    scheme = ww.KERPLE(2, "power", dtype=torch.float64)
    scheme.assign(p=torch.tensor([0.5, 1.5]), a=torch.tensor([3.0, 2.0]))
    table = scheme(ww.positions(1, start=16), ww.positions(1)).flatten()
    assert table.tolist() == pytest.approx([-3 * 4, -2 * 64], rel=1e-6)


def test_the_power_has_a_gradient_at_distance_zero():
    scheme = ww.KERPLE(2, "power")
    scheme(ww.positions(4)).sum().backward()
    assert bool(scheme.free_p.grad.isfinite().all())
    assert bool((scheme.free_p.grad != 0).all())


def test_bfloat16_parameters_are_computed_with_in_float32():
    scheme = ww.KERPLE(2, dtype=torch.bfloat16)
    near, far = scheme(ww.positions(1, start=100_000), ww.positions(2))[0, :, 0].unbind(-1)
    assert near.dtype == torch.float32
    assert bool((near != far).all())
