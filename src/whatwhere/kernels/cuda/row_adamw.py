"""AdamW on the rows of a batch, on a GPU: rows brought up to date, gradients summed by row, the step.

Every kernel has a program for each slot of the batch, and the first slot of a row handles the row: so the rows need not
be counted, which would be waited for. Each number of a row is read and written once. The PyTorch implementations are in
kernels/row_adamw.py and kernels/group_by_row.py, and the numbers are the same to the bit; but skipped steps are added
up one by one, as long as they have weight, where the CPU has a Gauss rule for more than a dozen.
"""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from whatwhere.kernels.cuda import covering, launch
from whatwhere.kernels.row_adamw import Moments, Step

_MAX_BLOCK = 1024  # numbers of a row that a program takes at once. From 64 to 1,024 were measured


def adamw_catch_up(
    table: Moments,
    rows: Int64[Tensor, "slots"] | None,
    steps: Float64[Tensor, "capacity columns"],
    base: int,
    count: int,
    eps: float,
    tail: float,
) -> None:
    """Bring rows up to date, all if none are given. A row outside the table stops the program on the device.

    Args:
        rows: ascending, perhaps repeated.
        steps: as StepHistory.products returns them, from slot 0.
        base: the step of slot 0.
        count: the slot of the last step.
        tail: by how much the logarithm of a step's weight may be below that of the first one.
    """
    last = table.last
    block, warps = _block(table.weight.shape[1])
    launch(
        _catch_up, (len(last if rows is None else rows),), last.device, *_tensors(table),
        last if rows is None else rows, steps, float(eps), float(tail), base, count, *table.weight.shape,
        COLUMNS=steps.shape[1], BLOCK=block, MASTER=table.master is not None, ALL=rows is None, num_warps=warps,
        debug=True, sanitize_overflow=False,
    )  # fmt: skip


def adamw_update(
    table: Moments,
    rows: Int64[Tensor, "slots"],
    gradient: Float[Tensor, "slots dim"],
    rest: Float[Tensor, ""] | None,
    step: Step,
) -> None:
    """Update rows by one step, but those that are not up to date, and none where `rest` is not 0.

    The flag of the table becomes 1 where a row was not up to date, 2 where `rest` is not 0.

    Args:
        rows: ascending, perhaps repeated.
        gradient: of each row, at its first slot.
        rest: the gradient of all other rows.
    """
    block, warps = _block(table.weight.shape[1])
    launch(
        _update, (len(rows),), table.last.device, *_tensors(table), rows, gradient.contiguous(), table.flag,
        gradient if rest is None else rest, *(float(number) for number in step.constants()), step.number,
        table.weight.shape[1], BLOCK=block, MASTER=table.master is not None, REST=rest is not None, num_warps=warps,
    )  # fmt: skip


def sum_by_row(
    gradient: Float[Tensor, "slots dim"],
    rows: Int64[Tensor, "slots"],
    order: Int64[Tensor, "slots"],
    padding_idx: int | None = None,
) -> Float[Tensor, "slots dim"]:
    """Sum the gradients of each row at its first slot, in order and in float32; zeros at the others, and at padding.

    Args:
        rows: ascending, each as often as it was looked up.
        order: the slot of each in `gradient`.
    """
    slots, dim = gradient.shape
    out = gradient.new_empty(slots, dim)
    block, warps = _block(dim)
    tensors = (gradient.contiguous(), rows, order, out)
    padding = -1 if padding_idx is None else padding_idx
    grid = (slots, triton.cdiv(dim, block))
    launch(_sum_by_row, grid, gradient.device, *tensors, slots, padding, dim, BLOCK=block, num_warps=warps)
    return out


def _tensors(table: Moments) -> tuple[Tensor, ...]:
    weight = table.weight.detach()
    return weight, weight if table.master is None else table.master, table.exp_avg, table.exp_avg_sq, table.last


def _block(dim: int) -> tuple[int, int]:
    """Return the block, and the warps of a program: each thread has up to eight numbers of each tensor."""
    block = covering(dim, _MAX_BLOCK)
    return block, max(1, block // 256)


@triton.jit
@no_type_check
def _in_full(p, master, at, inside, MASTER: tl.constexpr):
    # A float32 master is valid as long as it rounds to the 16-bit number in the table.
    if MASTER:
        value = tl.load(master + at, mask=inside, other=0.0)
        same = value.to(p.dtype).to(tl.int16, bitcast=True) == p.to(tl.int16, bitcast=True)
        return tl.where(same, value, p.to(tl.float32))
    return p.to(tl.float32)


@triton.jit
@no_type_check
def _product(number, power):
    # number 2^power in float64, and 0 where that is below its range.
    bits = (tl.maximum(power, -1023.0).to(tl.int64) + 1023) << 52
    return number * bits.to(tl.float64, bitcast=True)


@triton.jit
@no_type_check
def _is_first(rows, slot, row):
    return (slot == 0) | (tl.load(rows + tl.maximum(slot - 1, 0)) != row)


@triton.jit(do_not_specialize=["base", "count"])
@no_type_check
def _catch_up(
    weight, master, exp_avg, exp_avg_sq, last, rows, steps, eps, tail, base, count, vocab_size, dim,
    COLUMNS: tl.constexpr, BLOCK: tl.constexpr, MASTER: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    mine = row >= 0
    if not ALL:
        slot = row
        row = tl.load(rows + slot)
        mine = (row >= 0) & (row < vocab_size)
        # `launch` sets debug, without which Triton compiles no assertions.
        tl.device_assert(mine, "a token id is outside the table")
        mine &= _is_first(rows, slot, row)
    since = tl.load(last + row, mask=mine, other=2147483647)
    tl.debug_barrier()  # every thread has read it before one of them writes it
    n = since - base
    if n < count:
        # Columns of StepHistory.products: the products of the decays of p, m and sqrt(v) as a number and a power of 2,
        # then weight, node and the logarithm of how far the weight has faded.
        start = steps + n.to(tl.int64) * COLUMNS
        end = steps + count.to(tl.int64) * COLUMNS
        kept = _product(tl.load(end) / tl.load(start), tl.load(end + 3) - tl.load(start + 3)).to(tl.float32)
        decay1 = _product(tl.load(end + 1) / tl.load(start + 1), tl.load(end + 4) - tl.load(start + 4)).to(tl.float32)
        half = _product(tl.load(end + 2) / tl.load(start + 2), tl.load(end + 5) - tl.load(start + 5))
        decay2 = (half * half).to(tl.float32)
        weight_scale = tl.load(end) / tl.load(start + 1)
        weight_power = tl.load(end + 3) - tl.load(start + 4)
        node_scale = 1.0 / tl.load(start + 2)
        node_power = tl.load(start + 5)
        limit = tl.where(since > 0, tl.load(start + 8) + tail, float("-inf"))  # before step 1 there are no moments
        for begin in range(0, dim, BLOCK):
            feature = begin + tl.arange(0, BLOCK)
            inside = feature < dim
            at = row * dim + feature
            # Every load before any arithmetic, so that all are in flight together.
            p = tl.load(weight + at, mask=inside, other=0.0)
            first = tl.load(exp_avg + at, mask=inside, other=0.0)
            second = tl.load(exp_avg_sq + at, mask=inside, other=0.0)
            whole = _in_full(p, master, at, inside, MASTER)
            root = tl.sqrt_rn(second)
            total = tl.full((BLOCK,), 0.0, tl.float32)
            s = n + 1
            step = start + COLUMNS
            while (s <= count) & (tl.load(step + 8, mask=s <= count, other=0.0) <= limit):
                power = tl.load(step + 4) - tl.load(step + 3) + weight_power
                w = _product(tl.load(step + 6) * weight_scale, power).to(tl.float32)
                if w != 0.0:
                    x = _product(tl.load(step + 7) * node_scale, tl.load(step + 5) - node_power).to(tl.float32)
                    total += tl.div_rn(w, x * root + eps)
                s += 1
                step += COLUMNS
            value = whole * kept - tl.where(first == 0.0, 0.0, first * total)
            tl.store(weight + at, value.to(p.dtype), mask=inside)
            if MASTER:
                tl.store(master + at, value, mask=inside)
            tl.store(exp_avg + at, first * decay1, mask=inside)
            tl.store(exp_avg_sq + at, second * decay2, mask=inside)
        tl.store(last + row, base + count)


@triton.jit(do_not_specialize=["number"])
@no_type_check
def _update(
    weight, master, exp_avg, exp_avg_sq, last, rows, gradient, refused, rest,
    beta1, rest1, beta2, rest2, kept, rate, root, eps, number, dim,
    BLOCK: tl.constexpr, MASTER: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    slot = tl.program_id(0).to(tl.int64)
    row = tl.load(rows + slot)
    since = tl.load(last + row)
    mine = _is_first(rows, slot, row) & (since != 2147483647)
    problem = tl.where(since == number - 1, 0, 1)
    if REST:
        problem = tl.where(tl.load(rest) == 0.0, problem, 2)
    tl.debug_barrier()  # every thread has read `last` before one of them writes it
    if mine & (problem > 0):
        tl.store(refused, problem)
    if mine & (problem == 0):
        for begin in range(0, dim, BLOCK):
            feature = begin + tl.arange(0, BLOCK)
            inside = feature < dim
            at = row * dim + feature
            g = tl.load(gradient + slot * dim + feature, mask=inside, other=0.0).to(tl.float32)
            p = tl.load(weight + at, mask=inside, other=0.0)
            first = tl.load(exp_avg + at, mask=inside, other=0.0)
            second = tl.load(exp_avg_sq + at, mask=inside, other=0.0)
            whole = _in_full(p, master, at, inside, MASTER)
            first = first * beta1 + g * rest1
            second = second * beta2 + g * rest2 * g
            change = tl.div_rn(first, tl.sqrt_rn(second) * root + eps) * rate
            value = whole * kept - tl.where(first == 0.0, 0.0, change)
            tl.store(weight + at, value.to(p.dtype), mask=inside)
            if MASTER:
                tl.store(master + at, value, mask=inside)
            tl.store(exp_avg + at, first, mask=inside)
            tl.store(exp_avg_sq + at, second, mask=inside)
        tl.store(last + row, number)


@triton.jit
@no_type_check
def _is_in_row(rows, at, slots, row):
    return (at < slots) & (tl.load(rows + tl.minimum(at, slots - 1)) == row)


@triton.jit
@no_type_check
def _of_slot(gradient, rows, order, at, slots, row, dim, feature):
    # Zeros beyond the last slot of the row.
    here = _is_in_row(rows, at, slots, row)
    slot = tl.load(order + tl.minimum(at, slots - 1))
    return tl.load(gradient + slot * dim + feature, mask=feature < tl.where(here, dim, 0), other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["slots", "padding"])
@no_type_check
def _sum_by_row(gradient, rows, order, out, slots, padding, dim, BLOCK: tl.constexpr):
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64)
    to = out + at * dim + feature
    row = tl.load(rows + at)
    at = tl.where(_is_first(rows, at, row) & (row != padding), at, slots)
    total = tl.full((BLOCK,), 0.0, tl.float32)
    # Triton 3.6 cannot compile a loop that ends by what its body has read.
    while _is_in_row(rows, at, slots, row):  # four at a time: one read does not wait for the sum before it
        a = _of_slot(gradient, rows, order, at, slots, row, dim, feature)
        b = _of_slot(gradient, rows, order, at + 1, slots, row, dim, feature)
        c = _of_slot(gradient, rows, order, at + 2, slots, row, dim, feature)
        d = _of_slot(gradient, rows, order, at + 3, slots, row, dim, feature)
        total = total + a + b + c + d
        at += 4
    tl.store(to, total.to(out.dtype.element_ty), mask=feature < dim)
