"""NumPy's .npz: a zip of arrays, each as it is or pressed."""

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import final

import numpy as np

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.contents import Chosen, Contents, Entry, Reader
from whatwhere.interop.checkpoint.files import File, shown
from whatwhere.interop.checkpoint.npy import LONGEST_HEADER, stretch_of
from whatwhere.interop.checkpoint.numbers import widened
from whatwhere.interop.checkpoint.stretches import Stretch, Stretches, empty

_MOST_PRESSED = 100
_MOST_MEMBERS = 100_000
_BLOCK = 1 << 20
_ANEW = "It is cut off or damaged: make it anew with numpy.savez."
_BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError,
    ValueError, LookupError, OverflowError, OSError,
)  # fmt: skip
"""What the zip module raises on files that it cannot read."""


@final
class _Arrays(Reader):
    """Read arrays of a zip.

    Args:
        file: the zip.
        stored: those that stand in it as they are.
        pressed: those that must be unpacked; their offset is within the member.
    """

    def __init__(self, file: File, stored: Mapping[str, Stretch], pressed: Mapping[str, Stretch]) -> None:
        self._file, self._stored, self._pressed = file, Stretches(stored), pressed

    def array(self, name: str, rows: Chosen | None) -> np.ndarray:
        """Read in place, or unpack to the end: what is pressed together cannot be entered in the middle."""
        if name not in self._pressed:
            return self._stored.array(name, rows)
        stretch = self._pressed[name]
        shape = stretch.entry.shape
        flat = self._unpacked(name, stretch)
        whole = widened(flat.reshape(shape[::-1]).transpose() if stretch.transposed else flat.reshape(shape))
        if rows is None:
            return whole
        return whole[rows.start : rows.stop] if isinstance(rows, range) else whole[rows]

    def _unpacked(self, name: str, stretch: Stretch) -> np.ndarray:
        dtype = np.dtype(stretch.kind.stored).newbyteorder(">" if stretch.swapped else "<")
        out = empty(stretch, (stretch.entry.bytes // dtype.itemsize,), dtype)
        view, done = memoryview(out.data).cast("B") if out.nbytes else memoryview(b""), 0
        with _zip(self._file) as archive, archive.open(f"{name}.npy") as source:
            source.read(stretch.offset)
            while done < len(view) and (piece := source.read(min(_BLOCK, len(view) - done))):
                view[done : done + len(piece)] = piece
                done += len(piece)
        if done < len(view):
            raise self._file.wrong(f"the array {shown(name)} ends after {done:,} of {len(view):,} bytes", _ANEW)
        return out


def open_npz(path: str | Path) -> Contents:
    """Open a zip of arrays; what is stored as it is is read in place, the rest is unpacked when asked for."""
    file = File(path)
    entries: dict[str, Entry] = {}
    stored: dict[str, Stretch] = {}
    pressed: dict[str, Stretch] = {}
    with _zip(file) as archive:
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise file.wrong(f"it holds {len(members):,} arrays, but at most {_MOST_MEMBERS:,} are read", _ANEW)
        for info in members:
            name = _checked_name(file, info, entries)
            with archive.open(info) as member:
                head = member.read(LONGEST_HEADER)
            if info.compress_type == zipfile.ZIP_STORED:
                stretch = stored[name] = stretch_of(file, name, head, _begin(file, info, name), info.file_size)
            else:
                stretch = pressed[name] = stretch_of(file, name, head, 0, info.file_size)
            entries[name] = stretch.entry
    return Contents("npz", entries, _Arrays(file, stored, pressed))


def _checked_name(file: File, info: zipfile.ZipInfo, known: Mapping[str, Entry]) -> str:
    """Give the name of an array, or refuse what numpy.savez does not write and what would fill the memory."""
    name = info.filename.removesuffix(".npy")
    if name == info.filename:
        raise file.wrong(
            f"it holds {shown(name)}, which is no array",
            "Read are the zips of numpy.savez, and models of PyTorch with allow_pickle=True.",
        )
    if name in known:
        raise file.wrong(f"the array {shown(name)} stands twice in it", _ANEW)
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise file.wrong(f"the array {shown(name)} is encrypted, or pressed in a way that NumPy does not use", _ANEW)
    if info.compress_size > file.size or info.file_size > _MOST_PRESSED * info.compress_size + _BLOCK:
        raise file.wrong(
            f"the array {shown(name)} claims {info.file_size:,} bytes, pressed into {info.compress_size:,} of "
            f"{file.size:,}; beyond {_MOST_PRESSED} to one nothing is unpacked",
            "If you trust it, save it unpressed: numpy.savez(path, **numpy.load(path)).",
        )
    return name


def _begin(file: File, info: zipfile.ZipInfo, name: str) -> int:
    """Find where a member that is stored as it is begins: behind a header of its own."""
    offset = info.header_offset
    if not 0 <= offset <= file.size - 30:
        raise file.wrong(f"the array {shown(name)} is said to stand at byte {offset:,}, beyond the file", _ANEW)
    names, extra = struct.unpack_from("<HH", file.read(offset, 30), 26)
    begin = offset + 30 + int(names) + int(extra)
    if begin + info.file_size > file.size or info.file_size != info.compress_size:
        raise file.wrong(f"the array {shown(name)} goes beyond the end of the file", _ANEW)
    return begin


@contextmanager
def _zip(file: File) -> Iterator[zipfile.ZipFile]:
    """Open a zip, and say in our words what is wrong with it."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            yield archive
    except CheckpointError:
        raise
    except _BROKEN as problem:
        raise file.wrong(f"it cannot be unpacked: {str(problem) or type(problem).__name__}", _ANEW) from None
