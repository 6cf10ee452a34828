"""Calls of one implementation of a bias, compared with its formula."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from whatwhere.errors import ShapeError
from whatwhere.testing import harness
from whatwhere.testing.expected_bias import Expected, compare, explain_bias
from whatwhere.testing.harness import ImplementationError, Measurement, NotSupported, contiguous
from whatwhere.where.base import as_finite

BLOCK, WIDTH, SHIFT = 20, 160, 1_000
FAR = 8_191
"""A position far from 0, where a bias computed from positions instead of distances is large."""

Block = tuple[Int64[Tensor, " queries"], Int64[Tensor, " keys"]]


@dataclass(frozen=True, eq=False)
class BiasProbe:
    """An implementation of a bias and what is expected of it.

    Args:
        fn: (query_positions, key_positions) -> (heads, queries, keys).
        num_heads: heads.
        expected: the formula; None where it is not known.
        causal: whether keys later than the query are ignored.
        last: the last position that it supports.
        device: of its inputs.
    """

    fn: Callable[..., Tensor]
    num_heads: int
    expected: Expected | None
    causal: bool
    last: int
    device: torch.device

    @property
    def width(self) -> int:
        """How many keys the first call has."""
        return min(WIDTH, (self.last + 1) // 2)

    @property
    def shift(self) -> int:
        """By how much positions are shifted first."""
        return min(SHIFT, self.last + 1 - self.width)

    @property
    def block(self) -> Block:
        """The last queries of a sequence and all of its keys; the middle ones where later keys count too."""
        end = self.width if self.causal else (self.width + BLOCK) // 2
        return torch.arange(end - BLOCK, end), torch.arange(self.width)

    @property
    def far_block(self) -> Block:
        """Consecutive positions that bfloat16 cannot distinguish."""
        keys = contiguous(FAR, BLOCK, self.last)
        return keys[-3:], keys

    def distances(self, queries: Tensor, keys: Tensor) -> Int64[Tensor, "queries keys"]:
        """Return query minus key."""
        return queries[:, None] - keys

    def allowed(self, queries: Tensor, keys: Tensor) -> Bool[Tensor, "queries keys"]:
        """Return which pairs attention uses."""
        distances = self.distances(queries, keys)
        return distances >= 0 if self.causal else torch.ones_like(distances, dtype=torch.bool)

    def call_unchecked(
        self, queries: Tensor, keys: Tensor, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads queries keys"]:
        """Call the implementation with copies on its device, and return the table on the CPU, cast to `dtype`.

        Raises:
            ImplementationError: it raised, or the result has a wrong shape, or is not of floating point.
        """
        inputs = (index.to(self.device, copy=True) for index in (queries, keys))
        cast_by_fn = dtype is not None and _takes_dtype(self.fn)
        fn = partial(self.fn, dtype=dtype) if cast_by_fn else self.fn
        result = harness.call(fn, *inputs)
        shape = (self.num_heads, len(queries), len(keys))
        table = harness.require_shape(result, shape, "(heads, queries, keys)").cpu()
        if not table.is_floating_point():
            raise ImplementationError(f"it returned {table.dtype}, but a table of floating point is needed")
        if dtype is None or cast_by_fn:
            return table if dtype is None else table.to(dtype)
        return torch.where(table.isfinite(), as_finite(table, dtype), table.to(dtype))

    def call(
        self, queries: Tensor, keys: Tensor, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads queries keys"]:
        """Call the implementation, and raise NotSupported where the result has infinite numbers to compare."""
        table = self.call_unchecked(queries, keys, dtype)
        if not table[:, self.allowed(queries, keys)].isfinite().all():
            raise NotSupported("not all numbers that attention uses are finite, as the law `finite` reports")
        return table

    def compare(self, queries: Tensor, keys: Tensor) -> Measurement:
        """Return the errors against the formula at these positions."""
        if self.expected is None:
            raise NotSupported("no formula was passed: pass expected=")
        table, allowed = self.call(queries, keys), self.allowed(queries, keys)
        expected = self.expected.at(queries, keys)
        if expected.shape != table.shape:
            raise ShapeError(
                f"check_bias got an `expected` that returns the shape {tuple(expected.shape)}, but needs "
                f"(heads, queries, keys), here {tuple(table.shape)}."
            )
        note = partial(explain_bias, self.expected, table, queries, keys, allowed)
        return compare(table, expected, self.distances(queries, keys), allowed, note=note)

    @cached_property
    def first(self) -> Measurement:
        """The errors at the first positions; cached, since other laws depend on them."""
        return self.compare(*self.block)

    def require_correct(self) -> None:
        """Raise NotSupported where the formula is not known, or fails from the start."""
        if self.first.exceeded.any():
            raise NotSupported("the law `formula` fails already")


def _takes_dtype(fn: Callable[..., Tensor]) -> bool:
    """Return whether a function has a parameter `dtype`."""
    try:
        return "dtype" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
