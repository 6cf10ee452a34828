"""Surgery on live modules: every place of a table gets the new one, and the optimizer goes on."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from whatwhere.errors import SettingError, TokenError
from whatwhere.what.optimizer import RowAdamW
from whatwhere.what.surgery.moments import exchange, holds, require_known
from whatwhere.what.surgery.rows import Draw, Rearrangement
from whatwhere.what.surgery.tables import Table, find_tables

_PADDING = ("padding_id", "padding_idx")
_SIZES = ("vocab_size", "num_embeddings", "out_features")


def resize(
    module: nn.Module,
    vocab_size: int,
    *,
    optimizer: Optimizer | None = None,
    pieces: Mapping[int, Sequence[int]] | None = None,
    draw: Draw = "mean",
    seed: int = 0,
    head: nn.Module | None = None,
) -> None:
    """Give a module's token table another number of rows, in place; the first rows and their logits stay.

    Args:
        module: a TokenEmbedding or nn.Embedding; a module that holds one TokenEmbedding; a model of transformers.
        vocab_size: rows that it shall have.
        optimizer: that trains it; see `rearrange`.
        pieces: new row -> old ids whose mean it is, such as the sub-tokens of a new word.
        draw, seed: what other new rows are, see Rearrangement.
        head: an untied readout, where the module does not give it by get_output_embeddings().

    >>> from whatwhere import TokenEmbedding
    >>> table = TokenEmbedding(vocab_size=4, dim=2)
    >>> resize(table, 5)
    >>> table, torch.allclose(table.weight[4], table.weight[:4].mean(0))
    (TokenEmbedding(vocab_size=5, dim=2, init='normal'), True)
    """
    rows = find_tables(module, head)[0].tensor.shape[0]
    change = Rearrangement.enlarged(rows, vocab_size, pieces, draw, seed)
    rearrange(module, change, optimizer=optimizer, head=head)


def keep(
    module: nn.Module, ids: Sequence[int], *, optimizer: Optimizer | None = None, head: nn.Module | None = None
) -> None:
    """Keep some tokens of a module, in place; token n is then what ids[n] was.

    Args:
        module, optimizer, head: as in `resize`.
        ids: each once, in any order.

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
    """Give a module's token table, its head and their biases other rows, in place.

    What was tied stays tied. Each table is a new parameter: the optimizer's groups get it, with the moments of rows
    that moved, and zero for new ones, as if no gradient had reached them so far. Call it between a step and the next
    forward pass: gradients are dropped. Sizes are told to modules and to the configuration of transformers.

    Args:
        module, head: as in `resize`.
        change: what each new row is.
        optimizer: one of torch.optim that starts from zero (AdamW, SGD, ...) or RowAdamW. Without one, an optimizer
            that trains the table would go on with the old parameter, which nobody reads.
    """
    tables = find_tables(module, head)
    rows = tables[0].tensor.shape[0]
    padding = {place: _padding(place, change) for table in tables for place, _ in table.places}
    _require_optimizer(tables, optimizer)
    if isinstance(optimizer, RowAdamW):
        optimizer.flush()
    for table, new in [(table, _changed(table, change)) for table in tables]:
        for place, name in table.places:
            setattr(place, name, new)
        if optimizer is not None and isinstance(new, nn.Parameter) and holds(optimizer, table.tensor):
            exchange(optimizer, table.tensor, new, change)  # type: ignore[arg-type]
    for place, (name, value) in padding.items():
        if name:
            setattr(place, name, value)
    _tell(module, [place for table in tables for place, _ in table.places], rows, len(change.source))


def _changed(table: Table, change: Rearrangement) -> torch.Tensor:
    values = change.apply(table.by_row)
    values = values[None] if table.column else values
    return nn.Parameter(values, requires_grad=table.tensor.requires_grad) if table.is_parameter else values


def _padding(place: nn.Module, change: Rearrangement) -> tuple[str, int | None]:
    """Give where the padding token goes; it has to go somewhere."""
    for name in _PADDING:
        old = getattr(place, name, None)
        if isinstance(old, int):
            new = change.where(old)
            if new is None:
                raise TokenError(
                    f"{name}={old} of {type(place).__name__} would lose its row.\nKeep that id, or set {name} to None."
                )
            return name, new
    return "", None


def _require_optimizer(tables: list[Table], optimizer: Optimizer | None) -> None:
    for table in tables:
        keepers = [getattr(place, "keeper", None) for place, _ in table.places]
        if optimizer is None or not table.is_parameter:
            if any(keeper is not None for keeper in keepers):
                raise SettingError("RowAdamW trains this table and keeps its rows: pass it, as optimizer=.")
            continue
        if not holds(optimizer, table.tensor):
            if table.tensor.requires_grad:
                raise SettingError(
                    f"the {type(optimizer).__name__} that was passed does not train this table of shape "
                    f"{tuple(table.tensor.shape)}.\nPass the one that does, or none."
                )
            continue
        require_known(optimizer, table.tensor)


def _tell(module: nn.Module, places: list[nn.Module], old: int, new: int) -> None:
    """Write the new number of rows wherever the old one is kept."""
    for other in (*module.modules(), *places):
        for name in _SIZES if other in places else _SIZES[:1]:
            if vars(other).get(name) == old:
                setattr(other, name, new)
    configs: list[Any] = [getattr(other, "config", None) for other in module.modules()]
    for config in {id(config): config for config in configs if hasattr(config, "get_text_config")}.values():
        for part in {id(part): part for part in (config, config.get_text_config())}.values():
            if getattr(part, "vocab_size", None) == old:
                part.vocab_size = new
