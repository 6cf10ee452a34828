"""Scores of rows in float64, as sums in one order: a score depends on the row and the query alone.

nearest.cpp sums in the same order, so that its answers are these, to the bit; a matrix product promises no order.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

Metric = Literal["cosine", "dot", "euclidean"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")

LANES = 16
_BLOCK = 1 << 20
"""Numbers that are widened to float64 at a time."""


@dataclass(frozen=True, eq=False)
class Table:
    """Hold a table and what its rows are compared by.

    Args:
        numbers: (rows, dim), finite.
        mean: is taken from each row; None for nothing.
        metric: of METRICS.
        lengths: of the rows, less the mean.
    """

    numbers: np.ndarray
    mean: Float64[np.ndarray, " dim"] | None
    metric: Metric
    lengths: Float64[np.ndarray, " rows"]

    def scores(
        self, query: Float64[np.ndarray, " dim"], ids: Int64[np.ndarray, " some"]
    ) -> Float64[np.ndarray, " some"]:
        """Score some rows; the cosine takes a query of length 1."""
        found = np.empty(len(ids))
        step = max(1, _BLOCK // len(query))
        for first in range(0, len(ids), step):
            rows = widened(self.numbers[ids[first : first + step]], self.mean)
            if self.metric == "euclidean":
                found[first : first + step] = -np.sqrt(summed((rows - query) ** 2))
            else:
                found[first : first + step] = summed(rows * query)
        return ratio(found, self.lengths[ids]).clip(-1, 1) if self.metric == "cosine" else found


def summed(terms: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, " rows"]:
    """Sum each row in lanes, one after the other, and then the lanes by halves.

    >>> summed(np.ones((2, 40)))
    array([40., 40.])
    """
    rows, dim = terms.shape
    if rest := -dim % LANES:
        terms = np.concatenate([terms, np.zeros((rows, rest))], axis=1)
    lanes: np.ndarray = terms.reshape(rows, -1, LANES).sum(axis=1)
    while (half := lanes.shape[1] // 2) > 0:
        lanes = lanes[:, :half] + lanes[:, half:]
    total: np.ndarray = lanes[:, 0]
    return total


def lengths(numbers: np.ndarray, mean: Float64[np.ndarray, " dim"] | None = None) -> Float64[np.ndarray, " rows"]:
    """Give the length of each row, less the mean.

    >>> lengths(np.array([[3.0, 4.0]]))
    array([5.])
    """
    found = np.empty(len(numbers))
    step = max(1, _BLOCK // numbers.shape[1])
    for first in range(0, len(numbers), step):
        rows = widened(numbers[first : first + step], mean)
        with np.errstate(over="ignore"):
            found[first : first + step] = np.sqrt(summed(rows * rows))
    return found


def units(vectors: Float64[np.ndarray, "rows dim"]) -> tuple[np.ndarray, Float64[np.ndarray, " rows"]]:
    """Give each vector at length 1, and the length it had; what has none stays 0.

    >>> units(np.array([[3e-200, 4e-200]]))
    (array([[0.6, 0.8]]), array([5.e-200]))
    """
    _, shift = np.frexp(np.abs(vectors).max(axis=1))  # so that no square is too large or too small
    near = np.ldexp(vectors, -shift[:, None])
    size = lengths(near)
    with np.errstate(over="ignore"):
        return ratio(near, size[:, None]), np.ldexp(size, shift)


def widened(rows: np.ndarray, mean: Float64[np.ndarray, " dim"] | None) -> Float64[np.ndarray, "rows dim"]:
    """Give rows in float64, less the mean.

    >>> widened(np.ones((1, 2), np.float32), np.ones(2))
    array([[0., 0.]])
    """
    wide: np.ndarray = rows.astype(np.float64)
    return wide if mean is None else wide - mean


def ratio(numbers: Float64[np.ndarray, "*shape"], by: Float64[np.ndarray, "*#shape"]) -> Float64[np.ndarray, "*shape"]:
    """Divide, where 0 is left of what would be divided by 0.

    >>> ratio(np.array([1.0, 2.0]), np.array([4.0, 0.0]))
    array([0.25, 0.  ])
    """
    found: np.ndarray = np.divide(numbers, by, out=np.zeros_like(numbers), where=by > 0)
    return found
