"""NumPy's .npy: an array behind a short header.

The header is a literal of Python; here it is matched against the one form that NumPy writes, so that none is parsed
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

import re
import struct
from pathlib import Path

from whatwhere.interop.checkpoint.contents import Contents, Entry
from whatwhere.interop.checkpoint.files import File, shown
from whatwhere.interop.checkpoint.numbers import KINDS
from whatwhere.interop.checkpoint.stretches import Stretch, Stretches, checked_size

MAGIC = b"\x93NUMPY"
LONGEST_HEADER = 10_000
"""With what stands before it; NumPy reads no more either."""

_HEADER = re.compile(
    rb"\s*\{\s*'descr'\s*:\s*(?P<descr>.+?)\s*,\s*'fortran_order'\s*:\s*(?P<turned>True|False)\s*,"
    rb"\s*'shape'\s*:\s*\((?P<shape>[\d\s,L]*)\)\s*,?\s*\}\s*"
)
_DESCR = re.compile(rb"'([<>|=]?)([fiubc?])(\d{0,2})'")
_ANEW = "It is cut off or damaged: make it anew with numpy.save or numpy.savez."


def is_npy(head: bytes) -> bool:
    """Tell from the first bytes."""
    return head[:6] == MAGIC


def open_npy(path: str | Path) -> Contents:
    """Open one array, under the name of its file."""
    file = File(path)
    stretch = stretch_of(file, file.path.stem, file.head(LONGEST_HEADER), 0, file.size)
    return Contents("npy", {stretch.entry.name: stretch.entry}, Stretches({stretch.entry.name: stretch}))


def stretch_of(file: File, name: str, head: bytes, begin: int, size: int) -> Stretch:
    """Read the header of an array, and check it against the bytes that there are.

    Args:
        head: its first bytes.
        begin: where these stand in the file.
        size: of the array with its header.
    """
    if not is_npy(head) or head[6:7] not in (b"\1", b"\2", b"\3") or len(head) < 12:
        raise file.wrong(f"the array {shown(name)} does not begin as .npy does", _ANEW)
    code, first = ("<H", 10) if head[6] == 1 else ("<I", 12)
    length = struct.unpack_from(code, head, 8)[0]
    if first + length > min(len(head), size):
        raise file.wrong(f"the header of the array {shown(name)} claims {length:,} bytes", _ANEW)
    said = _HEADER.fullmatch(head[first : first + length])
    typed = _DESCR.fullmatch(said["descr"]) if said is not None else None
    if said is None or typed is None:
        descr = shown(said["descr"].decode("latin-1")) if said is not None else "of no form that NumPy writes"
        objects = "; objects are pickles, which can run code" if said is not None and b"O" in said["descr"] else ""
        raise file.wrong(
            f"the array {shown(name)} has the type {descr}{objects}, but plain numbers are read",
            "Save numbers alone: numpy.save(path, array.astype('float32')).",
        )
    shape = _shape(file, name, said["shape"])
    kind = KINDS.get(_dtype_name(typed))
    if kind is None:
        raise file.wrong(f"the array {shown(name)} has the type {shown(typed[0].decode())}, which is not read", _ANEW)
    needed = checked_size(file, name, kind, shape)
    if needed != size - first - length:
        raise file.wrong(
            f"the array {shown(name)} of shape {shape} needs {needed:,} bytes, but {size - first - length:,} follow",
            _ANEW,
        )
    entry = Entry(name, shape, kind.name, needed, file.path)
    transposed = said["turned"] == b"True"
    return Stretch(entry, file, begin + first + length, swapped=typed[1] == b">", transposed=transposed)


def _shape(file: File, name: str, text: bytes) -> tuple[int, ...]:
    parts = [part.strip().rstrip(b"L") for part in text.split(b",")]
    parts = parts[:-1] if parts[-1] == b"" else parts
    if len(parts) > 32 or not all(part.isdigit() and len(part) <= 19 for part in parts):
        raise file.wrong(f"the array {shown(name)} has the shape ({shown(text.decode('latin-1'))})", _ANEW)
    return tuple(map(int, parts))


def _dtype_name(typed: re.Match[bytes]) -> str:
    letter, size = typed[2].decode(), typed[3].decode()
    if (letter, size) in (("b", "1"), ("?", "")):
        return "bool"
    words = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
    return f"{words.get(letter, '?')}{8 * int(size or 0)}"
