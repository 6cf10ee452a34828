"""FIRE: a learned function of the distance, as a share of how far back a query can look."""

import pytest
import torch
from torch.testing import assert_close

import whatwhere as ww


def sampled(num_heads: int = 3, **settings) -> ww.FIRE:
    torch.manual_seed(0)
    return ww.FIRE(num_heads, **settings).double()


def test_below_the_threshold_it_is_a_function_of_the_distance():
    scheme = sampled(threshold=100.0)
    near, far = (scheme(ww.positions(30, start=start)).detach() for start in (0, 71))
    assert torch.equal(near, far)  # positions 71..100: the divisor is the same number
    table = near[0]
    assert all(bool((table.diagonal(k, 1, 2) == table.diagonal(k, 1, 2)[:, :1]).all()) for k in range(-29, 30))
    assert (scheme(ww.positions(30, start=72)).detach() - near).abs().max() > 0


def test_beyond_the_threshold_every_length_is_the_same_range():
    """The paper's point: the first token is at ratio 1 for every query, so no length lies outside what was trained."""
    scheme = sampled(threshold=10.0)
    queries = torch.tensor([[10, 11, 100, 12_345, 999_999]])
    first = scheme(queries, torch.tensor([[0]]))[0, :, :, 0].detach()
    # The 1e-6 in the divisor is a larger share of a smaller one: at 10 of ln(2), at 999,999 of ln(100,000).
    assert_close(first, first[:, :1].expand_as(first), rtol=0, atol=1e-5)
    own = scheme(queries)[0].detach().diagonal(0, 1, 2)
    assert torch.equal(own, own[:, :1].expand_as(own))


def test_it_starts_at_the_papers_numbers_and_as_linear_layers_do():
    torch.manual_seed(0)
    scheme = ww.FIRE(400, width=100)
    assert (scheme.c.item(), scheme.threshold_factor.item(), scheme.threshold) == (pytest.approx(0.1), 1.0, 512.0)
    ends = {"weight_in": 1.0, "bias_in": 1.0, "weight_out": 0.1, "bias_out": 0.1}  # 1 / sqrt(features that come in)
    for name, end in ends.items():
        weights = getattr(scheme, name).detach()
        assert 0.9 * end < float(weights.abs().max()) <= end
        assert abs(float(weights.mean())) < 4 * end / (3 * weights.numel()) ** 0.5


def test_numbers_of_another_sign_are_read_by_their_size():
    """An optimizer may carry c or m below zero: the absolute value counts, and nothing becomes NaN."""
    scheme, p = sampled(threshold=4.0), ww.positions(9)
    before = scheme(p).detach()
    with torch.no_grad():
        scheme.c.neg_()
        scheme.threshold_factor.neg_()
    assert torch.equal(scheme(p).detach(), before)
    with torch.no_grad():
        scheme.c.zero_()
    scheme(p).sum().backward()
    assert all(bool(weights.grad.isfinite().all()) for weights in scheme.parameters())


def test_bfloat16_parameters_are_computed_with_in_float32():
    scheme = ww.FIRE(2, dtype=torch.bfloat16)
    assert scheme(ww.positions(3)).dtype == torch.float32


def test_numbers_without_a_dimension_are_read() -> None:
    """c and the factor of the threshold were saved so before FSDP could spread them."""
    saved = ww.FIRE(num_heads=2).state_dict()
    older = {name: values[0] if name in ("c", "threshold_factor") else values for name, values in saved.items()}
    read = ww.FIRE(num_heads=2)
    read.load_state_dict(older)
    assert all(torch.equal(values, saved[name]) for name, values in read.state_dict().items())
