"""The state of RowAdamW as PyTorch's optimizers store it: checked, and the part of this process."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from whatwhere.errors import SettingError, ShapeError
from whatwhere.initialization import own_rows, shard_offsets
from whatwhere.kernels.row_adamw import Moments

OWNERS = "owners"
"""The key of the number of owners, beside moments in their order."""


def as_table(weight: Tensor, values: Tensor) -> Tensor:
    """Return values of a process's rows as a tensor of the whole table, a DTensor where the table is one."""
    if own_rows(weight) is weight:
        return values
    from torch.distributed.tensor import DTensor

    assert isinstance(weight, DTensor)
    mesh, placements = weight.device_mesh, weight.placements
    return DTensor.from_local(
        values, mesh, placements, run_check=False, shape=weight.shape, stride=(weight.shape[1], 1)
    )


def own_part(values: Tensor, weight: Tensor, dealt: int | None) -> Tensor:
    """Return the rows of this process of a state, which may be that of the whole table, in its order or by id.

    `dealt` is the number of ids that a table on owners has; None of a table in the order of its ids.
    """
    if dealt is not None and len(values) == dealt:
        whole: Tensor = values.full_tensor() if hasattr(values, "full_tensor") else values
        mesh: Any = weight.device_mesh  # type: ignore[attr-defined]
        rows = whole[mesh.get_local_rank() :: mesh.size()]
        return F.pad(rows, (0, 0, 0, len(own_rows(weight)) - len(rows)))
    if own_rows(weight) is weight or own_rows(values) is not values:
        return own_rows(values)
    first = (shard_offsets(weight) or (0,))[0]
    return values[first : first + len(own_rows(weight))]


def require_moments(weight: Tensor, state: dict[str, Any], dealt: int | None) -> None:
    """Raise unless a state is that of a table, in its order or by id.

    Raises:
        SettingError: If it lacks a key, or its rows are in the order of other owners.
        ShapeError: If it is of a table of another shape.
    """
    require_names(state, ("step", "exp_avg", "exp_avg_sq"))
    values = {name: state[name] for name in ("exp_avg", "exp_avg_sq", "master") if state.get(name) is not None}
    shape = tuple(weight.shape)
    by_id = (dealt, shape[1])
    if all(tuple(value.shape) == by_id for value in values.values()):
        return
    require_owners(weight, state.get(OWNERS), dealt)
    for name, value in values.items():
        if tuple(value.shape) != shape:
            raise ShapeError(
                f"the state's {name!r} has shape {tuple(value.shape)}, but the table {shape}.\n"
                "Load the state of this table, or resize the table together with its optimizer."
            )


def require_owners(weight: Tensor, stored: Tensor | None, dealt: int | None) -> None:
    """Raise SettingError unless rows of a state are in the order of the table's owners."""
    owners = None if dealt is None else weight.device_mesh.size()  # type: ignore[attr-defined]
    if owners == (given := None if stored is None else int(stored)):
        return
    has = "is in the order of its ids" if owners is None else f"has {owners} owners"
    order = "not known to be in the order of owners" if given is None else f"in the order of {given} owners"
    raise SettingError(
        f"the rows of the optimizer's state are {order}, but this table {has}.\nLoad a state of as many processes, or "
        "rows by id: owners.whole(values) of each tensor, saved by the processes that have it, without 'owners'."
    )


def require_names(state: dict[str, Any], names: tuple[str, ...]) -> None:
    """Raise SettingError unless a state has some keys."""
    for name in names:
        if name not in state:
            raise SettingError(
                f"RowAdamW loads a state of RowAdamW or torch.optim.AdamW, but this one has no {name!r}.\n"
                "Start without it, or train with the optimizer that saved it."
            )


def require_equal(what: str, own: int, given: int) -> None:
    """Raise ShapeError unless a state has as many of something as the optimizer."""
    if own != given:
        raise ShapeError(
            f"RowAdamW has {own} {what}, but the state {given}.\n"
            "Create it with the same tables, in the same groups; other parameters need an optimizer of their own."
        )


def publish(state: dict[str, Any], weight: Tensor, moments: Moments, number: int, dealt: int | None) -> None:
    """Write the state of a table to where PyTorch's optimizers store it."""
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        state["exp_avg"], state["exp_avg_sq"] = as_table(weight, moments.exp_avg), as_table(weight, moments.exp_avg_sq)
        if moments.master is not None:
            state["master"] = as_table(weight, moments.master)
        if dealt is not None:
            state[OWNERS] = torch.tensor(weight.device_mesh.size())  # type: ignore[attr-defined]
    state["step"].fill_(number)
