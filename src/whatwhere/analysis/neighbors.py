"""The rows of a table that are nearest to a vector: exact, by blocks, in the full space."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.errors import SettingError, ShapeError, TokenError

Metric = Literal["cosine", "dot", "euclidean"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")

_BLOCK = 8192
"""Rows scored at a time: their scores for a thousand queries are 32 MB."""
_QUERIES = 1024
_MANY = 4
_FLOAT32 = 2.0**-24


@dataclass(frozen=True, eq=False)
class Nearest:
    """Hold the nearest rows of each query, nearest first.

    Args:
        ids: of the rows.
        scores: cosine, inner product, or minus the euclidean distance: greater is nearer.
    """

    ids: Int64[np.ndarray, "queries k"]
    scores: Float[np.ndarray, "queries k"]


class Search:
    """Find the nearest rows of one table, again and again.

        cosine      <q, x> / (|q| |x|)        0 where a vector has length 0
        dot         <q, x>
        euclidean   -|q - x|

    Scores are found in float32, by blocks of rows; whatever rounding could have put in or out of the first k is then
    scored in float64. So the answer is that of float64, at the cost of float32, and the table is never copied.

    Args:
        table: one row for each token, finite numbers.
        metric: which of the above.
        centered: take the mean row from rows and queries first: a common direction, which many tables have, makes all
            of them alike.

    Equal scores stand in the order of their ids.

    >>> search = Search(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=np.float32))
    >>> search.nearest(np.array([[2.0, 1.0]]), k=2).ids
    array([[2, 0]])
    """

    def __init__(self, table: Float[np.ndarray, "rows dim"], metric: Metric = "cosine", centered: bool = False) -> None:
        if table.ndim != 2 or 0 in table.shape:
            raise ShapeError(f"a search needs a table of shape (rows, dim), but this one has {table.shape}.")
        if metric not in METRICS:
            raise SettingError(f"a search got metric={metric!r}, but knows only: {', '.join(METRICS)}.")
        self.table, self.metric, self.centered = table, metric, centered
        self.mean = _mean(table) if centered else np.zeros(table.shape[1])
        # |x - m| of each row, in float64: cosine divides by it, euclidean subtracts half its square.
        self.lengths = np.concatenate([np.linalg.norm(rows, axis=1) for _, rows in self._blocks(np.float64)])
        if not np.isfinite(self.lengths).all():
            broken = int(np.flatnonzero(~np.isfinite(self.lengths))[0])
            raise SettingError(
                f"row {broken} of the table holds numbers that are not finite, so that it is near to nothing.\n"
                "Leave such rows out: table[np.isfinite(table).all(axis=1)]."
            )

    def nearest(
        self,
        queries: Float[np.ndarray, "queries dim"],
        k: int = 10,
        without: Sequence[Sequence[int]] | None = None,
    ) -> Nearest:
        """Give the k nearest rows of each query.

        Args:
            queries: vectors of the table's dim; where the search is centered, they are centered here.
            k: how many, at least 1; as many as there are where the table has fewer.
            without: for each query, ids that are no answer, such as its own.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise SettingError(f"nearest got k={k!r}, but needs a whole number of at least 1.")
        if queries.ndim != 2 or queries.shape[1] != self.table.shape[1]:
            raise ShapeError(
                f"queries have shape {queries.shape}, but this table needs (queries, {self.table.shape[1]}).\n"
                "For one vector pass vector[None]."
            )
        if not np.isfinite(queries).all():
            raise SettingError("a query holds numbers that are not finite, so that nothing is near to it.")
        left_out = [set(map(int, ids)) for ids in without] if without is not None else [set()] * len(queries)
        if len(left_out) != len(queries):
            raise ShapeError(f"{len(left_out)} lists of ids to leave out do not fit {len(queries)} queries.")
        most = max(map(len, left_out), default=0)
        kept = min(k, len(self.table) - most) if most < len(self.table) else 0
        ids, scores = np.empty((len(queries), kept), np.int64), np.empty((len(queries), kept))
        for first in range(0, len(queries), _QUERIES):
            part = slice(first, first + _QUERIES)
            ids[part], scores[part] = self._nearest(queries[part], kept, left_out[part], most)
        return Nearest(ids, scores)

    def _nearest(
        self, queries: np.ndarray, k: int, left_out: list[set[int]], most: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find candidates in float32, k and those that may be left out of them, and score these in float64."""
        exact = queries.astype(np.float64) - self.mean
        lengths = np.linalg.norm(exact, axis=1)
        if self.metric == "cosine":
            exact /= np.where(lengths > 0, lengths, 1.0)[:, None]
        wanted = k + most
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
        for row, candidates in enumerate(self._candidates(exact, wanted)):
            allowed = candidates[~np.isin(candidates, list(left_out[row]))] if left_out[row] else candidates
            found = self._score(exact[row], allowed)
            best = np.lexsort((allowed, -found))[:k]
            ids[row], scores[row] = allowed[best], found[best]
        return ids, scores

    def _candidates(self, queries: np.ndarray, wanted: int) -> list[np.ndarray]:
        """Give, for each query, every row that float32 cannot tell from the first `wanted`."""
        narrow = queries.astype(np.float32)
        dim = queries.shape[1]
        # A float32 sum of dim products is off by at most dim units of the last place of |q| |x|; so is the mean's.
        reach = np.linalg.norm(queries, axis=1) * (2 * dim + 8) * _FLOAT32
        offset = (narrow.astype(np.float64) @ self.mean)[:, None].astype(np.float32)
        factor, added, size = self._terms()
        margin = (reach * size.max(initial=0.0))[:, None].astype(np.float32) * 2
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        least = np.full((len(queries), 1), -np.inf, np.float32)
        for first, rows in self._blocks(np.float32, centered=False):
            part = slice(first, first + len(rows))
            scores = narrow @ rows.T  # (queries, rows)
            if self.centered:
                scores -= offset
            if factor is not None:
                scores *= factor[part]
            if added is not None:
                scores += added[part]
            hits = scores >= least - margin
            # A selection costs ten times a comparison: it is made while it still throws most hits out.
            if len(rows) >= wanted and np.count_nonzero(hits) > _MANY * wanted * len(queries):
                least = np.maximum(least, np.partition(scores, -wanted, axis=1)[:, -wanted, None])
                hits = scores >= least - margin
            query, row = np.nonzero(hits)
            found.append((query, row + first, scores[query, row]))
        return _gathered(found, len(queries), wanted, margin[:, 0])

    def _terms(self) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
        """Give what a score is multiplied by, what is added to it, and the size that its rounding goes with."""
        raw = self.lengths + np.linalg.norm(self.mean)
        if self.metric == "cosine":
            inverse = np.where(self.lengths > 0, 1 / np.where(self.lengths > 0, self.lengths, 1.0), 0.0)
            return inverse.astype(np.float32), None, raw * inverse
        if self.metric == "euclidean":
            half = -0.5 * self.lengths**2
            return None, half.astype(np.float32), raw + np.abs(half)
        return None, None, raw

    def _score(self, query: np.ndarray, ids: np.ndarray) -> np.ndarray:
        rows = self.table[ids].astype(np.float64) - self.mean
        if self.metric == "euclidean":
            away: np.ndarray = -np.linalg.norm(rows - query, axis=1)
            return away
        inner: np.ndarray = rows @ query
        if self.metric == "dot":
            return inner
        lengths = self.lengths[ids]
        cosine: np.ndarray = np.where(lengths > 0, inner / np.where(lengths > 0, lengths, 1.0), 0.0).clip(-1, 1)
        return cosine

    def _blocks(self, dtype: Any, centered: bool = True) -> Any:
        for first in range(0, len(self.table), _BLOCK):
            rows = self.table[first : first + _BLOCK].astype(dtype, copy=False)
            yield first, rows - self.mean if centered and self.centered else rows


def _gathered(
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]], queries: int, wanted: int, margin: np.ndarray
) -> list[np.ndarray]:
    """Sort what the blocks gave by query, and keep what the last word on the threshold keeps."""
    query, row, score = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(query, kind="stable")
    row, score = row[order], score[order]
    ends = np.searchsorted(query[order], np.arange(1, queries + 1))
    kept = []
    for n, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        rows, scores = row[begin:end], score[begin:end]
        if len(rows) > wanted:
            least = np.partition(scores, -wanted)[-wanted] if wanted else np.inf
            rows = rows[scores >= least - margin[n]]
        kept.append(rows)
    return kept


def _mean(table: np.ndarray) -> Float[np.ndarray, " dim"]:
    total = np.zeros(table.shape[1])
    for first in range(0, len(table), _BLOCK):
        total += table[first : first + _BLOCK].sum(axis=0, dtype=np.float64)
    return total / len(table)


def neighbors(
    weight: Any,
    ids: Any,
    k: int = 10,
    *,
    metric: Metric = "cosine",
    centered: bool = False,
) -> Nearest:
    """Give the k rows of a table that are nearest to some of its own rows; a row is not its own neighbor.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        ids: of the rows asked about, a number or many.
        k, metric, centered: as in Search, which serves where one table is asked again and again.

    >>> table = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], dtype=np.float32)
    >>> neighbors(table, 0, k=1).ids
    array([[1]])
    """
    table = as_array(weight)
    asked = row_ids(ids, len(table)).ravel()
    return Search(table, metric, centered).nearest(table[asked], k, without=[[n] for n in asked.tolist()])


def as_array(values: Any) -> np.ndarray:
    """Give an array of a tensor, or of what is one already; sixteen bits become thirty-two."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.numpy() if values.element_size() >= 4 else values.float().numpy()
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def row_ids(ids: Any, rows: int) -> Int64[np.ndarray, "*shape"]:
    """Give ids as whole numbers, all of them rows of a table, or raise TokenError."""
    asked = np.atleast_1d(as_array(ids))
    if not np.issubdtype(asked.dtype, np.integer):
        raise TokenError(f"ids are whole numbers, but these are {asked.dtype}.")
    outside = asked[(asked < 0) | (asked >= rows)]
    if len(outside):
        raise TokenError(f"id {outside[0]} is outside the table, which has {rows} rows (0..{rows - 1}).")
    return asked.astype(np.int64)
