"""Train some rows of a model's token tables by any optimizer, such as those of new tokens; others keep their bits."""

from collections.abc import Iterator, Sequence
from typing import final

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor, nn
from torch.nn.utils import parametrize

from whatwhere.errors import SettingError
from whatwhere.what.resizing.tables import Table, find_tables
from whatwhere.what.row_adamw.table import fixed_rows


class _RowsReplaced(nn.Module):
    """The map from a table to the table with its trained rows."""

    def __init__(self, ids: Int64[Tensor, " rows"], rows: nn.Parameter) -> None:
        super().__init__()
        self.register_buffer("ids", ids, persistent=False)
        self.rows = rows

    def forward(self, fixed: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return a copy of the table with the trained rows."""
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
        SettingError: If no table is found, one is no plain parameter, RowAdamW trains it, or it has vectors for each
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
        self._rows = [_parametrized(table, chosen) for table in tables]

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
        """Merge the rows."""
        self.merge()


def _parametrized(table: Table, ids: Int64[Tensor, " rows"]) -> nn.Parameter:
    """Detach a table, and compute it from trained rows in each module that has it; return these rows."""
    rows = nn.Parameter(table.tensor.detach()[ids].clone())
    replaced = _RowsReplaced(ids, rows)
    table.tensor.requires_grad_(False)
    for owner, name in table.owners:
        parametrize.register_parametrization(owner, name, replaced)
    return rows


def _require_whole_rows(table: Table) -> None:
    """Raise SettingError unless a row of the table is a token's, and nothing else updates it."""
    if table.per_layer:
        raise SettingError(
            "this model has a second table with vectors for each layer, of which rows cannot be trained alone.\n"
            "Pass its token table itself: model.get_input_embeddings()."
        )
    if table.column or any(getattr(owner, "keeper", None) is not None for owner, _ in table.owners):
        raise SettingError(
            "another optimizer updates rows of this table (RowAdamW), or it is no table with a row for each token.\n"
            "Release it first: optimizer.release(); or train its rows by RowAdamW(table, rows=...)."
        )
