"""Safetensors: a length of 8 bytes, that many bytes of JSON, and the tensors behind.

The rules are those of the format's own reader (https://huggingface.co/docs/safetensors): the header has at most
100,000,000 bytes, tensors follow one another without a gap, and the last one ends with the file.
"""

from pathlib import Path
from typing import Any

from whatwhere.interop.checkpoint.contents import Entry
from whatwhere.interop.checkpoint.files import File, parse_json, shown, whole_number
from whatwhere.interop.checkpoint.numbers import KINDS
from whatwhere.interop.checkpoint.stretches import Stretch, check_apart, checked_size

LONGEST_HEADER = 100_000_000
TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1", "F6_E2M3": "float6_e2m3",
    "F6_E3M2": "float6_e3m2",
}  # fmt: skip
"""The format's name of a type -> torch's."""

_ANEW = "It is cut off or damaged: make or download it anew."


def is_safetensors(head: bytes) -> bool:
    """Tell from the first bytes: a length, and the brace that opens the header."""
    return len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= LONGEST_HEADER


def read_header(path: str | Path) -> tuple[dict[str, Stretch], dict[str, Any]]:
    """Read where each tensor stands, and the metadata; of the tensors nothing is read."""
    file = File(path)
    if file.size < 8:
        raise file.wrong(f"it has {file.size} bytes, but safetensors begin with a length of 8", _ANEW)
    length = int.from_bytes(file.head(8), "little")
    if length > LONGEST_HEADER or length > file.size - 8:
        raise file.wrong(
            f"its header claims {length:,} bytes, of a file of {file.size:,} (at most {LONGEST_HEADER:,} are read)",
            _ANEW,
        )
    header = parse_json(file.read(8, length), f"{file.path}: the header")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict):
        raise file.wrong("__metadata__ in its header is no object", _ANEW)
    begin = 8 + length
    stretches = {name: _stretch(file, name, said, begin) for name, said in header.items()}
    check_apart(file, stretches.values())
    described = sum(stretch.entry.bytes for stretch in stretches.values())
    if begin + described != file.size:
        raise file.wrong(
            f"its header describes {described:,} bytes of tensors, but {file.size - begin:,} follow it", _ANEW
        )
    return stretches, metadata


def _stretch(file: File, name: str, said: Any, begin: int) -> Stretch:
    """Check what the header says of one tensor."""
    if not isinstance(said, dict) or not {"dtype", "shape", "data_offsets"} <= said.keys():
        raise file.wrong(f"of the tensor {shown(name)} its header lacks dtype, shape or data_offsets", _ANEW)
    dtype, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(dtype, str) or dtype not in TYPES:
        told = shown(dtype) if isinstance(dtype, str) else "no string"
        raise file.wrong(
            f"the tensor {shown(name)} has the type {told}, which is not known", f"Known are: {', '.join(TYPES)}."
        )
    lists = isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2
    if not lists or not all(map(whole_number, [*shape, *offsets])):
        raise file.wrong(f"shape or data_offsets of the tensor {shown(name)} are no whole numbers of bytes", _ANEW)
    kind = KINDS[TYPES[dtype]]
    size = checked_size(file, name, kind, tuple(shape))
    first, last = offsets
    if not first <= last <= file.size - begin or last - first != size:
        raise file.wrong(
            f"the tensor {shown(name)} of shape {shown(str(shape))} and type {dtype} needs {size:,} bytes, but its "
            f"data_offsets are {first:,} to {last:,} of {file.size - begin:,}",
            _ANEW,
        )
    return Stretch(Entry(name, tuple(shape), kind.name, size, file.path), file, begin + first)
