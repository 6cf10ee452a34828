"""AdamW on the rows of a batch, on a GPU: rows brought up to date, gradients summed by row, the step.

Each reads and writes a row once. The PyTorch implementations are in kernels/row_adamw.py and kernels/group_by_row.py,
and the numbers are the same to the bit; sums are in the order of the slots, while PyTorch's own order on a GPU varies.
"""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from whatwhere.kernels.cuda import covering, launch

_MAX_BLOCK = 1024
"""Numbers of one row that a program takes; longer rows take several programs. From 64 to 1,024 were measured."""


def adamw_catch_up(
    weight: Float[Tensor, "vocab_size dim"],
    master: Float32[Tensor, "vocab_size dim"] | None,
    exp_avg: Float32[Tensor, "vocab_size dim"],
    exp_avg_sq: Float32[Tensor, "vocab_size dim"],
    rows: Int64[Tensor, "rows"],
    numbers: Float32[Tensor, "rows columns"],
    eps: float,
) -> None:
    """Bring rows up to date.

    p <- D p - m sum_i w_i / (x_i sqrt(v) + eps)        m <- M m        v <- V v
    """
    dim, columns = weight.shape[1], numbers.shape[1]
    block, grid, warps = _blocks(len(rows), dim)
    table = (weight, weight if master is None else master, exp_avg, exp_avg_sq)
    tensors = (*table, rows.contiguous(), numbers.contiguous())
    launch(
        _catch_up, grid, rows.device, *tensors, float(eps), dim, columns,
        BLOCK=block, MOST=(columns - 3) // 2, MASTER=master is not None, num_warps=warps,
    )  # fmt: skip


def adamw_update(
    weight: Float[Tensor, "vocab_size dim"],
    master: Float32[Tensor, "vocab_size dim"] | None,
    exp_avg: Float32[Tensor, "vocab_size dim"],
    exp_avg_sq: Float32[Tensor, "vocab_size dim"],
    rows: Int64[Tensor, "rows"],
    gradient: Float[Tensor, "rows dim"],
    constants: tuple[float, ...],
) -> None:
    """Update rows that are up to date by one step.

        m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
        p <- (1 - lr weight_decay) p - lr / (1 - beta1^n) m / (sqrt(v) / sqrt(1 - beta2^n) + eps)

    Args:
        master: float32 values of a 16-bit table.
        constants: beta1, 1 - beta1, beta2, 1 - beta2, 1 - lr weight_decay, lr / (1 - beta1^n),
            1 / sqrt(1 - beta2^n), eps.
    """
    dim = weight.shape[1]
    block, grid, warps = _blocks(len(rows), dim)
    table = (weight, weight if master is None else master, exp_avg, exp_avg_sq)
    tensors = (*table, rows.contiguous(), gradient.contiguous())
    launch(
        _update, grid, rows.device, *tensors, *(float(number) for number in constants), dim,
        BLOCK=block, MASTER=master is not None, num_warps=warps,
    )  # fmt: skip


def sum_by_row(
    gradient: Float[Tensor, "slots dim"], starts: Int64[Tensor, "borders"], order: Int64[Tensor, "slots"]
) -> Float[Tensor, "rows dim"]:
    """Sum the gradients of each row, in order and in float32."""
    rows, dim = len(starts) - 1, gradient.shape[-1]
    out = gradient.new_empty(rows, dim)
    block, grid, warps = _blocks(rows, dim)
    tensors = (gradient.contiguous(), starts, order, out)
    launch(_sum_by_row, grid, gradient.device, *tensors, dim, BLOCK=block, num_warps=warps)
    return out


def _blocks(rows: int, dim: int) -> tuple[int, tuple[int, int], int]:
    """Return the block, the grid, and the warps of a program: each thread has up to eight numbers of each tensor."""
    block = covering(dim, _MAX_BLOCK)
    return block, (rows, triton.cdiv(dim, block)), max(1, block // 256)


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
def _catch_up(
    weight, master, exp_avg, exp_avg_sq, rows, numbers, eps, dim, columns,
    BLOCK: tl.constexpr, MOST: tl.constexpr, MASTER: tl.constexpr,
):  # fmt: skip
    # One program: BLOCK features of one row.
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = feature < dim
    at = tl.load(rows + tl.program_id(0)) * dim + feature
    numbers += tl.program_id(0).to(tl.int64) * columns
    kept = tl.load(numbers)
    decay1 = tl.load(numbers + 1)
    decay2 = tl.load(numbers + 2)
    # Every load before any arithmetic, so that all are in flight together.
    p = tl.load(weight + at, mask=inside, other=0.0)
    first = tl.load(exp_avg + at, mask=inside, other=0.0)
    second = tl.load(exp_avg_sq + at, mask=inside, other=0.0)
    whole = _in_full(p, master, at, inside, MASTER)
    root = tl.sqrt_rn(second)
    total = tl.full((BLOCK,), 0.0, tl.float32)
    for i in range(MOST):
        w = tl.load(numbers + 3 + MOST + i)
        if w != 0.0:
            total += tl.div_rn(w, tl.load(numbers + 3 + i) * root + eps)
    value = whole * kept - tl.where(first == 0.0, 0.0, first * total)
    tl.store(weight + at, value.to(p.dtype), mask=inside)
    if MASTER:
        tl.store(master + at, value, mask=inside)
    tl.store(exp_avg + at, first * decay1, mask=inside)
    tl.store(exp_avg_sq + at, second * decay2, mask=inside)


@triton.jit
@no_type_check
def _update(
    weight, master, exp_avg, exp_avg_sq, rows, gradient, beta1, rest1, beta2, rest2, kept, rate, root, eps, dim,
    BLOCK: tl.constexpr, MASTER: tl.constexpr,
):  # fmt: skip
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = feature < dim
    at = tl.load(rows + tl.program_id(0)) * dim + feature
    g = tl.load(gradient + tl.program_id(0).to(tl.int64) * dim + feature, mask=inside, other=0.0).to(tl.float32)
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


@triton.jit
@no_type_check
def _of_slot(gradient, order, at, end, dim, feature):
    # Zeros beyond the last slot.
    slot = tl.load(order + tl.minimum(at, end - 1))
    return tl.load(gradient + slot * dim + feature, mask=feature < tl.where(at < end, dim, 0), other=0.0)


@triton.jit
@no_type_check
def _sum_by_row(gradient, starts, order, out, dim, BLOCK: tl.constexpr):
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(starts + tl.program_id(0))
    end = tl.load(starts + tl.program_id(0) + 1)
    total = tl.full((BLOCK,), 0.0, tl.float32)
    while at < end:  # four at a time: one read does not wait for the sum before it
        a = _of_slot(gradient, order, at, end, dim, feature)
        b = _of_slot(gradient, order, at + 1, end, dim, feature)
        c = _of_slot(gradient, order, at + 2, end, dim, feature)
        d = _of_slot(gradient, order, at + 3, end, dim, feature)
        total += a.to(tl.float32)
        total += b.to(tl.float32)
        total += c.to(tl.float32)
        total += d.to(tl.float32)
        at += 4
    row = tl.program_id(0).to(tl.int64) * dim
    tl.store(out + row + feature, total.to(out.dtype.element_ty), mask=feature < dim)
