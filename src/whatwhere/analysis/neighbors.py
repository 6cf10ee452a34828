"""The rows of a table that are nearest to a vector: exact, by blocks, in the full space."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.kernels import bounds, exact, nearest, scan, selection
from whatwhere.kernels.exact import METRICS as METRICS
from whatwhere.kernels.exact import Metric as Metric

_BLOCK = 4096
_PRODUCTS = 1 << 22
"""Of float32, held at a time: 16 MB; at least those of _BLOCK rows."""
_QUERIES = 1024
_ANSWERS = 1 << 21
"""Of a block of queries, all together; four rows wait for each."""
_LONGEST = 1e150
"""Longer vectors have squares beyond float64."""


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

    All rows are scored roughly, each with a bound of its error that holds (Cauchy and Schwarz); whatever can be among
    the first k is then scored in float64. So the answers are those of float64, equal scores in the order of their ids.

    Queries read a copy of the table in eight bits, a quarter of a float32 table's bytes; many of them are multiplied in
    float32, by blocks, where the processor has no faster way for eight bits. The copy is made here, with the lengths of
    the rows, in one pass over the table. Where no kernels were compiled there is none, and the answers are the same.

    Args:
        table: one row for each token, finite numbers; it is not copied otherwise, and must not change.
        metric: which of the above.
        centered: take the mean row from rows and queries first: a common direction, which many tables have, makes all
            of them alike.

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
        mean = self.mean if centered else None
        self._copy = scan.Copy(table, mean) if scan.serves(table) else None
        # |x - m| of each row, in float64.
        self.lengths = exact.lengths(table, mean) if self._copy is None else self._copy.lengths
        self._refuse_broken()
        self._table = exact.Table(table, mean, metric, self.lengths)
        self._longest, self._far = float(self.lengths.max()), float(np.linalg.norm(self.mean))
        self._scale = bounds.scale_for(self._longest + self._far)
        self._last: tuple[np.ndarray, bounds.Bounds] | None = None

    def nearest(
        self,
        queries: Float[np.ndarray, "queries dim"],
        k: int = 10,
        without: Sequence[Sequence[int]] | Int64[np.ndarray, "queries some"] | None = None,
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
        if without is not None and len(without) != len(queries):
            raise ShapeError(f"{len(without)} lists of ids to leave out do not fit {len(queries)} queries.")
        without_ids, left_out = _left_out(() if without is None else without, len(queries), len(self.table))
        kept = min(k, len(self.table) - int(left_out.max(initial=0)))
        ids, scores = np.empty((len(queries), kept), np.int64), np.empty((len(queries), kept))
        ends = np.cumsum(left_out)
        step = max(1, min(_QUERIES, _ANSWERS // max(1, kept)))
        for first in range(0, len(queries) if kept else 0, step):
            part = slice(first, first + step)
            own = without_ids[ends[first] - left_out[first] : ends[part][-1]]
            ids[part], scores[part] = self._nearest(queries[part], kept, own, left_out[part])
        return Nearest(ids, scores)

    def _nearest(
        self, queries: np.ndarray, k: int, without: Int64[np.ndarray, " all"], left_out: Int64[np.ndarray, " queries"]
    ) -> tuple[np.ndarray, np.ndarray]:
        wide = exact.widened(queries, self.mean if self.centered else None)
        units, lengths = exact.units(wide)
        if lengths.max() > _LONGEST:
            raise SettingError(f"a query is longer than {_LONGEST:.0e}, so that float64 cannot hold its scores.")
        compiled = scan.serves(self.table)
        copy = self._copy if compiled and self._copy and self._copy.suits(len(queries)) else None
        errors, products = copy.products(units) if copy else (self._roundings, self._products(units))
        asked = bounds.Asked(
            units if self.metric == "cosine" else wide,
            *bounds.shares(self.metric, lengths, self._longest),
            ((units @ self.mean) * (0.0 if copy else self._scale)).astype(np.float32),
            *bounds.weights(self.metric, lengths, self._longest, queries.shape[1]),
            (lengths == 0) & (self.metric != "euclidean"),
            without,
            left_out,
        )
        kind = selection.Selection if compiled else nearest.Selection
        found = kind(self._table, self._bounds(errors, copy is not None), asked, k)
        for first, some in products:
            found.take(some, first)
        return found.answers()

    def _products(self, units: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Give products of float32 with the rows as they are, a block at a time, in the same memory."""
        narrow = units.astype(np.float32)
        step = min(max(_BLOCK, _PRODUCTS // len(units)), len(self.table))
        room = np.empty(len(units) * step, np.float32)
        for first in range(0, len(self.table), step):
            rows = self.table[first : first + step]
            if self._scale != 1:
                rows = rows.astype(np.float64) * self._scale
            products = room[: len(units) * len(rows)].reshape(len(units), len(rows))
            yield first, np.matmul(narrow, rows.astype(np.float32, copy=False).T, out=products)

    @cached_property
    def _roundings(self) -> np.ndarray:
        return bounds.rounding(self.lengths, self._far, self.table.shape[1], self._scale)

    def _bounds(self, errors: np.ndarray, unit: bool) -> bounds.Bounds:
        """Give the rows' part of the bounds; for the same errors as before it is there already."""
        before = self._last  # read once, for another thread may put its own there
        if before is None or before[0] is not errors:
            multiplied = 1.0 if unit else self.lengths * self._scale
            before = self._last = (errors, bounds.of_rows(self.metric, self.lengths, multiplied, errors))
        return before[1]

    def _refuse_broken(self) -> None:
        broken = np.flatnonzero(~(self.lengths <= _LONGEST))
        if not len(broken):
            return
        if np.isfinite(self.table[broken[0]]).all():
            raise SettingError(
                f"row {broken[0]} of the table is longer than {_LONGEST:.0e}, so that float64 cannot hold its scores.\n"
                "Divide the table by its largest number."
            )
        raise SettingError(
            f"row {broken[0]} of the table holds numbers that are not finite, so that it is near to nothing.\n"
            "Leave such rows out: table[np.isfinite(table).all(axis=1)]."
        )


def _left_out(
    without: Sequence[Sequence[int]] | np.ndarray, queries: int, rows: int
) -> tuple[Int64[np.ndarray, " all"], Int64[np.ndarray, " queries"]]:
    """Give ids that are no answers, query by query, rising, each once and in the table; and how many each query has."""
    counts = np.fromiter(map(len, without), np.int64, len(without))
    ids = np.fromiter(chain.from_iterable(without), np.int64, int(counts.sum()))
    query = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((ids, query))
    ids, query = ids[order], query[order]
    first = np.ones(len(ids), bool)
    first[1:] = (np.diff(ids) != 0) | (np.diff(query) != 0)
    first &= (ids >= 0) & (ids < rows)
    return ids[first], np.bincount(query[first], minlength=queries)


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
