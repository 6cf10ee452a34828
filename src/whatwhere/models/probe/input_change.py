"""Measure whether hidden states depend on position before the first attention, and by which factor tokens enter."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whatwhere.models.probe.findings import NONE, NOT_MEASURED, InputChange
from whatwhere.models.probe.forward import FIRST_TOKEN, Subject, forward

CONTENTS, TOKENS = 12, 20
SAME = 1e-5
"""Largest difference, relative to the largest value, that counts as none."""
WAVES = 1e-3
"""Largest deviation of a column from a sinusoid, relative to the table, at which it counts as one."""


def input_of(subject: Subject) -> tuple[InputChange, float | None]:
    """Return how hidden states depend on position before the first attention, and the factor of token vectors."""
    stack = _first_block(subject.model, subject.modules[-1])
    if stack is None:
        return InputChange(NOT_MEASURED, reason="no list of layers is around the attention modules"), None
    with _inputs(subject.model, stack) as (hidden, lookups), torch.no_grad():
        forward(subject.model, CONTENTS, TOKENS, subject.vocab_size)
    if not hidden:
        return InputChange(NOT_MEASURED, reason=f"{stack} is not given hidden states (batch, tokens, features)"), None
    states = hidden[0]
    return _change(states, lookups), _embedding_scale(subject.model, states[:, 0])


def _first_block(model: nn.Module, module: str) -> str | None:
    """Return the name of the first layer of the list of layers that an attention module is in."""
    parts = module.split(".")
    for end in range(1, len(parts)):
        if isinstance(model.get_submodule(".".join(parts[:end])), nn.ModuleList):
            return ".".join([*parts[:end], "0"])
    return None


_Lookup = tuple[str | None, Tensor, Tensor]
"""Rows of a table that were read: its name if it is a parameter or buffer of the model, the table, and the rows."""


class _Lookups(TorchFunctionMode):
    """Record which rows of tables are read."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {id(each): name for name, each in (*model.named_parameters(), *model.named_buffers())}
        self.seen: list[_Lookup] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run a function, and keep the rows that it looks up."""
        if func is nn.functional.embedding and len(args) >= 2:
            self._keep(args[1], args[0])
        elif func in (torch.index_select, Tensor.index_select) and len(args) == 3 and args[1] == 0:
            self._keep(args[0], args[2])
        return func(*args, **(kwargs or {}))

    def _keep(self, table: Tensor, rows: Tensor) -> None:
        if rows.numel() % TOKENS == 0:
            self.seen.append((self.names.get(id(table)), table.detach(), rows.detach().reshape(-1, TOKENS)))


@contextmanager
def _inputs(model: nn.Module, stack: str) -> Iterator[tuple[list[Tensor], list[_Lookup]]]:
    """Record hidden states that reach a layer, and the rows that are looked up, within a block."""
    hidden: list[Tensor] = []

    def enter(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = options.get("hidden_states", args[0] if args else None)
        if isinstance(given, Tensor) and given.dim() == 3:
            hidden.append(given.detach().double())

    hook = model.get_submodule(stack).register_forward_pre_hook(enter, with_kwargs=True)
    with hook, _Lookups(model) as lookups:
        yield hidden, lookups.seen


def _change(states: Tensor, lookups: list[_Lookup]) -> InputChange:
    """Return the form of the difference between positions."""
    size = float(states.abs().max())
    difference = states - states[:, :1]
    largest = float(difference.abs().max())
    if largest < SAME * size:
        return InputChange(NONE, largest / size)
    common = difference.mean(dim=0)
    spread = float((difference - common).abs().max()) / size
    for name, table, rows in lookups:
        if bool((rows[:, 1:] - rows[:, :-1] == 1).all()) and bool((rows == rows[:1]).all()):  # by position alone
            offset = int(rows[0, 0])
            waves = _waves(table[offset : offset + TOKENS].double().cpu().numpy())
            return InputChange("sinusoidal" if waves < WAVES else "learned", spread, name, len(table), offset)
    if spread > 10 * SAME:
        return InputChange("other", spread, reason="hidden states change by position, but not by the same sum for all")
    waves = _waves(np.diff(common.cpu().numpy(), axis=0))
    return InputChange("sinusoidal" if waves < WAVES else "table", spread)


def _waves(table: np.ndarray) -> float:
    """Return how far columns are from sinusoids: v(p+1) + v(p-1) = 2 cos(w) v(p)."""
    middle, sides = table[1:-1], table[2:] + table[:-2]
    factor = (middle * sides).sum(axis=0) / np.maximum((middle * middle).sum(axis=0), 1e-30)
    return float(np.abs(sides - factor * middle).max() / max(np.abs(table).max(), 1e-30))


def _embedding_scale(model: nn.Module, first: Tensor) -> float | None:
    """Return the factor of token vectors in the hidden states at position 0, or None if they are not a multiple."""
    try:
        table = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        return None
    weight = getattr(table, "weight", None)
    if weight is None or weight.dim() != 2 or weight.shape[1] != first.shape[1]:
        return None
    ids = FIRST_TOKEN + torch.arange(len(first), device=weight.device) % (len(weight) - FIRST_TOKEN)
    token = weight[ids].detach().double()
    token, state = token - token.mean(dim=0), first - first.mean(dim=0)
    scale = float((token * state).sum() / (token * token).sum().clamp(min=1e-30))
    return scale if float((state - scale * token).abs().max()) < 1e-4 * float(state.abs().max()) else None
