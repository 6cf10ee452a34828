"""Group the token slots of a batch by embedding row, and sum their gradients by row (segment sum).

Each function has an implementation in PyTorch's operations, for every device and dtype; the kernels return the same
numbers to the bit.
"""

from ctypes import byref, c_int64
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from whatwhere.kernels import backend

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The dtypes that the kernels support, and the number of each in C++."""


@dataclass
class GroupedSlots:
    """The token slots of a batch, grouped by the row of the table that each looks up.

    On a GPU with kernels, rows are not counted, since that would be waited for: `rows` has the row of every slot in
    `order`, and what belongs to a row once is at its first slot.
    """

    rows: Int64[Tensor, " rows"]  # the rows that occur, ascending, each once; without starts, one for each slot
    starts: Int64[Tensor, " borders"] | None  # the slots of row n are order[starts[n] : starts[n + 1]]
    order: Int64[Tensor, " slots"]  # all slots, sorted by row


def group(ids: Int64[Tensor, " slots"], vocab_size: int) -> GroupedSlots | None:
    """Group the slots of ids by row; return None where an id is outside the table. A GPU finds that in the lookup."""
    count = len(ids)
    if (kernel := backend.on_cpu("group_by_row", ids)) is not None:
        ids = ids.contiguous()
        rows, starts, order, spare = torch.empty(4, count + 1, dtype=torch.int64)
        pointers = (x.data_ptr() for x in (rows, starts, order, spare))
        distinct = c_int64()
        kernel(ids.data_ptr(), count, vocab_size, *pointers, byref(distinct))
        if distinct.value < 0:
            return None
        return GroupedSlots(rows[: distinct.value], starts[: distinct.value + 1], order[:count])
    if backend.on_gpu("sum_by_row", ids) is not None:
        ordered, order = ids.sort(stable=True)
        return GroupedSlots(ordered, None, order)
    if count:
        low, high = torch.stack(ids.aminmax()).tolist()  # a GPU is waited for once
        if low < 0 or high >= vocab_size:
            return None
    ordered, order = ids.sort(stable=True)
    rows, counts = ordered.unique_consecutive(return_counts=True)
    return GroupedSlots(rows, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), order)


def sum_by_row(
    gradient: Float[Tensor, "slots dim"], slots: GroupedSlots, padding_idx: int | None = None
) -> Float[Tensor, "rows dim"]:
    """Sum the gradients of each of `slots.rows`, in the order of the slots and in float32 at least.

    The sum of a row that is repeated is at its first slot; zeros are at the others, and at a padding token.
    """
    rows, dim = len(slots.rows), gradient.shape[-1]
    supported = gradient.dtype in TYPES
    if supported and slots.starts is None and (on_gpu := backend.on_gpu("sum_by_row", gradient, slots.rows)):
        sums: Tensor = on_gpu(gradient, slots.rows, slots.order, padding_idx)
        return sums
    if supported and slots.starts is not None and (kernel := backend.on_cpu("sum_by_row", gradient, slots.rows)):
        gradient = gradient.contiguous()
        out = backend.in_huge_pages(gradient.new_empty(rows, dim))
        pointers = (x.data_ptr() for x in (gradient, slots.starts, slots.order, out))
        kernel(*pointers, rows, dim, TYPES[gradient.dtype], torch.get_num_threads())
    else:
        wide = gradient[slots.order].to(torch.promote_types(gradient.dtype, torch.float32))
        if slots.starts is None:
            which = torch.searchsorted(slots.rows, slots.rows)
        else:
            which = torch.arange(rows, device=wide.device).repeat_interleave(slots.starts.diff())
        out = wide.new_zeros(rows, dim).index_add_(0, which, wide).to(gradient.dtype)
    if padding_idx is not None:
        out[slots.rows == padding_idx] = 0
    return out


def first_slots(rows: Int64[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
    """Return which of some rows, ascending and perhaps repeated, are the first of their kind."""
    return torch.cat([rows.new_ones(min(len(rows), 1), dtype=torch.bool), rows[1:] != rows[:-1]])
