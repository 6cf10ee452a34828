"""Float64 scores of pairs of vectors, summed in one fixed order.

A matrix product has no fixed order of summation, so it may give equal rows different scores.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float64

Metric = Literal["cosine", "dot", "euclidean"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")

_LANES = 16
_NUMBERS = 1 << 20
"""Numbers that are converted to float64 at a time."""


def pair_scores(
    metric: Metric, queries: Float64[np.ndarray, "pairs dim"], rows: Float64[np.ndarray, "pairs dim"]
) -> Float64[np.ndarray, " pairs"]:
    """Return the score of each pair of a query and a row.

        cosine      <q, x> / |x|, for queries of norm 1 or 0; 0 where a vector is 0
        dot         <q, x>
        euclidean   -|q - x|

    Examples:
        >>> pair_scores("euclidean", np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]]))
        array([-5.])
    """
    if metric == "dot":
        return summed(queries * rows)
    if metric == "euclidean":
        distances: np.ndarray = np.sqrt(summed((rows - queries) ** 2))
        return -distances
    near, _ = _scaled(rows)
    return ratio(summed(near * queries), np.sqrt(summed(near * near))).clip(-1, 1)


def units(vectors: Float64[np.ndarray, "rows dim"]) -> tuple[np.ndarray, Float64[np.ndarray, " rows"]]:
    """Return vectors scaled to norm 1, and their norms; a zero vector stays 0.

    Examples:
        >>> units(np.array([[3e-200, 4e-200]]))
        (array([[0.6, 0.8]]), array([5.e-200]))
    """
    near, shift = _scaled(vectors)
    norms = np.sqrt(summed(near * near))
    with np.errstate(over="ignore"):
        return ratio(near, norms[:, None]), np.ldexp(norms, shift)


def norms(table: np.ndarray, mean: Float64[np.ndarray, " dim"] | None = None) -> Float64[np.ndarray, " rows"]:
    """Return the norm of each row, after subtracting the mean if there is one.

    Examples:
        >>> norms(np.array([[3.0, 4.0]], dtype=np.float32))
        array([5.])
    """
    sizes = np.empty(len(table))
    step = max(1, _NUMBERS // table.shape[1])
    for first in range(0, len(table), step):
        sizes[first : first + step] = units(widened(table[first : first + step], mean))[1]
    return sizes


def summed(terms: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, " rows"]:
    """Return the sum of each row, always in the same order: 16 running sums, which are then added pairwise.

    Examples:
        >>> summed(np.ones((2, 40)))
        array([40., 40.])
    """
    rows, dim = terms.shape
    if rest := -dim % _LANES:
        terms = np.concatenate([terms, np.zeros((rows, rest))], axis=1)
    lanes: np.ndarray = terms.reshape(rows, -1, _LANES).sum(axis=1)
    while (half := lanes.shape[1] // 2) > 0:
        lanes = lanes[:, :half] + lanes[:, half:]
    total: np.ndarray = lanes[:, 0]
    return total


def widened(rows: np.ndarray, mean: Float64[np.ndarray, " dim"] | None) -> Float64[np.ndarray, "rows dim"]:
    """Return rows in float64, after subtracting the mean if there is one.

    Examples:
        >>> widened(np.ones((1, 2), np.float32), np.ones(2))
        array([[0., 0.]])
    """
    wide: np.ndarray = rows.astype(np.float64)
    return wide if mean is None else wide - mean


def ratio(numbers: Float64[np.ndarray, "*shape"], by: Float64[np.ndarray, "*#shape"]) -> Float64[np.ndarray, "*shape"]:
    """Divide element by element; the result is 0 where the divisor is 0.

    Examples:
        >>> ratio(np.array([1.0, 2.0]), np.array([4.0, 0.0]))
        array([0.25, 0.  ])
    """
    quotient: np.ndarray = np.divide(numbers, by, out=np.zeros_like(numbers), where=by > 0)
    return quotient


def _scaled(vectors: Float64[np.ndarray, "rows dim"]) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors multiplied by powers of two so that no square overflows or underflows, and the exponents."""
    _, shift = np.frexp(np.abs(vectors).max(axis=1))
    return np.ldexp(vectors, -shift[:, None]), shift
