"""The rows of a table and their optimizer state in files: changed in a log, flushed whole or not at all.

A changed row goes to the log, a file beside the table, and is read from there until the next flush. A flush waits until
the log is on the disk, then writes the numbers of its rows to steps.safetensors, which appears whole or not at all:
from then on the flush has happened. The rows are copied from the log into the table and its state; if that is
interrupted, it is repeated when the files are opened. So each changed row is written twice for each flush, and what was
written since the last flush is given up after a kill. Several tables are flushed together, or none: see shared_flush.
"""

import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Int64, UInt8

from whatwhere.atomic import write_atomic
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.what.matrix_file import (
    MatrixFile,
    OpenFile,
    own_errors,
    read_records,
    write_matrix,
    write_records,
)
from whatwhere.what.row_steps import Stated, Steps, read_steps, steps_content
from whatwhere.what.shared_flush import Marker, Place, new_marker, remove_markers, write_marker
from whatwhere.what.table_identity import header_digest, identity, spread

_STATE, _STEPS, _PREPARED, _LOG = "state.safetensors", "steps.safetensors", "prepared.safetensors", "changes.log"
_BLOCK = 1 << 12
"""Rows that are copied from the log at once."""


@final
class RowFiles:
    """The files of a table: its rows, and in a folder beside it, NAME.training, state, steps and the log of changes.

    Args:
        path: the safetensors file with the rows.
        tensor: the name of the table in it; None is its only matrix.
        writable: open it for training; one process can at a time, and nobody reads meanwhile.

    Raises:
        CheckpointError: If a file cannot be opened, is damaged, or does not fit the others.
        SettingError: If another process has the table open, for training or, where this one trains, for reading.
        TokenError: If the file has no such tensor.
    """

    def __init__(self, path: str | Path, tensor: str | None = None, *, writable: bool) -> None:
        self.weight = MatrixFile(path, tensor, writable=writable)
        self.folder = training_folder(self.weight.path)
        self.writable = writable
        self._lock()
        self.state: MatrixFile | None = None
        self.steps: Steps | None = None
        self._header = header_digest(self.weight)
        self._witnesses = np.empty(0, np.int64)
        self._slots: dict[int, int] = {}
        self._log: OpenFile | None = None
        self._committed = self._prepared = self._failed = False
        try:
            if (self.folder / _STEPS).exists():
                self._open_state()
        except BaseException:
            self.close()
            raise

    @property
    def is_unfinished(self) -> bool:
        """Whether a flush has happened, but not all of its rows are in the table."""
        return self._committed

    def fail(self) -> None:
        """Refuse to go on: what was changed since the last flush is not that of any step."""
        self._failed = True

    def require_whole(self) -> None:
        """Raise CheckpointError if a change has failed midway.

        Raises:
            CheckpointError: If so.
        """
        if self._failed:
            raise CheckpointError(
                f"{self.weight.path}: a step or a flush failed midway, and the rows are not those of any step.\n"
                "Close the table and open it again: then it is as at its last flush."
            )

    def start(self, steps: Steps, columns: int) -> None:
        """Create the optimizer state before the first step: zeros.

        Args:
            steps: none yet.
            columns: float32 numbers of the state of a row.

        Raises:
            CheckpointError: If it cannot be written.
        """
        with own_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
        write_matrix(self.folder / _STATE, "state", "F32", (self.weight.shape[0], columns), None, replace=True)
        self.steps = steps
        self._write_steps(np.empty(0, np.int64), self.folder / _STEPS, None)
        self._open_state()

    def read(self, rows: Int64[np.ndarray, " rows"]) -> tuple[UInt8[np.ndarray, "rows bytes"], np.ndarray | None]:
        """Read rows, each at its last change, and their state; None before there is any.

        Args:
            rows: ascending, each once.

        Raises:
            CheckpointError: If a file has become shorter, or cannot be read.
        """
        slots = self._slots_of(rows)
        whole = slots < 0
        if whole.all():
            return self.weight.read(rows), None if self.state is None else self.state.read(rows)
        assert self.state is not None
        weight = np.empty((len(rows), self.weight.row_bytes), np.uint8)
        state = np.empty((len(rows), self.state.row_bytes), np.uint8)
        weight[whole], state[whole] = self.weight.read(rows[whole]), self.state.read(rows[whole])
        changed = self._read_log(slots[~whole])
        weight[~whole], state[~whole] = np.split(changed, [self.weight.row_bytes], axis=1)
        return weight, state

    def write(
        self,
        rows: Int64[np.ndarray, " rows"],
        weight: UInt8[np.ndarray, "rows bytes"],
        state: UInt8[np.ndarray, "rows state_bytes"],
    ) -> None:
        """Write changed rows to the log.

        Args:
            rows: ascending, each once.
            weight, state: their bytes.

        Raises:
            CheckpointError: If the disk is full, or the log cannot be written.
        """
        self.finish()
        slots = self._slots_of(rows)
        new = slots < 0
        slots[new] = np.arange(len(self._slots), len(self._slots) + int(new.sum()))
        if self._log is None:
            self._log = OpenFile(self.folder / _LOG, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        write_records(self.folder / _LOG, self._log, 0, slots, np.concatenate([weight, state], axis=1))
        self._slots.update(zip(rows[new].tolist(), slots[new].tolist(), strict=True))

    def close(self) -> None:
        """Close the files; what was not flushed is given up."""
        for each in (self.weight, self.state):
            if each is not None:
                each.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _slots_of(self, rows: Int64[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
        """Return where rows are in the log; -1 for those that are not."""
        return np.fromiter(map(self._slots.get, rows.tolist(), repeat(-1)), np.int64, len(rows))

    def _read_log(self, slots: Int64[np.ndarray, " rows"]) -> UInt8[np.ndarray, "rows bytes"]:
        assert self._log is not None
        assert self.state is not None
        return read_records(self.folder / _LOG, self._log, 0, self.weight.row_bytes + self.state.row_bytes, slots)

    def prepare(self, path: Path, marker: Path | None, first: "RowFiles") -> None:
        """Make all that a flush needs durable, under a path that decides about it or is prepared.

        Args:
            path: a file of the folder.
            marker: that decides about it.
            first: the table with the marker.
        """
        if self._log is not None:
            with own_errors(self.folder / _LOG):
                os.fsync(self._log.number)
        named = None if marker is None else Marker(Place.of(marker, self.folder), first._header)
        self._write_steps(np.fromiter(self._slots, np.int64, len(self._slots)), path, named)  # in the order of slots

    def commit(self, prepared: bool) -> None:
        """Note that a flush has happened, whose rows are to be copied.

        Args:
            prepared: its steps have still to get their name.
        """
        self._committed, self._prepared = True, prepared

    def finish(self) -> None:
        """Copy the rows of a flush that has happened from the log to the table, and forget the log.

        Raises:
            CheckpointError: If the disk is full. It goes on from there when it is called again.
        """
        if not self._committed:
            return
        assert self.state is not None
        if self._prepared:
            self._adopt_prepared()
        if self._slots:
            rows, slots = (np.fromiter(x, np.int64, len(self._slots)) for x in (self._slots, self._slots.values()))
            order = rows.argsort()
            for begin in range(0, len(order), _BLOCK):
                some = order[begin : begin + _BLOCK]
                weight, state = np.split(self._read_log(slots[some]), [self.weight.row_bytes], axis=1)
                self.weight.write(rows[some], weight)
                self.state.write(rows[some], state)
            self.weight.sync()
            self.state.sync()
        self._write_steps(np.empty(0, np.int64), self.folder / _STEPS, None)
        self._committed = False
        self._slots = {}
        self._remove_log()

    def _adopt_prepared(self) -> None:
        """Rename the steps of a flush that has happened."""
        prepared, steps = self.folder / _PREPARED, self.folder / _STEPS
        with own_errors(steps):
            write_atomic(steps, prepared.read_bytes(), follow=False)
            prepared.unlink()
        self._prepared = False

    def _remove_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        with suppress(FileNotFoundError), own_errors(self.folder / _LOG):
            (self.folder / _LOG).unlink(missing_ok=True)

    def _write_steps(self, pending: Int64[np.ndarray, " rows"], path: Path, marker: Marker | None) -> None:
        """Write the steps, and the rows that are to be copied from the log, atomically."""
        steps = self.steps
        assert steps is not None
        if len(pending):
            self._witnesses = np.sort(pending)[spread(len(pending))]
        rows = np.union1d(spread(self.weight.shape[0]), self._witnesses)
        now = self.read(rows)[0]
        own = identity(self._header, rows, now, self.weight.read(rows) if len(pending) else now)
        stated = Stated(
            self.weight.tensor, self.weight.shape, self.weight.type,
            steps.algorithm, steps.base, steps.number, steps.eps, steps.betas, own, marker,
        )  # fmt: skip
        content = steps_content(stated, steps.runs, pending)
        try:
            with own_errors(path):
                write_atomic(path, content, follow=False)
        except BaseException:
            with suppress(OSError):
                if path.read_bytes() == content:  # it has its name, perhaps not on the disk: no row may follow
                    self.fail()
            raise

    def _open_state(self) -> None:
        self._decide_prepared()
        self.steps, pending = self._read_steps()
        self.state = MatrixFile(self.folder / _STATE, "state", writable=self.writable)
        if self.state.shape[0] != self.weight.shape[0]:
            raise _foreign(self.folder, f"has the state of {self.state.shape[0]:,} rows", self.weight)
        if len(pending) and not self.writable:
            raise self._interrupted()
        if not self.writable:
            return
        if len(pending):
            self._log = OpenFile(self.folder / _LOG, os.O_RDWR)
            self._slots = {row: slot for slot, row in enumerate(pending.tolist())}
            self._committed = True
            self.finish()
        self._remove_log()  # changes that were never flushed
        remove_markers(self.folder, _PREPARED)

    def _decide_prepared(self) -> None:
        """Go on with a flush of several tables that was interrupted, or give it up."""
        prepared = self.folder / _PREPARED
        if not prepared.exists():
            return
        if _has_happened(prepared):
            if not self.writable:
                raise self._interrupted()
            self._adopt_prepared()
        elif self.writable:
            with own_errors(prepared):
                prepared.unlink()

    def _interrupted(self) -> CheckpointError:
        return CheckpointError(
            f"{self.weight.path} is in the middle of a flush that was interrupted.\n"
            "Open it once without read_only=True, which completes it."
        )

    def _read_steps(self) -> tuple[Steps, Int64[np.ndarray, " rows"]]:
        numbers, settings, pending = read_steps(self.folder / _STEPS)
        for name in ("tensor", "shape", "type"):
            other = getattr(numbers, name)
            if other != getattr(self.weight, name):
                raise _foreign(self.folder, f"belongs to a table with {name} {other}", self.weight)
        if len(pending) and not 0 <= pending.min() <= pending.max() < self.weight.shape[0]:
            raise _foreign(self.folder, f"has changes of the row {pending.max():,}", self.weight)
        if difference := numbers.file.difference(self.weight, pending):
            raise _foreign(self.folder, difference, self.weight)
        self._witnesses = np.array(numbers.file.rows, np.int64)
        steps = Steps(
            numbers.algorithm, numbers.base, numbers.number, numbers.eps, numbers.betas,
            array("d", settings.reshape(-1).tolist()),
        )  # fmt: skip
        return steps, pending

    def _lock(self) -> None:
        import fcntl  # of Unix; elsewhere, reading other files must not fail for it

        try:
            fcntl.flock(self.weight.fd.number, (fcntl.LOCK_EX if self.writable else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            self.weight.close()
            raise SettingError(
                f"{self.weight.path} is open already, in this process or in another one"
                + (".\n" if self.writable else " that trains it.\n")
                + "Close it there first: one process trains a table, and no other one reads it meanwhile."
            ) from None
        except OSError as problem:
            self.weight.close()
            raise CheckpointError(
                f"{self.weight.path} cannot be locked: {problem.strerror}.\nPut it on a file system that knows locks."
            ) from None


def flush(tables: Sequence[RowFiles]) -> None:
    """Make all changes of some tables durable, or none: see the module.

    Args:
        tables: that are trained, each once.

    Raises:
        CheckpointError: If the disk is full. Call it again when there is space; nothing is lost.
    """
    for each in tables:
        each.require_whole()
        each.finish()  # what another flush has left
    tables = [each for each in tables if each.steps is not None and each.writable]
    if not tables:
        return
    first, marker = tables[0], None
    if len(tables) == 1:
        first.prepare(first.folder / _STEPS, None, first)
        first.commit(prepared=False)
    else:
        marker = new_marker(first.folder)
        for each in tables:
            each.prepare(each.folder / _PREPARED, marker, first)
        try:
            write_marker(marker, [each.folder for each in tables], [each.steps.number for each in tables if each.steps])
            for each in tables:
                each.commit(prepared=True)
        except BaseException:
            with suppress(OSError):
                marker.unlink()
            if marker.exists():
                for each in tables:
                    each.fail()
            raise
    for each in tables:
        each.finish()
    if marker is not None:
        with own_errors(marker):
            marker.unlink()


def training_folder(path: Path) -> Path:
    """Return the folder beside a table that has its optimizer state.

    Args:
        path: of the table.
    """
    return path.with_name(f"{path.name}.training")


def require_up_to_date(path: Path) -> None:
    """Raise CheckpointError if rows in a file have missed steps of the optimizer, or a flush was interrupted.

    Args:
        path: of a safetensors file; most have no optimizer state beside them.

    Raises:
        CheckpointError: If its rows are not what a lookup returns.
    """
    steps = training_folder(path) / _STEPS
    if not steps.is_file():
        return
    _, settings, pending = read_steps(steps)
    interrupted = len(pending) > 0 or steps.with_name(_PREPARED).exists()
    if len(settings) or interrupted:
        missed = f"rows may have missed some of the last {int(settings[:, 0].sum()):,} steps"
        why = "a flush was interrupted" if interrupted else missed
        raise CheckpointError(
            f"{path} is being trained row by row: {why}.\nBring all rows up to date first, in Python: from "
            "whatwhere.what.file_table import FileTokenEmbedding; FileTokenEmbedding(path).update_all_rows()."
        )


def _foreign(folder: Path, what: str, weight: MatrixFile) -> CheckpointError:
    return CheckpointError(
        f"{folder} {what}: it is not that of {weight.path.name}, where {weight.tensor} has the shape "
        f"{list(weight.shape)} and the type {weight.type}.\nOpen the table that it belongs to, or remove the folder to "
        "train this one from step 0."
    )


def _has_happened(prepared: Path) -> bool:
    marker = read_steps(prepared)[0].marker
    if marker is None:
        raise CheckpointError(f"{prepared} names no marker of a flush.\nRemove it.")

    def header(folder: Path) -> str | None:
        return read_steps(folder / _STEPS)[0].file.header if (folder / _STEPS).exists() else None

    return marker.exists(prepared, header)
