"""The bytes of a text, in memory or in files of any size, of which windows are read.

Files are read and not mapped: pages of a mapped file count as memory of the process, and a mapped file
that becomes shorter ends it.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from io import FileIO
from itertools import accumulate
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import UInt8

from whatwhere.atomic import MAX_LFS_POINTER, atomic_file, open_bytes
from whatwhere.errors import ResultsError, TextError
from whatwhere.what.text import read_bytes

OnRead = Callable[[int], None]
_CHUNK = 1 << 20
_BETWEEN = b"\n"
"""Stands between two files."""

_Statuses = tuple[tuple[int, int, int], ...]
_checked: dict[tuple[tuple[Path, ...], str], _Statuses] = {}
"""Files whose checksum this process has computed, and what the file system said of them then."""


@final
@dataclass(frozen=True)
class MemoryText:
    """A text in memory."""

    content: bytes
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", sha256(self.content).hexdigest())

    def __len__(self) -> int:
        return len(self.content)

    def windows(self, starts: Sequence[int], count: int) -> UInt8[np.ndarray, "windows bytes"]:
        """Return `count` bytes from each start."""
        content = np.frombuffer(self.content, np.uint8)
        return content[np.asarray(starts)[:, None] + np.arange(count)]

    def chunks(self, end: int, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `end` in parts of about a megabyte."""
        for at in range(start, end, _CHUNK):
            yield self.content[at : min(at + _CHUNK, end)]


@final
@dataclass(frozen=True)
class FileText:
    """A text in files, joined by line ends; it is sent to other processes by paths and checksum.

    Before windows are read, the file system states the size, time and number of each file. Where these are
    others than when the checksum was computed, as on a machine with a copy of its own, it is computed again.

    Args:
        files: their paths.
        statuses: size, time and number of each file when the checksum was computed.
        sha256: of the joined bytes.
    """

    files: tuple[Path, ...]
    statuses: _Statuses
    sha256: str

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each file."""
        return tuple(size for size, *_ in self.statuses)

    def __len__(self) -> int:
        return sum(self.sizes) + len(_BETWEEN) * (len(self.statuses) - 1)

    def windows(self, starts: Sequence[int], count: int) -> UInt8[np.ndarray, "windows bytes"]:
        """Return `count` bytes from each start."""
        with _Reader(self) as reader:
            content = b"".join([reader.read(start, count) for start in starts])
        return np.frombuffer(content, np.uint8).reshape(len(starts), count)

    def chunks(self, end: int, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `end` in parts of about a megabyte."""
        with _Reader(self) as reader:
            for at in range(start, end, _CHUNK):
                yield reader.read(at, min(_CHUNK, end - at))


ByteText = MemoryText | FileText
"""The bytes of a text, of which windows are read."""


def open_files(files: Sequence[Path], on_read: OnRead = lambda count: None) -> FileText:
    """Return the text of files, of which one megabyte at a time is read for the checksum."""
    paths = tuple(file.resolve() for file in files)
    statuses = _statuses(paths)
    known = next((key for key, before in _checked.items() if key[0] == paths and before == statuses), None)
    for file, (size, *_) in zip(files, statuses, strict=True):
        if size <= MAX_LFS_POINTER:
            read_bytes(file)  # refuses a pointer of Git LFS, and an empty file
    if known is not None:
        return FileText(paths, statuses, known[1])
    digest = _digest(paths, on_read)
    if _statuses(paths) != statuses:
        raise TextError(f"{', '.join(map(str, files))} changed while it was read.\nRun the same again.")
    _checked[paths, digest] = statuses
    return FileText(paths, statuses, digest)


def keep_in_file(text: ByteText, folder: Path, on_read: OnRead = lambda count: None) -> FileText:
    """Write a text to one file of a folder, named by its checksum, where that is not there yet."""
    path = (folder / f"{text.sha256}.bytes").absolute()
    try:
        if path.is_file():
            kept = open_files([path], on_read)
            if kept.sha256 == text.sha256:
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
        written = _statuses((path.resolve(),))
        _checked[(path.resolve(),), text.sha256] = written
    except OSError as problem:
        raise ResultsError(f"{path} cannot be written: {problem.strerror}.\nMake room, then run it again.") from problem
    return FileText((path.resolve(),), written, text.sha256)


class _Reader:
    """The open files of a text, whose checksum this process has computed; closed at the end of a `with` block."""

    def __init__(self, text: FileText) -> None:
        self._text = text
        self._sizes = text.sizes
        self._begins = [0, *accumulate(size + len(_BETWEEN) for size in self._sizes[:-1])]
        self._open: dict[int, FileIO] = {}
        self._closing = ExitStack()

    def __enter__(self) -> "_Reader":
        require_unchanged(self._text)
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()

    def read(self, start: int, count: int) -> bytes:
        """Return `count` bytes of the joined files from a start."""
        content = b""
        while left := count - len(content):
            number = bisect_right(self._begins, start + len(content)) - 1
            offset = start + len(content) - self._begins[number]
            in_file = self._sizes[number] - offset
            content += self._part(number, offset, min(in_file, left)) if in_file else _BETWEEN
        return content

    def _part(self, number: int, offset: int, count: int) -> bytes:
        path = self._text.files[number]
        try:
            if number not in self._open:
                self._open[number] = self._closing.enter_context(FileIO(path))
            self._open[number].seek(offset)
            part = self._open[number].read(count)
        except OSError as problem:
            raise _unreadable(path, problem) from problem
        if not part:
            raise _changed(str(path))
        return part


def require_unchanged(text: ByteText) -> None:
    """Raise TextError unless files hold what they held when the text was opened, here or in another process."""
    if isinstance(text, MemoryText):
        return
    key = (text.files, text.sha256)
    statuses = _statuses(text.files)
    if statuses in (text.statuses, _checked.get(key)):
        return
    if tuple(size for size, *_ in statuses) != text.sizes or _digest(text.files) != text.sha256:
        raise _changed(", ".join(map(str, text.files)))
    _checked[key] = statuses


def _digest(files: Sequence[Path], on_read: OnRead = lambda count: None) -> str:
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
    return digest.hexdigest()


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
