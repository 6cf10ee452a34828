"""The input layer in one pass over the memory: rows of the token table, scaled, plus the rows of their positions.

    x[b, t] = s E[ids[b, t]] + P[b, t]

The PyTorch implementation, `scaled` and `summed` of what `F.embedding` returns, writes and reads all vectors once more
for each operation. The kernel reads each row once, prefetches the next ones, and writes a large result past the caches.

A trace for the CPU takes the kernel too, as an operator: PyTorch's compiler fuses its own operations into one pass, but
prefetches no row, and takes about twice as long.
"""

from collections.abc import Callable
from ctypes import byref, c_int64
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from whatwhere.kernels import backend
from whatwhere.kernels.group_by_row import TYPES, group, sum_by_row

_INDICES = (torch.int64, torch.int32)
_STREAM = 8 << 20
"""Bytes from which vectors are written past the caches: fewer may still be cached when the next layer reads them."""
_WORTH = 1 << 18  # bytes from which the kernel gains more than its call costs where a gradient is needed
_WORTH_ON_GPU = 24 << 20
"""Bytes for which three operations of PyTorch took the 90 us on an H200 (docs/speed.md) that a call of the kernel took,
before its launch got cheaper, however few there were; with a cast to float32 and back for a third of them."""


class Rows(NamedTuple):
    """What is added to the token vectors: a vector for each token, or the rows of a table at their positions.

    Args:
        table: (1 or batch, tokens, dim) without positions, (rows, dim) with them.
        positions: (1 or batch, tokens); position p has row p + offset. None adds the table as it is.
        offset: rows before that of position 0.
    """

    table: Tensor
    positions: Tensor | None = None
    offset: int = 0


def embed(
    weight: Float[Tensor, "vocab_size dim"],
    ids: Integer[Tensor, "*shape"],
    scale: float | None = None,
    padding_idx: int | None = None,
    rows: Rows | None = None,
) -> Float[Tensor, "*shape dim"] | None:
    """Look up tokens, scale their rows and add those of their positions; return None where no kernel can.

    It also returns None where an id or a position has no row: PyTorch's operations then raise the error that names it.
    """
    if torch._C._are_functorch_transforms_active():  # traced tensors of a transform look like plain ones
        return None
    if torch.compiler.is_compiling():
        fits = ids.dtype in _INDICES and (rows is None or rows.table.dtype in (weight.dtype, torch.float32))
        if not (fits and weight.dtype in TYPES and backend.as_operator(weight)):
            return None
        traced: Tensor = _embed(weight, ids, scale, padding_idx, *(rows or (None, None, 0)))
        return traced
    needs_gradient = torch.is_grad_enabled() and (
        weight.requires_grad or (rows is not None and rows.table.requires_grad)
    )
    size = ids.numel() * weight.shape[-1] * weight.element_size()
    if needs_gradient and size < _WORTH and not weight.is_cuda:
        return None
    if (kernel := _kernel(weight, ids, rows)) is None:
        return None
    ids = ids if ids.dtype in _INDICES else ids.long()
    if weight.is_cuda and _better_in_pytorch(size, weight.dtype, scale, rows):
        return _in_pytorch(weight, ids, scale, rows, padding_idx)
    if not needs_gradient:
        return _run_kernel(kernel, weight, ids, scale, rows)
    try:
        vectors: Tensor = _Embedding.apply(kernel, weight, ids, scale, padding_idx, *(rows or (None, None, 0)))  # type: ignore[no-untyped-call]
    except IndexError:
        return None
    return vectors


def scaled(rows: Float[Tensor, "*shape dim"], scale: float | Tensor | None) -> Float[Tensor, "*shape dim"]:
    """Multiply rows by a factor, in place where they are plain tensors: the caller must own them."""
    if scale is None:
        return rows
    return rows.mul_(scale) if _is_plain(rows) else rows * scale


def summed(x: Float[Tensor, "..."], p: Float[Tensor, "..."], own: bool = False) -> Float[Tensor, "..."]:
    """Add position vectors to token vectors, in the wider dtype of both, and cast to that of the token vectors.

    With `own` the caller owns x, so the sum may be written to it.

    Examples:
        >>> summed(torch.ones(1, 2, dtype=torch.bfloat16), torch.ones(1, 2))
        tensor([[2., 2.]], dtype=torch.bfloat16)
    """
    wide = x.to(torch.promote_types(x.dtype, p.dtype))
    if (own or wide is not x) and _is_plain(wide) and type(p) in (Tensor, torch.nn.Parameter):
        return wide.add_(p).to(x.dtype)
    return (wide + p).to(x.dtype)


def gradient_of_rows(
    gradient: Float[Tensor, "*shape dim"], index: Integer[Tensor, "*shape"], rows: int, padding_idx: int | None
) -> Float[Tensor, "rows dim"]:
    """Sum the gradients of each row of a table over the slots that looked it up, in float32 at least.

    PyTorch's CPU kernel sums in the table's own dtype: 4,096 gradients of 1 become 256 in bfloat16.
    """
    if gradient.dtype not in (torch.bfloat16, torch.float16) or gradient.device.type != "cpu":
        padding = -1 if padding_idx is None else padding_idx
        dense: Tensor = torch.ops.aten.embedding_dense_backward(gradient, index, rows, padding, False)
        return dense
    dim = gradient.shape[-1]
    if not torch.is_grad_enabled() and backend.on_cpu("sum_by_row", gradient, index) is not None:
        slots = group(index.reshape(-1).long(), rows)  # only the rows that occur: no whole table of float32 is made
        assert slots is not None  # the forward pass has looked up all rows
        total = gradient.new_zeros(rows, dim)
        total[slots.rows] = sum_by_row(gradient.reshape(-1, dim), slots)
    else:
        total = gradient.new_zeros(rows, dim, dtype=torch.float32)
        total = total.index_add(0, index.reshape(-1), gradient.reshape(-1, dim).float()).to(gradient.dtype)
    if padding_idx is not None:
        total[padding_idx] = 0
    return total


def _is_plain(x: Tensor) -> bool:
    """Return whether x can be overwritten: no trace or transform, and no view of another tensor."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return type(x) is Tensor and not x._is_view()


def _kernel(weight: Tensor, ids: Tensor, rows: Rows | None) -> Callable[..., Any] | None:
    added = () if rows is None else (rows.table,) if rows.positions is None else (rows.table, rows.positions)
    kernel = backend.kernel_for("embed", weight, ids, *added)
    fits = (
        weight.dtype in TYPES
        and weight.dim() == 2
        and weight.stride(1) == 1
        and not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
        and (rows is None or _fits(weight, ids, rows))
    )
    return kernel if fits else None


def _better_in_pytorch(size: int, dtype: torch.dtype, scale: float | None, rows: Rows | None) -> bool:
    """Return whether PyTorch's operations on a GPU do the same, stop at the same ids, and are as fast or faster."""
    if rows is None:
        return scale is None or size < _WORTH_ON_GPU
    worth = _WORTH_ON_GPU if rows.table.dtype == dtype else _WORTH_ON_GPU // 3
    return size < worth and (rows.positions is None or not rows.offset)


def _fits(weight: Tensor, ids: Tensor, rows: Rows) -> bool:
    table, index, offset = rows
    addable = ids.dim() == 2 and table.dtype in (weight.dtype, torch.float32) and table.stride(-1) == 1
    if not addable or table.shape[-1] != weight.shape[1]:
        return False
    tokens = ((1, ids.shape[1]), ids.shape)
    if index is None:
        return table.dim() == 3 and table.shape[:2] in tokens
    return table.dim() == 2 and index.dtype == torch.int64 and offset >= 0 and index.shape in tokens


def _run_kernel(
    kernel: Callable[..., Any], weight: Tensor, ids: Tensor, scale: float | None, rows: Rows | None
) -> Tensor | None:
    """Run the kernel; return None where an id or a position has no row. On a GPU such an id stops the program."""
    if weight.is_cuda:
        vectors: Tensor = kernel(weight, ids, scale, rows)
        return vectors
    dim = weight.shape[1]
    out = backend.in_huge_pages(weight.new_empty((*ids.shape, dim)))
    if out.numel() == 0:
        return out
    rows_of_ids = ids if ids.dim() == 2 else ids.reshape(1, -1)
    table, index, offset = rows or (None, None, 0)
    outside = c_int64(0)
    kernel(
        *(None if x is None else x.data_ptr() for x in (out, weight, rows_of_ids, table, index)),
        byref(outside),
        *(1.0 if scale is None else scale, scale is not None),
        *(TYPES[weight.dtype], table is None or table.dtype == weight.dtype, out.nbytes >= _STREAM),
        torch.get_num_threads(),
        *(*rows_of_ids.shape, *weight.shape[::-1], weight.stride(0)),
        *(rows_of_ids.dtype == torch.int64, *rows_of_ids.stride(), *_strides(table, index, offset)),
    )
    return None if outside.value else out


def _strides(table: Tensor | None, index: Tensor | None, offset: int) -> tuple[int, ...]:
    """Return strides of the table, number of positions, offset, and strides of the index; see embedding.cpp."""
    if table is None:
        return 0, 0, 0, 0, 0, 0
    if index is None:
        return 0 if table.shape[0] == 1 else table.stride(0), table.stride(1), 0, 0, 0, 0
    sequence = 0 if index.shape[0] == 1 else index.stride(0)
    return 0, table.stride(0), table.shape[0] - offset, offset, sequence, index.stride(1)


def _run_or_raise(
    kernel: Callable[..., Any], weight: Tensor, ids: Tensor, scale: float | None, padding_idx: int | None, *rows: Any
) -> Tensor:
    vectors = _run_kernel(kernel, weight, ids, scale, None if rows[0] is None else Rows(*rows))
    if vectors is None:
        raise IndexError(f"an id is outside of 0..{weight.shape[0] - 1}, or a position outside of its table")
    return vectors


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    # In eager mode the kernel is before these seven.
    weight, ids, ctx.scale, ctx.padding_idx, table, index, ctx.offset = inputs[-7:]
    ctx.save_for_backward(ids, index)
    ctx.vocab_size, ctx.table = weight.shape[0], None if table is None else (table.shape, table.dtype)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    ids, index = ctx.saved_tensors
    to_weight = to_table = None
    needs = ctx.needs_input_grad[-7:]
    if needs[0]:
        of_rows = gradient if ctx.scale is None else gradient * ctx.scale
        to_weight = gradient_of_rows(of_rows, ids, ctx.vocab_size, ctx.padding_idx)
    if needs[4]:
        shape, dtype = ctx.table
        wide = gradient.to(torch.promote_types(gradient.dtype, dtype))
        if index is None:
            to_table = wide.sum_to_size(shape).to(dtype)
        else:
            of_slots = wide.sum_to_size(*index.shape, shape[1]).to(dtype)
            to_table = gradient_of_rows(of_slots, index + ctx.offset, shape[0], None)
    return to_weight, None, None, None, to_table, None, None


class _Embedding(torch.autograd.Function):
    """The lookup with its gradients in eager mode, where an operator would cost more to call."""

    forward, setup_context = staticmethod(_run_or_raise), staticmethod(_setup_context)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *_gradients(ctx, gradient))


@torch.library.custom_op("whatwhere::embed", mutates_args=())
def _embed(
    weight: Tensor,
    ids: Tensor,
    scale: float | None,
    padding_idx: int | None,
    table: Tensor | None,
    index: Tensor | None,
    offset: int,
) -> Tensor:
    """Look up, scale and sum; an id or a position without a row is an IndexError."""
    rows = None if table is None else Rows(table, index, offset)
    if ids.dtype in _INDICES and (kernel := _kernel(weight, ids, rows)) is not None:
        return _run_or_raise(kernel, weight, ids, scale, padding_idx, table, index, offset)
    return _in_pytorch(weight, ids, scale, rows)


def _in_pytorch(
    weight: Tensor, ids: Tensor, scale: float | None, rows: Rows | None, padding_idx: int | None = None
) -> Tensor:
    x = scaled(F.embedding(ids, weight, padding_idx), scale)
    if rows is None:
        return x
    table, index, offset = rows
    return summed(x, table if index is None else F.embedding(index + offset if offset else index, table), own=True)


@_embed.register_fake
def _(weight: Tensor, ids: Tensor, *_: Any) -> Tensor:
    return weight.new_empty((*ids.shape, weight.shape[1]))


_embed.register_autograd(_gradients, setup_context=_setup_context)
