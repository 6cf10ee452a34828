"""Matrices in safetensors files, read and written by row, without PyTorch."""

import json
import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise, repeat
from math import prod
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Int64, UInt8

from whatwhere.atomic import atomic_file
from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.escape import quoted

Rows = Int64[np.ndarray, " rows"]
Bytes = UInt8[np.ndarray, "rows bytes"]
BYTES = {"F32": 4, "BF16": 2, "F16": 2}  # the types of rows, as safetensors names them, and the bytes of a number

_DAMAGED = "It is truncated or damaged: copy or create it again."


@final
class OpenFile:
    """A file that is open, with flags of os.open, until it is closed or nothing refers to it."""

    def __init__(self, path: Path, flags: int) -> None:
        with own_errors(path):
            # Opening a pipe would wait for somebody to write to it.
            self.number = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        self.close = weakref.finalize(self, os.close, self.number)
        if not stat.S_ISREG(os.fstat(self.number).st_mode):
            self.close()
            raise CheckpointError(f"{path} is not a regular file, so its size is not known.\nPass a file.")


@final
class MatrixFile:
    """A matrix in a safetensors file, whose rows are read and written in place; `tensor` None is its only one."""

    def __init__(self, path: str | Path, tensor: str | None = None, *, writable: bool = False) -> None:
        if not hasattr(os, "preadv"):
            raise SettingError(
                "rows in a file need os.preadv, which this system does not have.\nUse Linux or another Unix."
            )
        self.path = Path(path)
        self.fd = OpenFile(self.path, os.O_RDWR if writable else os.O_RDONLY)
        self.close = self.fd.close
        self.tensor, fields, begin, self.header = _chosen(self.path, tensor)
        rows, columns = fields["shape"]
        self.shape: tuple[int, int] = (rows, columns)
        self.type: str = fields["dtype"]
        self.row_bytes = columns * BYTES[self.type]
        self._begin = begin + fields["data_offsets"][0]
        if hasattr(os, "posix_fadvise"):  # single rows: reading more than them would only cost
            os.posix_fadvise(self.fd.number, 0, 0, os.POSIX_FADV_RANDOM)

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        with own_errors(self.path):
            os.fsync(self.fd.number)

    def read(self, rows: Rows) -> Bytes:
        """Read rows by their numbers, best ascending; CheckpointError if the file has become shorter."""
        out = np.empty((len(rows), self.row_bytes), np.uint8)
        parts, offsets = _parts(_flat(out), self._begin, self.row_bytes, rows)
        file = self.fd.number
        with own_errors(self.path):
            if hasattr(os, "posix_fadvise") and len(parts) > 1:  # a disk serves many of them at a time
                for _ in map(os.posix_fadvise, repeat(file), offsets, map(len, parts), repeat(os.POSIX_FADV_WILLNEED)):
                    pass
            while parts:
                counts = list(map(os.preadv, repeat(file), zip(parts), offsets))
                if 0 in counts:
                    raise CheckpointError(f"{self.path} became shorter than when it was opened.\n{_DAMAGED}")
                parts, offsets = _rest(parts, offsets, counts)
        return out

    def write(self, rows: Rows, values: Bytes) -> None:
        """Write rows in place, by their numbers, best ascending."""
        write_records(self.path, self.fd, self._begin, rows, values)


def write_matrix(
    path: Path,
    name: str,
    type: str,
    shape: tuple[int, int],
    blocks: Iterator[np.ndarray] | None,
    replace: bool = False,
    metadata: dict[str, str] | None = None,
) -> None:
    """Write a safetensors file with one matrix, atomically: blocks of its rows, or zeros, which take no disk."""
    size = prod(shape) * BYTES[type]
    about = {} if metadata is None else {"__metadata__": metadata}
    header = json.dumps({**about, name: {"dtype": type, "shape": list(shape), "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    with own_errors(path), atomic_file(path, replace=replace) as part, part.open("wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for block in blocks or ():
            out.write(_flat(np.ascontiguousarray(block)))
        if blocks is None:
            out.truncate(8 + len(header) + size)


@contextmanager
def own_errors(path: Path) -> Iterator[None]:
    """Raise CheckpointError for errors of the operating system with a file."""
    try:
        yield
    except FileExistsError:
        raise CheckpointError(f"{path} exists already.\nOpen it, remove it, or choose another path.") from None
    except PermissionError as problem:
        raise CheckpointError(
            f"{path} cannot be opened so: {problem.strerror}.\nTo read rows without training them, pass read_only=True."
        ) from None
    except OSError as problem:
        raise CheckpointError(
            f"{path}: {problem.strerror or problem}.\nCheck the path, and that the disk has space left; what was "
            "flushed before is whole."
        ) from None


def write_records(path: Path, file: OpenFile, begin: int, numbers: Rows, values: Bytes) -> None:
    """Write records of one size at their numbers in an open file, in which record 0 begins at an offset."""
    parts, offsets = _parts(_flat(np.ascontiguousarray(values)), begin, values.shape[1], numbers)
    with own_errors(path):
        while parts:
            counts = list(map(os.pwrite, repeat(file.number), parts, offsets))
            parts, offsets = _rest(parts, offsets, counts)


def _flat(values: np.ndarray) -> memoryview:
    return memoryview(values.reshape(-1).data).cast("B") if values.size else memoryview(b"")


def _parts(values: memoryview, begin: int, size: int, numbers: Rows) -> tuple[list[memoryview], list[int]]:
    """Return records as the parts of bytes that are contiguous in the file too, and the offsets of these there."""
    starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    borders = (np.append(starts, len(numbers)) * size).tolist()
    return [values[at:end] for at, end in pairwise(borders)], (begin + numbers[starts] * size).tolist()


def _rest(parts: list[memoryview], offsets: list[int], counts: list[int]) -> tuple[list[memoryview], list[int]]:
    """Return the parts that are left after some bytes of each, with their offsets."""
    each = zip(parts, offsets, counts, strict=True)
    left = [(part[count:], offset + count) for part, offset, count in each if count < len(part)]
    return [part for part, _ in left], [offset for _, offset in left]


def _chosen(path: Path, tensor: str | None) -> tuple[str, dict[str, Any], int, str]:
    """Return the name of a matrix, its fields of the header, the offset behind that, and its digest."""
    from safetensors import SafetensorError, safe_open

    try:
        with own_errors(path), safe_open(path, "np") as checked:  # its reader checks the whole header
            names = list(checked.keys())
    except SafetensorError as problem:
        raise CheckpointError(f"{path} is not a whole safetensors file: {problem}.\n{_DAMAGED}") from None
    with own_errors(path), path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        content = file.read(length)
        digest = sha256(content + str(os.fstat(file.fileno()).st_size).encode()).hexdigest()
    header: dict[str, Any] = json.loads(content)
    fitting = [name for name in names if header[name]["dtype"] in BYTES and len(header[name]["shape"]) == 2]
    if tensor is None and len(fitting) == 1:
        tensor = fitting[0]
    if tensor is None:
        raise TokenError(
            f"{path} has {len(fitting)} matrices of {', '.join(BYTES)}, but one is needed.\n"
            f"Name it: tensor={quoted(fitting[0] if fitting else 'embed_tokens.weight')}."
        )
    if tensor not in names:
        raise TokenError(f"{path} has no tensor {quoted(tensor)}.\nIt has {', '.join(map(quoted, names[:8]))}.")
    fields = header[tensor]
    if tensor not in fitting or 0 in fields["shape"]:
        raise CheckpointError(
            f"{path}: {quoted(tensor)} has the type {fields['dtype']} and the shape {fields['shape']}, but rows are "
            f"read from a matrix of {', '.join(BYTES)}.\nConvert it, or name another tensor."
        )
    return tensor, fields, 8 + length, digest
