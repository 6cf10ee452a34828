"""`attn_implementation="whatwhere"`: our attention in models of transformers, for masks, windows, sinks and biases."""

import inspect
import re
import sys
from dataclasses import dataclass, replace
from functools import cache, reduce, wraps
from typing import Any

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.errors import SettingError, ShapeError
from whatwhere.huggingface.attention_mask import NAME, BoundMask, Rule, make_mask
from whatwhere.position.positions import positions
from whatwhere.where.attention import Scores, attention, join
from whatwhere.where.pass_cache import PassCache
from whatwhere.where.score_bias import ScoreBias

_OF_A_TABLE: dict[str, Any] = {"blocks": None, "block_mask": None, "flash": None, "tabulated": True}
"""What is known of scores whose bias a model gives as a table."""

_SAID_BY_THE_MASK = (
    "cache_position", "cu_seq_lens_k", "cu_seq_lens_q", "input_ids", "num_items_in_batch", "position_ids", "seq_idx",
)  # fmt: skip
"""Tensors that models pass on to every attention function, of which masks and positions already know."""


def register_attention() -> str:
    """Register our attention and masks with transformers, as `attn_implementation="whatwhere"`.

    It takes what attention functions there get: `position_bias` (T5), sinks (`s_aux`, gpt-oss), windows and chunks,
    `softcap` (Gemma 2), the softmax scale, dropout, grouped heads, padding, packed sequences and KV caches. Keys
    outside of a window are skipped, so time and memory grow with the window. Attention weights are not returned.
    A model whose attention is code of its own, such as BLOOM's, keeps it, and transformers' log says so.

    Returns:
        The name, for `from_pretrained(..., attn_implementation=name)` or `model.set_attn_implementation(name)`.

    Raises:
        ImportError: If transformers is not installed.

    Examples:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> config = LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        ...                      num_attention_heads=2)
        >>> model = LlamaForCausalLM(config).eval()
        >>> before = model(torch.tensor([[1, 2, 3]])).logits
        >>> model.set_attn_implementation(register_attention())
        >>> torch.allclose(model(torch.tensor([[1, 2, 3]])).logits, before, atol=1e-5)
        True
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, make_mask)
    _keep_own_attention()
    return NAME


@cache
def _keep_own_attention() -> None:
    """Make models whose attention cannot be chosen keep it when they are loaded, as `set_attn_implementation` does."""
    import transformers
    from transformers.utils import logging

    kind: Any = transformers.PreTrainedModel
    chosen = kind.get_correct_attn_implementation

    @wraps(chosen)
    def checked(model: Any, requested_attention: str | None, *args: Any, **others: Any) -> Any:
        if requested_attention == NAME and _has_own_attention(type(model)):
            before = model.config._attn_implementation
            kept: str = chosen(model, None if before == NAME else before, *args, **others)
            logging.get_logger(chosen.__module__).warning(
                f"{type(model).__name__} has attention of its own, so it keeps {kept!r} in place of {NAME!r}."
            )
            return kept
        return chosen(model, requested_attention, *args, **others)

    kind.get_correct_attn_implementation = checked


def _has_own_attention(kind: type[nn.Module]) -> bool:
    """Return whether the file of a model has attention that does not ask for the function that was chosen."""
    try:
        code = inspect.getsource(sys.modules[kind.__module__])
    except (KeyError, OSError, TypeError):  # of a notebook
        return False
    asks = re.search(r"ALL_ATTENTION_FUNCTIONS[.\[]", code)
    by_class = re.search(r"_CLASSES\[[\w.]+\._attn_implementation\]", code)
    return by_class is not None or (asks is None and re.search(r"^class \w*Attention\w*\(", code, re.M) is not None)


@dataclass(frozen=True)
class RelativeBias:
    """The bias of a patched model in place of its table of all pairs."""

    scheme: ScoreBias | None  # which reads the positions of the mask; None adds nothing
    start: int | Tensor = 0  # position of the first query, where the mask is a table


def attention_forward(
    module: nn.Module,
    query: Float[Tensor, "batch heads queries head_dim"],
    key: Float[Tensor, "batch key_heads keys head_dim"],
    value: Float[Tensor, "batch key_heads keys value_dim"],
    attention_mask: BoundMask | Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    s_aux: Float[Tensor, "..."] | None = None,
    softcap: float | None = None,
    position_bias: "Float[Tensor, '#batch #heads queries keys'] | RelativeBias | None" = None,
    is_causal: bool | None = None,
    indices: Integer[Tensor, "batch queries chosen"] | None = None,
    block_indices: Integer[Tensor, "batch groups queries blocks"] | None = None,
    sinks: Float[Tensor, "batch heads queries 1"] | None = None,
    **others: Any,
) -> tuple[Float[Tensor, "batch queries heads value_dim"], None]:
    """Compute attention as transformers' attention functions do; return None in place of attention weights.

    Args:
        attention_mask: of `make_mask`; or a table, True at visible keys, or added to the scores.
        softcap: c, where scores become c tanh(score / c) before mask and bias.
        position_bias: added to the scores, as a table or as the scheme of a patched model.
        indices: the keys that a query sees, chosen by an indexer (DeepSeek V3.2), of those that the mask lets it see.
        block_indices: blocks of keys, chosen in the same way for each group of heads (MiniMax M3); -1 is none.
        sinks: a sink logit for each head and query (Inkling 2).
        others: `sliding_window`, which the mask has, and what other implementations take: other tensors are refused.
    """
    if others.get("output_attentions"):
        raise SettingError(
            f"attn_implementation={NAME!r} returns no attention weights, but output_attentions=True.\n"
            "Use attn_implementation='eager' for these."
        )
    if others.get("cache") is not None:
        raise SettingError(
            f"attn_implementation={NAME!r} does not read a paged cache.\nUse attn_implementation='sdpa' for it."
        )
    for name, given in others.items():
        if isinstance(given, Tensor) and name not in _SAID_BY_THE_MASK and _reads(type(module), name):
            raise SettingError(
                f"{type(module).__name__} passes {name} to its attention, which attn_implementation={NAME!r} does not "
                "read.\nUse attn_implementation='eager' for this model."
            )
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    table = attention_mask[:, :, :, : key.shape[2]] if isinstance(attention_mask, Tensor) else None
    masks = [table] if table is not None and table.dtype == torch.bool else []
    if indices is not None:
        masks.append(_chosen(indices, key.shape[2]))
    if block_indices is not None:
        masks.append(_chosen_blocks(module, block_indices, query.shape[1], key.shape[2]))
    mask = reduce(torch.logical_and, masks) if masks else None
    bias = position_bias if isinstance(position_bias, RelativeBias) else RelativeBias(None)
    scores = _bound(query, key, attention_mask, causal, bias.start).scores(query, key, bias.scheme, mask)
    for added in (None if table is None or table.dtype == torch.bool else table, position_bias):
        if isinstance(added, Tensor):
            scores = _with_bias(scores, added)
    if sinks is not None:
        scores, key, value = _with_sinks(scores, sinks, query, key, value)
    y = attention(
        query,
        key,
        value,
        scores,
        scale=scaling,
        sink=None if s_aux is None else s_aux.flatten(),
        softcap=softcap,
        dropout=dropout if module.training else 0.0,
    )
    return y.transpose(1, 2).contiguous(), None


def _chosen(indices: Integer[Tensor, "batch queries chosen"], keys: int) -> Bool[Tensor, "batch 1 queries keys"]:
    allowed = torch.zeros(*indices.shape[:2], keys, dtype=torch.bool, device=indices.device)
    return allowed.scatter(-1, indices.long(), True)[:, None]


def _chosen_blocks(
    module: nn.Module, blocks: Integer[Tensor, "batch groups queries blocks"], heads: int, keys: int
) -> Bool[Tensor, "batch heads queries keys"]:
    size: int = module.get_submodule("indexer").block_size  # type: ignore[assignment]
    number = -(-keys // size)
    allowed = torch.zeros(*blocks.shape[:3], number + 1, dtype=torch.bool, device=blocks.device)
    allowed.scatter_(-1, blocks.long().masked_fill(blocks < 0, number), True)
    by_key = allowed[..., :number].repeat_interleave(size, dim=-1)[..., :keys]
    return by_key.repeat_interleave(heads // blocks.shape[1], dim=1)


def _with_sinks(
    scores: Scores, sinks: Float[Tensor, "batch heads queries 1"], q: Tensor, k: Tensor, v: Tensor
) -> tuple[Scores, Tensor, Tensor]:
    """Return scores, keys and values with one more key, whose score is a sink and whose value is zero."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    added = scores.added(dtype)
    shape = (*q.shape[:3], k.shape[2])
    if added is None:
        added = torch.zeros(1, 1, 1, 1, dtype=dtype, device=q.device)
    elif added.dtype == torch.bool:
        added = torch.zeros_like(added, dtype=dtype).masked_fill(~added, -torch.inf)
    table = torch.cat([added.expand(shape), sinks.to(dtype).expand(*shape[:3], 1)], dim=-1)
    widened = Scores(_by_element(table), None, run=False, added=table.to, batch=q.shape[0], **_OF_A_TABLE)
    return widened, F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _reads(kind: type[nn.Module], name: str) -> bool:
    """Return whether the attention function of a model's own file names an argument; True where it has none."""
    # Whatever a user passes to a model arrives here too: labels of the loss, or types of tokens that it has not.
    file = getattr(sys.modules.get(kind.__module__), "__dict__", {})
    codes = [own.__code__ for each, own in file.items() if each.endswith("eager_attention_forward")]
    return not codes or any(name in (*code.co_varnames, *code.co_consts) for code in codes)


def _bound(q: Tensor, k: Tensor, mask: BoundMask | Tensor | None, causal: bool, start: int | Tensor) -> BoundMask:
    """Return the mask; where there is none of ours, positions with causality alone, or without a mask."""
    queries, keys = q.shape[2], k.shape[2]
    if isinstance(mask, BoundMask):
        if mask.shape[2:] == (queries, keys):
            return mask
        if mask.hides:
            raise ShapeError(
                f"the mask is for {mask.shape[2]} queries and {mask.shape[3]} keys, but there are {queries} "
                f"and {keys}.\nLeave out prefill_chunk_size where there is an encoder, whose mask it cuts; else use "
                "attn_implementation='sdpa' for this model."
            )
    # As in transformers: one query sees all keys; several without a mask count from the first key.
    counted = mask is None and causal and queries > 1
    at_keys = positions(keys, device=q.device)
    first = start.reshape(1) if isinstance(start, Tensor) else start
    at_queries = at_keys if counted and queries == keys else positions(queries, start=first, device=q.device)
    return BoundMask(None, PassCache(at_queries, at_keys), counted, q.shape[0])


def _with_bias(scores: Scores, bias: Float[Tensor, "#batch #heads queries keys"]) -> Scores:
    """Return scores with a table added to them."""
    before, element = scores.added, scores.element
    by_element = _by_element(bias)

    def added(dtype: torch.dtype) -> Tensor | None:
        table = before(dtype)
        wide = bias.to(dtype)
        if table is None or table.dtype == torch.bool:
            return join(wide, table, dtype)
        return table + wide

    def both(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        value = by_element(b, h, i, j)
        return value if element is None else element(b, h, i, j) + value

    rows = max(scores.batch, bias.shape[0])
    return replace(scores, element=both, run=False, added=added, batch=rows, **_OF_A_TABLE)


def _by_element(table: Tensor) -> Rule:
    """Return a table of shape (batch or 1, heads or 1, queries or 1, keys) as a function of elements."""
    batch, heads, queries, _ = table.shape
    return lambda b, h, i, j: table[b % batch, h % heads, i % queries, j]
