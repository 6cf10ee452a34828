"""The rows of a table and their optimizer state in files: those of one flush, whatever happens to the process.

Changed rows are in memory until they have 64 MB or the table is flushed. Before a row is changed in place, its old
value is on the disk, in the file `undo`. A flush waits for the disk, then steps.json names it, and appears whole or not
at all. Where `undo` leads back to the flush that is named there, its rows are written back when the table is opened. It
is kept until the next change, so a flush that other tables of the same optimizer lack can be taken back.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from secrets import token_hex
from typing import final

import numpy as np
from jaxtyping import Int64, UInt8

from whatwhere.atomic import write_atomic
from whatwhere.errors import CheckpointError, ResultsError, SettingError
from whatwhere.records import Schema, from_json
from whatwhere.what.matrix_file import Bytes, MatrixFile, OpenFile, Rows, own_errors, write_matrix, write_records

_STATE, _STEPS, _UNDO = "state.safetensors", "steps.json", "undo"
_STEPS_BEFORE = "steps.safetensors"  # the name up to version 0.2
_IN_MEMORY = 1 << 26  # bytes of changed rows that are in memory before they are written
_COMPARED = 64  # rows that tell a file from others, of the table and of the last change
_MOST_STEPS = 1 << 31  # rows store the step of their last update in 32 bits
_SCHEMA = Schema(
    "whatwhere-steps",
    4,
    "Remove its folder to train the table from step 0; where another version wrote it, bring all rows up to date with "
    "that version first.",
)


Run = tuple[int, float, float, float, float, float]
"""Of steps with the same settings: how many, lr, beta1, beta2, eps and weight_decay."""


@dataclass
class Steps:
    """The steps of an optimizer."""

    algorithm: str
    base: int = 0  # the step up to which every row is up to date
    number: int = 0  # of the last step
    eps: float = 0.0  # at the base
    betas: tuple[float, float] = (0.0, 0.0)  # at the base
    runs: list[Run] = field(default_factory=list)  # after the base, where rows may have missed them

    def record(self, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        """Add a step to the runs."""
        settings = (lr, *betas, eps, weight_decay)
        same = self.runs.pop()[0] if self.runs and self.runs[-1][1:] == settings else 0
        self.runs.append((same + 1, *settings))


@dataclass(frozen=True)
class Flush:
    """What steps.json says of the last flush."""

    name: str  # at random
    before: str  # the name of the flush before
    together: list[str]  # headers of the tables that were flushed together, this one's too
    header: str  # of the table, a digest
    rows: list[int]  # some of the table
    digest: str  # of their values
    steps: Steps


@final
class RowFiles:
    """The files of a table: its rows, and in a folder beside it, NAME.training, their state, the steps and `undo`.

    One process can open it `writable`, for training, and nobody reads meanwhile.
    """

    def __init__(self, path: str | Path, tensor: str | None = None, *, writable: bool) -> None:
        self.weight = MatrixFile(path, tensor, writable=writable)
        self.folder = training_folder(self.weight.path)
        self.writable = writable
        self.state: MatrixFile | None = None
        self._flush: Flush | None = None
        self._changed: dict[int, np.ndarray] = {}
        self._undo: OpenFile | None = None
        self._end = 0
        self._kept: set[int] = set()
        self._failed = False
        try:
            self._lock()
            if (flush := _last_flush(self.folder)) is not None:
                self._open_state(flush)
        except BaseException:
            self.close()
            raise

    @property
    def steps(self) -> Steps | None:
        """The steps of the optimizer; None before there are any."""
        return None if self._flush is None else self._flush.steps

    def fail(self) -> None:
        """Refuse to go on: what was changed since the last flush is not that of any step."""
        self._failed = True

    def require_whole(self) -> None:
        """Raise CheckpointError if a change has failed midway."""
        if self._failed:
            raise CheckpointError(
                f"{self.weight.path}: a step or a flush failed midway, and the rows are not those of any step.\n"
                "Close the table and open it again: then it is as at its last flush."
            )

    def start(self, steps: Steps, columns: int) -> None:
        """Create the state before the first step: zeros, so many float32 numbers a row."""
        with own_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
            (self.folder / _UNDO).unlink(missing_ok=True)
        write_matrix(self.folder / _STATE, "state", "F32", (self.weight.shape[0], columns), None, replace=True)
        own = replace(steps, runs=[])  # tables of one optimizer begin with the same
        self._flush = Flush("", "", [], self.weight.header, [], "", own)
        self._name_flush(token_hex(16), [])
        self._open_state(self._flush)

    def read(self, rows: Rows) -> tuple[Bytes, np.ndarray | None]:
        """Read rows, ascending and each once, and their state; None before there is any."""
        stored = np.array([row not in self._changed for row in rows.tolist()], bool)
        if self.state is None or stored.all():
            return self.weight.read(rows), None if self.state is None else self.state.read(rows)
        both = np.empty((len(rows), self.weight.row_bytes + self.state.row_bytes), np.uint8)
        both[stored] = self._stored(rows[stored])
        both[~stored] = np.stack([self._changed[row] for row in rows[~stored].tolist()])
        weight, state = np.split(both, [self.weight.row_bytes], axis=1)
        return weight.copy(), state.copy()

    def read_ahead(self, rows: Rows) -> None:
        """Read rows that will be needed soon into the cache of the operating system."""
        for each in self._files:
            each.read(rows)

    def write(self, rows: Rows, weight: Bytes, state: UInt8[np.ndarray, "rows state_bytes"]) -> None:
        """Change rows, ascending and each once."""
        both = np.concatenate([weight, state], axis=1)
        self._changed.update(zip(rows.tolist(), both, strict=True))
        if len(self._changed) * both.shape[1] >= _IN_MEMORY:
            self.write_changes()

    def write_changes(self) -> None:
        """Write changed rows in place, once their old values are on the disk; if this fails, it can be repeated."""
        rows = np.array(sorted(self._changed), np.int64)
        self._keep_old(rows[[row not in self._kept for row in rows.tolist()]])
        if len(rows):
            self._put(rows, np.stack([self._changed[row] for row in rows.tolist()]))
        self._changed = {}

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        for each in self._files:
            each.sync()

    def take_back(self) -> None:
        """Return to the flush that `undo` leads to."""
        undo, steps = self.folder / _UNDO, self.folder / _STEPS
        before = _head(undo)
        if before is None:
            raise CheckpointError(f"{undo} is missing or damaged.\nPut it back from a copy.")
        with own_errors(self.folder):
            write_atomic(steps, before, follow=False)  # first: then this is repeated after a kill
        for rows, both in self._old_rows(len(before)):
            self._put(rows, both)
        self.sync()
        with own_errors(self.folder):
            undo.unlink()
        self._flush = _parsed(before, steps)

    def close(self) -> None:
        """Close the files; what was not flushed is given up."""
        if self._undo is not None:
            self._undo.close()
            self._undo = None
            with suppress(CheckpointError):  # else when the table is opened again
                self.take_back()
        for each in self._files:
            each.close()

    @property
    def _files(self) -> list[MatrixFile]:
        return [each for each in (self.weight, self.state) if each is not None]

    def _stored(self, rows: Rows) -> Bytes:
        return np.concatenate([each.read(rows) for each in self._files], axis=1)

    def _put(self, rows: Rows, both: Bytes) -> None:
        for each, part in zip(self._files, np.split(both, [self.weight.row_bytes], axis=1), strict=True):
            each.write(rows, part)

    def _keep_old(self, rows: Rows) -> None:
        """Append old rows to `undo`, which begins with the steps of the last flush, and wait for the disk.

        A kill may leave the end of it in pieces, of which no row was changed in place: so each part has a digest.
        """
        path = self.folder / _UNDO
        if self._undo is None:
            self._undo, self._end = OpenFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), 0
        first = self._end == 0
        if not first and not len(rows):
            return
        part = rows.tobytes() + self._stored(rows).tobytes()
        content = len(rows).to_bytes(8, "little") + _digest(part) + part
        with own_errors(path):
            if first:
                steps = (self.folder / _STEPS).read_bytes()
                content = len(steps).to_bytes(8, "little") + steps + content
            write_records(path, self._undo, self._end, np.zeros(1, np.int64), np.frombuffer(content, np.uint8)[None])
            os.fsync(self._undo.number)
            if first:
                folder = os.open(self.folder, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        self._end += len(content)
        self._kept.update(rows.tolist())

    def _old_rows(self, begin: int) -> Iterator[tuple[Rows, Bytes]]:
        """Yield the parts of `undo` that are whole, behind the steps."""
        size = sum(each.row_bytes for each in self._files)
        path = self.folder / _UNDO
        with own_errors(path), path.open("rb") as file:
            file.seek(8 + begin)
            while len(head := file.read(24)) == 24:
                count = int.from_bytes(head[:8], "little")
                if count > self.weight.shape[0] or _digest(part := file.read(count * (8 + size))) != head[8:]:
                    return
                rows = np.frombuffer(part, np.int64, count)
                yield rows, np.frombuffer(part, np.uint8, offset=8 * count).reshape(count, size)

    def _name_flush(self, name: str, together: list[str]) -> None:
        """Write the steps, atomically: from then on the flush has happened."""
        last = self._flush
        assert last is not None
        kept = np.array(sorted(self._kept) or last.rows, np.int64)
        rows = np.union1d(_spread(self.weight.shape[0]), kept[_spread(len(kept))])
        digest = _digest(self.weight.read(rows).tobytes()).hex()
        flush = replace(last, name=name, before=last.name, together=together, rows=rows.tolist(), digest=digest)
        path = self.folder / _STEPS
        with own_errors(path):
            write_atomic(path, json.dumps(_SCHEMA.wrap(flush)), follow=False)
        self._flush = flush
        if self._undo is not None:
            self._undo.close()
        self._undo, self._end, self._kept = None, 0, set()

    def _open_state(self, flush: Flush) -> None:
        if flush.header != self.weight.header:
            raise self._foreign("belongs to a file with another header or size")
        self._flush = flush
        self.state = MatrixFile(self.folder / _STATE, "state", writable=self.writable)
        if self.state.shape[0] != self.weight.shape[0]:
            raise self._foreign(f"has the state of {self.state.shape[0]:,} rows")
        head = _interrupted(self.folder, flush)
        self._require_own_rows(flush, head)
        if head is not None and not self.writable:
            raise CheckpointError(
                f"{self.weight.path} has changes that were interrupted before a flush.\n"
                "Open it once without read_only=True, which takes them back."
            )
        if head is not None:
            self.take_back()

    def _require_own_rows(self, flush: Flush, head: bytes | None) -> None:
        """Raise CheckpointError unless some rows, or their old values in `undo`, are as the last flush left them."""
        if not flush.rows or not 0 <= min(flush.rows) <= max(flush.rows) < self.weight.shape[0]:
            raise self._foreign("is damaged: it names no rows of the table")
        rows = np.array(flush.rows, np.int64)
        values = self.weight.read(rows)
        for some, both in () if head is None else self._old_rows(len(head)):
            _, own, old = np.intersect1d(rows, some, return_indices=True)
            values[own] = both[old, : self.weight.row_bytes]
        if _digest(values.tobytes()).hex() != flush.digest:
            raise self._foreign("belongs to another file, or another program changed rows of this one")

    def _foreign(self, what: str) -> CheckpointError:
        weight = self.weight
        return CheckpointError(
            f"{self.folder} {what}: it is not that of {weight.path.name}, where {weight.tensor} has the shape "
            f"{list(weight.shape)} and the type {weight.type}.\nOpen the table that it belongs to, or remove the "
            "folder to train this one from step 0."
        )

    def _lock(self) -> None:
        import fcntl  # of Unix; elsewhere, reading other files must not fail for it

        try:
            fcntl.flock(self.weight.fd.number, (fcntl.LOCK_EX if self.writable else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingError(
                f"{self.weight.path} is open already, in this process or in another one"
                + (".\n" if self.writable else " that trains it.\n")
                + "Close it there first: one process trains a table, and no other one reads it meanwhile."
            ) from None
        except OSError as problem:
            raise CheckpointError(
                f"{self.weight.path} cannot be locked: {problem.strerror}.\nPut it on a file system that knows locks."
            ) from None


def flush_files(tables: Sequence[RowFiles]) -> None:
    """Make all changes of some tables durable, or none; CheckpointError if the disk is full, and nothing is lost."""
    for each in tables:
        each.require_whole()
    tables = [each for each in tables if each.steps is not None and each.writable]
    for each in tables:
        each.write_changes()
    for each in tables:
        each.sync()
    name, together = token_hex(16), [each.weight.header for each in tables] if len(tables) > 1 else []
    try:
        for each in tables:
            each._name_flush(name, together)
    except BaseException:  # some may be at this flush, and others at the one before
        for each in tables:
            each.fail()
        raise


def take_back_unfinished(tables: Sequence[RowFiles]) -> list[RowFiles]:
    """Take back the last flush of tables where others of them lack it, after a kill in between; return these."""
    flushes = [each._flush for each in tables if each._flush is not None]
    ahead = [
        each
        for each in tables
        if each._flush is not None
        # A flush was of both, and this other one is at the flush before.
        and any(own.name == each._flush.before and own.header in each._flush.together for own in flushes)
    ]
    for each in ahead:
        each.take_back()
    return ahead


def training_folder(path: Path) -> Path:
    """Return the folder beside a table that has its optimizer state."""
    return path.with_name(f"{path.name}.training")


def require_up_to_date(path: Path) -> None:
    """Raise CheckpointError if rows of a safetensors file have missed steps, or changes of them were interrupted."""
    flush = _last_flush(folder := training_folder(path))
    if flush is None:
        return
    interrupted = _interrupted(folder, flush) is not None
    if flush.steps.runs or interrupted:
        missed = f"rows may have missed some of the last {sum(run[0] for run in flush.steps.runs):,} steps"
        raise CheckpointError(
            f"{path} is being trained row by row: {'changes were interrupted' if interrupted else missed}.\nBring all "
            "rows up to date first, in Python: from whatwhere.what.file_table import FileTokenEmbedding; "
            "FileTokenEmbedding(path).update_all_rows()."
        )


def _last_flush(folder: Path) -> Flush | None:
    """Return what the last flush wrote; None before there is any."""
    path = folder / _STEPS
    if (folder / _STEPS_BEFORE).exists():
        raise CheckpointError(f"{folder} was written by version 0.2 of whatwhere.\n{_SCHEMA.way_out}")
    with own_errors(path):
        return _parsed(path.read_bytes(), path) if path.exists() else None


def _interrupted(folder: Path, flush: Flush) -> bytes | None:
    """Return the steps that `undo` begins with where it leads back to this flush, because changes of it were begun."""
    head = _head(folder / _UNDO)
    return head if head is not None and _parsed(head, folder / _UNDO).name == flush.name else None


def _head(undo: Path) -> bytes | None:
    """Return the steps that a file of old rows begins with; None where there is none, or not all of them."""
    if not undo.exists():
        return None
    with own_errors(undo), undo.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        steps = file.read(length) if length <= os.fstat(file.fileno()).st_size else b""
    return steps if steps and len(steps) == length else None


def _parsed(content: bytes, path: Path) -> Flush:
    """Return what a file of steps says."""
    try:
        flush = from_json(Flush, _SCHEMA.unwrap(json.loads(content), str(path), CheckpointError), "it")
        steps = flush.steps
        if not 0 <= steps.base <= steps.number < _MOST_STEPS:
            raise ValueError(f"it is at step {steps.number}, from {steps.base}")
        if any(run[0] < 1 for run in steps.runs) or sum(run[0] for run in steps.runs) != steps.number - steps.base:
            raise ValueError(f"it has no settings of each step from {steps.base} to {steps.number}")
        values = [steps.eps, *steps.betas, *(value for run in steps.runs for value in run[1:])]
        if not all(isfinite(value) and value >= 0 for value in values) or max(steps.betas) >= 1:
            raise ValueError("a setting of a step is negative or not finite, or beta is not below 1")
    except CheckpointError:
        raise
    except (ResultsError, ValueError, OverflowError, RecursionError) as problem:
        first = str(problem).partition("\n")[0].rstrip(".")
        raise CheckpointError(f"{path} has no steps of an optimizer: {first}.\n{_SCHEMA.way_out}") from None
    return flush


def _spread(count: int) -> Int64[np.ndarray, " some"]:
    """Return at most `_COMPARED` of so many numbers, spread evenly."""
    return np.linspace(0, count - 1, min(count, _COMPARED)).astype(np.int64)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
