"""Tensors that a file stores as one range of bytes, of which only the requested rows are read and widened, exactly."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, final

import numpy as np
from jaxtyping import Float32, UInt8

from whatwhere.errors import CheckpointError, MissingExtra
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Chosen, Entry, Reader, contiguous_runs, new_rows, rows_of
from whatwhere.models.checkpoint.files import File

if TYPE_CHECKING:
    from torch import Tensor

_MAX_DIMENSIONS = 32
"""NumPy's own limit before version 2."""
_BLOCK = 1 << 20
"""Bytes that are widened at once, so that reading needs only a few MB more than the returned array."""

QUANTIZED = {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q8_1": (32, 40),
    "Q2_K": (256, 84), "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210),
    "Q8_K": (256, 292), "IQ2_XXS": (256, 66), "IQ2_XS": (256, 74), "IQ3_XXS": (256, 98), "IQ1_S": (256, 50),
    "IQ4_NL": (32, 18), "IQ3_S": (256, 110), "IQ2_S": (256, 82), "IQ4_XS": (256, 136), "IQ1_M": (256, 56),
    "TQ1_0": (256, 54), "TQ2_0": (256, 66), "MXFP4": (32, 17), "NVFP4": (64, 36), "Q1_0": (128, 18),
}  # fmt: skip
"""Quantized types of GGUF -> values of a block, and its bytes."""


@dataclass(frozen=True)
class StoredType:
    """A type in which values are stored.

    Args:
        name: in torch; in GGUF if it is quantized.
        stored: NumPy's type of the bytes; uint8 if it has none.
        wide: NumPy's type after widening.
        block: number of values in a block; 1 if they are not packed.
        bytes: size of a block.
        widen: converts stored to wide values; None if they are the same, or if the type is not supported.
        unsupported: why values cannot be read; "" if they can.
    """

    name: str
    stored: str
    wide: str
    block: int = 1
    bytes: int = 1
    widen: Callable[[np.ndarray], np.ndarray] | None = None
    unsupported: str = ""

    def size(self, shape: tuple[int, ...]) -> int | None:
        """Compute the size of a shape in bytes; None if rows are not a whole number of blocks."""
        values = prod(shape)
        # Packed values of safetensors cross the borders of rows; blocks of GGUF do not.
        along = values if self.unsupported else shape[-1] if shape else 1
        return None if along % self.block else values // self.block * self.bytes


@cache
def _values_of_bytes(name: str) -> Float32[np.ndarray, "256"]:
    """Return the value of each byte in an 8-bit floating-point format, of which NumPy has none."""
    import torch

    values: np.ndarray = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).float().numpy()
    return values


def _from_table(name: str, raw: np.ndarray) -> Float32[np.ndarray, "..."]:
    values: np.ndarray = _values_of_bytes(name)[raw]
    return values


def _from_float16(raw: np.ndarray) -> Float32[np.ndarray, "..."]:
    with np.errstate(invalid="ignore"):  # signaling NaN become quiet
        return raw.astype(np.float32)


def _from_bfloat16(raw: np.ndarray) -> Float32[np.ndarray, "..."]:
    """Widen bfloat16, which is the upper half of a float32."""
    return (raw.astype(np.uint32) << 16).view(np.float32)


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


def _stored_types() -> dict[str, StoredType]:
    same = {"float64": 8, "float32": 4, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4,
            "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16}  # fmt: skip
    types = {name: StoredType(name, name, name, bytes=size) for name, size in same.items()}
    types["float16"] = StoredType("float16", "float16", "float32", bytes=2, widen=_from_float16)
    types["bfloat16"] = StoredType("bfloat16", "uint16", "float32", bytes=2, widen=_from_bfloat16)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        types[name] = StoredType(name, "uint8", "float32", widen=partial(_from_table, name))
    packed = "its values are packed, and their scales are stored in other tensors"
    for name, block, size in (("float4_e2m1", 2, 1), ("float6_e2m3", 4, 3), ("float6_e3m2", 4, 3)):
        types[name] = StoredType(name, "uint8", "float32", block, size, unsupported=packed)
    for name, (block, size) in QUANTIZED.items():
        types[name] = StoredType(name, "uint8", "float32", block, size, widen=partial(_dequantized, name))
    return types


STORED_TYPES: dict[str, StoredType] = _stored_types()
"""Every type that can be listed, by name."""


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


def checked_size(file: File, name: str, stored_type: StoredType, shape: tuple[int, ...]) -> int:
    """Compute the size of a tensor in bytes, of a shape that is not trusted, without allocating it.

    Raises:
        CheckpointError: If the shape is larger than any memory, or its rows are not a multiple of the type's blocks.
    """
    # A zero among the dimensions must not hide an overflow: NumPy multiplies the others.
    if len(shape) > _MAX_DIMENSIONS or prod(n for n in shape if n) * 16 >= 2**63:
        raise file.wrong(
            f"the tensor {quoted(name)} has the shape {quoted(str(shape))}, more than any memory holds",
            "The file is damaged or malicious: download it again from its author.",
        )
    size = stored_type.size(shape)
    if size is None:
        raise file.wrong(
            f"the tensor {quoted(name)} of shape {shape} is stored as {stored_type.name}, in blocks of "
            f"{stored_type.block} values, but its rows are not a multiple of a block",
            "The file is damaged: create or download it again.",
        )
    return size


def check_disjoint(file: File, ranges: Iterable[ByteRange]) -> None:
    """Raise CheckpointError if two tensors overlap in the file."""
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
    """A reader of only the requested rows. Files are read rather than mapped: one may shrink, or be at a server."""

    def __init__(self, ranges: Mapping[str, ByteRange]) -> None:
        self._ranges = ranges

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read rows and widen them, block by block."""
        source = self._ranges[name]
        stored_type = STORED_TYPES[source.entry.dtype]
        if stored_type.unsupported:
            raise source.file.wrong(
                f"the tensor {quoted(name)} is stored as {stored_type.name}: {stored_type.unsupported}",
                "Save it in bfloat16, with the scales applied.",
            )
        return _rows(source, rows, stored_type, stored_type.widen)

    def tensor(self, name: str, rows: Chosen | None) -> "Tensor":
        """Read rows in the stored type where torch has it; quantized types of GGUF are widened to float32."""
        import torch

        stored_type = STORED_TYPES[self._ranges[name].entry.dtype]
        dtype = getattr(torch, stored_type.name, None)
        if dtype is None or stored_type.name in QUANTIZED:
            return torch.from_numpy(self.array(name, rows))
        raw = torch.from_numpy(_rows(self._ranges[name], rows, stored_type, None))
        return raw if raw.dtype == dtype else raw.view(dtype)


Widen = Callable[[np.ndarray], np.ndarray] | None


def _rows(source: ByteRange, rows: Chosen | None, stored_type: StoredType, widen: Widen) -> np.ndarray:
    shape = source.entry.shape
    if source.fortran_order and len(shape) > 1:
        whole = _read(source, range(shape[-1]), shape[::-1], stored_type, widen).transpose()
        return whole if rows is None else rows_of(whole, rows)
    if rows is None:
        return _read(source, range(1), (1,), stored_type, widen).reshape(())
    return _read(source, rows, shape, stored_type, widen)


def _read(source: ByteRange, rows: Chosen, shape: tuple[int, ...], stored_type: StoredType, widen: Widen) -> np.ndarray:
    out = new_rows(source.entry, (len(rows), *shape[1:]), stored_type.stored if widen is None else stored_type.wide)
    if not out.size:
        return out
    stored = np.dtype(stored_type.stored).newbyteorder(">" if source.big_endian else "<")
    block, size_of_block = stored_type.block, stored_type.bytes
    row_bytes, step = prod(shape[1:]) // block * size_of_block, _BLOCK // size_of_block * block
    with source.file.opened() as stream:
        for start, first, count in contiguous_runs(rows):
            flat = out[start : start + count].reshape(-1)
            offset = source.offset + first * row_bytes
            if widen is None and stored.isnative:
                stream.read_into(offset, flat)
                continue
            for begin in range(0, len(flat), step):
                target = flat[begin : begin + step]
                raw = np.empty(len(target) // block * size_of_block // stored.itemsize, dtype=stored)
                stream.read_into(offset + begin // block * size_of_block, raw)
                raw = raw.astype(stored.newbyteorder("="), copy=False)
                target[...] = raw if widen is None else widen(raw)
    return out
