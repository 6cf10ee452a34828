"""Rows of tables in files: fetched for lookups, trained by AdamW or by Adagrad with one number a row, and written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from whatwhere.what.row_adamw.gradient import RowGradient, coalesce, coalesce_hook, with_row_gradient
from whatwhere.what.row_adamw.table import MIN_HISTORY
from whatwhere.what.row_files import RowFiles, Steps, flush_files, take_back_unfinished

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""The type of rows in the file -> in torch."""


@dataclass
class FetchedRows:
    """Rows of a table in memory, up to date: their numbers, ascending, their values, and their optimizer state."""

    rows: np.ndarray
    weight: Float[Tensor, "rows dim"]
    state: Any


class RowAlgorithm(ABC):
    """The update of rows and the form of their state in the file; `step` extends the steps so far."""

    name: str

    def __init__(self, steps: Steps, type: str, dim: int, rows: int) -> None:
        self.steps, self.dtype, self.dim = steps, TYPES[type], dim

    @classmethod
    @abstractmethod
    def columns(cls, type: str, dim: int) -> int:
        """Return how many float32 numbers the state of a row has."""

    @abstractmethod
    def fetched(self, rows: np.ndarray, weight: UInt8[np.ndarray, "rows bytes"], state: np.ndarray) -> FetchedRows:
        """Return rows from their bytes, brought up to date."""

    @abstractmethod
    def step(self, fetched: FetchedRows, gradient: Float[Tensor, "rows dim"], step: Step) -> None:
        """Update rows by one step, and record it."""

    @abstractmethod
    def stored(self, fetched: FetchedRows) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of rows and of their state."""

    @property
    def is_long(self) -> bool:
        """Whether all rows should be brought up to date with the next flush."""
        return False

    def restart(self) -> None:  # noqa: B027 - where rows miss no steps, there is nothing to forget
        """Begin anew after the last step, up to which all rows are up to date."""


@final
class AdamWByRow(RowAlgorithm):
    """RowAdamW: exp_avg, exp_avg_sq, for 16-bit rows a master, and the step up to which the row is up to date."""

    name = "adamw"

    def __init__(self, steps: Steps, type: str, dim: int, rows: int) -> None:
        super().__init__(steps, type, dim, rows)
        self._limit = max(MIN_HISTORY, rows)
        # One after another: RowAdamW brings all rows up to date where a history ends, here they follow when read.
        self._histories = [(steps.eps, _history(steps.base, steps.betas, steps.eps))]
        for count, lr, beta1, beta2, eps, weight_decay in steps.runs.tolist():
            for _ in range(int(count)):
                self._record(lr, (beta1, beta2), eps, weight_decay)

    @classmethod
    def columns(cls, type: str, dim: int) -> int:
        """Return how many float32 numbers the state of a row has: two or three times its features, and one."""
        return (2 if type == "F32" else 3) * dim + 1

    def fetched(self, rows: np.ndarray, weight: UInt8[np.ndarray, "rows bytes"], state: np.ndarray) -> FetchedRows:
        """Return rows from their bytes, with the updates that they missed; CheckpointError if these are unknown."""
        moments = self._moments(weight, state)
        base, now = self.steps.base, self.steps.number
        wrong = (moments.last < base) | (moments.last > now)
        if wrong.any():
            raise CheckpointError(
                f"row {rows[int(wrong.nonzero()[0])]:,} of the table was last updated at step "
                f"{int(moments.last[wrong][0]):,}, by its state, but steps {base:,} to {now:,} "
                "are known.\nThe state is damaged: remove its folder to train the table from "
                "step 0, or take a copy of table and folder."
            )
        for eps, history in self._histories:
            if history.count and len(rows):
                catch_up(moments, history, eps)
        return FetchedRows(rows, moments.weight, moments)

    def step(self, fetched: FetchedRows, gradient: Float[Tensor, "rows dim"], step: Step) -> None:
        """Update rows by one step of AdamW, and record it for those that miss it."""
        if len(fetched.rows):
            assert not update(fetched.state, torch.arange(len(fetched.rows)), gradient, step)
        self._record(step.lr, step.betas, step.eps, step.weight_decay)
        self.steps.record(step.lr, step.betas, step.eps, step.weight_decay)
        self.steps.number = step.number

    def stored(self, fetched: FetchedRows) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of rows and of their state."""
        moments: Moments = fetched.state
        parts = [moments.exp_avg, moments.exp_avg_sq, moments.master, moments.last.view(torch.float32)[:, None]]
        state = torch.cat([part for part in parts if part is not None], dim=1)
        return _bytes(moments.weight), _bytes(state)

    @property
    def is_long(self) -> bool:
        """Whether all rows should be brought up to date with the next flush: RowAdamW would have done so before."""
        return len(self._histories) > 1

    def restart(self) -> None:
        """Forget the steps that all rows have caught up with."""
        eps, last = self._histories[-1]
        self.steps.base, self.steps.eps, self.steps.betas = self.steps.number, eps, last.betas
        del self.steps.settings[:]
        self._histories = [(eps, _history(self.steps.base, last.betas, eps))]

    def _record(self, lr: float, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
        last_eps, last = self._histories[-1]
        if eps != last_eps:
            self._histories[len(self._histories) - (not last.count) :] = [(eps, _history(last.now, betas, eps))]
        _, history = self._histories[-1]
        history.record(lr, betas, weight_decay)
        if history.count >= self._limit:
            self._histories.append((eps, _history(history.now, history.betas, eps)))

    def _moments(self, weight: np.ndarray, state: np.ndarray) -> Moments:
        numbers = rows_of(state, torch.float32)
        parts = numbers[:, :-1].split(self.dim, dim=1)
        # A row that no step has reached has a master of 0, which is not used where it does not round to the row.
        master = parts[2].contiguous() if len(parts) == 3 else None
        last = numbers[:, -1].contiguous().view(torch.int32)
        return Moments(rows_of(weight, self.dtype), master, parts[0].contiguous(), parts[1].contiguous(), last)


@final
class AdagradByRow(RowAlgorithm):
    """Adagrad with one number for each row, G: the sum over steps of the mean of its squared gradient.

    G <- G + mean_j(g_j^2)        p <- p - lr g / (sqrt(G) + eps)
    """

    name = "adagrad-by-row"

    def __init__(self, steps: Steps, type: str, dim: int, rows: int) -> None:
        if type == "F16":
            raise SettingError(
                "Adagrad by row trains rows of float32 or bfloat16, but these are float16, which has no master copy "
                "here.\nConvert the table, or train it with FileRowAdamW."
            )
        super().__init__(steps, type, dim, rows)

    @classmethod
    def columns(cls, type: str, dim: int) -> int:
        """Return how many float32 numbers the state of a row has: one."""
        return 1

    def fetched(self, rows: np.ndarray, weight: UInt8[np.ndarray, "rows bytes"], state: np.ndarray) -> FetchedRows:
        """Return rows from their bytes."""
        numbers: Float32[Tensor, "rows 1"] = rows_of(state, torch.float32)
        return FetchedRows(rows, rows_of(weight, self.dtype), numbers)

    def step(self, fetched: FetchedRows, gradient: Float[Tensor, "rows dim"], step: Step) -> None:
        """Update rows by one step; bfloat16 is rounded up or down at random, by the seed of the step's number."""
        gradient, steps = gradient.float(), self.steps
        fetched.state += gradient.square().mean(dim=1, keepdim=True)
        change = gradient / (fetched.state.sqrt() + step.eps) * step.lr
        change[gradient == 0] = 0  # 0 / 0 where eps is 0
        values = fetched.weight.float() - change
        if self.dtype == torch.bfloat16:
            values = _rounded_at_random(values, torch.Generator().manual_seed(step.number))
        fetched.weight = values.to(self.dtype)
        steps.number, steps.base, steps.eps = step.number, step.number, step.eps

    def stored(self, fetched: FetchedRows) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of rows and of their number."""
        return _bytes(fetched.weight), _bytes(fetched.state)


ALGORITHMS: dict[str, type[RowAlgorithm]] = {each.name: each for each in (AdamWByRow, AdagradByRow)}
"""By the name that is stored."""


def rows_of(weight: UInt8[np.ndarray, "rows bytes"], dtype: torch.dtype) -> Float[Tensor, "rows dim"]:
    """Return rows from their bytes."""
    # By way of one dimension: rows of no bytes, and none at all, have no other type.
    return torch.from_numpy(weight.reshape(-1)).view(dtype).view(len(weight), weight.shape[1] // dtype.itemsize)


def _bytes(values: Tensor) -> UInt8[np.ndarray, "rows bytes"]:
    return values.reshape(-1).view(torch.uint8).numpy().reshape(len(values), values.shape[1] * values.itemsize)


def _history(base: int, betas: tuple[float, float], eps: float) -> StepHistory:
    return StepHistory(base, betas, at_zero=eps == 0)


def _rounded_at_random(values: Float32[Tensor, "rows dim"], generator: torch.Generator) -> Float32[Tensor, "rows dim"]:
    """Round to bfloat16 up or down, with the probabilities that keep the mean: else small updates would be lost.

    Examples:
        >>> values = torch.full((1, 10_000), 1 + 2**-9)  # a quarter of the way from 1 to the next number
        >>> rounded = _rounded_at_random(values, torch.Generator().manual_seed(0))
        >>> sorted(set(rounded[0].tolist())), round(float((rounded > 1).float().mean()), 1)
        ([1.0, 1.0078125], 0.2)
    """
    noise = torch.randint(1 << 16, values.shape, generator=generator, dtype=torch.int32)
    rounded = ((values.view(torch.int32) + noise) & -(1 << 16)).view(torch.float32)
    return torch.where(values.isfinite(), rounded, values)


Progress = Callable[[int, int], Any]

_BLOCK = 1 << 26
"""Bytes of rows and state that are brought up to date before each flush."""


@final
class RowKeeper:
    """The keeper of a FileTokenEmbedding: reads rows for lookups, and writes those that an optimizer has trained.

    `weight` is the parameter that gets the gradients; it has no values.
    """

    def __init__(self, files: RowFiles, weight: nn.Parameter) -> None:
        self.files, self.weight = files, weight
        self.algorithm: RowAlgorithm | None = None
        if files.steps is not None:
            self.algorithm = self._algorithm(files.steps)
        self._reader = ThreadPoolExecutor(1, "prefetch")
        self._last: FetchedRows | None = None
        if weight.requires_grad:
            weight.register_post_accumulate_grad_hook(coalesce_hook)
        # It cannot be traced: torch.compile breaks its graph here and continues after the lookup.
        self.lookup: Callable[[Tensor, Tensor, int | None], Tensor] = torch.compiler.disable(self._lookup)

    @property
    def number(self) -> int:
        """The number of the last step."""
        return 0 if self.files.steps is None else self.files.steps.number

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
        """Begin or resume training, with the algorithm and settings of steps, of which none is done yet.

        Raises:
            SettingError: If the table is open for reading only, or has the state of another algorithm.
            CheckpointError: If the state cannot be written.
        """
        self.require_trainable()
        if self.files.steps is None:
            self._algorithm(steps)  # refuses before anything is written
            columns = ALGORITHMS[steps.algorithm].columns(self.files.weight.type, self.files.weight.shape[1])
            self.files.start(steps, columns)
        assert self.files.steps is not None
        if self.files.steps.algorithm != steps.algorithm:
            raise SettingError(
                f"{self.files.folder} has the state of {self.files.steps.algorithm}, not of {steps.algorithm}.\n"
                "Train on with the same optimizer; or call update_all_rows() and remove that folder, to start anew."
            )
        self.algorithm = self._algorithm(self.files.steps)

    def checked_gradient(self) -> RowGradient:
        """Return the gradient, after all that can be refused before a step changes anything.

        Raises:
            SettingError: If the gradient is dense or not finite.
            CheckpointError: If an earlier step failed.
        """
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
        self.files.write(rows, *algorithm.stored(fetched))

    def update_all_rows(self, progress: Progress) -> None:
        """Bring all rows up to date, and flush; `progress` gets the number of rows that are, and that of all."""
        self.require_trainable()
        self.files.require_whole()
        if self.algorithm is None or self.files.state is None or not self.algorithm.steps.settings:
            flush_files([self.files])
            return
        count = len(self.weight)
        block = max(1, _BLOCK // (self.files.weight.row_bytes + self.files.state.row_bytes))
        self._last = None
        for begin in range(0, count, block):
            rows = np.arange(begin, min(begin + block, count))
            self.files.write(rows, *self.algorithm.stored(self._fetch(rows)))
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
        """Look up rows, with a gradient of these rows alone."""
        if weight is not self.weight:  # replaced for one call by torch.func.functional_call
            return F.embedding(ids, weight, padding_idx)
        self.files.require_whole()
        slots = self._grouped(ids)
        fetched = self._fetch(slots.rows.numpy())

        def read() -> Tensor:
            which = torch.empty(ids.numel(), dtype=torch.int64)
            which[slots.order] = torch.arange(len(slots.rows)).repeat_interleave(slots.starts.diff())
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
        """Return rows up to date."""
        weight, state = self.files.read(rows)
        if self.algorithm is None or state is None:
            return FetchedRows(rows, rows_of(weight, self.weight.dtype), None)
        return self.algorithm.fetched(rows, weight, state)

    def _algorithm(self, steps: Steps) -> RowAlgorithm:
        weight = self.files.weight
        if steps.algorithm not in ALGORITHMS:
            raise SettingError(
                f"{self.files.folder} has the state of {steps.algorithm}, which is not known.\nUpdate whatwhere."
            )
        kind, (type, dim), state = ALGORITHMS[steps.algorithm], (weight.type, weight.shape[1]), self.files.state
        if state is not None and (state.type, state.shape[1]) != ("F32", kind.columns(type, dim)):
            raise CheckpointError(
                f"{self.files.folder} has {state.shape[1]} numbers of type {state.type} for each row, but "
                f"{steps.algorithm} keeps {kind.columns(type, dim)} of type F32.\nRemove it to train the table from "
                "step 0."
            )
        return kind(steps, type, dim, len(self.weight))


def start_together(keepers: Sequence[RowKeeper], others: Sequence[RowKeeper], steps: Steps) -> None:
    """Begin or resume the training of tables beside others: where a kill has left them at two flushes, at the first.

    Raises:
        SettingError, CheckpointError: As `RowKeeper.start` raises them.
    """
    for each in keepers:
        each.start(steps)
    both = [*keepers, *others]
    for files in take_back_unfinished([each.files for each in both]):
        next(each for each in both if each.files is files).start(steps)


def flush_together(keepers: Sequence[RowKeeper]) -> None:
    """Make all changes of some tables durable, or none; bring all rows up to date where too many steps are missed.

    Raises:
        CheckpointError: If the disk is full. Call it again when there is space; nothing is lost.
    """
    flush_files([each.files for each in keepers])
    for each in keepers:
        if each.files.writable and each.algorithm is not None and each.algorithm.is_long:
            each.update_all_rows(lambda done, rows: None)
