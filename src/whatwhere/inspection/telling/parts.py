"""What a section is told in: sentences, and tables of words."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from whatwhere.terminal import visible

LONGEST = 48
"""Signs of a token that are written; of a longer one the middle is left out."""


@dataclass(frozen=True)
class Table:
    """Hold a table as it is read.

    Args:
        caption: what it shows.
        head: the columns.
        rows: their cells; the first names the row.
        numbers: which columns hold numbers, from 0.
        count: how many rows there are, where not all are listed.
        bars: what a terminal draws beside the rows: shares, 0 to 1.
        short: which rows stay where there is little room: the first, some from end to end, or all.
        drawn: the figure that shows the same numbers on a page, or "".
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()
    count: int | None = None
    bars: Sequence[float] | None = None
    short: Literal["first", "evenly", "whole"] = "first"
    drawn: Literal["", "lengths", "spectra"] = ""


Part = str | Table


@dataclass(frozen=True)
class Passage:
    """Hold what is told of one section.

    Args:
        name: of the section.
        title: its heading.
        parts: sentences and tables, in the order of reading.
    """

    name: str
    title: str
    parts: Sequence[Part]


def shown(part: Part) -> Part:
    """Write a part so that no sign in it is obeyed, by a terminal or by a reader's eyes."""
    if isinstance(part, str):
        return visible(part)
    return replace(part, rows=[[visible(cell) for cell in row] for row in part.rows])


def token(row: Mapping[str, Any]) -> str:
    """Write a row's token so that each of its signs can be seen; "" where it has none.

    >>> token({"token": " a\\u202e"})
    '␣a\\\\u202e'
    """
    return "" if row["token"] is None else seen(row["token"])


def seen(text: str) -> str:
    """Write a text so that each of its signs can be seen."""
    signs = visible(text)
    if signs != signs.strip(" "):
        kept = signs.strip(" ")
        ahead = len(signs) - len(signs.lstrip(" "))
        signs = "␣" * ahead + kept + "␣" * (len(signs) - len(kept) - ahead) if kept else "␣" * len(signs)
    if signs and unicodedata.category(signs[0]).startswith("M"):
        signs = "◌" + signs  # a mark that combines needs something to stand on
    return signs if len(signs) <= LONGEST else f"{signs[:36]}…{signs[-11:]}"
