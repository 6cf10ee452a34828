"""A table among several processes: rows that this one did not look up, and gradients that nobody averages."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from whatwhere.errors import SettingError


class Watch:
    """Watch the gradients of a table, where other processes have joined.

    After DistributedDataParallel has added the rows of all processes, nobody can say who has read a row without a
    lookup. So the own rows are judged as they arrive, and the error waits for the step. `behind` returns whether any of
    some rows is not up to date.
    """

    def __init__(self, weight: nn.Parameter, behind: Callable[[Tensor], Tensor | None]) -> None:
        self._weight, self._behind = weight, behind
        self._arriving: Tensor | None = None
        self._unread: Tensor | None = None
        self.hook: RemovableHandle | None = None
        self._seen: set[tuple[int, int]] = set()
        self._ignored_by: str | None = None

    def accumulated(self) -> None:
        """Note that a gradient was accumulated."""
        if self._arriving is not None:
            self._unread = self._arriving if self._unread is None else self._unread | self._arriving
            self._arriving = None
        if self.hook is None and several():  # in time: no row is behind before the first step
            self.hook = self._weight.register_hook(self._arrive)

    def looked_up(self, modules: Sequence[nn.Module]) -> None:
        """Find out who averages the gradients of other parameters, but not of the table: once for each wrapper.

        DistributedDataParallel shows itself in a lookup, fully_shard at any time.
        """
        if (now := wrappers()) not in self._seen:
            self._seen.add(now)
            apart = (_ignored_by(module, self._weight) for module in modules)
            self._ignored_by = next((name for name in apart if name is not None), self._ignored_by)

    def require_averaged(self, modules: Sequence[nn.Module]) -> None:
        """Raise SettingError if each process would train a copy of the table by its own batch."""
        self.looked_up(modules)
        ways = {
            "fully_shard": "Use whatwhere.parallel.deal_rows, or let fully_shard have the table, with AdamW.",
            "DistributedDataParallel": "Let it have the table, or use whatwhere.parallel.deal_rows.",
        }
        if self._ignored_by is not None:
            raise SettingError(
                f"{self._ignored_by} ignores the table (ignored_params): each process would train its copy by its own "
                f"batch, and they would drift apart.\n{ways[self._ignored_by]}"
            )

    def require_read(self) -> None:
        """Raise SettingError if this process has a gradient of rows that were not up to date when they were read."""
        unread, self._unread = self._unread, None
        if unread is not None and bool(unread):
            raise SettingError(
                f"rows have a gradient on process {torch.distributed.get_rank()} of "
                f"{torch.distributed.get_world_size()}, but were not read through the embedding there, so their values "
                "were not up to date.\n"
                "Look them up with embedding(ids), or call optimizer.flush() on every process before the forward pass."
            )

    def _arrive(self, gradient: Tensor) -> None:
        before = self._weight.grad
        if before is None or (before.is_sparse and before._nnz() == 0):
            self._unread = None
        self._arriving = self._behind(gradient._indices()[0]) if gradient.is_sparse else None


def several() -> bool:
    """Return whether other processes have joined this one."""
    joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    return joined and torch.distributed.get_world_size() > 1


def wrappers() -> tuple[int, int]:
    """Return numbers that change when `fully_shard` or DistributedDataParallel has wrapped something."""
    return (len(_states()), id(_active_ddp())) if several() else (0, 0)


def ranks_that_average(module: nn.Module) -> set[int]:
    """Return the ranks over which parameters beside or around a module are averaged, as far as it shows."""
    ranks: set[int] = set()
    if not several():
        return ranks
    for unit in _fsdp_units(module):
        state: Any = unit._get_fsdp_state()
        for group in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
            if group is not None:
                ranks.update(group.mesh_info.mesh.mesh.flatten().tolist())
    if (ddp := _active_ddp()) is not None and any(module is part for part in ddp.modules()):
        ranks.update(torch.distributed.get_process_group_ranks(ddp.process_group))
    return ranks


def _ignored_by(module: nn.Module, weight: Tensor) -> str | None:
    """Return what averages the gradients of other parameters of a model, but not of this weight."""
    if not several() or getattr(module, "sharding", None) == "owners":
        return None
    if _fsdp_units(module):
        return "fully_shard"
    ddp = _active_ddp()
    inside = ddp is not None and any(module is part for part in ddp.modules())
    left_out = inside and not any(weight is each for each in ddp._module_parameters)
    return "DistributedDataParallel" if left_out or getattr(weight, "_ddp_ignored", False) else None


def _states() -> list[Any]:
    """Return the modules that `fully_shard` and its like have; the library is slow to import, and loaded with them."""
    composable = sys.modules.get("torch.distributed._composable_state")
    return [] if composable is None else list(composable._module_state_mapping)


def _fsdp_units(module: nn.Module) -> list[Any]:
    """Return the units of `fully_shard` that a module lies in."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return []
    units = (state for state in _states() if isinstance(state, fsdp.FSDPModule))
    return [unit for unit in units if any(module is part for part in unit.modules())]


def _active_ddp() -> Any:
    """Return the DistributedDataParallel in whose forward pass this is; None outside of one."""
    return nn.parallel.DistributedDataParallel._active_ddp_module
