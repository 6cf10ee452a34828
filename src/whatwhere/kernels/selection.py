"""The selection of nearest.py by the compiled library: the same answers, to the bit."""

import ctypes

import numpy as np
from jaxtyping import Float32, Float64, Int64

from whatwhere.kernels import library
from whatwhere.kernels.bounds import Asked, Bounds
from whatwhere.kernels.exact import METRICS, Table
from whatwhere.kernels.scan import NUMBER, POINTER, TableAt, at, kernel, table_at

_ROOM = 2048
"""Rows in waiting for each query, beside four for each answer."""


class _Search(ctypes.Structure):
    _fields_ = [
        ("table", TableAt),
        *((name, POINTER) for name in ("factors", "errors", "halves", "asked", "entries", "spare", "ids", "scores")),
        *((name, NUMBER) for name in ("queries", "wanted", "room", "metric")),
    ]


_ASKED = np.dtype(
    [
        ("query", np.int64),
        *((name, np.float64) for name in ("share", "square")),
        *((name, np.int64) for name in ("without", "left_out")),
        *((name, np.float32) for name in ("offset", "alpha", "beta", "delta", "least")),
        ("blank", np.int32),
        *((name, np.int64) for name in ("count", "kept", "due")),
    ]
)

_ENTRY = np.dtype([("low", np.float32), ("high", np.float32), ("id", np.int64)])


class Selection:
    """Select the best rows for each query as nearest.Selection does, with the same answers."""

    def __init__(self, table: Table, bounds: Bounds, asked: Asked, wanted: int) -> None:
        queries, rows = len(asked.queries), len(table.numbers)
        room = min(_ROOM + 4 * wanted, rows + 1)
        self._ids, self._scores = np.empty((queries, wanted), np.int64), np.empty((queries, wanted))
        described = table_at(table.numbers, table.mean, table.lengths)
        entries, spare = np.empty((queries, room), _ENTRY), np.empty((queries, room))
        state, held = _state(asked)
        arrays = (bounds.factors, bounds.errors, bounds.halves, state, entries, spare, self._ids, self._scores)
        self._search = _Search(described, *map(at, arrays), queries, wanted, room, METRICS.index(table.metric))
        self._held = (table, asked, held, arrays)  # what the pointers point to

    def take(self, products: Float32[np.ndarray, "queries some"], first: int) -> None:
        """Take some rows into account, from the row `first`."""
        select = kernel("nearest_select", POINTER, POINTER, *[NUMBER] * 4)
        stride, count = products.strides[0] // products.itemsize, products.shape[1]
        select(ctypes.addressof(self._search), at(products), stride, first, count, library.threads())

    def answers(self) -> tuple[Int64[np.ndarray, "queries wanted"], Float64[np.ndarray, "queries wanted"]]:
        """Give ids and scores, the best first, and of equal ones the lowest id."""
        kernel("nearest_finish", POINTER, NUMBER)(ctypes.addressof(self._search), library.threads())
        return self._ids, self._scores


def _state(asked: Asked) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Give what the kernel keeps of each query, and what that points to."""
    queries = np.ascontiguousarray(asked.queries)
    without = np.ascontiguousarray(asked.without)
    state = np.zeros(len(queries), _ASKED)
    state["query"] = at(queries) + np.arange(len(queries)) * queries.strides[0]
    state["without"] = at(without) + (np.cumsum(asked.left_out) - asked.left_out) * without.itemsize
    for name in ("share", "square", "left_out", "offset", "alpha", "beta", "delta", "blank"):
        state[name] = getattr(asked, name)
    state["least"], state["due"] = -np.inf, 1
    return state, (queries, without)
