"""See both halves of a checkpoint's input layer: what its tokens are, and where they stand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whatwhere.inspection.gather import SECTIONS, check_sections, gather
from whatwhere.inspection.subject import Subject
from whatwhere.interop.checkpoint import Checkpoint

__all__ = ["SECTIONS", "Inspection", "inspect"]


@dataclass(frozen=True, eq=False)
class Inspection:
    """Hold what was found.

    Args:
        data: everything, as JSON holds it: path, answer, and sections; each has its numbers, or says what is missing.
        checkpoint: what was looked at; None where data were kept as JSON, and then it is opened by its path.
    """

    data: dict[str, Any]
    checkpoint: Checkpoint | None = field(default=None, repr=False)

    @property
    def answer(self) -> str:
        """The most telling facts, in one sentence."""
        return str(self.data["answer"])

    def write(self, file: str | Path, *, tell: Callable[[str], None] = lambda _: None) -> Path:
        """Write the studio's page on this checkpoint as one file, which opens on what was found.

        It needs no program and no network, and is read in sentences and tables where JavaScript is off. Of 30,000
        tokens the page holds all neighbors, which take half a minute to find.

        Args:
            file: to write; one that is there is replaced.
            tell: is called with what is being done.
        """
        from whatwhere.studio.examined import keep
        from whatwhere.studio.freezing import write_page
        from whatwhere.studio.sources import Source

        source = Source(self.checkpoint or Checkpoint.open(self.data["path"]))
        keep(source, self.data)
        return write_page(source, file, tell=tell)

    def __getitem__(self, section: str) -> dict[str, Any]:
        """Give one section."""
        return dict(self.data["sections"][section])


def inspect(
    path: str | Path | Checkpoint,
    sections: Sequence[str] | None = None,
    *,
    seed: int = 0,
    allow_pickle: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> Inspection:
    """Look at the input layer of a checkpoint.

    Args:
        path: a file or folder of any format that `whatwhere.read` opens, or what it gave.
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
    asked = check_sections(sections)  # before a file is opened
    checkpoint = path if isinstance(path, Checkpoint) else Checkpoint.open(path, allow_pickle=allow_pickle)
    return Inspection(gather(Subject(checkpoint, seed, tell), asked), checkpoint)
