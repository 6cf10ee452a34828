"""Reach: against the closed form of ALiBi, and curves that rise and fall."""

import numpy as np
import pytest

from whatwhere import ALiBi
from whatwhere.analysis.biases import effective_range


@pytest.mark.parametrize("heads", [4, 12])
def test_the_range_of_alibi_follows_from_its_slope(heads: int) -> None:
    slopes = ALiBi(heads).slopes.double().numpy()
    result = effective_range(-slopes[:, None] * np.arange(4096))
    # exp(-m d) < 1 / 100  <=>  d > ln(100) / m
    assert result.distance.tolist() == [int(np.floor(np.log(100) / slope)) + 1 for slope in slopes]
    assert result.half.tolist() == [int(np.floor(np.log(2) / slope)) + 1 for slope in slopes]
    assert result.peak.tolist() == [0] * heads
    # The mean of a geometric distribution is q / (1 - q), cut at 4,096 tokens where little is left.
    ratio = np.exp(-slopes)
    assert result.mean == pytest.approx(ratio / (1 - ratio), rel=1e-3)


def test_a_curve_that_rises_again_ends_after_its_last_fall() -> None:
    bias = np.log(np.array([[0.001, 1.0, 0.001, 0.5, 0.02, 0.001, 0.001]]))
    result = effective_range(bias)
    assert (result.distance[0], result.half[0], result.peak[0]) == (5, 4, 1)
    assert effective_range(bias, share=0.1).distance[0] == 4


def test_a_curve_that_does_not_fall_has_no_end() -> None:
    result = effective_range(np.zeros((1, 5)))
    assert (result.distance[0], result.half[0], result.mean[0]) == (-1, -1, 2.0)


def test_what_is_seen_at_no_other_distance() -> None:
    result = effective_range(np.array([[0.0, -np.inf, -np.inf]]))
    assert (result.distance[0], result.mean[0]) == (1, 0.0)
