"""NumPy's files: .npy, a header and an array; and .npz, a zip of such files, stored or compressed.

The header is a Python literal. It is matched against the form that NumPy writes, so that no literal is evaluated
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import MAX_DIMENSIONS, Chosen, Contents, Entry, Reader, rows_of
from whatwhere.models.checkpoint.byte_ranges import ByteRange, ByteRangeReader, allocate, checked_size
from whatwhere.models.checkpoint.dtypes import STORED_TYPES, widened
from whatwhere.models.checkpoint.files import File

_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 10_000
"""Including the magic number; NumPy has the same limit."""

_HEADER = re.compile(
    rb"\s*\{\s*'descr'\s*:\s*(?P<descr>.+?)\s*,\s*'fortran_order'\s*:\s*(?P<fortran_order>True|False)\s*,"
    rb"\s*'shape'\s*:\s*\((?P<shape>[\d\s,L]*)\)\s*,?\s*\}\s*"
)
_DESCR = re.compile(rb"'([<>|=]?)([fiubc?])(\d{0,2})'")
_MAX_COMPRESSION = 100
_MAX_MEMBERS, _MEMBER = 100_000, 1200
"""Members that are read, and the bytes of memory of each."""
_MAX_TAIL = 22 + 2**16 + 76
"""Bytes at the end of a zip: its last record, a comment, and the larger form of that record."""
_BLOCK = 1 << 20
_DAMAGED = "It is truncated or damaged: create it again with numpy.save or numpy.savez."
ZIP_ERRORS = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, LookupError, OverflowError, OSError,
)  # fmt: skip
"""Exceptions of the module zipfile for files that it cannot read."""


def is_npy(head: bytes) -> bool:
    """Return whether a file begins with the magic number of .npy.

    Args:
        head: its first bytes.
    """
    return head[:6] == _MAGIC


def open_npy(path: str | Path) -> Contents:
    """Read the header of an array, whose name is that of the file.

    Args:
        path: of the file.

    Raises:
        CheckpointError: If it is damaged, or holds objects.
    """
    file = File(path)
    array = _byte_range(file, file.path.stem, file.head(_MAX_HEADER_BYTES), 0, file.size)
    return Contents("npy", {array.entry.name: array.entry}, ByteRangeReader({array.entry.name: array}))


def open_npz(path: str | Path) -> Contents:
    """Read the headers of a zip of arrays; stored arrays are read in place, compressed ones are decompressed.

    Args:
        path: of the file.

    Raises:
        CheckpointError: If it is damaged, or holds other things than arrays of numbers.
    """
    file = File(path)
    entries: dict[str, Entry] = {}
    stored: dict[str, ByteRange] = {}
    compressed: dict[str, ByteRange] = {}
    places: dict[str, tuple[zipfile.ZipInfo, int]] = {}
    _require_memory(file)
    with _zip(file) as archive:
        members = archive.infolist()
        end = file.read(max(0, file.size - 22 - len(archive.comment)), min(22, file.size))
        if end[:4] == b"PK\5\6" and len(members) % 2**16 != struct.unpack_from("<H", end, 10)[0] != 2**16 - 1:
            raise file.wrong(f"{len(members):,} arrays are found in it, but it says that it has others", _DAMAGED)
        if len(members) > _MAX_MEMBERS:
            raise file.wrong(f"it holds {len(members):,} arrays, but at most {_MAX_MEMBERS:,} are read", _DAMAGED)
        for info in members:
            name = _checked_name(file, info, entries)
            with archive.open(info) as member:
                head = member.read(_MAX_HEADER_BYTES)
            places[name] = info, (begin := _begin(file, info, name))
            if info.compress_type == zipfile.ZIP_STORED:
                array = stored[name] = _byte_range(file, name, head, begin, info.file_size)
            else:
                array = compressed[name] = _byte_range(file, name, head, 0, info.file_size)
            entries[name] = array.entry
    return Contents("npz", entries, _NpzReader(file, stored, compressed, places))


def _require_memory(file: File) -> None:
    """Raise CheckpointError if the list of members alone would take too much memory, before it is read."""
    tail = file.read(begin := max(0, file.size - _MAX_TAIL), file.size - begin)
    at = tail.rfind(b"PK\5\6", 0, max(0, len(tail) - 18))
    size = struct.unpack_from("<I", tail, at + 12)[0] if at >= 0 else 0
    if at >= 76 and tail[at - 20 : at - 16] == b"PK\6\7":  # of a zip of more than 4 GB, or of 65,535 members
        size = struct.unpack_from("<Q", tail, at - 76 + 40)[0]
    members = min(size, file.size) // 46
    file.require_memory(members * _MEMBER, f"its list of up to {members:,} arrays")


@final
class _NpzReader(Reader):
    """A reader of the arrays of a zip.

    Args:
        file: the zip.
        stored: arrays without compression.
        compressed: the others; their offsets are within the member.
        places: each as the zip describes it, and the offset of its data; the list of a zip is not read again.
    """

    def __init__(
        self,
        file: File,
        stored: Mapping[str, ByteRange],
        compressed: Mapping[str, ByteRange],
        places: Mapping[str, tuple[zipfile.ZipInfo, int]],
    ) -> None:
        self._file, self._stored, self._compressed, self._places = file, ByteRangeReader(stored), compressed, places
        self._intact: set[str] = set()

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read rows in place, or decompress the whole array: a compressed stream has no random access.

        What is in place is read once as a whole before, which compares its checksum.
        """
        if name not in self._compressed:
            if name not in self._intact:
                with _member(self._file, *self._places[name]) as member:
                    while member.read(_BLOCK >> 4):
                        pass
                self._intact.add(name)
            return self._stored.array(name, rows)
        source = self._compressed[name]
        shape = source.entry.shape
        flat = self._decompressed(name, source)
        whole = flat.reshape(shape[::-1]).transpose() if source.fortran_order else flat.reshape(shape)
        return whole if rows is None else rows_of(whole, rows)

    def _decompressed(self, name: str, source: ByteRange) -> np.ndarray:
        """Return all values, widened block by block."""
        dtype = np.dtype(source.stored_type.stored).newbyteorder(">" if source.big_endian else "<")
        out, done = allocate(source, (source.entry.bytes // dtype.itemsize,), source.stored_type.wide), 0
        with _member(self._file, *self._places[name]) as member:
            member.read(source.offset)
            while done < len(out) and (piece := member.read(min(_BLOCK, (len(out) - done) * dtype.itemsize))):
                values = np.frombuffer(piece, dtype, len(piece) // dtype.itemsize)
                if not len(values):
                    break
                out[done : done + len(values)] = widened(values)
                done += len(values)
        if done < len(out):
            raise self._file.wrong(
                f"the array {quoted(name)} ends after {done * dtype.itemsize:,} of {source.entry.bytes:,} bytes",
                _DAMAGED,
            )
        return out


def _byte_range(file: File, name: str, head: bytes, begin: int, size: int) -> ByteRange:
    """Return the byte range of an array, after comparing its header with its size.

    Args:
        head: the first bytes of the .npy file.
        begin: their offset in `file`.
        size: of header and array.
    """
    if not is_npy(head) or head[6:7] not in (b"\1", b"\2", b"\3") or len(head) < 12:
        raise file.wrong(f"the array {quoted(name)} does not begin as .npy does", _DAMAGED)
    code, first = ("<H", 10) if head[6] == 1 else ("<I", 12)
    length = struct.unpack_from(code, head, 8)[0]
    if first + length > min(len(head), size):
        raise file.wrong(f"the header of the array {quoted(name)} claims {length:,} bytes", _DAMAGED)
    header = _HEADER.fullmatch(head[first : first + length])
    descr = _DESCR.fullmatch(header["descr"]) if header is not None else None
    if header is None or descr is None:
        given = "of no form that NumPy writes" if header is None else _type(header["descr"])
        objects = "; objects are pickles, which can run code" if header is not None and b"O" in header["descr"] else ""
        raise file.wrong(
            f"the array {quoted(name)} has the type {given}{objects}, but plain numbers are read",
            "Save numbers alone: numpy.save(path, array.astype('float32')).",
        )
    shape = _shape(file, name, header["shape"])
    stored_type = STORED_TYPES.get(_dtype_name(descr))
    if stored_type is None:
        raise file.wrong(f"the array {quoted(name)} has the type {_type(descr[0])}, which is not read", _DAMAGED)
    needed = checked_size(file, name, stored_type, shape)
    if needed != size - first - length:
        raise file.wrong(
            f"the array {quoted(name)} of shape {shape} needs {needed:,} bytes, but {size - first - length:,} follow",
            _DAMAGED,
        )
    entry = Entry(name, shape, stored_type.name, needed, file.path)
    fortran_order = header["fortran_order"] == b"True"
    return ByteRange(entry, file, begin + first + length, descr[1] == b">", fortran_order)


def _type(descr: bytes) -> str:
    """Return the type in a header, quoted for a message."""
    return quoted(descr.decode("latin-1").strip("'\""))


def _shape(file: File, name: str, text: bytes) -> tuple[int, ...]:
    parts = [part.strip().rstrip(b"L") for part in text.split(b",")]
    parts = parts[:-1] if parts[-1] == b"" else parts
    if len(parts) > MAX_DIMENSIONS or not all(part.isdigit() and len(part) <= 19 for part in parts):
        raise file.wrong(f"the array {quoted(name)} has the shape ({quoted(text.decode('latin-1'))})", _DAMAGED)
    return tuple(map(int, parts))


def _dtype_name(descr: re.Match[bytes]) -> str:
    letter, size = descr[2].decode(), descr[3].decode()
    if (letter, size) in (("b", "1"), ("?", "")):
        return "bool"
    names = {"f": "float", "i": "int", "u": "uint", "c": "complex"}
    return f"{names.get(letter, '?')}{8 * int(size or 0)}"


def _checked_name(file: File, info: zipfile.ZipInfo, known: Mapping[str, Entry]) -> str:
    """Return the name of an array; raise CheckpointError for members that numpy.savez does not write, and zip bombs."""
    name = info.filename.removesuffix(".npy")
    if name == info.filename:
        raise file.wrong(
            f"it holds {quoted(name)}, which is no array",
            "Pass a zip of numpy.savez; for a model of PyTorch, pass allow_pickle=True or --allow-pickle.",
        )
    if name in known:
        raise file.wrong(f"it holds the array {quoted(name)} twice", _DAMAGED)
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise file.wrong(
            f"the array {quoted(name)} is encrypted, or compressed in a way that NumPy does not use", _DAMAGED
        )
    if info.compress_size > file.size or info.file_size > _MAX_COMPRESSION * info.compress_size + _BLOCK:
        raise file.wrong(
            f"the array {quoted(name)} claims {info.file_size:,} bytes, compressed to {info.compress_size:,} of "
            f"{file.size:,}; a ratio above {_MAX_COMPRESSION} is not decompressed",
            "If you trust it, save it uncompressed: numpy.savez(path, **numpy.load(path)).",
        )
    return name


def _begin(file: File, info: zipfile.ZipInfo, name: str) -> int:
    """Return the offset of the data of a member, which is behind a header of its own."""
    offset = info.header_offset
    if not 0 <= offset <= file.size - 30:
        raise file.wrong(f"the array {quoted(name)} is at byte {offset:,}, beyond the end of the file", _DAMAGED)
    names, extra = struct.unpack_from("<HH", file.read(offset, 30), 26)
    begin = offset + 30 + int(names) + int(extra)
    other = info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size
    if begin + info.compress_size > file.size or other:
        raise file.wrong(f"the array {quoted(name)} goes beyond the end of the file", _DAMAGED)
    return begin


@contextmanager
def _zip(file: File) -> Iterator[zipfile.ZipFile]:
    """Open a zip; exceptions of the module zipfile become CheckpointError."""
    with _own_errors(file), zipfile.ZipFile(file.path) as archive:
        yield archive


@contextmanager
def _member(file: File, info: zipfile.ZipInfo, begin: int) -> Iterator[zipfile.ZipExtFile]:
    """Open a member of a zip whose list has been read; its checksum is compared at its end."""
    with _own_errors(file), file.path.open("rb") as raw:
        raw.seek(begin)
        yield zipfile.ZipExtFile(raw, "r", info)


@contextmanager
def _own_errors(file: File) -> Iterator[None]:
    """Raise CheckpointError for exceptions of the module zipfile."""
    try:
        yield
    except CheckpointError:
        raise
    except ZIP_ERRORS as problem:
        raise file.wrong(f"it cannot be decompressed: {str(problem) or type(problem).__name__}", _DAMAGED) from None
