"""Rows of tables in files: fetched for lookups, trained by AdamW or by Adagrad with one number a row, and written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Float32, Integer, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.errors import SettingError
from whatwhere.kernels.adamw_catch_up import StepHistory
from whatwhere.kernels.group_by_row import GroupedSlots, group
from whatwhere.kernels.row_adamw import Moments, Step, catch_up, update
from whatwhere.what.row_adamw.gradient import coalesce, coalesce_hook, with_row_gradient
from whatwhere.what.row_adamw.table import MIN_HISTORY
from whatwhere.what.row_files import RowFiles, Steps

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""The type of rows in the file -> in torch."""


@dataclass
class FetchedRows:
    """Rows of a table in memory, up to date.

    Args:
        rows: their numbers, ascending.
        weight: their values.
        state: what the optimizer stores for them.
    """

    rows: np.ndarray
    weight: Float[Tensor, "rows dim"]
    state: Any


class RowAlgorithm(ABC):
    """The update of rows and the form of their state in the file.

    Args:
        steps: so far, which `step` extends.
        type: of the rows, as safetensors names it.
        dim: features of a row.
    """

    name: str

    def __init__(self, steps: Steps, type: str, dim: int) -> None:
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
    def outdated(self) -> bool:
        """Whether rows may have missed steps."""
        return self.steps.outdated

    def restart(self, eps: float) -> None:
        """Begin anew after the last step, up to which all rows are up to date.

        Args:
            eps: of the steps that follow.
        """
        self.steps.base, self.steps.eps, self.steps.settings = self.steps.number, eps, []


@final
class AdamWByRow(RowAlgorithm):
    """RowAdamW: exp_avg, exp_avg_sq, for 16-bit rows a master, and the step up to which the row is up to date."""

    name = "adamw"

    def __init__(self, steps: Steps, type: str, dim: int) -> None:
        super().__init__(steps, type, dim)
        self._begin()
        for lr, beta1, beta2, weight_decay in steps.settings:
            self._history.record(lr, (beta1, beta2), weight_decay)

    @classmethod
    def columns(cls, type: str, dim: int) -> int:
        """Return how many float32 numbers the state of a row has: two or three times its features, and one."""
        return (2 if type == "F32" else 3) * dim + 1

    def fetched(self, rows: np.ndarray, weight: UInt8[np.ndarray, "rows bytes"], state: np.ndarray) -> FetchedRows:
        """Return rows from their bytes, with the updates that they missed."""
        moments = self._moments(weight, state)
        if self._history.count and len(rows):
            catch_up(moments, self._history, self.steps.eps)
        return FetchedRows(rows, moments.weight, moments)

    def step(self, fetched: FetchedRows, gradient: Float[Tensor, "rows dim"], step: Step) -> None:
        """Update rows by one step of AdamW, and record it for those that miss it."""
        if len(fetched.rows):
            assert not update(fetched.state, torch.arange(len(fetched.rows)), gradient, step)
        self._history.record(step.lr, step.betas, step.weight_decay)
        self.steps.settings.append((step.lr, *step.betas, step.weight_decay))
        self.steps.number = step.number

    def stored(self, fetched: FetchedRows) -> tuple[np.ndarray, np.ndarray]:
        """Return the bytes of rows and of their state."""
        moments: Moments = fetched.state
        parts = [moments.exp_avg, moments.exp_avg_sq, moments.master, moments.last.view(torch.float32)[:, None]]
        state = torch.cat([part for part in parts if part is not None], dim=1)
        return _bytes(moments.weight), _bytes(state)

    def restart(self, eps: float) -> None:
        """Forget the steps that all rows have caught up with."""
        super().restart(eps)
        self._begin()

    def _begin(self) -> None:
        self._history = StepHistory(self.steps.base, self.steps.betas, at_zero=self.steps.eps == 0)

    def _moments(self, weight: np.ndarray, state: np.ndarray) -> Moments:
        numbers = torch.from_numpy(state).view(torch.float32)
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

    def __init__(self, steps: Steps, type: str, dim: int) -> None:
        if type == "F16":
            raise SettingError(
                "Adagrad by row trains rows of float32 or bfloat16, but these are float16, which has no master copy "
                "here.\nConvert the table, or train it with FileRowAdamW."
            )
        super().__init__(steps, type, dim)

    @classmethod
    def columns(cls, type: str, dim: int) -> int:
        """Return how many float32 numbers the state of a row has: one."""
        return 1

    def fetched(self, rows: np.ndarray, weight: UInt8[np.ndarray, "rows bytes"], state: np.ndarray) -> FetchedRows:
        """Return rows from their bytes."""
        numbers: Float32[Tensor, "rows 1"] = torch.from_numpy(state).view(torch.float32)
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
    """Return rows from their bytes.

    Args:
        weight: the bytes.
        dtype: of the rows.
    """
    return torch.from_numpy(weight).view(dtype)


def _bytes(values: Tensor) -> UInt8[np.ndarray, "rows bytes"]:
    return values.contiguous().view(torch.uint8).numpy()


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
Raw = tuple[np.ndarray, np.ndarray | None]

_BLOCK = 1 << 26
"""Bytes of rows and state that are brought up to date before each flush."""
_PREFETCHED = 2


@dataclass
class Prefetched:
    """Rows that a thread reads.

    Args:
        rows: their numbers.
        raw: their bytes, once they are read.
        changes: rows that were written meanwhile, and their bytes.
    """

    rows: np.ndarray
    raw: Future[Raw]
    changes: list[tuple[np.ndarray, Raw]] = field(default_factory=list)


@final
class RowKeeper:
    """The keeper of a FileTokenEmbedding: reads rows for lookups, and writes those that an optimizer has trained.

    Args:
        files: open files.
        weight: the parameter that gets the gradients; it has no values.
    """

    def __init__(self, files: RowFiles, weight: nn.Parameter) -> None:
        self.files, self.weight = files, weight
        self.algorithm: RowAlgorithm | None = None
        if files.steps is not None:
            self.algorithm = self._algorithm(files.steps)
        self._reader = ThreadPoolExecutor(1, "prefetch")
        self._prefetched: list[Prefetched] = []
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
        """Read the rows of some ids in a thread.

        Args:
            ids: valid ones.
        """
        rows = self._grouped(ids).rows.numpy()
        self._prefetched = self._prefetched[1 - _PREFETCHED :]
        self._prefetched.append(Prefetched(rows, self._reader.submit(self.files.read, rows)))

    def require_trainable(self) -> None:
        """Raise SettingError if the table was opened for reading only."""
        if not self.files.writable:
            raise SettingError(
                f"{self.files.weight.path} is open for reading only.\nOpen it without read_only=True to train it."
            )

    def start(self, steps: Steps) -> None:
        """Begin or resume training.

        Args:
            steps: the algorithm and settings; none yet.

        Raises:
            SettingError: If the table is open for reading only, or has the state of another algorithm.
            CheckpointError: If the state cannot be written.
        """
        self.require_trainable()
        if self.files.steps is None:
            kind = ALGORITHMS[steps.algorithm]
            algorithm = self._algorithm(steps)
            self.files.start(steps, kind.columns(self.files.weight.type, self.files.weight.shape[1]))
            self.algorithm = algorithm
        assert self.files.steps is not None
        if self.files.steps.algorithm != steps.algorithm:
            raise SettingError(
                f"{self.files.folder} has the state of {self.files.steps.algorithm}, not of {steps.algorithm}.\n"
                "Train on with the same optimizer; or call update_all_rows() and remove that folder, to start anew."
            )
        self.algorithm = self._algorithm(self.files.steps)

    def step(self, step: Step) -> None:
        """Update the rows that have a gradient.

        Args:
            step: its number and settings.

        Raises:
            SettingError: If the gradient is dense or not finite.
            CheckpointError: If the disk is full.
        """
        gradient = coalesce(self.weight)
        if gradient is None:
            raise SettingError("a table in a file got a dense gradient.\nRead its rows by lookups alone.")
        if gradient.rest is not None and gradient.rest != 0:
            raise SettingError(
                "the gradient was scaled by NaN or infinity, which would make the whole table NaN.\nSkip this step: "
                "see the norm that clip_grad_norm_ returns, or pass it error_if_nonfinite=True."
            )
        algorithm = self._started()
        if algorithm.name == "adamw" and algorithm.steps.eps != step.eps:
            self._restart(step.eps, step.betas)
        rows = gradient._indices()[0].numpy()
        fetched, self._last = self._last, None
        if fetched is None or not np.array_equal(fetched.rows, rows):
            fetched = self._fetch(rows)
        algorithm.step(fetched, gradient._values(), step)
        raw = algorithm.stored(fetched)
        self.files.write(rows, *raw)
        for each in self._prefetched:
            each.changes.append((rows, raw))
        if len(algorithm.steps.settings) >= max(MIN_HISTORY, len(self.weight)):
            self.update_all_rows(lambda done, rows: None)

    def flush(self) -> None:
        """Make all changes durable, or none."""
        for each in self._prefetched:
            each.raw.exception()  # it may read the log, which a flush removes
        self.files.flush()

    def update_all_rows(self, progress: Progress) -> None:
        """Bring all rows up to date, and flush.

        Args:
            progress: called with the number of rows that are up to date, and that of all.

        Raises:
            SettingError: If the table is open for reading only.
            CheckpointError: If the disk is full.
        """
        self.require_trainable()
        if self.algorithm is None or self.files.state is None or not self.algorithm.outdated:
            self.flush()
            return
        count = len(self.weight)
        block = max(1, _BLOCK // (self.files.weight.row_bytes + self.files.state.row_bytes))
        self._last, self._prefetched = None, []
        for begin in range(0, count, block):
            rows = np.arange(begin, min(begin + block, count))
            self.files.write(rows, *self.algorithm.stored(self._fetch(rows)))
            self.flush()
            progress(int(rows[-1]) + 1, count)
        self.algorithm.restart(self.algorithm.steps.eps)
        self.flush()

    def close(self) -> None:
        """Close the files."""
        self._reader.shutdown()
        self._last, self._prefetched = None, []
        self.files.close()

    def _lookup(
        self, weight: Float[Tensor, "vocab_size dim"], ids: Integer[Tensor, "*shape"], padding_idx: int | None
    ) -> Float[Tensor, "*shape dim"]:
        """Look up rows, with a gradient of these rows alone."""
        if weight is not self.weight:  # replaced for one call by torch.func.functional_call
            return F.embedding(ids, weight, padding_idx)
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
        """Return rows up to date, prefetched if they are."""
        weight, state = self._raw(rows)
        if self.algorithm is None or state is None:
            return FetchedRows(rows, rows_of(weight, self.weight.dtype), None)
        return self.algorithm.fetched(rows, weight, state)

    def _raw(self, rows: np.ndarray) -> Raw:
        for n, each in enumerate(self._prefetched):
            if np.array_equal(each.rows, rows):
                del self._prefetched[n]
                return _replaced(each)
        return self.files.read(rows)

    def _restart(self, eps: float, betas: tuple[float, float]) -> None:
        """Bring all rows up to date before steps with another eps."""
        self.update_all_rows(lambda done, rows: None)
        algorithm = self._started()
        algorithm.steps.betas = betas
        algorithm.restart(eps)

    def _started(self) -> RowAlgorithm:
        assert self.algorithm is not None
        return self.algorithm

    def _algorithm(self, steps: Steps) -> RowAlgorithm:
        if steps.algorithm not in ALGORITHMS:
            raise SettingError(
                f"{self.files.folder} has the state of {steps.algorithm}, which is not known.\nUpdate whatwhere."
            )
        return ALGORITHMS[steps.algorithm](steps, self.files.weight.type, self.files.weight.shape[1])


def _replaced(prefetched: Prefetched) -> Raw:
    """Return rows that were read in a thread, with those that were written meanwhile in their place."""
    raw = prefetched.raw.result()
    for rows, changed in prefetched.changes:
        _, own, other = np.intersect1d(prefetched.rows, rows, assume_unique=True, return_indices=True)
        targets: Sequence[np.ndarray | None] = raw
        for target, values in zip(targets, changed, strict=True):
            if target is not None and values is not None:
                target[own] = values[other]
    return raw
