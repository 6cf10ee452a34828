"""Between what a score lies, when the product of a query and a row is known roughly.

    score = alpha ((product - offset) factor +- error) - beta half +- delta

Scores are told for queries of length 1, and in shares of the longest row, so that none leaves float32. Errors are
bounds by Cauchy and Schwarz of what was left out of a product, and of all roundings, those of exact.py too.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from whatwhere.kernels.exact import Metric

_UNIT = 2.0**-24
"""Of float32: the relative error of a rounding."""
_WIDE = 2.0**-53
_SMALL = 2.0**-100
_LEAST = 1e-290
_SAFE = 2.0**30
"""Rows up to this length, and down to its inverse, are multiplied as they are."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Hold what the bounds take from each row."""

    factors: Float32[np.ndarray, " rows"]
    errors: Float32[np.ndarray, " rows"]
    halves: Float32[np.ndarray, " rows"]


@dataclass(frozen=True, eq=False)
class Asked:
    """Hold queries, and what the bounds take from each.

    Args:
        queries: as scores are taken of.
        share, square: the bounds are of share * score; of a distance, of share * (square - distance**2).
        blank: all scores of the query are 0.
        without: ids that are no answer, those of the first query first, rising for each.
        left_out: how many of them are each query's.
    """

    queries: Float64[np.ndarray, "queries dim"]
    share: Float64[np.ndarray, " queries"]
    square: Float64[np.ndarray, " queries"]
    offset: Float32[np.ndarray, " queries"]
    alpha: Float32[np.ndarray, " queries"]
    beta: Float32[np.ndarray, " queries"]
    delta: Float32[np.ndarray, " queries"]
    blank: Bool[np.ndarray, " queries"]
    without: Int64[np.ndarray, " all"]
    left_out: Int64[np.ndarray, " queries"]


def of_rows(
    metric: Metric,
    lengths: Float64[np.ndarray, " rows"],
    multiplied: Float64[np.ndarray, " rows"] | float,
    errors: Float64[np.ndarray, " rows"],
) -> Bounds:
    """Give what the bounds take from rows.

    Args:
        lengths: of the rows.
        multiplied: the lengths that they had when products were taken.
        errors: of the products with queries of length 1, as shares of those lengths.

    >>> of_rows("dot", np.array([2.0, 4.0]), 1.0, errors=np.zeros(2)).factors
    array([0.5, 1. ], dtype=float32)
    """
    there = lengths > 0
    share = there.astype(np.float64) if metric == "cosine" else lengths / (lengths.max() or 1.0)
    known = there & (errors < 1)  # otherwise nothing is known but that no product is larger than the lengths
    factors = np.divide(share, multiplied, out=np.zeros(len(lengths)), where=known)
    found = share * (np.where(known, errors, 1.0) + 16 * _UNIT) * (1 + 16 * _UNIT)
    if metric != "cosine":  # whose rows of length 0 have the score 0; others may be only too short for float64
        found += _SMALL
    return Bounds(factors.astype(np.float32), found.astype(np.float32), (share**2 / 2).astype(np.float32))


def rounding(
    lengths: Float64[np.ndarray, " rows"], mean: float, dim: int, scale: float
) -> Float64[np.ndarray, " rows"]:
    """Give the errors of products of float32, taken before the mean is, as shares of the rows' lengths.

    Sums of n products are off by no more than n roundings of |q| |x|, in whatever order they are taken.

    Args:
        mean: its length.
        scale: by which rows are multiplied first.
    """
    roundings = (dim + 8) * _UNIT
    if roundings >= 0.5:
        return np.full(len(lengths), np.inf)
    off = roundings / (1 - roundings) * (lengths + 2 * mean) * scale + (dim + 2) * _SMALL
    known = lengths * scale > _SMALL
    found: np.ndarray = np.divide(off, lengths * scale, out=np.full(len(lengths), np.inf), where=known)
    return found


def scale_for(longest: float) -> float:
    """Give the power of two that brings rows of this length where float32 multiplies them safely.

    >>> scale_for(100.0), scale_for(2.0**100)
    (1.0, 7.888609052210118e-31)
    """
    if longest == 0 or 1 / _SAFE <= longest <= _SAFE:
        return 1.0
    return float(2.0 ** -np.round(np.log2(longest)))


def weights(
    metric: Metric, lengths: Float64[np.ndarray, " queries"], longest: float, dim: int
) -> tuple[Float32[np.ndarray, " queries"], Float32[np.ndarray, " queries"], Float32[np.ndarray, " queries"]]:
    """Give alpha, beta and delta of queries of these lengths; `longest` is that of the rows.

    For the distance stands  <q, x> - |x|**2 / 2,  which falls as it grows. Distances are compared as float64 rounds
    them, which delta allows for.
    """
    if metric != "euclidean":
        return np.ones_like(lengths, np.float32), *np.zeros((2, len(lengths)), np.float32)
    times = np.clip(lengths / (longest or 1.0), 2.0**-120, 2.0**120)
    turned = 1 / times
    delta = 4 * (dim + 8) * _WIDE * (1 + times) * (1 + np.minimum(times, turned)) + _SMALL
    alpha, beta = np.minimum(times, 1.0), np.minimum(turned, 1.0)
    return alpha.astype(np.float32), beta.astype(np.float32), delta.astype(np.float32)


def shares(
    metric: Metric, lengths: Float64[np.ndarray, " queries"], longest: float
) -> tuple[Float64[np.ndarray, " queries"], Float64[np.ndarray, " queries"]]:
    """Give share and square of queries of these lengths; a share that float64 cannot tell is NaN.

    >>> shares("dot", np.array([2.0]), 4.0)[0]
    array([0.125])
    """
    if metric == "cosine":
        return np.ones(len(lengths)), np.zeros(len(lengths))
    by = lengths * longest
    if metric == "euclidean":
        by = 2 * np.maximum(lengths, longest) * longest
    share = np.divide(1.0, by, out=np.full(len(lengths), np.nan), where=by > _LEAST)
    return share, lengths**2
