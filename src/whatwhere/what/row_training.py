"""Rows of tables in files: fetched for lookups, trained by AdamW or by Adagrad with one number a row, and written."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Float32, Integer, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.kernels.adamw_catch_up import StepHistory
from whatwhere.kernels.group_by_row import GroupedSlots, group
from whatwhere.kernels.row_adamw import Moments, Step, catch_up, update
from whatwhere.what.row_adamw.gradient import RowGradient, coalesce, with_row_gradient
from whatwhere.what.row_adamw.table import MIN_HISTORY
from whatwhere.what.row_files import RowFiles, Steps, flush_files

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}  # the type of rows in the file -> in torch


@dataclass
class FetchedRows:
    """Rows of a table in memory, up to date: their numbers, ascending, their values, and their optimizer state."""

    rows: np.ndarray
    weight: Float[Tensor, "rows dim"]
    state: Any


@final
class _AdamW:
    """RowAdamW: exp_avg, exp_avg_sq, for 16-bit rows a master, and the step up to which the row is up to date."""

    def __init__(self, steps: Steps, type: str, dim: int, rows: int) -> None:
        self.steps, self._dtype, self._dim, self._limit = steps, TYPES[type], dim, max(MIN_HISTORY, rows)
        # One after another: RowAdamW brings all rows up to date where a history ends, here they follow when read.
        self.histories = [(steps.eps, StepHistory(steps.base, steps.betas, at_zero=steps.eps == 0))]
        for count, lr, beta1, beta2, eps, weight_decay in steps.runs:
            if lr * weight_decay >= 1 or beta1 >= 1 or not 0 < beta2 < 1:
                raise CheckpointError(
                    f"the steps of the table have lr={lr:.6g}, betas=({beta1:.6g}, {beta2:.6g}) and weight_decay="
                    f"{weight_decay:.6g}, which AdamW cannot have had.\nThe file is damaged: take a copy of table and "
                    "folder, or remove the folder to train the table from step 0."
                )
            for _ in range(count):
                self._record(lr, (beta1, beta2), eps, weight_decay)

    @staticmethod
    def columns(type: str, dim: int) -> int:
        return (2 if type == "F32" else 3) * dim + 1

    def fetched(self, rows: np.ndarray, weight: UInt8[np.ndarray, "rows bytes"], state: np.ndarray) -> FetchedRows:
        """Return rows from their bytes, with the updates that they missed; CheckpointError if these are unknown."""
        numbers = _rows_of(state, torch.float32)
        parts = numbers[:, :-1].split(self._dim, dim=1)
        # A row that no step has reached has a master of 0, which is not used where it does not round to the row.
        master = parts[2].contiguous() if len(parts) == 3 else None
        last = numbers[:, -1].contiguous().view(torch.int32)
        moments = Moments(_rows_of(weight, self._dtype), master, parts[0].contiguous(), parts[1].contiguous(), last)
        base, now = self.steps.base, self.steps.number
        wrong = (last < base) | (last > now)
        if wrong.any():
            raise CheckpointError(
                f"row {rows[int(wrong.nonzero()[0])]:,} of the table was last updated at step {int(last[wrong][0]):,}, "
                f"by its state, but steps {base:,} to {now:,} are known.\nThe state is damaged: remove its folder to "
                "train the table from step 0, or take a copy of table and folder."
            )
        for eps, history in self.histories:
            if history.count and len(rows):
                catch_up(moments, history, eps)
        return FetchedRows(rows, moments.weight, moments)

    def step(self, fetched: FetchedRows, gradient: Float[Tensor, "rows dim"], step: Step) -> None:
        """Update rows by one step, and record it for those that miss it."""
        if len(fetched.rows):
            assert not update(fetched.state, torch.arange(len(fetched.rows)), gradient, step)
        self._record(step.lr, step.betas, step.eps, step.weight_decay)
        self.steps.record(step.lr, step.betas, step.eps, step.weight_decay)
        self.steps.number = step.number

    def state_of(self, fetched: FetchedRows) -> Float32[Tensor, "rows columns"]:
        moments: Moments = fetched.state
        parts = [moments.exp_avg, moments.exp_avg_sq, moments.master, moments.last.view(torch.float32)[:, None]]
        return torch.cat([part for part in parts if part is not None], dim=1)

    def restart(self) -> None:
        """Forget the steps that all rows have caught up with."""
        eps, last = self.histories[-1]
        self.steps.base, self.steps.eps, self.steps.betas = self.steps.number, eps, last.betas
        self.steps.runs.clear()
        self.histories = [(eps, StepHistory(self.steps.base, last.betas, at_zero=eps == 0))]

    def _record(self, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        last_eps, last = self.histories[-1]
        if eps != last_eps:
            begun = eps, StepHistory(last.now, betas, at_zero=eps == 0)
            self.histories[len(self.histories) - (not last.count) :] = [begun]
        _, history = self.histories[-1]
        history.record(lr, betas, weight_decay)
        if history.count >= self._limit:
            self.histories.append((eps, StepHistory(history.now, history.betas, at_zero=eps == 0)))


@final
class _Adagrad:
    """Adagrad with one number for each row, G: the sum over steps of the mean of its squared gradient.

    G <- G + mean_j(g_j^2)        p <- p - lr g / (sqrt(G) + eps)
    """

    def __init__(self, steps: Steps, type: str, dim: int, rows: int) -> None:
        if type == "F16":
            raise SettingError(
                "Adagrad by row trains rows of float32 or bfloat16, but these are float16, which has no master copy "
                "here.\nConvert the table, or train it with FileRowAdamW."
            )
        self.steps, self._dtype = steps, TYPES[type]

    @staticmethod
    def columns(type: str, dim: int) -> int:
        return 1

    def fetched(self, rows: np.ndarray, weight: UInt8[np.ndarray, "rows bytes"], state: np.ndarray) -> FetchedRows:
        return FetchedRows(rows, _rows_of(weight, self._dtype), _rows_of(state, torch.float32))

    def step(self, fetched: FetchedRows, gradient: Float[Tensor, "rows dim"], step: Step) -> None:
        """Update rows by one step; bfloat16 is rounded up or down at random, by the seed of the step's number."""
        gradient, steps = gradient.float(), self.steps
        fetched.state += gradient.square().mean(dim=1, keepdim=True)
        change = gradient / (fetched.state.sqrt() + step.eps) * step.lr
        change[gradient == 0] = 0  # 0 / 0 where eps is 0
        values = fetched.weight.float() - change
        if self._dtype == torch.bfloat16:
            # Up or down, with the probabilities that keep the mean: else small updates would be lost.
            generator = torch.Generator().manual_seed(step.number)
            noise = torch.randint(1 << 16, values.shape, generator=generator, dtype=torch.int32)
            rounded = ((values.view(torch.int32) + noise) & -(1 << 16)).view(torch.float32)
            values = torch.where(values.isfinite(), rounded, values)
        fetched.weight = values.to(self._dtype)
        steps.number, steps.base, steps.eps = step.number, step.number, step.eps

    def state_of(self, fetched: FetchedRows) -> Float32[Tensor, "rows columns"]:
        state: Tensor = fetched.state
        return state


ADAMW, ADAGRAD = "adamw", "adagrad-by-row"
_ALGORITHMS: dict[str, type[_AdamW] | type[_Adagrad]] = {ADAMW: _AdamW, ADAGRAD: _Adagrad}  # by the name that is stored


def _rows_of(weight: UInt8[np.ndarray, "rows bytes"], dtype: torch.dtype) -> Float[Tensor, "rows dim"]:
    # By way of one dimension: rows of no bytes, and none at all, have no other type.
    return torch.from_numpy(weight.reshape(-1)).view(dtype).view(len(weight), weight.shape[1] // dtype.itemsize)


def _bytes(values: Tensor) -> UInt8[np.ndarray, "rows bytes"]:
    return values.reshape(-1).view(torch.uint8).numpy().reshape(len(values), values.shape[1] * values.itemsize)


def _accumulated(weight: Tensor) -> None:
    coalesce(weight)  # now: it must be, when it is clipped


Progress = Callable[[int, int], Any]

_BLOCK = 1 << 26  # bytes of rows and state that are brought up to date before each flush


@final
class RowKeeper:
    """The keeper of a FileTokenEmbedding: reads rows for lookups, and writes those that an optimizer has trained.

    `weight` is the parameter that gets the gradients; it has no values.
    """

    def __init__(self, files: RowFiles, weight: nn.Parameter) -> None:
        self.files, self.weight = files, weight
        self.algorithm: _AdamW | _Adagrad | None = None
        if files.steps is not None:
            self.algorithm = self._algorithm(files.steps)
        self._reader = ThreadPoolExecutor(1, "prefetch")
        self._last: FetchedRows | None = None
        if weight.requires_grad:
            weight.register_post_accumulate_grad_hook(_accumulated)
        # It cannot be traced: torch.compile breaks its graph here and continues after the lookup.
        self.lookup: Callable[[Tensor, Tensor, int | None], Tensor] = torch.compiler.disable(self._lookup)

    @property
    def number(self) -> int:
        """The number of the last step."""
        return 0 if self.files.steps is None else self.files.steps.number

    @property
    def is_long(self) -> bool:
        """Whether all rows should be brought up to date with the next flush: RowAdamW would have done so before."""
        return self.files.writable and isinstance(self.algorithm, _AdamW) and len(self.algorithm.histories) > 1

    def before_readout(self) -> None:
        """Raise SettingError: a product with all rows reads the whole file."""
        raise SettingError(
            f"{self.files.weight.path} is a table in a file, whose rows are not multiplied with vectors.\n"
            "Use an output projection of its own, or a TokenEmbedding."
        )

    def prefetch(self, ids: Integer[Tensor, "*shape"]) -> None:
        """Read the rows of some valid ids into the cache of the operating system, in a thread."""
        self.files.require_whole()
        self._reader.submit(self.files.read_ahead, self._grouped(ids).rows.numpy())

    def require_trainable(self) -> None:
        """Raise SettingError if the table was opened for reading only."""
        if not self.files.writable:
            raise SettingError(
                f"{self.files.weight.path} is open for reading only.\nOpen it without read_only=True to train it."
            )

    def start(self, steps: Steps) -> None:
        """Begin or resume training, with the algorithm and settings of steps, of which none is done yet."""
        self.require_trainable()
        if self.files.steps is None:
            self._algorithm(steps)  # refuses before anything is written
            columns = _ALGORITHMS[steps.algorithm].columns(self.files.weight.type, self.files.weight.shape[1])
            self.files.start(steps, columns)
        assert self.files.steps is not None
        if self.files.steps.algorithm != steps.algorithm:
            raise SettingError(
                f"{self.files.folder} has the state of {self.files.steps.algorithm}, not of {steps.algorithm}.\n"
                "Train on with the same optimizer; or call update_all_rows() and remove that folder, to start anew."
            )
        self.algorithm = self._algorithm(self.files.steps)

    def checked_gradient(self) -> RowGradient:
        """Return the gradient, after all that can be refused before a step changes anything."""
        self.files.require_whole()
        gradient = coalesce(self.weight)
        if gradient is None:
            raise SettingError("a table in a file got a dense gradient.\nRead its rows by lookups alone.")
        gradient.require_finite()
        return gradient

    def step(self, gradient: RowGradient, step: Step) -> None:
        """Update the rows that have a gradient; where this fails, `fail` of the files must be called."""
        algorithm = self.algorithm
        assert algorithm is not None
        rows = gradient._indices()[0].numpy()
        fetched, self._last = self._last, None
        if fetched is None or not np.array_equal(fetched.rows, rows):
            fetched = self._fetch(rows)
        algorithm.step(fetched, gradient._values(), step)
        self._write(fetched)

    def update_all_rows(self, progress: Progress) -> None:
        """Bring all rows up to date, and flush; `progress` gets the number of rows that are, and that of all."""
        self.require_trainable()
        self.files.require_whole()
        if not isinstance(self.algorithm, _AdamW) or self.files.state is None or not self.algorithm.steps.runs:
            flush_files([self.files])
            return
        count = len(self.weight)
        block = max(1, _BLOCK // (self.files.weight.row_bytes + self.files.state.row_bytes))
        self._last = None
        for begin in range(0, count, block):
            rows = np.arange(begin, min(begin + block, count))
            self._write(self._fetch(rows))
            flush_files([self.files])
            progress(int(rows[-1]) + 1, count)
        self.algorithm.restart()
        flush_files([self.files])

    def close(self) -> None:
        """Close the files."""
        self._reader.shutdown()
        self._last = None
        self.files.close()

    def _lookup(
        self, weight: Float[Tensor, "vocab_size dim"], ids: Integer[Tensor, "*shape"], padding_idx: int | None
    ) -> Float[Tensor, "*shape dim"]:
        if weight is not self.weight:  # replaced for one call by torch.func.functional_call
            return F.embedding(ids, weight, padding_idx)
        self.files.require_whole()
        slots = self._grouped(ids)
        starts = slots.starts
        assert starts is not None  # they are grouped on the CPU
        fetched = self._fetch(slots.rows.numpy())

        def read() -> Tensor:
            which = torch.empty(ids.numel(), dtype=torch.int64)
            which[slots.order] = torch.arange(len(slots.rows)).repeat_interleave(starts.diff())
            return F.embedding(which.view(ids.shape), fetched.weight)

        if not (torch.is_grad_enabled() and weight.requires_grad):
            return read().to(ids.device)
        self._last = fetched
        return with_row_gradient(weight, read, slots, padding_idx).to(ids.device)

    def _grouped(self, ids: Tensor) -> GroupedSlots:
        slots = group(ids.reshape(-1).long().cpu(), len(self.weight))
        assert slots is not None  # the module has checked them
        return slots

    def _fetch(self, rows: np.ndarray) -> FetchedRows:
        weight, state = self.files.read(rows)
        if self.algorithm is None or state is None:
            return FetchedRows(rows, _rows_of(weight, self.weight.dtype), None)
        return self.algorithm.fetched(rows, weight, state)

    def _write(self, fetched: FetchedRows) -> None:
        assert self.algorithm is not None
        self.files.write(fetched.rows, _bytes(fetched.weight), _bytes(self.algorithm.state_of(fetched)))

    def _algorithm(self, steps: Steps) -> _AdamW | _Adagrad:
        weight = self.files.weight
        if steps.algorithm not in _ALGORITHMS:
            raise SettingError(
                f"{self.files.folder} has the state of {steps.algorithm}, which is not known.\nUpdate whatwhere."
            )
        kind, (type, dim), state = _ALGORITHMS[steps.algorithm], (weight.type, weight.shape[1]), self.files.state
        if state is not None and (state.type, state.shape[1]) != ("F32", kind.columns(type, dim)):
            raise CheckpointError(
                f"{self.files.folder} has {state.shape[1]} numbers of type {state.type} for each row, but "
                f"{steps.algorithm} keeps {kind.columns(type, dim)} of type F32.\nRemove it to train the table from "
                "step 0."
            )
        return kind(steps, type, dim, len(self.weight))
