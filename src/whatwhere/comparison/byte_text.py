"""The bytes of a text, in memory or in files of any size, of which windows are read.

Files are read and not mapped: pages of a mapped file count as memory of the process, and a mapped file
that becomes shorter ends it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import UInt8

from whatwhere.atomic import MAX_LFS_POINTER, atomic_file, open_bytes
from whatwhere.errors import ResultsError, TextError
from whatwhere.what.text import read_bytes

OnRead = Callable[[int], None]
_CHUNK = 1 << 20
_BETWEEN = b"\n"  # stands between two files

_Statuses = tuple[tuple[int, int, int], ...]
_digests: dict[tuple[tuple[Path, ...], _Statuses], str] = {}
"""Checksums that this process has computed, by the files and what the file system said of them then."""


@final
@dataclass(frozen=True)
class ByteText:
    """A text in memory, or in files that are joined by line ends; of files, other processes get paths and checksum.

    Before windows of files are read, the file system states the size, time and number of each. Where these are others
    than when the text was opened, as on a machine with a copy of its own, the checksum is computed again.
    """

    sha256: str
    content: bytes = b""
    files: tuple[Path, ...] = ()
    statuses: _Statuses = ()

    def __len__(self) -> int:
        return len(self.content) + sum(size for size, *_ in self.statuses) + max(0, len(self.files) - 1)

    def windows(self, starts: Sequence[int], count: int) -> UInt8[np.ndarray, "windows bytes"]:
        """Return `count` bytes from each start."""
        self.require_unchanged()
        content = b"".join([self._read(start, count) for start in starts])
        return np.frombuffer(content, np.uint8).reshape(len(starts), count)

    def chunks(self, end: int, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `end` in parts of about a megabyte."""
        self.require_unchanged()
        for at in range(start, end, _CHUNK):
            yield self._read(at, min(_CHUNK, end - at))

    def require_unchanged(self) -> None:
        """Raise TextError unless files hold what they held when the text was opened, here or in another process."""
        statuses = _statuses(self.files)
        if statuses == self.statuses:
            return
        same_sizes = [size for size, *_ in statuses] == [size for size, *_ in self.statuses]
        if not same_sizes or _digest(self.files, statuses) != self.sha256:
            raise _changed(", ".join(map(str, self.files)))

    def _read(self, start: int, count: int) -> bytes:
        if not self.files:
            return self.content[start : start + count]
        parts, begin, end = list[bytes](), 0, start + count
        for path, (size, *_) in zip(self.files, self.statuses, strict=True):
            first, last = max(start, begin), min(end, begin + size)
            if first < last:
                parts.append(_part(path, first - begin, last - first))
            begin += size
            if start <= begin < end:
                parts.append(_BETWEEN)
            begin += len(_BETWEEN)
        return b"".join(parts)


def in_memory(content: bytes) -> ByteText:
    """Return a text in memory."""
    return ByteText(sha256(content).hexdigest(), content)


def open_files(files: Sequence[Path], on_read: OnRead = lambda count: None) -> ByteText:
    """Return the text of files, of which one megabyte at a time is read for the checksum."""
    paths = tuple(file.resolve() for file in files)
    statuses = _statuses(paths)
    for file, (size, *_) in zip(files, statuses, strict=True):
        if size <= MAX_LFS_POINTER:
            read_bytes(file)  # refuses a pointer of Git LFS, and an empty file
    return ByteText(_digest(paths, statuses, on_read), files=paths, statuses=statuses)


def keep_in_file(text: ByteText, folder: Path, on_read: OnRead = lambda count: None) -> ByteText:
    """Write a text to one file of a folder, named by its checksum, where that is not there yet."""
    path = (folder / f"{text.sha256}.bytes").absolute()
    try:
        if path.is_file() and (kept := open_files([path], on_read)).sha256 == text.sha256:
            return kept
        folder.mkdir(exist_ok=True)
        digest = sha256()
        with atomic_file(path, follow=False) as unfinished:
            with unfinished.open("wb") as opened:
                for chunk in text.chunks(len(text)):
                    digest.update(chunk)
                    opened.write(chunk)
                    on_read(len(chunk))
            if digest.hexdigest() != text.sha256:
                raise _changed("the text")
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem.strerror}.\nMake room, then run it again.") from problem
    files = (path.resolve(),)
    _digests[files, _statuses(files)] = text.sha256
    return open_files([path])


def _digest(files: tuple[Path, ...], statuses: _Statuses, on_read: OnRead = lambda count: None) -> str:
    """Return the checksum of files of these statuses, which is computed once in a process."""
    if (known := _digests.get((files, statuses))) is not None:
        return known
    digest = sha256()
    for number, path in enumerate(files):
        digest.update(_BETWEEN if number else b"")
        try:
            with open_bytes(path) as opened:
                left = os.fstat(opened.fileno()).st_size  # of a file that grows, the rest is not waited for
                while chunk := opened.read(min(_CHUNK, left)):
                    left -= len(chunk)
                    digest.update(chunk)
                    on_read(len(chunk))
        except OSError as problem:
            raise _unreadable(path, problem) from problem
    if _statuses(files) != statuses:
        raise TextError(f"{', '.join(map(str, files))} changed while it was read.\nRun the same again.")
    _digests[files, statuses] = digest.hexdigest()
    return _digests[files, statuses]


def _part(path: Path, offset: int, count: int) -> bytes:
    try:
        with path.open("rb") as opened:
            opened.seek(offset)
            part = opened.read(count)
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    if len(part) < count:
        raise _changed(str(path))
    return part


def _statuses(files: Sequence[Path]) -> _Statuses:
    """Return size, time and number of each file, of which one changes with what it holds."""
    statuses = []
    for path in files:
        try:
            status = path.stat()
        except OSError as problem:
            raise _unreadable(path, problem) from problem
        statuses.append((status.st_size, status.st_mtime_ns, status.st_ino))
    return tuple(statuses)


def _unreadable(path: Path, problem: OSError) -> TextError:
    return TextError(f"{path} cannot be read: {problem.strerror}.\nCheck the path; every machine that trains needs it.")


def _changed(what: str) -> TextError:
    return TextError(
        f"{what} has changed since the comparison began: runs would be trained on different texts.\n"
        "Choose another results folder for the new text."
    )
