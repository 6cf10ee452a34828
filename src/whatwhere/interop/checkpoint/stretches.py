"""Tensors that stand in a file as one stretch of bytes: those of safetensors, GGUF and .npy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.contents import DIMENSIONS, Chosen, Entry, Reader, runs
from whatwhere.interop.checkpoint.files import File, shown
from whatwhere.interop.checkpoint.numbers import BLOCKS, KINDS, Kind

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 20
"""Bytes that are widened at once, so that reading costs a few MB beyond the array that it gives."""


@dataclass(frozen=True)
class Stretch:
    """Say where a tensor stands.

    Args:
        entry: what it is.
        file: that holds it.
        offset: of its first byte.
        swapped: the most significant byte comes first.
        transposed: the last dimension comes first, as Fortran has it.
    """

    entry: Entry
    file: File
    offset: int
    swapped: bool = False
    transposed: bool = False

    @property
    def kind(self) -> Kind:
        """How its numbers are stored."""
        return KINDS[self.entry.dtype]


def checked_size(file: File, name: str, kind: Kind, shape: tuple[int, ...]) -> int:
    """Give the bytes that a tensor takes, from numbers that are not trusted; nothing is allocated."""
    # Neither may the product overflow where another dimension is zero: NumPy counts the others.
    if len(shape) > DIMENSIONS or prod(n for n in shape if n) * 16 >= 2**63:
        raise file.wrong(
            f"the tensor {shown(name)} has the shape {shown(str(shape))}, more than any memory holds",
            "The file is damaged, or made to do harm: get it anew from its author.",
        )
    size = kind.size(shape)
    if size is None:
        raise file.wrong(
            f"the tensor {shown(name)} of shape {shape} is stored as {kind.name}, in blocks of {kind.numbers} numbers, "
            "which its rows are no multiple of",
            "The file is damaged: make or download it anew.",
        )
    return size


def check_apart(file: File, stretches: Iterable[Stretch]) -> None:
    """Raise CheckpointError if two tensors share bytes."""
    end, before = 0, ""
    for stretch in sorted(stretches, key=lambda stretch: (stretch.offset, stretch.entry.bytes)):
        if stretch.entry.bytes and stretch.offset < end:
            raise file.wrong(
                f"the tensors {shown(before)} and {shown(stretch.entry.name)} share bytes",
                "The header is damaged: make or download the file anew.",
            )
        if stretch.entry.bytes:
            end, before = stretch.offset + stretch.entry.bytes, stretch.entry.name


@final
class Stretches(Reader):
    """Read rows of tensors, and nothing else of the file.

    Args:
        stretches: by name.
    """

    def __init__(self, stretches: Mapping[str, Stretch]) -> None:
        self._stretches = stretches

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read and widen, block by block."""
        stretch = self._stretches[name]
        kind = stretch.kind
        if kind.unread:
            raise stretch.file.wrong(
                f"the tensor {shown(name)} is stored as {kind.name}: {kind.unread}",
                "Save it in bfloat16, with the scales multiplied in.",
            )
        return self._rows(stretch, rows, kind.wide)

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read in the stored type where torch has it; what GGUF quantises is widened to float32."""
        import torch

        kind = self._stretches[name].kind
        own = getattr(torch, kind.name, None)
        if own is None or kind.name in BLOCKS:
            return torch.from_numpy(self.array(name, rows))
        raw = torch.from_numpy(self._rows(self._stretches[name], rows, kind.stored))
        return raw if raw.dtype == own else raw.view(own)

    def _rows(self, stretch: Stretch, rows: Chosen | None, dtype: str) -> np.ndarray:
        """Give rows as `wide` or as `stored`, whichever type is asked for."""
        shape = stretch.entry.shape
        if stretch.transposed and len(shape) > 1:
            whole = self._stored(stretch, range(shape[-1]), shape[::-1], dtype).transpose()
            return whole[rows.start : rows.stop] if isinstance(rows, range) else whole[rows]
        if rows is None:
            return self._stored(stretch, range(1), (1,), dtype).reshape(())
        return self._stored(stretch, rows, shape, dtype)

    def _stored(self, stretch: Stretch, rows: Chosen, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        kind, numbers = stretch.kind, prod(shape[1:])
        out = empty(stretch, (len(rows), *shape[1:]), dtype)
        if not out.size:
            return out
        stored = np.dtype(kind.stored).newbyteorder(">" if stretch.swapped else "<")
        widen = None if dtype == kind.stored else kind.widen
        row_bytes = numbers // kind.numbers * kind.bytes
        at_once = _BLOCK // kind.bytes * kind.numbers
        with stretch.file.opened() as stream:
            for place, first, count in runs(rows):
                flat = out[place : place + count].reshape(-1)
                offset = stretch.offset + first * row_bytes
                if widen is None and stored.isnative:
                    stream.read_into(offset, flat)
                    continue
                for begin in range(0, len(flat), at_once):
                    into = flat[begin : begin + at_once]
                    size = len(into) // kind.numbers * kind.bytes
                    raw = np.empty(size // stored.itemsize, dtype=stored)
                    stream.read_into(offset + begin // kind.numbers * kind.bytes, raw)
                    raw = raw.astype(stored.newbyteorder("="), copy=False)
                    into[...] = raw if widen is None else widen(raw)
        return out


def empty(stretch: Stretch, shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """Allocate what a tensor needs; its size has been checked against the file."""
    try:
        return np.empty(shape, dtype=dtype)
    except MemoryError:
        size = prod(shape) * np.dtype(dtype).itemsize
        raise CheckpointError(
            f"{stretch.file.path}: the tensor {shown(stretch.entry.name)} needs {size:,} bytes, more than there are.\n"
            "Read some of its rows: checkpoint.array(name, rows=slice(0, 1000))."
        ) from None
