"""The gradient of a token table, kept by row: the rows of a batch and no others."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels.places import Places, group, sum_by_row

# What is the same for all numbers and for those that are not zero.
_BY_VALUES = {
    torch._foreach_norm,
    torch._foreach_mul_,
    torch._foreach_div_,
    torch._foreach_clamp_min_,
    torch._foreach_clamp_max_,
    torch.linalg.vector_norm,
    torch.norm,
    Tensor.norm,
    Tensor.mul_,
    Tensor.div_,
    Tensor.clamp_,
}


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
        """Hand the operations above the rows that are there."""
        with torch._C.DisableTorchFunctionSubclass():
            if function not in _BY_VALUES:
                return function(*args, **(kwargs or {}))
            found = function(*(_values(x) for x in args), **(kwargs or {}))
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
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        places, padding_id = ctx.places, ctx.padding_id
        values = sum_by_row(gradients[0].reshape(-1, ctx.shape[1]), places)
        if padding_id is not None:
            values[places.rows == padding_id] = 0
        return by_row(places.rows, values, ctx.shape), None, None, None


def _values(x: Any) -> Any:
    if isinstance(x, RowGradient):
        return x._values()
    return [_values(y) for y in x] if isinstance(x, list | tuple) else x
