"""Exact nearest neighbors: the rows with the highest cosine, inner product or lowest distance; and word analogies.

Scores are summed in float64 in one fixed order: a matrix product has none, so it may give equal rows different scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int64

from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.large_arrays import new_array, row_blocks

Metric = Literal["cosine", "dot", "euclidean"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")
Rule = Literal["add", "multiply"]
RULES: tuple[Rule, ...] = ("add", "multiply")

_LANES = 16
_BLOCK = 4096
_PRODUCTS = 1 << 22  # inner products computed at a time, in float32: 16 MB; at least those of _BLOCK rows
_QUERIES = 1024
_ANSWERS = 1 << 21  # neighbors of a block of queries, all together
_CANDIDATES = 1 << 22  # candidates of a block of queries, which are scored in float64; with more, the block is halved
_GROUP = 16  # inner products of which only the largest is used for the threshold
_WIDE_NUMBERS = 1 << 20  # numbers widened to float64 at a time
_MAX_NORM = 1e150  # squares of larger norms overflow in float64
_SAFE_NORM = 2.0**30  # rows whose norms are between its inverse and this are multiplied in float32 without scaling
_UNIT_ROUNDOFF = 2.0**-24  # the relative error of a rounding in float32


def pair_scores(
    metric: Metric, queries: Float64[np.ndarray, "pairs dim"], rows: Float64[np.ndarray, "pairs dim"]
) -> Float64[np.ndarray, " pairs"]:
    """Return the score of each pair of a query and a row: see Search; queries have norm 1 or 0 for the cosine."""
    if metric == "dot":
        return summed(queries * rows)
    if metric == "euclidean":
        distances: np.ndarray = np.sqrt(summed((rows - queries) ** 2))
        return -distances
    near, _ = _scaled(rows)
    return _ratio(summed(near * queries), np.sqrt(summed(near * near))).clip(-1, 1)


def units(vectors: Float64[np.ndarray, "rows dim"]) -> tuple[np.ndarray, Float64[np.ndarray, " rows"]]:
    """Return vectors scaled to norm 1, and their norms; a zero vector stays 0."""
    near, shift = _scaled(vectors)
    norms = np.sqrt(summed(near * near))
    with np.errstate(over="ignore"):
        return _ratio(near, norms[:, None]), np.ldexp(norms, shift)


def norms(table: np.ndarray, mean: Float64[np.ndarray, " dim"] | None = None) -> Float64[np.ndarray, " rows"]:
    """Return the norm of each row, after subtracting the mean if there is one."""
    sizes = np.empty(len(table))
    step = max(1, _WIDE_NUMBERS // table.shape[1])
    for first in range(0, len(table), step):
        sizes[first : first + step] = units(widened(table[first : first + step], mean))[1]
    return sizes


def summed(terms: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, " rows"]:
    """Return the sum of each row, always in the same order: 16 running sums, which are then added pairwise."""
    rows, dim = terms.shape
    if rest := -dim % _LANES:
        terms = np.concatenate([terms, np.zeros((rows, rest))], axis=1)
    lanes: np.ndarray = terms.reshape(rows, -1, _LANES).sum(axis=1)
    while (half := lanes.shape[1] // 2) > 0:
        lanes = lanes[:, :half] + lanes[:, half:]
    total: np.ndarray = lanes[:, 0]
    return total


def widened(rows: np.ndarray, mean: Float64[np.ndarray, " dim"] | None) -> Float64[np.ndarray, "rows dim"]:
    """Return rows in float64, after subtracting the mean if there is one."""
    wide: np.ndarray = rows.astype(np.float64)
    return wide if mean is None else wide - mean


def _ratio(numbers: Float64[np.ndarray, "*shape"], by: Float64[np.ndarray, "*#shape"]) -> Float64[np.ndarray, "*shape"]:
    """Divide element by element; the result is 0 where the divisor is 0."""
    quotient: np.ndarray = np.divide(numbers, by, out=np.zeros_like(numbers), where=by > 0)
    return quotient


def _scaled(vectors: Float64[np.ndarray, "rows dim"]) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors multiplied by powers of two so that no square overflows or underflows, and the exponents."""
    _, shift = np.frexp(np.abs(vectors).max(axis=1))
    return np.ldexp(vectors, -shift[:, None]), shift


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest rows of each query, nearest first: their ids, and scores, of which the larger is nearer."""

    ids: Int64[np.ndarray, "queries k"]
    scores: Float[np.ndarray, "queries k"]


class Search:
    """A prepared search for the nearest rows of one table.

        cosine      <q, x> / (|q| |x|)        0 where a vector is 0
        dot         <q, x>
        euclidean   -|q - x|

    Blocks of rows are multiplied by the queries in float32. A bound of the rounding errors (Cauchy-Schwarz) determines
    the rows that can be among the first k, and only these candidates are scored in float64, in one fixed order of
    summation. The result is the same as that of scoring every row in float64; equal scores are in the order of ids.

    Args:
        table: one row for each token, finite numbers. It must not be modified. It is copied only if it is not float32,
            is centered, or has rows whose norm is outside of 2**-30 .. 2**30.
        metric: one of the three above.
        centered: subtract the mean row from rows and queries first: many tables have a common direction, which makes
            all cosines large.

    Raises:
        ShapeError: If the table is not two-dimensional, or empty.
        SettingError: If the metric is unknown, or a row is not finite or its norm above 1e150.

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
        self._require_finite(sizes)
        self._max_norm = float(sizes.max())
        relative = np.ones(len(sizes)) if metric == "cosine" else _ratio(sizes, np.full(len(sizes), self._max_norm))
        unscaled = table.dtype == np.float32 and not centered and bool((_safe(sizes) | (sizes == 0)).all())
        self._rows = table if unscaled else self._unit_rows()
        self._factors = (_ratio(relative, sizes) if unscaled else relative).astype(np.float32)
        self._relative_norms = relative.astype(np.float32)
        roundings = (2 * table.shape[1] + 32) * _UNIT_ROUNDOFF
        self._error = roundings / (1 - roundings) if roundings < 0.5 else 1e30
        """Bound of the error of a float32 product of two unit vectors, summed in any order, with a margin."""

    def nearest(
        self,
        queries: Float[np.ndarray, "queries dim"],
        k: int = 10,
        without: Sequence[Sequence[int]] | Int64[np.ndarray, "queries some"] | None = None,
    ) -> Nearest:
        """Return the k nearest rows of each query, nearest first.

        Args:
            queries: vectors of the table's dim; where the search is centered, they are centered here.
            k: number of neighbors, at least 1; a smaller table returns all of its rows.
            without: ids to exclude from the result of each query, such as its own.

        Raises:
            ShapeError: If the queries do not fit the table, or `without` the queries.
            SettingError: If k is below 1, or a query is not finite or its norm above 1e150.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise SettingError(f"nearest got k={k!r}, but needs a whole number of at least 1.")
        if queries.ndim != 2 or queries.shape[1] != self.table.shape[1]:
            raise ShapeError(
                f"queries have shape {queries.shape}, but this table needs (queries, {self.table.shape[1]}).\n"
                "For one vector pass vector[None]."
            )
        if not np.isfinite(queries).all():
            raise SettingError("a query holds numbers that are not finite, so it has no neighbors.")
        if without is not None and len(without) != len(queries):
            raise ShapeError(f"{len(without)} lists of excluded ids do not fit {len(queries)} queries.")
        excluded = _pairs(() if without is None else without, len(self.table))
        max_excluded = int(np.bincount(excluded // len(self.table), minlength=1).max())
        k = min(k, len(self.table) - max_excluded)
        ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
        step = max(1, min(_QUERIES, _ANSWERS // max(1, k)))
        for first in range(0, len(queries) if k else 0, step):
            part = slice(first, first + step)
            ids[part], scores[part] = self._nearest(queries[part], k, max_excluded, excluded - first * len(self.table))
        return Nearest(ids, scores)

    def unit_rows(self, ids: Int64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape dim"]:
        """Return rows scaled to norm 1, after the mean was subtracted if the search is centered; zero rows stay 0."""
        rows, _ = units(self._wide(self.table[ids.ravel()]))
        return rows.reshape(*ids.shape, -1)

    def _nearest(
        self, queries: np.ndarray, k: int, max_excluded: int, excluded: Int64[np.ndarray, " pairs"]
    ) -> tuple[np.ndarray, np.ndarray]:
        wide = self._wide(queries)
        directions, sizes = units(wide)
        if sizes.max() > _MAX_NORM:
            raise SettingError(f"a query has a norm above {_MAX_NORM:.0e}, so its scores would overflow in float64.")
        pairs = self._candidates(directions.astype(np.float32), sizes, k + max_excluded)
        if len(pairs) > _CANDIDATES and len(queries) > 1:
            half = len(queries) // 2
            first = self._nearest(queries[:half], k, max_excluded, excluded)
            second = self._nearest(queries[half:], k, max_excluded, excluded - half * len(self.table))
            return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])
        if max_excluded:
            pairs = pairs[~np.isin(pairs, excluded)]
        query, row = np.divmod(pairs, len(self.table))
        exact = self._scores(directions if self.metric == "cosine" else wide, query, row)
        order = np.lexsort((row, -exact, query))
        best = order[np.searchsorted(query[order], np.arange(len(queries)))[:, None] + np.arange(k)]
        return row[best], exact[best]

    def _candidates(
        self, directions: Float32[np.ndarray, "queries dim"], sizes: Float64[np.ndarray, " queries"], most: int
    ) -> Int64[np.ndarray, " pairs"]:
        """Return query * rows + row for each row that can be among the first `most` of its query."""
        blank = (sizes == 0) & (self.metric != "euclidean")  # all scores are 0, so the first rows win
        candidates = [(np.flatnonzero(blank)[:, None] * len(self.table) + np.arange(most)).ravel()]
        highs = [np.full(len(candidates[0]), np.inf, np.float32)]
        lows = np.full((len(sizes), most), -np.inf, np.float32)  # of the best so far
        least = np.where(blank, np.inf, -np.inf).astype(np.float32)
        step = min(max(_BLOCK, _PRODUCTS // len(sizes)), len(self.table))
        for part in row_blocks(len(self.table), step):
            middle, errors = self._bounds(directions, sizes, part)
            margin = errors.max(axis=1, keepdims=True)
            lows = np.concatenate([lows, _greatest_of_groups(middle, most) - margin], axis=1)
            lows = np.partition(lows, -most, axis=1)[:, -most:]  # the largest, the smallest of them first
            least = np.maximum(least, lows[:, 0])
            with np.errstate(invalid="ignore"):
                hits = np.flatnonzero(middle >= least[:, None] - margin)
            query, row = np.divmod(hits, middle.shape[1])
            candidates.append(query * len(self.table) + row + part.start)
            highs.append(middle.ravel()[hits] + errors[query, row if errors.shape[1] > 1 else 0])
        pairs, high = np.concatenate(candidates), np.concatenate(highs)
        chosen: np.ndarray = pairs[high >= least[pairs // len(self.table)]]
        return chosen

    def _bounds(
        self, directions: Float32[np.ndarray, "queries dim"], sizes: Float64[np.ndarray, " queries"], rows: slice
    ) -> tuple[Float32[np.ndarray, "queries some"], np.ndarray]:
        """Return values in the order of the scores, computed in float32, and bounds of their errors.

        With R the largest norm of a row, and r = |x| / R:

            cosine      <q, x> / (|q| |x|)
            dot         <q, x> / (|q| |x|) r
            euclidean   alpha <q, x> / (|q| |x|) r - beta r**2 / 2            alpha : beta = |q| : R

        The last decreases with the distance, as |q - x|**2 = |q|**2 - 2 <q, x> + |x|**2. The bounds are for the float64
        scores as computed, with all their roundings and underflows; there is one for each query, or for each pair.
        """
        middle = np.matmul(directions, self._rows[rows].T)
        middle *= self._factors[rows]
        if self.metric == "cosine":
            return middle, np.full((len(sizes), 1), self._error, np.float32)
        share, dim = self._relative_norms[rows], self.table.shape[1]
        with np.errstate(all="ignore"):  # what overflows becomes infinite, and such a bound holds
            largest = np.maximum(sizes, self._max_norm) if self.metric == "euclidean" else sizes
            largest = np.where(largest > 0, largest, 1.0)
            spare = 2.0**-100 + dim * 2.0**-1070 / (largest * self._max_norm)
            if self.metric == "euclidean":
                spare += (dim + 8) * 2.0**-52 * (sizes + self._max_norm) ** 2 / (largest * self._max_norm)
            spare = np.nan_to_num(spare, nan=np.inf, posinf=np.inf)[:, None].astype(np.float32)
            if self.metric == "dot":
                return middle, self._error * share + spare
            alpha, beta = ((part / largest).astype(np.float32)[:, None] for part in (sizes, self._max_norm))
            middle *= alpha
            middle -= beta * (share**2 / 2)
            errors = alpha * (self._error * share)
            errors += beta * (self._error * share**2)
            errors += spare
            return middle, errors

    def _scores(
        self, queries: Float64[np.ndarray, "queries dim"], query: np.ndarray, row: np.ndarray
    ) -> Float64[np.ndarray, " pairs"]:
        exact = np.empty(len(row))
        step = max(1, _WIDE_NUMBERS // queries.shape[1])
        for first in range(0, len(row), step):
            part = slice(first, first + step)
            exact[part] = pair_scores(self.metric, queries[query[part]], self._wide(self.table[row[part]]))
        return exact

    def _wide(self, rows: np.ndarray) -> Float64[np.ndarray, "some dim"]:
        return widened(rows, self.mean if self.centered else None)

    def _norms(self) -> Float64[np.ndarray, " rows"]:
        """Return the norm of each row: roughly where float32 can sum its squares, otherwise in float64."""
        squares = np.zeros(len(self.table), np.float32)
        if self.table.dtype == np.float32 and not self.centered:
            with np.errstate(all="ignore"):
                squares = np.einsum("ij,ij->i", self.table, self.table)
        sizes: np.ndarray = np.sqrt(squares.astype(np.float64))
        odd = np.flatnonzero(~_safe(sizes))
        with np.errstate(all="ignore"):  # norms that are not finite are rejected
            for part in row_blocks(len(odd), max(1, _WIDE_NUMBERS // self.table.shape[1])):
                sizes[odd[part]] = norms(self.table[odd[part]], self.mean if self.centered else None)
        return sizes

    def _unit_rows(self) -> Float32[np.ndarray, "rows dim"]:
        rows = new_array(self.table.shape, np.float32)
        for part in row_blocks(len(rows), max(1, _WIDE_NUMBERS // self.table.shape[1])):
            rows[part] = units(self._wide(self.table[part]))[0]
        return rows

    def _require_finite(self, sizes: Float64[np.ndarray, " rows"]) -> None:
        broken = np.flatnonzero(~(sizes <= _MAX_NORM))
        if not len(broken):
            return
        if np.isfinite(self.table[broken[0]]).all():
            raise SettingError(
                f"row {broken[0]} of the table has a norm above {_MAX_NORM:.0e}, so scores would overflow in float64.\n"
                "Divide the table by its largest number."
            )
        raise SettingError(
            f"row {broken[0]} of the table holds numbers that are not finite, so it has no neighbors.\n"
            "Remove such rows: table[np.isfinite(table).all(axis=1)]."
        )


def _safe(sizes: Float64[np.ndarray, " rows"]) -> Bool[np.ndarray, " rows"]:
    return (sizes >= 1 / _SAFE_NORM) & (sizes <= _SAFE_NORM)


def _greatest_of_groups(numbers: Float32[np.ndarray, "queries rows"], most: int) -> Float32[np.ndarray, "queries some"]:
    """Return the largest number of each group of rows: cheaper than sorting, and as good for a threshold."""
    group = min(_GROUP, max(1, numbers.shape[1] // (4 * most)))
    count = numbers.shape[1] // group
    greatest: np.ndarray = numbers[:, : count * group].reshape(len(numbers), group, count).max(axis=1)
    return greatest


def _pairs(without: Sequence[Sequence[int]] | np.ndarray, rows: int) -> Int64[np.ndarray, " pairs"]:
    """Return query * rows + id for each excluded id of a query, each once; ids outside of the table are ignored."""
    counts = np.fromiter(map(len, without), np.int64, len(without))
    ids = np.fromiter(chain.from_iterable(without), np.int64, int(counts.sum()))
    query = np.repeat(np.arange(len(counts)), counts)
    inside = (ids >= 0) & (ids < rows)
    return np.unique(query[inside] * rows + ids[inside])


def _mean(table: np.ndarray) -> Float64[np.ndarray, " dim"]:
    total = np.zeros(table.shape[1])
    for part in row_blocks(len(table), max(1, _WIDE_NUMBERS // table.shape[1])):
        total += table[part].sum(axis=0, dtype=np.float64)
    return total / len(table)


def neighbors(weight: Any, ids: Any, k: int = 10, *, metric: Metric = "cosine", centered: bool = False) -> Nearest:
    """Return the k nearest neighbors of rows of a table, among its other rows, nearest first.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        ids: of the query rows, one or many.
        k: number of neighbors of each.
        metric, centered: as in Search, which is faster for many calls with one table.

    Raises:
        TokenError: If an id is not a row of the table.
        ShapeError, SettingError: As Search raises them.

    Examples:
        >>> table = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], dtype=np.float32)
        >>> neighbors(table, 0, k=1).ids
        array([[1]])
    """
    table = as_array(weight)
    rows = row_ids(ids, len(table)).ravel()
    return Search(table, metric, centered).nearest(table[rows], k, without=[[row] for row in rows.tolist()])


def as_array(values: Any) -> np.ndarray:
    """Return a tensor or array-like as a NumPy array; half precision and bfloat16 become float32."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.numpy() if values.element_size() >= 4 else values.float().numpy()
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def row_ids(ids: Any, rows: int) -> Int64[np.ndarray, "*shape"]:
    """Return ids as an int64 array; raise TokenError unless all are rows of a table."""
    numbers = np.atleast_1d(as_array(ids))
    if not np.issubdtype(numbers.dtype, np.integer):
        raise TokenError(f"ids are whole numbers, but these are {numbers.dtype}.")
    outside = numbers[(numbers < 0) | (numbers >= rows)]
    if len(outside):
        raise TokenError(f"id {outside[0]} is outside the table, which has {rows} rows (0..{rows - 1}).")
    return numbers.astype(np.int64)


# Word analogies

_EPSILON = 1e-3  # Levy and Goldberg's, which prevents a division by zero
_TOLERANCE = 1e-6  # above the rounding error of the score, which is up to a million times that of a cosine


@dataclass(frozen=True, eq=False)
class Analogy:
    """The answers to one question, without its own three words as candidates, and with them."""

    without_inputs: Nearest
    with_inputs: Nearest


def analogy(weight: Any, a: int, b: int, c: int, k: int = 10, *, rule: Rule = "add", centered: bool = False) -> Analogy:
    """Return the k rows that best complete `a is to b as c is to ...`, with and without a, b and c.

        add         argmax_x  cos(x, b/|b| - a/|a| + c/|c|)                    3CosAdd, Mikolov et al. 2013
        multiply    argmax_x  s(x, b) s(x, c) / (s(x, a) + 0.001)              3CosMul, Levy and Goldberg 2014
                              with s = (cos + 1) / 2

    https://aclanthology.org/N13-1090, https://aclanthology.org/W14-1618.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        a, b, c: ids.
        k: number of answers.
        rule: `add` or `multiply`, see above.
        centered: subtract the mean row first.

    Raises:
        TokenError: If an id is not a row of the table.
        SettingError: If the rule is unknown.

    Examples:
        >>> table = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
        >>> analogy(table, 0, 1, 2, k=1).without_inputs.ids
        array([[3]])
    """
    search = Search(as_array(weight), "cosine", centered)
    return Analogy(answers(search, [a, b, c], k, rule), answers(search, [a, b, c], k, rule, inputs=True))


def answers(search: Search, question: Sequence[int], k: int, rule: Rule, inputs: bool = False) -> Nearest:
    """Return the k rows that best answer a question, as in `analogy`."""
    if rule not in RULES:
        raise SettingError(f"analogies got rule={rule!r}, but need one of: {', '.join(RULES)}.")
    if search.metric != "cosine":
        raise SettingError(f"analogies need a search by cosine, but this one is by {search.metric}.")
    units = search.unit_rows(row_ids(question, len(search.table)))  # (3, dim)
    if rule == "add":
        a, b, c = units
        # The search subtracts the mean from its queries, but these are centered already: add it first.
        return search.nearest((b - a + c)[None] + search.mean, k, None if inputs else [question])
    return _by_product(search, units, k, [] if inputs else question)


def _by_product(search: Search, units: np.ndarray, k: int, without: Sequence[int]) -> Nearest:
    """Return the best rows by 3CosMul, in float64; those near the k-th best are summed again in one fixed order."""
    k = min(k, len(search.table) - len(set(without)))
    if not k:
        return Nearest(np.empty((1, 0), np.int64), np.empty((1, 0)))
    product = np.empty(len(search.table))
    for first in range(0, len(product), _BLOCK):
        rows = search.unit_rows(np.arange(first, min(first + _BLOCK, len(product))))
        product[first : first + _BLOCK] = _combine(*(rows @ word for word in units))
    product[list(without)] = -np.inf
    near = np.flatnonzero(product >= np.partition(product, -k)[-k] - _TOLERANCE)
    rows = search.unit_rows(near)
    exact = _combine(*(summed(rows * word) for word in units))
    best = np.lexsort((near, -exact))[:k]
    return Nearest(near[best][None], exact[best][None])


def _combine(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Float64[np.ndarray, "*shape"]:
    a, b, c = ((1 + cosine) / 2 for cosine in (a, b, c))
    score: np.ndarray = b * c / (a + _EPSILON)
    return score
