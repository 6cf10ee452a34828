"""The gradient of a token table, kept by row: the rows of a batch and no others."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from whatwhere.kernels.places import Places, group, sum_by_row

_NORMS = {torch._foreach_norm, torch.linalg.vector_norm, torch.norm, Tensor.norm}
_SCALINGS = {torch._foreach_mul_, torch._foreach_div_, Tensor.mul_, Tensor.div_}
_BOUNDS = {torch._foreach_clamp_min_, torch._foreach_clamp_max_, Tensor.clamp_}


class RowGradient(Tensor):
    """Be a sparse gradient, each row once, that can be clipped.

    PyTorch's `clip_grad_norm_` and `clip_grad_value_` ask for operations that sparse tensors lack. Here they work on
    the rows that are there, which gives the numbers of the dense gradient. All else is torch.sparse_coo's.

    >>> gradient = by_row(torch.tensor([1, 3]), torch.tensor([[3.0], [4.0]]), torch.Size([5, 1]))
    >>> float(torch.linalg.vector_norm(gradient))
    5.0
    """

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Hand norms, scalings and bounds the rows that are there."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if not _same_for_zeros(function, args[1:], kwargs):
                return function(*args, **kwargs)
            found = function(_values(args[0]), *args[1:], **kwargs)
        return args[0] if function in (Tensor.mul_, Tensor.div_, Tensor.clamp_) else found


def by_row(rows: Tensor, values: Float[Tensor, "rows dim"], shape: torch.Size) -> RowGradient:
    """Make a gradient of rows, ascending and each once, and their values."""
    sparse = torch.sparse_coo_tensor(rows[None], values, shape, is_coalesced=True, check_invariants=False)
    gradient: RowGradient = Tensor._make_subclass(RowGradient, sparse)
    return gradient


def settle(weight: Tensor) -> Tensor | None:
    """Make the gradient of a table one by row, each row once, and give it; None where it is dense.

    Several lookups have been added up there, with rows that stand twice.
    """
    gradient = weight.grad
    if gradient is None or not gradient.is_sparse:
        return None
    if type(gradient) is RowGradient and gradient.is_coalesced():
        return gradient
    rows, values = gradient._indices()[0], gradient._values()
    # Autograd drops the note that rows are in order, each once.
    if not gradient.is_coalesced() and not bool((rows[1:] > rows[:-1]).all()):
        places = group(rows, gradient.shape[0])
        assert places is not None  # rows have been looked up
        rows, values = places.rows, sum_by_row(values, places)
    weight.grad = by_row(rows, values, gradient.shape)
    return weight.grad


def settle_gradient(weight: Tensor) -> None:
    """Do so whenever a gradient has been added: what clips it comes before the optimizer."""
    settle(weight)


def with_row_gradient(
    weight: Tensor, read: Callable[[], Tensor], places: Places, padding_id: int | None
) -> Float[Tensor, "*shape dim"]:
    """Give rows of a table, as `read` does, with a gradient by row.

    Args:
        weight: the table.
        read: gives the rows, place by place.
        places: of the ids that are read.
        padding_id: a row that gets no gradient.
    """
    rows: Tensor = _RowLookup.apply(weight, read, places, padding_id)  # type: ignore[no-untyped-call]
    return rows


class _RowLookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, read: Callable[[], Tensor], places: Places, padding_id: int | None) -> Tensor:
        ctx.places, ctx.padding_id, ctx.shape = places, padding_id, weight.shape
        return read()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        places, padding_id = ctx.places, ctx.padding_id
        values = sum_by_row(gradients[0].reshape(-1, ctx.shape[1]), places)
        if padding_id is not None:
            values[places.rows == padding_id] = 0
        return by_row(places.rows, values, ctx.shape), None, None, None


def _same_for_zeros(function: Callable[..., Any], more: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Tell whether the rows that are not there, all zero, change nothing."""
    if function in _NORMS:
        return len(more) < 2 and named.get("dim") is None  # of all numbers, not along one dimension
    numbers = [number for number in _flat([*more, *named.values()]) if number is not None]
    if any(isinstance(number, Tensor) and number.dim() > 0 for number in numbers):
        return False
    if function is Tensor.clamp_:
        low, high = named.get("min", more[0] if more else None), named.get("max", more[1] if len(more) > 1 else None)
        return (low is None or low <= 0) and (high is None or high >= 0)
    if function in _BOUNDS:
        return all(number <= 0 if function is torch._foreach_clamp_min_ else number >= 0 for number in numbers)
    return function in _SCALINGS


def _flat(x: Any) -> list[Any]:
    return [z for y in x for z in _flat(y)] if isinstance(x, list | tuple) else [x]


def _values(x: Any) -> Any:
    if isinstance(x, RowGradient):
        return x._values()
    return [_values(y) for y in x] if isinstance(x, list | tuple) else x
