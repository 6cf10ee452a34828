"""`attn_implementation="whatwhere"`: our attention in models of transformers, for masks, windows, sinks and biases.

transformers describes a mask by a function of indices, composed of causality, windows, chunks and packed sequences.
Here such a function is read into Positions and a Window, so that what no query sees is skipped; any other becomes a
table.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from whatwhere.errors import SettingError, ShapeError
from whatwhere.position import Positions, positions
from whatwhere.where.attention import Scores, attention, join
from whatwhere.where.pass_cache import PassCache
from whatwhere.where.score_bias import ScoreBias
from whatwhere.where.window import Window

NAME = "whatwhere"
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A mask as transformers describes it: (batch, head, query, key) -> bool, of counts over the whole sequence."""


def register_attention() -> str:
    """Register our attention and masks with transformers, as `attn_implementation="whatwhere"`.

    It takes what attention functions there get: `position_bias` (T5), sinks (`s_aux`, gpt-oss), windows and chunks,
    `softcap` (Gemma 2), the softmax scale, dropout, grouped heads, padding, packed sequences and KV caches. Keys
    outside of a window are skipped, so time and memory grow with the window. Attention weights are not returned.

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
    return NAME


@dataclass(frozen=True)
class RelativeBias:
    """The bias of a patched model in place of its table of all pairs.

    Args:
        scheme: of the bias, which reads the positions of the mask; None adds nothing.
    """

    scheme: ScoreBias | None


@dataclass(frozen=True)
class BoundMask:
    """The mask of a forward pass, which all layers of one type share.

    Args:
        window: outside of which nothing is seen; None is none.
        queries, keys: their positions; one object where they are the same.
        causal: whether keys later than the query are masked.
        batch: sequences.
    """

    window: Window | None
    queries: Positions
    keys: Positions
    causal: bool
    batch: int

    @cached_property
    def tables(self) -> PassCache:
        """What the layers share."""
        return PassCache(self.queries, self.keys)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape that the mask would have as a table."""
        return self.batch, 1, self.queries.tokens, self.keys.tokens

    def __getitem__(self, slots: Any) -> Bool[Tensor, "..."]:
        """Return a part of the mask as a table, for models that slice it."""
        mask = self.queries.mask(self.keys, self.causal)
        if self.window is not None:
            mask = mask & self.window.mask(self.queries, self.keys)
        return mask.expand(self.shape)[slots]

    def scores(self, q: Tensor, k: Tensor, bias: ScoreBias | None, table: Tensor | None) -> Scores:
        """Return this mask, a bias and a further mask in the form that attention takes."""
        return self.tables.scores(bias, self.window, q, k, self.causal, table, None)


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Rule | None = None,
    attention_mask: Bool[Tensor, "batch all_keys"] | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **others: Any,
) -> BoundMask | Bool[Tensor, "batch 1 queries keys"]:
    """Return the mask of a forward pass from transformers' description of it.

    Args:
        batch_size, q_length, kv_length: of the mask.
        q_offset, kv_offset: counts of the first query and of the first key.
        mask_function: the mask as a function of counts.
        attention_mask: True at tokens and False at padding, from the first key on; None is no padding.
        use_vmap: whether the function takes single numbers alone.
        device: of the mask.
        others: for other implementations.

    Returns:
        Positions and a window, where the function is known; else the mask as a table.
    """
    from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask

    rule: Any = causal_mask_function if mask_function is None else mask_function
    parts = None if use_vmap or isinstance(q_offset, Tensor) or isinstance(kv_offset, Tensor) else _parts(rule)
    if parts is None or (parts.one_sided and not parts.causal):
        tabulated: Any = sdpa_mask  # whose offsets may be tensors, of a static cache
        table = tabulated(
            batch_size, q_length, kv_length, q_offset, kv_offset, rule, attention_mask, allow_is_causal_skip=False,
            use_vmap=use_vmap, device=device,
        )  # fmt: skip
        assert isinstance(table, Tensor)
        return table
    padding = prepare_padding_mask(attention_mask, kv_length, int(kv_offset))
    if padding is not None:
        padding = padding[:, kv_offset : kv_offset + kv_length]
        padding = None if bool(padding.all()) else padding
    keys = parts.positions(kv_length, int(kv_offset), device, padding)
    same = q_length == kv_length and q_offset == kv_offset
    queries = keys if same else parts.positions(q_length, int(q_offset), device, None)
    return BoundMask(parts.window, queries, keys, parts.causal, batch_size)


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
    **others: Any,
) -> tuple[Float[Tensor, "batch queries heads value_dim"], None]:
    """Compute attention as transformers' attention functions do.

    Args:
        module: whose `is_causal` decides where there is neither a mask nor `is_causal`.
        query, key, value: with positions already rotated in.
        attention_mask: of `make_mask`; or a table, True at visible keys, or added to the scores.
        scaling: softmax scale; None is 1 / sqrt(head_dim).
        dropout: probability of dropping an attention weight.
        s_aux: a sink logit for each head.
        softcap: c, where scores become c tanh(score / c) before mask and bias.
        position_bias: added to the scores, as a table or as the scheme of a patched model.
        is_causal: whether keys later than the query are masked, where there is no mask.
        others: `sliding_window`, which the mask has, and what other implementations take.

    Returns:
        The outputs, and None in place of attention weights.

    Raises:
        SettingError: If attention weights are requested, or a paged cache is used.
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
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    table = attention_mask[:, :, :, : key.shape[2]] if isinstance(attention_mask, Tensor) else None
    mask = table if table is not None and table.dtype == torch.bool else None
    scheme = position_bias.scheme if isinstance(position_bias, RelativeBias) else None
    scores = _bound(query, key, attention_mask, causal).scores(query, key, scheme, mask)
    for added in (table if mask is None else None, position_bias):
        if isinstance(added, Tensor):
            scores = _with_bias(scores, added)
    sink = None if s_aux is None else s_aux.flatten()
    y = attention(
        query,
        key,
        value,
        scores,
        scale=scaling,
        sink=sink,
        softcap=softcap,
        dropout=dropout if module.training else 0.0,
    )
    return y.transpose(1, 2).contiguous(), None


def _bound(q: Tensor, k: Tensor, mask: BoundMask | Tensor | None, causal: bool) -> BoundMask:
    """Return the mask; where there is none of ours, positions with causality alone, or without a mask."""
    queries, keys = q.shape[2], k.shape[2]
    if not isinstance(mask, BoundMask):
        # As in transformers: one query sees all keys; several without a mask count from the first key.
        counted = mask is None and causal and queries > 1
        at_keys = positions(keys, device=q.device)
        at_queries = positions(queries, start=0 if counted else max(keys - queries, 0), device=q.device)
        return BoundMask(None, at_keys if queries == keys else at_queries, at_keys, counted, q.shape[0])
    if (mask.queries.tokens, mask.keys.tokens) != (queries, keys):
        raise ShapeError(
            f"the mask is for {mask.queries.tokens} queries and {mask.keys.tokens} keys, but there are {queries} and "
            f"{keys}.\nUse attn_implementation='sdpa' for this model."
        )
    return mask


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
    return replace(scores, element=both, run=False, added=added, blocks=None, batch=rows)


def _by_element(table: Tensor) -> Rule:
    """Return a table of shape (batch or 1, heads or 1, queries or 1, keys) as a function of elements."""
    batch, heads, queries, _ = table.shape
    return lambda b, h, i, j: table[b % batch, h % heads, i % queries, j]


# What transformers' functions of masks say


@dataclass(frozen=True)
class _Parts:
    """What a mask function of transformers consists of.

    Args:
        causal: whether it masks later keys.
        window: the number of tokens that a query sees to one side, or of a chunk.
        chunked: whether it is a chunk.
        one_sided: whether the window limits earlier keys alone, as ours does under causality.
        left_padding: of each sequence, from where its chunks count.
        packed: number of the sequence of each token, in one that packs several.
        position_ids: of packed sequences.
    """

    causal: bool = False
    size: int | None = None
    chunked: bool = False
    one_sided: bool = False
    left_padding: Int64[Tensor, " batch"] | None = None
    packed: Int64[Tensor, "batch tokens"] | None = None
    position_ids: Int64[Tensor, "batch tokens"] | None = None

    @property
    def window(self) -> Window | None:
        """The window or the chunks; these count coordinates."""
        return (
            None
            if self.size is None
            else Window(self.size, self.chunked, by="coordinates" if self.chunked else "order")
        )

    def positions(
        self, tokens: int, offset: int, device: torch.device | str, padding: Bool[Tensor, "batch tokens"] | None
    ) -> Positions:
        """Return the positions of queries or keys.

        Args:
            tokens: how many.
            offset: count of the first one.
            device: of the positions.
            padding: False at padding; None where there is none.
        """
        segment = self.packed if padding is None else torch.where(padding, 0, -1)
        if segment is None and self.left_padding is None:
            return positions(tokens, start=offset, device=device)
        order = torch.arange(offset, offset + tokens, device=device)[None]
        start = 0 if self.left_padding is None else self.left_padding.to(order.device)[:, None]
        index = (order - start).clamp(min=0) if self.position_ids is None else self.position_ids
        rows = max(index.shape[0], 1 if segment is None else segment.shape[0])
        return Positions(
            index.expand(rows, -1)[None], order.expand(rows, -1), None if segment is None else segment.expand(rows, -1)
        )


def _parts(rule: Rule) -> _Parts | None:
    """Return what a mask function consists of; None where it has a part that is not known."""
    known = _known()
    code: Any = getattr(rule, "__code__", None)
    name = known.get(code)
    if name is None:
        return None
    cells: Any = getattr(rule, "__closure__", None) or ()
    values = dict(zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=True))
    match name:
        case "causal":
            return _Parts(causal=True)
        case "bidirectional":
            return _Parts()
        case "window":
            return _Parts(size=values["sliding_window"], one_sided=True)
        case "window to both sides":
            return _Parts(size=values["sliding_window"] + 1)
        case "chunk":
            return _Parts(size=values["chunk_size"], chunked=True, left_padding=values["left_padding"])
        case "packed":
            return _Parts(packed=values["packed_sequence_mask"])
        case "remapped":
            inner = _parts(values["mask_function"])
            return None if inner is None else replace(inner, position_ids=values["position_ids"])
        case _:
            return _all_of([_parts(one) for one in values["mask_functions"]])


def _all_of(parts: list[_Parts | None]) -> _Parts | None:
    """Return the parts of several functions that must all hold; None where one is not known, or two are windows."""
    merged = _Parts()
    for one in parts:
        if one is None or (one.size is not None and merged.size is not None):
            return None
        given = {name: value for name, value in vars(one).items() if value is not None and value is not False}
        merged = replace(merged, **given)
    return merged


@cache
def _known() -> dict[Any, str]:
    """Return the code of transformers' functions of masks, with what each is."""
    from transformers import masking_utils as masks

    nothing = torch.zeros(1, 1, dtype=torch.long)
    causal = masks.causal_mask_function
    functions = {
        "causal": causal,
        "bidirectional": masks.bidirectional_mask_function,
        "window": masks.sliding_window_overlay(1),
        "window to both sides": masks.sliding_window_bidirectional_overlay(1),
        "chunk": masks.chunked_overlay(1, nothing),
        "packed": masks.packed_sequence_mask_function(nothing),
        "remapped": masks.remap_positions_for_packed_sequence(causal, nothing),
        "all": masks.and_masks(causal),
    }
    return {function.__code__: name for name, function in functions.items()}
