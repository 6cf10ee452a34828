"""Cosine and sine of positions times frequencies on a GPU: the arithmetic of cos_sin.cpp, and the same bits.

A position is a multiple of 64 plus a rest, and rotates by both, in float64; each result is rounded to float32 once.
"""

from typing import no_type_check

import triton
import triton.language as tl
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from whatwhere.kernels.cuda import covering, launch

_NUMBERS_OF_A_PROGRAM = 256  # two for each of 128 threads, which keep some twenty float64 numbers for each
_MAX_BLOCK = 128

_STRIDE, _FAR, _ROUND = tl.constexpr(64), tl.constexpr(float(1 << 30)), tl.constexpr(6755399441055744.0)
_HALF_PI_1 = tl.constexpr(float.fromhex("0x1.921fb4p+0"))
_HALF_PI_2 = tl.constexpr(float.fromhex("0x1.4442d0p-24"))
_HALF_PI_3 = tl.constexpr(float.fromhex("0x1.8469898cc5170p-48"))


def cos_sin(
    index: Int64[Tensor, "axes rows tokens"],
    frequencies: Float64[Tensor, "..."],
    cos: Float32[Tensor, "..."],
    sin: Float32[Tensor, "..."],
    row: int,
    magnitude: float,
    axis_of_pair: Int64[Tensor, " pairs"] | None,
    interleaved: bool,
) -> None:
    """Fill tables with magnitude times cosine and sine of index times frequencies.

    Args:
        frequencies: (pairs,), or (rows, tokens, pairs).
        cos, sin: tables whose rows are `row` numbers apart; interleaved, both are written to `sin`, sines first.
        axis_of_pair: for each pair, the axis whose coordinate rotates it; None where there is one axis.
    """
    (_, rows, tokens), pairs = index.shape, frequencies.shape[-1]
    block = covering(pairs, _MAX_BLOCK)
    by_tokens = covering(tokens, _NUMBERS_OF_A_PROGRAM // block)
    steps = (None, None) if frequencies.dim() == 1 else frequencies.stride()[:2]
    launch(
        _cos_sin, (rows * triton.cdiv(tokens, by_tokens), triton.cdiv(pairs, block)), index.device,
        index, frequencies, axis_of_pair, cos, sin, tokens, *index.stride(), *steps,
        ROW=row, ALL_PAIRS=pairs, MAGNITUDE=float(magnitude), INTERLEAVED=interleaved,
        TOKENS=by_tokens, PAIRS=block, num_warps=4,
    )  # fmt: skip


@triton.jit
@no_type_check
def _either(a, b):
    return a | b


@triton.jit
@no_type_check
def _waves(angle):
    # As cos_sin.cpp has it, where the steps are explained.
    shifted = angle * 0.63661977236758134308 + _ROUND
    quarters = shifted - _ROUND
    r = ((angle - quarters * _HALF_PI_1) - quarters * _HALF_PI_2) - quarters * _HALF_PI_3
    z = r * r
    s = z * (1.0 / 6227020800 + z * (-1.0 / 1307674368000))
    s = z * (1.0 / 362880 + z * (-1.0 / 39916800 + s))
    s = z * (1.0 / 120 + z * (-1.0 / 5040 + s))
    s = r + r * z * (-1.0 / 6 + s)
    c = z * (1.0 / 479001600 + z * (-1.0 / 87178291200 + z * (1.0 / 20922789888000)))
    c = z * (1.0 / 40320 + z * (-1.0 / 3628800 + c))
    c = z * (1.0 / 24 + z * (-1.0 / 720 + c))
    c = 1.0 + z * (-1.0 / 2 + c)
    quarter = shifted.to(tl.int64, bitcast=True)
    odd = (quarter & 1) != 0
    cos = tl.where(odd, s, c)
    sin = tl.where(odd, c, s)
    cos = tl.where(((quarter + 1) & 2) != 0, -cos, cos)
    sin = tl.where((quarter & 2) != 0, -sin, sin)
    far = tl.abs(angle) > _FAR
    if tl.reduce(tl.reduce(far.to(tl.int32), 1, _either), 0, _either) != 0:
        cos = tl.where(far, tl.cos(angle), cos)
        sin = tl.where(far, tl.sin(angle), sin)
    return cos, sin


@triton.jit
@no_type_check
def _cos_sin(
    index, frequencies, axis_of_pair, cos, sin, tokens,
    index_axis, index_row, index_token, frequency_row, frequency_token,
    ROW: tl.constexpr, ALL_PAIRS: tl.constexpr, MAGNITUDE: tl.constexpr, INTERLEAVED: tl.constexpr,
    TOKENS: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    # One program: TOKENS tokens of one sequence, PAIRS pairs.
    blocks = (tokens + TOKENS - 1) // TOKENS
    b = (tl.program_id(0) // blocks).to(tl.int64)
    t = ((tl.program_id(0) % blocks).to(tl.int64) * TOKENS + tl.arange(0, TOKENS))[:, None]
    pair = (tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)).to(tl.int64)[None, :]
    inside = (t < tokens) & (pair < ALL_PAIRS)
    at = index + b * index_row + t * index_token
    if axis_of_pair is None:
        position = tl.load(at, mask=t < tokens, other=0)
    else:
        axis = tl.load(axis_of_pair + pair, mask=pair < ALL_PAIRS, other=0)
        position = tl.load(at + axis * index_axis, mask=inside, other=0)
    if frequency_row is None:
        frequency = tl.load(frequencies + pair, mask=pair < ALL_PAIRS, other=0.0)
    else:
        of_token = frequencies + b * frequency_row + t * frequency_token
        frequency = tl.load(of_token + pair, mask=inside, other=0.0)
    rest = position & (_STRIDE - 1)
    far_cos, far_sin = _waves((position - rest).to(tl.float64) * frequency)
    c, s = _waves(rest.to(tl.float64) * frequency)
    far_cos *= MAGNITUDE
    far_sin *= MAGNITUDE
    cosines = (far_cos * c - far_sin * s).to(tl.float32)
    sines = (far_cos * s + far_sin * c).to(tl.float32)
    row = (b * tokens + t) * ROW
    if INTERLEAVED:
        feature = (tl.program_id(1) * 2 * PAIRS + tl.arange(0, 2 * PAIRS)).to(tl.int64)[None, :]
        both = tl.reshape(tl.join(sines, cosines), (TOKENS, 2 * PAIRS))
        tl.store(sin + row + feature, both, mask=(t < tokens) & (feature < 2 * ALL_PAIRS))
    else:
        tl.store(cos + row + pair, cosines, mask=inside)
        tl.store(sin + row + pair, sines, mask=inside)
