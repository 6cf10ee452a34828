"""NumPy's files: .npy, a header and an array; and .npz, a zip of such files, stored or compressed.

NumPy reads the headers, of limited size and without evaluating them as code
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html); what they claim is compared with the size of
the file before anything is allocated, and objects, which are pickles, are refused.
"""

import struct
import warnings
import zipfile
import zlib
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import STORED_TYPES, ByteRange, Chosen, Contents, Entry, checked_size, rows_of
from whatwhere.models.checkpoint.files import File, Stream

if TYPE_CHECKING:
    from torch import Tensor

_MAX_HEADER_BYTES = 10_000
"""NumPy has the same limit."""
_MAX_COMPRESSION = 100
_MAX_MEMBERS, _MEMBER = 100_000, 1200
"""Members that are read, and the bytes of memory of each."""
_MAX_TAIL = 22 + 2**16 + 76
"""Bytes at the end of a zip: its last record, a comment, and the larger form of that record."""
_BLOCK = 1 << 16
_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
    (3, 0): np.lib.format.read_array_header_2_0,  # in UTF-8, for names of fields, which plain numbers do not have
}
_DAMAGED = "It is truncated or damaged: create it again with numpy.save or numpy.savez."
ZIP_ERRORS = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, LookupError, OverflowError, OSError,
)  # fmt: skip
"""Exceptions of the module zipfile for files that it cannot read."""


def open_npy(file: File) -> Contents:
    """Read the header of an array, whose name is that of the file."""
    name = file.path.stem
    return Contents("npy", {name: _byte_range(name, file.head(_MAX_HEADER_BYTES), file, 0, file.size)})


def open_npz(file: File) -> Contents:
    """Read the headers of a zip of arrays."""
    arrays: dict[str, ByteRange] = {}
    _require_memory(file)
    with _own_errors(file), zipfile.ZipFile(file.path) as archive:
        listed = archive.infolist()
        end = file.read(max(0, file.size - 22 - len(archive.comment)), min(22, file.size))
        if end[:4] == b"PK\5\6" and len(listed) % 2**16 != struct.unpack_from("<H", end, 10)[0] != 2**16 - 1:
            raise file.wrong(f"{len(listed):,} arrays are found in it, but it says that it has others", _DAMAGED)
        if len(listed) > _MAX_MEMBERS:
            raise file.wrong(f"it holds {len(listed):,} arrays, but at most {_MAX_MEMBERS:,} are read", _DAMAGED)
        for info in listed:
            name = _checked_name(file, info, arrays)
            with archive.open(info) as opened:
                head = opened.read(_MAX_HEADER_BYTES)
            member = _Member(file, info, _begin(file, info, name))
            where = (file, member.begin) if member.is_stored else (member, 0)
            arrays[name] = _byte_range(name, head, *where, info.file_size, member)
    return Contents("npz", arrays)


class _Member(File):
    """An array of a zip, read as a file of its own: decompressed, and its checksum compared at the end."""

    def __init__(self, file: File, info: zipfile.ZipInfo, begin: int) -> None:
        self.path, self.size, self.begin, self._info = file.path, info.file_size, begin, info
        self.is_stored = info.compress_type == zipfile.ZIP_STORED
        self.is_intact = False

    @contextmanager
    def opened(self) -> Iterator[Stream]:
        with _own_errors(self), super().opened() as stream:
            yield stream

    def _raw(self) -> zipfile.ZipExtFile:
        raw = self.path.open("rb")
        raw.seek(self.begin)
        return zipfile.ZipExtFile(raw, "r", self._info, None, True)  # without reading the list of the zip again

    def require_intact(self) -> None:
        """Read it once, which compares its checksum."""
        if not self.is_intact:
            with self.opened() as stream:
                for begin in range(0, self.size, _BLOCK):
                    stream.read(begin, min(_BLOCK, self.size - begin))
            self.is_intact = True


@dataclass(frozen=True, eq=False, kw_only=True)
class _Zipped(ByteRange):
    """An array of a zip: read in place after one reading that compares the checksum; a compressed one as a whole."""

    member: _Member

    def array(self, rows: Chosen | None) -> np.ndarray:
        if self.member.is_stored:
            self.member.require_intact()
            return super().array(rows)
        return rows_of(super().array(None if rows is None else range(self.shape[0])), rows)

    def tensor(self, rows: Chosen | None) -> "Tensor":
        return Entry.tensor(self, rows)


def _require_memory(file: File) -> None:
    """Raise CheckpointError if the list of members alone would take too much memory, before it is read."""
    tail = file.read(begin := max(0, file.size - _MAX_TAIL), file.size - begin)
    at = tail.rfind(b"PK\5\6", 0, max(0, len(tail) - 18))
    size = struct.unpack_from("<I", tail, at + 12)[0] if at >= 0 else 0
    if at >= 76 and tail[at - 20 : at - 16] == b"PK\6\7":  # of a zip of more than 4 GB, or of 65,535 members
        size = struct.unpack_from("<Q", tail, at - 76 + 40)[0]
    members = min(size, file.size) // 46
    file.require_memory(members * _MEMBER, f"its list of up to {members:,} arrays")


def _byte_range(name: str, head: bytes, file: File, begin: int, size: int, member: _Member | None = None) -> ByteRange:
    stream = BytesIO(head)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers of Python 2, and of what is no header
            read_header = _READERS[np.lib.format.read_magic(stream)]
            shape, fortran_order, dtype = read_header(stream, max_header_size=_MAX_HEADER_BYTES)
    except Exception as problem:  # whatever NumPy and Python's parser raise of a header that may be anything
        reason = quoted(str(problem).strip().partition("\n")[0], 160)
        raise file.wrong(f"the array {quoted(name)} has no header that NumPy reads: {reason}", _DAMAGED) from None
    if dtype.name not in STORED_TYPES:
        objects = "; objects are pickles, which can run code" if dtype.hasobject else ""
        raise file.wrong(
            f"the array {quoted(name)} has the type {quoted(str(dtype))}{objects}, but plain numbers are read",
            "Save numbers alone: numpy.save(path, array.astype('float32')).",
        )
    if any(isinstance(n, bool) or n < 0 for n in shape):
        raise file.wrong(f"the array {quoted(name)} has the shape {quoted(str(shape))}", _DAMAGED)
    needed, left = checked_size(file, name, dtype.name, shape), size - stream.tell()
    if needed != left:
        raise file.wrong(
            f"the array {quoted(name)} of shape {shape} needs {needed:,} bytes, but {left:,} follow", _DAMAGED
        )
    read = (name, shape, dtype.name, needed, file.path, file, begin + stream.tell(), dtype.str[0] == ">", fortran_order)
    return ByteRange(*read) if member is None else _Zipped(*read, member=member)


def _checked_name(file: File, info: zipfile.ZipInfo, known: Container[str]) -> str:
    """Return the name of an array; raise CheckpointError for members that numpy.savez does not write, and zip bombs."""
    name = info.filename.removesuffix(".npy")
    if name == info.filename:
        raise file.wrong(
            f"it holds {quoted(name)}, which is not an array",
            "Pass a zip of numpy.savez; for a model of PyTorch, pass allow_pickle=True or --allow-pickle.",
        )
    if name in known:
        raise file.wrong(f"it holds the array {quoted(name)} twice", _DAMAGED)
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise file.wrong(
            f"the array {quoted(name)} is encrypted, or compressed in a way that NumPy does not use", _DAMAGED
        )
    if info.compress_size > file.size or info.file_size > _MAX_COMPRESSION * info.compress_size + (1 << 20):
        raise file.wrong(
            f"the array {quoted(name)} claims {info.file_size:,} bytes, compressed to {info.compress_size:,} of "
            f"{file.size:,}; a ratio above {_MAX_COMPRESSION} is not decompressed",
            "If you trust it, save it uncompressed: numpy.savez(path, **numpy.load(path)).",
        )
    return name


def _begin(file: File, info: zipfile.ZipInfo, name: str) -> int:
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
def _own_errors(file: File) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except ZIP_ERRORS as problem:
        raise file.wrong(f"it cannot be decompressed: {str(problem) or type(problem).__name__}", _DAMAGED) from None
