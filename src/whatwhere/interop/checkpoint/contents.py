"""What a format gives: entries known from headers alone, and a reader of the tensors that are asked for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.errors import TokenError
from whatwhere.interop.checkpoint.files import shown

if TYPE_CHECKING:
    from torch import Tensor

Rows = slice | Sequence[int] | np.ndarray | None
"""Rows that a caller may ask for; None is all."""

Chosen = range | np.ndarray
"""Rows, checked: a stretch of them, or their numbers."""

DIMENSIONS = 32
"""More than any array may have."""


@dataclass(frozen=True)
class Entry:
    """Say what a tensor is, as its header does.

    Args:
        name: in the checkpoint.
        shape: rows first.
        dtype: the stored type, as torch calls it, or as GGUF does where it is quantised.
        bytes: that it takes in the file; 0 where the file is text.
        file: that holds it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    file: Path


class Reader(ABC):
    """Read tensors by name; names and rows have been checked."""

    @abstractmethod
    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read a tensor as NumPy's; rows are None for a single number."""

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read as torch's, in the stored type where torch has it."""
        import torch

        return torch.from_numpy(self.array(name, rows))


@dataclass(frozen=True, eq=False)
class Contents:
    """Hold what a file or folder was found to be.

    Args:
        format: its name.
        entries: by name, in the file's order.
        reader: of the tensors.
        words: the tokens as strings, made when they are asked for; None where nothing tells.
        config: a configuration in Hugging Face's words, or None.
        metadata: what else the header says.
        tokenizer: a tokenizer.json, or None.
        token_table: its name, where the format itself says so.
    """

    format: str
    entries: Mapping[str, Entry]
    reader: Reader
    words: Callable[[], list[str] | None] = lambda: None
    config: dict[str, Any] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: Path | None = None
    token_table: str | None = None


def choose(entry: Entry, rows: Rows) -> Chosen | None:
    """Check rows that were asked for, in whole numbers; None is every row."""
    if not entry.shape:
        if rows is not None:
            raise TokenError(f"{shown(entry.name)} is a single number, which has no rows.\nLeave rows out.")
        return None
    count = entry.shape[0]
    if rows is None:
        return range(count)
    if isinstance(rows, slice):
        stretch = range(*rows.indices(count))
        return stretch if stretch.step == 1 else np.array(stretch, dtype=np.int64)
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise TokenError(
            f"rows of {shown(entry.name)} are a slice or whole numbers in one dimension, but these have the type "
            f"{numbers.dtype} and the shape {numbers.shape}.\nFor one row pass [row]."
        )
    if numbers.size and not 0 <= (first := int(numbers.min())) <= (last := int(numbers.max())) < count:
        outside = first if first < 0 else last
        raise TokenError(f"row {outside:,} lies outside {shown(entry.name)}, which has the rows 0..{count - 1:,}.")
    return numbers.astype(np.int64)


def runs(rows: Chosen, most: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Give stretches of rows that stand together: where they go, the first, and how many, at most `most` if given.

    >>> list(runs(np.array([4, 5, 6, 1]), most=2))
    [(0, 4, 2), (2, 6, 1), (3, 1, 1)]
    """
    if isinstance(rows, range):
        pieces = [(0, rows.start, len(rows))] if len(rows) else []
    else:
        edges = np.flatnonzero(np.diff(rows) != 1) + 1
        starts = [0, *edges.tolist()] if len(rows) else []
        ends = [*edges.tolist(), len(rows)]
        pieces = [(a, int(rows[a]), b - a) for a, b in zip(starts, ends, strict=False)]
    for place, first, count in pieces:
        at_once = count if most is None else most
        for done in range(0, count, at_once):
            yield place + done, first + done, min(at_once, count - done)
