"""Tensors that a file stores as one contiguous range of bytes: those of safetensors, GGUF and .npy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import MAX_DIMENSIONS, Chosen, Entry, Reader, contiguous_runs, rows_of
from whatwhere.models.checkpoint.dtypes import QUANTIZED, STORED_TYPES, StoredType
from whatwhere.models.checkpoint.files import File

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 20
"""Bytes that are widened at once, so that reading needs only a few MB more than the returned array."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes of a tensor in a file.

    Args:
        entry: of the tensor.
        file: that contains it.
        offset: of its first byte.
        big_endian: whether the most significant byte comes first.
        fortran_order: whether the first dimension is contiguous, as in Fortran.
    """

    entry: Entry
    file: File
    offset: int
    big_endian: bool = False
    fortran_order: bool = False

    @property
    def stored_type(self) -> StoredType:
        """The type in which its values are stored."""
        return STORED_TYPES[self.entry.dtype]


def checked_size(file: File, name: str, stored_type: StoredType, shape: tuple[int, ...]) -> int:
    """Compute the size of a tensor in bytes, without allocating it.

    Args:
        file: for messages.
        name: of the tensor, for messages.
        stored_type: of its values.
        shape: not trusted.

    Raises:
        CheckpointError: If the shape is larger than any memory, or its rows are no multiple of the type's blocks.
    """
    # A zero among the dimensions must not hide an overflow: NumPy multiplies the others.
    if len(shape) > MAX_DIMENSIONS or prod(n for n in shape if n) * 16 >= 2**63:
        raise file.wrong(
            f"the tensor {quoted(name)} has the shape {quoted(str(shape))}, more than any memory holds",
            "The file is damaged or malicious: download it again from its author.",
        )
    size = stored_type.size(shape)
    if size is None:
        raise file.wrong(
            f"the tensor {quoted(name)} of shape {shape} is stored as {stored_type.name}, in blocks of "
            f"{stored_type.block} values, but its rows are no multiple of a block",
            "The file is damaged: create or download it again.",
        )
    return size


def check_disjoint(file: File, ranges: Iterable[ByteRange]) -> None:
    """Raise CheckpointError if two tensors overlap in the file.

    Args:
        file: for messages.
        ranges: of one file.

    Raises:
        CheckpointError: If two of them overlap.
    """
    end, before = 0, ""
    for one in sorted((one for one in ranges if one.entry.bytes), key=attrgetter("offset")):
        if one.offset < end:
            raise file.wrong(
                f"the tensors {quoted(before)} and {quoted(one.entry.name)} share bytes",
                "The header is damaged: create or download the file again.",
            )
        end, before = one.offset + one.entry.bytes, one.entry.name


@final
class ByteRangeReader(Reader):
    """A reader of tensors that reads only the requested rows.

    Args:
        ranges: by name.
    """

    def __init__(self, ranges: Mapping[str, ByteRange]) -> None:
        self._ranges = ranges

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read rows and widen them, block by block.

        Args:
            name: of the tensor.
            rows: to read; None for a scalar.

        Raises:
            CheckpointError: If its type is not supported, or the file has changed since it was opened.
        """
        source = self._ranges[name]
        stored_type = source.stored_type
        if stored_type.unsupported:
            raise source.file.wrong(
                f"the tensor {quoted(name)} is stored as {stored_type.name}: {stored_type.unsupported}",
                "Save it in bfloat16, with the scales applied.",
            )
        return self._rows(source, rows, stored_type.wide)

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read rows in the stored type where torch has it; quantized types of GGUF are widened to float32.

        Args:
            name, rows: as in `array`.
        """
        import torch

        stored_type = self._ranges[name].stored_type
        dtype = getattr(torch, stored_type.name, None)
        if dtype is None or stored_type.name in QUANTIZED:
            return torch.from_numpy(self.array(name, rows))
        raw = torch.from_numpy(self._rows(self._ranges[name], rows, stored_type.stored))
        return raw if raw.dtype == dtype else raw.view(dtype)

    def _rows(self, source: ByteRange, rows: Chosen | None, dtype: str) -> np.ndarray:
        """Read rows as the type `wide` or `stored`."""
        shape = source.entry.shape
        if source.fortran_order and len(shape) > 1:
            whole = self._read(source, range(shape[-1]), shape[::-1], dtype).transpose()
            return whole if rows is None else rows_of(whole, rows)
        if rows is None:
            return self._read(source, range(1), (1,), dtype).reshape(())
        return self._read(source, rows, shape, dtype)

    def _read(self, source: ByteRange, rows: Chosen, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        stored_type, row_values = source.stored_type, prod(shape[1:])
        out = allocate(source, (len(rows), *shape[1:]), dtype)
        if not out.size:
            return out
        stored = np.dtype(stored_type.stored).newbyteorder(">" if source.big_endian else "<")
        widen = None if dtype == stored_type.stored else stored_type.widen
        row_bytes = row_values // stored_type.block * stored_type.bytes
        step = _BLOCK // stored_type.bytes * stored_type.block
        with source.file.opened() as stream:
            for start, first, count in contiguous_runs(rows):
                flat = out[start : start + count].reshape(-1)
                offset = source.offset + first * row_bytes
                if widen is None and stored.isnative:
                    stream.read_into(offset, flat)
                    continue
                for begin in range(0, len(flat), step):
                    target = flat[begin : begin + step]
                    size = len(target) // stored_type.block * stored_type.bytes
                    raw = np.empty(size // stored.itemsize, dtype=stored)
                    stream.read_into(offset + begin // stored_type.block * stored_type.bytes, raw)
                    raw = raw.astype(stored.newbyteorder("="), copy=False)
                    target[...] = raw if widen is None else widen(raw)
        return out


def allocate(source: ByteRange, shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    """Return an uninitialized array for a tensor, whose size was checked against that of the file.

    Args:
        source: of the tensor, for the message.
        shape, dtype: of the array.

    Raises:
        CheckpointError: If there is too little memory.
    """
    try:
        return np.empty(shape, dtype=dtype)
    except MemoryError:
        size = prod(shape) * np.dtype(dtype).itemsize
        raise CheckpointError(
            f"{source.file.path}: the tensor {quoted(source.entry.name)} needs {size:,} bytes, more than is free.\n"
            "Read some of its rows: checkpoint.array(name, rows=slice(0, 1000))."
        ) from None
