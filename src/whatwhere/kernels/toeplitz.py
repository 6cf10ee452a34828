"""Biases of the distance alone without a T x T table: one number a distance, seen through a view.

    bias[h, i, j] = line[h, i - j + T - 1]                    a Toeplitz matrix: 2T - 1 numbers fill it
    flip the keys, j' = T - 1 - j:  line[h, i + j']           a Hankel matrix: a view with strides (2T - 1, 1, 1)

The plain twin is `dense` attention with the table. The gradient of the line is summed from blocks of rows of the
gradient of the scores, so nothing of size T x T is held either; peers hold it, and at 4,096 tokens that is gigabytes.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

_ROWS = 256
_DTYPES = (torch.float32, torch.float64, torch.bfloat16)
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def views(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tell whether the kernel that takes a view as a mask serves these tensors."""
    return q.device.type == "cpu" and q.dtype in _DTYPES and v.shape[-1] == q.shape[-1]


def toeplitz_attention(
    q: Float[Tensor, "batch heads tokens head_dim"],
    k: Float[Tensor, "batch key_heads tokens head_dim"],
    v: Float[Tensor, "batch key_heads tokens head_dim"],
    line: Float[Tensor, "heads distances"],
    causal: bool,
    scale: float,
) -> Float[Tensor, "batch heads tokens head_dim"]:
    """Attend with a bias that depends on the distance alone.

    Args:
        q, k, v: of one plain stretch of tokens.
        line: the bias at distances -(T-1) .. T-1, query minus key.
        causal: no query looks at a later key.
        scale: of the inner product.
    """
    groups = q.shape[1] // k.shape[1]
    # The view needs the keys backwards.
    k, v = (x.flip(-2).repeat_interleave(groups, dim=1) if groups > 1 else x.flip(-2) for x in (k, v))
    if line.requires_grad and torch.is_grad_enabled():
        y: Tensor = _Learned.apply(q, k, v, line, causal, scale)  # type: ignore[no-untyped-call]
        return y
    return F.scaled_dot_product_attention(q, k, v, _view(_masked(line, q, causal), q.shape[2]), scale=scale)


class _Learned(torch.autograd.Function):
    """Attention whose gradient reaches the line."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, line: Tensor, causal: bool, scale: float
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        told = _masked(line.detach(), q, causal)
        y, normalizer = _flash(q, k, v, 0.0, False, attn_mask=_view(told, q.shape[2]), scale=scale)
        ctx.save_for_backward(q, k, v, told, y, normalizer)
        ctx.causal, ctx.scale, ctx.dtype = causal, scale, line.dtype
        out: Tensor = y
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, told, y, normalizer = ctx.saved_tensors
        (g,) = gradients
        mask = _view(told, q.shape[2])
        d_q, d_k, d_v = _flash_backward(g, q, k, v, y, normalizer, 0.0, False, attn_mask=mask, scale=ctx.scale)
        d_line = None
        if ctx.needs_input_grad[3]:
            d_line = _gradient_of_the_line(g, q, k, v, mask, y, normalizer, ctx.causal, ctx.scale).to(ctx.dtype)
        return d_q, d_k, d_v, d_line, None, None


def _gradient_of_the_line(
    g: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    y: Tensor,
    normalizer: Tensor,
    causal: bool,
    scale: float,
) -> Float[Tensor, "heads distances"]:
    """Sum the gradient of the scores along the diagonals, a block of rows at a time.

    dL/ds_ij = a_ij (<g_i, v_j> - <g_i, y_i>)        a_ij = exp(s_ij - normalizer_i)
    """
    heads, tokens = q.shape[1], q.shape[2]
    wide = torch.promote_types(q.dtype, torch.float32)
    total = torch.zeros(heads, 2 * tokens - 1, dtype=wide)
    mean = (g.to(wide) * y.to(wide)).sum(-1, keepdim=True)
    logs = normalizer.to(wide)[..., None]  # (batch, heads, tokens, 1)
    for top in range(0, tokens, _ROWS):
        bottom = min(top + _ROWS, tokens)
        # Flipped keys before this one are later than every query of the block.
        left = tokens - bottom if causal else 0
        rows = slice(top, bottom)
        scores = (q[:, :, rows] @ k[:, :, left:].mT).to(wide) * scale + mask[:, :, rows, left:].to(wide)
        weights = (scores - logs[:, :, rows]).exp()
        d_scores = weights * ((g[:, :, rows] @ v[:, :, left:].mT).to(wide) - mean[:, :, rows])
        sums = _sums_of_diagonals(d_scores.sum(0))
        total[:, top + left : top + left + sums.shape[-1]] += sums
    return total


def _sums_of_diagonals(block: Float[Tensor, "heads rows columns"]) -> Float[Tensor, "heads diagonals"]:
    """Sum x[i, j] over i + j = c, for every c.

    Rows written one place further each, into a buffer one longer, stand skewed when it is read as if it were not.

    >>> _sums_of_diagonals(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[1., 5., 4.]])
    """
    heads, rows, columns = block.shape
    width = rows + columns - 1
    buffer = block.new_zeros(heads, rows * (width + 1))
    buffer.as_strided((heads, rows, columns), (rows * (width + 1), width + 1, 1)).copy_(block)
    return buffer[:, : rows * width].view(heads, rows, width).sum(1)


def _masked(line: Tensor, q: Tensor, causal: bool) -> Float[Tensor, "heads distances"]:
    """Give the line in the dtype of the queries, minus infinity where a key would be later."""
    told = line.to(q.dtype)
    if not causal:
        return told.contiguous()
    later = torch.arange(line.shape[-1], device=line.device) < q.shape[2] - 1
    return told.masked_fill(later, -torch.inf)


def _view(line: Float[Tensor, "heads distances"], tokens: int) -> Float[Tensor, "1 heads tokens tokens"]:
    """See line[h, i + j'] as a matrix without making it."""
    return line.as_strided((1, line.shape[0], tokens, tokens), (0, 2 * tokens - 1, 1, 1))
