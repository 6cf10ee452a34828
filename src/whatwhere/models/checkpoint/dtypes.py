"""The types in which checkpoints store numbers, and how they are widened to types of NumPy, which is exact."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
from jaxtyping import Float32, UInt8

from whatwhere.errors import CheckpointError, MissingExtra

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
        """Compute the size of a shape in bytes; None if rows are no whole number of blocks.

        Args:
            shape: of a tensor.
        """
        values = prod(shape)
        # Packed values of safetensors cross the borders of rows; blocks of GGUF do not.
        along = values if self.unsupported else shape[-1] if shape else 1
        return None if along % self.block else values // self.block * self.bytes


def _small_floats(exponent: int, mantissa: int, bias: int, special: str) -> Float32[np.ndarray, "256"]:
    """Return the values of the 256 bytes of an 8-bit floating-point format.

    Args:
        exponent, mantissa: number of bits of each.
        bias: of the exponent.
        special: which bytes are not numbers: `ieee` has infinities and NaN, `fn` two NaN, `fnuz` one.
    """
    codes = np.arange(256)
    sign = np.where(codes >> 7, -1.0, 1.0)
    power, rest = (codes >> mantissa) & (2**exponent - 1), codes & (2**mantissa - 1)
    small = rest * 2.0 ** (1 - bias - mantissa)
    normal = (1 + rest / 2**mantissa) * 2.0 ** (power - float(bias))
    values = sign * np.where(power == 0, small, normal)
    if special == "ieee":
        top = power == 2**exponent - 1
        values = np.where(top, np.where(rest == 0, sign * np.inf, np.nan), values)
    if special == "fn":
        values = np.where(codes & 127 == 127, np.nan, values)
    if special == "fnuz":
        values = np.where(codes == 128, np.nan, values)
    table: np.ndarray = values.astype(np.float32)
    return table


@cache
def _table(name: str) -> Float32[np.ndarray, "256"]:
    """Return the value of each byte in an 8-bit floating-point format."""
    if name == "float8_e8m0fnu":  # an exponent and nothing else
        return np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan))
    bits = {
        "float8_e4m3fn": (4, 3, 7, "fn"),
        "float8_e5m2": (5, 2, 15, "ieee"),
        "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
        "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
    }
    return _small_floats(*bits[name])


def _by_table(name: str) -> Callable[[np.ndarray], np.ndarray]:
    def widen(raw: np.ndarray) -> np.ndarray:
        values: np.ndarray = _table(name)[raw]
        return values

    return widen


def _from_bfloat16(raw: np.ndarray) -> Float32[np.ndarray, "..."]:
    """Widen bfloat16, which is the upper half of a float32."""
    return (raw.astype(np.uint32) << 16).view(np.float32)


def widened(array: np.ndarray) -> np.ndarray:
    """Return an array in native byte order, with half precision widened to float32.

    Args:
        array: of any type.

    Examples:
        >>> widened(np.array([1.5], dtype=">f2")).dtype
        dtype('float32')
    """
    wide = np.dtype(np.float32) if array.dtype.type is np.float16 else array.dtype.newbyteorder("=")
    with np.errstate(invalid="ignore"):  # signaling NaN become quiet
        return array.astype(wide, copy=False)


def _dequantizer(name: str) -> Callable[[np.ndarray], np.ndarray]:
    def dequantize(raw: UInt8[np.ndarray, " bytes"]) -> Float32[np.ndarray, " values"]:
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

    return dequantize


def _stored_types() -> dict[str, StoredType]:
    same = {"float64": 8, "float32": 4, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4,
            "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16}  # fmt: skip
    types = {name: StoredType(name, name, name, bytes=size) for name, size in same.items()}
    types["float16"] = StoredType("float16", "float16", "float32", bytes=2, widen=widened)
    types["bfloat16"] = StoredType("bfloat16", "uint16", "float32", bytes=2, widen=_from_bfloat16)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        types[name] = StoredType(name, "uint8", "float32", widen=_by_table(name))
    packed = "its values are packed, and their scales are stored in other tensors"
    types["float4_e2m1"] = StoredType("float4_e2m1", "uint8", "float32", 2, 1, unsupported=packed)
    types["float6_e2m3"] = StoredType("float6_e2m3", "uint8", "float32", 4, 3, unsupported=packed)
    types["float6_e3m2"] = StoredType("float6_e3m2", "uint8", "float32", 4, 3, unsupported=packed)
    for name, (block, size) in QUANTIZED.items():
        types[name] = StoredType(name, "uint8", "float32", block, size, widen=_dequantizer(name))
    return types


STORED_TYPES: dict[str, StoredType] = _stored_types()
"""Every type that can be listed, by name."""
