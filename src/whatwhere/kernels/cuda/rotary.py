"""Rotation of pairs of features on a GPU: one read and one write of each number.

The PyTorch implementation is in kernels/rotary.py.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from whatwhere.kernels.cuda import covering, launch

_PAIRS_OF_A_PROGRAM = 2048
"""16 pairs for each of 128 threads: in bfloat16, two accesses of 16 bytes to each half. 512 to 4,096 are as fast."""

_MAX_BLOCK = 512
"""Pairs of one row; longer rows take several programs."""


def rotate(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float[Tensor, "#batch #heads tokens pairs"],
    sin: Float[Tensor, "#batch #heads tokens pairs"],
    interleaved: bool,
    *,
    back: bool = False,
    out: Float[Tensor, "batch heads tokens features"] | None = None,
) -> Float[Tensor, "batch heads tokens features"]:
    """Rotate the first pairs of features by their angles, in float32 at least; copy the features that have none.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)

    Args:
        cos, sin: of one dtype: float32, or that of x.
        interleaved: pairs are (2i, 2i+1); else (i, i + pairs).
        out: where the result is written; x itself for a rotation in place. None allocates one like x.
    """
    batch, heads, tokens, features = x.shape
    pairs, y = cos.shape[-1], torch.empty_like(x) if out is None else out
    if cos.stride() != sin.stride():
        cos, sin = cos.contiguous(), sin.contiguous()
    steps = cos.expand(batch, heads, tokens, pairs).stride()
    block = covering(pairs, _MAX_BLOCK)
    by_heads = covering(heads, _PAIRS_OF_A_PROGRAM // block)
    by_tokens = covering(tokens, _PAIRS_OF_A_PROGRAM // (block * by_heads))
    rotated = triton.cdiv(pairs, block)
    # In place, features that are not rotated need not be copied.
    copied = 0 if y.data_ptr() == x.data_ptr() else triton.cdiv(features - 2 * pairs, 2 * block)
    grid = (batch * triton.cdiv(tokens, by_tokens), triton.cdiv(heads, by_heads), rotated + copied)
    constants = {"INTERLEAVED": interleaved, "BACK": back, "BY_HEAD": steps[1] != 0}
    constants |= {"WIDE": tl.float64 if x.dtype == torch.float64 else tl.float32}
    sizes = (tokens, heads, pairs, features)
    strides = (*x.stride(), *y.stride(), *steps)
    blocks = {"TOKENS": by_tokens, "HEADS": by_heads, "PAIRS": block}
    launch(_rotate, grid, x.device, x, y, cos, sin, *sizes, *strides, **blocks, **constants, num_warps=4)
    return y


@triton.jit
@no_type_check
def _rotate(
    x, y, cos, sin,
    tokens, heads, pairs, features,
    x_batch, x_head, x_token, x_feature,
    y_batch, y_head, y_token, y_feature,
    step_batch, step_head, step_token, step_pair,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, PAIRS: tl.constexpr,
    INTERLEAVED: tl.constexpr, BACK: tl.constexpr, BY_HEAD: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    # One program: TOKENS tokens of one sequence, HEADS heads, PAIRS pairs. Heads share cosine and sine, which are
    # therefore read once for all of them. Offsets are 64-bit: a tensor may have more than 2**31 numbers.
    blocks = (tokens + TOKENS - 1) // TOKENS
    batch = (tl.program_id(0) // blocks).to(tl.int64)
    token = ((tl.program_id(0) % blocks) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)[:, None, None]
    head = (tl.program_id(1) * HEADS + tl.arange(0, HEADS)).to(tl.int64)[None, :, None]
    rows = (token < tokens) & (head < heads)
    source = x + batch * x_batch + token * x_token + head * x_head  # (TOKENS, HEADS, 1)
    target = y + batch * y_batch + token * y_token + head * y_head
    part = tl.program_id(2)
    rotated = (pairs + PAIRS - 1) // PAIRS
    if part < rotated:
        pair = (part * PAIRS + tl.arange(0, PAIRS)).to(tl.int64)[None, None, :]
        at = batch * step_batch + token * step_token + pair * step_pair
        known = (token < tokens) & (pair < pairs)
        if BY_HEAD:
            at += head * step_head
            known &= head < heads
        c = tl.load(cos + at, mask=known, other=0.0).to(WIDE)
        s = tl.load(sin + at, mask=known, other=0.0).to(WIDE)
        if BACK:
            s = -s
        if INTERLEAVED:  # read contiguously, and split in registers
            feature = (part * 2 * PAIRS + tl.arange(0, 2 * PAIRS)).to(tl.int64)[None, None, :]
            inside = rows & (feature < 2 * pairs)
            both = tl.load(source + feature * x_feature, mask=inside, other=0.0).to(WIDE)
            a, b = tl.split(tl.reshape(both, (TOKENS, HEADS, PAIRS, 2)))
            both = tl.reshape(tl.join(a * c - b * s, a * s + b * c), (TOKENS, HEADS, 2 * PAIRS))
            tl.store(target + feature * y_feature, both, mask=inside)
        else:
            inside = rows & (pair < pairs)
            a = tl.load(source + pair * x_feature, mask=inside, other=0.0).to(WIDE)
            b = tl.load(source + (pair + pairs) * x_feature, mask=inside, other=0.0).to(WIDE)
            tl.store(target + pair * y_feature, a * c - b * s, mask=inside)
            tl.store(target + (pair + pairs) * y_feature, a * s + b * c, mask=inside)
    else:
        rest = (2 * pairs + (part - rotated) * 2 * PAIRS + tl.arange(0, 2 * PAIRS)).to(tl.int64)[None, None, :]
        left = rows & (rest < features)
        tl.store(target + rest * y_feature, tl.load(source + rest * x_feature, mask=left), mask=left)
