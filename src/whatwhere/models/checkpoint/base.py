"""What all formats share: entries, known from headers alone, and a reader of tensors by name and rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whatwhere.errors import CheckpointError, TokenError
from whatwhere.escape import quoted
from whatwhere.models.configuration.keys import Json

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

Rows = slice | Sequence[int] | np.ndarray | None
"""Rows as callers may select them; None is all."""

Chosen = range | np.ndarray
"""Rows after they were checked: a contiguous run, or an array of row numbers."""

NO_TOKENIZER = "there is no tokenizer.json beside the table"


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as the header describes it.

    Args:
        name: in the checkpoint.
        shape: rows first.
        dtype: the stored type, by its name in torch; in GGUF if it is quantized.
        bytes: its size in the file; 0 in a text file.
        file: that contains it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    file: Path


class Reader(ABC):
    """A reader of tensors by name; names and rows have been checked."""

    @abstractmethod
    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read rows of a tensor as a NumPy array; None is the rows of a scalar."""

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read rows of a tensor as a torch tensor, in the stored type if torch has it."""
        import torch

        return torch.from_numpy(self.array(name, rows))


@dataclass(frozen=True, eq=False)
class Combined:
    """A tensor that is stored in parts.

    Args:
        entry: of the whole.
        parts: names of its parts.
        rows: computes some of its rows; None where no rule for them is known.
        why: of what it is made, or why its rows are not known: a sentence that begins behind its name.
        way_out: for changing it, or reading it where that is not known.
        parameters: how many numbers its parts hold that are learned; None is as many as the whole has.
    """

    entry: Entry
    parts: tuple[str, ...]
    rows: Callable[[Chosen], np.ndarray] | None
    why: str
    way_out: str = "Dequantize it by the library that wrote it, and save the model as bfloat16."
    parameters: int | None = None

    def refused(self) -> CheckpointError:
        """Return the error for whoever reads rows that are not known, or changes them."""
        return CheckpointError(f"{self.entry.file}: {quoted(self.entry.name)} {self.why}.\n{self.way_out}")


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of a file or folder, read from its headers.

    Args:
        format: name of the format.
        entries: tensor name -> entry, in the order of the file.
        reader: of the tensors.
        words: returns the tokens as strings, or None if there are none.
        config: the configuration, with the keys of Hugging Face, or None.
        metadata: the rest of the header.
        tokenizer: builds the tokenizer, or returns why there is none.
        token_table: name of the token table, if the format determines it.
        combined: tensors that are stored in parts, by name.
        adapter: of what it is an adapter, as a part of a sentence; "" if it is none.
    """

    format: str
    entries: Mapping[str, Entry]
    reader: Reader
    words: Callable[[], list[str] | None] = lambda: None
    config: Json | None = None
    metadata: Json = field(default_factory=dict)
    tokenizer: Callable[[], "Tokenizer | str"] = lambda: NO_TOKENIZER
    token_table: str | None = None
    combined: Mapping[str, Combined] = field(default_factory=dict)
    adapter: str = ""


def checked_rows(entry: Entry, rows: Rows) -> Chosen | None:
    """Return the rows that a caller selects as a range or an array; None for a scalar.

    Raises:
        TokenError: If they are not integers, or out of range, or the tensor is a scalar.
    """
    if not entry.shape:
        if rows is not None:
            raise TokenError(f"{quoted(entry.name)} is a single number, which has no rows.\nOmit rows.")
        return None
    count = entry.shape[0]
    if rows is None:
        return range(count)
    if isinstance(rows, slice):
        selected = range(*rows.indices(count))
        return selected if selected.step == 1 else np.array(selected, dtype=np.int64)
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise TokenError(
            f"rows of {quoted(entry.name)} are a slice or whole numbers in one dimension, but these have the type "
            f"{numbers.dtype} and the shape {numbers.shape}.\nFor one row pass [row]."
        )
    if numbers.size and not 0 <= (first := int(numbers.min())) <= (last := int(numbers.max())) < count:
        outside = first if first < 0 else last
        raise TokenError(f"row {outside:,} lies outside {quoted(entry.name)}, which has the rows 0..{count - 1:,}.")
    return numbers.astype(np.int64)


def new_rows(entry: Entry, shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """Return an uninitialized array for rows of a tensor; raise CheckpointError if there is too little memory."""
    try:
        return np.empty(shape, dtype=dtype)
    except MemoryError:
        size = prod(shape) * np.dtype(dtype).itemsize
        raise CheckpointError(
            f"{entry.file}: the tensor {quoted(entry.name)} needs {size:,} bytes, more than is free.\n"
            "Read some of its rows: checkpoint.array(name, rows=slice(0, 1000))."
        ) from None


def rows_of(whole: np.ndarray, rows: Chosen) -> np.ndarray:
    """Return rows of an array that was read as a whole; a copy if they are fewer, for a view would keep the others."""
    if not isinstance(rows, range):
        return whole[rows]
    return whole if len(rows) == len(whole) else whole[rows.start : rows.stop].copy("K")


def contiguous_runs(rows: Chosen, max_rows: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield the contiguous runs of rows, of at most `max_rows`: offset in the result, first row, number of rows.

    Examples:
        >>> list(contiguous_runs(np.array([4, 5, 6, 1]), max_rows=2))
        [(0, 4, 2), (2, 6, 1), (3, 1, 1)]
    """
    if isinstance(rows, range):
        runs = [(0, rows.start, len(rows))] if len(rows) else []
    else:
        edges = np.flatnonzero(np.diff(rows) != 1) + 1
        starts = [0, *edges.tolist()] if len(rows) else []
        ends = [*edges.tolist(), len(rows)]
        runs = [(a, int(rows[a]), b - a) for a, b in zip(starts, ends, strict=False)]
    for offset, first, count in runs:
        step = count if max_rows is None else max_rows
        for done in range(0, count, step):
            yield offset + done, first + done, min(step, count - done)
