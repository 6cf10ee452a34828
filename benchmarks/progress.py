"""How far a benchmark is: a bar in a terminal, a line for each case elsewhere."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Display:
    """Show which case is measured, how many variants are done, and the time left.

    Args:
        variants: how many there are, over all cases and regimes.
        show: whether to show anything.
    """

    def __init__(self, variants: int, show: bool) -> None:
        self._console = Console(stderr=True)
        live = show and self._console.is_terminal
        self._lines = show and not live
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("variants,"),
            TimeElapsedColumn(),
            TextColumn("passed,"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("left"),
        )
        self.progress = Progress(*columns, console=self._console, disable=not live)
        self._bar = self.progress.add_task("", total=variants)

    def at(self, case: str, regime: str) -> None:
        """Show what is measured now.

        Args:
            case: its name.
            regime: of allocation.
        """
        self.progress.update(self._bar, description=f"{case}, {regime}")

    def finished_variant(self) -> None:
        """Count a variant."""
        self.progress.advance(self._bar)

    def finished_case(self, case: str, done: int, cases: int, seconds: float) -> None:
        """Print that a case is done, where there is no bar.

        Args:
            case: its name.
            done: cases that are done.
            cases: cases in all.
            seconds: that this one took.
        """
        if self._lines:
            self._console.print(f"{done} of {cases} cases: {case}, {seconds:.0f} s", highlight=False)
