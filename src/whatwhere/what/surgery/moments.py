"""What optimizers keep of a table, moved with its rows."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from whatwhere.errors import SettingError
from whatwhere.what.optimizer import RowAdamW
from whatwhere.what.surgery.rows import Rearrangement

_BY_ROW = (
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "exp_inf", "square_avg", "grad_avg", "acc_delta",
    "row_var", "master",
)  # fmt: skip
"""States that are zero before the first step: Adam and its kin, SGD, RMSprop, Adadelta, Adafactor's rows."""


def holds(optimizer: Optimizer, parameter: Tensor) -> bool:
    """Tell whether an optimizer trains a parameter."""
    return any(parameter is other for group in optimizer.param_groups for other in group["params"])


def require_known(optimizer: Optimizer, parameter: Tensor) -> None:
    """Raise SettingError where an optimizer keeps what cannot be moved; nothing has been changed yet."""
    for name, value in optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor) and value.dim() and value.numel() > 1 and name not in (*_BY_ROW, "col_var", "sum"):
            raise SettingError(
                f"{type(optimizer).__name__} keeps {name!r} of the table, which is not known to be zero for new rows.\n"
                "Build the optimizer anew after the change."
            )


def exchange(optimizer: Optimizer, old: nn.Parameter, new: nn.Parameter, change: Rearrangement) -> None:
    """Put a new parameter in the place of an old one, whose modules hold it by now, with the moments of its rows.

    Steps are counted on: a new row is as one that no gradient has reached so far.
    """
    for group in optimizer.param_groups:
        group["params"] = [new if parameter is old else parameter for parameter in group["params"]]
    state = optimizer.state.pop(old, None)
    moved = {name: _moved(optimizer, old, name, value, change) for name, value in (state or {}).items()}
    if isinstance(optimizer, RowAdamW):
        if "master" in moved:
            drawn = torch.from_numpy(change.source == -1).to(new.device)
            moved["master"][drawn] = new.detach()[drawn].to(moved["master"].dtype)
        optimizer.exchange(old, new, moved)
    elif state is not None:
        optimizer.state[new] = moved


def _moved(optimizer: Optimizer, old: Tensor, name: str, value: Any, change: Rearrangement) -> Any:
    if not isinstance(value, Tensor) or not value.dim() or value.numel() == 1 or name == "col_var":
        return value
    moved = change.carry(value)
    if name == "sum":  # Adagrad, whose sums need not begin at zero
        start = optimizer.defaults["initial_accumulator_value"]
        moved[torch.from_numpy(change.source == -1).to(moved.device)] = start
    return moved
