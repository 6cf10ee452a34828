"""AdamW for a token table, on the rows of the batch alone."""

from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from whatwhere.errors import SettingError, ShapeError
from whatwhere.kernels.gauss import require_betas
from whatwhere.kernels.row_adamw import Moments, Step
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.what.row_table import RowTable

Tables = nn.Module | Iterable[nn.Module] | Iterable[dict[str, Any]]
_UNSUPPORTED = ("amsgrad", "maximize", "capturable", "differentiable")
_DENSE = (*_UNSUPPORTED, "foreach", "fused", "decoupled_weight_decay")
"""Options of torch.optim.AdamW that have no meaning here."""


@final
class RowAdamW(Optimizer):
    """Train a token table by AdamW, exactly, and touch only the rows of the batch.

        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
        p <- (1 - lr weight_decay) p - lr m / (1 - beta1^n) / (sqrt(v / (1 - beta2^n)) + eps)

    Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101. Dense AdamW moves every row at every step, by its
    momentum and its decay, also where no token touched it. Here such a row is brought up to date when it is next read:
    decay in closed form, the motion that it missed by a Gauss rule (kernels/gauss.py). torch.optim.SparseAdam leaves
    this motion out and computes something else.

    Args:
        embedding: a TokenEmbedding or nn.Embedding, several, or groups as PyTorch's optimizers take them, with modules
            as "params".
        lr: learning rate, 0 or more; may change from step to step, as the other settings may.
        betas: 0 <= beta1 < sqrt(beta2) < 1, and beta1 well below.
        eps: 0 or more. Where PyTorch divides 0 by 0, nothing moves here.
        weight_decay: 0 or more, and below 1 / lr.

    A table of bfloat16 or float16 has moments and a master in float32. `state_dict` goes to torch.optim.AdamW and comes
    from it. Reading or writing `embedding.weight` itself needs `flush()` first; lookups, readouts without gradient and
    `state_dict` do so by themselves. Refused: a table tied to a trained readout, whose gradient is dense.

    >>> table = TokenEmbedding(vocab_size=1000, dim=8)
    >>> optimizer = RowAdamW(table, lr=0.1)
    >>> for ids in (torch.tensor([3, 5]), torch.tensor([7])):
    ...     table(ids).square().sum().backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    >>> optimizer.flush()
    """

    def __init__(
        self,
        embedding: Tables,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **unsupported: Any,
    ) -> None:
        _refuse(unsupported)
        if unknown := sorted(set(unsupported) - set(_UNSUPPORTED)):
            raise TypeError(f"RowAdamW has no option {unknown[0]}.")
        self._tables: dict[Tensor, RowTable] = {}
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        _numbers(defaults)
        given: list[Any] = [embedding] if isinstance(embedding, nn.Module) else list(embedding)
        super().__init__(given if given and isinstance(given[0], dict) else [{"params": given}], defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add tables, with settings of their own."""
        modules = param_group["params"]
        modules = [modules] if isinstance(modules, nn.Module) else list(modules)
        if not modules:
            raise SettingError("RowAdamW got no embedding.\nPass a TokenEmbedding or nn.Embedding, or a list of them.")
        for module in modules:
            _require_table(module)
        _refuse(param_group)
        _numbers({**self.defaults, **param_group})
        weights = list(dict.fromkeys(module.weight for module in modules))
        super().add_param_group({**param_group, "params": weights})
        for module in modules:
            if module.weight not in self._tables:
                self._tables[module.weight] = RowTable(module.weight)
            self._tables[module.weight].attach(module)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step.

        Args:
            closure: computes the loss anew, with its gradients, and gives it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            lr, betas, eps, weight_decay = _numbers(group)
            for weight in group["params"]:
                if weight.grad is None:  # as in PyTorch, no step for this table
                    continue
                table = self._tables[weight]
                table.step(Step(table.number + 1, lr, betas, eps, weight_decay))
                self._tell(weight)
        return loss

    def flush(self) -> None:
        """Bring all rows up to date: before the table is read or written other than by lookups and readouts."""
        with torch.no_grad():
            for table in self._tables.values():
                table.flush()

    def release(self) -> None:
        """Flush, and leave the modules as they were; the next optimizer may be another one."""
        with torch.no_grad():
            for table in self._tables.values():
                table.release()

    def state_dict(self) -> dict[str, Any]:
        """Give the state, all rows up to date; torch.optim.AdamW can load it."""
        self.flush()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state of RowAdamW or torch.optim.AdamW, whose table the module holds."""
        for group in state_dict["param_groups"]:
            _refuse(group)
            if not group.get("decoupled_weight_decay", True) and group["weight_decay"]:
                raise SettingError("RowAdamW cannot go on from Adam, whose weight decay is part of the gradient.")
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
        """Go on with another parameter, which the groups and the modules of the old one hold by now.

        Args:
            old: up to date, see `flush`.
            new: of any number of rows.
            state: of the new one, as PyTorch's optimizers keep it; empty before the first step.
        """
        table = self._tables.pop(old)
        modules = list(table.modules)
        table.release()
        self._tables[new] = RowTable(new)
        for module in modules:
            self._tables[new].attach(module)
        if state:
            group = next(group for group in self.param_groups if any(new is weight for weight in group["params"]))
            self._resume(new, group, state)

    def __getstate__(self) -> dict[str, Any]:
        """Refuse: a copy would have no tables to stand between."""
        raise SettingError(
            "RowAdamW cannot be copied or pickled: it stands between tables and their readers.\n"
            "Build another one, and load optimizer.state_dict() into it."
        )

    def _resume(self, weight: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        moments = Moments.of(weight)
        for name in ("exp_avg", "exp_avg_sq"):
            getattr(moments, name).copy_(state[name])
        if moments.master is not None and "master" in state:
            moments.master.copy_(state["master"])
        _, betas, eps, _ = _numbers(group)
        self._tables[weight].load(moments, int(state["step"]), betas, eps)
        self.state[weight] = {}
        self._tell(weight)

    def _tell(self, weight: Tensor) -> None:
        """Show the state where PyTorch's optimizers do."""
        table, state = self._tables[weight], self.state[weight]
        moments = table.moments
        assert moments is not None
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = moments.exp_avg, moments.exp_avg_sq
            if moments.master is not None:
                state["master"] = moments.master
        state["step"].fill_(table.number)


def _numbers(group: dict[str, Any]) -> tuple[float, tuple[float, float], float, float]:
    """Give lr, betas, eps and weight decay of a group, checked."""
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


def _refuse(options: dict[str, Any]) -> None:
    for name in _UNSUPPORTED:
        if options.get(name):
            raise SettingError(f"RowAdamW got {name}=True, which it does not do.\nUse torch.optim.AdamW({name}=True).")


def _require_table(module: object) -> None:
    if not isinstance(module, TokenEmbedding | nn.Embedding):
        hint = (
            f"Pass {type(module).__name__}.tokens." if hasattr(module, "tokens") else "Pass the module, not its weight."
        )
        raise SettingError(
            f"RowAdamW needs a TokenEmbedding or nn.Embedding, whose lookups it follows, but got a "
            f"{type(module).__name__}.\n{hint}"
        )
    if isinstance(module, nn.Embedding):
        _require_plain_lookup(module)
    weight = module.weight
    if type(weight) is not nn.Parameter or type(weight.data) is not Tensor or not weight.is_floating_point():
        raise SettingError(
            "RowAdamW needs a table that is a plain nn.Parameter of floating-point numbers, but got "
            f"{type(weight.data)} of {weight.dtype}."
        )
    if weight.dim() != 2 or weight.numel() == 0 or weight.device.type == "meta":
        raise ShapeError(
            f"RowAdamW needs a table (vocab_size, dim) with values, but got {tuple(weight.shape)} on {weight.device}."
        )


def _require_plain_lookup(module: nn.Embedding) -> None:
    """Raise unless the module looks rows up and does nothing else, for RowAdamW does it in its stead."""
    if module.max_norm is not None or module.scale_grad_by_freq:
        name = "max_norm" if module.max_norm is not None else "scale_grad_by_freq"
        raise SettingError(f"RowAdamW got an nn.Embedding with {name}, which it does not know.\nUse torch.optim.AdamW.")
    patched = "forward" in vars(module) and getattr(module, "keeper", None) is None
    if type(module).forward is not nn.Embedding.forward or patched:
        raise SettingError(
            f"RowAdamW takes over the lookups of nn.Embedding, but {type(module).__name__} has a forward of its own, "
            "which would be lost.\nUse a plain nn.Embedding, or a TokenEmbedding, which can scale."
        )
