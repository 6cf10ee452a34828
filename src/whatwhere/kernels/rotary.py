"""Pairs of features turned in one pass over the memory: what every rotary scheme does once its angles are known.

    (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

The plain twin, `turned`, reads and writes each vector some five times, the kernel once; a large result goes past the
caches, into huge pages. Gradients and traces are the matter of rotary_ops.py.
"""

from collections.abc import Callable, Sequence
from ctypes import c_char_p
from functools import cache
from struct import Struct
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels import cuda, native

COMPILED = native.library() is not None
"""Whether there is a kernel for the CPU. What is traced cannot ask."""

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
    """Turn the first pairs of features in PyTorch's own operations, and join the rest: the plain twin.

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
    if interleaved and not COMPILED and x.device.type == "cpu" and not torch.compiler.is_compiling():
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


def serves(cos: Tensor, sin: Tensor, *tensors: Tensor) -> bool:
    """Tell whether a kernel may turn tensors by these tables: all the memory is there, and as large as it must be.

    >>> table = torch.ones(1, 1, 3, 2)
    >>> serves(table, table, torch.ones(1, 2, 4, 8))  # four tokens, but tables of three
    False
    """
    if not (native.serves(cos, sin, *tensors) or cuda.serves(cos, sin, *tensors)):
        return False
    shape = cos.shape
    if len(shape) != 4 or shape != sin.shape or cos.dtype != torch.float32 or sin.dtype != torch.float32:
        return False
    rows, sets, stands, pairs = shape
    for x in tensors:
        if x.dtype not in _TYPES or x.dim() != 4:
            return False
        batch, heads, tokens, features = x.shape
        if rows not in (1, batch) or sets not in (1, heads) or stands != tokens or 2 * pairs > features:
            return False
    return True


def computed(
    tensors: Sequence[Float[Tensor, "..."]], cos: Tensor, sin: Tensor, interleaved: bool, back: bool = False
) -> list[Tensor]:
    """Give what the kernel makes of tensors that it serves, with strides as they have them."""
    tables, results = _told(cos, sin), []
    for x in tensors:
        y = torch.empty_like(x)
        if x.nbytes >= _STREAM:
            native.in_huge_pages(y)
        results.append(_launch(x, y, tables, interleaved, back))
    return results


def overwritten(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Give a tensor that the kernel serves, turned where it lies."""
    return _launch(x, x, _told(cos, sin), interleaved, False)


def _told(cos: Tensor, sin: Tensor) -> tuple[Any, ...]:
    """Give what the kernel is told of the tables, whatever it turns by them."""
    steps = cos.stride()
    if steps != sin.stride() or steps[3] != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
        steps = cos.stride()
    rows, sets, _, pairs = cos.shape
    by_row, by_head = steps[0] if rows > 1 else 0, steps[1] if sets > 1 else 0
    return cos, sin, cos.data_ptr(), sin.data_ptr(), pairs, by_row, by_head, steps[2]


def _launch(x: Tensor, y: Tensor, tables: tuple[Any, ...], interleaved: bool, back: bool) -> Tensor:
    """Run the kernel from x to y, which may be x."""
    cos, sin, at_cos, at_sin, pairs, by_row, by_head, by_token = tables
    if x.is_cuda:
        from whatwhere.kernels.cuda.rotary import rotate

        return rotate(x, cos, sin, interleaved, back=back, out=y)
    (x_row, x_head, x_token, x_step), (y_row, y_head, y_token, y_step) = x.stride(), y.stride()
    if x_step != 1 or y_step != 1:
        dense = x.clone(memory_format=torch.contiguous_format)
        return y.copy_(_launch(dense, dense, tables, interleaved, back))
    batch, heads, tokens, features = x.shape
    stream = x.nbytes >= _STREAM and x is not y and _is_made_of_lines(y)
    job = _JOB(
        *(x.data_ptr(), y.data_ptr(), at_cos, at_sin),
        *(_TYPES[x.dtype], interleaved, back, stream),
        *(batch, heads, tokens, pairs, features - 2 * pairs),
        *(x_row, x_head, x_token, y_row, y_head, y_token, by_row, by_head, by_token),
        torch.get_num_threads(),
    )
    _kernel()(job)
    return y


def _is_made_of_lines(y: Tensor) -> bool:
    """Tell whether each row covers whole lines of the caches, and not too many of them."""
    size = y.element_size()
    row = y.shape[3] * size
    return row <= _ROW and not any(n % 64 for n in (y.data_ptr(), row, *(size * step for step in y.stride()[:3])))


@cache
def _kernel() -> Callable[[bytes], None]:
    library = native.library()
    assert library is not None  # as `serves` has found
    return library.function("rotate", c_char_p)
