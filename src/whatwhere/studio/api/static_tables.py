"""What an exported page holds of a view: the answers to its first queries, and tables to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whatwhere.report.section import Section


@dataclass(frozen=True)
class Sheet:
    """A table for readers without JavaScript; one without rows is its sentences alone.

    Args:
        caption: what it shows.
        head: the columns.
        rows: their cells, as they are to be read; the first names the row.
        said: sentences above it.
        title: a heading above them.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    said: Sequence[str] = ()
    title: str = ""


@dataclass(frozen=True)
class ExportedView:
    """What an exported page holds of a view.

    Args:
        title: of the view.
        queries: names and settings of the queries and jobs that its page sends.
        sheets: the same in tables.
        begin: the settings that the view begins with there, where the live page begins with other ones.
        said: sentences above the tables, the answer first.
        sections: what follows, where the view is a report.
    """

    title: str
    queries: Sequence[tuple[str, Mapping[str, Any]]]
    sheets: Sequence[Sheet] = ()
    begin: Mapping[str, Any] | None = None
    said: Sequence[str] = ()
    sections: Sequence[Section] = ()
