"""The rotation as a step of a model: with a gradient, in place, or in a trace.

The gradient is the turn back, so nothing is kept for it but the tables. In eager mode it is an autograd.Function, which
costs less to call than an operator.

What is traced for the CPU takes the operator: PyTorch's compiler makes fast code of one form of PyTorch's operations or
of another, by layout and dtype, and slow code of the rest. What is exported takes PyTorch's operations, which run
where whatwhere is not installed.
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.errors import SettingError
from whatwhere.kernels.backend import as_operator
from whatwhere.kernels.rotary import Kernel, computed, kernel_for, overwritten, turned


def rotate(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
    back: bool = False,
) -> Float[Tensor, "batch heads tokens features"]:
    """Turn as many of the first features as there are angles for, in float32 at least, and copy the rest.

    Args:
        x: of any strides, which the result has too.
        cos, sin: of each pair's angle, perhaps with a common factor.
        interleaved: pairs are (2i, 2i+1); else (i, i + pairs).
        back: turn the other way.

    Examples:
        >>> rotate(torch.ones(1, 1, 1, 3), torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), interleaved=False)
        tensor([[[[-1.,  1.,  1.]]]])
    """
    learning = torch.is_grad_enabled()
    if learning and (cos.requires_grad or sin.requires_grad):
        return turned(x, cos, sin, interleaved, back)
    if (kernel := kernel_for(cos, sin, x)) is not None:
        if not (learning and x.requires_grad):
            return computed(kernel, (x,), cos, sin, interleaved, back)[0]
        y: Tensor = _Rotation.apply(kernel, x, cos, sin, interleaved, back)  # type: ignore[no-untyped-call]
        return y
    if as_operator(x):
        traced: Tensor = rotate_op(x, cos, sin, interleaved, back)
        return traced
    return turned(x, cos, sin, interleaved, back)


def rotate_both(
    q: Float[Tensor, "batch heads tokens features"],
    k: Float[Tensor, "batch key_heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
) -> tuple[Float[Tensor, "batch heads tokens features"], Float[Tensor, "batch key_heads tokens features"]]:
    """Turn two tensors by the same tables, of which everything is asked once: it tells while decoding.

    Examples:
        >>> one, table = torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 1)
        >>> rotate_both(one, 2 * one, table, 0 * table, interleaved=False)
        (tensor([[[[1., 1.]]]]), tensor([[[[2., 2.]]]]))
    """
    learning = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or cos.requires_grad or sin.requires_grad
    )
    if not learning and (kernel := kernel_for(cos, sin, q, k)) is not None:
        turned_q, turned_k = computed(kernel, (q, k), cos, sin, interleaved)
        return turned_q, turned_k
    return rotate(q, cos, sin, interleaved), rotate(k, cos, sin, interleaved)


def rotate_(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
) -> Float[Tensor, "batch heads tokens features"]:
    """Turn x where it lies, and give it back.

    Args:
        x, cos, sin, interleaved: as for rotate; x is no leaf that requires a gradient, and no two of its numbers lie in
            one place.

    Examples:
        >>> x = torch.ones(1, 1, 1, 3)
        >>> rotate_(x, torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), interleaved=False) is x, x.flatten()
        (True, tensor([-1.,  1.,  1.]))
    """
    _require_overwritable(x)
    enabled = torch.is_grad_enabled()
    if enabled and (cos.requires_grad or sin.requires_grad):
        return x.copy_(rotate(x, cos, sin, interleaved))
    learning = enabled and x.requires_grad
    if (kernel := kernel_for(cos, sin, x)) is not None:
        if learning:
            y: Tensor = _RotationInPlace.apply(kernel, x, cos, sin, interleaved)  # type: ignore[no-untyped-call]
            return y
        overwritten(kernel, x, cos, sin, interleaved)
        torch.autograd.graph.increment_version(x)
        return x
    if as_operator(x) and not learning:
        rotate_op_(x, cos, sin, interleaved)
        return x
    return x.copy_(rotate(x, cos, sin, interleaved))


def _require_overwritable(x: Tensor) -> None:
    if _overlaps_itself(x):
        raise SettingError(
            f"in_place=True would rotate numbers more than once: a tensor of shape {tuple(x.shape)} and strides "
            f"{x.stride()} has several in one place.\nPass x.contiguous(), or in_place=False."
        )
    learning = torch.is_grad_enabled() and x.requires_grad and not torch.compiler.is_compiling()
    if learning and (x if x._base is None else x._base).is_leaf:
        raise SettingError(
            "in_place=True would overwrite a leaf that requires a gradient, so there would be nothing to derive by.\n"
            "Pass in_place=False; or call it under torch.no_grad(), where no gradient is needed."
        )


def _overlaps_itself(x: Tensor) -> bool:
    if torch.compiler.is_compiling():  # where each comparison of symbols would become a condition of the program
        return any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))
    return x.numel() > 0 and not is_nested(x.stride(), x.shape)


def is_nested(strides: Iterable[int], shape: Iterable[int]) -> bool:
    """Return whether each stride is longer than all that lies within it, so that no two indices lead to one number.

    Examples:
        >>> is_nested((8, 1), (3, 8)), is_nested((4, 1), (3, 8))
        (True, False)
    """
    reach = 0
    for step, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and step <= reach:
            return False
        reach += step * (size - 1)
    return True


class _Rotation(torch.autograd.Function):
    """The rotation with its gradient."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.interleaved, ctx.back = interleaved, back
        return computed(kernel, (x,), cos, sin, interleaved, back)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        back = rotate(gradients[0], cos, sin, ctx.interleaved, not ctx.back)
        return None, back, None, None, None, None


class _RotationInPlace(torch.autograd.Function):
    """The same where x lies."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.mark_dirty(x)
        ctx.interleaved = interleaved
        return overwritten(kernel, x, cos, sin, interleaved)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return None, rotate(gradients[0], cos, sin, ctx.interleaved, True), None, None, None


@torch.library.custom_op("whatwhere::rotate", mutates_args=())
def rotate_op(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> Tensor:
    """Turn, as an operator; cos and sin get no gradient, so they must not ask for one."""
    if (kernel := kernel_for(cos, sin, x)) is not None:
        return computed(kernel, (x,), cos, sin, interleaved, back)[0]
    return torch.empty_like(x).copy_(turned(x, cos, sin, interleaved, back))


@rotate_op.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, ctx.interleaved, ctx.back = inputs
    ctx.save_for_backward(cos, sin)


def _turn_back(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    cos, sin = ctx.saved_tensors
    return rotate_op(gradient, cos, sin, ctx.interleaved, not ctx.back), None, None, None, None


rotate_op.register_autograd(_turn_back, setup_context=_keep)


@rotate_op.register_vmap
def _(
    info: Any, dims: tuple[int | None, ...], x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool
) -> tuple[Tensor, int]:
    """Lay the mapped axis into the batch."""
    x, cos, sin = (
        part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)
        for part, dim in zip((x, cos, sin), dims, strict=False)
    )
    cos, sin = (part.expand(-1, x.shape[1], -1, -1, -1).flatten(0, 1) for part in (cos, sin))
    y: Tensor = rotate_op(x.flatten(0, 1), cos, sin, interleaved, back)
    return y.unflatten(0, (info.batch_size, -1)), 0


@torch.library.custom_op("whatwhere::rotate_", mutates_args=("x",))
def rotate_op_(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    """Turn x where it lies, as an operator."""
    if (kernel := kernel_for(cos, sin, x)) is not None:
        overwritten(kernel, x, cos, sin, interleaved)
    else:
        x.copy_(turned(x, cos, sin, interleaved))
