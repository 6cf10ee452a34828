"""A token table that RowAdamW trains: rows are brought up to date when they are read."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from whatwhere.errors import SettingError
from whatwhere.kernels.gauss import StepHistory
from whatwhere.kernels.places import Places, group
from whatwhere.kernels.row_adamw import Moments, Step, catch_up, look_up, update
from whatwhere.what.embedding import lookup
from whatwhere.what.row_gradient import settle, settle_gradient, with_row_gradient

_LEAST = 4096
"""Steps that a history holds at least before all rows are brought up to date and it begins anew."""


class RowTable:
    """Keep one table, its moments, and the steps that rows have yet to take.

    Every lookup and readout of its modules comes by here: they hold it as `keeper`. Reading `weight` itself, or writing
    to it, needs `flush()` first.

    Args:
        weight: the table.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        self.weight = weight
        self.modules: list[nn.Module] = []
        self.moments: Moments | None = None
        self.history: StepHistory | None = None
        self.eps = 0.0
        self._hooks = [weight.register_post_accumulate_grad_hook(settle_gradient)]
        # What it does cannot be traced: torch.compile breaks its graph here and goes on after the lookup.
        self.lookup: Callable[[Tensor, Tensor, int | None], Tensor] = torch.compiler.disable(self._lookup)

    @property
    def number(self) -> int:
        """Give the number of the last step."""
        return 0 if self.history is None else self.history.now

    def attach(self, module: nn.Module) -> None:
        """Stand between a module and the table."""
        if any(module is other for other in self.modules):
            return
        before = getattr(module, "keeper", None)
        if isinstance(before, RowTable):
            before.release()
        self.modules.append(module)
        module.keeper = self  # type: ignore[assignment]
        if isinstance(module, nn.Embedding):
            vars(module)["forward"] = partial(_forward, module)
        self._hooks.append(module.register_state_dict_pre_hook(_before_saving))
        self._hooks.append(module.register_load_state_dict_pre_hook(_before_loading))

    def release(self) -> None:
        """Bring all rows up to date and leave the modules as they were."""
        self.flush()
        for hook in self._hooks:
            hook.remove()
        for module in self.modules:
            module.keeper = None  # type: ignore[assignment]
            vars(module).pop("forward", None)
        self.modules, self._hooks = [], []

    def flush(self) -> None:
        """Bring all rows up to date."""
        if self.history is None or self.history.count == 0:
            return
        self._written(catch_up(self._kept(), self.history, self.eps))
        self._begin(self.history.now, self.history.betas)

    def before_readout(self) -> None:
        """Bring all rows up to date for a product with the whole table; refuse one that is trained."""
        if torch.is_grad_enabled() and self.weight.requires_grad:
            raise tied_error()
        self.flush()

    def step(self, step: Step) -> None:
        """Take a step on the rows that have a gradient, and note it for the others."""
        if not self.modules or any(module.weight is not self.weight for module in self.modules):
            raise SettingError(
                "the table belongs to another optimizer now, or its module holds another weight, but RowAdamW has to "
                "stand between both.\nBuild RowAdamW anew, after the last change of the module."
            )
        gradient = settle(self.weight)
        if gradient is None:
            raise tied_error()
        if self.moments is None:
            self.moments = Moments.of(self.weight)
        if self.history is None or self.eps != step.eps:
            self.flush()
            self.eps = step.eps
            self._begin(self.number, step.betas)
        self._take(gradient._indices()[0], gradient._values(), step)

    def forget(self) -> None:
        """Begin anew, before the first step."""
        self.moments = self.history = None

    def load(self, moments: Moments, number: int, betas: tuple[float, float], eps: float) -> None:
        """Go on from a state in which all rows are up to date."""
        moments.last.fill_(number)
        self.moments, self.eps = moments, eps
        self._begin(number, betas)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Let a copy of a module go free, with its rows up to date."""
        self.flush()
        if (copied := memo.get(id(self.weight))) is not None:
            copied.data.copy_(self.weight.data)

    def __reduce__(self) -> Any:
        """Let a saved module go free; its rows are written already, so they must be up to date."""
        if self.history is not None and self.history.count:
            raise SettingError(
                "a module whose table RowAdamW trains was to be pickled while rows are behind.\n"
                "Call optimizer.flush() first, or save module.state_dict()."
            )
        return type(None), ()

    def _take(self, rows: Integer[Tensor, " rows"], values: Float[Tensor, "rows dim"], step: Step) -> None:
        table, history = self._kept(), self._steps()
        if behind := update(table, rows, values, step):
            # The other processes of a group read other rows, whose gradient comes to all.
            if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
                raise SettingError(
                    f"{behind} rows have a gradient, but were not read through the embedding, so their values were not "
                    "up to date.\nLook them up with embedding(ids), or call optimizer.flush() before the forward pass."
                )
            catch_up(table, history, self.eps, rows)
            update(table, rows, values, step)
        history.record(step.lr, step.betas, step.weight_decay)
        self._written(len(rows) > 0)
        if history.count >= max(_LEAST, len(self.weight)):
            self.flush()

    def _lookup(
        self, weight: Float[Tensor, "vocab_size dim"], ids: Integer[Tensor, "*shape"], padding_id: int | None
    ) -> Float[Tensor, "*shape dim"]:
        """Give rows that are up to date; their gradient has these rows alone."""
        if weight is not self.weight:  # put there for one call, by torch.func.functional_call
            return lookup(weight, ids, padding_id)
        trained = torch.is_grad_enabled() and weight.requires_grad
        behind = self.history is not None and self.history.count > 0
        places = None
        if (trained or behind) and ids.dtype in (torch.int64, torch.int32):
            places = group(ids.reshape(-1).long(), len(weight))
        if places is None:  # nothing to do, or ids that lookup refuses in its own words
            return lookup(weight, ids, padding_id)
        read = partial(self._read, ids, places) if behind else partial(lookup, weight.detach(), ids)
        if not trained:
            return read()
        return with_row_gradient(weight, read, places, padding_id)

    def _read(self, ids: Tensor, places: Places) -> Tensor:
        rows, moved = look_up(self._kept(), self._steps(), self.eps, ids, places)
        self._written(moved)
        return rows

    def _steps(self) -> StepHistory:
        assert self.history is not None
        return self.history

    def _kept(self) -> Moments:
        assert self.moments is not None
        weight, average = self.weight, self.moments.exp_avg
        wide = torch.promote_types(weight.dtype, torch.float32)
        if (
            weight.device != average.device
            or wide != average.dtype
            or (weight.dtype == wide) != (self.moments.master is None)
        ):
            raise SettingError(
                f"the table is {weight.dtype} on {weight.device} now, but its moments are {average.dtype} on "
                f"{average.device}.\nMove a model, or change its type, before RowAdamW is built."
            )
        return self.moments

    def _written(self, moved: bool) -> None:
        """Tell autograd that the table was written to: what was computed from the whole of it has no gradient now."""
        if moved:
            increment_version(self.weight)

    def _begin(self, number: int, betas: tuple[float, float]) -> None:
        wide = self.weight.dtype == torch.float64
        self.history = StepHistory(number, betas, wide=wide, at_zero=self.eps == 0)


def tied_error() -> SettingError:
    """Say that the gradient of this table is dense."""
    return SettingError(
        "RowAdamW got a dense gradient: a table that is also the readout (tied) has one in every row, so there are no "
        "rows to skip.\nTrain it with torch.optim.AdamW(..., fused=True). A readout that is not trained belongs under "
        "torch.no_grad()."
    )


# Hooks are plain functions that ask the module for its keeper: a copy of the module has none, and they do nothing.


def _forward(module: nn.Embedding, input: Tensor) -> Tensor:
    keeper: RowTable | None = getattr(module, "keeper", None)
    if keeper is None:
        return type(module).forward(module, input)
    return keeper.lookup(module.weight, input, module.padding_idx)


def _before_saving(module: nn.Module, *_: Any) -> None:
    if isinstance(keeper := getattr(module, "keeper", None), RowTable):
        keeper.flush()


def _before_loading(module: nn.Module, *_: Any) -> None:
    _before_saving(module)
