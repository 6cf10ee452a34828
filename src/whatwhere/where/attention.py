"""Attention with bound biases and masks: the only module that chooses among SDPA, FlexAttention and kernels.

    y_i = sum_j softmax_j( <q_i, k_j> * scale + element(h, i, j) ) v_j        over the keys that i may attend to

Four engines compute the same function: `dense` is this formula in PyTorch operations, `sdpa` is PyTorch's
scaled_dot_product_attention, `flex` is FlexAttention, `flash` our kernel for NVIDIA GPUs. The output of a query without
any visible key (padding) is zero. A sink adds exp(s_h) to the denominator of the softmax, for each head h. Each engine
also returns the logarithms of the sums of exp(score), by which outputs over several blocks of keys are merged, exactly
into those over all keys:

    y_i = sum_n exp(l_in - l_i) y_in        l_i = log sum_n exp(l_in)        l_in = log sum_j exp(s_ij), of block n

where y_in is the output over the keys of block n. A query that sees no key of a block has l_in = -infinity there, and
y_in = 0. A sink s is one more term of the sum, and has no value: it multiplies the merged output by sigmoid(l_i - s).

For long sequences on the CPU, `sdpa` needs no dense bias: one that depends on the distance alone is a strided view, and
any other is computed for one chunk of queries at a time, and again in the backward pass. Both skip keys outside of a
window.

On a GPU, `auto` makes no table of all pairs: from as many pairs as 512 tokens have, it takes FlexAttention, compiled,
where bias and mask read positions and parameters alone, and chunks of queries elsewhere.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.kernels.backend import disabled, full_precision, is_exporting
from whatwhere.kernels.blockwise_attention import ByBlocks, attention_by_blocks, attention_with_table, sdpa
from whatwhere.kernels.flash_attention import ByDistance, FlashMask, flash_attention, why_not_flash
from whatwhere.position.coordinates import Allowed
from whatwhere.tensor_checks import require_floating
from whatwhere.where import gpu_attention
from whatwhere.where.head_shards import OfHeads
from whatwhere.where.score_bias import Element, as_finite, tabulate

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Engine = Literal["auto", "dense", "sdpa", "flex", "flash"]
ENGINES: tuple[Engine, ...] = ("auto", "dense", "sdpa", "flex", "flash")

_FLASH_IN_AUTO = False
"""Whether `auto` takes `flash` before `flex` where both can: not until benchmarks/cases/attention.py, run on a GPU, has
shown it 1.5 times as fast. Until then it computes only what asks for it, by `engine="flash"`."""

_MIN_BLOCKWISE = 512
"""Tokens from which blockwise attention is faster than a table even if six layers share it; at 256 it is for one."""
_MAX_TABLE = 1 << 22
"""Elements of a table, 16 MB in float32; a larger one is computed in chunks of queries, again for each layer."""
_CHUNK = 1 << 20  # elements of the table of one chunk, which stays in the caches while it is computed and used
_ON_GPU = 1 << 6  # how many times larger both are on a GPU, where many small steps cost more than memory
_ROWS_OF_WINDOW = 128
"""Queries of a chunk with a window, at least; more than half of the window would read many masked keys."""
_MIN_ROWS_ON_GPU = 128
"""Queries from which FlexAttention is taken on a GPU; a step of decoding has a row of a table, not all pairs."""


class Sink(OfHeads):
    """Attention sinks: for each head one more logit in the softmax, which has no value.

        a_ij = exp(s_ij) / (exp(sink_h) + sum_j exp(s_ij))

    So the weights of a head sum to less than 1, and it may attend to nothing; equal to attention without a sink times
    sigmoid(l_i - sink_h), with l_i = log sum_j exp(s_ij). As in gpt-oss (`self_attn.sinks`). The logit is not scaled
    by the softmax scale, and no mask applies to it. It starts at 0.

    Args:
        num_heads: heads of the queries.
        device, dtype: of the logits.

    Raises:
        ShapeError: If num_heads is not a whole number of at least 1.

    Examples:
        >>> from whatwhere import Where
        >>> where = Where(sink=Sink(num_heads=1))
        >>> x = torch.ones(1, 1, 2, 4)
        >>> where.at(2).attention(0 * x, x, x)[0, 0, :, 0]  # one key and the sink, then two keys and the sink
        tensor([0.5000, 0.6667], grad_fn=<SelectBackward0>)
    """

    settings_in_repr = ("num_heads",)
    head_axes: ClassVar = {"weight": 0}

    def __init__(
        self, num_heads: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        require_whole("Sink", num_heads=num_heads)
        self.num_heads = num_heads
        self.weight = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    weight: Float[Tensor, " heads"]
    """The logit of each head."""

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set all logits to 0."""
        nn.init.zeros_(self.weight)


@dataclass(frozen=True)
class Scores:
    """The bias and mask of the scores, as functions of elements and as one dense table computed on demand."""

    element: Element | None  # the bias; None where there is none
    allowed: Allowed | None  # the mask; None where every query may attend to every key
    run: bool  # whether it is the causal mask of equal queries and keys, so that a causal kernel can be used
    # Both as one table of a dtype: a bias with minus infinity where the mask is False, or a bool mask without a bias.
    added: Callable[[torch.dtype], Tensor | None]
    blocks: Callable[[], ByBlocks | None] | None = None  # for blockwise attention; None where they never have that form
    batch: int = 1  # of the table; 1 where all sequences share it
    # (first, last) -> the slots of the keys that these queries may see, and perhaps others; None for all
    visible: Callable[[int, int], slice | Tensor] | None = None
    reach: int | None = None  # how many keys a query sees at most, where a window limits them
    # The mask in FlexAttention's form, and both as `flash` takes them, where they depend on positions alone.
    block_mask: "Callable[[], BlockMask | None] | None" = None
    flash: Callable[[], tuple[FlashMask, ByDistance | None] | None] | None = None
    tabulated: bool = False  # whether the bias was given as a table of all pairs, so that a different one is no matter

    def numbers(self, q: Tensor, k: Tensor, by_head: bool = False) -> int:
        """Return the number of elements of the table, which has one for each head where there is a bias or a sink."""
        if self.element is None and self.allowed is None and not by_head:
            return 0
        return self.batch * (q.shape[1] if by_head or self.element is not None else 1) * q.shape[2] * k.shape[2]

    def skips(self, q: Tensor, k: Tensor) -> bool:
        """Return whether most keys are outside of the windows, so that chunks of queries cost less than a table."""
        long = self.reach is not None and k.shape[2] >= max(_MIN_BLOCKWISE, 2 * self.reach)
        return long and self.visible is not None and q.is_cpu


def attention(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    scores: Scores,
    *,
    scale: float | None = None,
    sink: Float[Tensor, " heads"] | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    engine: Engine = "auto",
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Compute scaled dot-product attention with a bias and mask, which are already bound to positions.

    With softcap c, a scaled score s becomes c tanh(s / c) before the bias is added (Gemma 2). The engine `auto` is
    sdpa, or flex for long sequences on a GPU, or dense under transforms of torch.func and forward-mode derivatives, for
    which PyTorch's kernels have no rule.

    The outputs are of the dtype of q. Where dtypes differ, the widest is used for the computation. On the CPU a bias is
    added in float32 at least, also to 16-bit queries; on other devices sdpa needs it in their dtype.
    """
    return _attend(q, k, v, scores, _How(scale, sink, dropout, softcap), engine)[0]


def attention_with_lse(
    q: Float[Tensor, "batch heads queries head_dim"],
    k: Float[Tensor, "batch key_heads keys head_dim"],
    v: Float[Tensor, "batch key_heads keys value_dim"],
    scores: Scores,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
    engine: Engine = "auto",
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Compute attention without a sink, and the logarithms of the sums of exp(score), in float32 at least."""
    y, lse = _attend(q, k, v, scores, _How(scale, None, dropout, lse=True), engine)
    return y, lse


@dataclass(frozen=True)
class _How:
    """What attention does beside the scores: softmax scale, sink, dropout and soft cap; and what it returns."""

    scale: float | None
    sink: Tensor | None
    dropout: float
    softcap: float | None = None
    lse: bool = False


_Results = tuple[Tensor, ...]  # the outputs; and the logarithms of the sums of exp(score), where these are wanted


def _attend(q: Tensor, k: Tensor, v: Tensor, scores: Scores, how: _How, engine: Engine) -> _Results:
    """Compute attention by the engine."""
    require_choice("attention", "engine", engine, ENGINES)
    if not 0 <= how.dropout < 1:
        raise SettingError(f"attention got dropout={how.dropout}, but needs a probability of at least 0 and below 1.")
    require_heads(q, k, v)
    if not (q.dtype == k.dtype == v.dtype or torch.is_autocast_enabled(q.device.type)):
        # For example float32 queries with a bfloat16 KV cache, which sdpa refuses.
        wide = torch.promote_types(q.dtype, torch.promote_types(k.dtype, v.dtype))
        y, *lse = _attend(q.to(wide), k.to(wide), v.to(wide), scores, how, engine)
        return y.to(q.dtype), *lse
    if engine == "auto" and is_transformed():
        engine = "dense"
    bare = scores.element is None and how.sink is None and how.softcap is None and not how.lse
    if bare and (scores.run or scores.allowed is None) and engine in ("auto", "sdpa"):
        grouped = q.shape[1] != k.shape[1]
        options: dict[str, Any] = {"dropout_p": how.dropout, "scale": how.scale, "enable_gqa": grouped}
        return (sdpa(q, k, v, is_causal=scores.run, **options),)
    # FlexAttention cannot trace a size of zero: an empty batch or sequence takes the dense engine.
    if engine == "dense" or (engine in ("flex", "flash") and 0 in (q.shape[0], q.shape[2], k.shape[2])):
        return _by_formula(q, k, v, scores.added(torch.promote_types(q.dtype, torch.float32)), how)
    if engine == "flex":
        results: _Results = _flex(q, k, v, scores, how)
        return results
    if engine == "flash":
        return _flash(*_by_autocast(q, k, v), scores, how)
    if engine == "auto" and _is_long_on_gpu(q, k) and (fused := _without_table(q, k, v, scores, how)) is not None:
        return fused
    if q.is_cpu and torch.is_autocast_enabled("cpu") and q.dtype != torch.float64:
        q, k, v = _by_autocast(q, k, v)
        with full_precision(q.device):  # autocast would round the bias too
            return _with_bias(q, k, v, scores, how)
    return _with_bias(q, k, v, scores, how)


def _is_long_on_gpu(q: Tensor, k: Tensor) -> bool:
    """Return whether these are so many pairs that none of their tables is made on a GPU."""
    if not gpu_attention.is_on_gpu(q) or is_exporting():  # sizes are not read: a trace would depend on them
        return False
    return q.shape[2] >= _MIN_ROWS_ON_GPU and q.shape[2] * k.shape[2] >= _MIN_BLOCKWISE**2


def _by_autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values in the dtype of autocast, where it is on."""
    if torch.is_autocast_enabled(q.device.type) and q.dtype != torch.float64:
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    return q, k, v


def _without_table(q: Tensor, k: Tensor, v: Tensor, scores: Scores, how: _How) -> _Results | None:
    """Compute it on a GPU by a kernel without a table; None where there is none for it."""
    q, k, v = _by_autocast(q, k, v)
    if _FLASH_IN_AUTO and _why_not_flash(q, k, v, scores, how) is None:
        return _flash(q, k, v, scores, how)
    if scores.block_mask is None or how.dropout or not (torch.compiler.is_compiling() or _is_eager(q, k, v)):
        return None
    # Its gradients of what a formula reads are sums in any order.
    ordered = scores.element is not None and torch.is_grad_enabled() and torch.are_deterministic_algorithms_enabled()
    return None if ordered or not gpu_attention.serves(q, k, v) else _flex(q, k, v, scores, how, surely=False)


def _with_bias(q: Tensor, k: Tensor, v: Tensor, scores: Scores, how: _How) -> _Results:
    """Use blockwise attention where it can be used, else a table, in chunks where it is large."""
    anything = scores.element is not None or scores.allowed is not None or how.sink is not None
    blockwise = anything and scores.blocks is not None and not how.dropout and how.softcap is None
    if blockwise and scores.blocks is not None and _for_cpu(q, k, v) and q.shape[2] >= _MIN_BLOCKWISE:
        bias = scores.blocks()
        if bias is not None and bias.serves(q.dtype):
            scale = q.shape[-1] ** -0.5 if how.scale is None else how.scale
            results = attention_by_blocks(q, k, v, bias, scale, how.sink)
            return results if how.lse else results[:1]
    if _is_eager(q, k, v):  # asked first: a traced program would be bound to the side of a limit that its sizes are on
        most = _MAX_TABLE if q.is_cpu else _MAX_TABLE * _ON_GPU
        large = scores.numbers(q, k, how.sink is not None or how.softcap is not None) > most
        if large or scores.skips(q, k) or (_is_long_on_gpu(q, k) and not scores.tabulated):
            return _in_chunks(q, k, v, scores, how)
    return _with_table(q, k, v, scores.added(_table_dtype(q)), how)


def _with_table(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, how: _How) -> _Results:
    fixed = added is None or not added.requires_grad
    if how.softcap is not None or (how.lse and not (fixed and _for_cpu(q, k, v) and not how.dropout)):
        return _by_formula(q, k, v, added, how)
    if how.lse:
        scale = q.shape[-1] ** -0.5 if how.scale is None else how.scale
        return attention_with_table(q, k, v, None if added is None else _as_bias(added, _table_dtype(q)), scale)
    if how.sink is not None:  # a key of zeros, whose score is the sink, and whose value is nothing
        added = _with_column(added, how.sink, k.shape[2], _table_dtype(q))
        if k.shape[1] < q.shape[1] and is_exporting():  # sdpa compares strides of heads that it repeats
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
    grouped = q.shape[1] != k.shape[1]
    return (sdpa(q, k, v, attn_mask=added, dropout_p=how.dropout, scale=how.scale, enable_gqa=grouped),)


def _for_cpu(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether kernels of the CPU serve these: ours by blocks, and PyTorch's that returns the logarithms."""
    if not (q.is_cpu and q.dtype == k.dtype == v.dtype and not disabled() and _is_eager(q, k, v)):
        return False  # before sizes are looked at, which would fix them in an exported program
    return 0 not in (*q.shape, *k.shape)  # of no queries it divides by 0, which ends the process


def _with_column(
    added: Tensor | None, sink: Float[Tensor, " heads"], keys: int, dtype: torch.dtype
) -> Float[Tensor, "batch heads queries keys_and_sink"]:
    """Return the table of scores with one more key, whose score is the sink."""
    if added is None:
        added = torch.zeros(1, 1, 1, keys, dtype=dtype, device=sink.device)
    added = _as_bias(added, dtype)
    batch, _, queries, _ = added.shape
    column = sink.to(dtype)[None, :, None, None].expand(batch, -1, queries, 1)
    return torch.cat([added.expand(-1, len(sink), -1, -1), column], dim=-1)


def _as_bias(added: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a table of scores, also where it is a mask."""
    masked = added.dtype == torch.bool
    return torch.zeros_like(added, dtype=dtype).masked_fill(~added, -torch.inf) if masked else added


def _table_dtype(q: Tensor) -> torch.dtype:
    """Return the dtype of a table for sdpa, whose CPU kernels take a float32 bias with 16-bit queries."""
    return torch.promote_types(q.dtype, torch.float32) if q.is_cpu else q.dtype


def is_transformed() -> bool:
    """Return whether a transform of torch.func or forward-mode differentiation is active."""
    if torch._C._are_functorch_transforms_active():
        return True
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def _is_eager(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Return whether these are plain tensors, without a trace, transform or dual number, which need separate rules."""
    return (
        not torch.compiler.is_compiling()
        and not torch._C._is_tracing()
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and all(type(x) in (Tensor, torch.nn.Parameter) for x in (q, k, v))
    )


def _in_chunks(q: Tensor, k: Tensor, v: Tensor, scores: Scores, how: _How) -> _Results:
    """Process the queries in chunks, each with its rows of the table, which the backward pass recomputes."""

    def attend(chunk: Tensor, first: int) -> _Results:
        slots = slice(0, k.shape[2]) if scores.visible is None else scores.visible(first, first + chunk.shape[2])
        keys = slots.stop - slots.start if isinstance(slots, slice) else len(slots)
        sizes = (scores.batch, q.shape[1], chunk.shape[2], keys, q.device, first)
        bias, mask = (
            None if x is None else tabulate(_at_slots(x, slots), *sizes) for x in (scores.element, scores.allowed)
        )
        return _with_table(chunk, k[:, :, slots], v[:, :, slots], join(bias, mask, _table_dtype(q)), how)

    rows = _rows_of_chunk(q, k, scores, how)
    chunks = zip(q.split(rows, dim=2), range(0, q.shape[2], rows), strict=True)
    if torch.is_grad_enabled():
        again = partial(checkpoint, attend, use_reentrant=False, preserve_rng_state=how.dropout > 0)
        results = [again(*chunk) for chunk in chunks]
    else:
        results = [attend(*chunk) for chunk in chunks]
    return tuple(torch.cat(parts, dim=2) for parts in zip(*results, strict=True))


def _rows_of_chunk(q: Tensor, k: Tensor, scores: Scores, how: _How) -> int:
    """Return how many queries a chunk has."""
    elements = _CHUNK if q.is_cpu else _CHUNK * _ON_GPU
    reach, keys = scores.reach, k.shape[2]
    if scores.visible is None or reach is None or 2 * reach > keys:
        return max(1, elements // (scores.batch * q.shape[1] * keys))
    heads = 1 if scores.element is None and how.sink is None else q.shape[1]
    rows = (isqrt(reach**2 + 4 * (elements // (scores.batch * heads))) - reach) // 2  # rows x (rows + reach) elements
    return max(1, min(rows, max(reach // 2, _ROWS_OF_WINDOW)))


def _at_slots(element: Element, slots: slice | Tensor) -> Element:
    """Return a function of elements whose keys are those at some slots."""
    if isinstance(slots, slice):
        return element if slots.start == 0 else lambda b, h, i, j: element(b, h, i, j + slots.start)
    return lambda b, h, i, j: element(b, h, i, slots[j])


def join(
    table: Float[Tensor, "*bias queries keys"] | None,
    mask: Bool[Tensor, "*mask queries keys"] | None,
    dtype: torch.dtype,
) -> Tensor | None:
    """Combine a bias and a mask into one table, with minus infinity where the mask is False."""
    if table is None or mask is None:
        return mask if table is None else as_finite(table, dtype)
    return torch.where(mask, as_finite(table, dtype), -torch.inf)


def _by_formula(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, how: _How) -> _Results:
    groups = q.shape[1] // k.shape[1]
    wide = torch.promote_types(q.dtype, torch.float32)
    q_wide, k_wide = q.to(wide), k.to(wide).repeat_interleave(groups, dim=1)
    values = v.to(wide).repeat_interleave(groups, dim=1)
    softmax_scale = q.shape[-1] ** -0.5 if how.scale is None else how.scale
    with full_precision(q.device):
        logits = q_wide @ k_wide.mT * softmax_scale  # (batch, heads, queries, keys)
        if how.softcap is not None:
            logits = (logits / how.softcap).tanh() * how.softcap
        if added is not None:
            logits = logits.masked_fill(~added, -torch.inf) if added.dtype == torch.bool else logits + added
        # Softmax of a row without visible keys would be NaN, and so would be all gradients.
        masked = (logits == -torch.inf).all(-1, keepdim=True)
        logits = logits.masked_fill(masked, 0)
        if how.sink is not None:
            column = how.sink.to(wide)[:, None, None].expand(*logits.shape[:-1], 1)
            weights = torch.cat([logits, column], dim=-1).softmax(-1)[..., :-1]
        else:
            weights = logits.softmax(-1)
        y = (F.dropout(weights.masked_fill(masked, 0), how.dropout) @ values).to(q.dtype)
        return (y, logits.logsumexp(-1).masked_fill(masked[..., 0], -torch.inf)) if how.lse else (y,)


def _flash(q: Tensor, k: Tensor, v: Tensor, scores: Scores, how: _How) -> _Results:
    if (reason := _why_not_flash(q, k, v, scores, how)) is not None:
        raise SettingError(f"engine='flash' cannot compute this attention: {reason}.\nPass engine='auto' for another.")
    assert scores.flash is not None
    mask, bias = scores.flash() or (None, None)
    assert mask is not None
    scale = q.shape[-1] ** -0.5 if how.scale is None else how.scale
    results = flash_attention(q, k, v, mask, bias, scale, how.sink)
    return results if how.lse else results[:1]


def _why_not_flash(q: Tensor, k: Tensor, v: Tensor, scores: Scores, how: _How) -> str | None:
    """Return why the kernel cannot compute this attention, or None where it can."""
    if how.dropout or how.softcap is not None:
        return f"it has no {'dropout' if how.dropout else 'soft cap'}"
    if (reason := why_not_flash(q, k, v)) is not None:
        return reason
    given = None if scores.flash is None else scores.flash()
    if given is None:
        return "its bias must be one by distance, over positions of one axis, and its mask one of positions"
    return None if given[1] is None else given[1].why_not()


def _flex(q: Tensor, k: Tensor, v: Tensor, scores: Scores, how: _How, surely: bool = True) -> Any:
    """Use FlexAttention; unless `surely`, return None where its kernel does not compile."""
    if how.dropout:
        raise SettingError("FlexAttention has no dropout: pass dropout=0.0, or engine='sdpa' or 'dense'.")
    on_cpu = q.is_cpu and not gpu_attention.is_on_gpu(q)
    if on_cpu and torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        raise SettingError(
            "FlexAttention has no backward on the CPU: train with engine='sdpa', or evaluate under torch.no_grad()."
        )
    if on_cpu:
        q, k, v = q.detach(), k.detach(), v.detach()  # it refuses tensors that require grad, also under no_grad
    if scores.block_mask is None:
        sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.device)
        mask = gpu_attention.block_mask(scores.allowed, *sizes)
    else:
        mask = scores.block_mask()
    attend = gpu_attention.attend if surely else gpu_attention.attend_if_compiled
    logs = how.lse or how.sink is not None
    results = attend(q, k, v, scores.element, mask, scale=how.scale, softcap=how.softcap, lse=logs)
    if results is None:
        return None
    y, lse = results
    if how.lse:
        return y, lse
    return (y if lse is None else with_sink(y, lse, how.sink),)


def require_heads(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise ShapeError unless queries, keys and values have one batch, and heads, features and tokens that fit."""
    if not q.dim() == k.dim() == v.dim() == 4:
        needed = "attention takes (batch, heads, tokens, head_dim)"
    else:
        require_floating("attention", q=q, k=k, v=v)
        (batch, heads, _, features), (rows, key_heads, keys, key_features) = q.shape, k.shape
        if key_heads == 0 or heads % key_heads or key_heads != v.shape[1]:
            needed = "key and value heads must be equal and divide the query heads"
        elif not batch == rows == v.shape[0]:
            needed = "queries, keys and values need one batch"
        elif features != key_features or keys != v.shape[2]:
            needed = "q and k need one head_dim, k and v the same tokens"
        else:
            return
    raise ShapeError(f"{needed}, but got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}.")


def merge_attention(
    parts: Iterable[tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]],
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Merge the outputs of the same queries over disjoint blocks of keys."""
    outputs, logs = zip(*parts, strict=True) if (parts := list(parts)) else ((), ())
    shapes = {(tuple(y.shape), tuple(lse.shape)) for y, lse in zip(outputs, logs, strict=True)}
    if len(shapes) != 1 or any(shape[:-1] != lse for shape, lse in shapes):
        raise ShapeError(
            f"merged attention needs outputs and logarithms of the same queries, but got {sorted(shapes)}.\n"
            "Pass what here.attention_with_lse(q, k, v) returns for each block of keys."
        )
    dtype = torch.promote_types(logs[0].dtype, torch.float32)
    of_blocks = torch.stack([lse.to(dtype) for lse in logs])
    empty = (of_blocks == -torch.inf).all(0)
    finite = of_blocks.masked_fill(empty, 0)  # else weights and gradients would be NaN
    weights = finite.softmax(0).masked_fill(empty, 0)[..., None]
    y = sum(
        (weight * output.to(dtype) for weight, output in zip(weights, outputs, strict=True)),
        start=weights.new_zeros(()),
    )
    return y.to(outputs[0].dtype), finite.logsumexp(0).masked_fill(empty, -torch.inf)


def with_sink(
    y: Float[Tensor, "batch heads queries value_dim"],
    lse: Float[Tensor, "batch heads queries"],
    sink: Float[Tensor, " heads"] | None,
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Return outputs over all keys with a sink in the denominator of the softmax."""
    if sink is None:
        return y
    finite = lse.masked_fill(lse == -torch.inf, 0)  # of a query without keys, whose y is 0; a sink may be infinite, too
    share = torch.sigmoid(finite - sink.to(lse.dtype)[:, None])  # of the weights that is not the sink's
    return (y * share[..., None]).to(y.dtype)
