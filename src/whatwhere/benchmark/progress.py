"""How far a benchmark is: a bar in a terminal, a line for each work elsewhere."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display:
    """Show which case is measured, how many are done, and the time left.

    Args:
        cases: how many there are, over all works and regimes.
        show: draw at all.
    """

    def __init__(self, cases: int, show: bool) -> None:
        self._console = Console(stderr=True)
        live = show and self._console.is_terminal
        self._lines = show and not live
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cases,"),
            TimeElapsedColumn(),
            TextColumn("passed,"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("left"),
        )
        self.progress = Progress(*columns, console=self._console, disable=not live)
        self._bar = self.progress.add_task("", total=cases)

    def at(self, work: str, regime: str) -> None:
        """Name what is measured now."""
        self.progress.update(self._bar, description=f"{work}, {regime}")

    def finished_case(self) -> None:
        """Count a case."""
        self.progress.advance(self._bar)

    def finished_work(self, work: str, done: int, works: int, seconds: float) -> None:
        """Tell of a work that is done, where no bar can."""
        if self._lines:
            self._console.print(f"{done} of {works} works: {work}, {seconds:.0f} s", highlight=False)
