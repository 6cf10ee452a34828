"""Files that are not trusted: regular ones, read within the size that they had when they were opened, and as JSON."""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, final

import numpy as np

from whatwhere.errors import CheckpointError


@final
class File:
    """Hold the path and the size of a regular file; nothing is read yet, and nothing stays open.

    Links are followed: the cache of Hugging Face is made of them. A device or a pipe, which has no size and may never
    end, is refused.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            status = self.path.stat()
        except (OSError, ValueError) as problem:
            detail = getattr(problem, "strerror", None) or problem
            raise CheckpointError(
                f"{self.path} cannot be read: {detail}.\nPass the path of a file or folder."
            ) from None
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{self.path} is no regular file, so its size is not known.\nPass a file.")
        self.size: int = status.st_size

    @contextmanager
    def opened(self) -> "Iterator[Stream]":
        """Open the file, and close it."""
        try:
            with self.path.open("rb", buffering=0) as raw:
                yield Stream(self, raw)
        except OSError as problem:
            detail = problem.strerror or problem
            raise CheckpointError(f"{self.path} cannot be read: {detail}.\nTry again, or copy it anew.") from None

    def read(self, offset: int, count: int) -> bytes:
        """Read some bytes."""
        with self.opened() as stream:
            return stream.read(offset, count)

    def head(self, count: int) -> bytes:
        """Read the first bytes, or all if there are fewer."""
        return self.read(0, min(count, self.size))

    def wrong(self, what: str, way_out: str) -> CheckpointError:
        """Make the error that says what is wrong in this file."""
        return CheckpointError(f"{self.path}: {what}.\n{way_out}")


@final
class Stream:
    """Read an open file by place."""

    def __init__(self, file: File, raw: FileIO) -> None:
        self.file = file
        self._raw = raw

    def read(self, offset: int, count: int) -> bytes:
        """Read some bytes, which must lie inside the file."""
        self._raw.seek(self._inside(offset, count))
        pieces, left = [], count
        while left:
            pieces.append(piece := self._raw.read(left))
            left -= self._came(len(piece))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_into(self, offset: int, array: np.ndarray) -> np.ndarray:
        """Fill a contiguous array with what stands at a place."""
        self._raw.seek(self._inside(offset, array.nbytes))
        view = memoryview(array.reshape(-1).data).cast("B") if array.nbytes else memoryview(b"")
        done = 0
        while done < len(view):
            done += self._came(self._raw.readinto(view[done:]))
        return array

    def _came(self, count: int | None) -> int:
        if not count:
            raise self.file.wrong("it became shorter while it was read", "Try again when it is whole.")
        return count

    def _inside(self, offset: int, count: int) -> int:
        if offset < 0 or count < 0 or offset + count > self.file.size:
            raise self.file.wrong(
                f"bytes {offset:,} to {offset + count:,} are asked for, of {self.file.size:,}",
                "It is cut off, or was changed while it was read.",
            )
        return offset


def parse_json(text: bytes, where: str) -> dict[str, Any]:
    """Read a JSON object: UTF-8, no key twice, not nested beyond what can be read.

    Args:
        where: names the file, and what of it, in messages.

    >>> parse_json(b'{"a": 1, "a": 2}', "config.json")
    Traceback (most recent call last):
    whatwhere.errors.CheckpointError: config.json: the key 'a' stands twice in one object.
    Keep one of them.
    """
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=lambda pairs: _once(pairs, where))
    except CheckpointError:
        raise
    except RecursionError:
        raise CheckpointError(
            f"{where}: its JSON is nested too deeply.\nNo writer of models makes such a file."
        ) from None
    except ValueError as problem:
        raise CheckpointError(f"{where} is not JSON: {problem}.\nMake or download it anew.") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{where} holds a {type(found).__name__}, but an object is needed.\nMake it anew.")
    return found


def read_json(path: str | Path, most: int) -> dict[str, Any]:
    """Read a file of JSON.

    Args:
        most: bytes; more are refused.
    """
    file = File(path)
    if file.size > most:
        raise file.wrong(f"it has {file.size:,} bytes, but such a file has at most {most:,}", "Pass another file.")
    return parse_json(file.head(most), str(file.path))


def _once(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise CheckpointError(f"{where}: the key {shown(twice)} stands twice in one object.\nKeep one of them.")
    return made


def shown(text: str, most: int = 80) -> str:
    """Show a name that may be anything: quoted, escaped, and cut if it is long.

    >>> shown("x" * 1000, most=4)
    "'xxxx...'"
    """
    return repr(text if len(text) <= most else text[:most] + "...")


def plain_name(name: object, where: str) -> str:
    """Give a name of a file that a file asks for, if it stays in its folder.

    Only the name is confined: what a link of that name points to was put there by whoever made the folder, and the
    cache of Hugging Face is made of links to a folder beside it.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or any(sign in name for sign in "/\\:\0"):
        told = shown(name) if isinstance(name, str) else repr(name)[:80]
        raise CheckpointError(
            f"{where} asks for the file {told}, but only a plain name in its own folder is read.\n"
            "If you trust it, move that file into the folder and write its plain name."
        )
    return name


def whole_number(value: object) -> bool:
    """Tell whether a value read from JSON is a whole number of at least zero, and small enough to count bytes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
