"""Sections: what every report is made of, whether it is shown in a terminal, on a page or in a file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whatwhere.escape import visible
from whatwhere.records import MaybeNaN, Missing

Shorten = Literal["first", "evenly", "never"]


@dataclass(frozen=True)
class Headline:
    """The main facts of some findings in one sentence, without its full stop: where a record of them begins."""

    headline: str


@dataclass(frozen=True)
class Table:
    """A table of text."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]  # the first cell of each names the row
    numeric: Sequence[int] = ()  # the columns that hold numbers, counted from 0, which are aligned to the right
    total: int | None = None  # how many rows there are, where not all are listed
    bars: Sequence[float] | None = None  # shares from 0 to 1 that a terminal draws beside the rows
    shorten: Shorten = "first"  # which rows a terminal prints where there are many: some from end to end, or all
    exact: "Sequence[Series]" = ()  # columns of numbers in full, by their names, which a page sorts by and saves


NO_TABLE = Table("", (), ())


@dataclass(frozen=True)
class Series:
    """One line or one set of bars of a chart."""

    name: str  # in the legend; of horizontal bars, the column of the table that holds the same numbers as text
    values: Sequence[MaybeNaN]  # NaN where there is none, which leaves a gap
    look: int | None = None  # of the scheme that it shows (`figures.looks`); None where it shows none
    low: Sequence[MaybeNaN] = ()  # ends of a band around a line, or nothing
    high: Sequence[MaybeNaN] = ()
    reference: bool = False  # drawn thin and grey, for a baseline


@dataclass(frozen=True)
class Chart:
    """A figure for pages and papers; a terminal prints its table instead.

    A histogram has one more x than values: the edges of its bins. Bars are horizontal, one for each row of the table,
    as long as the first series has it. A picture has a row for each series, its columns from 0.
    """

    kind: Literal["histogram", "lines", "bars", "picture"]
    title: str
    x_label: str  # with units, as the other
    y_label: str
    x: Sequence[float]  # positions on the horizontal axis; of bars its two ends, the first 0
    series: Sequence[Series]
    table: Table = NO_TABLE  # the same numbers to read
    note: str = ""  # one sentence on how to read it
    method: str = ""  # how the numbers were computed
    marks: Sequence[tuple[float, str]] = ()  # vertical lines, each a position on the horizontal axis and its label
    log_x: bool = False
    name: str = ""  # of its file
    y_range: tuple[float, float] | None = None  # ends of the vertical axis; None takes those of the values


Part = str | Table | Chart  # text is a paragraph; an empty one is not shown


@dataclass(frozen=True)
class Section:
    """A titled part of a report."""

    name: str  # a short name, for links and options
    title: str  # the heading
    parts: Sequence[Part]  # paragraphs, tables and charts, in the order of reading
    folded: bool = False  # whether a page hides all but the heading, which opens it


def source_tables(sources: Mapping[str, str]) -> Iterator[Table]:
    """Yield the source of each scheme of the caller's own, by line."""
    for name, code in sources.items():
        rows = [[str(n), visible(line)] for n, line in enumerate(code.expandtabs(4).split("\n"), start=1)]
        yield Table(f"Source of {visible(name)}, which was compared", ("line", "source"), rows, shorten="never")


def found_section(name: str, title: str, found: Any, write: Callable[[Any], Iterable[Part]]) -> Section:
    """Return the section on some findings without its empty paragraphs, or else the reason why there are none."""
    parts = [f"{found.missing[:1].upper()}{found.missing[1:]}."] if isinstance(found, Missing) else write(found)
    return Section(name, title, [part for part in parts if part])
