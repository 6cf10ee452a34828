"""A token table that RowAdamW trains: outdated rows are updated when they are read."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from whatwhere.errors import SettingError, ShapeError, TokenError
from whatwhere.initialization import own_rows, shard_offsets
from whatwhere.kernels.adamw_catch_up import StepHistory
from whatwhere.kernels.group_by_row import GroupedSlots, group
from whatwhere.kernels.row_adamw import FIXED, Moments, Step, catch_up, look_up, update, updates_on_gpu
from whatwhere.what.embedding import TokenEmbedding, lookup
from whatwhere.what.row_adamw.gradient import (
    RowGradient,
    Watch,
    by_row,
    coalesce,
    not_finite_error,
    several,
    with_row_gradient,
)

MIN_HISTORY = 4096  # steps that a history has at least before all rows are updated and it starts again


def fixed_rows(weight: Tensor, trained: Sequence[int] | Integer[Tensor, " rows"] | None) -> Tensor | None:
    """Return which rows of a table are fixed, where only those of some ids are trained; None where all are."""
    if trained is None:
        return None
    ids = torch.as_tensor(trained if isinstance(trained, Tensor) else list(trained))
    if ids.dim() != 1 or not len(ids) or ids.is_floating_point() or ids.dtype == torch.bool:
        raise SettingError(
            f"the rows to train are ids, such as range(32000, 32008), but {len(trained)} of another form were given.\n"
            "Pass at least one id, in one dimension; None trains all rows."
        )
    if not 0 <= int(ids.min()) <= (last := int(ids.max())) < len(weight):
        wrong = int(ids.min()) if int(ids.min()) < 0 else last
        raise TokenError(f"row {wrong} lies outside the table, which has the rows 0..{len(weight) - 1}.")
    fixed = torch.ones(len(weight), dtype=torch.bool, device=weight.device)
    fixed[ids.to(weight.device)] = False
    return fixed


class RowTable:
    """A table, its optimizer state, and the steps that outdated rows have missed.

    Every lookup and `readout` of its modules goes through it: they refer to it as `keeper`. Call `flush()` before
    `weight` itself is read or written. Rows that are `fixed` keep every bit; None trains all.
    """

    def __init__(self, weight: nn.Parameter, fixed: Bool[Tensor, " rows"] | None = None) -> None:
        self.weight = weight
        self._first = (shard_offsets(weight) or (0,))[0]
        self.fixed = fixed
        self.modules: list[nn.Embedding] = []
        self.moments: Moments | None = None
        self.history: StepHistory | None = None
        self.eps = 0.0
        self._looked_up: GroupedSlots | None = None
        self._watch = Watch(weight, self._any_behind)
        self._hooks = [weight.register_post_accumulate_grad_hook(self._accumulated)]
        # It cannot be traced: torch.compile breaks its graph here and continues after the lookup.
        self.lookup: Callable[[Tensor, Tensor, int | None], Tensor] = torch.compiler.disable(self._lookup)

    @property
    def number(self) -> int:
        """The number of the last step."""
        return 0 if self.history is None else self.history.now

    @property
    def dealt(self) -> int | None:
        """The number of ids, where rows are in the order of owners (`whatwhere.parallel.deal_rows`); else None."""
        ids = (each.num_embeddings for each in self.modules if getattr(each, "sharding", None) == "owners")
        return next(ids, None)

    def attach(self, module: nn.Embedding) -> None:
        """Route the lookups of a module through this table."""
        if any(module is other for other in self.modules):
            return
        before = getattr(module, "keeper", None)
        if isinstance(before, RowTable):
            before.release()
        self.modules.append(module)
        module.keeper = self  # type: ignore[assignment]
        if not isinstance(module, TokenEmbedding):  # TokenEmbedding.forward calls its keeper
            vars(module)["forward"] = partial(_forward, module)
        self._hooks.append(module.register_state_dict_pre_hook(_flush_table))
        self._hooks.append(module.register_load_state_dict_pre_hook(_flush_table))

    def release(self) -> None:
        """Update all rows and restore the modules."""
        self.flush()
        for hook in self._hooks:
            hook.remove()
        if self._watch.hook is not None:
            self._watch.hook.remove()
        for module in self.modules:
            module.keeper = None  # type: ignore[assignment]
            if not isinstance(module, TokenEmbedding):
                vars(module).pop("forward", None)
        self.modules, self._hooks = [], []

    def flush(self) -> None:
        """Update all rows, and wait for a GPU; SettingError if it has refused a step."""
        if self.history is None or self.history.count == 0:
            return
        self._update_all_rows()
        if self.weight.device.type == "cuda":
            torch.cuda.current_stream(self.weight.device).synchronize()
        self._require_accepted()

    def before_readout(self) -> None:
        """Update all rows before a product with the whole table; SettingError if that is trained."""
        if torch.is_grad_enabled() and self.weight.requires_grad:
            raise tied_error()
        self.flush()

    def require_weight(self) -> None:
        """Raise SettingError if gradients of a module would never come here, or not those of other processes."""
        if any(module.weight is not self.weight for module in self.modules):
            raise SettingError(
                "the module of a table has another weight than when RowAdamW was made, as after fully_shard or an "
                "assignment: the new one would never be trained.\nCreate RowAdamW after the last change of the module."
            )
        self._watch.require_averaged(self.modules)

    def step(self, step: Step) -> None:
        """Update the rows that have a gradient, and record the step for the others.

        A GPU is not waited for: what is refused there is raised by a later step or by `flush`.
        """
        if not self.modules:
            raise SettingError("the table belongs to another optimizer now.\nCreate RowAdamW again to train it here.")
        self._watch.require_read()
        gradient = self._coalesce(self.weight)
        if gradient is None:
            # A dense gradient of zeros is one of no rows: distributed checkpoints start an optimizer's state by one.
            assert self.weight.grad is not None
            if bool(own_rows(self.weight.grad).any()):
                raise tied_error()
            none = torch.zeros(0, dtype=torch.int64, device=self.weight.device)
            gradient = by_row(none, own_rows(self.weight).detach()[:0], self.weight.shape)
        if self.moments is None:
            self.moments = Moments.of(own_rows(self.weight))
            self._fix_rows()
        rows, values = gradient._indices()[0], gradient._values()
        self._require_accepted()
        if updates_on_gpu(self.moments, rows, values) is None:
            gradient.require_finite()
        if self.history is None or self.eps != step.eps:
            self.flush()
            self.eps = step.eps
            self._start_history(self.number, step.betas)
        self._update(rows - self._first if self._first else rows, values, step, gradient.rest)

    def _coalesce(self, weight: Tensor) -> RowGradient | None:
        """Coalesce the gradient, drop frozen rows, and return it; None if it is dense."""
        gradient = coalesce(weight, self._looked_up)
        if gradient is None or self.fixed is None:
            return gradient
        rows, values = gradient._indices()[0], gradient._values()
        trained = ~self.fixed.to(rows.device)[rows]
        if rows.is_cuda:  # which is not waited for: the step leaves frozen rows as they are
            values.masked_fill_(~trained[:, None], 0)
            return gradient
        if bool(trained.all()):
            return gradient
        kept = weight.grad = by_row(rows[trained], values[trained], gradient.shape)
        kept.rest = gradient.rest
        return kept

    def _accumulated(self, weight: Tensor) -> None:
        self._coalesce(weight)  # now: it must be, without frozen rows, when it is clipped
        self._watch.accumulated()

    def _any_behind(self, rows: Integer[Tensor, " rows"]) -> Tensor | None:
        """Return whether any of some rows is not up to date; None where none can be."""
        if self.moments is None or own_rows(self.weight) is not self.weight:
            return None
        return (self.moments.last[rows] < self.number).any()

    def _fix_rows(self) -> None:
        """Mark frozen rows as up to date for ever, so that no step is caught up with."""
        if self.fixed is not None and self.moments is not None:
            self.moments.last[self.fixed.to(self.moments.last.device)] = FIXED

    def forget(self) -> None:
        """Reset to the state before the first step."""
        self.moments = self.history = None

    def load(self, moments: Moments, number: int, betas: tuple[float, float], eps: float) -> None:
        """Load a state in which all rows are up to date."""
        moments.last.fill_(number)
        self.moments, self.eps = moments, eps
        self._fix_rows()
        self._start_history(number, betas)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Detach a copy of a module, after updating its rows."""
        self.flush()
        if (copied := memo.get(id(self.weight))) is not None:
            copied.data.copy_(self.weight.data)

    def __reduce__(self) -> Any:
        """Detach a pickled module; its rows are written already, so they must be up to date."""
        if self.history is not None and self.history.count:
            raise SettingError(
                "a module whose table RowAdamW trains cannot be pickled while rows are outdated.\n"
                "Call optimizer.flush() first, or save module.state_dict()."
            )
        return type(None), ()

    def _update_all_rows(self) -> None:
        history = self._steps()
        self._mark_written(catch_up(self._checked_moments(), history, self.eps))
        self._start_history(history.now, history.betas)

    def _require_accepted(self) -> None:
        """Raise SettingError if an earlier step was refused on a GPU, as far as that is known."""
        if self.moments is None or not (problem := self.moments.refused()):
            return
        self.moments.flag.zero_()
        raise _unread_error("some") if problem == 1 else not_finite_error()

    def _update(
        self, rows: Integer[Tensor, " rows"], values: Float[Tensor, "rows dim"], step: Step, rest: Tensor | None
    ) -> None:
        table, history = self._checked_moments(), self._steps()
        # The other processes of a group read other rows, whose gradient comes to all.
        shared = several() and own_rows(self.weight) is self.weight
        if shared and rows.is_cuda:
            catch_up(table, history, self.eps, rows)
        if behind := update(table, rows, values, step, rest):
            if not shared:
                raise _unread_error(str(behind))
            catch_up(table, history, self.eps, rows)
            update(table, rows, values, step)
        history.record(step.lr, step.betas, step.weight_decay)
        self._mark_written(len(rows) > 0)
        if history.count >= max(MIN_HISTORY, len(self.weight)):
            self._update_all_rows()

    def _lookup(
        self, weight: Float[Tensor, "vocab_size dim"], ids: Integer[Tensor, "*shape"], padding_idx: int | None
    ) -> Float[Tensor, "*shape dim"]:
        if weight is not self.weight:  # replaced for one call by torch.func.functional_call
            return lookup(weight, ids, padding_idx)
        trained, own = torch.is_grad_enabled() and weight.requires_grad, own_rows(weight)
        if trained:
            self._watch.looked_up(self.modules)
        behind = self.history is not None and self.history.count > 0
        slots = None
        if (trained or behind) and ids.dtype in (torch.int64, torch.int32):
            slots = group(ids.reshape(-1).long(), len(own))
        if slots is None:  # nothing to update, or ids that `lookup` rejects
            return lookup(own, ids, padding_idx)
        read = partial(self._read, ids, slots) if behind else partial(lookup, own.detach(), ids)
        if not trained:
            return read()
        self._looked_up = slots
        return with_row_gradient(weight, read, slots, padding_idx, self._first)

    def _read(self, ids: Tensor, slots: GroupedSlots) -> Tensor:
        rows, changed = look_up(self._checked_moments(), self._steps(), self.eps, ids, slots)
        self._mark_written(changed)
        return rows

    def _steps(self) -> StepHistory:
        assert self.history is not None
        return self.history

    def _checked_moments(self) -> Moments:
        assert self.moments is not None
        weight, average = own_rows(self.weight), self.moments.exp_avg
        if weight.shape != average.shape:
            raise ShapeError(
                f"the table has shape {tuple(weight.shape)} now, but its optimizer state {tuple(average.shape)}.\n"
                "Pass the optimizer to whatwhere.what.resizing.resize, or create it again after resizing."
            )
        wide = torch.promote_types(weight.dtype, torch.float32)
        if (
            weight.device != average.device
            or wide != average.dtype
            or (weight.dtype == wide) != (self.moments.master is None)
            or weight is not self.moments.weight
        ):
            raise SettingError(
                f"the table is {weight.dtype} on {weight.device} now, but its optimizer state {average.dtype} on "
                f"{average.device}.\nMove a model, or change its type, before you create RowAdamW."
            )
        return self.moments

    def _mark_written(self, changed: bool) -> None:
        """Increment the version of the table for autograd: results computed from all of it have no valid gradient."""
        if changed:
            increment_version(self.weight)

    def _start_history(self, number: int, betas: tuple[float, float]) -> None:
        wide = self.weight.dtype == torch.float64
        self.history = StepHistory(number, betas, wide=wide, at_zero=self.eps == 0)


def tied_error() -> SettingError:
    """Return the error for a table with a dense gradient."""
    return SettingError(
        "RowAdamW got a dense gradient: a table that is also the output projection (tied) has one in every row, so no "
        "row can be skipped.\nTrain it with torch.optim.AdamW(..., fused=True). Compute logits that are not "
        "trained under torch.no_grad()."
    )


def _unread_error(rows: str) -> SettingError:
    return SettingError(
        f"{rows} rows have a gradient, but were not read through the embedding, so their values were not up to date.\n"
        "Look them up with embedding(ids), or call optimizer.flush() before the forward pass."
    )


# Hooks look up the keeper of the module they are called with: a copy of the module has none, and they do nothing.


def _forward(module: nn.Embedding, input: Tensor) -> Tensor:
    keeper: RowTable | None = getattr(module, "keeper", None)
    if keeper is None:
        return type(module).forward(module, input)
    return keeper.lookup(module.weight, input, module.padding_idx)


def _flush_table(module: nn.Module, *_: Any) -> None:
    if isinstance(keeper := getattr(module, "keeper", None), RowTable):
        keeper.flush()
