"""Attention over bound scores and masks: the only file that knows SDPA and FlexAttention.

    y_i = sum_j softmax_j( <q_i, k_j> * scale + element(h, i, j) ) v_j        over the keys that i may look at

Three engines give the same numbers: `dense` is this formula in plain tensors, `sdpa` is PyTorch's
scaled_dot_product_attention, `flex` is FlexAttention. A query that may look at nothing (padding) gets zeros.

Where a bias is known by blocks and the tokens are one plain stretch, `sdpa` builds no table of many tokens on the CPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from whatwhere.checks import require_choice, require_floating
from whatwhere.errors import SettingError, ShapeError
from whatwhere.kernels.blocks import ByBlocks, attention_by_blocks
from whatwhere.kernels.switch import plain
from whatwhere.ruler import Allowed
from whatwhere.where.doors import Element, as_finite, as_score_mod, tabulate

Engine = Literal["auto", "dense", "sdpa", "flex"]
ENGINES: tuple[Engine, ...] = ("auto", "dense", "sdpa", "flex")


_FEW = 512
"""From so many tokens on, blocks are faster than a table even where six layers share it; for 256, one layer's are."""
_MANY = 1 << 28
"""Numbers of a table, a gigabyte in float32: beyond, it is made in pieces, anew for each layer, and never held."""
_PIECE = 1 << 24


@dataclass(frozen=True)
class Scores:
    """Hold what is added to the scores and where attention may look, by element and as one table made on demand.

    Args:
        element: the bias by element; None where nothing is added.
        allowed: the mask by element; None where every query may look at every key.
        run: the mask is the plain causal one of equal queries and keys, so a causal kernel is legal.
        added: gives both as one table in a dtype: a bias with minus infinity where attention may not look, a bool
            mask where there is no bias, None where there is neither.
        blocks: gives the same bias and mask by blocks of pairs, or None; None where that is never so.
        batch: sequences that the table tells apart; 1 where all are alike.
    """

    element: Element | None
    allowed: Allowed | None
    run: bool
    added: Callable[[torch.dtype], Tensor | None]
    blocks: Callable[[], ByBlocks | None] | None = None
    batch: int = 1

    def numbers(self, q: Tensor, k: Tensor) -> int:
        """Give the size of the table."""
        if self.element is None and self.allowed is None:
            return 0
        return self.batch * (1 if self.element is None else q.shape[1]) * q.shape[2] * k.shape[2]


def attention(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    scores: Scores,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    engine: Engine = "auto",
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Let each query gather values from the keys it may look at.

    Args:
        scores: bias and mask, already bound to positions.
        scale: softmax factor; None is 1 / sqrt(head_dim).
        dropout: share of attention weights dropped, 0 <= dropout < 1; the caller passes 0 outside of training.
        engine: `auto` is sdpa. key_heads may be a divisor of heads (grouped queries).

    Where dtypes differ, it computes in the widest of them and gives that of q.
    """
    require_choice("attention", "engine", engine, ENGINES)
    if not 0 <= dropout < 1:
        raise SettingError(f"attention got dropout={dropout}, but needs a share of at least 0 and below 1.")
    _require_heads(q, k, v)
    if not (q.dtype == k.dtype == v.dtype or torch.is_autocast_enabled(q.device.type)):
        # A cache in bfloat16 meets queries in float32: sdpa would refuse them, so they meet in the wider dtype.
        wide = torch.promote_types(q.dtype, torch.promote_types(k.dtype, v.dtype))
        some = attention(q.to(wide), k.to(wide), v.to(wide), scores, scale=scale, dropout=dropout, engine=engine)
        return some.to(q.dtype)
    # FlexAttention cannot trace a size of zero: an empty batch or sequence takes the plain formula.
    if engine == "dense" or (engine == "flex" and 0 in (q.shape[0], q.shape[2], k.shape[2])):
        return _dense(q, k, v, scores, scale, dropout)
    if engine == "flex":
        return _flex(q, k, v, scores, scale, dropout)
    grouped = q.shape[1] != k.shape[1]
    if scores.run and scores.element is None:
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=dropout, scale=scale, enable_gqa=grouped
        )
    if scores.blocks is not None and not dropout and _is_worth_blocks(q, k, v):
        dtype = q.dtype
        if torch.is_autocast_enabled("cpu") and dtype != torch.float64:
            dtype = torch.get_autocast_dtype("cpu")
        bias = scores.blocks()
        if bias is not None and bias.serves(dtype):
            q, k, v = (x.to(dtype) for x in (q, k, v))
            return attention_by_blocks(q, k, v, bias, q.shape[-1] ** -0.5 if scale is None else scale)
    if scores.numbers(q, k) > _MANY and _is_eager(q, k, v):
        return _in_pieces(q, k, v, scores, scale, dropout)
    return F.scaled_dot_product_attention(q, k, v, scores.added(q.dtype), dropout, scale=scale, enable_gqa=grouped)


def _is_eager(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Tell whether no trace, transform or dual number asks for the table: these would need rules of their own.

    Lengths of a traced program may be symbols; for long ones FlexAttention is its engine.
    """
    return (
        not torch.compiler.is_compiling()
        and not torch._C._is_tracing()
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and all(type(x) in (Tensor, torch.nn.Parameter) for x in (q, k, v))
    )


def _is_worth_blocks(q: Tensor, k: Tensor, v: Tensor) -> bool:
    long = q.shape[2] >= _FEW and q.is_cpu and q.dtype == k.dtype == v.dtype
    return long and not plain() and _is_eager(q, k, v)


def _in_pieces(
    q: Tensor, k: Tensor, v: Tensor, scores: Scores, scale: float | None, dropout: float
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Attend some queries at a time, with their rows of the table alone; backward makes these anew."""

    def attend(some: Tensor, first: int) -> Tensor:
        sizes = (scores.batch, q.shape[1], some.shape[2], k.shape[2], q.device, first)
        bias, mask = (None if x is None else tabulate(x, *sizes) for x in (scores.element, scores.allowed))
        grouped = q.shape[1] != k.shape[1]
        added = join(bias, mask, q.dtype)
        return F.scaled_dot_product_attention(some, k, v, added, dropout, scale=scale, enable_gqa=grouped)

    rows = max(1, _PIECE // (scores.batch * q.shape[1] * k.shape[2]))
    pieces = zip(q.split(rows, dim=2), range(0, q.shape[2], rows), strict=True)
    if not torch.is_grad_enabled():
        return torch.cat([attend(*piece) for piece in pieces], dim=2)
    kept = [checkpoint(attend, *piece, use_reentrant=False, preserve_rng_state=dropout > 0) for piece in pieces]
    return torch.cat(kept, dim=2)


def join(
    table: Float[Tensor, "*bias queries keys"] | None,
    mask: Bool[Tensor, "*mask queries keys"] | None,
    dtype: torch.dtype,
) -> Tensor | None:
    """Fold a mask into a bias as minus infinity, in the dtype of the queries.

    >>> join(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]), torch.float32)
    tensor([[1., -inf]])
    """
    if table is None or mask is None:
        return mask if table is None else as_finite(table, dtype)
    return torch.where(mask, as_finite(table, dtype), -torch.inf)


def _dense(
    q: Tensor, k: Tensor, v: Tensor, scores: Scores, scale: float | None, dropout: float
) -> Float[Tensor, "batch heads queries value_dim"]:
    groups = q.shape[1] // k.shape[1]
    wide = torch.promote_types(q.dtype, torch.float32)
    q_wide, k_wide = q.to(wide), k.to(wide).repeat_interleave(groups, dim=1)
    values = v.to(wide).repeat_interleave(groups, dim=1)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    logits = q_wide @ k_wide.mT * factor  # (batch, heads, queries, keys)
    added = scores.added(wide)
    if added is not None:
        logits = logits.masked_fill(~added, -torch.inf) if added.dtype == torch.bool else logits + added
    # A row without keys is all minus infinity: its softmax is NaN, and so would be the gradient of everything.
    blind = (logits == -torch.inf).all(-1, keepdim=True)
    weights = logits.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0)
    return (F.dropout(weights, dropout) @ values).to(q.dtype)


def _flex(
    q: Tensor, k: Tensor, v: Tensor, scores: Scores, scale: float | None, dropout: float
) -> Float[Tensor, "batch heads queries value_dim"]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # few need it, and it takes time

    if dropout:
        raise SettingError("FlexAttention has no dropout: pass dropout=0.0, or engine='sdpa' or 'dense'.")
    trained = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if trained and q.device.type == "cpu":
        raise SettingError(
            "FlexAttention has no backward on the CPU: train with engine='sdpa', or evaluate under torch.no_grad()."
        )
    if q.device.type == "cpu":
        q, k, v = q.detach(), k.detach(), v.detach()  # under no_grad, too, it refuses tensors that ask for a gradient
    score_mod = None if scores.element is None else as_score_mod(scores.element)
    block_mask = None
    if scores.allowed is not None:
        block_mask = create_block_mask(scores.allowed, q.shape[0], q.shape[1], q.shape[2], k.shape[2], str(q.device))
    y = flex_attention(q, k, v, score_mod, block_mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    assert isinstance(y, Tensor)
    return y


def _require_heads(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ShapeError(f"attention takes (batch, heads, tokens, head_dim), but got {shapes}.")
    require_floating("attention", q=q, k=k, v=v)
    if k.shape[1] == 0 or q.shape[1] % k.shape[1] or k.shape[1] != v.shape[1]:
        raise ShapeError(f"key and value heads must be equal and divide the query heads, but got {shapes}.")
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ShapeError(f"queries, keys and values need one batch, but got {shapes}.")
    if q.shape[-1] != k.shape[-1] or k.shape[2] != v.shape[2]:
        raise ShapeError(f"q and k need one head_dim, k and v the same tokens, but got {shapes}.")
