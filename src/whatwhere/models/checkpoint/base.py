"""What all formats share: tensors that are known from headers alone, and read their rows on request, exactly."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32, UInt8

from whatwhere.errors import CheckpointError, MissingExtra, TokenError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.files import File
from whatwhere.models.configuration.keys import Json

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

Rows = slice | Sequence[int] | np.ndarray | None  # rows as callers may select them; None is all
Chosen = range | np.ndarray  # rows after they were checked: a contiguous run, or an array of row numbers
NO_TOKENIZER = "there is no tokenizer.json beside the table"
_MAX_DIMENSIONS = 32  # NumPy's own limit before version 2
_BLOCK = 1 << 20  # bytes that are widened at once, so that reading needs only a few MB more than the returned array
_COMPUTED = 1 << 18  # numbers of a combined tensor that are computed at once


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as the header describes it; those of each format read their rows."""

    name: str
    shape: tuple[int, ...]  # rows first
    dtype: str  # as torch names it, or GGUF if it is quantized
    bytes: int  # in the file; 0 of text
    file: Path

    def array(self, rows: Chosen | None) -> np.ndarray:
        """Read rows as a NumPy array; None is the value of a scalar."""
        raise NotImplementedError

    def tensor(self, rows: Chosen | None) -> "Tensor":
        """Read rows as a torch tensor, in the stored type if torch has it."""
        import torch

        widened = torch.from_numpy(self.array(rows))
        return widened.half() if self.dtype == "float16" else widened  # as NumPy stores it


@dataclass(frozen=True, eq=False)
class Computed(Entry):
    """A tensor that a function reads, given rows."""

    rows: Callable[[Chosen | None], np.ndarray]

    def array(self, rows: Chosen | None) -> np.ndarray:
        """Read rows, or all."""
        return self.rows(rows)


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of a file or folder, read from its headers."""

    format: str
    entries: Mapping[str, Entry]  # in the order of the file
    words: Callable[[], list[str] | None] = lambda: None
    config: Json | None = None
    metadata: Json = field(default_factory=dict)
    tokenizer: Callable[[], "Tokenizer | str"] = lambda: NO_TOKENIZER  # or why there is none
    token_table: str | None = None  # its name, where the format determines it
    adapter: str = ""  # "an adapter of" and its base


def checked_rows(entry: Entry, rows: Rows) -> Chosen | None:
    """Return the rows that a caller selects as a range or an array, None for a scalar; raise TokenError for others."""
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


def _new_rows(entry: Entry, shape: tuple[int, ...], dtype: str | np.dtype) -> np.ndarray:
    try:
        return np.empty(shape, dtype=dtype)
    except MemoryError:
        size = prod(shape) * np.dtype(dtype).itemsize
        raise CheckpointError(
            f"{entry.file}: the tensor {quoted(entry.name)} needs {size:,} bytes, more than is free.\n"
            "Read some of its rows: checkpoint.array(name, rows=slice(0, 1000))."
        ) from None


def contiguous_runs(rows: Chosen, max_rows: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Yield the contiguous runs of rows, of at most `max_rows`: offset in the result, first row, number of rows."""
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


# Stored types

GGUF_TYPES: dict[int, tuple[str, int, int]] = {
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}  # fmt: skip
"""GGUF's number of a quantized type -> its name, the values of a block, and its bytes."""
QUANTIZED = frozenset(name for name, _, _ in GGUF_TYPES.values())

_Widen = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class StoredType:
    """NumPy's types of the stored bytes and of the values that `widen` makes of them, and the sizes of a block."""

    stored: str
    wide: str
    block: int = 1  # its values
    bytes: int = 1
    widen: _Widen | None = None  # None where the types are equal, or packed
    packed: bool = False  # across the borders of rows, with scales in other tensors

    def size(self, shape: tuple[int, ...]) -> int | None:
        """Compute the size of a shape in bytes; None if rows are not a whole number of blocks."""
        values = prod(shape)
        along = values if self.packed else shape[-1] if shape else 1
        return None if along % self.block else values // self.block * self.bytes


@cache
def _values_of_bytes(name: str) -> Float32[np.ndarray, "256"]:
    import torch

    values: np.ndarray = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).float().numpy()
    return values


def _from_byte(name: str, raw: np.ndarray) -> np.ndarray:
    return np.asarray(_values_of_bytes(name)[raw])


def _from_bfloat16(raw: np.ndarray) -> np.ndarray:
    return (raw.astype(np.uint32) << 16).view(np.float32)  # it is the upper half of a float32


def _from_float16(raw: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signaling NaN become quiet
        return raw.astype(np.float32)


def _dequantized(name: str, raw: UInt8[np.ndarray, " bytes"]) -> Float32[np.ndarray, " values"]:
    try:
        from gguf import GGMLQuantizationType, quants
    except ImportError as problem:
        raise MissingExtra(
            f"tensors quantized as {name} are read with the package gguf, which is not installed.\n"
            "Install it: pip install 'whatwhere[gguf]'."
        ) from problem
    try:
        with np.errstate(all="ignore"):  # an infinite scale times zero is NaN, which is kept
            values: np.ndarray = quants.dequantize(raw, GGMLQuantizationType[name])
    except (KeyError, NotImplementedError):
        raise CheckpointError(
            f"tensors quantized as {name} cannot be read by the installed package gguf.\n"
            "Quantize the file another way, such as Q8_0, or update the package."
        ) from None
    return values


STORED_TYPES: dict[str, StoredType] = {
    **{
        name: StoredType(name, name, bytes=np.dtype(name).itemsize)
        for name in ("float64", "float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
                     "bool", "complex64", "complex128")
    },
    "float16": StoredType("float16", "float32", bytes=2, widen=_from_float16),
    "bfloat16": StoredType("uint16", "float32", bytes=2, widen=_from_bfloat16),
    **{
        name: StoredType("uint8", "float32", widen=partial(_from_byte, name))
        for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    },
    "float4_e2m1": StoredType("uint8", "float32", 2, 1, packed=True),
    "float6_e2m3": StoredType("uint8", "float32", 4, 3, packed=True),
    "float6_e3m2": StoredType("uint8", "float32", 4, 3, packed=True),
    **{
        name: StoredType("uint8", "float32", block, size, widen=partial(_dequantized, name))
        for name, block, size in GGUF_TYPES.values()
    },
}  # fmt: skip
"""Every type that can be listed, by its name in torch, or in GGUF if it is quantized."""


# Tensors of files and of torch


@dataclass(frozen=True, slots=True)
class ByteRange(Entry):
    """A tensor that is one range of bytes of a file, which is read, not mapped: it may shrink, or be at a server."""

    source: File
    offset: int

    def array(self, rows: Chosen | None) -> np.ndarray:
        """Read rows and widen them, block by block."""
        kind = STORED_TYPES[self.dtype]
        if kind.packed:
            raise self.source.wrong(
                f"the tensor {quoted(self.name)} is stored as {self.dtype}: its values are packed, and their scales "
                "are stored in other tensors",
                "Save it in bfloat16, with the scales applied.",
            )
        return self._rows(rows, kind, kind.widen)

    def tensor(self, rows: Chosen | None) -> "Tensor":
        """Read rows in the stored type where torch has it; quantized types of GGUF are widened to float32."""
        import torch

        dtype = getattr(torch, self.dtype, None)
        if dtype is None or self.dtype in QUANTIZED:
            return torch.from_numpy(self.array(rows))
        raw = torch.from_numpy(self._rows(rows, STORED_TYPES[self.dtype], None))
        return raw if raw.dtype == dtype else raw.view(dtype)

    def _rows(self, rows: Chosen | None, kind: StoredType, widen: _Widen | None) -> np.ndarray:
        row = self.shape[1:]
        out = _new_rows(self, (1 if rows is None else len(rows), *row), kind.stored if widen is None else kind.wide)
        if not out.size:
            return out
        stored = np.dtype(kind.stored).newbyteorder("<")
        row_bytes, step = prod(row) // kind.block * kind.bytes, _BLOCK // kind.bytes * kind.block
        with self.source.stream() as stream:
            for start, first, count in contiguous_runs(range(1) if rows is None else rows):
                flat = out[start : start + count].reshape(-1)
                offset = self.offset + first * row_bytes
                if widen is None and stored.isnative:
                    stream.read_into(offset, flat)
                    continue
                for begin in range(0, len(flat), step):
                    target = flat[begin : begin + step]
                    raw = np.empty(len(target) // kind.block * kind.bytes // stored.itemsize, dtype=stored)
                    stream.read_into(offset + begin // kind.block * kind.bytes, raw)
                    raw = raw.astype(stored.newbyteorder("="), copy=False)
                    target[...] = raw if widen is None else widen(raw)
        return out.reshape(()) if rows is None else out


def checked_size(file: File, name: str, dtype: str, shape: tuple[int, ...]) -> int:
    """Compute the size of a tensor, of a shape that is not trusted; raise CheckpointError if it cannot be."""
    # A zero among the dimensions must not hide an overflow: NumPy multiplies the others.
    if len(shape) > _MAX_DIMENSIONS or prod(n for n in shape if n) * 16 >= 2**63:
        raise file.wrong(
            f"the tensor {quoted(name)} has the shape {quoted(str(shape))}, more than any memory holds",
            "The file is damaged or malicious: download it again from its author.",
        )
    kind = STORED_TYPES[dtype]
    if (size := kind.size(shape)) is None:
        raise file.wrong(
            f"the tensor {quoted(name)} of shape {shape} is stored as {dtype}, in blocks of {kind.block} values, but "
            "its rows are not a multiple of a block",
            "The file is damaged: create or download it again.",
        )
    return size


def require_adjacent(file: File, ranges: Iterable[ByteRange], begin: int, alignment: int = 1) -> None:
    """Raise CheckpointError unless tensors follow one another from `begin` to the end of the file, as aligned."""
    end = begin
    for one in sorted(ranges, key=lambda one: (one.offset, one.bytes)):
        if one.offset + one.bytes > file.size:
            raise file.damaged(
                f"the tensor {quoted(one.name)} ends at byte {one.offset + one.bytes:,}, but the file at {file.size:,}"
            )
        if one.offset != end:
            raise file.damaged(
                f"the tensor {quoted(one.name)} is at byte {one.offset - begin:,} of the data, but the tensors before "
                f"it end at byte {end - begin:,}"
            )
        end += -(-one.bytes // alignment) * alignment
    if end + alignment <= file.size:
        raise file.damaged(f"{file.size - end:,} bytes follow the tensors of its header")


@dataclass(frozen=True, eq=False)
class InTorch(Entry):
    """A tensor that torch has in memory, or mapped; `check` is called before its values are read."""

    values: "Tensor"
    check: Callable[[], None]
    parameters: int | None = None  # how many numbers a model learned of it; None is all

    @classmethod
    def of(cls, name: str, values: "Tensor", file: Path, check: Callable[[], None] = lambda: None) -> "InTorch":
        """Describe a tensor."""
        dtype = str(values.dtype).removeprefix("torch.")
        return cls(name, tuple(values.shape), dtype, values.nbytes, file, values, check)

    def array(self, rows: Chosen | None) -> np.ndarray:
        """Read a copy of rows, numbers of fewer than 32 bits widened."""
        tensor = self.tensor(rows)
        array: np.ndarray = (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).numpy()
        return array

    def tensor(self, rows: Chosen | None) -> "Tensor":
        """Read a copy of rows in the stored type."""
        import torch

        self.check()
        chosen = self.values.detach()
        if isinstance(rows, range):
            chosen = chosen[rows.start : rows.stop]
        elif rows is not None:  # as bytes: some versions cannot index numbers of 8 bits
            plain = chosen.view(torch.uint8) if chosen.itemsize == 1 else chosen
            chosen = plain[torch.from_numpy(rows)].view(chosen.dtype)
        return chosen.clone(memory_format=torch.contiguous_format).cpu()


@dataclass(frozen=True, eq=False)
class Combined(Entry):
    """A tensor that is stored in parts."""

    parts: tuple[str, ...]
    rows: Callable[[Chosen], np.ndarray] | None  # computes some; None where no rule for them is known
    why: str  # behind its name: of what it is made, or why it is not read
    way_out: str = "Dequantize it by the library that wrote it, and save the model as bfloat16."
    parameters: int | None = None  # how many numbers are learned; None is all

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], dtype: str, parts: Sequence[Entry], *more: Any) -> "Combined":
        """Describe the whole of some parts, in the file of the first; `more` are the fields behind `parts`."""
        size = sum(part.bytes for part in parts)
        return cls(name, shape, dtype, size, parts[0].file, tuple(part.name for part in parts), *more)

    def refused(self) -> CheckpointError:
        """Return the error for whoever reads rows that are not known, or changes them."""
        return CheckpointError(f"{self.file}: {quoted(self.name)} {self.why}.\n{self.way_out}")

    def array(self, rows: Chosen | None) -> np.ndarray:
        """Compute rows, block by block."""
        if self.rows is None or rows is None:
            raise self.refused()
        step = max(_COMPUTED // max(self.shape[1], 1), 1)
        with np.errstate(all="ignore"):  # an infinite scale times zero is NaN, which is kept
            first = self.rows(rows[:step])
            out = _new_rows(self, (len(rows), self.shape[1]), first.dtype)
            out[:step] = first
            for start in range(step, len(rows), step):
                out[start : start + step] = self.rows(rows[start : start + step])
        return out
