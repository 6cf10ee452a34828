"""Forms of a batch in which a tiny model is called: whole, at far positions, padded, packed, with a KV cache.

An encoder and a decoder read sequences of one length, of which others are padded, as users' data may be.
"""

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

import whatwhere as ww
from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.model_types import HEARING, MODEL_TYPES

from ..models.tiny import inputs_of

TOKENS, SPLIT = 13, 8
PADDING, PADDED_BEHIND, FIRST_PACKED = 4, 2, 7
"""Padding tokens of one of two sequences, on the left and on the right, where each sees a token within its window; and
tokens of the first of two packed sequences."""
FAR, ROWS = 200, 62
"""Coordinate of the first token where positions are far, and the coordinates that a table of positions has at least."""
MASKS_OF_TOKENS = ("esm", "kosmos_2_5_text_model", "kosmos_2_text_model", "layoutlm")
"""Types that calculate with masks of tokens alone, though their attention can be chosen."""
Form = Callable[[nn.Module, Tensor], Tensor | None]


def ids() -> Tensor:
    return torch.randint(5, 30, (2, TOKENS), generator=torch.Generator().manual_seed(0))


def takes(model: nn.Module) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def has_two_parts(model: nn.Module) -> bool:
    return "decoder_input_ids" in takes(model)


def takes_positions(model: nn.Module) -> bool:
    return "position_ids" in takes(model) and not has_two_parts(model)


def description(model: nn.Module) -> Description | None:
    """Return what the configuration of a model states; None of a type that is not read."""
    return ww.from_huggingface(model.config) if model.config.model_type in MODEL_TYPES else None


def is_causal(model: nn.Module) -> bool:
    """Return whether tokens attend to earlier ones alone."""
    read = description(model)
    return getattr(model.config, "is_decoder", "past_key_values" in takes(model)) if read is None else read.causal


def called(model: nn.Module, tokens: Tensor, **others: Any) -> Tensor:
    """Return the last hidden states of one call without a cache."""
    if has_two_parts(model) and model.config.model_type in HEARING:
        others.pop("attention_mask", None)  # of its sounds
    if "use_cache" in takes(model):
        others["use_cache"] = False
    return model(**{**inputs_of(model, tokens), **others})[0]


def start_of(model: nn.Module, tokens: Tensor) -> int:
    """Return the position of the first token, as the model itself counts: from 0, or from the padding id."""
    read = description(model)
    offset = 0 if read is None else read.position_offset
    at = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)
    if not offset or torch.allclose(called(model, tokens, position_ids=at), prefill(model, tokens), atol=1e-4):
        return 0
    return offset


def has_table(model: nn.Module) -> bool:
    """Return whether a model looks up positions in a table."""
    tables = ("position_embeddings.weight", "positions_embed.weight", "embed_positions.weight", "wpe.weight")
    tables += ("embed_positions", "embed_positions.weights")
    named = (*model.named_parameters(), *model.named_buffers())
    return any(name.endswith(tables) for name, _ in named)


def prefill(model: nn.Module, tokens: Tensor) -> Tensor:
    return called(model, tokens)


def far(model: nn.Module, tokens: Tensor) -> Tensor | None:
    """Two sequences whose positions begin late."""
    if not takes_positions(model):
        return None
    start = min(FAR, ROWS - TOKENS) if has_table(model) else FAR
    return called(model, tokens, position_ids=torch.arange(start, start + TOKENS).repeat(2, 1))


def padded(model: nn.Module, tokens: Tensor) -> Tensor:
    """Two sequences, one padded on the left, as generation has them; without the outputs of padding."""
    out, mask = _padded(model, tokens, slice(0, PADDING))
    return out[mask.bool()]


def padded_behind(model: nn.Module, tokens: Tensor) -> Tensor:
    """Two sequences, one padded on the right, as in training; with the outputs of padding, which sees tokens."""
    return _padded(model, tokens, slice(TOKENS - PADDED_BEHIND, TOKENS))[0]


def _padded(model: nn.Module, tokens: Tensor, where: slice) -> tuple[Tensor, Tensor]:
    """Return outputs, and the mask of their tokens; the first sequence is padded, and the second one of a decoder."""
    mask = torch.ones(2, TOKENS, dtype=torch.long)
    mask[0, where] = 0
    padding = getattr(model.config, "pad_token_id", None)
    padding = padding if padding is not None and 0 <= padding < 60 else int(tokens[0, 0])
    inputs = tokens.where(mask.bool(), padding)
    if has_two_parts(model):
        later = mask if model.config.model_type in HEARING else mask.flip(0)
        others = {"decoder_input_ids": tokens.where(later.bool(), padding), "decoder_attention_mask": later}
        return called(model, inputs, attention_mask=mask, **others), later
    at = {}
    if takes_positions(model) and not start_of(model, inputs[1:]):  # others count from the padding id themselves
        at = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    return called(model, inputs, attention_mask=mask, **at), mask


def packed(model: nn.Module, tokens: Tensor) -> Tensor | None:
    """Two sequences in one, known by their positions alone."""
    if not takes_positions(model) or not is_causal(model):
        return None
    return called(model, tokens, position_ids=_positions_of_two(model, tokens))


def masked(model: nn.Module, tokens: Tensor) -> Tensor | None:
    """Two sequences in one, known by their positions and a mask of all pairs, which is added to the scores."""
    older = not type(model)._can_set_attn_implementation()  # whose code takes no such mask
    if not takes_positions(model) or older or model.config.model_type in MASKS_OF_TOKENS:
        return None
    segment = torch.arange(TOKENS) >= FIRST_PACKED
    hidden = segment[:, None] != segment
    if is_causal(model):
        hidden = hidden | torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    table = torch.zeros(2, 1, TOKENS, TOKENS, dtype=next(model.parameters()).dtype)
    table = table.masked_fill(hidden, torch.finfo(table.dtype).min)
    return called(model, tokens, position_ids=_positions_of_two(model, tokens), attention_mask=table)


def _positions_of_two(model: nn.Module, tokens: Tensor) -> Tensor:
    start = start_of(model, tokens)
    return start + torch.tensor([[*range(FIRST_PACKED), *range(TOKENS - FIRST_PACKED)]] * 2)


def decoding(model: nn.Module, tokens: Tensor) -> Tensor | None:
    """Several tokens, one, and several again with the model's own cache, beyond its window."""
    return _decoded(model, tokens, (0, SPLIT, SPLIT + 1, TOKENS))


def stepping(model: nn.Module, tokens: Tensor) -> Tensor | None:
    """Several tokens, and the others one by one with the model's own cache, beyond its window."""
    return _decoded(model, tokens, (0, *range(SPLIT, TOKENS + 1)))


def _decoded(model: nn.Module, tokens: Tensor, ends: tuple[int, ...]) -> Tensor | None:
    if "past_key_values" not in takes(model) or not decodes(model):
        return None
    made = (None,) if has_two_parts(model) else (None, DynamicCache(config=model.config))  # which Granite 4 makes not
    return next((out for cache in made if (out := _with_cache(model, tokens, ends, cache)) is not None), None)


def _with_cache(model: nn.Module, tokens: Tensor, ends: tuple[int, ...], cache: Any) -> Tensor | None:
    paired = has_two_parts(model)
    inputs, out = inputs_of(model, tokens), []
    if paired and "encoder_outputs" not in inputs:
        inputs["encoder_outputs"] = model.get_encoder()(inputs["input_ids"])
    for start, stop in pairwise(ends):
        part = tokens[:, start:stop]
        given = {"input_ids": part}
        if paired:
            given = {"decoder_input_ids": part, "encoder_outputs": inputs["encoder_outputs"]}
        step = model(**given, past_key_values=cache, use_cache=True)
        cache = getattr(step, "past_key_values", cache)
        if cache is None:
            return None
        out.append(step[0])
    return torch.cat(out, dim=1)


def decodes(model: nn.Module) -> bool:
    """Return whether a model is a decoder, or could be an encoder and is one here."""
    config = model.config
    encodes = hasattr(config, "is_decoder") and not config.is_decoder and not config.is_encoder_decoder
    return not encodes or ww.from_huggingface(config).causal


FORMS: dict[str, Form] = {
    "prefill": prefill, "far": far, "padded": padded, "padded behind": padded_behind, "packed": packed,
    "masked": masked, "decoding": decoding, "stepping": stepping,
}  # fmt: skip
