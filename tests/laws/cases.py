"""What the laws are tested on: every row of the catalogue with every variant, and mixtures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import whatwhere as ww
from whatwhere.where.catalogue import Scheme
from whatwhere.where.region_map import region_map_of

DIM, HEADS, KEY_HEADS, MAX_LENGTH = 64, 4, 2, 64
REGIME = 4 * MAX_LENGTH
"""The length that is stated to schemes that follow it: beyond the trained one, where they differ from plain rotary."""


@dataclass(frozen=True)
class Case:
    """A row of the catalogue with one choice of options."""

    row: Scheme
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        settings = ",".join(f"{option}={value}" for option, value in self.options.items())
        return f"{self.row.name}[{settings}]" if settings else self.row.name

    def build(self, dim: int = DIM, num_heads: int = HEADS, max_length: int = MAX_LENGTH) -> ww.Where:
        return self.row.build(dim, num_heads, max_length, **self.options)

    @property
    def regime(self) -> int | None:
        """What a law that holds within one regime states; None where the length is no matter."""
        return REGIME if self.row.follows_length else None

    @property
    def axes(self) -> int:
        """How many coordinates of a token it reads; positions with one axis serve for all."""
        where = self.build()
        return max(getattr(scheme, "axes", 1) for scheme in (where.input, where.query_key, where.score))

    @property
    def by_content(self) -> bool:
        where = self.build()
        return any(scheme.by_content for scheme in (where.query_key, where.score) if scheme is not None)

    @property
    def by_region(self) -> bool:
        """It maps queries and keys otherwise in some regions of pairs."""
        return region_map_of(self.build().query_key) is not None

    @property
    def causal_only(self) -> bool:
        """It supports causal attention only; an option may lift what the entry states, as T5's bidirectional does."""
        where = self.build()
        return any(scheme.causal_only for scheme in (where.query_key, where.score) if scheme is not None)

    def sees_distances_only(self, end: int) -> bool:
        """While all positions stay below the end, moving them changes no score."""
        return self.row.relative or end <= self.row.relative_below


def mixture(*names: str) -> Scheme:
    """A row for several schemes at once, with the facts that follow from theirs."""
    rows = [ww.catalogue[name] for name in names]
    joined = "+".join(names)
    return replace(
        rows[0],
        name=joined,
        door=None,
        build=lambda dim, num_heads, max_length: ww.scheme(joined, dim, num_heads, max_length),
        learned=any(row.learned for row in rows),
        relative=all(row.relative for row in rows),
        relative_below=min((row.relative_below for row in rows if not row.relative), default=0),
        any_length=all(row.any_length for row in rows),
        causal_only=any(row.causal_only for row in rows),
        follows_length=any(row.follows_length for row in rows),
        keeps_norms=all(row.keeps_norms for row in rows),
        tested_up_to=min(row.tested_up_to for row in rows),
        distinct_up_to=None,
        variants=(),
    )


ALL_ROWS = (
    *ww.catalogue.values(),
    mixture("rotary", "alibi"),
    mixture("learned", "rotary", "alibi"),
)
CASES = [Case(row, options) for row in ALL_ROWS for options in ({}, *row.variants)]


def each(
    holds: Callable[[Case], bool] = lambda case: True, slow: Callable[[Case], bool] = lambda case: False
) -> pytest.MarkDecorator:
    """Parametrize a test over the cases of which something holds; there must be at least one that is not slow."""
    marks = {True: [pytest.mark.slow], False: []}
    chosen = [pytest.param(case, id=case.name, marks=marks[slow(case)]) for case in CASES if holds(case)]
    assert not all(case.marks for case in chosen), "no case is left: the law would be tested on nothing"
    return pytest.mark.parametrize("case", chosen)


def varied(case: Case) -> bool:
    """It is a row with other options than its own: what takes long is tested on the row alone, unless slow."""
    return bool(case.options)


def positional(case: Case) -> bool:
    """It has a scheme at some door."""
    return case.row.name != "none"


def fixed(case: Case) -> bool:
    """It has a scheme at some door, and no parameters."""
    return positional(case) and not case.row.learned
