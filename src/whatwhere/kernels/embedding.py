"""The input layer in one pass over the memory: rows of the token table, scaled, plus the rows of their positions.

    x[b, t] = s E[ids[b, t]] + P[b, t]

The PyTorch implementation, `scaled` and `summed` of what `F.embedding` returns, writes and reads all vectors once more
for each operation. The kernel reads each row once, prefetches the next ones, and writes a large result past the caches.

What is traced on the CPU takes the kernel too, as an operator: PyTorch's compiler makes one pass of its operations,
but prefetches no row, and takes about twice as long. What is exported takes these operations, which run without
whatwhere.
"""

from collections.abc import Callable
from ctypes import byref, c_int64
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from whatwhere.kernels import backend
from whatwhere.kernels.group_by_row import group, sum_by_row

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_INDICES = (torch.int64, torch.int32)
_STREAM = 8 << 20
"""Bytes from which vectors are written past the caches: fewer may still be there when the next layer reads them."""
_WORTH = 1 << 18
"""Bytes from which the kernel gains more than it costs to call where a gradient is asked for."""


class Rows(NamedTuple):
    """Describe what is added to the vectors of tokens: a table, as it is or read where positions say.

    Args:
        table: (1 or batch, tokens, dim) as it is; (rows, dim) with places.
        places: (1 or batch, tokens); place p has row p + offset.
        offset: rows that no place reads.
    """

    table: Tensor
    places: Tensor | None = None
    offset: int = 0


def embed(
    weight: Float[Tensor, "vocab_size dim"],
    ids: Integer[Tensor, "*shape"],
    scale: float | None = None,
    padding_idx: int | None = None,
    rows: Rows | None = None,
) -> Float[Tensor, "*shape dim"] | None:
    """Look tokens up, scale their rows and add those of their positions, if a kernel serves; else give None.

    None is given too where an id or a position has no row: the plain way says which.

    Args:
        weight: E.
        ids: of rows of E; (batch, tokens) where something is added.
        scale: s; the product is rounded to the type of E before anything is added.
        padding_idx: a row that gets no gradient.
        rows: P.
    """
    if torch._C._are_functorch_transforms_active():  # whose tensors, when traced, do not look like what they are
        return None
    if torch.compiler.is_compiling():
        if not _as_operator(weight, ids, rows):
            return None
        traced: Tensor = _embed(weight, ids, scale, padding_idx, *(rows or (None, None, 0)))
        return traced
    learns = torch.is_grad_enabled() and (weight.requires_grad or (rows is not None and rows.table.requires_grad))
    if learns and ids.numel() * weight.shape[-1] * weight.element_size() < _WORTH:
        return None
    if (kernel := _kernel(weight, ids, rows)) is None:
        return None
    ids = ids if ids.dtype in _INDICES else ids.long()
    if not learns:
        return _computed(kernel, weight, ids, scale, rows)
    try:
        found: Tensor = _Embedding.apply(kernel, weight, ids, scale, padding_idx, *(rows or (None, None, 0)))  # type: ignore[no-untyped-call]
    except IndexError:
        return None
    return found


def scaled(rows: Float[Tensor, "*shape dim"], scale: float | Tensor | None) -> Float[Tensor, "*shape dim"]:
    """Multiply rows that nobody else holds, in place where they are plain.

    Examples:
        >>> scaled(torch.ones(2), 3.0)
        tensor([3., 3.])
    """
    if scale is None:
        return rows
    return rows.mul_(scale) if _is_plain(rows) else rows * scale


def summed(x: Float[Tensor, "..."], p: Float[Tensor, "..."], own: bool = False) -> Float[Tensor, "..."]:
    """Add positions to vectors, in the wider type of both, and give the type of the vectors.

    Args:
        x, p: vectors, and what is added to them.
        own: nobody else holds x, so that the sum may be written there.

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
    """Return each row of a table the sum of the gradients at its places, in float32 at least.

    PyTorch's CPU kernel sums in the table's own type: 4,096 gradients of 1 make 256 in bfloat16.

    Examples:
        >>> gradient_of_rows(torch.ones(3, 1), torch.tensor([1, 1, 0]), 3, None).flatten()
        tensor([1., 2., 0.])
    """
    if gradient.dtype not in (torch.bfloat16, torch.float16) or gradient.device.type != "cpu":
        padding = -1 if padding_idx is None else padding_idx
        found: Tensor = torch.ops.aten.embedding_dense_backward(gradient, index, rows, padding, False)
        return found
    dim = gradient.shape[-1]
    if not torch.is_grad_enabled() and backend.on_cpu("sum_by_row", gradient, index) is not None:
        total = _sums_of_rows(gradient.reshape(-1, dim), index.reshape(-1).long(), rows)
    else:
        total = gradient.new_zeros(rows, dim, dtype=torch.float32)
        total = total.index_add(0, index.reshape(-1), gradient.reshape(-1, dim).float()).to(gradient.dtype)
    if padding_idx is not None:
        total[padding_idx] = 0
    return total


def _sums_of_rows(gradient: Tensor, index: Tensor, rows: int) -> Tensor:
    """Sum in float32 what is there, and not a whole table of it."""
    places = group(index, rows)
    assert places is not None  # the forward pass has found all rows
    total = gradient.new_zeros(rows, gradient.shape[1])
    total[places.rows] = sum_by_row(gradient, places)
    return total


def _is_plain(x: Tensor) -> bool:
    """Return whether x can be written to: nothing is traced or transformed, and no other tensor lies there."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return type(x) is Tensor and not x._is_view()


def _kernel(weight: Tensor, ids: Tensor, rows: Rows | None) -> Callable[..., Any] | None:
    """Return the kernel that can look these up; else None."""
    added = () if rows is None else (rows.table,) if rows.places is None else (rows.table, rows.places)
    kernel = backend.on_cpu("embed", weight, ids, *added) or backend.on_gpu("embed", weight, ids, *added)
    fits = (
        weight.dtype in _TYPES
        and weight.dim() == 2
        and weight.stride(1) == 1
        and not (ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool)
        and (rows is None or _fits(weight, ids, rows))
    )
    return kernel if fits else None


def _as_operator(weight: Tensor, ids: Tensor, rows: Rows | None) -> bool:
    return (
        backend.as_operator(weight)
        and weight.dtype in _TYPES
        and ids.dtype in _INDICES
        and (rows is None or rows.table.dtype in (weight.dtype, torch.float32))
    )


def _fits(weight: Tensor, ids: Tensor, rows: Rows) -> bool:
    """Return whether the kernel can add these rows."""
    table, index, offset = rows
    like = ids.dim() == 2 and table.dtype in (weight.dtype, torch.float32) and table.stride(-1) == 1
    if not like or table.shape[-1] != weight.shape[1]:
        return False
    if index is None:
        return table.dim() == 3 and _stand(table.shape[:2], ids)
    return table.dim() == 2 and index.dtype == torch.int64 and offset >= 0 and _stand(index.shape, ids)


def _stand(shape: torch.Size, ids: Tensor) -> bool:
    return shape in ((1, ids.shape[1]), ids.shape)


def _computed(
    kernel: Callable[..., Any], weight: Tensor, ids: Tensor, scale: float | None, rows: Rows | None
) -> Tensor | None:
    """Run the kernel; None where an id or a position has no row. On a GPU that ends the program."""
    if weight.is_cuda:
        found: Tensor = kernel(weight, ids, scale, rows)
        return found
    dim = weight.shape[1]
    out = backend.in_huge_pages(weight.new_empty((*ids.shape, dim)))
    if out.numel() == 0:
        return out
    places = ids if ids.dim() == 2 else ids.reshape(1, -1)
    table, index, offset = rows or (None, None, 0)
    outside = c_int64(0)
    kernel(
        out.data_ptr(),
        weight.data_ptr(),
        places.data_ptr(),
        None if table is None else table.data_ptr(),
        None if index is None else index.data_ptr(),
        byref(outside),
        1.0 if scale is None else scale,
        scale is not None,
        _TYPES[weight.dtype],
        table is None or table.dtype == weight.dtype,
        out.numel() * out.element_size() >= _STREAM,
        torch.get_num_threads(),
        *places.shape,
        *weight.shape[::-1],
        weight.stride(0),
        places.dtype == torch.int64,
        *places.stride(),
        *_steps(table, index, offset),
    )
    return None if outside.value else out


def _steps(table: Tensor | None, index: Tensor | None, offset: int) -> tuple[int, ...]:
    """Return strides of what is added, rows that places have, the offset, and strides of the index; see embedding.cpp.

    Where all sequences stand alike, the stride from one to the next is 0.
    """
    if table is None:
        return 0, 0, 0, 0, 0, 0
    if index is None:
        return 0 if table.shape[0] == 1 else table.stride(0), table.stride(1), 0, 0, 0, 0
    sequence = 0 if index.shape[0] == 1 else index.stride(0)
    return 0, table.stride(0), table.shape[0] - offset, offset, sequence, index.stride(1)


def _found(
    kernel: Callable[..., Any],
    weight: Tensor,
    ids: Tensor,
    scale: float | None,
    padding_idx: int | None,
    table: Tensor | None,
    index: Tensor | None,
    offset: int,
) -> Tensor:
    found = _computed(kernel, weight, ids, scale, None if table is None else Rows(table, index, offset))
    if found is None:
        raise IndexError(f"an id lies outside of 0..{weight.shape[0] - 1}, or a position outside of its table")
    return found


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    weight, ids, ctx.scale, ctx.padding_idx, table, index, ctx.offset = inputs[-7:]  # a kernel may stand before them
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
            of_places = wide.sum_to_size(*index.shape, shape[1]).to(dtype)
            to_table = gradient_of_rows(of_places, index + ctx.offset, shape[0], None)
    return to_weight, None, None, None, to_table, None, None


class _Embedding(torch.autograd.Function):
    """The pass with its gradients in eager mode; an operator would cost more to call."""

    forward, setup_context = staticmethod(_found), staticmethod(_keep)

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
    """Look up, scale and sum; what has no row is an IndexError."""
    rows = None if table is None else Rows(table, index, offset)
    if ids.dtype in _INDICES and (kernel := _kernel(weight, ids, rows)) is not None:
        return _found(kernel, weight, ids, scale, padding_idx, table, index, offset)
    return _in_pytorch(weight, ids, scale, rows)


def _in_pytorch(weight: Tensor, ids: Tensor, scale: float | None, rows: Rows | None) -> Tensor:
    x = scaled(F.embedding(ids, weight), scale)
    if rows is None:
        return x
    table, index, offset = rows
    return summed(x, table if index is None else F.embedding(index + offset, table), own=True)


@_embed.register_fake
def _(weight: Tensor, ids: Tensor, *_: Any) -> Tensor:
    return weight.new_empty((*ids.shape, weight.shape[1]))


_embed.register_autograd(_gradients, setup_context=_keep)
