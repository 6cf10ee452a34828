"""Token tables in files, larger than memory: only the rows of a batch are read, trained and written."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor

from whatwhere.checks import require_choice
from whatwhere.errors import CheckpointError, SettingError
from whatwhere.initialization import row_blocks, sample_rows
from whatwhere.kernels.row_adamw import Step
from whatwhere.tensor_checks import require_ids
from whatwhere.what.embedding import Init, Scale, TokenEmbedding
from whatwhere.what.matrix_file import write_matrix
from whatwhere.what.row_adamw.optimizer import RowOptimizer, Settings
from whatwhere.what.row_files import RowFiles, Steps, flush_files, take_back_unfinished, training_folder
from whatwhere.what.row_training import ADAGRAD, ADAMW, TYPES, Progress, RowKeeper

_CODES = {dtype: code for code, dtype in TYPES.items()}


@final
class FileTokenEmbedding(TokenEmbedding):
    """A TokenEmbedding whose rows are in a safetensors file: only those of a batch are read, so it can exceed memory.

    It takes the place of a TokenEmbedding: `layer.tokens = FileTokenEmbedding(path)`, and likewise `table` of
    HashedNGramEmbedding and `tokens` of PerLayerEmbedding. `weight` has the shape of the table, but no memory, and
    reads as NaN: rows are read by lookups, on the CPU, and moved to the device of the ids. FileRowAdamW or
    FileRowAdagrad train it, with their state in the folder PATH.training; gradients are those of the rows of the batch.

    Changes become durable with `flush()` of the optimizer, all or none; after a kill the files are as at the last one.
    A file is open for training once, and is not read by others meanwhile; for reading only, any number of times.

    Args:
        path: of the file, see `create`. Or that of a model: training changes its table in place.
        tensor: the name of the table in the file; None is its only matrix.
        padding_idx, scale: as in TokenEmbedding; the padding row is expected to be zero.
        read_only: no gradient and no change; any number of processes can open it so.

    Raises:
        CheckpointError: If a file is missing, damaged or truncated, cannot be written, or its state does not fit.
        SettingError: If another process has the table open, or an option is unknown.
        TokenError: If the file has no such tensor, or padding_idx is not a row.

    Examples:
        >>> from tempfile import mkdtemp
        >>> from whatwhere.what.file_table import FileRowAdamW
        >>> path = Path(mkdtemp()) / "tokens.safetensors"
        >>> FileTokenEmbedding.create(path, 1000, 8, generator=torch.Generator().manual_seed(0))
        >>> table = FileTokenEmbedding(path)
        >>> optimizer = FileRowAdamW(table, lr=0.1)
        >>> for ids in (torch.tensor([3, 5]), torch.tensor([7])):
        ...     table(ids).square().sum().backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        >>> optimizer.flush()  # the rows are in the file now
    """

    def __init__(
        self,
        path: str | Path,
        tensor: str | None = None,
        *,
        padding_idx: int | None = None,
        scale: float | Scale | None = None,
        read_only: bool = False,
    ) -> None:
        files = RowFiles(path, tensor, writable=not read_only)
        rows, dim = files.weight.shape
        nowhere = torch.full((), torch.nan, dtype=TYPES[files.weight.type]).expand(rows, dim)
        super().__init__(rows, dim, padding_idx, _weight=nowhere, scale=scale)
        self.weight.requires_grad_(not read_only)
        self.path = files.weight.path
        self.rows_in_file = RowKeeper(files, self.get_parameter("weight"))
        self.keeper = self.rows_in_file

    @classmethod
    def create(
        cls,
        path: str | Path,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        init: Init | float = "normal",
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
        progress: Progress = lambda done, rows: None,
    ) -> None:
        """Write a new file with sampled rows, by blocks: with the same generator, those that TokenEmbedding samples.

        Args:
            num_embeddings, embedding_dim, padding_idx, init: as in TokenEmbedding.
            dtype: float32, bfloat16 or float16.
            generator: on the CPU; None is PyTorch's global random state.
            progress: called with the number of rows that are written, and that of all.

        Raises:
            CheckpointError: If the file exists, or the folder with the state of an earlier one, or cannot be written.
            SettingError, ShapeError, TokenError: As TokenEmbedding; or if the dtype is unknown.
        """
        padding_idx = TokenEmbedding(num_embeddings, embedding_dim, padding_idx, init=init, device="meta").padding_idx
        require_choice("FileTokenEmbedding", "dtype", str(dtype), tuple(map(str, _CODES)))
        shape = (num_embeddings, embedding_dim)
        path = Path(path)
        if not path.exists() and (folder := training_folder(path)).exists():
            raise CheckpointError(
                f"{folder} has the optimizer state of an earlier table of this name, which is not that of a new one.\n"
                "Remove that folder, or choose another path."
            )

        def blocks() -> Iterator[np.ndarray]:
            begin = 0
            for rows in row_blocks(*shape):
                values = torch.empty(rows, embedding_dim, dtype=dtype)
                sample_rows(values, init, shape, generator)
                if padding_idx is not None and begin <= padding_idx < begin + rows:
                    values[padding_idx - begin] = 0
                begin += rows
                progress(begin, num_embeddings)
                yield values.view(torch.uint8).numpy()

        # The random id tells the file from each other one; "format" is what other readers expect.
        metadata = {"format": "pt", "whatwhere.table": token_hex(16)}
        write_matrix(path, "weight", _CODES[dtype], shape, blocks(), metadata=metadata)

    def prefetch(self, ids: Integer[Tensor, "*shape"]) -> None:
        """Read the rows of a later batch in a thread, while this one is computed; errors are those of the lookup."""
        require_ids(ids)
        self._require_ids(ids)
        self.rows_in_file.prefetch(ids)

    def update_all_rows(self, progress: Progress = lambda done, rows: None) -> None:
        """Bring all rows up to date, block by block, and flush: other programs can read the file then.

        FileRowAdamW leaves rows that recent batches did not contain as they are until they are next read. If this is
        interrupted, call it again. Where an optimizer trains several tables, call its update_all_rows: this one leaves
        the table at a different step than the others. `progress` gets the rows that are up to date, and all.

        Raises:
            SettingError: If the table is open for reading only.
            CheckpointError: If the disk is full.
        """
        self.rows_in_file.update_all_rows(progress)

    def close(self) -> None:
        """Close the files; what was not flushed is given up."""
        self.rows_in_file.close()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Raise SettingError: rows in a file are not sampled anew."""
        raise SettingError(
            f"the rows of {self.path} are in a file, and are not sampled anew.\nWrite another file, by "
            "FileTokenEmbedding.create."
        )

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        return f"{str(self.path)!r}, {super().extra_repr()}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "FileTokenEmbedding":
        return self  # a model moves or changes its type without the rows

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        pass  # the rows are in their file

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}weight" in state_dict:
            raise SettingError(
                f"the state has rows for {prefix}weight, but those of this table are in {self.path}.\nSave them with "
                "safetensors.torch.save_file, and open that file; then load the state without them."
            )

    def __reduce__(self) -> Any:
        raise SettingError(
            f"the table in {self.path} cannot be copied or pickled: both would write to one file.\nCopy the file, and "
            "open it; or save model.state_dict(), which leaves the table out."
        )


Tables = FileTokenEmbedding | Iterable[FileTokenEmbedding] | Iterable[dict[str, Any]]


class _FileRowOptimizer(RowOptimizer[RowKeeper]):
    """Steps, flushes and states, the same for both algorithms."""

    algorithm: str
    trains = "FileTokenEmbedding"

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add tables with their own settings; a table that was trained before goes on after its last step."""
        name = type(self).__name__
        tables = self._modules(param_group)
        _, betas, eps, _ = self._settings({**self.defaults, **param_group})
        for table in tables:
            if not isinstance(table, FileTokenEmbedding):
                raise SettingError(
                    f"{name} trains FileTokenEmbedding, but got a {type(table).__name__}.\nUse RowAdamW for a table in "
                    "memory, and torch.optim.AdamW for other parameters."
                )
        keepers = {table.weight: table.rows_in_file for table in tables}
        steps = Steps(self.algorithm, eps=eps, betas=betas)
        for each in keepers.values():
            each.start(steps)
        both = [*keepers.values(), *self._tables.values()]
        # Where a kill has left them at two flushes, they go on from the first.
        taken_back = take_back_unfinished([each.files for each in both])
        for each in both:
            if each.files in taken_back:
                each.start(steps)
        self._tables.update(keepers)
        super().add_param_group({**param_group, "params": [table.weight for table in tables]})

    def _step(self, weights: Sequence[tuple[Tensor, Settings]]) -> None:
        steps = [
            (self._tables[weight], self._tables[weight].checked_gradient(), settings)
            for weight, settings in weights
            if weight.grad is not None  # else, as in PyTorch, no step for this table
        ]
        try:
            for keeper, gradient, settings in steps:
                keeper.step(gradient, Step(keeper.number + 1, *settings))
        except BaseException:  # some rows are those of this step, and some of the one before
            for keeper, *_ in steps:
                keeper.files.fail()
            raise

    def flush(self) -> None:
        """Make all changes of all tables durable, or none: after a kill, they are as at the last flush.

        `step` does not call it. Where rows of FileRowAdamW may have missed more steps than the class says, it brings
        all rows up to date.

        Raises:
            CheckpointError: If the disk is full. Call it again when there is space; nothing is lost.
        """
        flush_files([each.files for each in self._tables.values()])
        for each in self._tables.values():
            if each.is_long:
                each.update_all_rows(lambda done, rows: None)

    def update_all_rows(self, progress: Progress = lambda done, rows: None) -> None:
        """Flush, and bring all rows of all tables up to date: see FileTokenEmbedding.update_all_rows."""
        self.flush()  # all are at the same step, whatever happens
        for keeper in self._tables.values():
            keeper.update_all_rows(progress)

    def state_dict(self) -> dict[str, Any]:
        """Return the settings, and the number of the last step of each table; the rest of the state is in files."""
        for weight, keeper in self._tables.items():
            self.state[weight] = {"step": torch.tensor(keeper.number)}
        state: dict[str, Any] = super().state_dict()
        return {**state, "param_groups": [{**each, "algorithm": self.algorithm} for each in state["param_groups"]]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the settings, and require that the files are at the same step."""
        groups = [dict(group) for group in state_dict["param_groups"]]
        for group in groups:
            if (algorithm := group.pop("algorithm", None)) not in (None, self.algorithm):
                raise SettingError(
                    f"{type(self).__name__} cannot load a state of the algorithm {algorithm}: it needs one of "
                    f"{self.algorithm}.\nTrain on with the optimizer that saved it."
                )
        numbers = [number for group in groups for number in group["params"]]
        if len(numbers) != len(self._tables):
            raise SettingError(
                f"the state is of {len(numbers)} tables, but this optimizer has {len(self._tables)}.\nCreate it with "
                "the same tables, in the same order."
            )
        for number, keeper in zip(numbers, self._tables.values(), strict=True):
            state = state_dict["state"].get(number, {})
            if state.keys() - {"step"}:
                raise SettingError(
                    f"the state has {', '.join(sorted(state.keys() - {'step'}))} of a table in memory, but those of "
                    f"{keeper.files.weight.path} are in its folder.\nLoad a state that {type(self).__name__} saved."
                )
            saved = int(state.get("step", 0))
            if saved != keeper.number:
                raise SettingError(
                    f"{keeper.files.weight.path} is at step {keeper.number}, but the state at step {saved}.\nLoad the "
                    "checkpoint of that step: save one before each flush, and keep the one before until it is done."
                )
        super().load_state_dict({"state": state_dict["state"], "param_groups": groups})

    def __getstate__(self) -> dict[str, Any]:
        raise SettingError(
            f"{type(self).__name__} cannot be copied or pickled: two would write to one file.\nSave its state_dict()."
        )


@final
class FileRowAdamW(_FileRowOptimizer):
    """RowAdamW for tables in files: the result of dense AdamW, while only the rows of the batch are read and written.

    The arithmetic is that of RowAdamW, by the same code. The state is in a file: 8 bytes a weight for moments, 4 more
    where rows are 16-bit, and 4 bytes a row; what no step has touched takes no place on the disk. A step costs as many
    rows as the batch has, however large the table is. `update_all_rows` reads and writes the whole table, and so does
    the first flush after a change of eps or after max(4,096, rows of the table) steps; half a KB of memory is kept for
    each step until then.

    Args:
        tables: a FileTokenEmbedding, several, or groups as PyTorch's optimizers take them, with tables as "params".
        lr, betas, eps, weight_decay: as in RowAdamW.

    Raises:
        SettingError: If a setting is out of range, or a table is not in a file, is open for reading only, or was
            trained by another algorithm.
        CheckpointError: If the state cannot be written.
    """

    algorithm = ADAMW

    def __init__(
        self,
        tables: Tables,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(tables, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})


@final
class FileRowAdagrad(_FileRowOptimizer):
    """Adagrad with one number for each row, for tables in files: another algorithm than AdamW, with 4 bytes a row.

        G <- G + mean_j(g_j^2)        p <- p - lr g / (sqrt(G) + eps)

    Rows without a gradient do not move, so the file is up to date after each flush. bfloat16 has no master copy: it is
    rounded up or down at random, with the probabilities that keep the mean. There is no momentum and no weight decay.

    Args:
        tables: as for FileRowAdamW.
        lr: learning rate, 0 or more.
        eps: 0 or more.

    Raises:
        SettingError: As FileRowAdamW, and for rows of float16.
        CheckpointError: If the state cannot be written.
    """

    algorithm = ADAGRAD

    def __init__(self, tables: Tables, lr: float = 1e-2, eps: float = 1e-8) -> None:
        super().__init__(tables, {"lr": lr, "eps": eps})

    def _settings(self, group: dict[str, Any]) -> Settings:
        return super()._settings({**group, "betas": (0.0, 0.5), "weight_decay": 0.0})
