"""What is printed in a terminal: tables, and signs that a terminal would obey."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def new_console() -> "Console":
    """Make what prints: as wide as the terminal, or 160 columns into a pipe or file."""
    from rich.console import Console

    # A pipe has no width: 80 columns would cut tables that nobody asked to be cut.
    return Console(width=None if sys.stdout.isatty() else 160, markup=False, highlight=False)


def new_table(*header: str) -> "Table":
    """Make a table without lines."""
    from rich.table import Table

    return Table(*header, box=None, padding=(0, 1))


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Give what says on a terminal what is being done; a file or pipe is told nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True, markup=False, highlight=False).status("opening") as status:
        yield lambda words: status.update(visible(words))


def visible(cell: object) -> str:
    """Show signs that a terminal would obey, such as escapes, as their codes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(cell))
