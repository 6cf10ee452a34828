"""Fourier: waves of learned frequency, and a small network on them."""

from math import exp

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere import reference


def sampled(*sizes, seed=0, **settings):
    torch.manual_seed(seed)
    return ww.Fourier(*sizes, **settings)


def weights(scheme):
    names = ("frequencies", "weight_in", "bias_in", "weight_out", "bias_out")
    return [getattr(scheme, name).detach().double().numpy() for name in names]


def test_float32_is_as_exact_far_out_as_near_by():
    """Angles are float64: at a million times the frequency a float32 angle would be off by a tenth."""
    scheme = sampled(16, 64)
    index = np.array([[3, 1_000, 131_072, 1_000_000]])
    ours = scheme(torch.tensor(index)).detach().double().numpy()[0]
    wanted = reference.fourier(index, 64, *weights(scheme))
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_autocast_and_bfloat16_weights_keep_positions_distinct():
    """In bfloat16 arithmetic, positions 1,000 and 1,001 of 4,096 would have one vector."""
    scheme = sampled(32, 4096)
    p = ww.positions(64, start=1_000)
    expected = scheme(p)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(scheme(p), expected)
    low = scheme.bfloat16()
    assert low(p).dtype == torch.float32
    assert torch.equal(low(p), low.float()(p))
    assert (expected[0, 1:] - expected[0, :-1]).abs().amax(-1).min() > 0


def test_rows_start_at_the_size_of_learned_rows():
    rows = sampled(512, 10_000, width=1.0)(ww.positions(10_000)[::10]).detach()
    assert abs(float(rows.std()) / 0.02 - 1) < 0.1


@pytest.mark.parametrize("distance", [1, 4, 10])
def test_width_is_the_distance_within_which_tokens_are_similar(distance):
    """With W_r from N(0, 1 / gamma^2) the waves' inner product is a Gaussian kernel of width gamma."""
    scheme = sampled(8, 100, features=200_000, hidden=1, width=4.0)
    turns = scheme.frequencies.detach().double()[:, 0] * distance / 100
    # <r(p), r(p + distance)> = mean of cos(W_r distance) / 2; 100,000 waves give it to 2e-3.
    assert float(turns.cos().mean()) == pytest.approx(exp(-(distance**2) / (2 * 4.0**2)), abs=1e-2)


def test_max_length_is_a_scale_and_not_an_end():
    """Twice the positions with twice the max_length are the same shares, so the same vectors."""
    short, long = sampled(8, 100), sampled(8, 200)
    long.load_state_dict(short.state_dict())
    assert torch.equal(short(ww.positions(50)), long(ww.positions(100)[::2]))
    assert short(ww.positions(2, start=1_000_000)).isfinite().all()
