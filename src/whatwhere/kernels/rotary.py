"""Pairs of features rotated in one pass over the memory, which every rotary scheme does once its angles are known.

    (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

The PyTorch implementation, `rotate_in_pytorch`, reads and writes each vector some five times, the kernel once; a large
result is written past the caches, into huge pages.

The gradient is the rotation by the opposite angles, so the backward pass needs the tables only. In eager mode the
rotation is an autograd.Function, which costs less to call than an operator.

A trace for the CPU takes the operator: PyTorch's compiler makes fast code of one form of PyTorch's operations or of
another, by layout and dtype, and slow code of the rest.
"""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.errors import SettingError
from whatwhere.kernels import backend

Kernel = Callable[..., Any]  # a kernel for the CPU or a GPU, as `kernel_for` returns it

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
_STREAM = 16 << 20  # bytes from which a result is written past the caches: measured, with a reader behind it
_ROW = 4096  # bytes of the longest row that is written past the caches
_JOB = Struct("4P19q").pack  # the kernel's argument: ctypes passes one string of bytes faster than 23 numbers


def rotate(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
    back: bool = False,
) -> Float[Tensor, "batch heads tokens features"]:
    """Rotate the first pairs of features by their angles, in float32 at least, and copy features without an angle."""
    needs_gradient = torch.is_grad_enabled()
    if needs_gradient and (cos.requires_grad or sin.requires_grad):
        return rotate_in_pytorch(x, cos, sin, interleaved, back)
    if (kernel := kernel_for(cos, sin, x)) is not None:
        if not (needs_gradient and x.requires_grad):
            return run_kernel(kernel, (x,), cos, sin, interleaved, back)[0]
        y: Tensor = _Rotation.apply(kernel, cos, sin, interleaved, back, x)[0]  # type: ignore[no-untyped-call]
        return y
    if backend.as_operator(x):
        traced: Tensor = rotate_op(x, cos, sin, interleaved, back)
        return traced
    return rotate_in_pytorch(x, cos, sin, interleaved, back)


def rotate_both(
    q: Float[Tensor, "batch heads tokens features"],
    k: Float[Tensor, "batch key_heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
    back: bool = False,
) -> tuple[Float[Tensor, "batch heads tokens features"], Float[Tensor, "batch key_heads tokens features"]]:
    """Rotate two tensors by the same tables: checked once, and on a GPU in one launch, with their gradients too."""
    enabled = torch.is_grad_enabled()
    fixed = not (enabled and (cos.requires_grad or sin.requires_grad))
    if fixed and (kernel := kernel_for(cos, sin, q, k)) is not None:
        learning = enabled and q.requires_grad, enabled and k.requires_grad
        if not any(learning):
            rotated_q, rotated_k = run_kernel(kernel, (q, k), cos, sin, interleaved, back)
            return rotated_q, rotated_k
        if all(learning):
            both: tuple[Tensor, Tensor] = _Rotation.apply(kernel, cos, sin, interleaved, back, q, k)  # type: ignore[no-untyped-call]
            return both
    elif _fuse(q, k, cos):
        q, k = rotate_in_pytorch(torch.cat([q, k], 1), cos, sin, interleaved, back).split((q.shape[1], k.shape[1]), 1)
        return q, k
    return rotate(q, cos, sin, interleaved, back), rotate(k, cos, sin, interleaved, back)


def _fuse(q: Tensor, k: Tensor, cos: Tensor) -> bool:
    """Return whether a trace should rotate queries and keys as one tensor: PyTorch's compiler makes one kernel of it,
    which copies nothing, and of two tensors of different numbers of heads two."""
    return (
        torch.compiler.is_compiling()
        and not backend.is_exporting()
        and not backend.as_operator(q)
        and cos.shape[1] == 1
        and q.dtype == k.dtype
        and (q.shape[0], *q.shape[2:]) == (k.shape[0], *k.shape[2:])
    )


def rotate_both_(
    q: Float[Tensor, "batch heads tokens features"],
    k: Float[Tensor, "batch key_heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
) -> tuple[Float[Tensor, "batch heads tokens features"], Float[Tensor, "batch key_heads tokens features"]]:
    """Rotate two tensors in place, without a gradient in one launch on a GPU; they must not overlap."""
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, cos, sin))
    if needs_gradient or (kernel := kernel_for(cos, sin, q, k)) is None:
        return rotate_(q, cos, sin, interleaved), rotate_(k, cos, sin, interleaved)
    for x in (q, k):
        _require_overwritable(x)
    run_kernel(kernel, (q, k), cos, sin, interleaved, in_place=True)
    for x in (q, k):
        torch.autograd.graph.increment_version(x)
    return q, k


def rotate_(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
) -> Float[Tensor, "batch heads tokens features"]:
    """Rotate x in place, and return it."""
    _require_overwritable(x)
    enabled = torch.is_grad_enabled()
    if enabled and (cos.requires_grad or sin.requires_grad):
        return x.copy_(rotate(x, cos, sin, interleaved))
    needs_gradient = enabled and x.requires_grad
    if (kernel := kernel_for(cos, sin, x)) is not None:
        if needs_gradient:
            y: Tensor = _RotationInPlace.apply(kernel, x, cos, sin, interleaved)  # type: ignore[no-untyped-call]
            return y
        run_kernel(kernel, (x,), cos, sin, interleaved, in_place=True)
        torch.autograd.graph.increment_version(x)
        return x
    if backend.as_operator(x) and not needs_gradient:
        rotate_op_(x, cos, sin, interleaved)
        return x
    return x.copy_(rotate(x, cos, sin, interleaved))


def _require_overwritable(x: Tensor) -> None:
    if torch.compiler.is_compiling():  # each comparison of symbolic sizes would become a guard
        overlaps = any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))
    else:
        overlaps = x.numel() > 0 and not is_nested(x.stride(), x.shape)
    if overlaps:
        raise SettingError(
            f"in_place=True would rotate numbers more than once: a tensor of shape {tuple(x.shape)} and strides "
            f"{x.stride()} has elements that overlap in memory.\nPass x.contiguous(), or in_place=False."
        )
    needs_gradient = torch.is_grad_enabled() and x.requires_grad and not torch.compiler.is_compiling()
    if needs_gradient and (x if x._base is None else x._base).is_leaf:
        raise SettingError(
            "in_place=True would overwrite a leaf that requires a gradient, so its gradient could not be computed.\n"
            "Pass in_place=False; or call it under torch.no_grad(), where no gradient is needed."
        )


def is_nested(strides: Iterable[int], shape: Iterable[int]) -> bool:
    """Return whether each stride is larger than all that is inside it, so that no two indices address one number."""
    inside = 0
    for step, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and step <= inside:
            return False
        inside += step * (size - 1)
    return True


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, cos: Tensor, sin: Tensor, interleaved: bool, back: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cos, sin)
        ctx.set_materialize_grads(False)
        ctx.interleaved, ctx.back = interleaved, back
        return tuple(run_kernel(kernel, tensors, cos, sin, interleaved, back))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        how = (*ctx.saved_tensors, ctx.interleaved, not ctx.back)
        given = [g for g in gradients if g is not None]
        if len(given) == 2:
            return None, None, None, None, None, *rotate_both(given[0], given[1], *how)
        return None, None, None, None, None, *(None if g is None else rotate(g, *how) for g in gradients)


class _RotationInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Kernel, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.mark_dirty(x)
        ctx.interleaved = interleaved
        return run_kernel(kernel, (x,), cos, sin, interleaved, in_place=True)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return None, rotate(gradients[0], cos, sin, ctx.interleaved, True), None, None, None


@torch.library.custom_op("whatwhere::rotate", mutates_args=())
def rotate_op(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> Tensor:
    """Rotate, as an operator; cos and sin get no gradient, so they must not require one."""
    if (kernel := kernel_for(cos, sin, x)) is not None:
        return run_kernel(kernel, (x,), cos, sin, interleaved, back)[0]
    return torch.empty_like(x).copy_(rotate_in_pytorch(x, cos, sin, interleaved, back))


@rotate_op.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool) -> Tensor:
    return torch.empty_like(x)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, ctx.interleaved, ctx.back = inputs
    ctx.save_for_backward(cos, sin)


def _gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    cos, sin = ctx.saved_tensors
    return rotate_op(gradient, cos, sin, ctx.interleaved, not ctx.back), None, None, None, None


rotate_op.register_autograd(_gradient, setup_context=_setup_context)


@rotate_op.register_vmap
def _(
    info: Any, dims: tuple[int | None, ...], x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, back: bool
) -> tuple[Tensor, int]:
    """Fold the mapped axis into the batch."""
    x, cos, sin = (
        part.expand(info.batch_size, *part.shape) if dim is None else part.movedim(dim, 0)
        for part, dim in zip((x, cos, sin), dims, strict=False)
    )
    cos, sin = (part.expand(-1, x.shape[1], -1, -1, -1).flatten(0, 1) for part in (cos, sin))
    y: Tensor = rotate_op(x.flatten(0, 1), cos, sin, interleaved, back)
    return y.unflatten(0, (info.batch_size, -1)), 0


@torch.library.custom_op("whatwhere::rotate_", mutates_args=("x",))
def rotate_op_(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> None:
    """Rotate x in place, as an operator."""
    if (kernel := kernel_for(cos, sin, x)) is not None:
        run_kernel(kernel, (x,), cos, sin, interleaved, in_place=True)
    else:
        x.copy_(rotate_in_pytorch(x, cos, sin, interleaved))


def rotate_in_pytorch(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
    back: bool = False,
) -> Float[Tensor, "batch heads tokens features"]:
    """Rotate the first pairs of features with PyTorch's own operations, and copy the rest."""
    pairs = cos.shape[-1]
    if 2 * pairs < x.shape[-1]:
        first = rotate_in_pytorch(x[..., : 2 * pairs], cos, sin, interleaved, back)
        return torch.cat([first, x[..., 2 * pairs :]], dim=-1)
    sin = -sin if back else sin
    # bfloat16 arithmetic would double the error of the result: 2.7e-3 against the format's own 1.7e-3.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if interleaved and not backend.COMPILED and x.device.type == "cpu" and not torch.compiler.is_compiling():
        return _rotate_as_complex(wide, cos, sin).to(x.dtype)
    a, b = (wide[..., ::2], wide[..., 1::2]) if interleaved else wide.chunk(2, dim=-1)
    pair = [a * cos - b * sin, a * sin + b * cos]
    y = torch.stack(pair, dim=-1).reshape(x.shape) if interleaved else torch.cat(pair, dim=-1)
    return y.to(x.dtype)


def _rotate_as_complex(wide: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate interleaved pairs as complex numbers: one pass where no kernel was compiled; roundings may differ."""
    even = wide.storage_offset() % 2 == 0 and all(step % 2 == 0 for step in wide.stride()[:-1])
    pairs = wide if even and wide.stride(-1) == 1 else wide.clone(memory_format=torch.contiguous_format)
    rotated = torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)
    return torch.view_as_real(rotated).flatten(-2)


def kernel_for(cos: Tensor, sin: Tensor, *tensors: Tensor) -> Kernel | None:
    """Return the kernel that can rotate tensors by these tables, after checking dtypes and shapes; None for none."""
    kernel = backend.kernel_for("rotate", cos, sin, *tensors)
    if kernel is None:
        return None
    shape = cos.shape
    if len(shape) != 4 or shape != sin.shape or cos.dtype != torch.float32 or sin.dtype != torch.float32:
        return None
    rows, sets, positions, pairs = shape
    for x in tensors:
        if x.dtype not in _TYPES or x.dim() != 4:
            return None
        batch, heads, tokens, features = x.shape
        if rows not in (1, batch) or sets not in (1, heads) or positions != tokens or 2 * pairs > features:
            return None
    return kernel


def run_kernel(
    kernel: Kernel,
    tensors: Sequence[Float[Tensor, "..."]],
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    back: bool = False,
    in_place: bool = False,
) -> list[Tensor]:
    """Return rotated tensors, of the same strides; in place the tensors themselves."""
    results = list(tensors) if in_place else [torch.empty_like(x) for x in tensors]
    if tensors[0].is_cuda:
        kernel(tensors, results, cos, sin, interleaved, back)
        return results
    tables = _with_addresses(cos, sin)
    for x, y in zip(tensors, results, strict=True):
        if x is not y and x.nbytes >= _STREAM:
            backend.in_huge_pages(y)
        _launch(kernel, x, y, tables, interleaved, back)
    return results


def _with_addresses(cos: Tensor, sin: Tensor) -> tuple[Any, ...]:
    """Return the tables with the addresses and strides that the kernel needs."""
    steps = cos.stride()
    if steps != sin.stride() or steps[3] != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
        steps = cos.stride()
    rows, sets, _, pairs = cos.shape
    by_row, by_head = steps[0] if rows > 1 else 0, steps[1] if sets > 1 else 0
    return cos, sin, cos.data_ptr(), sin.data_ptr(), pairs, by_row, by_head, steps[2]


def _launch(kernel: Kernel, x: Tensor, y: Tensor, tables: tuple[Any, ...], interleaved: bool, back: bool) -> Tensor:
    """Run the kernel from x to y, which may be x."""
    at_cos, at_sin, pairs, by_row, by_head, by_token = tables[2:]
    (x_row, x_head, x_token, x_step), (y_row, y_head, y_token, y_step) = x.stride(), y.stride()
    if x_step != 1 or y_step != 1:
        dense = x.clone(memory_format=torch.contiguous_format)
        return y.copy_(_launch(kernel, dense, dense, tables, interleaved, back))
    batch, heads, tokens, features = x.shape
    stream = x.nbytes >= _STREAM and x is not y
    if stream:  # rows that cover whole cache lines, and not too many of them
        size, ends = y.element_size(), (features, y_row, y_head, y_token)
        stream = size * features <= _ROW and not (y.data_ptr() % 64 or any(size * n % 64 for n in ends))
    job = _JOB(
        *(x.data_ptr(), y.data_ptr(), at_cos, at_sin),
        *(_TYPES[x.dtype], interleaved, back, stream),
        *(batch, heads, tokens, pairs, features - 2 * pairs),
        *(x_row, x_head, x_token, y_row, y_head, y_token, by_row, by_head, by_token),
        torch.get_num_threads(),
    )
    kernel(job)
    return y
