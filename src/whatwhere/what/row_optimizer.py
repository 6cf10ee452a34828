"""What optimizers of token tables share: groups of modules, checked settings, and steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from whatwhere.errors import SettingError
from whatwhere.kernels.adamw_catch_up import require_betas

Table = TypeVar("Table")
Modules = nn.Module | Iterable[nn.Module] | Iterable[dict[str, Any]]
Settings = tuple[float, tuple[float, float], float, float]
"""lr, betas, eps and weight decay."""


class RowOptimizer(Optimizer, ABC, Generic[Table]):
    """An optimizer that trains each token table by an object of its own; its groups are made of modules."""

    trains: str
    """The modules that it trains, for its errors."""

    def __init__(self, modules: Modules, defaults: dict[str, Any]) -> None:
        self._tables: dict[Tensor, Table] = {}
        self._settings(defaults)
        groups: list[Any] = [modules] if isinstance(modules, nn.Module) else list(modules)
        super().__init__(groups if groups and isinstance(groups[0], dict) else [{"params": groups}], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the tables from their gradients: one step for each table that has one.

        Raises:
            SettingError: If a gradient is dense or not finite, or its rows were not read through the embedding.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step([(weight, self._settings(group)) for group in self.param_groups for weight in group["params"]])
        return loss

    @abstractmethod
    def _step(self, weights: Sequence[tuple[Tensor, Settings]]) -> None:
        """Update tables, each by its settings."""

    @abstractmethod
    def _settings(self, group: dict[str, Any]) -> Settings:
        """Return the settings of a group, checked."""

    def _modules(self, group: dict[str, Any]) -> list[Any]:
        """Return the modules of a group, at least one."""
        modules = group["params"]
        modules = [modules] if isinstance(modules, nn.Module) else list(modules)
        if not modules:
            raise SettingError(f"{type(self).__name__} got no embedding.\nPass a {self.trains}, or a list of them.")
        return modules


def checked_settings(group: dict[str, Any]) -> Settings:
    """Return lr, betas, eps and weight decay of a group, checked.

    Raises:
        SettingError: If one is out of range.
    """
    lr, eps, weight_decay = (float(group[name]) for name in ("lr", "eps", "weight_decay"))
    beta1, beta2 = (float(beta) for beta in group["betas"])
    for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
        if not (isfinite(value) and value >= 0):
            raise SettingError(f"RowAdamW got {name}={value!r}, but needs a finite number of at least 0.")
    if lr * weight_decay >= 1:
        raise SettingError(
            f"RowAdamW got lr={lr:.6g} and weight_decay={weight_decay:.6g}, but needs a product below 1: a step keeps "
            "1 - lr weight_decay of a weight.\nLower one of them."
        )
    require_betas(beta1, beta2)
    return lr, (beta1, beta2), eps, weight_decay
