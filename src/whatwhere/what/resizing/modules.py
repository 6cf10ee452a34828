"""Resize the vocabulary of modules in memory, with their optimizer state, or train some of their rows alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from whatwhere.errors import SettingError, TokenError
from whatwhere.what.resizing.new_rows import Draw, Rearrangement
from whatwhere.what.resizing.tables import Table, find_tables, position_tables, require_changeable, write_settings
from whatwhere.what.row_adamw.optimizer import RowAdamW
from whatwhere.what.row_adamw.table import fixed_rows

_BY_ROW = (
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "exp_inf", "square_avg", "grad_avg", "acc_delta",
    "row_var", "master",
)  # fmt: skip
"""State that is zero before the first step: of Adam and variants, SGD, RMSprop, Adadelta, and rows of Adafactor."""


def resize(
    module: nn.Module,
    vocab_size: int,
    *,
    optimizer: Optimizer | None = None,
    pieces: Mapping[int, Sequence[int]] | None = None,
    draw: Draw = "noise",
    seed: int = 0,
    head: nn.Module | None = None,
) -> None:
    """Change the number of rows of a module's token table, in place; the first rows and their logits are kept.

    Args:
        module: a TokenEmbedding or nn.Embedding; a module with one TokenEmbedding; a model of transformers. Where
            another module shares the weight, as a tied output projection does, pass the module that contains both.
        vocab_size: the new number of rows.
        optimizer: the one that trains the table, if any; see `rearrange`.
        pieces: new row -> old ids whose mean it is, such as the sub-tokens of a new word.
        draw, seed: how other new rows are initialized, see Rearrangement. By "mean" all are equal, as suits padding.
        head: an untied output projection, if get_output_embeddings() of the module does not return it.

    Raises:
        SettingError: If no table is found, `head` may be missing, or the optimizer does not train the table.
        ShapeError: If table and output projection have different numbers of rows.
        TokenError: If the padding token would lose its row.

    Examples:
        >>> from whatwhere import TokenEmbedding
        >>> table = TokenEmbedding(4, 2)
        >>> resize(table, 5)
        >>> table
        TokenEmbedding(num_embeddings=5, embedding_dim=2, init='normal')
        >>> resize(table, 7, draw="mean")
        >>> torch.allclose(table.weight[5:], table.weight[:5].mean(0))
        True
    """
    rows = find_tables(module, head)[0].tensor.shape[0]
    change = Rearrangement.enlarged(rows, vocab_size, pieces, draw, seed)
    rearrange(module, change, optimizer=optimizer, head=head)


def keep(
    module: nn.Module, ids: Sequence[int], *, optimizer: Optimizer | None = None, head: nn.Module | None = None
) -> None:
    """Keep some tokens of a module, in place; token n is then the old token ids[n]. Errors are those of `resize`.

    Args:
        module, optimizer, head: as in `resize`. Pass the model rather than its table: then its configuration gets the
            new ids, and positions that are counted from the padding id (as in RoBERTa) keep their rows.
        ids: each once, in any order.

    Examples:
        >>> from whatwhere import TokenEmbedding
        >>> table = TokenEmbedding.from_weight(torch.tensor([[0.0], [1.0], [2.0]]))
        >>> keep(table, [2, 0])
        >>> table.weight.detach().flatten()
        tensor([2., 0.])
    """
    rows = find_tables(module, head)[0].tensor.shape[0]
    rearrange(module, Rearrangement.kept(rows, ids), optimizer=optimizer, head=head)


def rearrange(
    module: nn.Module, change: Rearrangement, *, optimizer: Optimizer | None = None, head: nn.Module | None = None
) -> None:
    """Rearrange the rows of a module's token table, its output projection and their biases, in place.

    Tied weights stay tied. Each table becomes a new parameter: it replaces the old one in the optimizer's groups, with
    the optimizer state of rows that were kept, and zero for new ones, as if no gradient had reached them so far. Call
    it between a step and the next forward pass: gradients are dropped. Sizes and token ids are written into modules and
    into the configurations of transformers; the id of a removed token becomes None. Where positions are counted from
    pad_token_id, as in RoBERTa, the learned position table is shifted with it; a sinusoid cannot be shifted, so there
    the padding token must keep its id.

    Args:
        module, head: as in `resize`, whose errors these are too.
        change: how the rows are rearranged.
        optimizer: one of torch.optim whose state starts from zero (AdamW, SGD, ...), or RowAdamW. Without it, an
            optimizer that trains the table would continue with the old parameter, which no module uses.
    """
    tables = find_tables(module, head)
    require_changeable(module, change)
    padding = {owner: _new_padding(owner, change) for table in tables for owner, _ in table.owners}
    positions = position_tables(module, change)
    _require_optimizer(tables, optimizer)
    for table, _ in positions:
        if optimizer is not None and _trains(optimizer, table.tensor):
            _require_known(optimizer, table.tensor)
    if isinstance(optimizer, RowAdamW):
        optimizer.flush()
    changes = [(table, change.of_rows(len(table.by_row)) if table.per_layer else change) for table in tables]
    for table, own, new in [(table, own, _rearranged(table, own)) for table, own in (*changes, *positions)]:
        for owner, name in table.owners:
            setattr(owner, name, new)
        if optimizer is not None and isinstance(new, nn.Parameter) and _trains(optimizer, table.tensor):
            _replace(optimizer, table.tensor, new, own)  # type: ignore[arg-type]
    for owner, index in padding.items():
        if index is not None:
            owner.padding_idx = index  # type: ignore[assignment]
    write_settings(module, tables, positions, change)


def _rearranged(table: Table, change: Rearrangement) -> Tensor:
    values = change.apply(table.by_row)
    values = values[None] if table.column else values
    return nn.Parameter(values, requires_grad=table.tensor.requires_grad) if table.is_parameter else values


def _new_padding(owner: nn.Module, change: Rearrangement) -> int | None:
    """Return the new id of the padding token, which must keep its row; None where there is none."""
    old = getattr(owner, "padding_idx", None)
    new = None if old is None else change.new_id(old)
    if old is not None and new is None:
        raise TokenError(
            f"padding_idx={old} of {type(owner).__name__} would lose its row.\nKeep that id, or make it None."
        )
    return new


def _require_optimizer(tables: list[Table], optimizer: Optimizer | None) -> None:
    for table in tables:
        keepers = [getattr(owner, "keeper", None) for owner, _ in table.owners]
        if optimizer is None or not table.is_parameter:
            if any(keeper is not None for keeper in keepers):
                raise SettingError("RowAdamW trains this table and updates its rows.\nPass it, as optimizer=.")
            continue
        if not _trains(optimizer, table.tensor):
            if table.tensor.requires_grad:
                raise SettingError(
                    f"the {type(optimizer).__name__} that was passed does not train this table of shape "
                    f"{tuple(table.tensor.shape)}.\nPass the one that does, or none."
                )
            continue
        if isinstance(optimizer, RowAdamW) and optimizer.trains_some(table.tensor):
            raise SettingError(
                "this RowAdamW trains some rows alone, and which ones of the new table is not known.\n"
                "Call optimizer.release(), resize without it, and create it again: RowAdamW(table, rows=...)."
            )
        _require_known(optimizer, table.tensor)


# The state of the optimizer


def _trains(optimizer: Optimizer, parameter: Tensor) -> bool:
    """Return whether an optimizer trains a parameter."""
    return any(parameter is other for group in optimizer.param_groups for other in group["params"])


def _require_known(optimizer: Optimizer, parameter: Tensor) -> None:
    """Raise SettingError where an optimizer has state that cannot be rearranged; nothing has been changed yet."""
    for name, value in optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor) and value.dim() and value.numel() > 1 and name not in (*_BY_ROW, "col_var", "sum"):
            raise SettingError(
                f"{type(optimizer).__name__} has state {name!r} of the table, which is not known to be zero for new "
                "rows.\nCreate the optimizer again after the change."
            )


def _replace(optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter, change: Rearrangement) -> None:
    """Replace a parameter, which modules have replaced already, with the state of its rows; the step count stays."""
    for group in optimizer.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    state = optimizer.state.pop(old, None)
    new_state = {name: _new_state(optimizer, name, value, change) for name, value in (state or {}).items()}
    if isinstance(optimizer, RowAdamW):
        if "master" in new_state:
            added = torch.from_numpy(change.source == -1).to(new.device)
            new_state["master"][added] = new.detach()[added].to(new_state["master"].dtype)
        optimizer.exchange(old, new, new_state)
    elif state is not None:
        optimizer.state[new] = new_state


def _new_state(optimizer: Optimizer, name: str, value: Any, change: Rearrangement) -> Any:
    if not isinstance(value, Tensor) or not value.dim() or value.numel() == 1 or name == "col_var":
        return value
    rearranged = change.carry(value)
    if name == "sum":  # of Adagrad, which need not start from zero
        start = optimizer.defaults["initial_accumulator_value"]
        rearranged[torch.from_numpy(change.source == -1).to(rearranged.device)] = start
    return rearranged


class _RowsReplaced(nn.Module):
    """The map from a table to the table with its trained rows."""

    def __init__(self, ids: Int64[Tensor, " rows"], rows: nn.Parameter) -> None:
        super().__init__()
        self.register_buffer("ids", ids, persistent=False)
        self.rows = rows

    def forward(self, fixed: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        ids = self.get_buffer("ids")
        return fixed.index_copy(0, ids, self.rows.to(fixed.dtype))


@final
class TrainedRows:
    """Some rows of a model's token table, output projection and their biases as parameters of their own.

        table = the fixed one, with rows[n] in place of row ids[n]

    An optimizer of the whole table moves every row by its weight decay and momentum, also those without a gradient, and
    keeps state for all. Here the tables are fixed, and an optimizer gets the rows alone: state of a few kilobytes, and
    every other row keeps its bits. Tied weights stay tied. The price is a copy of the table in each forward pass; for a
    table that is only looked up, `RowAdamW(table, rows=ids)` has none.

    Args:
        module: a TokenEmbedding or nn.Embedding; a module with one TokenEmbedding; a model of transformers.
        ids: of the rows to train, such as range(32000, 32008).
        head: an untied output projection, if get_output_embeddings() of the module does not return it.

    Raises:
        SettingError: If no table is found, one is not a plain parameter, RowAdamW trains it, or it has vectors for each
            layer; or there are no ids.
        TokenError: If an id is outside the table.

    Examples:
        >>> from whatwhere import TokenEmbedding
        >>> table = TokenEmbedding.from_weight(torch.ones(4, 2))
        >>> with TrainedRows(table, [3]) as trained:
        ...     optimizer = torch.optim.AdamW(trained.parameters(), lr=0.5, weight_decay=0.1)
        ...     table(torch.tensor([2, 3])).sum().backward()
        ...     optimizer.step()
        >>> table.weight[2:].detach()
        tensor([[1.0000, 1.0000],
                [0.4500, 0.4500]])
    """

    def __init__(
        self, module: nn.Module, ids: Sequence[int] | Integer[Tensor, " rows"], *, head: nn.Module | None = None
    ) -> None:
        tables = [table for table in find_tables(module, head) if table.is_parameter]
        for table in tables:
            _require_whole_rows(table)
        fixed = fixed_rows(tables[0].tensor, ids)
        assert fixed is not None
        chosen = torch.nonzero(~fixed)[:, 0]
        self._tables = tables
        self._were_trained = [table.tensor.requires_grad for table in tables]
        self._rows = []
        for table in tables:  # is fixed, and computed from trained rows in each module that has it
            rows = nn.Parameter(table.tensor.detach()[chosen].clone())
            replaced = _RowsReplaced(chosen, rows)
            table.tensor.requires_grad_(False)
            for owner, name in table.owners:
                parametrize.register_parametrization(owner, name, replaced)
            self._rows.append(rows)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield the rows of each table, for an optimizer."""
        yield from self._rows

    def merge(self) -> None:
        """Write the rows into the tables, which are plain parameters again."""
        for table, trained in zip(self._tables, self._were_trained, strict=True):
            merged: Tensor | None = None
            for owner, name in table.owners:
                if not parametrize.is_parametrized(owner, name):
                    continue
                if merged is None:
                    merged = getattr(owner, name).detach()
                parametrize.remove_parametrizations(owner, name, leave_parametrized=False)
                setattr(owner, name, table.tensor)
            if merged is not None:
                with torch.no_grad():
                    table.tensor.copy_(merged)
                table.tensor.requires_grad_(trained)

    def __enter__(self) -> "TrainedRows":
        """Return the rows; they are merged at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        self.merge()


def _require_whole_rows(table: Table) -> None:
    """Raise SettingError unless a row of the table is a token's, and nothing else updates it."""
    if table.per_layer:
        raise SettingError(
            "this model has a second table with vectors for each layer, of which rows cannot be trained alone.\n"
            "Pass its token table itself: model.get_input_embeddings()."
        )
    if table.column or any(getattr(owner, "keeper", None) is not None for owner, _ in table.owners):
        raise SettingError(
            "another optimizer updates rows of this table (RowAdamW), or it is not a table with a row for each token.\n"
            "Release it first: optimizer.release(); or train its rows by RowAdamW(table, rows=...)."
        )
