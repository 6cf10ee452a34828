"""A copy of a table in eight bits: a quarter of a float32 table's bytes, and how far each row lies from the true one.

    row / |row| = step codes + rest        |<query, row> / (|query| |row|) - step <query / |query|, codes>| <= |rest|

A search for one row reads a whole table, so it reads the copy, and asks in sixteen bits. Many queries ask in eight,
where the processor multiplies those several times faster than float32. What a query's bits leave out is in the bounds.
The plain twin is a product of float32. Nothing here needs PyTorch.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from jaxtyping import Float32, Float64

from whatwhere.kernels import choice, library

POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64
Products = Iterator[tuple[int, Float32[np.ndarray, "queries some"]]]
"""The first row, and products of queries with the rows from there; then the next ones, in the same memory."""

_LINE = 64
_FINE, _COARSE = 32767, 127
_SUM = 2.0**24
"""Of the sizes of a query's numbers in sixteen bits: times 127 it fits 32 bits."""
_DIM, _DIM_COARSE = 1 << 20, 1 << 16
"""What the sums of 32 bits hold, and the bounds of their rests."""
_FEW, _FEW_ALONE = 8, 64
"""Queries that are asked in sixteen bits; more, where the processor has no fast way for eight."""
_ROUGH = 0.02
"""Rests of a copy in which so many rows would be scored again that float32 is faster for many queries."""
_PRODUCTS = 1 << 21
"""Of queries and rows, held at a time: 8 MB."""
_QUERIES, _ROWS = 12, 32
"""That coarse.cpp takes at a time."""
_FRESH = 32 << 20
"""Bytes from which glibc takes memory from the system each time; in huge pages that costs less."""


class TableAt(ctypes.Structure):
    """Say to kernels where a table is, as scan.h lays it out."""

    _fields_ = [
        *((name, POINTER) for name in ("numbers", "mean", "lengths")),
        *((name, NUMBER) for name in ("rows", "dim", "stride", "wide", "centered")),
    ]


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
        rows, self._dim = table.shape
        self._width = -(-self._dim // _LINE) * _LINE
        self._codes = _in_huge_pages(np.empty((rows, self._width), np.int8))
        self._steps, self._rests = np.empty((2, rows), np.float32)
        self.lengths = np.empty(rows)
        described = table_at(table, mean, self.lengths)
        run = kernel("scan_copy", POINTER, POINTER, POINTER, NUMBER, POINTER, POINTER, NUMBER)
        run(
            ctypes.addressof(described),
            at(self.lengths),
            at(self._codes),
            self._width,
            at(self._steps),
            at(self._rests),
            library.threads(),
        )
        step = max(1 / _FINE, np.sqrt(self._dim) / (_SUM - self._dim))
        self._errors = self._off(step * np.sqrt(self._dim) / 2)  # the same for all that is asked in sixteen bits
        self._many = _coarse_is_fast() and self._dim <= _DIM_COARSE and float(np.median(self._rests)) < _ROUGH

    def suits(self, queries: int) -> bool:
        """Tell whether so many queries are multiplied with the copy faster than with the table."""
        return self._many or queries <= _FEW_ALONE

    def products(self, units: Float64[np.ndarray, "queries dim"]) -> tuple[Float64[np.ndarray, " rows"], Products]:
        """Give products of queries and rows as of length 1, and how far off that of each row may be."""
        if self._many and len(units) > _FEW:
            return self._coarse(units)
        sizes = np.abs(units)
        steps = np.maximum(sizes.max(axis=1) / _FINE, sizes.sum(axis=1) / (_SUM - self._dim))
        return self._errors, self._by_rows("scan_products", (self._asked(units, steps, np.int16), _narrow(steps)))

    def _coarse(self, units: np.ndarray) -> tuple[np.ndarray, Products]:
        steps = np.abs(units).max(axis=1) / _COARSE
        asked = self._asked(units, steps, np.int8)
        left = units - asked[: len(units), : self._dim] * steps[:, None]
        raised = 128 * asked.sum(axis=1, dtype=np.int32)
        room = np.empty((library.threads(), _ROWS * self._width), np.int8)
        given = (asked, _narrow(steps), raised, room)
        return self._off(float(np.sqrt((left * left).sum(axis=1)).max())), self._by_rows("coarse_products", given)

    def _off(self, left: float) -> Float64[np.ndarray, " rows"]:
        """What a query left out meets the codes, and what these leave out meets the query."""
        rests = self._rests.astype(np.float64)
        found: np.ndarray = rests + left * (1.0 + rests)
        return found

    def _asked(self, units: np.ndarray, steps: np.ndarray, kind: type) -> np.ndarray:
        asked = np.zeros((-(-len(units) // _QUERIES) * _QUERIES, self._width), kind)
        asked[: len(units), : self._dim] = np.rint(units / np.where(steps > 0, steps, 1.0)[:, None])
        return asked

    def _by_rows(self, name: str, given: tuple[np.ndarray, ...]) -> Products:
        queries = len(given[1])
        run = kernel(name, *[POINTER] * (3 + len(given)), *[NUMBER] * 4)
        # No power of two, for then the products of all queries with a row would take the same places in the caches.
        step = max(_PRODUCTS // queries // 64 * 64, 256) + _ROWS
        products = np.empty(queries * min(step, len(self._codes)), np.float32)
        for first in range(0, len(self._codes), step):
            part = slice(first, first + step)
            found = products[: queries * len(self._codes[part])].reshape(queries, -1)
            arrays = (self._codes[part], self._steps[part], found, *given)
            run(*map(at, arrays), found.shape[1], queries, self._width, library.threads())
            yield first, found


def table_at(numbers: np.ndarray, mean: np.ndarray | None, lengths: np.ndarray) -> TableAt:
    """Give the place and form of a table."""
    stride, wide = numbers.strides[0] // numbers.itemsize, numbers.dtype == np.float64
    places = (at(numbers), 0 if mean is None else at(mean), at(lengths))
    return TableAt(*places, *numbers.shape, stride, wide, mean is not None)


def at(array: np.ndarray) -> int:
    """Give the address of an array, which must be kept as long as it is used."""
    return int(array.ctypes.data)


@cache
def kernel(name: str, *arguments: type) -> Callable[..., None]:
    """Give a kernel; `serves` tells whether there are any."""
    loaded = library.library()
    assert loaded is not None
    return loaded.function(name, *arguments)


def _narrow(steps: np.ndarray) -> Float32[np.ndarray, " queries"]:
    return steps.astype(np.float32)


def _coarse_is_fast() -> bool:
    can = np.zeros(1, np.int64)
    kernel("coarse_can", POINTER)(at(can))
    return bool(can[0])


def _in_huge_pages(fresh: np.ndarray) -> np.ndarray:
    loaded = library.library()
    if loaded is not None and fresh.nbytes >= _FRESH:
        loaded.shared("whatwhere_huge", POINTER, NUMBER)(at(fresh), fresh.nbytes)
    return fresh
