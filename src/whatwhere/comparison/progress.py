"""The progress of the runs of a comparison: on a terminal one bar with the time left, elsewhere a line for each run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from whatwhere.comparison.results import RunResult
from whatwhere.comparison.run import Job
from whatwhere.long_work import part_of

_SHOWN_FROM = 1 << 28
"""Bytes of a text that takes a second to read."""


class Display:
    """The progress of all runs: steps done, time left, runs finished.

    Args:
        jobs: the runs.
        show: on standard error; otherwise nothing is shown.
    """

    def __init__(self, jobs: Sequence[Job], show: bool) -> None:
        self._steps, self._done, self._elsewhere, self._runs = 0, 0, 0, len(jobs)
        self._console = Console(stderr=True)
        self.live = show and self._console.is_terminal
        self._lines = show and not self.live
        self._show = show
        self._whole = part_of.get()  # here, for the steps are shown from another thread
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps,"),
            TimeElapsedColumn(),
            TextColumn("passed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self.progress = Progress(*columns, console=self._console)
        self._bar = self.progress.add_task(self._text(), total=sum(job.settings.steps for job in jobs))

    def _text(self) -> str:
        elsewhere = f", {self._elsewhere} in other processes" if self._elsewhere else ""
        whole = "" if self._whole is None else f" ({self._whole()})"
        return f"{self._done} of {self._runs} runs{elsewhere}{whole}"

    def in_progress(self, steps: int) -> None:
        """Show how many steps the unfinished runs have done."""
        self.progress.update(self._bar, description=self._text(), completed=self._steps + steps)

    def finished(self, result: RunResult, elsewhere: bool = False) -> None:
        """Count a finished run, of this process or elsewhere."""
        self._done += 1
        self._steps += result.steps
        self.progress.update(self._bar, description=self._text(), completed=self._steps)
        if self._lines:
            how = "in another process" if elsewhere else f"{result.seconds:.0f} s"
            self._print(f"{self._done} of {self._runs} runs: {result.scheme}, seed {result.seed}, {how}")

    def waiting(self, runs: int) -> None:
        """Show that all that is left are runs that other processes are training."""
        if runs == self._elsewhere:
            return
        self._elsewhere = runs
        self.progress.update(self._bar, description=self._text())
        if self._lines and runs:
            self._print(f"waiting for {runs} run{'s' * (runs > 1)} of other processes")

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        if self._show:
            self._print(message)

    def _print(self, message: str) -> None:
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def display(jobs: Sequence[Job], show: bool) -> Iterator[Display]:
    """Show the progress of runs in a `with` block."""
    shown = Display(jobs, show)
    with shown.progress if shown.live else nullcontext():  # rich before 14.3 ends one that is disabled by a line
        yield shown


@contextmanager
def bytes_read(what: str, total: int, show: bool, shown_from: int = _SHOWN_FROM) -> Iterator[Callable[[int], None]]:
    """Show how many bytes have been read, of as many as take seconds, in a `with` block."""
    console = Console(stderr=True)
    show = show and total >= shown_from
    if show and not console.is_terminal:
        console.print(f"{what}: {total / 1e9:.1f} GB", highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    progress = Progress(*columns, console=console, transient=True)
    with progress if show and console.is_terminal else nullcontext():
        bar = progress.add_task(what, total=total)
        yield lambda count: progress.advance(bar, count)
