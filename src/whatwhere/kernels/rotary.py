"""Pairs of features rotated in one pass over the memory: what every rotary scheme does once its angles are known.

    (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

The PyTorch implementation, `turned`, reads and writes each vector some five times, the kernel once; a large result
goes past the caches, into huge pages. Gradients and traces are in rotary_ops.py.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels import backend

Kernel = Callable[..., Any]
"""Of the CPU or of a GPU, as `kernel_for` returns it."""

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
_STREAM = 16 << 20
"""Bytes from which a result is written past the caches: measured, with a reader behind it."""
_ROW = 4096
"""Bytes of the longest row that is written so."""
_JOB = Struct("4P19q").pack
"""The kernel's argument: one string of bytes is handed over faster than 23 numbers."""


def turned(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
    back: bool = False,
) -> Float[Tensor, "batch heads tokens features"]:
    """Rotate the first pairs of features in PyTorch's own operations, and join the rest.

    Examples:
        >>> turned(torch.ones(1, 1, 1, 3), torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), interleaved=False)
        tensor([[[[-1.,  1.,  1.]]]])
    """
    pairs = cos.shape[-1]
    if 2 * pairs < x.shape[-1]:
        first = turned(x[..., : 2 * pairs], cos, sin, interleaved, back)
        return torch.cat([first, x[..., 2 * pairs :]], dim=-1)
    sin = -sin if back else sin
    # bfloat16 arithmetic would double the error of the result: 2.7e-3 against the format's own 1.7e-3.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if interleaved and not backend.COMPILED and x.device.type == "cpu" and not torch.compiler.is_compiling():
        return _turned_as_complex(wide, cos, sin).to(x.dtype)
    a, b = (wide[..., ::2], wide[..., 1::2]) if interleaved else wide.chunk(2, dim=-1)
    pair = [a * cos - b * sin, a * sin + b * cos]
    y = torch.stack(pair, dim=-1).reshape(x.shape) if interleaved else torch.cat(pair, dim=-1)
    return y.to(x.dtype)


def _turned_as_complex(wide: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn neighbors as complex numbers: one pass where no kernel was compiled, but for a rounding the same numbers."""
    even = wide.storage_offset() % 2 == 0 and all(step % 2 == 0 for step in wide.stride()[:-1])
    pairs = wide if even and wide.stride(-1) == 1 else wide.clone(memory_format=torch.contiguous_format)
    turns = torch.view_as_complex(pairs.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)
    return torch.view_as_real(turns).flatten(-2)


def kernel_for(cos: Tensor, sin: Tensor, *tensors: Tensor) -> Kernel | None:
    """Return the kernel that can rotate tensors by these tables: all the memory is there, and as large as it must be.

    Examples:
        >>> table = torch.ones(1, 1, 3, 2)
        >>> kernel_for(table, table, torch.ones(1, 2, 4, 8)) is None  # four tokens, but tables of three
        True
    """
    kernel = backend.on_cpu("rotate", cos, sin, *tensors) or backend.on_gpu("rotate", cos, sin, *tensors)
    if kernel is None:
        return None
    shape = cos.shape
    if len(shape) != 4 or shape != sin.shape or cos.dtype != torch.float32 or sin.dtype != torch.float32:
        return None
    rows, sets, stands, pairs = shape
    for x in tensors:
        if x.dtype not in _TYPES or x.dim() != 4:
            return None
        batch, heads, tokens, features = x.shape
        if rows not in (1, batch) or sets not in (1, heads) or stands != tokens or 2 * pairs > features:
            return None
    return kernel


def computed(
    kernel: Kernel,
    tensors: Sequence[Float[Tensor, "..."]],
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    back: bool = False,
) -> list[Tensor]:
    """Return rotated tensors, of the same strides; the kernel is that of kernel_for."""
    tables, results = _described(cos, sin), []
    for x in tensors:
        y = torch.empty_like(x)
        if x.nbytes >= _STREAM:
            backend.in_huge_pages(y)
        results.append(_launch(kernel, x, y, tables, interleaved, back))
    return results


def overwritten(kernel: Kernel, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotate a tensor in place, and return it; the kernel is that of kernel_for."""
    return _launch(kernel, x, x, _described(cos, sin), interleaved, False)


def _described(cos: Tensor, sin: Tensor) -> tuple[Any, ...]:
    """Return what the kernel needs to know of the tables, whatever it rotates by them."""
    steps = cos.stride()
    if steps != sin.stride() or steps[3] != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
        steps = cos.stride()
    rows, sets, _, pairs = cos.shape
    by_row, by_head = steps[0] if rows > 1 else 0, steps[1] if sets > 1 else 0
    return cos, sin, cos.data_ptr(), sin.data_ptr(), pairs, by_row, by_head, steps[2]


def _launch(kernel: Kernel, x: Tensor, y: Tensor, tables: tuple[Any, ...], interleaved: bool, back: bool) -> Tensor:
    """Run the kernel from x to y, which may be x."""
    cos, sin, at_cos, at_sin, pairs, by_row, by_head, by_token = tables
    if x.is_cuda:
        found: Tensor = kernel(x, cos, sin, interleaved, back=back, out=y)
        return found
    (x_row, x_head, x_token, x_step), (y_row, y_head, y_token, y_step) = x.stride(), y.stride()
    if x_step != 1 or y_step != 1:
        dense = x.clone(memory_format=torch.contiguous_format)
        return y.copy_(_launch(kernel, dense, dense, tables, interleaved, back))
    batch, heads, tokens, features = x.shape
    stream = x.nbytes >= _STREAM and x is not y and _is_made_of_lines(y)
    job = _JOB(
        *(x.data_ptr(), y.data_ptr(), at_cos, at_sin),
        *(_TYPES[x.dtype], interleaved, back, stream),
        *(batch, heads, tokens, pairs, features - 2 * pairs),
        *(x_row, x_head, x_token, y_row, y_head, y_token, by_row, by_head, by_token),
        torch.get_num_threads(),
    )
    kernel(job)
    return y


def _is_made_of_lines(y: Tensor) -> bool:
    """Return whether each row covers whole lines of the caches, and not too many of them."""
    size = y.element_size()
    row = y.shape[3] * size
    return row <= _ROW and not any(n % 64 for n in (y.data_ptr(), row, *(size * step for step in y.stride()[:3])))
