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

_MAX_BLOCK = 1024
"""Numbers of one row; longer rows take several programs."""


def embed(
    weight: Float[Tensor, "vocab_size dim"],
    ids: Integer[Tensor, "*shape"],
    scale: float | None = None,
    rows: tuple[Tensor, Tensor | None, int] | None = None,
) -> Float[Tensor, "*shape dim"]:
    """Look up tokens, scale their rows and add those of their positions.

        x[b, t] = s E[ids[b, t]] + P[b, t]

    Ids and positions without a row stop the program on the device, as PyTorch's own lookups do.

    Args:
        ids: int64 or int32; (batch, tokens) where something is added.
        scale: s; the product is rounded to the dtype of E before anything is added.
        rows: P, of the dtype of E or float32: a table, the position of each token or None, and an offset, as in Rows.
    """
    vocab_size, dim = weight.shape
    out = weight.new_empty((*ids.shape, dim))
    rows_of_ids = ids if ids.dim() == 2 else ids.reshape(1, -1)
    block = covering(dim, _MAX_BLOCK)
    by_slots = covering(rows_of_ids.numel(), _NUMBERS_OF_A_PROGRAM // block)
    grid = (triton.cdiv(rows_of_ids.numel(), by_slots), triton.cdiv(dim, block))
    table, index, offset = (weight, None, 0) if rows is None else rows
    positions = table.shape[0] - offset if index is not None else 0
    sizes = (rows_of_ids.numel(), rows_of_ids.shape[1], dim, vocab_size, positions, offset)
    # Where all sequences share a row, the stride is 0.
    by_table = (0, 0) if rows is None else (0, table.stride(0)) if index is not None else _strides(table)
    strides = (weight.stride(0), *rows_of_ids.stride(), *by_table, *((0, 0) if index is None else _strides(index)))
    constants = {"SCALED": scale is not None, "ADDED": rows is not None, "INDEXED": index is not None}
    tensors = (out, weight, rows_of_ids, table, rows_of_ids if index is None else index)
    factor = 1.0 if scale is None else float(scale)
    launch(
        _embed, grid, weight.device, *tensors, factor, *sizes, *strides,
        ROWS=by_slots, BLOCK=block, **constants, num_warps=4, debug=True, sanitize_overflow=False,
    )  # fmt: skip
    return out


def _strides(x: Tensor) -> tuple[int, int]:
    return (0 if x.shape[0] == 1 else x.stride(0)), x.stride(1)


@triton.jit
@no_type_check
def _embed(
    out, weight, ids, table, index, scale,
    slots, tokens, dim, vocab_size, positions, offset,
    weight_row, ids_batch, ids_token, table_batch, table_row, index_batch, index_token,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, SCALED: tl.constexpr, ADDED: tl.constexpr, INDEXED: tl.constexpr,
):  # fmt: skip
    # One program: ROWS slots, BLOCK features. There are fewer than 2**31 slots, which 32 bits divide faster; offsets
    # are 64-bit, since a table may have more numbers than that.
    slot = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[None, :]
    real = slot < slots
    b = (slot // tokens).to(tl.int64)
    t = (slot % tokens).to(tl.int64)
    token = tl.load(ids + b * ids_batch + t * ids_token, mask=real, other=0).to(tl.int64)
    known = (token >= 0) & (token < vocab_size)
    # `launch` sets debug, without which Triton compiles no assertions.
    tl.device_assert(known, "a token id is outside the table")
    inside = (real & known)[:, None] & (feature < dim)
    x = tl.load(weight + token[:, None] * weight_row + feature, mask=inside, other=0.0)
    if SCALED:
        x = (x.to(tl.float32) * scale).to(weight.dtype.element_ty)
    if ADDED:
        row = b * table_batch + t * table_row
        if INDEXED:
            position = tl.load(index + b * index_batch + t * index_token, mask=real, other=0)
            held = (position >= 0) & (position < positions)
            tl.device_assert(held, "a position is outside the table")
            inside &= held[:, None]
            row = (position + offset) * table_row
        p = tl.load(table + row[:, None] + feature, mask=inside, other=0.0)
        x = (x.to(tl.float32) + p.to(tl.float32)).to(weight.dtype.element_ty)
    tl.store(out + slot[:, None].to(tl.int64) * dim + feature, x, mask=inside)
