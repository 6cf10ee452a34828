"""AxialSinusoidal: one sinusoid for each axis of a grid."""

import pytest
import torch

import whatwhere as ww


def test_all_axes_have_the_same_frequencies():
    """Where dim does not divide, the last axis lacks its slowest pairs, and nothing else differs."""
    scheme = ww.AxialSinusoidal(16, 3)
    row = scheme(torch.tensor([[[5]], [[5]], [[5]]]))[0, 0]
    first, second, third = (row[part] for part in scheme.parts)
    assert torch.equal(first, second)
    assert torch.equal(third, first[:4])


def test_one_axis_is_expanded_to_all():
    scheme = ww.AxialSinusoidal(24, 3)
    p = ww.positions(6, start=2)
    assert torch.equal(scheme(p), scheme(p.index.expand(3, -1, -1)))
    assert scheme(ww.Positions.packed([3, 2])).shape == (1, 5, 24)


def test_positions_of_other_axes_are_refused():
    with pytest.raises(
        ww.errors.PositionError, match="AxialSinusoidal measures along 2 axes, but these positions have 3"
    ):
        ww.AxialSinusoidal(8)(ww.Positions.grid(2, 2, 2))
