"""Rotation of pairs of features on a GPU: one read and one write of each number, of queries and keys in one launch.

The PyTorch implementation is in kernels/rotary.py.
"""

from collections.abc import Sequence
from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels.cuda import covering, launch

_PAIRS_OF_A_PROGRAM = 2048
"""16 pairs for each of 128 threads: in bfloat16, two accesses of 16 bytes to each half. 512 to 4,096 are as fast."""

_MAX_BLOCK = 512  # pairs of one row; longer rows take several programs


def rotate(
    tensors: Sequence[Float[Tensor, "batch heads tokens features"]],
    results: Sequence[Float[Tensor, "batch heads tokens features"]],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
    back: bool = False,
) -> None:
    """Rotate the first pairs of features by their angles, in float32 at least; copy the features that have none.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

    Args:
        tensors: one, or queries and keys. Two that differ in more than their heads take two launches.
        results: where the results are written; the tensors themselves for a rotation in place.
        cos, sin: of one dtype: float32, or that of the tensors.
        interleaved: pairs are (2i, 2i+1); else (i, i + pairs).
    """
    q, k, q_out, k_out = tensors[0], tensors[-1], results[0], results[-1]
    (batch, q_heads, tokens, features), k_heads, pairs = q.shape, k.shape[1], cos.shape[-1]
    if any(x.stride(3) != 1 for x in (q, k, q_out, k_out)):
        dense = [x.clone(memory_format=torch.contiguous_format) for x in tensors]
        rotate(dense, dense, cos, sin, interleaved, back)
        for x, y in zip(dense, results, strict=True):
            y.copy_(x)
        return
    if k.dtype != q.dtype or (k.shape[0], *k.shape[2:]) != (batch, tokens, features):
        for x, y in zip(tensors, results, strict=True):
            rotate((x,), (y,), cos, sin, interleaved, back)
        return
    if cos.stride() != sin.stride() or cos.stride(3) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    both = len(tensors) > 1
    block = covering(pairs, _MAX_BLOCK)
    most_heads = max(q_heads, k_heads)
    parts = max(1, triton.cdiv(most_heads, covering(most_heads, _PAIRS_OF_A_PROGRAM // block)))
    q_block, k_block = (covering(triton.cdiv(heads, parts), _PAIRS_OF_A_PROGRAM) for heads in (q_heads, k_heads))
    by_tokens = covering(tokens, _PAIRS_OF_A_PROGRAM // (block * max(q_block, k_block)))
    # In place, features that are not rotated need not be copied.
    in_place = q_out.data_ptr() == q.data_ptr()
    copied = 0 if in_place else triton.cdiv(features - 2 * pairs, 2 * block)
    grid = (batch * triton.cdiv(tokens, by_tokens), parts, triton.cdiv(pairs, block) + copied)
    launch(
        _rotate, grid, q.device, q, q_out, *((k, k_out) if both else (None, None)), cos, sin, tokens,
        *q.stride()[:3], *_strides(q_out, q), *(k.stride()[:3] if both else (None,) * 3), *_strides(k_out, k),
        cos.stride(0) if cos.shape[0] > 1 else 0, cos.stride(1) if cos.shape[1] > 1 else None,
        STEP=cos.stride(2), ALL_PAIRS=pairs, FEATURES=features, Q_HEADS=q_heads, K_HEADS=k_heads,
        TOKENS=by_tokens, Q_BLOCK=q_block, K_BLOCK=k_block, PAIRS=block,
        INTERLEAVED=interleaved, BACK=back, WIDE=tl.float64 if q.dtype == torch.float64 else tl.float32, num_warps=4,
    )  # fmt: skip


def _strides(y: Tensor, x: Tensor) -> Sequence[int | None]:
    """Return the strides of a result; Nones, which cost no time, where they are those of what it is computed from."""
    return (None,) * 3 if y.stride() == x.stride() else y.stride()[:3]


@triton.jit
@no_type_check
def _rows(first, step_batch, step_head, step_token, batch, head, token):
    return first + batch * step_batch + token * step_token + head * step_head  # (TOKENS, heads, 1)


@triton.jit
@no_type_check
def _load(
    x, rows, part,
    ALL_PAIRS: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr,
    INTERLEAVED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    if INTERLEAVED:  # read contiguously, and split in registers
        feature = (part * 2 * PAIRS + tl.arange(0, 2 * PAIRS)).to(tl.int64)[None, None, :]
        both = tl.load(x + feature, mask=rows & (feature < 2 * ALL_PAIRS), other=0.0).to(WIDE)
        a, b = tl.split(tl.reshape(both, (TOKENS, HEADS, PAIRS, 2)))
    else:
        pair = (part * PAIRS + tl.arange(0, PAIRS)).to(tl.int64)[None, None, :]
        inside = rows & (pair < ALL_PAIRS)
        a = tl.load(x + pair, mask=inside, other=0.0).to(WIDE)
        b = tl.load(x + (pair + ALL_PAIRS), mask=inside, other=0.0).to(WIDE)
    return a, b


@triton.jit
@no_type_check
def _store(
    y, a, b, c, s, rows, part,
    ALL_PAIRS: tl.constexpr, TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    if INTERLEAVED:
        feature = (part * 2 * PAIRS + tl.arange(0, 2 * PAIRS)).to(tl.int64)[None, None, :]
        both = tl.reshape(tl.join(a * c - b * s, a * s + b * c), (TOKENS, HEADS, 2 * PAIRS))
        tl.store(y + feature, both, mask=rows & (feature < 2 * ALL_PAIRS))
    else:
        pair = (part * PAIRS + tl.arange(0, PAIRS)).to(tl.int64)[None, None, :]
        inside = rows & (pair < ALL_PAIRS)
        tl.store(y + pair, a * c - b * s, mask=inside)
        tl.store(y + (pair + ALL_PAIRS), a * s + b * c, mask=inside)


@triton.jit
@no_type_check
def _rotate(
    q, q_out, k, k_out, cos, sin, tokens,
    q_batch, q_head, q_token, q_out_batch, q_out_head, q_out_token,
    k_batch, k_head, k_token, k_out_batch, k_out_head, k_out_token,
    step_batch, step_head,
    STEP: tl.constexpr, ALL_PAIRS: tl.constexpr, FEATURES: tl.constexpr, Q_HEADS: tl.constexpr, K_HEADS: tl.constexpr,
    TOKENS: tl.constexpr, Q_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, PAIRS: tl.constexpr,
    INTERLEAVED: tl.constexpr, BACK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # One program: TOKENS tokens of one sequence, Q_BLOCK heads of queries and K_BLOCK of keys, PAIRS pairs. All these
    # heads share cosine and sine, which are read once. Offsets are 64-bit: a tensor may have more than 2**31 numbers.
    if q_out_batch is None:
        q_out_batch = q_batch
        q_out_head = q_head
        q_out_token = q_token
    if k_out_batch is None:
        k_out_batch = k_batch
        k_out_head = k_head
        k_out_token = k_token
    blocks = (tokens + TOKENS - 1) // TOKENS
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    token = ((tl.program_id(0) % blocks).to(tl.int64) * TOKENS + tl.arange(0, TOKENS))[:, None, None]
    head = (tl.program_id(1) * Q_BLOCK + tl.arange(0, Q_BLOCK)).to(tl.int64)[None, :, None]
    rows = (token < tokens) & (head < Q_HEADS)
    q = _rows(q, q_batch, q_head, q_token, batch, head, token)
    q_out = _rows(q_out, q_out_batch, q_out_head, q_out_token, batch, head, token)
    if k is not None:
        k_headed = (tl.program_id(1) * K_BLOCK + tl.arange(0, K_BLOCK)).to(tl.int64)[None, :, None]
        k_rows = (token < tokens) & (k_headed < K_HEADS)
        k = _rows(k, k_batch, k_head, k_token, batch, k_headed, token)
        k_out = _rows(k_out, k_out_batch, k_out_head, k_out_token, batch, k_headed, token)
    part = tl.program_id(2)
    rotated: tl.constexpr = (ALL_PAIRS + PAIRS - 1) // PAIRS
    if part < rotated:
        pair = (part * PAIRS + tl.arange(0, PAIRS)).to(tl.int64)[None, None, :]
        at = batch * step_batch + token * STEP + pair
        known = (token < tokens) & (pair < ALL_PAIRS)
        if step_head is not None:  # then keys have as many heads as queries, or there are none
            at += head * step_head
            known &= head < Q_HEADS
        c = tl.load(cos + at, mask=known, other=0.0).to(WIDE)
        s = tl.load(sin + at, mask=known, other=0.0).to(WIDE)
        if BACK:
            s = -s
        # All reads before all writes, so that they are in flight together.
        a, b = _load(q, rows, part, ALL_PAIRS, TOKENS, Q_BLOCK, PAIRS, INTERLEAVED, WIDE)
        if k is not None:
            k_a, k_b = _load(k, k_rows, part, ALL_PAIRS, TOKENS, K_BLOCK, PAIRS, INTERLEAVED, WIDE)
        _store(q_out, a, b, c, s, rows, part, ALL_PAIRS, TOKENS, Q_BLOCK, PAIRS, INTERLEAVED)
        if k is not None:
            _store(k_out, k_a, k_b, c, s, k_rows, part, ALL_PAIRS, TOKENS, K_BLOCK, PAIRS, INTERLEAVED)
    else:
        rest = (2 * ALL_PAIRS + (part - rotated) * 2 * PAIRS + tl.arange(0, 2 * PAIRS)).to(tl.int64)[None, None, :]
        left = rest < FEATURES
        tl.store(q_out + rest, tl.load(q + rest, mask=rows & left), mask=rows & left)
        if k is not None:
            tl.store(k_out + rest, tl.load(k + rest, mask=k_rows & left), mask=k_rows & left)
