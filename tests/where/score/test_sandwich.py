"""Sandwich: the inner product of two sinusoids as a bias."""

import math

import pytest
import torch

import whatwhere as ww


def test_it_falls_about_as_a_logarithm():
    """Mean slope against ln(distance): the cosines of all waves shorter than the distance have died away.

    There are 64 / ln(10,000) waves for each step of 1 in the logarithm, so the sum falls by that much.
    """
    near, far = 8, 2048
    curve = ww.Sandwich(8)(ww.positions(1, start=far), ww.positions(far + 1))[0, 0, 0].flip(-1).double()
    distance = torch.arange(near, far + 1)
    # Distances evenly spread over the logarithm, so that the far ones do not decide alone.
    weight = 1 / distance.double()
    x, y = distance.double().log(), curve[near:]
    x, y = x - (weight * x).sum() / weight.sum(), y - (weight * y).sum() / weight.sum()
    slope = float((weight * x * y).sum() / (weight * x * x).sum())
    assert slope == pytest.approx(-64 / math.log(10_000), rel=0.05)
    assert bool((curve.diff() > 0).any())  # but not steadily
