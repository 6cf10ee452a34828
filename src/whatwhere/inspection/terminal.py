"""What was found, in a terminal: sentences, and tables with bars."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.inspection.telling import Part, Table, tell
from whatwhere.terminal import new_table, visible

if TYPE_CHECKING:
    from rich.console import Console

_ROWS = 12
_EVENLY = 16
_WIDTH = 40


def show(data: Mapping[str, Any], console: "Console", rows: int = _ROWS) -> None:
    """Print everything that was found.

    Args:
        data: as `gather` gives it.
        console: where to.
        rows: of each list.
    """
    console.print(visible(data["path"]), style="bold", soft_wrap=True)
    console.print(visible(data["answer"]) + ".")
    for passage in tell(data["sections"]):
        console.print(f"\n{passage.title}", style="bold")
        before: Part = ""
        for part in passage.parts:
            if isinstance(part, str):
                console.print(f" {part}")
            else:
                if not isinstance(before, str) or passage.name == "biases":
                    console.print(f"\n {part.caption}")
                _print(part, console, rows)
            before = part


def _print(table: Table, console: "Console", rows: int) -> None:
    """Print a table: at most so many rows of a list, and how many there are besides."""
    kept = {
        "first": range(min(len(table.rows), rows)),
        "evenly": _spread(len(table.rows), max(rows, _EVENLY)),
        "whole": range(len(table.rows)),
    }[table.short]
    printed = new_table()
    for n, name in enumerate(table.head):
        printed.add_column(name, justify="right" if n in table.numbers else "left")
    if table.bars is not None:
        printed.add_column("")
    for n in kept:
        printed.add_row(*table.rows[n], *([] if table.bars is None else [_bar(table.bars[n])]))
    console.print(printed)
    more = (table.count or len(table.rows)) - len(kept)
    if more and table.short == "first":
        console.print(f"   and {more:,} more: --json lists them")


def _spread(count: int, most: int) -> list[int]:
    """Give numbers from 0 to count - 1, evenly, the first and the last among them."""
    return sorted({round(n) for n in np.linspace(0, count - 1, min(count, most))})


def _bar(share: float, width: int = _WIDTH) -> str:
    """Draw a share as a bar, to an eighth of a sign where the terminal has such signs."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if not encoding.lower().replace("-", "").startswith("utf"):
        return "#" * round(eighths / 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]
