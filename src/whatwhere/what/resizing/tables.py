"""Find what depends on token ids in modules in memory: tables, positions after the padding id, configurations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.what import token_ids
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.what.resizing.new_rows import Rearrangement, change_of_positions

_POSITIONS = ("position_embeddings", "box_position_embeddings")

Owner = tuple[nn.Module, str]  # a module and the name under which it registers a tensor


@dataclass(eq=False)
class Table:
    """A tensor and the modules that share it, such as a token table and a tied output projection."""

    tensor: Tensor  # a parameter or buffer
    owners: Sequence[Owner] = ()  # modules and the names under which they register it
    column: bool = False  # its shape is (1, vocab_size) rather than (vocab_size, ...)
    per_layer: bool = False  # it contains vectors for each layer (Gemma 3n), possibly of the first tokens only

    @property
    def by_row(self) -> Tensor:
        """The tensor with tokens first."""
        return self.tensor[0] if self.column else self.tensor

    @property
    def is_parameter(self) -> bool:
        """Whether it can be trained."""
        return isinstance(self.tensor, nn.Parameter)


def find_tables(module: nn.Module, head: nn.Module | None = None) -> list[Table]:
    """Return the token table, the output projection and their biases, each tensor once, the token table first."""
    table = _input_of(module)
    found: Any = getattr(module, "get_output_embeddings", lambda: None)() if head is None else head
    heads = [found] if head is not None or getattr(found, "weight", None) is not None else []
    rows, linear = (shape := table.weight.shape)[0], [m for m in module.named_modules() if isinstance(m[1], nn.Linear)]
    alike = [n for n, m in linear if (m.out_features, m.in_features) == shape and m.weight is not table.weight]
    if not heads and alike and not any(m.weight is table.weight for _, m in linear):  # not tied to a layer either
        raise SettingError(
            f"{alike[0]} has a weight of the shape of the token table, so it may be an untied output projection.\n"
            f"Pass head=model.get_submodule({alike[0]!r}) to change both; if it is none, pass the token table as head=."
        )
    tables = [Table(plain(table, "weight"))]
    for other in heads:
        tensors = [plain(other, name) for name in ("weight", "bias") if getattr(other, name, None) is not None]
        if tensors[0].shape[0] != rows:
            raise ShapeError(
                f"the token table has {rows} rows, but the output projection has the shape {tuple(tensors[0].shape)}: "
                "they are changed together, and this module pads one of them.\nMake both equal first."
            )
        tables += [Table(tensor) for tensor in tensors]
    tables += [Table(tensor, column=tensor.dim() == 2) for tensor in _other_biases(module, heads, rows)]
    per_layer = [other for name, other in module.named_modules() if name.split(".")[-1] == "embed_tokens_per_layer"]
    tables += [Table(plain(other, "weight"), per_layer=True) for other in per_layer if isinstance(other, nn.Embedding)]
    further = [other for name, other in module.named_modules() if name.split(".")[-1] == "value_embeddings"]
    tables += [Table(plain(other, "weight")) for other in further if getattr(other, "num_embeddings", None) == rows]
    unique = list({id(table.tensor): table for table in reversed(tables)}.values())[::-1]
    for one in unique:
        one.owners = list(find_owners(module, head, one.tensor))
    return unique


def _input_of(module: nn.Module) -> Any:
    if isinstance(module, nn.Embedding):
        return module
    get_table = getattr(module, "get_input_embeddings", None)
    try:
        table = get_table() if get_table is not None else None
    except NotImplementedError:  # some multimodal models
        table = None
    if isinstance(table, nn.Embedding):
        return table
    inside = {id(m.weight): m for m in module.modules() if isinstance(m, TokenEmbedding)}
    if len(inside) != 1:
        raise SettingError(
            f"resizing needs one token table, but {type(module).__name__} has {len(inside)} that are known.\n"
            "Pass the TokenEmbedding or nn.Embedding itself, and an untied output projection as head=."
        )
    return next(iter(inside.values()))


def _other_biases(module: nn.Module, heads: list[nn.Module], rows: int) -> Iterator[Tensor]:
    """Yield biases of logits outside the output projection: beside it (BERT, RoBERTa), or in the model (BART)."""
    parents = [other for other in module.modules() if any(child in heads for child in other.children())]
    for other in [module, *parents] if heads else []:
        for name, tensor in (*other._parameters.items(), *other._buffers.items()):
            if tensor is not None and name.endswith("bias") and tuple(tensor.shape) in ((rows,), (1, rows)):
                yield tensor


def plain(module: nn.Module, name: str) -> Tensor:
    """Return a parameter, checked to be a plain one that another can replace: not wrapped, sharded or quantized."""
    tensor = module._parameters.get(name)
    nowhere = tensor is not None and tensor.numel() > 1 and not any(tensor.stride())  # its rows are in a file
    if tensor is None or type(tensor) is not nn.Parameter or type(tensor.data) is not Tensor or nowhere:
        raise SettingError(
            f"{name} of {type(module).__name__} is not a plain parameter, so another cannot replace it.\n"
            "Resize the model before it is wrapped, sharded, quantized or parametrized; a table in a file by whatwhere "
            "resize."
        )
    return tensor


def find_owners(module: nn.Module, head: nn.Module | None, tensor: Tensor) -> Iterator[Owner]:
    """Yield the modules that register a tensor, with its name in each."""
    for root in (module, head) if head is not None else (module,):
        for other in root.modules():
            for name, registered in (*other._parameters.items(), *other._buffers.items()):
                if registered is tensor:
                    yield other, name


# Positions that are counted from the padding id, and ids in configurations


def require_changeable(module: nn.Module, change: Rearrangement) -> None:
    """Check that a model of transformers allows a change of its vocabulary."""
    config: Any = getattr(module, "config", None)
    if hasattr(config, "to_dict"):
        renumbering = bool(((change.source != np.arange(len(change.source))) & (change.source != -1)).any())
        names = (name for name, _ in module.named_parameters())
        values = config.to_dict()
        if (why := token_ids.why_fixed(values, names, renumbering)) is not None:
            raise SettingError(why)
        if (missing := token_ids.lost_id(values, token_ids.renumbered(values, change.rows, change.new_id))) is not None:
            raise TokenError(
                f"{missing[0]}={missing[1]} would lose its row, but models of the type {config.model_type} need one.\n"
                "Keep that id."
            )


def position_tables(module: nn.Module, change: Rearrangement) -> list[tuple[Table, Rearrangement]]:
    """Return the learned position tables that must be shifted with the padding id, and the change of their rows."""
    config: Any = getattr(module, "config", None)
    if not hasattr(config, "to_dict") or (dependence := token_ids.padding_dependence(config.to_dict())) is None:
        return []
    old = dependence[1]
    if not (shift := token_ids.padding_shift(dependence, change.new_id(old))):
        return []
    inside = {name: other for name, other in module.named_modules() if name.split(".")[-1] in _POSITIONS}
    text = {name: other for name, other in inside.items() if "vision" not in name and "visual" not in name}
    rows = {len(getattr(other, "weight", ())) for other in text.values()}
    if not text and getattr(config.get_text_config(), "position_embedding_type", "absolute") != "absolute":
        return []
    if len(rows) != 1 or not all(isinstance(other, nn.Embedding) for other in text.values()):
        raise SettingError(
            f"pad_token_id would become {old + shift} instead of {old}, and positions are counted from it, but the "
            f"table of positions is not found in {type(module).__name__}.\nPass ids with {old} at index {old}, or the "
            "model as transformers creates it."
        )
    length, tensors = rows.pop(), {name: plain(other, "weight") for name, other in text.items()}
    return [
        (Table(tensor, [*find_owners(module, None, tensor)]), change_of_positions(name, length, shift))
        for name, tensor in tensors.items()
    ]


def write_settings(
    module: nn.Module, tables: list[Table], positions: list[tuple[Table, Rearrangement]], change: Rearrangement
) -> None:
    """Write the new sizes, token ids and numbers of positions into modules, their buffers and configurations."""
    owners = [owner for table in tables for owner, _ in table.owners]
    old, new, padding = change.rows, len(change.source), dict[object, int]()
    length, longer = (positions[0][1].rows, len(positions[0][1].source)) if positions else (-1, -1)
    for config in [*_configs(module), getattr(module, "generation_config", None)]:
        if hasattr(config, "to_dict"):
            values = {key: value for key, value in vars(config).items() if not key.startswith("_")}
            if isinstance(id := values.get("pad_token_id"), int) and (new_id := change.new_id(id)) is not None:
                padding[id] = new_id
            for key, value in token_ids.renumbered(values, old, change.new_id).items():
                if value is not values[key] and value != values[key]:
                    setattr(config, key, value)
            _exchange(config, ("max_position_embeddings",), length, longer)
    per_layer = any(hasattr(other, "embed_tokens_per_layer") for other in module.modules())
    for other in (*module.modules(), *owners):
        _exchange(other, ("vocab_size", "num_embeddings", "out_features")[: 3 if other in owners else 1], old, new)
        if not isinstance(other, nn.Embedding) and other not in owners and vars(other).get("padding_idx") in padding:
            other.padding_idx = padding[other.padding_idx]  # type: ignore[assignment]
        for name in ("position_ids", "token_type_ids"):
            buffer = other._buffers.get(name)
            if buffer is not None and tuple(buffer.shape) == (1, length):
                numbers = torch.arange(longer, dtype=buffer.dtype, device=buffer.device)[None]
                other._buffers[name] = numbers if name == "position_ids" else torch.zeros_like(numbers)
        its: Any = getattr(other, "config", None)
        for part in (its, its.get_text_config()) if hasattr(its, "get_text_config") else ():
            _exchange(part, ("vocab_size", "decoder_vocab_size"), old, new)
            if per_layer and hasattr(part, "vocab_size_per_layer_input"):
                part.vocab_size_per_layer_input = new
    for owner in (owner for table in tables if table.per_layer for owner, _ in table.owners):
        owner.num_embeddings = new  # type: ignore[assignment]
    for owner in (owner for table, _ in positions for owner, _ in table.owners):
        owner.num_embeddings = longer  # type: ignore[assignment]
        if (id := getattr(owner, "padding_idx", None)) is not None:
            owner.padding_idx = id + longer - length


def _exchange(owner: Any, names: Sequence[str], old: int, new: int) -> None:
    """Replace settings of a configuration, or attributes of a module itself, that have the old value."""
    for name in names:
        if (vars(owner).get(name) if isinstance(owner, nn.Module) else getattr(owner, name, None)) == old:
            setattr(owner, name, new)


def _configs(module: nn.Module) -> list[Any]:
    """Return the configurations of a model that refer to its token table, each once."""
    config: Any = getattr(module, "config", None)
    configs = [config] if hasattr(config, "to_dict") else []
    for each in configs:  # and those that are added meanwhile
        for key, value in vars(each).items():
            if hasattr(value, "to_dict") and token_ids.shares_vocabulary(key, value.to_dict(), None):
                configs += [] if any(value is other for other in configs) else [value]
    return configs
