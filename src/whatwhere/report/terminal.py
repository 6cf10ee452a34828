"""Reports in a terminal: sections as text, tables and bars; and the progress of long work."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from whatwhere.escape import visible
from whatwhere.long_work import WorkDone, downloads, reports_to
from whatwhere.report.section import Chart, Part, Section, Table
from whatwhere.report.text import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

ROWS = 12  # rows of a long table that are printed where nothing else is requested
_EVENLY = 16
_SHOWN_FROM = 1.0  # seconds that work takes from which on the time left is shown
_BAR = 40


def new_console() -> "Console":
    """Return a console as wide as the terminal, or 160 columns into a pipe or file."""
    from rich.console import Console

    # A pipe has no width: the usual 80 columns would cut tables.
    return Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False)


def new_table(*header: str) -> "RichTable":
    """Return an empty table without lines."""
    from rich.table import Table as RichTable

    return RichTable(*header, box=None, padding=(0, 1))


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows on standard error what is being done; into a file or pipe it writes nothing.

    Work that reports how far it is (`long_work`) and downloads are shown with the time that the rest takes.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True, markup=False, highlight=False).status("opening") as status:
        steps = Steps(status.update)
        downloading = downloads.set(Downloads(steps.show_amount))
        working = reports_to.set(steps.show_work)
        try:
            yield steps.show
        finally:
            downloads.reset(downloading)
            reports_to.reset(working)


class Steps:
    """The line of text on what is being done: the step, how much of it is done, and the time that the rest takes."""

    def __init__(self, update: Callable[[str], None]) -> None:
        self._update, self._step = update, "opening"

    def show(self, step: str) -> None:
        """Show what is being done."""
        self._step = visible(step)
        self._update(self._step)

    def show_amount(self, amount: str) -> None:
        """Show how much of the step is done."""
        self._update(f"{self._step} ({visible(amount)})")

    def show_work(self, work: WorkDone) -> None:
        """Show a report of long work; of one that takes less than a second nothing but the step."""
        if work.step:
            self.show(work.step)
        if work.left is None:
            self.show_amount(work.amount)
        elif work.seconds + work.left >= _SHOWN_FROM:
            self.show_amount(f"{work.amount}, about {duration(work.left)} left")


class Downloads:
    """The text of what was downloaded, and of the time that the rest of the same reading takes at this speed."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show, self._bytes, self._start = show, 0, perf_counter()

    def __call__(self, arrived: int, left: int) -> None:
        """Count bytes that arrived, and show the sum with those that the same reading still needs."""
        self._bytes += arrived
        seconds = left * (perf_counter() - self._start) / self._bytes
        rest = f", {left / 1e6:,.0f} MB and about {duration(seconds)} left" if left else ""
        self._show(f"{self._bytes / 1e6:,.1f} MB downloaded{rest}")


def print_report(report: Iterable[Section | Part], rows: int = ROWS, console: "Console | None" = None) -> None:
    """Print sections below their titles; between them tables and lines, which are not broken."""
    console = console or new_console()
    before: Section | Part = ""
    for each in report:
        if not each:
            continue
        if (isinstance(each, Section) and before) or (isinstance(each, str) and not isinstance(before, str)):
            console.print()  # tables have an empty line above their captions
        if isinstance(each, Section):
            console.print(visible(each.title), style="bold", soft_wrap=True)
            for part in each.parts:
                if isinstance(part, str):
                    console.print(f" {visible(part)}")
                else:
                    _print_table(part, console, rows)
        elif isinstance(each, str):
            console.print(visible(each), soft_wrap=True)
        else:
            _print_table(each, console, rows)
        before = each


def _print_table(part: Table | Chart, console: "Console", rows: int) -> None:
    """Print a table below its caption: some rows of a long one, and how many more there are."""
    table = part.table if isinstance(part, Chart) else part
    printed = new_table()
    for n, name in enumerate(table.columns):
        printed.add_column(visible(name), justify="right" if n in table.numeric else "left")
    if table.bars is not None:
        printed.add_column("")
    kept = _kept(table, rows)
    for n in kept:
        bar = [] if table.bars is None else [_bar(table.bars[n])]
        printed.add_row(*map(visible, table.rows[n]), *bar)
    if table.caption:
        console.print(f"\n {visible(table.caption)}")
    if kept:
        console.print(printed)
    more = (len(table.rows) if table.total is None else table.total) - len(kept)
    if more and table.shorten == "first":
        console.print(f"   and {more:,} more: --json lists them")


def _kept(table: Table, rows: int) -> Sequence[int]:
    """Return the numbers of the rows that are printed."""
    if table.shorten == "first":
        return range(min(len(table.rows), rows))
    total, most = len(table.rows), max(rows, _EVENLY)
    if table.shorten == "never" or total <= most:
        return range(total)
    return sorted({round(n * (total - 1) / (most - 1)) for n in range(most)})


def _bar(share: float, width: int = _BAR) -> str:
    """Draw a share as a bar, to an eighth of a character where the terminal's encoding has such characters."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if not encoding.lower().replace("-", "").startswith("utf"):
        return "#" * round(eighths / 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]
