"""The places of a batch, grouped by the row of a table that they read, and their gradients summed by row.

Each function has its plain twin in PyTorch's operations, which serves every device and type; the compiled kernels give
the same numbers to the bit.
"""

from collections.abc import Callable
from ctypes import byref, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from whatwhere.kernels import cuda, native

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""What kernels take, and its number there."""


@dataclass
class Places:
    """Hold the places of a batch, grouped by the row that they read.

    Args:
        rows: ascending, each once.
        starts: the places of row n are order[starts[n] : starts[n + 1]].
        order: of all places, by row.
    """

    rows: Int64[Tensor, " rows"]
    starts: Int64[Tensor, " borders"]
    order: Int64[Tensor, " places"]


def group(ids: Int64[Tensor, " places"], vocab_size: int) -> Places | None:
    """Group places by the row that they read; None where an id is outside the table.

    >>> group(torch.tensor([7, 2, 7]), 8)
    Places(rows=tensor([2, 7]), starts=tensor([0, 1, 3]), order=tensor([1, 0, 2]))
    """
    count = len(ids)
    if native.serves(ids):
        ids = ids.contiguous()
        rows, starts, order, spare = torch.empty(4, count + 1, dtype=torch.int64)
        pointers = (x.data_ptr() for x in (rows, starts, order, spare))
        found = c_int64()
        _group()(ids.data_ptr(), count, vocab_size, *pointers, byref(found))
        return None if found.value < 0 else Places(rows[: found.value], starts[: found.value + 1], order[:count])
    if count and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        return None
    ordered, order = ids.sort(stable=True)
    rows, counts = ordered.unique_consecutive(return_counts=True)
    return Places(rows, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), order)


def sum_by_row(gradient: Float[Tensor, "places dim"], places: Places) -> Float[Tensor, "rows dim"]:
    """Sum the gradients of the places of each row, in order and in float32 at least.

    >>> sum_by_row(torch.tensor([[1.0], [2.0], [4.0]]), group(torch.tensor([7, 2, 7]), 8))
    tensor([[2.],
            [5.]])
    """
    rows, dim = len(places.rows), gradient.shape[-1]
    if gradient.dtype in TYPES and native.serves(gradient, places.rows):
        gradient = gradient.contiguous()
        out = native.in_huge_pages(gradient.new_empty(rows, dim))
        pointers = (x.data_ptr() for x in (gradient, places.starts, places.order, out))
        _sum()(*pointers, rows, dim, TYPES[gradient.dtype], torch.get_num_threads())
        return out
    if gradient.dtype in TYPES and cuda.serves(gradient, places.rows):
        from whatwhere.kernels.cuda import row_adamw  # loads Triton

        return row_adamw.sum_by_row(gradient, places)
    wide = gradient[places.order].to(torch.promote_types(gradient.dtype, torch.float32))
    which = torch.arange(rows, device=wide.device).repeat_interleave(places.starts.diff())
    return wide.new_zeros(rows, dim).index_add_(0, which, wide).to(gradient.dtype)


def _function(name: str, *arguments: type) -> Callable[..., None]:
    library = native.library()
    assert library is not None  # as `serves` has found
    return library.function(name, *arguments)


@cache
def _group() -> Callable[..., None]:
    return _function("group_places", c_void_p, c_int64, c_int64, *[c_void_p] * 5)


@cache
def _sum() -> Callable[..., None]:
    return _function("sum_by_row", *[c_void_p] * 4, c_int64, c_int64, c_int, c_int64)
