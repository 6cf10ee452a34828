"""Nearest rows by the compiled library: a copy of the table in eight bits, and the selection of nearest.py.

A search for one row reads a whole table. In eight bits it reads a quarter of a float32 table's bytes, and how far each
row of the copy lies from the true one is known; so the bounds hold, and the answers are those of float64.

    row / |row| = step codes + rest        |<query, row> / (|query| |row|) - step <query / |query|, codes>| <= |rest|

The plain twin is nearest.py, with products of float32. Nothing here needs PyTorch.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from jaxtyping import Float32, Float64, Int64

from whatwhere.kernels import choice, library
from whatwhere.kernels.bounds import Asked, Bounds
from whatwhere.kernels.exact import METRICS, Table

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_LINE = 64
_LARGEST = 32767
_SUM = 2.0**24
"""Of the sizes of a query's numbers: times 127 it fits 32 bits."""
_DIM = 1 << 20
_ROWS = 1 << 17
"""Products at a time, for each query."""
_ROOM = 512
"""Rows in waiting for each query, beside four for each answer."""
_FRESH = 32 << 20
"""Bytes from which glibc takes memory from the system each time; in huge pages that costs less."""


class _Table(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("numbers", "mean", "lengths")),
        *((name, _NUMBER) for name in ("rows", "dim", "stride", "wide", "centered")),
    ]


class _Search(ctypes.Structure):
    _fields_ = [
        ("table", _Table),
        *((name, _POINTER) for name in ("factors", "errors", "halves", "asked", "entries", "spare", "ids", "scores")),
        *((name, _NUMBER) for name in ("queries", "wanted", "room", "metric")),
    ]


_ASKED = np.dtype(
    [
        *((name, np.int64) for name in ("query", "without", "left_out")),
        *((name, np.float32) for name in ("offset", "alpha", "beta", "delta", "least")),
        ("blank", np.int32),
        *((name, np.int64) for name in ("count", "kept")),
    ]
)

_ENTRY = np.dtype([("low", np.float32), ("high", np.float32), ("id", np.int64)])


def serves(table: np.ndarray) -> bool:
    """Tell whether the kernels may read a table: float32 or float64, rows that are not torn, not asked not to.

    >>> serves(np.zeros((2, 3), np.int64))
    False
    """
    return (
        not choice.plain()
        and table.dtype in (np.float32, np.float64)
        and table.flags.aligned
        and (table.strides[1] == table.itemsize or table.shape[1] == 1)
        and table.strides[0] % table.itemsize == 0
        and table.shape[1] <= _DIM
        and library.library() is not None
    )


class Copy:
    """Hold the lengths of a table's rows, and the rows in eight bits, made in the same pass.

    Args:
        table: that `serves`.
        mean: is taken from each row; None for nothing.
    """

    def __init__(self, table: np.ndarray, mean: Float64[np.ndarray, " dim"] | None) -> None:
        rows, dim = table.shape
        self._width = -(-dim // _LINE) * _LINE
        self._codes = _in_huge_pages(np.empty((rows, self._width), np.int8))
        self._steps, rests = np.empty((2, rows), np.float32)
        self.lengths = np.empty(rows)
        described = _table(table, mean, self.lengths)
        kernel = _kernel("scan_copy", _POINTER, _POINTER, _POINTER, _NUMBER, _POINTER, _POINTER, _NUMBER)
        kernel(
            ctypes.addressof(described),
            _at(self.lengths),
            _at(self._codes),
            self._width,
            _at(self._steps),
            _at(rests),
            library.threads(),
        )
        # A query is asked in sixteen bits: what they leave of it meets the codes, and what these leave meets the query.
        left = max(1 / _LARGEST, np.sqrt(dim) / (_SUM - dim)) * np.sqrt(dim) / 2
        self.errors: Float64[np.ndarray, " rows"] = rests + left * (1.0 + rests)

    def products(
        self, units: Float64[np.ndarray, "queries dim"]
    ) -> Iterator[tuple[int, Float32[np.ndarray, "queries some"]]]:
        """Give a first row and products of the rows from there, as of length 1, off by `errors` at most; and so on."""
        queries, dim = units.shape
        sizes = np.abs(units)
        steps = np.maximum(sizes.max(axis=1) / _LARGEST, sizes.sum(axis=1) / (_SUM - dim))
        asked = np.zeros((queries, self._width), np.int16)
        asked[:, :dim] = np.rint(units / np.where(steps > 0, steps, 1.0)[:, None])
        scales = steps.astype(np.float32)
        kernel = _kernel("scan_products", *[_POINTER] * 5, *[_NUMBER] * 4)
        for first in range(0, len(self._codes), _ROWS):
            codes, of_rows = self._codes[first : first + _ROWS], self._steps[first : first + _ROWS]
            found = np.empty((queries, len(codes)), np.float32)
            parts = (codes, of_rows, asked, scales, found)
            kernel(*map(_at, parts), len(codes), queries, self._width, library.threads())
            yield first, found


class Selection:
    """Select the best rows for each query as nearest.Selection does, with the same answers."""

    def __init__(self, table: Table, bounds: Bounds, asked: Asked, wanted: int) -> None:
        queries, rows = len(asked.queries), len(table.numbers)
        room = min(_ROOM + 4 * wanted, rows + 1)
        self._ids, self._scores = np.empty((queries, wanted), np.int64), np.empty((queries, wanted))
        described = _table(table.numbers, table.mean, table.lengths)
        entries, spare = np.empty((queries, room), _ENTRY), np.empty((queries, room))
        state, held = _state(asked)
        arrays = (bounds.factors, bounds.errors, bounds.halves, state, entries, spare, self._ids, self._scores)
        self._search = _Search(described, *map(_at, arrays), queries, wanted, room, METRICS.index(table.metric))
        self._held = (table, asked, held, arrays)  # what the pointers point to

    def take(self, products: Float32[np.ndarray, "queries some"], first: int) -> None:
        """Take some rows into account, from the row `first`."""
        kernel = _kernel("nearest_select", _POINTER, _POINTER, *[_NUMBER] * 4)
        stride, count = products.strides[0] // products.itemsize, products.shape[1]
        kernel(ctypes.addressof(self._search), _at(products), stride, first, count, library.threads())

    def answers(self) -> tuple[Int64[np.ndarray, "queries wanted"], Float64[np.ndarray, "queries wanted"]]:
        """Give ids and scores, the best first, and of equal ones the lowest id."""
        _kernel("nearest_finish", _POINTER, _NUMBER)(ctypes.addressof(self._search), library.threads())
        return self._ids, self._scores


def _state(asked: Asked) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Give what the kernel keeps of each query, and what that points to."""
    queries = np.ascontiguousarray(asked.queries)
    without = np.ascontiguousarray(asked.without)
    state = np.zeros(len(queries), _ASKED)
    state["query"] = _at(queries) + np.arange(len(queries)) * queries.strides[0]
    state["without"] = _at(without) + (np.cumsum(asked.left_out) - asked.left_out) * without.itemsize
    for name in ("left_out", "offset", "alpha", "beta", "delta", "blank"):
        state[name] = getattr(asked, name)
    state["least"] = -np.inf
    return state, (queries, without)


def _table(numbers: np.ndarray, mean: np.ndarray | None, lengths: np.ndarray) -> _Table:
    stride, wide = numbers.strides[0] // numbers.itemsize, numbers.dtype == np.float64
    places = (_at(numbers), 0 if mean is None else _at(mean), _at(lengths))
    return _Table(*places, *numbers.shape, stride, wide, mean is not None)


def _at(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def _in_huge_pages(fresh: np.ndarray) -> np.ndarray:
    loaded = library.library()
    if loaded is not None and fresh.nbytes >= _FRESH:
        loaded.shared("whatwhere_huge", _POINTER, _NUMBER)(_at(fresh), fresh.nbytes)
    return fresh


@cache
def _kernel(name: str, *arguments: type) -> Callable[..., None]:
    loaded = library.library()
    assert loaded is not None  # as `serves` has found
    return loaded.function(name, *arguments)
