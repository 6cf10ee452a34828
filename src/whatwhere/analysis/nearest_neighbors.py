"""The rows of a table that are nearest to a vector: exact, in the full space."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from whatwhere.analysis.exact_scores import METRICS as METRICS
from whatwhere.analysis.exact_scores import Metric as Metric
from whatwhere.analysis.exact_scores import norms, ratio, scores, units, widened
from whatwhere.errors import SettingError, ShapeError, TokenError

_BLOCK = 4096
_PRODUCTS = 1 << 22
"""Products computed at a time, in float32: 16 MB; at least those of _BLOCK rows."""
_QUERIES = 1024
_ANSWERS = 1 << 21
"""Answers of a block of queries, all together."""
_CANDIDATES = 1 << 22
"""Rows to score in float64 of a block of queries; where there are more, the block is halved."""
_GROUP = 16
"""Products of which only the greatest counts for the threshold."""
_WIDE_NUMBERS = 1 << 20
"""Numbers widened to float64 at a time."""
_LONGEST = 1e150
"""Vectors of a greater norm have squares beyond float64."""
_SAFE = 2.0**30
"""Rows of norms up to this, and down to its inverse, are multiplied in float32 as they are."""
_UNIT = 2.0**-24
"""Of float32: the relative error of a rounding."""


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest rows of each query, nearest first.

    Args:
        ids: of the rows.
        scores: cosine, inner product, or minus the euclidean distance: greater is nearer.
    """

    ids: Int64[np.ndarray, "queries k"]
    scores: Float[np.ndarray, "queries k"]


class Search:
    """Find the nearest rows of one table, again and again.

        cosine      <q, x> / (|q| |x|)        0 where a vector is 0
        dot         <q, x>
        euclidean   -|q - x|

    Blocks of rows are multiplied with the queries in float32. Rounding errors are bounded (Cauchy-Schwarz), so every
    row that can be among the first k is known, and these few are scored in float64, in one order of summation. So
    the answers are those of scoring every row in float64, equal scores in the order of their ids.

    Args:
        table: one row for each token, finite numbers. It must not change. It is copied only if it is not float32, is
            centered, or has rows whose norm is outside of 2**-30 .. 2**30.
        metric: which of the above.
        centered: subtract the mean row from rows and queries first: a common direction, which many tables have, makes
            all of them alike.

    Raises:
        ShapeError: if the table is not two-dimensional, or empty.
        SettingError: if the metric is unknown, or a row is not finite or its norm above 1e150.

    Examples:
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
        sizes = self._norms()
        self._refuse_broken(sizes)
        self._longest = float(sizes.max())
        share = np.ones(len(sizes)) if metric == "cosine" else ratio(sizes, np.full(len(sizes), self._longest))
        as_it_is = table.dtype == np.float32 and not centered and bool((_safe(sizes) | (sizes == 0)).all())
        self._rows = table if as_it_is else self._unit_rows()
        self._factors = (ratio(share, sizes) if as_it_is else share).astype(np.float32)
        self._shares = share.astype(np.float32)
        roundings = (2 * table.shape[1] + 32) * _UNIT
        self._error = roundings / (1 - roundings) if roundings < 0.5 else 1e30
        """Of a product of a query and a row of norm 1: of the norms, of the sum, whatever its order, and to spare."""

    def nearest(
        self,
        queries: Float[np.ndarray, "queries dim"],
        k: int = 10,
        without: Sequence[Sequence[int]] | Int64[np.ndarray, "queries some"] | None = None,
    ) -> Nearest:
        """Return the k nearest rows of each query.

        Args:
            queries: vectors of the table's dim; where the search is centered, they are centered here.
            k: how many, at least 1; as many as there are where the table has fewer.
            without: for each query, ids that are no answer, such as its own.

        Raises:
            ShapeError: if the queries do not fit the table, or `without` the queries.
            SettingError: if k is below 1, or a query is not finite or its norm above 1e150.
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
        left_out = _pairs(() if without is None else without, len(self.table))
        most = int(np.bincount(left_out // len(self.table), minlength=1).max())
        kept = min(k, len(self.table) - most)
        ids, found = np.empty((len(queries), kept), np.int64), np.empty((len(queries), kept))
        step = max(1, min(_QUERIES, _ANSWERS // max(1, kept)))
        for first in range(0, len(queries) if kept else 0, step):
            part = slice(first, first + step)
            ids[part], found[part] = self._nearest(queries[part], kept, most, left_out - first * len(self.table))
        return Nearest(ids, found)

    def unit_rows(self, ids: Int64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape dim"]:
        """Return rows divided by their norms, minus the mean where the search is centered; a zero row stays 0."""
        rows, _ = units(self._wide(self.table[ids.ravel()]))
        return rows.reshape(*ids.shape, -1)

    def _nearest(
        self, queries: np.ndarray, k: int, left_out: int, pairs_left_out: Int64[np.ndarray, " pairs"]
    ) -> tuple[np.ndarray, np.ndarray]:
        wide = self._wide(queries)
        directions, sizes = units(wide)
        if sizes.max() > _LONGEST:
            raise SettingError(f"a query is longer than {_LONGEST:.0e}, so that float64 cannot hold its scores.")
        pairs = self._candidates(directions.astype(np.float32), sizes, k + left_out)
        if len(pairs) > _CANDIDATES and len(queries) > 1:
            half = len(queries) // 2
            rest = pairs_left_out - half * len(self.table)
            parts = (queries[:half], pairs_left_out), (queries[half:], rest)
            found = [self._nearest(part, k, left_out, pairs) for part, pairs in parts]
            return np.concatenate([found[0][0], found[1][0]]), np.concatenate([found[0][1], found[1][1]])
        if left_out:
            pairs = pairs[~np.isin(pairs, pairs_left_out)]
        query, row = np.divmod(pairs, len(self.table))
        exact = self._scores(directions if self.metric == "cosine" else wide, query, row)
        order = np.lexsort((row, -exact, query))
        best = order[np.searchsorted(query[order], np.arange(len(queries)))[:, None] + np.arange(k)]
        return row[best], exact[best]

    def _candidates(
        self, directions: Float32[np.ndarray, "queries dim"], sizes: Float64[np.ndarray, " queries"], most: int
    ) -> Int64[np.ndarray, " pairs"]:
        """Return query * rows + row of all that can be among the first `most` rows of their query."""
        blank = (sizes == 0) & (self.metric != "euclidean")  # all scores are 0, so the first rows win
        found = [(np.flatnonzero(blank)[:, None] * len(self.table) + np.arange(most)).ravel()]
        highs = [np.full(len(found[0]), np.inf, np.float32)]
        lows = np.full((len(sizes), most), -np.inf, np.float32)  # of the best so far
        least = np.where(blank, np.inf, -np.inf).astype(np.float32)
        step = min(max(_BLOCK, _PRODUCTS // len(sizes)), len(self.table))
        for first in range(0, len(self.table), step):
            middle, errors = self._bounds(directions, sizes, slice(first, first + step))
            reach = errors.max(axis=1, keepdims=True)
            lows = _greatest(np.concatenate([lows, _greatest_of_groups(middle, most) - reach], axis=1), most)
            least = np.maximum(least, lows[:, 0])
            with np.errstate(invalid="ignore"):
                hits = np.flatnonzero(middle >= least[:, None] - reach)
            query, row = np.divmod(hits, middle.shape[1])
            found.append(query * len(self.table) + row + first)
            highs.append(middle.ravel()[hits] + errors[query, row if errors.shape[1] > 1 else 0])
        pairs, high = np.concatenate(found), np.concatenate(highs)
        chosen: np.ndarray = pairs[high >= least[pairs // len(self.table)]]
        return chosen

    def _bounds(
        self, directions: Float32[np.ndarray, "queries dim"], sizes: Float64[np.ndarray, " queries"], rows: slice
    ) -> tuple[Float32[np.ndarray, "queries some"], np.ndarray]:
        """Return what scores are ordered by, computed in float32, and bounds of its errors, for all rows or for each.

        With r = |x| / longest, the norm of a row as a share of the longest:

            cosine      <q, x> / (|q| |x|)
            dot         <q, x> / (|q| |x|) r
            euclidean   alpha <q, x> / (|q| |x|) r - beta r**2 / 2            alpha : beta = |q| : longest

        The last falls with the distance, as |q - x|**2 = |q|**2 - 2 <q, x> + |x|**2. The bounds hold against the
        float64 scores as computed, with all their roundings and underflows.
        """
        middle = np.matmul(directions, self._rows[rows].T)
        middle *= self._factors[rows]
        if self.metric == "cosine":
            return middle, np.full((len(sizes), 1), self._error, np.float32)
        share, dim = self._shares[rows], self.table.shape[1]
        with np.errstate(all="ignore"):  # what overflows becomes infinite, and such a bound holds
            largest = np.maximum(sizes, self._longest) if self.metric == "euclidean" else sizes
            largest = np.where(largest > 0, largest, 1.0)
            spare = 2.0**-100 + dim * 2.0**-1070 / (largest * self._longest)
            if self.metric == "euclidean":
                spare += (dim + 8) * 2.0**-52 * (sizes + self._longest) ** 2 / (largest * self._longest)
            spare = np.nan_to_num(spare, nan=np.inf, posinf=np.inf)[:, None].astype(np.float32)
            if self.metric == "dot":
                return middle, self._error * share + spare
            alpha, beta = ((part / largest).astype(np.float32)[:, None] for part in (sizes, self._longest))
            middle *= alpha
            middle -= beta * (share**2 / 2)
            return middle, (alpha * (self._error * share) + beta * (self._error * share**2)) + spare

    def _scores(
        self, queries: Float64[np.ndarray, "queries dim"], query: np.ndarray, row: np.ndarray
    ) -> Float64[np.ndarray, " pairs"]:
        found = np.empty(len(row))
        step = max(1, _WIDE_NUMBERS // queries.shape[1])
        for first in range(0, len(row), step):
            part = slice(first, first + step)
            found[part] = scores(self.metric, queries[query[part]], self._wide(self.table[row[part]]))
        return found

    def _wide(self, rows: np.ndarray) -> Float64[np.ndarray, "some dim"]:
        return widened(rows, self.mean if self.centered else None)

    def _norms(self) -> Float64[np.ndarray, " rows"]:
        """Return the norm of each row: roughly where float32 can sum its squares, otherwise in float64."""
        squares = np.zeros(len(self.table), np.float32)
        if self.table.dtype == np.float32 and not self.centered:
            with np.errstate(all="ignore"):
                squares = np.einsum("ij,ij->i", self.table, self.table)
        found: np.ndarray = np.sqrt(squares.astype(np.float64))
        odd = ~_safe(found)
        with np.errstate(all="ignore"):  # norms that are not finite are refused
            found[odd] = norms(self.table[odd], self.mean if self.centered else None)
        return found

    def _unit_rows(self) -> Float32[np.ndarray, "rows dim"]:
        found = np.empty(self.table.shape, np.float32)
        step = max(1, _WIDE_NUMBERS // self.table.shape[1])
        for first in range(0, len(found), step):
            found[first : first + step] = units(self._wide(self.table[first : first + step]))[0]
        return found

    def _refuse_broken(self, sizes: Float64[np.ndarray, " rows"]) -> None:
        broken = np.flatnonzero(~(sizes <= _LONGEST))
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


def _safe(sizes: Float64[np.ndarray, " rows"]) -> Bool[np.ndarray, " rows"]:
    return (sizes >= 1 / _SAFE) & (sizes <= _SAFE)


def _greatest(numbers: Float32[np.ndarray, "queries all"], most: int) -> Float32[np.ndarray, "queries most"]:
    """Return the greatest numbers of each query, the least of them first."""
    return np.partition(numbers, -most, axis=1)[:, -most:]


def _greatest_of_groups(numbers: Float32[np.ndarray, "queries rows"], most: int) -> Float32[np.ndarray, "queries some"]:
    """Return the greatest number of each of some groups: cheaper than sorting, and as good for a threshold."""
    group = min(_GROUP, max(1, numbers.shape[1] // (4 * most)))
    count = numbers.shape[1] // group
    greatest: np.ndarray = numbers[:, : count * group].reshape(len(numbers), group, count).max(axis=1)
    return greatest


def _pairs(without: Sequence[Sequence[int]] | np.ndarray, rows: int) -> Int64[np.ndarray, " pairs"]:
    """Return query * rows + id of all ids that are no answer, each once, without those outside of the table."""
    counts = np.fromiter(map(len, without), np.int64, len(without))
    ids = np.fromiter(chain.from_iterable(without), np.int64, int(counts.sum()))
    query = np.repeat(np.arange(len(counts)), counts)
    inside = (ids >= 0) & (ids < rows)
    return np.unique(query[inside] * rows + ids[inside])


def _mean(table: np.ndarray) -> Float64[np.ndarray, " dim"]:
    total = np.zeros(table.shape[1])
    step = max(1, _WIDE_NUMBERS // table.shape[1])
    for first in range(0, len(table), step):
        total += table[first : first + step].sum(axis=0, dtype=np.float64)
    return total / len(table)


def neighbors(
    weight: Any,
    ids: Any,
    k: int = 10,
    *,
    metric: Metric = "cosine",
    centered: bool = False,
) -> Nearest:
    """Return the k rows of a table that are nearest to some of its own rows; a row is not its own neighbor.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        ids: of the rows asked about, a number or many.
        k, metric, centered: as in Search, which serves where one table is asked again and again.

    Examples:
        >>> table = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], dtype=np.float32)
        >>> neighbors(table, 0, k=1).ids
        array([[1]])
    """
    table = as_array(weight)
    asked = row_ids(ids, len(table)).ravel()
    return Search(table, metric, centered).nearest(table[asked], k, without=[[n] for n in asked.tolist()])


def as_array(values: Any) -> np.ndarray:
    """Return an array of a tensor, or of what is one already; sixteen bits become thirty-two."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.numpy() if values.element_size() >= 4 else values.float().numpy()
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def row_ids(ids: Any, rows: int) -> Int64[np.ndarray, "*shape"]:
    """Return ids as whole numbers, all of them rows of a table, or raise TokenError."""
    asked = np.atleast_1d(as_array(ids))
    if not np.issubdtype(asked.dtype, np.integer):
        raise TokenError(f"ids are whole numbers, but these are {asked.dtype}.")
    outside = asked[(asked < 0) | (asked >= rows)]
    if len(outside):
        raise TokenError(f"id {outside[0]} is outside the table, which has {rows} rows (0..{rows - 1}).")
    return asked.astype(np.int64)
