"""Sections: what every report is made of, whether it is shown in a terminal, on a page or in a file."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whatwhere.records import MaybeNaN, Missing

Shorten = Literal["first", "evenly", "never"]


@dataclass(frozen=True)
class Headline:
    """The main facts of some findings in one sentence, without its full stop: where a record of them begins."""

    headline: str


@dataclass(frozen=True)
class Table:
    """A table of text.

    Args:
        caption: what it shows.
        columns: their headings.
        rows: the cells; the first of each row names the row.
        numeric: the columns that hold numbers, counted from 0; they are aligned to the right.
        total: how many rows there are, where not all are listed; None where all are.
        bars: shares from 0 to 1 that a terminal draws beside the rows.
        shorten: which rows a terminal prints where there are many: the first, some from end to end, or all.
        exact: columns of numbers in full, by their names, which a page sorts by and saves.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[int] = ()
    total: int | None = None
    bars: Sequence[float] | None = None
    shorten: Shorten = "first"
    exact: "Sequence[Series]" = ()


NO_TABLE = Table("", (), ())


@dataclass(frozen=True)
class Series:
    """One line or one set of bars of a chart.

    Args:
        name: what the legend calls it; of horizontal bars, the column of the table that holds the same numbers as text.
        values: NaN where there is none, which leaves a gap.
        look: of the scheme that it shows (`figures.looks`); None where it shows none.
        low, high: ends of a band around a line, or nothing.
        reference: drawn thin and grey, for a baseline.
    """

    name: str
    values: Sequence[MaybeNaN]
    look: int | None = None
    low: Sequence[MaybeNaN] = ()
    high: Sequence[MaybeNaN] = ()
    reference: bool = False


@dataclass(frozen=True)
class Chart:
    """A figure for pages and papers; a terminal prints its table instead.

    Args:
        kind: a histogram has one more x than values: the edges of its bins. Bars are horizontal, one for each row of
            the table, as long as the first series has it. A picture has a row for each series, its columns from 0.
        title: what it shows.
        x_label, y_label: the axes, with units.
        x: positions on the horizontal axis; of bars its two ends, the first 0.
        series: what is drawn above them.
        table: the same numbers to read.
        note: one sentence on how to read it, or "".
        method: how the numbers were computed, or "".
        marks: vertical lines, each a position on the horizontal axis and its label.
        log_x: whether the horizontal axis is logarithmic.
        name: of its file.
        y_range: ends of the vertical axis; None takes those of the values.
    """

    kind: Literal["histogram", "lines", "bars", "picture"]
    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    series: Sequence[Series]
    table: Table = NO_TABLE
    note: str = ""
    method: str = ""
    marks: Sequence[tuple[float, str]] = ()
    log_x: bool = False
    name: str = ""
    y_range: tuple[float, float] | None = None


Part = str | Table | Chart
"""Text is a paragraph; an empty one is not shown."""


@dataclass(frozen=True)
class Section:
    """A titled part of a report."""

    name: str  # a short name, for links and options
    title: str  # the heading
    parts: Sequence[Part]  # paragraphs, tables and charts, in the order of reading
    folded: bool = False  # whether a page hides all but the heading, which opens it


def found_section(name: str, title: str, found: Any, write: Callable[[Any], Iterable[Part]]) -> Section:
    """Return the section on some findings without its empty paragraphs, or else the reason why there are none."""
    parts = [f"{found.missing[:1].upper()}{found.missing[1:]}."] if isinstance(found, Missing) else write(found)
    return Section(name, title, [part for part in parts if part])
