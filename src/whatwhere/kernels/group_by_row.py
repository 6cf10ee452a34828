"""Group the token slots of a batch by embedding row, and sum their gradients by row (segment sum).

Each function has an implementation in PyTorch's operations, which serves every device and type; the kernels compute the
same numbers to the bit.
"""

from ctypes import byref, c_int64
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from whatwhere.kernels import backend

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""What kernels take, and its number there."""


@dataclass
class Places:
    """The token slots of a batch, grouped by the row of the table that they look up.

    Args:
        rows: ascending, each once.
        starts: the slots of row n are order[starts[n] : starts[n + 1]].
        order: of all slots, by row.
    """

    rows: Int64[Tensor, " rows"]
    starts: Int64[Tensor, " borders"]
    order: Int64[Tensor, " places"]


def group(ids: Int64[Tensor, " places"], vocab_size: int) -> Places | None:
    """Group the slots of ids by row; None where an id is outside the table.

    Examples:
        >>> group(torch.tensor([7, 2, 7]), 8)
        Places(rows=tensor([2, 7]), starts=tensor([0, 1, 3]), order=tensor([1, 0, 2]))
    """
    count = len(ids)
    if (kernel := backend.on_cpu("group_by_row", ids)) is not None:
        ids = ids.contiguous()
        rows, starts, order, spare = torch.empty(4, count + 1, dtype=torch.int64)
        pointers = (x.data_ptr() for x in (rows, starts, order, spare))
        found = c_int64()
        kernel(ids.data_ptr(), count, vocab_size, *pointers, byref(found))
        return None if found.value < 0 else Places(rows[: found.value], starts[: found.value + 1], order[:count])
    if count and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        return None
    ordered, order = ids.sort(stable=True)
    rows, counts = ordered.unique_consecutive(return_counts=True)
    return Places(rows, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), order)


def sum_by_row(gradient: Float[Tensor, "places dim"], places: Places) -> Float[Tensor, "rows dim"]:
    """Return the sum of the gradients of each row, in the order of the slots and in float32 at least.

    Examples:
        >>> sum_by_row(torch.tensor([[1.0], [2.0], [4.0]]), group(torch.tensor([7, 2, 7]), 8))
        tensor([[2.],
                [5.]])
    """
    rows, dim = len(places.rows), gradient.shape[-1]
    known = gradient.dtype in TYPES
    if known and (kernel := backend.on_cpu("sum_by_row", gradient, places.rows)) is not None:
        gradient = gradient.contiguous()
        out = backend.in_huge_pages(gradient.new_empty(rows, dim))
        pointers = (x.data_ptr() for x in (gradient, places.starts, places.order, out))
        kernel(*pointers, rows, dim, TYPES[gradient.dtype], torch.get_num_threads())
        return out
    if known and (on_gpu := backend.on_gpu("sum_by_row", gradient, places.rows)) is not None:
        found: Tensor = on_gpu(gradient, places.starts, places.order)
        return found
    wide = gradient[places.order].to(torch.promote_types(gradient.dtype, torch.float32))
    which = torch.arange(rows, device=wide.device).repeat_interleave(places.starts.diff())
    return wide.new_zeros(rows, dim).index_add_(0, which, wide).to(gradient.dtype)
