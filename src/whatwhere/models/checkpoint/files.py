"""Untrusted files: only regular files, read within the size that they had when they were opened; and their JSON."""

import json
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from whatwhere.atomic import IS_LFS_POINTER, LFS_POINTER, MAX_LFS_POINTER
from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.hub import read_pointer, read_range, why_not_found
from whatwhere.models.configuration.keys import Json

TIMES, BASE = 4, 64 << 20
"""Reading takes at most so many times the size of a file, and so many bytes more, beyond the array that is returned."""
JSON_TIMES = 40  # of JSON beside the weights, such as tokenizer.json: Python makes objects of entries of a dozen bytes
_COMMA, _COLON, _BRACKET = 72, 330, 80
"""Bytes of memory for each in JSON: a short string in a list; a new key, its value and their slots; an empty list."""


class File:
    """The path and size of a regular file, which is not kept open; or of one at huggingface.co, behind a pointer."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # Links are followed: the cache of Hugging Face consists of them. Devices and pipes may never end.
        try:
            status = self.path.stat()
        except (OSError, ValueError) as problem:
            detail = getattr(problem, "strerror", None) or problem
            way_out = why_not_found(path) or "Pass the path of a file or folder."
            raise CheckpointError(f"{self.path} cannot be read: {detail}.\n{way_out}") from None
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{self.path} is not a regular file, so its size is not known.\nPass a file.")
        self._remote = read_pointer(self.path, status.st_size)
        self.size: int = status.st_size if self._remote is None else self._remote.size
        small = len(LFS_POINTER) < status.st_size <= MAX_LFS_POINTER and self._remote is None
        if small and self.head(len(LFS_POINTER)) == LFS_POINTER:
            raise self.wrong(*IS_LFS_POINTER)

    @contextmanager
    def stream(self) -> "Iterator[Stream]":
        """Open the file in a `with` block, as a stream that reads at any offset."""
        try:
            if self._remote is not None:
                blocks = self.path.parent / ".blocks" / self.path.name
                yield Stream(self, partial(read_range, self._remote, blocks))
                return
            with self.path.open("rb", buffering=0) as raw:
                yield Stream(self, lambda offset, view: raw.readinto(view) if raw.seek(offset) == offset else 0)
        except OSError as problem:
            detail = problem.strerror or problem
            raise CheckpointError(f"{self.path} cannot be read: {detail}.\nTry again, or copy it again.") from None

    def require_local(self) -> None:
        """Raise CheckpointError if the bytes are at huggingface.co, for work that needs them all."""
        if self._remote is not None:
            raise CheckpointError(
                f"{self.path.name} is at huggingface.co, where only byte ranges are read, but all bytes are needed.\n"
                f"Download the model by hf download {self._remote.repository}, and pass the folder that is printed."
            )

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from an offset."""
        with self.stream() as stream:
            return stream.read(offset, count)

    def head(self, count: int) -> bytes:
        """Return the first `count` bytes, or all if there are fewer."""
        return self.read(0, min(count, self.size))

    def require_memory(self, needed: int, what: str) -> None:
        """Raise CheckpointError if many tiny entries, of `what`, need more bytes than the size of the file is worth."""
        if needed > (most := TIMES * self.size + BASE):
            raise self.wrong(_too_much(what, needed, most), _FEWER)

    def wrong(self, what: str, way_out: str) -> CheckpointError:
        """Return an error about this file: the problem, without a full stop, and what the user can do."""
        return CheckpointError(f"{self.path}: {what}.\n{way_out}")

    def damaged(self, what: str) -> CheckpointError:
        """Return an error about this file, whose parts contradict each other."""
        return self.wrong(what, "It is truncated or damaged: create or download it again.")


@final
class Stream:
    """An open file; `fill` writes bytes from an offset into a view, and returns how many."""

    def __init__(self, file: File, fill: Callable[[int, memoryview], int]) -> None:
        self.file, self._fill = file, fill

    def read(self, offset: int, count: int) -> bytes:
        """Return `count` bytes from an offset; raise CheckpointError if they are not inside the file."""
        self._require_inside(offset, count)
        return self.read_into(offset, np.empty(count, np.uint8)).tobytes()

    def read_into(self, offset: int, array: np.ndarray) -> np.ndarray:
        """Fill a contiguous array with the bytes at an offset, and return it."""
        self._require_inside(offset, array.nbytes)
        view = memoryview(array.reshape(-1).data).cast("B") if array.nbytes else memoryview(b"")
        done = 0
        while done < len(view):
            if not (count := self._fill(offset + done, view[done:])):
                raise self.file.wrong("it became shorter while it was read", "Try again when it is complete.")
            done += count
        return array

    def _require_inside(self, offset: int, count: int) -> None:
        if offset < 0 or count < 0 or offset + count > self.file.size:
            raise self.file.wrong(
                f"bytes {offset:,} to {offset + count:,} are outside its {self.file.size:,} bytes",
                "It is truncated, or was changed while it was read.",
            )


_FEWER = "No model has so many entries of so few bytes: store their numbers in fewer and larger tensors or rows."


def _too_much(what: str, needed: int, most: int) -> str:
    return f"{what} would take up to {needed / 1e6:,.0f} MB of memory, but for its size at most {most / 1e6:,.0f} MB"


def _memory_of_json(text: bytes) -> int:
    """Return an upper bound of what parsing takes, from what separates its values."""
    width = 1 if text.isascii() else 4 if np.frombuffer(text, np.uint8).max() >= 0xF0 else 2
    brackets = text.count(b"[") + text.count(b"{")
    return width * len(text) + _COMMA * text.count(b",") + _COLON * text.count(b":") + _BRACKET * brackets


def parse_json(text: bytes, where: str, most: int | None = None) -> Json:
    """Parse a JSON object in UTF-8, in which no key occurs twice, in `most` bytes, or JSON_TIMES its size and BASE."""
    if not text:
        raise CheckpointError(f"{where} is empty.\nCreate or download it again.")
    most = JSON_TIMES * len(text) + BASE if most is None else most
    if (needed := _memory_of_json(text)) > most:
        raise CheckpointError(f"{where}: {_too_much('its JSON', needed, most)}.\n{_FEWER}")
    try:
        decoded = text.decode("utf-8")
        del text  # one copy is enough while it is parsed
        value = json.loads(decoded, object_pairs_hook=lambda pairs: _without_duplicates(pairs, where))
    except CheckpointError:
        raise
    except RecursionError:
        raise CheckpointError(f"{where}: its JSON is nested too deeply.\nDownload it again from its author.") from None
    except ValueError as problem:
        raise CheckpointError(f"{where} is not JSON: {problem}.\nCreate or download it again.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{where} holds a {type(value).__name__}, but an object is needed.\nCreate it again.")
    return value


def read_json(path: str | Path, max_bytes: int, times: int = JSON_TIMES) -> Json:
    """Read a JSON object from a file of at most `max_bytes`, which may take `times` its size, and BASE, in memory."""
    file = File(path)
    if file.size > max_bytes:
        raise file.wrong(f"it has {file.size:,} bytes, but such a file has at most {max_bytes:,}", "Pass another file.")
    return parse_json(file.head(max_bytes), str(file.path), times * file.size + BASE)


def _without_duplicates(pairs: list[tuple[str, Any]], where: str) -> Json:
    merged = dict(pairs)
    if len(merged) < len(pairs):
        earlier: set[str] = set()
        twice = next(key for key, _ in pairs if key in earlier or earlier.add(key))  # type: ignore[func-returns-value]
        raise CheckpointError(f"{where}: the key {quoted(twice)} occurs twice in one object.\nKeep one of them.")
    return merged


def plain_name(name: object, where: str) -> str:
    """Return the name of a file that a different file, `where`, states; raise CheckpointError if it names a folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or any(char in name for char in "/\\:\0"):
        given = quoted(name) if isinstance(name, str) else repr(name)[:80]
        raise CheckpointError(
            f"{where} refers to the file {given}, but only a plain name in its own folder is read.\n"
            "If you trust it, move that file into the folder and write its plain name."
        )
    return name


def is_whole_number(value: object) -> bool:
    """Return whether a value from JSON is a whole number from 0 to 2^63 - 1, such as a number of bytes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
