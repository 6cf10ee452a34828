"""Linear biases without a table: folded into the inner product, so that the plain causal kernel serves.

    <q_i, k_j> scale - m (i - j)  =  < (m / scale, -m i / scale, q_i), (j, 1, k_j) > scale

The plain twin is `dense` attention with the table -m (i - j). A built table costs 2.5 to 4 times attention without a
bias, and at 4,096 tokens a gigabyte; folded columns cost nothing in memory.

The columns stand in front: kernels add products up in order, and the first two cancel exactly before anything small
is added to them. Behind q and k they would meet a rounded sum, and the result be off by 1e-5 in place of 2e-7.
"""

from functools import cache
from math import frexp, ldexp

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

_BITS = {torch.float32: 24, torch.bfloat16: 8}
_TOKENS = {torch.float32: 8192, torch.bfloat16: 65536}


def folds(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tell whether folding is exact for these tensors on this machine."""
    fits = q.dtype in _BITS and k.shape[2] <= _TOKENS[q.dtype] and v.shape[-1] <= q.shape[-1] + 12
    return fits and q.device.type == "cpu" and _keeps_its_order(q.dtype)


def fold_attention(
    q: Float[Tensor, "batch heads tokens head_dim"],
    k: Float[Tensor, "batch key_heads tokens head_dim"],
    v: Float[Tensor, "batch key_heads tokens value_dim"],
    slopes: tuple[float, ...],
    scale: float,
) -> Float[Tensor, "batch heads tokens value_dim"]:
    """Attend causally with the bias -m_h (i - j) of query i and key j, counted from the first.

    Args:
        q, k, v: of one plain stretch of tokens.
        slopes: m_h, one for each head of q.
        scale: of the inner product.
    """
    groups = q.shape[1] // k.shape[1]
    if groups > 1:  # each head has a slope of its own, which its keys carry in bfloat16
        k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    for_q, for_k = _columns(tuple(m / scale for m in slopes), q.shape[2], q.dtype, q.device)
    # Width in eights, and v as wide as q and k: else the kernel is left for one that builds the T x T scores.
    width = -(-(q.shape[-1] + for_q.shape[-1]) // 8) * 8
    rows = q.shape[0]
    wide_q, wide_k = (
        F.pad(torch.cat([columns.expand(rows, -1, -1, -1), x], dim=-1), (0, width - columns.shape[-1] - x.shape[-1]))
        for columns, x in ((for_q, q), (for_k, k))
    )
    y = F.scaled_dot_product_attention(wide_q, wide_k, F.pad(v, (0, width - v.shape[-1])), is_causal=True, scale=scale)
    return y[..., : v.shape[-1]]


def _columns(
    slopes: tuple[float, ...], tokens: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "heads tokens columns"], Float[Tensor, "heads tokens columns"]]:
    """Give the columns in front of q and of k: every number, and in float32 every product, is exact.

    float32: a slope in parts of 11 bits, as many as it needs, times places of 13 bits. bfloat16: a slope in parts of
    8 bits, and places as 256 a + b; products are exact in the float32 that kernels add up in.
    """
    places = torch.arange(tokens, device=device, dtype=torch.float64)
    ones = torch.ones_like(places)
    digits = [places] if dtype == torch.float32 else [places - places % 256, places % 256]
    parts = _parts(slopes, 11, 2) if dtype == torch.float32 else _parts(slopes, 8, 3)
    for_q, for_k = [], []
    for part in parts:
        slope = torch.tensor(part, dtype=torch.float64, device=device)[:, None]
        for digit in digits:
            if dtype == torch.float32:  # (m, -m i) and (j, 1)
                for_q += [slope * ones, -slope * digit]
                for_k += [digit * torch.ones_like(slope), ones * torch.ones_like(slope)]
            else:  # (m, -i) and (j, m): m i would not fit into 8 bits
                for_q += [slope * ones, -digit * torch.ones_like(slope)]
                for_k += [digit * torch.ones_like(slope), slope * ones]
    wide_q, wide_k = (torch.stack(columns, dim=-1).to(dtype) for columns in (for_q, for_k))
    return wide_q, wide_k


def _parts(slopes: tuple[float, ...], bits: int, most: int) -> list[list[float]]:
    """Write each slope as a sum of numbers of few bits; powers of two need one part."""
    parts: list[list[float]] = []
    rest = list(slopes)
    while any(rest) and len(parts) < most:
        part = [_rounded(value, bits) for value in rest]
        parts.append(part)
        rest = [value - taken for value, taken in zip(rest, part, strict=True)]
    return parts


def _rounded(value: float, bits: int) -> float:
    mantissa, exponent = frexp(value)
    return ldexp(round(mantissa * 2**bits), exponent - bits)


@cache
def _keeps_its_order(dtype: torch.dtype) -> bool:
    """Tell whether this machine's kernel adds products up in order; tried once, on 1,024 tokens."""
    g = torch.Generator().manual_seed(0)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        q, k, v = (torch.randn(1, 1, 1024, 64, generator=g).to(dtype) for _ in range(3))
        slope, places = 2.0**-0.5, torch.arange(1024, dtype=torch.float64)
        bias = (places[None] - places[:, None]) * slope
        scores = (q[0, 0].double() @ k[0, 0].double().mT / 8 + bias).masked_fill(bias > 0, -torch.inf)
        right = scores.softmax(-1) @ v[0, 0].double()
        found = fold_attention(q, k, v, (slope,), 0.125)[0, 0].double()
    tolerance = 4e-6 if dtype == torch.float32 else 2e-2
    return bool((found - right).norm() <= tolerance * right.norm())
