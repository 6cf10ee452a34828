"""AdamW for token tables that updates only the rows of the batch, exactly."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, Generic, TypeVar, final

import torch
from jaxtyping import Integer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from whatwhere.errors import SettingError, ShapeError
from whatwhere.initialization import own_rows, shard_offsets
from whatwhere.kernels.adamw_catch_up import require_betas
from whatwhere.kernels.row_adamw import Moments, Step
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.what.row_adamw.table import RowTable, fixed_rows

Rows = Sequence[int] | Integer[Tensor, " rows"]
_UNSUPPORTED = ("amsgrad", "maximize", "capturable", "differentiable")
_DENSE = (*_UNSUPPORTED, "foreach", "fused", "decoupled_weight_decay")
"""Options of torch.optim.AdamW that have no meaning here."""
_SETTINGS = ("lr", "betas", "eps", "weight_decay")


Table = TypeVar("Table")
Modules = nn.Module | Iterable[nn.Module] | Iterable[dict[str, Any]]
Settings = tuple[float, tuple[float, float], float, float]  # lr, betas, eps and weight decay


class RowOptimizer(Optimizer, ABC, Generic[Table]):
    """An optimizer that trains each token table by an object of its own; its groups are made of modules."""

    trains: str  # the modules that it trains, for its errors

    def __init__(self, modules: Modules, defaults: dict[str, Any]) -> None:
        self._tables: dict[Tensor, Table] = {}
        self._settings(defaults)
        groups: list[Any] = [modules] if isinstance(modules, nn.Module) else list(modules)
        super().__init__(groups if groups and isinstance(groups[0], dict) else [{"params": groups}], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step for each table with a gradient; SettingError if it is dense, not finite, or of unread rows."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step([(weight, self._settings(group)) for group in self.param_groups for weight in group["params"]])
        return loss

    @abstractmethod
    def _step(self, weights: Sequence[tuple[Tensor, Settings]]) -> None:
        """Update tables, each by its settings."""

    def _settings(self, group: dict[str, Any]) -> Settings:
        """Return lr, betas, eps and weight decay of a group, checked."""
        lr, eps, weight_decay = (float(group[name]) for name in ("lr", "eps", "weight_decay"))
        (beta1, beta2), own = (float(beta) for beta in group["betas"]), type(self).__name__
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if not (isfinite(value) and value >= 0):
                raise SettingError(f"{own} got {name}={value!r}, but needs a finite number of at least 0.")
        if lr * weight_decay >= 1:
            raise SettingError(
                f"{own} got lr={lr:.6g} and weight_decay={weight_decay:.6g}, but needs a product below 1: a step keeps "
                "1 - lr weight_decay of a weight.\nLower one of them."
            )
        require_betas(beta1, beta2)
        return lr, (beta1, beta2), eps, weight_decay

    def _modules(self, group: dict[str, Any]) -> list[Any]:
        """Return the modules of a group, at least one."""
        modules = group["params"]
        modules = [modules] if isinstance(modules, nn.Module) else list(modules)
        if not modules:
            raise SettingError(f"{type(self).__name__} got no embedding.\nPass a {self.trains}, or a list of them.")
        return modules


@final
class RowAdamW(RowOptimizer[RowTable]):
    """AdamW for token tables that updates only the rows of the batch, with the result of dense AdamW.

        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
        p <- (1 - lr weight_decay) p - lr m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + eps)

    Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101. Dense AdamW updates every row at every step, by its
    momentum and weight decay, even without a gradient. Here, rows that recent batches did not contain are updated when
    they are next read: the decay in closed form, the skipped momentum steps by Gauss quadrature. torch.optim.SparseAdam
    omits these steps and computes something else.

    Args:
        embedding: a TokenEmbedding or nn.Embedding, several, or groups as PyTorch's optimizers take them, with modules
            as "params".
        lr: learning rate, 0 or more; may change from step to step, as the other settings may.
        betas: 0 <= beta1 < sqrt(beta2) < 1, and beta1 well below.
        eps: 0 or more. Where PyTorch divides 0 by 0, nothing moves here.
        weight_decay: 0 or more, and below 1 / lr.
        rows: ids of the only rows that are trained, such as those of new tokens; all others keep every bit, without
            weight decay. None trains all.

    A table of bfloat16 or float16 has optimizer state and a master copy in float32. `state_dict` is compatible with
    torch.optim.AdamW in both directions. Call `flush()` before you read or write `embedding.weight` itself; lookups,
    `readout` without gradient and `state_dict` do so by themselves. Pass every module that shares the table: one that
    was not passed reads outdated rows, which cannot be detected. A table tied to a trained output projection is
    rejected, because its gradient is dense.

    Raises:
        SettingError: If a setting is out of range, an option is not supported, or a module is not a plain embedding.
        ShapeError: If a table is empty, or has no values yet.

    Examples:
        >>> table = TokenEmbedding(1000, 8)
        >>> optimizer = RowAdamW(table, lr=0.1)
        >>> for ids in (torch.tensor([3, 5]), torch.tensor([7])):
        ...     table(ids).square().sum().backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        >>> optimizer.flush()
    """

    trains = "TokenEmbedding or nn.Embedding"

    def __init__(
        self,
        embedding: Modules,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        rows: Rows | None = None,
        **unsupported: Any,
    ) -> None:
        _refuse(unsupported)
        if unknown := sorted(set(unsupported) - set(_UNSUPPORTED)):
            raise TypeError(f"RowAdamW has no option {unknown[0]}.")
        self._rows = rows
        super().__init__(embedding, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add tables with their own settings: `rows` as in the constructor, whose are the default.

        Raises:
            SettingError, ShapeError: As the constructor raises them.
        """
        modules = self._modules(param_group)
        for module in modules:
            _require_table(module)
        rows = param_group.pop("rows", self._rows)
        if rows is not None and any(own_rows(module.weight) is not module.weight for module in modules):
            raise SettingError("rows= chooses rows of a table that one process has whole.\nTrain all rows of shards.")
        fixed = {module: fixed_rows(module.weight, rows) for module in modules}
        self._settings({**self.defaults, **param_group})
        weights = list(dict.fromkeys(module.weight for module in modules))
        super().add_param_group({**param_group, "params": weights})
        for module in modules:
            if module.weight not in self._tables:
                self._tables[module.weight] = RowTable(module.weight, fixed[module])
            self._tables[module.weight].attach(module)

    def trains_some(self, weight: Tensor) -> bool:
        """Return whether only some rows of a table are trained."""
        return self._tables[weight].fixed is not None

    def _step(self, weights: Sequence[tuple[Tensor, Settings]]) -> None:
        for weight, settings in weights:
            table = self._tables[weight]
            table.require_weight()
            if _OWNERS in (state := self.state.get(weight, {})):  # a checkpoint may have been read into it
                _require_owners(weight, state[_OWNERS], table.dealt)
            if weight.grad is not None:  # else, as in PyTorch, no step for this table
                table.step(Step(table.number + 1, *settings))
                _publish(self.state[weight], table)

    def _settings(self, group: dict[str, Any]) -> Settings:
        _refuse(group)
        return super()._settings(group)

    def flush(self) -> None:
        """Update all rows: needed before the table is read or written other than by lookups and `readout`."""
        with torch.no_grad():
            for table in self._tables.values():
                table.flush()

    def release(self) -> None:
        """Flush, and restore the modules; another optimizer can train them afterwards."""
        with torch.no_grad():
            for table in self._tables.values():
                table.release()

    def state_dict(self) -> dict[str, Any]:
        """Return the state after updating all rows; torch.optim.AdamW can load it."""
        self.flush()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state of RowAdamW or torch.optim.AdamW; load the module with its table beside it.

        Raises:
            SettingError: If it lacks a key, is of another optimizer, or its rows are in the order of other owners.
            ShapeError: If it is of other tables or groups.
        """
        self._require_state(state_dict)
        self.flush()
        groups = [{k: v for k, v in group.items() if k not in _DENSE} for group in state_dict["param_groups"]]
        super().load_state_dict({"state": state_dict["state"], "param_groups": groups})
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        weights = [(group, weight) for group in self.param_groups for weight in group["params"]]
        for number, (group, weight) in zip(numbers, weights, strict=True):
            self._tables[weight].forget()
            if state := state_dict["state"].get(number):
                self._resume(weight, group, state)

    def exchange(self, old: nn.Parameter, new: nn.Parameter, state: dict[str, Any]) -> None:
        """Replace a parameter, which the groups and the modules have replaced already, after `flush`.

        `state` is that of the new one, as PyTorch's optimizers store it; empty before the first step.
        """
        table = self._tables.pop(old)
        assert table.fixed is None  # resizing has refused
        modules = list(table.modules)
        table.release()
        self._tables[new] = RowTable(new)
        for module in modules:
            self._tables[new].attach(module)
        if state:
            group = next(group for group in self.param_groups if any(new is weight for weight in group["params"]))
            self._resume(new, group, state)

    def __getstate__(self) -> dict[str, Any]:
        raise SettingError(
            "RowAdamW cannot be copied or pickled, because it is attached to modules.\n"
            "Create another one, and load optimizer.state_dict() into it."
        )

    def _require_state(self, state_dict: dict[str, Any]) -> None:
        """Raise unless a state is that of AdamW for tables of these shapes."""
        _require_names(state_dict, ("state", "param_groups"))
        groups = state_dict["param_groups"]

        def require_equal(what: str, own: int, given: int) -> None:
            if own != given:
                raise ShapeError(
                    f"RowAdamW has {own} {what}, but the state {given}.\nCreate it with the same tables, in the same "
                    "groups; other parameters need an optimizer of their own."
                )

        require_equal("groups", len(self.param_groups), len(groups))
        for own, group in zip(self.param_groups, groups, strict=True):
            _require_names(group, _SETTINGS)
            _refuse(group)
            if not group.get("decoupled_weight_decay", True) and group["weight_decay"]:
                raise SettingError(
                    "RowAdamW cannot load the state of Adam, whose weight decay is part of the gradient."
                )
            require_equal("tables in a group", len(own["params"]), len(group["params"]))
            for weight, number in zip(own["params"], group["params"], strict=True):
                if state := state_dict["state"].get(number):
                    _require_moments(weight, state, self._tables[weight].dealt)

    def _resume(self, weight: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        moments, dealt = Moments.of(own_rows(weight)), self._tables[weight].dealt
        for name in ("exp_avg", "exp_avg_sq"):
            getattr(moments, name).copy_(_own_part(state[name], weight, dealt))
        if moments.master is not None and "master" in state:
            moments.master.copy_(_own_part(state["master"], weight, dealt))
        _, betas, eps, _ = self._settings(group)
        self._tables[weight].load(moments, int(state["step"]), betas, eps)
        self.state[weight] = {}
        _publish(self.state[weight], self._tables[weight])


def _refuse(options: dict[str, Any]) -> None:
    for name in _UNSUPPORTED:
        if options.get(name):
            raise SettingError(
                f"RowAdamW got {name}=True, which it does not support.\nUse torch.optim.AdamW({name}=True)."
            )


def _require_table(module: object) -> None:
    if not isinstance(module, nn.Embedding):
        hint = (
            f"Pass {type(module).__name__}.tokens." if hasattr(module, "tokens") else "Pass the module, not its weight."
        )
        raise SettingError(
            f"RowAdamW needs a TokenEmbedding or nn.Embedding, but got a {type(module).__name__}.\n{hint}"
        )
    patched = "forward" in vars(module) and getattr(module, "keeper", None) is None
    if not isinstance(module, TokenEmbedding):  # RowAdamW replaces its forward, so it must look rows up and no more
        for name, off in (("max_norm", None), ("scale_grad_by_freq", False)):
            if getattr(module, name) is not off:
                raise SettingError(
                    f"RowAdamW got an nn.Embedding with {name}, which it does not support.\nUse torch.optim.AdamW."
                )
        if type(module).forward is not nn.Embedding.forward or patched:
            raise SettingError(
                f"RowAdamW replaces the forward of nn.Embedding, but {type(module).__name__} has a forward of its own."
                "\nUse a plain nn.Embedding, or a TokenEmbedding, which can scale."
            )
    if not isinstance(getattr(module, "keeper", None), RowTable | None):
        raise SettingError(
            f"RowAdamW trains tables in memory, but the rows of this {type(module).__name__} are in a file.\n"
            "Use FileRowAdamW of whatwhere.what.file_table."
        )
    weight: Any = module.weight
    if getattr(module, "sharding", None) is not None and weight.is_floating_point():
        if len(weight.placements) != 1 or not weight.placements[0].is_shard(0) or weight.is_meta:
            raise SettingError(
                f"RowAdamW trains a table with values that is sharded by rows alone, but this one is "
                f"{weight.placements} on {weight.device}.\nUse torch.optim.AdamW, or give it values first."
            )
        return
    if own_rows(weight) is not weight:
        raise SettingError(
            "RowAdamW needs the rows that are read, but this table is gathered whole before each lookup, and its "
            "gradient is dense.\nUse torch.optim.AdamW with fully_shard, or whatwhere.parallel.deal_rows instead of it."
        )
    if type(weight) is not nn.Parameter or type(weight.data) is not Tensor or not weight.is_floating_point():
        raise SettingError(
            "RowAdamW needs a table that is a plain nn.Parameter of floating-point numbers, but got "
            f"{type(weight.data)} of {weight.dtype}."
        )
    if weight.dim() != 2 or weight.numel() == 0 or weight.device.type == "meta":
        raise ShapeError(
            f"RowAdamW needs a table (vocab_size, dim) with values, but got {tuple(weight.shape)} on {weight.device}."
        )


_OWNERS = "owners"  # the key of the number of owners, beside moments in their order


def _as_table(weight: Tensor, values: Tensor) -> Tensor:
    """Return values of a process's rows as a tensor of the whole table, a DTensor where the table is one."""
    if own_rows(weight) is weight:
        return values
    from torch.distributed.tensor import DTensor

    assert isinstance(weight, DTensor)
    mesh, placements = weight.device_mesh, weight.placements
    return DTensor.from_local(
        values, mesh, placements, run_check=False, shape=weight.shape, stride=(weight.shape[1], 1)
    )


def _own_part(values: Tensor, weight: Tensor, dealt: int | None) -> Tensor:
    """Return the rows of this process of a state, perhaps of the whole table; `dealt` ids of a table on owners."""
    if dealt is not None and len(values) == dealt:
        whole: Tensor = values.full_tensor() if hasattr(values, "full_tensor") else values
        mesh: Any = weight.device_mesh  # type: ignore[attr-defined]
        rows = whole[mesh.get_local_rank() :: mesh.size()]
        return F.pad(rows, (0, 0, 0, len(own_rows(weight)) - len(rows)))
    if own_rows(weight) is weight or own_rows(values) is not values:
        return own_rows(values)
    first = (shard_offsets(weight) or (0,))[0]
    return values[first : first + len(own_rows(weight))]


def _require_moments(weight: Tensor, state: dict[str, Any], dealt: int | None) -> None:
    _require_names(state, ("step", "exp_avg", "exp_avg_sq"))
    values = {name: state[name] for name in ("exp_avg", "exp_avg_sq", "master") if state.get(name) is not None}
    shape = tuple(weight.shape)
    by_id = (dealt, shape[1])
    if all(tuple(value.shape) == by_id for value in values.values()):
        return
    _require_owners(weight, state.get(_OWNERS), dealt)
    for name, value in values.items():
        if tuple(value.shape) != shape:
            raise ShapeError(
                f"the state's {name!r} has shape {tuple(value.shape)}, but the table {shape}.\n"
                "Load the state of this table, or resize the table together with its optimizer."
            )


def _require_owners(weight: Tensor, stored: Tensor | None, dealt: int | None) -> None:
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


def _require_names(state: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name not in state:
            raise SettingError(
                f"RowAdamW loads a state of RowAdamW or torch.optim.AdamW, but this one has no {name!r}.\n"
                "Start without it, or train with the optimizer that saved it."
            )


def _publish(state: dict[str, Any], table: RowTable) -> None:
    """Write the state of a table to where PyTorch's optimizers store it."""
    moments, weight = table.moments, table.weight
    assert moments is not None
    if not state:
        state["step"] = torch.zeros((), dtype=torch.float32)
        for name in ("exp_avg", "exp_avg_sq", "master"):
            if (values := getattr(moments, name)) is not None:
                state[name] = _as_table(weight, values)
        if table.dealt is not None:
            state[_OWNERS] = torch.tensor(weight.device_mesh.size())  # type: ignore[attr-defined]
    state["step"].fill_(table.number)
