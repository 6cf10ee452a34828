"""Which tensors of a module have one row, or one number, for each token."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from whatwhere.errors import SettingError, ShapeError
from whatwhere.what.embedding import TokenEmbedding

Place = tuple[nn.Module, str]


@dataclass(eq=False)
class Table:
    """Hold one tensor and every place where it stands: tied heads are several places of one tensor.

    Args:
        tensor: a parameter or buffer.
        places: modules and the names under which they hold it.
        column: it has shape (1, vocab_size) rather than (vocab_size, ...).
    """

    tensor: Tensor
    places: list[Place] = field(default_factory=list)
    column: bool = False

    @property
    def by_row(self) -> Tensor:
        """The tensor with tokens first."""
        return self.tensor[0] if self.column else self.tensor

    @property
    def is_parameter(self) -> bool:
        """Whether it is trained, or could be."""
        return isinstance(self.tensor, nn.Parameter)


def find_tables(module: nn.Module, head: nn.Module | None = None) -> list[Table]:
    """Give the token table, the head and their biases, each tensor once, the token table first.

    Args:
        module: a TokenEmbedding or nn.Embedding, a module that holds one TokenEmbedding, or a model of transformers.
        head: an untied readout that is not found by itself.
    """
    table = _input_of(module)
    heads = [head] if head is not None else _heads_of(module)
    rows = table.weight.shape[0]
    found = [Table(_plain(table, "weight"))]
    for other in heads:
        tensors = [_plain(other, name) for name in ("weight", "bias") if getattr(other, name, None) is not None]
        if tensors[0].shape[0] != rows:
            raise ShapeError(
                f"the token table has {rows} rows, but the head {tuple(tensors[0].shape)}: they are changed together, "
                "and this module pads one of them.\nMake both equal first."
            )
        found += [Table(tensor) for tensor in tensors]
    found += [Table(tensor, column=tensor.dim() == 2) for tensor in _biases_beside(module, heads, rows)]
    once = list({id(table.tensor): table for table in reversed(found)}.values())[::-1]
    for one in once:
        one.places = list(_places(module, head, one.tensor))
    return once


def _input_of(module: nn.Module) -> Any:
    if isinstance(module, TokenEmbedding | nn.Embedding):
        return module
    ask = getattr(module, "get_input_embeddings", None)
    table = ask() if ask is not None else None
    if isinstance(table, TokenEmbedding | nn.Embedding):
        return table
    inside = {id(m.weight): m for m in module.modules() if isinstance(m, TokenEmbedding)}
    if len(inside) != 1:
        raise SettingError(
            f"surgery needs one token table, but {type(module).__name__} holds {len(inside)} that are known.\n"
            "Pass the TokenEmbedding or nn.Embedding itself, and an untied readout as head=."
        )
    return next(iter(inside.values()))


def _heads_of(module: nn.Module) -> list[nn.Module]:
    ask = getattr(module, "get_output_embeddings", None)
    head = ask() if ask is not None else None
    return [head] if isinstance(head, nn.Module) and getattr(head, "weight", None) is not None else []


def _biases_beside(module: nn.Module, heads: list[nn.Module], rows: int) -> Iterator[Tensor]:
    """Give biases of logits that stand outside of the head: beside it (BERT, RoBERTa), or in the model (BART)."""
    parents = [other for other in module.modules() if any(child in heads for child in other.children())]
    for other in [module, *parents] if heads else []:
        for name, tensor in (*other._parameters.items(), *other._buffers.items()):
            if tensor is not None and name.endswith("bias") and tuple(tensor.shape) in ((rows,), (1, rows)):
                yield tensor


def _plain(module: nn.Module, name: str) -> Tensor:
    tensor = module._parameters.get(name)
    if tensor is None or type(tensor) is not nn.Parameter or type(tensor.data) is not Tensor:
        raise SettingError(
            f"{name} of {type(module).__name__} is no plain parameter, so that no other can stand in its place.\n"
            "Change the model before it is wrapped, sharded, quantized or parametrized."
        )
    return tensor


def _places(module: nn.Module, head: nn.Module | None, tensor: Tensor) -> Iterator[Place]:
    for root in (module, head) if head is not None else (module,):
        for other in root.modules():
            for name, held in (*other._parameters.items(), *other._buffers.items()):
                if held is tensor:
                    yield other, name
