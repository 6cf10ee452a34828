"""The nearest rows: those that may be among them by the bounds of bounds.py, scored as exact.py scores.

This is the plain twin of nearest.cpp, in NumPy.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float32, Float64, Int64

from whatwhere.kernels.bounds import Asked, Bounds
from whatwhere.kernels.exact import Table

_MANY = 4
_ROUNDED = np.float32(2.0**-20)
"""More than the roundings of a bound come to."""


class Selection:
    """Select the `wanted` best rows for each query, as the products of queries and rows come in.

    Args:
        wanted: as many rows as that must remain without those that are no answer.
    """

    def __init__(self, table: Table, bounds: Bounds, asked: Asked, wanted: int) -> None:
        self._table, self._bounds, self._asked, self._wanted = table, bounds, asked, wanted
        self._most = wanted + int(asked.left_out.max())
        self._least = np.full(len(asked.queries), -np.inf, np.float32)
        self._least[asked.blank] = np.inf
        self._found: list[tuple[np.ndarray, ...]] = []  # query, row, low, high

    def take(self, products: Float32[np.ndarray, "queries some"], first: int) -> None:
        """Take some rows into account, from the row `first`."""
        rows = slice(first, first + products.shape[1])
        middle = self._middle(products, rows)
        errors, halves = self._bounds.errors[rows], self._bounds.halves[rows]
        reach = self._error(slice(None), errors.max(keepdims=True), halves.max(keepdims=True))[:, None]
        hits = middle >= self._least[:, None] - reach
        # A selection costs ten times a comparison: it is made while it still throws most hits out.
        if middle.shape[1] >= self._most and np.count_nonzero(hits) > _MANY * self._most * len(middle):
            self._least = np.maximum(
                self._least, (np.partition(middle, -self._most)[:, -self._most, None] - reach)[:, 0]
            )
            hits = middle >= self._least[:, None] - reach
        query, row = np.nonzero(hits)
        error = self._error(query, errors[row], halves[row])
        low, high = middle[query, row] - error, middle[query, row] + error
        close = high >= self._least[query]
        self._found.append((query[close], row[close] + first, low[close], high[close]))

    def answers(self) -> tuple[Int64[np.ndarray, "queries wanted"], Float64[np.ndarray, "queries wanted"]]:
        """Give ids and scores, the best first, and of equal ones the lowest id."""
        asked, wanted = self._asked, self._wanted
        ids = np.empty((len(asked.queries), wanted), np.int64)
        scores = np.empty(ids.shape)
        ends = np.cumsum(asked.left_out)
        for n, candidates in enumerate(self._candidates()):
            left_out = asked.without[ends[n] - asked.left_out[n] : ends[n]]
            allowed = candidates[~np.isin(candidates, left_out)] if len(left_out) else candidates
            found = self._table.scores(asked.queries[n], allowed)
            best = np.lexsort((allowed, -found))[:wanted]
            ids[n], scores[n] = allowed[best], found[best]
        return ids, scores

    def _middle(self, products: Float32[np.ndarray, "queries some"], rows: slice) -> np.ndarray:
        asked = self._asked
        middle = products - asked.offset[:, None] if asked.offset.any() else products
        scaled: np.ndarray = middle * self._bounds.factors[rows]
        if self._table.metric != "euclidean":
            return scaled
        weighed: np.ndarray = asked.alpha[:, None] * scaled - asked.beta[:, None] * self._bounds.halves[rows]
        return weighed

    def _error(self, query: slice | np.ndarray, error: np.ndarray, half: np.ndarray) -> np.ndarray:
        asked = self._asked
        found: np.ndarray = asked.alpha[query] * error + asked.beta[query] * half * _ROUNDED + asked.delta[query]
        return found * (1 + _ROUNDED)

    def _candidates(self) -> Iterator[np.ndarray]:
        """Give, for each query, every row that may be among the best: what the last word on the threshold leaves."""
        query, row, low, high = (np.concatenate(parts) for parts in zip(*self._found, strict=True))
        order = np.argsort(query, kind="stable")
        ends = np.searchsorted(query[order], np.arange(1, len(self._least) + 1))
        for n, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if self._asked.blank[n]:
                yield np.arange(self._most)
                continue
            part = order[begin:end]
            if len(part) > self._most:
                part = part[high[part] >= np.partition(low[part], -self._most)[-self._most]]
            yield row[part]
