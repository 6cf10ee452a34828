"""What a view leaves on a page that is frozen into one file: questions, asked beforehand, and tables to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sheet:
    """Hold a table for readers without JavaScript; one without rows is its sentences alone.

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
class Left:
    """Hold what a view leaves on a frozen page.

    Args:
        title: of the view.
        asked: names and settings of the questions and works that its page asks.
        sheets: the same in tables.
        begin: the settings that the view begins with there, where the live page begins with other ones.
        said: sentences above the tables, the answer first.
    """

    title: str
    asked: Sequence[tuple[str, Mapping[str, Any]]]
    sheets: Sequence[Sheet]
    begin: Mapping[str, Any] | None = None
    said: Sequence[str] = ()
