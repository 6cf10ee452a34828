"""The gradient of a token table as a sparse tensor: the rows of the batch, each once."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from whatwhere.errors import SettingError
from whatwhere.kernels.group_by_row import GroupedSlots, group, sum_by_row

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
    """

    rest: Tensor | None = None
    sharded: bool = False

    def require_finite(self) -> None:
        """Raise SettingError if it was scaled by NaN or infinity, with all rows that are not stored."""
        if self.rest is not None and self.rest != 0:
            raise SettingError(
                "the gradient was scaled by NaN or infinity, which would make the whole table NaN.\nSkip this step: "
                "see the norm that clip_grad_norm_ returns, or pass it error_if_nonfinite=True."
            )

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


def by_row(rows: Tensor, values: Float[Tensor, "rows dim"], shape: torch.Size) -> RowGradient:
    """Create a gradient of a table of some shape from rows, ascending and each once, and their values."""
    sparse = torch.sparse_coo_tensor(rows[None], values, shape, is_coalesced=True, check_invariants=False)
    gradient: RowGradient = Tensor._make_subclass(RowGradient, sparse)
    return gradient


def coalesce(weight: Tensor) -> RowGradient | None:
    """Coalesce the gradient of a table, where several lookups may have added a row twice; return it, None if dense."""
    gradient = weight.grad
    if gradient is None or not gradient.is_sparse:
        return None
    if type(gradient) is RowGradient and gradient.is_coalesced():
        gradient.sharded = hasattr(weight, "placements")
        return gradient
    rows, values = gradient._indices()[0], gradient._values()
    # Autograd drops the flag that rows are coalesced.
    if not gradient.is_coalesced() and not bool((rows[1:] > rows[:-1]).all()):
        slots = group(rows, gradient.shape[0])
        assert slots is not None  # valid rows, because they have been looked up
        rows, values = slots.rows, sum_by_row(values, slots)
    coalesced = weight.grad = by_row(rows, values, gradient.shape)
    coalesced.sharded = hasattr(weight, "placements")
    return coalesced


def with_row_gradient(
    weight: Tensor, read: Callable[[], Tensor], slots: GroupedSlots, padding_idx: int | None, first: int = 0
) -> Float[Tensor, "*shape dim"]:
    """Look up rows of a table by `read`, with a gradient of these rows alone; ids count from the row `first`."""
    rows: Tensor = _RowLookup.apply(weight, read, slots, padding_idx, first)  # type: ignore[no-untyped-call]
    return rows


class _RowLookup(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, read: Callable[[], Tensor], slots: GroupedSlots, padding_idx: int | None, first: int
    ) -> Tensor:
        ctx.slots, ctx.padding_idx, ctx.shape, ctx.first = slots, padding_idx, weight.shape, first
        return read()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        slots, padding_idx = ctx.slots, ctx.padding_idx
        values = sum_by_row(gradients[0].reshape(-1, ctx.shape[1]), slots)
        if padding_idx is not None:
            values[slots.rows == padding_idx] = 0
        rows = slots.rows + ctx.first if ctx.first else slots.rows
        return by_row(rows, values, ctx.shape), None, None, None, None


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
