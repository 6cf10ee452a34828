"""One implementation of a bias, asked."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from whatwhere.errors import ShapeError
from whatwhere.testing import probe
from whatwhere.testing.probe import Faulty, Measured, NotOffered, stretch
from whatwhere.testing.tables import Expected, compare, told_bias

BLOCK, WIDTH, SHIFT = 20, 160, 1_000
AFAR = 8_191
"""A position far from the beginning, where a bias made of positions instead of distances is large."""

Block = tuple[Int64[Tensor, " queries"], Int64[Tensor, " keys"]]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Hold one implementation beside what is expected of it."""

    fn: Callable[..., Tensor]
    num_heads: int
    expected: Expected | None
    causal: bool
    longest: int
    device: torch.device

    @property
    def width(self) -> int:
        """How many keys the first question has."""
        return min(WIDTH, (self.longest + 1) // 2)

    @property
    def shift(self) -> int:
        """How far positions are moved first."""
        return min(SHIFT, self.longest + 1 - self.width)

    @property
    def block(self) -> Block:
        """The last queries of a sequence and all of its keys; the middle ones where later keys count too."""
        end = self.width if self.causal else (self.width + BLOCK) // 2
        return torch.arange(end - BLOCK, end), torch.arange(self.width)

    @property
    def far_block(self) -> Block:
        """Neighbors where bfloat16 does not tell positions apart."""
        keys = stretch(AFAR, BLOCK, self.longest)
        return keys[-3:], keys

    def distances(self, queries: Tensor, keys: Tensor) -> Int64[Tensor, "queries keys"]:
        """Give query minus key."""
        return queries[:, None] - keys

    def allowed(self, queries: Tensor, keys: Tensor) -> Bool[Tensor, "queries keys"]:
        """Tell which pairs count."""
        distances = self.distances(queries, keys)
        return distances >= 0 if self.causal else torch.ones_like(distances, dtype=torch.bool)

    def ask_plainly(
        self, queries: Tensor, keys: Tensor, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads queries keys"]:
        """Call the implementation with copies on its device; give what it says on the CPU."""
        given = (index.to(self.device, copy=True) for index in (queries, keys))
        options: dict[str, Any] = {"dtype": dtype} if dtype is not None and _takes_dtype(self.fn) else {}
        answer = probe.ask(self.fn, *given, **options)
        shape = (self.num_heads, len(queries), len(keys))
        table = probe.require_shape(answer, shape, "(heads, queries, keys)").cpu()
        if not table.is_floating_point():
            raise Faulty(f"it gave {table.dtype}, but a number of floating point is needed for each pair")
        return table if dtype is None else table.to(dtype)

    def ask(
        self, queries: Tensor, keys: Tensor, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads queries keys"]:
        """Call it where numbers are compared, which infinite ones cannot be."""
        table = self.ask_plainly(queries, keys, dtype)
        if not table[:, self.allowed(queries, keys)].isfinite().all():
            raise NotOffered("not all numbers are finite where attention may look, as the law `finite` says")
        return table

    def against(self, queries: Tensor, keys: Tensor) -> Measured:
        """Compare with what is expected."""
        if self.expected is None:
            raise NotOffered("no formula was given: pass expected=")
        table, allowed = self.ask(queries, keys), self.allowed(queries, keys)
        wanted = self.expected.at(queries, keys)
        if wanted.shape != table.shape:
            raise ShapeError(
                f"check_bias got an `expected` that gives shape {tuple(wanted.shape)}, but (heads, queries, keys) is "
                f"needed, here {tuple(table.shape)}."
            )
        note = partial(told_bias, self.expected, table, queries, keys, allowed)
        return compare(table, wanted, self.distances(queries, keys), allowed, note=note)

    @cached_property
    def first(self) -> Measured:
        """Compare with what is expected at the first positions; kept, since other laws ask whether it is right."""
        return self.against(*self.block)

    def require_right(self) -> None:
        """Raise NotOffered where the formula is not known, or wrong from the start."""
        if self.first.wrong.any():
            raise NotOffered("the law `formula` fails already")


def _takes_dtype(fn: Callable[..., Tensor]) -> bool:
    """Tell whether a function has a parameter `dtype`."""
    try:
        return "dtype" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some built-in functions show no signature
        return False
