"""Rows of tables in files: fetched for lookups, trained by an algorithm, and written."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.kernels.group_by_row import GroupedSlots, group
from whatwhere.kernels.row_adamw import Step
from whatwhere.what.row_adamw.gradient import RowGradient, coalesce, coalesce_hook, with_row_gradient
from whatwhere.what.row_algorithms import ALGORITHMS, FetchedRows, RowAlgorithm, rows_of
from whatwhere.what.row_files import RowFiles, Steps, flush_files, take_back_unfinished

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
        if gradient.rest is not None and gradient.rest != 0:
            raise SettingError(
                "the gradient was scaled by NaN or infinity, which would make the whole table NaN.\nSkip this step: "
                "see the norm that clip_grad_norm_ returns, or pass it error_if_nonfinite=True."
            )
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
