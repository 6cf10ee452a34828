"""Frequencies and angles, against Python's own arithmetic and mpmath's."""

from math import pi

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whatwhere.where.frequencies import (
    LAYOUTS,
    angles,
    cos_sin,
    inverse_frequencies,
    offset_map,
    sinusoid,
    wavelengths,
)

few = settings(deadline=None, max_examples=40)


@few
@given(st.integers(0, 10_000_000), st.integers(0, 31))
def test_the_cosine_is_exact_to_float32_far_out(position, pair):
    exact = mpmath.mpf(position) * mpmath.power(10_000, mpmath.mpf(-2 * pair) / 64)
    table = angles(torch.tensor([position]), inverse_frequencies(64))
    cosine, sine = cos_sin(table)
    # float64 angles are off by 1e-16 of their size, 2e-9 at most here; float32 rounds by 6e-8 at most.
    assert abs(float(cosine[0, pair]) - float(mpmath.cos(exact))) < 7e-8
    assert abs(float(sine[0, pair]) - float(mpmath.sin(exact))) < 7e-8
    assert (cosine.dtype, sine.dtype) == (torch.float32, torch.float32)


@few
@given(st.integers(-50, 5000), st.integers(0, 5000), st.sampled_from(LAYOUTS))
def test_offset_map_shifts_every_position_equally(k, p, layout):
    p = max(p, -k)
    before, after = sinusoid(torch.tensor([p, p + k]), 12, layout=layout).double()
    matrix = offset_map(k, 12, layout=layout)
    assert torch.allclose(matrix @ before, after, atol=3e-7)
    assert torch.allclose(matrix @ matrix.T, torch.eye(12, dtype=torch.float64), atol=1e-12)


def test_a_wavelength_is_one_full_turn():
    made = wavelengths(inverse_frequencies(4))
    assert made.tolist() == pytest.approx([2 * pi, 200 * pi])
