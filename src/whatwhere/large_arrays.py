"""Arrays with many rows: in scratch files where they are large, and worked through by blocks that report progress.

A scratch file is mapped and has no name, so nobody shortens it; files of others are read, never mapped.
"""

import os
import re
import warnings
from collections.abc import Iterator
from math import prod
from mmap import mmap
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

import numpy as np
from jaxtyping import Bool, Int64

from whatwhere.errors import SettingError
from whatwhere.long_work import Pace, report_rows

SCRATCH_FROM = 1 << 29  # bytes of an array from which on it is in a scratch file
_in_memory: set[str] = set()  # folders of temporary files that lacked room for an array, of which a warning was given
_NUMBERS = 1 << 22  # numbers that are copied or checked at a time


def new_array(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """Return an uninitialized array: a large one is in a scratch file, which the system may write back to the disk.

    The file is in the folder of temporary files (TMPDIR), has no name, and its room is taken at once. Where that is
    missing, a warning says so and the array is in memory; SettingError where there is too little of it.
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    if size < SCRATCH_FROM or not size or not hasattr(os, "posix_fallocate"):
        return np.empty(shape, dtype)
    try:
        with TemporaryFile(prefix="whatwhere-") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # else a full disk would end the process at a later write
            return np.frombuffer(mmap(file.fileno(), size), dtype).reshape(shape)
    except OSError as problem:
        _require_memory(size, problem)
        return np.empty(shape, dtype)


def _require_memory(size: int, problem: OSError) -> None:
    """Warn, once for each folder, that an array takes memory; raise SettingError where there is less than it needs."""
    try:
        folder = gettempdir()
    except OSError:  # none can be written
        folder = os.environ.get("TMPDIR", "/tmp")
    reason = f"A table needs {size / 1e9:,.2f} GB in a scratch file, but in {folder}: {problem.strerror}"
    way = "Set TMPDIR to a folder on a disk with room for three such files, such as TMPDIR=/var/tmp before the command."
    if (available := _available_memory()) is not None and available < size:
        raise SettingError(f"{reason}, and {available / 1e9:,.2f} GB of memory are available.\n{way}")
    if folder not in _in_memory:
        _in_memory.add(folder)
        warnings.warn(f"{reason}. It takes memory.\n{way}", stacklevel=3)


def _available_memory() -> int | None:
    """Return the bytes that can be used without swapping, as Linux estimates them; None elsewhere."""
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    except (OSError, ValueError):
        return None
    return None if found is None else int(found[1]) << 10


def row_blocks(rows: int, step: int) -> Iterator[slice]:
    """Yield slices of at most `step` rows, and report when each was worked through."""
    pace = Pace()
    for first in range(0, rows, step):
        last = min(first + step, rows)
        yield slice(first, last)
        report_rows(last, rows, pace)


def rows_at_a_time(dim: int) -> int:
    """Return how many rows of a table are copied at a time."""
    return max(1, _NUMBERS // max(dim, 1))


def sample_rows(rows: int, most: int, seed: int = 0) -> Int64[np.ndarray, " sample"]:
    """Sample at most `most` row numbers uniformly, without replacement, and return them in ascending order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def selected_rows(table: np.ndarray, rows: Int64[np.ndarray, " selected"]) -> np.ndarray:
    """Return some rows of a table: the table itself where these are all of its rows, in order."""
    if len(rows) == len(table) and np.array_equal(rows, np.arange(len(table))):
        return table
    chosen = new_array((len(rows), *table.shape[1:]), table.dtype)
    for part in row_blocks(len(rows), rows_at_a_time(prod(table.shape[1:]))):
        chosen[part] = table[rows[part]]
    return chosen


def finite_rows(table: np.ndarray) -> Bool[np.ndarray, " rows"]:
    """Return whether all numbers are finite, for each row."""
    finite = np.empty(len(table), bool)
    for part in row_blocks(len(table), rows_at_a_time(table.shape[1])):
        finite[part] = np.isfinite(table[part]).all(axis=1)
    return finite
