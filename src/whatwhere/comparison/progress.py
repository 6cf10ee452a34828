"""The progress of the runs of a comparison: on a terminal one bar with the time left, elsewhere a line for each run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from whatwhere.comparison.results import RunResult
from whatwhere.comparison.run import Job


class Display:
    """The progress of all runs: steps done, time left, runs finished.

    Args:
        jobs: the runs.
        show: on standard error; otherwise nothing is shown.
    """

    def __init__(self, jobs: Sequence[Job], show: bool) -> None:
        self._steps, self._done, self._runs = 0, 0, len(jobs)
        self._console = Console(stderr=True)
        self._live = show and self._console.is_terminal
        self._lines = show and not self._live
        self._show = show
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
        self.progress = Progress(*columns, console=self._console, disable=not self._live)
        self._bar = self.progress.add_task(self._text(), total=sum(job.settings.steps for job in jobs))

    def _text(self) -> str:
        return f"{self._done} of {self._runs} runs"

    def in_progress(self, steps: int) -> None:
        """Show how many steps the unfinished runs have done."""
        self.progress.update(self._bar, completed=self._steps + steps)

    def finished(self, result: RunResult) -> None:
        """Count a finished run."""
        self._done += 1
        self._steps += result.steps
        self.progress.update(self._bar, description=self._text(), completed=self._steps)
        if self._lines:
            self._print(f"{self._text()}: {result.scheme}, seed {result.seed}, {result.seconds:.0f} s")

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        if self._show:
            self._print(message)

    def _print(self, message: str) -> None:
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def display(jobs: Sequence[Job], show: bool) -> Iterator[Display]:
    """Show the progress of runs in a `with` block.

    Args:
        jobs: the runs.
        show: on standard error; otherwise nothing is shown.
    """
    shown = Display(jobs, show)
    with shown.progress:
        yield shown
