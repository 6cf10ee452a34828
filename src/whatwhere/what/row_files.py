"""The rows of a table and their optimizer state in files: changed in a log, flushed whole or not at all.

A changed row goes to the log, a file beside the table, and is read from there until the next flush. A flush waits until
the log is on the disk, then writes the numbers of its rows to steps.safetensors, which appears whole or not at all:
from then on the flush has happened. The rows are copied from the log into the table and its state; if that is
interrupted, it is repeated when the files are opened. So each changed row is written twice for each flush, and what was
written since the last flush is given up after a kill.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from whatwhere.atomic import write_atomic
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.records import CHECKSUM, Schema
from whatwhere.what.matrix_file import (
    MatrixFile,
    OpenFile,
    own_errors,
    read_records,
    write_matrix,
    write_records,
)

_BLOCK = 1 << 12
"""Rows that are copied from the log at once."""


@dataclass
class Steps:
    """The steps of an optimizer, as they are stored beside the table.

    Args:
        algorithm: of the optimizer.
        base: the step up to which every row is up to date.
        number: of the last step.
        eps: a setting; a change of it brings all rows up to date.
        betas: at the base.
        settings: of each step after the base: lr, beta1, beta2, weight_decay.
    """

    algorithm: str
    base: int = 0
    number: int = 0
    eps: float = 0.0
    betas: tuple[float, float] = (0.0, 0.0)
    settings: list[tuple[float, float, float, float]] = field(default_factory=list)

    @property
    def outdated(self) -> bool:
        """Whether rows may have missed steps."""
        return bool(self.settings)


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
        self._slots: dict[int, int] = {}
        self._log: OpenFile | None = None
        self._committed = False
        if (self.folder / _STEPS).exists():
            self._open_state()

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
        self._write_steps(np.empty(0, np.int64))
        self._open_state()

    def read(self, rows: Int64[np.ndarray, " rows"]) -> tuple[UInt8[np.ndarray, "rows bytes"], np.ndarray | None]:
        """Read rows, each at its last change, and their state; None before there is any.

        Args:
            rows: ascending, each once.

        Raises:
            CheckpointError: If a file has become shorter, or cannot be read.
        """
        slots = np.fromiter(map(self._slot, rows.tolist()), np.int64, len(rows))
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
        self._finish()
        slots = np.fromiter(map(self._slot, rows.tolist()), np.int64, len(rows))
        new = slots < 0
        slots[new] = np.arange(len(self._slots), len(self._slots) + int(new.sum()))
        if self._log is None:
            self._log = OpenFile(self.folder / _LOG, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        write_records(self.folder / _LOG, self._log, 0, slots, np.concatenate([weight, state], axis=1))
        self._slots.update(zip(rows[new].tolist(), slots[new].tolist(), strict=True))

    def flush(self) -> None:
        """Make all changes durable, or none: see the module.

        Raises:
            CheckpointError: If the disk is full. Call it again when there is space; nothing is lost.
        """
        if self.steps is None or not self.writable:
            return
        if not self._committed:
            if self._log is not None:
                with own_errors(self.folder / _LOG):
                    os.fsync(self._log.number)
            self._write_steps(np.fromiter(self._slots, np.int64, len(self._slots)))  # in the order of their slots
            self._committed = True
        self._finish()

    def close(self) -> None:
        """Close the files; what was not flushed is given up."""
        for each in (self.weight, self.state):
            if each is not None:
                each.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _slot(self, row: int) -> int:
        return self._slots.get(row, -1)

    def _read_log(self, slots: Int64[np.ndarray, " rows"]) -> UInt8[np.ndarray, "rows bytes"]:
        assert self._log is not None
        assert self.state is not None
        return read_records(self.folder / _LOG, self._log, 0, self.weight.row_bytes + self.state.row_bytes, slots)

    def _finish(self) -> None:
        """Copy the rows of a flush from the log to the table, and forget the log."""
        if not self._committed:
            return
        assert self.state is not None
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
            self._write_steps(np.empty(0, np.int64))
        self._committed = False
        self._slots = {}
        self._remove_log()

    def _remove_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        with suppress(FileNotFoundError), own_errors(self.folder / _LOG):
            (self.folder / _LOG).unlink(missing_ok=True)

    def _write_steps(self, pending: Int64[np.ndarray, " rows"]) -> None:
        """Write the steps, and the rows that are to be copied from the log, atomically."""
        steps = self.steps
        assert steps is not None
        numbers = {name: getattr(steps, name) for name in ("algorithm", "base", "number", "eps", "betas")}
        about = {"tensor": self.weight.tensor, "shape": self.weight.shape, "type": self.weight.type}
        settings = np.array(steps.settings, np.float64).reshape(-1, 4)
        stated = _SCHEMA.sealed({**numbers, **about, "arrays": _digest(settings, pending)})
        text = np.frombuffer(json.dumps(stated).encode(), np.uint8)
        from safetensors.numpy import save

        content = save({"steps": text, "settings": settings, "pending": pending})
        with own_errors(self.folder / _STEPS):
            write_atomic(self.folder / _STEPS, content, follow=False)

    def _open_state(self) -> None:
        self.steps, pending = self._read_steps()
        self.state = MatrixFile(self.folder / _STATE, "state", writable=self.writable)
        if self.state.shape[0] != self.weight.shape[0]:
            raise _foreign(self.folder, f"has the state of {self.state.shape[0]:,} rows", self.weight)
        if len(pending) and not self.writable:
            raise CheckpointError(
                f"{self.weight.path} is in the middle of a flush that was interrupted.\n"
                "Open it once without read_only=True, which completes it."
            )
        if not self.writable:
            return
        if len(pending):
            self._log = OpenFile(self.folder / _LOG, os.O_RDWR)
            self._slots = {row: slot for slot, row in enumerate(pending.tolist())}
            self._committed = True
            self._finish()
        self._remove_log()  # changes that were never flushed

    def _read_steps(self) -> tuple[Steps, Int64[np.ndarray, " rows"]]:
        numbers, settings, pending = _steps_file(self.folder / _STEPS)
        for name, own in (
            ("tensor", self.weight.tensor),
            ("shape", list(self.weight.shape)),
            ("type", self.weight.type),
        ):
            if numbers[name] != own:
                raise _foreign(self.folder, f"belongs to a table with {name} {numbers[name]}", self.weight)
        steps = Steps(
            numbers["algorithm"], numbers["base"], numbers["number"], numbers["eps"], tuple(numbers["betas"]),
            [tuple(row) for row in settings.tolist()],
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
    _, settings, pending = _steps_file(steps)
    if len(settings) or len(pending):
        why = (
            "a flush was interrupted"
            if len(pending)
            else f"rows may have missed some of the last {len(settings):,} steps"
        )
        raise CheckpointError(
            f"{path} is being trained row by row: {why}.\nBring all rows up to date first, in Python: from "
            "whatwhere.what.file_table import FileTokenEmbedding; FileTokenEmbedding(path).update_all_rows()."
        )


_SCHEMA = Schema("whatwhere-steps", 2, "Remove its folder to train the table from step 0.", unchecked={1})
_STATE, _STEPS, _LOG = "state.safetensors", "steps.safetensors", "changes.log"


def _steps_file(path: Path) -> tuple[dict, Float64[np.ndarray, "steps settings"], Int64[np.ndarray, " rows"]]:
    with own_errors(path):
        content = path.read_bytes()
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
        numbers = json.loads(tensors["steps"].tobytes())
        settings, pending = tensors["settings"], tensors["pending"]
        earlier = {} if CHECKSUM in numbers else {"format": _SCHEMA.format, "version": 1}
        numbers = _SCHEMA.opened({**earlier, **numbers}, str(path), CheckpointError)
        if not earlier and numbers["arrays"] != _digest(settings, pending):
            raise CheckpointError(f"{path} is damaged: its settings or rows are others.\n{_SCHEMA.way_out}")
        return numbers, settings, pending
    except CheckpointError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError) as problem:
        raise CheckpointError(f"{path} has no steps of an optimizer: {problem}.\n{_SCHEMA.way_out}") from None


def _digest(*arrays: np.ndarray) -> str:
    return sha256(b"".join(f"{each.dtype.str} {each.shape}".encode() + each.tobytes() for each in arrays)).hexdigest()


def _foreign(folder: Path, what: str, weight: MatrixFile) -> CheckpointError:
    return CheckpointError(
        f"{folder} {what}, but the table is {weight.tensor} of shape {list(weight.shape)} and type {weight.type}.\n"
        "Open the table that it belongs to, or remove the folder to train this one from step 0."
    )
