"""The input layer on a GPU, in one pass: rows of the token table, scaled, plus the rows of their positions.

The PyTorch implementation is in kernels/embedding.py. The gradient is PyTorch's own, which sorts the ids and sums each
row in float32: its cost is to read the gradient and to write a table of zeros, which every kernel would have to do.
"""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float, Integer
from torch import Tensor

from whatwhere.kernels.cuda import covering, launch

_NUMBERS_OF_A_PROGRAM = 2048
"""16 for each of 128 threads: in bfloat16, two accesses of 16 bytes to each table. From 512 to 8,192 were measured."""

_MAX_BLOCK = 1024  # numbers of one row; longer rows take several programs


def embed(
    weight: Float[Tensor, "vocab_size dim"],
    ids: Integer[Tensor, "*shape"],
    scale: float | None = None,
    rows: tuple[Tensor, Tensor | None, int] | None = None,
) -> Float[Tensor, "*shape dim"]:
    """Look up tokens, scale their rows and add those of their positions.

    Ids and positions without a row stop the program on the device, as PyTorch's own lookups do.

    Args:
        ids: int64 or int32; (batch, tokens) where something is added.
        scale: s; the product is rounded to the dtype of E before anything is added.
        rows: P, of the dtype of E or float32: a table, the position of each token or None, and an offset, as in Rows.
    """
    vocab_size, dim = weight.shape
    out = weight.new_empty((*ids.shape, dim))
    rows_of_ids = ids if ids.dim() == 2 else ids.reshape(1, -1)
    slots, tokens = rows_of_ids.numel(), rows_of_ids.shape[1]
    block = covering(dim, _MAX_BLOCK)
    by_slots = covering(slots, _NUMBERS_OF_A_PROGRAM // block)
    # What a kernel does not need is None, which costs no time to pass.
    table, index, offset = rows or (None, None, 0)
    by_table: tuple[int | None, ...] = (None,) * 5
    if table is not None and index is None:
        by_table = None, *_strides(table), None, None
    elif table is not None and index is not None:
        by_table = table.shape[0] - offset, None, table.stride(0), *_strides(index)
    launch(
        _embed, (triton.cdiv(slots, by_slots), triton.cdiv(dim, block)), weight.device,
        out, weight, rows_of_ids, table, index, None if scale is None else float(scale), slots, tokens, vocab_size,
        *((None, None) if rows_of_ids.is_contiguous() else rows_of_ids.stride()), *by_table,
        OFFSET=offset, DIM=dim, STEP=weight.stride(0), ROWS=by_slots, BLOCK=block,
        MANY=slots >= 2**31 - _NUMBERS_OF_A_PROGRAM, num_warps=4, debug=True, sanitize_overflow=False,
    )  # fmt: skip
    return out


def _strides(x: Tensor) -> tuple[int, int]:
    """Return the strides of sequences and tokens; where all sequences share a row, the first is 0."""
    return (0 if x.shape[0] == 1 else x.stride(0)), x.stride(1)


@triton.jit
@no_type_check
def _embed(
    out, weight, ids, table, index, scale,
    slots, tokens, vocab_size,
    ids_batch, ids_token, positions, table_batch, table_row, index_batch, index_token,
    OFFSET: tl.constexpr, DIM: tl.constexpr, STEP: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    # One program: ROWS slots, BLOCK features. Slots are counted in 32 bits where these do, which divide faster; offsets
    # are 64-bit, since a table may have more numbers than that.
    first = tl.program_id(0).to(tl.int64) if MANY else tl.program_id(0)
    slot = first * ROWS + tl.arange(0, ROWS)
    feature = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[None, :]
    real = slot < slots
    b = (slot // tokens).to(tl.int64)
    t = (slot % tokens).to(tl.int64)
    if ids_batch is None:
        token = tl.load(ids + slot.to(tl.int64), mask=real, other=0).to(tl.int64)
    else:
        token = tl.load(ids + b * ids_batch + t * ids_token, mask=real, other=0).to(tl.int64)
    known = (token >= 0) & (token < vocab_size)
    inside = real[:, None] & (feature < DIM)
    x = tl.load(weight + token[:, None] * STEP + feature, mask=inside & known[:, None], other=0.0)
    held = real
    if table is not None:
        if index is not None:
            position = tl.load(index + b * index_batch + t * index_token, mask=real, other=0)
            held = (position >= 0) & (position < positions)
            row = (position + OFFSET) * table_row
        else:
            row = b * table_batch + t * table_row
        p = tl.load(table + row[:, None] + feature, mask=inside & held[:, None], other=0.0)
    # After all reads, which need not wait for it. `launch` sets debug, without which Triton compiles no assertions.
    tl.device_assert(known, "a token id is outside the table")
    if index is not None:
        tl.device_assert(held, "a position is outside the table")
    if scale is not None:
        x = (x.to(tl.float32) * scale).to(weight.dtype.element_ty)
    if table is not None:
        x = (x.to(tl.float32) + p.to(tl.float32)).to(weight.dtype.element_ty)
    tl.store(out + slot[:, None].to(tl.int64) * DIM + feature, x, mask=inside & known[:, None] & held[:, None])
