"""Masks of transformers as positions and windows: what no query sees is skipped, and any other mask is a table.

transformers describes a mask by a function of indices, composed of causality, windows, chunks and packed sequences.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from whatwhere.position.positions import Positions, positions
from whatwhere.where.attention import Scores
from whatwhere.where.pass_cache import PassCache
from whatwhere.where.score_bias import ScoreBias
from whatwhere.where.window import Window

NAME = "whatwhere"  # of our attention, for attn_implementation

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""A mask as transformers describes it: (batch, head, query, key) -> bool, of counts over the whole sequence."""

CALCULATES = (
    "bigbird_pegasus", "deepseek_v4", "doge", "nllb-moe", "qwen4_exp_text", "t5gemma2", "t5gemma2_decoder",
    "t5gemma2_encoder", "t5gemma2_text",
)  # fmt: skip
"""Model types whose code calculates with the mask, as a table that is added to the scores."""


@dataclass(frozen=True)
class BoundMask:
    """The mask of a forward pass, which all layers of one type share."""

    window: Window | None
    tables: PassCache  # with the positions of queries and keys; one object where they are the same
    causal: bool
    batch: int

    ndim = 4  # of the table that it stands for

    @property
    def hides(self) -> bool:
        """Whether some query may not see some key, as far as that is known."""
        segmented = self.tables.queries.segment is not None or self.tables.keys.segment is not None
        return self.causal or self.window is not None or segmented

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape that the mask would have as a table."""
        return self.batch, 1, self.tables.queries.tokens, self.tables.keys.tokens

    def contiguous(self) -> Bool[Tensor, "batch 1 queries keys"]:
        """Return the mask as a table, for `generate`, which makes that of a static cache before it calls the model."""
        return self[:].contiguous()

    def __getitem__(self, slots: Any) -> Bool[Tensor, "..."]:
        """Return a part of the mask as a table, for models that slice it."""
        queries, keys = self.tables.queries, self.tables.keys
        mask = queries.mask(keys, self.causal)
        if self.window is not None:
            mask = mask & self.window.mask(queries, keys)
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
    attention_mask: Bool[Tensor, "batch all_keys"] | BoundMask | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    config: Any = None,
    dtype: torch.dtype = torch.float32,
    **others: Any,
) -> BoundMask | Bool[Tensor, "batch 1 queries keys"] | Float[Tensor, "batch 1 queries keys"]:
    """Return the mask of a forward pass from transformers' description of it: a table where that is not known.

    Padding is a matter of keys alone, as in transformers: a query at padding sees what the mask lets it see, and its
    output is zero where that is nothing.

    Args:
        q_offset, kv_offset: counts of the first query and of the first key.
        attention_mask: True at tokens and False at padding, from the first key on; None is without padding. A mask
            that was made before stays as it is.
        use_vmap: whether the function takes single numbers alone.
    """
    from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask
    from transformers.utils.import_utils import is_tracing

    model_type = getattr(config, "model_type", "")
    if isinstance(attention_mask, BoundMask):
        return attention_mask  # PaliGemma makes the mask for its text, which would make it once more
    rule: Any = causal_mask_function if mask_function is None else mask_function
    known = not use_vmap and not isinstance(q_offset, Tensor) and not isinstance(kv_offset, Tensor)
    parts = _parts(rule) if known and model_type not in CALCULATES else None
    if parts is None or (parts.one_sided and not parts.causal):
        tabulated: Any = sdpa_mask  # whose offsets may be tensors, of a static cache
        table = tabulated(
            batch_size, q_length, kv_length, q_offset, kv_offset, rule, attention_mask, allow_is_causal_skip=False,
            use_vmap=use_vmap, device=device,
        )  # fmt: skip
        assert isinstance(table, Tensor)
        if model_type not in CALCULATES:
            return table
        return torch.zeros_like(table, dtype=dtype).masked_fill(~table, torch.finfo(dtype).min)
    first_query: Any = q_offset  # a number, which a trace with dynamic shapes does not know
    first_key: Any = kv_offset
    padding = prepare_padding_mask(attention_mask, kv_length, first_key)
    if padding is not None:
        padding = padding[:, first_key : first_key + kv_length]
        padding = None if not is_tracing(padding) and bool(padding.all()) else padding
    keys = parts.positions(kv_length, first_key, device, padding)
    same = padding is None and q_length == kv_length and first_query == first_key
    queries = keys if same else parts.positions(q_length, first_query, device, None)
    return BoundMask(parts.window, PassCache(queries, keys), parts.causal, batch_size)


@dataclass(frozen=True)
class _Parts:
    """What a mask function of transformers consists of."""

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
        if self.size is None:
            return None
        return Window(self.size, self.chunked, by="coordinates" if self.chunked else "order")

    def positions(
        self, tokens: int, offset: int, device: torch.device | str, padding: Bool[Tensor, "batch tokens"] | None
    ) -> Positions:
        segment = None if self.packed is None else self.packed[:, offset : offset + tokens]
        if padding is not None:
            segment = torch.where(padding, 0 if segment is None else segment, -1)
        if segment is None and self.left_padding is None:
            return positions(tokens, start=offset, device=device)
        order = torch.arange(offset, offset + tokens, device=device)[None]
        start = 0 if self.left_padding is None else self.left_padding.to(order.device)[:, None]
        index = (order - start).clamp(min=0)
        if self.position_ids is not None:
            index = self.position_ids[:, offset : offset + tokens]
        rows = max(index.shape[0], 1 if segment is None else segment.shape[0])
        return Positions(
            index.expand(rows, -1)[None], order.expand(rows, -1), None if segment is None else segment.expand(rows, -1)
        )


def _parts(rule: Any) -> _Parts | None:
    """Return what a mask function consists of; None where it has a part that is not known."""
    from transformers import masking_utils as masks

    if rule is masks.causal_mask_function:
        return _Parts(causal=True)
    if rule is masks.bidirectional_mask_function:
        return _Parts()
    if torch.compiler.is_compiling():
        return None  # a trace cannot look into a function
    maker = _MAKERS.get(getattr(rule, "__qualname__", "").partition(".")[0])
    if maker is None or rule.__module__ != masks.__name__:
        return None
    cells = rule.__closure__ or ()
    return maker(dict(zip(rule.__code__.co_freevars, (cell.cell_contents for cell in cells), strict=True)))


def _window(values: dict[str, Any]) -> _Parts | None:
    size: int = values["sliding_window"]
    return _Parts(size=size, one_sided=True) if size > 0 else None  # Qwen2-MoE makes one of 0 and never uses it


def _remapped(values: dict[str, Any]) -> _Parts | None:
    inner = _parts(values["mask_function"])
    return None if inner is None else replace(inner, position_ids=values["position_ids"])


_MAKERS: Mapping[str, Callable[[dict[str, Any]], _Parts | None]] = {
    "sliding_window_overlay": _window,
    "sliding_window_bidirectional_overlay": lambda values: _Parts(size=values["sliding_window"] + 1),
    "chunked_overlay": lambda values: _Parts(
        size=values["chunk_size"], chunked=True, left_padding=values["left_padding"]
    ),
    "packed_sequence_mask_function": lambda values: _Parts(packed=values["packed_sequence_mask"]),
    "remap_positions_for_packed_sequence": _remapped,
    "and_masks": lambda values: _all_of([_parts(one) for one in values["mask_functions"]]),
}
"""transformers' makers of mask functions -> what a function of each consists of, by the values that it encloses."""


def _all_of(parts: list[_Parts | None]) -> _Parts | None:
    """Return the parts of several functions that must all hold; None where one is not known, or two are windows."""
    merged = _Parts()
    for one in parts:
        if one is None or (one.size is not None and merged.size is not None):
            return None
        given = {name: value for name, value in vars(one).items() if value is not None and value is not False}
        merged = replace(merged, **given)
    return merged
