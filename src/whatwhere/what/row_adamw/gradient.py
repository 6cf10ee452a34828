"""The gradient of a token table as a sparse tensor, each row of the batch once, also among several processes."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from whatwhere.errors import SettingError
from whatwhere.kernels.group_by_row import GroupedSlots, first_slots, group, sum_by_row

# torch.sparse_coo_tensor without a look at the rows: PyTorch 2.11 warns of each call that leaves it out, too.
sparse_tensor: Any = torch.ops.aten._sparse_coo_tensor_unsafe.default

_NORMS = {torch._foreach_norm, torch.linalg.vector_norm, torch.norm, Tensor.norm}
_SCALINGS = {torch._foreach_mul_, torch._foreach_div_, Tensor.mul_, Tensor.div_}
_IN_PLACE = {Tensor.mul_, Tensor.div_, Tensor.clamp_}
_ZEROINGS = {torch._foreach_zero_, Tensor.zero_}
_BOUNDS = {torch._foreach_clamp_min_, torch._foreach_clamp_max_, Tensor.clamp_}


class RowGradient(Tensor):
    """A sparse gradient with each row once, which can be clipped.

    PyTorch's `clip_grad_norm_` and `clip_grad_value_` need operations that sparse tensors lack. Here they operate on
    the stored rows, with the same result as on the dense gradient. Everything else is that of torch.sparse_coo.

    Attributes:
        rest: the value of all other rows after scaling: NaN once they were scaled by NaN or infinity. None is zero.
        sharded: whether other processes have gradients of other rows, so that a norm of these is not that of all.
        repeated: where rows were not counted, on a GPU: the row of each slot, with the gradient at its first slot and
            zeros at the others. It is out of date once another gradient was added.
    """

    rest: Tensor | None = None
    sharded: bool = False
    repeated: Tensor | None = None

    def require_finite(self) -> None:
        """Raise SettingError if it was scaled by NaN or infinity, with all rows that are not stored."""
        if self.rest is not None and self.rest != 0:
            raise not_finite_error()

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Apply norms, scalings and clamps to the stored rows."""
        kwargs = kwargs or {}
        if function in _NORMS:
            _require_all_rows(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            if not _same_for_zeros(function, args[1:], kwargs):
                for gradient in _flat([args[0]]) if function in _ZEROINGS else ():
                    if isinstance(gradient, RowGradient):
                        gradient.rest = None
                return function(*args, **kwargs)
            if function in _SCALINGS:
                _scale_rest(args[0], function in (torch._foreach_mul_, Tensor.mul_), *args[1:], *kwargs.values())
            # Zeros affect a norm of negative order: they are its minimum, or 1 / 0 outweighs all others.
            orders = [n for n in (*args[1:], *kwargs.values()) if isinstance(n, int | float)]
            padded = function in _NORMS and any(n < 0 for n in orders)
            result = function(_values(args[0], padded), *args[1:], **kwargs)
        return args[0] if function in _IN_PLACE else result


def not_finite_error() -> SettingError:
    """Return the error for a gradient that was scaled by NaN or infinity."""
    return SettingError(
        "the gradient was scaled by NaN or infinity, which would make the whole table NaN.\nSkip this step: "
        "see the norm that clip_grad_norm_ returns, or pass it error_if_nonfinite=True."
    )


def by_row(rows: Tensor, values: Float[Tensor, "rows dim"], shape: torch.Size, repeated: bool = False) -> RowGradient:
    """Create a gradient of a table of some shape from ascending rows, each once or `repeated`, and their values."""
    sparse = sparse_tensor(rows[None], values, shape, is_coalesced=not repeated)
    gradient: RowGradient = Tensor._make_subclass(RowGradient, sparse)
    gradient.repeated = rows if repeated else None
    return gradient


# Private: without it gradients of float16 are those of PyTorch, which refuses to add them.
_without_dispatch = getattr(torch._C, "_DisableTorchDispatch", None)


class _HalfGradient(Tensor):
    """A sparse gradient of float16: PyTorch adds no two of them on a CPU, as of several lookups or backward passes.

    The lookups of one backward pass are summed in float32 and rounded once, a dense gradient at each addition.
    """

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        assert _without_dispatch is not None
        with _without_dispatch():
            adds = function in (torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor) and not kwargs  # no alpha
            if not adds or not all(isinstance(each, Tensor) and each.is_sparse for each in args):
                return function(*args, **kwargs or {})
            a, b = args
            rows, values = torch.cat([a._indices(), b._indices()], 1), torch.cat([a._values(), b._values()])
            total = sparse_tensor(rows, values, a.shape)
            return a.copy_(total) if function is torch.ops.aten.add_.Tensor else Tensor._make_subclass(cls, total)


def coalesce(weight: Tensor, slots: GroupedSlots | None = None) -> RowGradient | None:
    """Coalesce the gradient of a table, where several lookups may have added a row twice; return it, None if dense.

    By the slots of the last lookup its gradient is known without a look at the rows.
    """
    gradient = weight.grad
    if gradient is None or not gradient.is_sparse:
        return None
    if type(gradient) is RowGradient and (gradient.is_coalesced() or _has_rows(gradient, gradient.repeated)):
        gradient.sharded = hasattr(weight, "placements")
        return gradient
    rows, values = gradient._indices()[0], gradient._values()
    repeated = slots is not None and slots.starts is None and _has_rows(gradient, slots.rows)
    # Autograd drops the flag that rows are coalesced. On a GPU they are grouped again, since a look would wait for it.
    if not (repeated or gradient.is_coalesced()) and (rows.is_cuda or not bool((rows[1:] > rows[:-1]).all())):
        slots = group(rows, gradient.shape[0])
        assert slots is not None  # valid rows, because they have been looked up
        rows, values, repeated = slots.rows, sum_by_row(values, slots), slots.starts is None
    coalesced = weight.grad = by_row(rows, values, gradient.shape, repeated)
    coalesced.sharded = hasattr(weight, "placements")
    return coalesced


def _has_rows(gradient: Tensor, rows: Tensor | None) -> bool:
    """Return whether these are the very rows of a gradient."""
    return rows is not None and gradient._nnz() == len(rows) and gradient._indices().data_ptr() == rows.data_ptr()


def with_row_gradient(
    weight: Tensor, read: Callable[[], Tensor], slots: GroupedSlots, padding_idx: int | None, first: int = 0
) -> Float[Tensor, "*shape dim"]:
    """Look up rows of a table by `read`, with a gradient of these rows alone; ids count from the row `first`."""
    rows: Tensor = _RowLookup.apply(weight, read, slots, padding_idx, first)  # type: ignore[no-untyped-call]
    return rows


class _RowLookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, read: Callable[[], Tensor], *given: Any) -> Tensor:
        ctx.given = (weight.shape, *given)
        return read()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _RowSums.apply(*gradients, *ctx.given), None, None, None, None  # type: ignore[no-untyped-call]


class _RowSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, shape: torch.Size, slots: GroupedSlots, padding_idx: int | None, first: int
    ) -> Tensor:
        ctx.slots, ctx.padding_idx, ctx.shape, ctx.first = slots, padding_idx, x.shape, first
        values = sum_by_row(x.reshape(-1, shape[1]), slots, padding_idx)
        rows = slots.rows + first if first else slots.rows
        gradient: Tensor = by_row(rows, values, shape, slots.starts is None)
        if values.dtype == torch.float16 and values.device.type == "cpu" and _without_dispatch is not None:
            gradient = Tensor._make_subclass(_HalfGradient, gradient)
        return gradient

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        slots, rows = ctx.slots, ctx.slots.rows
        rows = rows if slots.starts is None else rows.repeat_interleave(slots.starts.diff())
        values = (gradients[0].to_dense() if gradients[0].is_sparse else gradients[0])[rows + ctx.first]
        if ctx.padding_idx is not None:
            values = values.masked_fill((rows == ctx.padding_idx)[:, None], 0)
        return values[slots.order.argsort()].reshape(ctx.shape), None, None, None, None


def _same_for_zeros(function: Callable[..., Any], more: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Return whether the rows that are not stored, all zero, do not affect the result."""
    if function in _NORMS:
        return len(more) < 2 and named.get("dim") is None  # the norm of all values, not along one dimension
    numbers = [number for number in _flat([*more, *named.values()]) if number is not None]
    if any(isinstance(number, Tensor) and number.dim() > 0 for number in numbers):
        return False
    if function is Tensor.clamp_:
        low, high = named.get("min", more[0] if more else None), named.get("max", more[1] if len(more) > 1 else None)
        return (low is None or low <= 0) and (high is None or high >= 0)
    if function in _BOUNDS:
        return all(number <= 0 if function is torch._foreach_clamp_min_ else number >= 0 for number in numbers)
    return function in _SCALINGS


def _require_all_rows(gradients: Any) -> None:
    if any(isinstance(gradient, RowGradient) and gradient.sharded for gradient in _flat([gradients])):
        raise SettingError(
            "the rows of this gradient are spread over processes, and each would clip by another norm.\n"
            "Use whatwhere.parallel.clip_gradient_norm(parameters, max_norm)."
        )


def _flat(x: Any) -> list[Any]:
    return [z for y in x for z in _flat(y)] if isinstance(x, list | tuple) else [x]


def _values(x: Any, padded: bool) -> Any:
    """Return the stored rows, in lists too; `padded` by a row of zeros if some are not stored, always if none is."""
    if not isinstance(x, RowGradient):
        return [_values(y, padded) for y in x] if isinstance(x, list | tuple) else x
    values = x._values()
    if padded and x.repeated is not None:
        values = values[first_slots(x._indices()[0])]
    if len(values) and not (padded and len(values) < len(x)):
        return values
    return torch.cat([values, values.new_zeros(1, values.shape[1])])


def _scale_rest(gradients: Any, multiplies: bool, factors: Any) -> None:
    """Record the value of rows that are not stored after scaling."""
    for n, gradient in enumerate(_flat([gradients])):
        if isinstance(gradient, RowGradient):
            factor = factors[n] if isinstance(factors, list | tuple) else factors
            zero = gradient._values().new_zeros(()) if gradient.rest is None else gradient.rest
            gradient.rest = zero * factor if multiplies else zero / factor


# A table among several processes: rows that this one did not look up, and gradients that nobody averages.


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
        for part in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
            if part is not None:
                ranks.update(part.mesh_info.mesh.mesh.flatten().tolist())
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
