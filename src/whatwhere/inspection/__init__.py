"""See both halves of a checkpoint's input layer: what its tokens are, and where they stand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whatwhere.inspection.gather import SECTIONS, gather

__all__ = ["SECTIONS", "Inspection", "inspect"]


@dataclass(frozen=True, eq=False)
class Inspection:
    """Hold what was found.

    Args:
        data: everything, as JSON holds it: path, answer, and sections; each has its numbers, or says what is missing.
    """

    data: dict[str, Any]

    @property
    def answer(self) -> str:
        """The most telling facts, in one sentence."""
        return str(self.data["answer"])

    def write(self, file: str | Path) -> Path:
        """Write a page that shows it all: one file, without script or network. It takes matplotlib."""
        from whatwhere.inspection.page import write_page

        return write_page(self.data, Path(file))

    def __getitem__(self, section: str) -> dict[str, Any]:
        """Give one section."""
        return dict(self.data["sections"][section])


def inspect(
    path: str | Path,
    sections: Sequence[str] | None = None,
    *,
    seed: int = 0,
    allow_pickle: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Inspection:
    """Look at the input layer of a checkpoint.

    Args:
        path: a file or folder of any format that `whatwhere.read` opens.
        sections: which of SECTIONS; None is all.
        seed: of samples of rows, where tables are large.
        allow_pickle: read pickles too; pass True only where you trust the author.
        tell: is called with what is being done.

    >>> from tempfile import mkdtemp
    >>> import numpy as np
    >>> file = Path(mkdtemp(), "table.npy")
    >>> np.save(file, np.random.default_rng(0).standard_normal((500, 16)).astype(np.float32))
    >>> inspect(file, ["sizes", "norms"]).answer
    '500 tokens x 16'
    """
    return Inspection(gather(path, sections, seed, allow_pickle, tell))
