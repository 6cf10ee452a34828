"""Replacements for methods of Hugging Face that make a bias of the scores: the same shapes, from our schemes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.models.huggingface.attention import RelativeBias
from whatwhere.models.huggingface.attention_mask import NAME
from whatwhere.position import Positions
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.deberta import DeBERTa
from whatwhere.where.score.inkling import Inkling
from whatwhere.where.score.t5 import T5
from whatwhere.where.score_bias import ScoreBias, tabulate


def without_bias(attention: nn.Module, args: Any, others: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Return the arguments of T5's cross-attention with no bias in place of the table of zeros that it would make.

    Args:
        attention: the module, which has no bias of its own.
        args, others: of its forward.

    Returns:
        The arguments; None where they stay as they are.
    """
    if not uses_our_attention(attention) or others.get("position_bias") is not None:
        return None
    return args, {**others, "position_bias": RelativeBias(None)}


def uses_our_attention(module: nn.Module) -> bool:
    """Return whether the configuration of a module names our attention function.

    Args:
        module: of transformers.
    """
    return getattr(getattr(module, "config", None), "_attn_implementation", None) == NAME


def bucket_bias(attention: nn.Module, scheme: T5) -> "Callable[..., Tensor | RelativeBias]":
    """Return a replacement for `compute_bias` of T5's attention, with the attention's own table.

    With `attn_implementation="whatwhere"` it returns the scheme, and no table of all pairs is made.

    Args:
        attention: the module.
        scheme: its buckets.

    Returns:
        The method.
    """

    def compute_bias(
        query_length: int,
        key_length: int,
        device: torch.device | None = None,
        past_seen_tokens: int | Tensor = 0,
        **others: Any,
    ) -> Float[Tensor, "1 heads queries keys"] | RelativeBias:
        table = attention.get_parameter("relative_attention_bias.weight")
        scheme.weight = table
        if uses_our_attention(attention):
            return RelativeBias(scheme)
        where = table.device if device is None else device
        queries = torch.arange(query_length, device=where) + past_seen_tokens
        bias = _table(scheme, queries[None], torch.arange(key_length, device=where)[None])
        return bias.to(table.dtype)

    return compute_bias


def bucket_bias_of_ids(encoder: nn.Module, scheme: T5) -> Callable[..., Tensor]:
    """Return a replacement for `compute_position_bias` of MPNet's encoder, with its own table.

    Args:
        encoder: the module.
        scheme: its buckets.

    Returns:
        The method.
    """

    def compute_position_bias(
        x: Tensor, position_ids: Tensor | None = None, num_buckets: int = 32
    ) -> Float[Tensor, "batch heads tokens tokens"]:
        scheme.weight = table = encoder.get_parameter("relative_attention_bias.weight")
        at = torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids
        return _table(scheme, at, at).to(table.dtype).expand(x.shape[0], -1, -1, -1)

    return compute_position_bias


def profile_bias(module: nn.Module, num_heads: int) -> Callable[..., Tensor]:
    """Return a replacement for the forward of Inkling's `rel_logits_proj`, with its own profiles.

    The model multiplies what it returns, or what it is given, by its temperature.

    Args:
        module: the module.
        num_heads: heads of the queries of its attention.

    Returns:
        The method.
    """
    features, extent = module.get_parameter("proj").shape
    scheme = Inkling(features, num_heads, features, extent, device="meta")

    def forward(
        relative_states: Float[Tensor, "batch queries heads features"],
        query_positions: Integer[Tensor, " queries"],
        key_positions: Integer[Tensor, " keys"],
    ) -> Float[Tensor, "batch heads queries keys"]:
        scheme.profiles = profiles = module.get_parameter("proj")
        batch, queries, heads, _ = relative_states.shape
        at_queries, at_keys = (Positions(at[None, None], at[None]) for at in (query_positions, key_positions))
        element = scheme.bind(at_queries, at_keys, gates=relative_states.transpose(1, 2))
        bias = tabulate(element, batch, heads, queries, len(key_positions), profiles.device)
        return bias.to(relative_states.dtype)

    return forward


def disentangled_bias(attention: Any, scheme: DeBERTa) -> tuple[str, Callable[..., Tensor]]:
    """Return the name of the method of DeBERTa's attention that computes its bias, and a replacement for it.

    The attention's own projections make the tables of each call. Positions are slots, as in the model.

    Args:
        attention: the module, of DeBERTa, or of DeBERTa-v2 and v3.
        scheme: of its rows and terms.
    """
    first = hasattr(attention, "in_proj")
    shared = not first and attention.share_att_key
    names = {
        "position_keys": "pos_proj" if first else "key_proj" if shared else "pos_key_proj",
        "position_queries": "pos_q_proj" if first else "query_proj" if shared else "pos_query_proj",
    }
    tables = {name: path for name, path in names.items() if getattr(scheme, name) is not None}
    rows = len(next(scheme.parameters()))
    for name in tables:
        delattr(scheme, name)  # what is projected in each call is no parameter

    def bias(
        query_layer: Tensor, key_layer: Tensor, relative_pos: Tensor | None, rel_embeddings: Tensor, scale_factor: int
    ) -> Tensor:
        heads = scheme.num_heads
        for name, path in tables.items():
            projected = attention.get_submodule(path)(rel_embeddings[:rows])
            setattr(scheme, name, projected.unflatten(-1, (heads, scheme.head_dim)))
        # The first DeBERTa has divided queries by the scale already, the others have heads and sequences in one axis.
        q, k = (query_layer, key_layer) if first else (x.unflatten(0, (-1, heads)) for x in (query_layer, key_layer))
        at = [torch.arange(x.shape[2], device=x.device)[None] for x in (q, k)]
        at_queries, at_keys = (Positions(each[None], each) for each in at)
        element = scheme.bind(at_queries, at_keys, q=q / scheme.scale if first else q, k=k)
        table = tabulate(element, q.shape[0], heads, q.shape[2], k.shape[2], q.device).to(q.dtype)
        return table if first else table.flatten(0, 1)

    return "disentangled_att_bias" if first else "disentangled_attention_bias", bias


def last_row_of_alibi(scheme: ALiBi) -> Callable[..., Tensor]:
    """Return a replacement for MPT's `build_mpt_alibi_tensor`: the bias of the last query, whose row all queries use.

    Args:
        scheme: ALiBi of these heads.

    Returns:
        The method.
    """

    def build_mpt_alibi_tensor(
        num_heads: int, sequence_length: int, alibi_bias_max: float = 8, device: torch.device | None = None
    ) -> Float[Tensor, "heads 1 keys"]:
        keys = torch.arange(sequence_length, device=device)[None]
        return _table(scheme, keys[:, -1:], keys)[0]

    return build_mpt_alibi_tensor


def relative_alibi(
    scheme: ALiBi, mask: Tensor | None, tokens: int, keys: int, past: int, like: Tensor
) -> Float[Tensor, "batch_heads queries keys"]:
    """Compute BLOOM's bias from distances; its own uses positions of keys, which become equal in bfloat16.

    Args:
        scheme: ALiBi of these heads.
        mask: (batch, keys), 1 at tokens and 0 at padding; None is no padding.
        tokens: number of queries.
        keys: number of keys, including slots of a KV cache that are not filled yet.
        past: number of keys before the first query.
        like: the bias that it replaces, (batch * heads, 1, keys).

    Returns:
        The bias of every pair of query and key.
    """
    batch = like.shape[0] // scheme.num_heads
    ones = torch.ones(1, keys, dtype=torch.long, device=like.device) if mask is None else mask.long()
    at = (ones.cumsum(-1) - 1).clamp(min=0)
    bias = _table(scheme, at[:, past : past + tokens], at).expand(batch, -1, -1, -1)
    return bias.flatten(0, 1).to(like.dtype)


def _table(scheme: ScoreBias, queries: Tensor, keys: Tensor) -> Float[Tensor, "batch heads queries keys"]:
    """Compute a bias for every pair of query and key, including later keys, which the model masks itself."""
    at_queries, at_keys = Positions(queries[None], queries), Positions(keys[None], keys)
    element = scheme.bind(at_queries, at_keys)
    return tabulate(element, queries.shape[0], scheme.num_heads, queries.shape[1], keys.shape[1], queries.device)


@dataclass
class _Call:
    """State that the blocks of a model share during one call."""

    mask: Tensor | None = None
    past: int = 0
    bias: Tensor | None = None


def replace_alibi(patched: Any, name: str, model: nn.Module) -> None:
    """Pass BLOOM's bias by distance to every block; it is computed for the first block of each call.

    Args:
        patched: the Patch.
        name: of the model.
        model: BLOOM without a head.
    """
    scheme = ALiBi(patched.description.num_heads)
    call = _Call()

    def before_model(module: nn.Module, args: tuple[Any, ...], others: dict[str, Any]) -> None:
        names = ("input_ids", "past_key_values", "attention_mask", "inputs_embeds")
        arguments = {**dict(zip(names, args, strict=False)), **others}
        cache = arguments.get("past_key_values")
        call.mask, call.past = arguments.get("attention_mask"), 0 if cache is None else int(cache.get_seq_length())
        call.bias = None

    def before_block(module: nn.Module, args: tuple[Any, ...], others: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        hidden: Tensor = args[0] if args else others["hidden_states"]
        replaced: Tensor = others["alibi"]
        if call.bias is None:
            sizes = {"tokens": hidden.shape[1], "keys": replaced.shape[-1], "past": call.past}
            call.bias = relative_alibi(scheme, call.mask, **sizes, like=replaced)
        return args, {**others, "alibi": call.bias}

    patched.before(name, before_model)
    for path, _ in _blocks(name, model):
        patched.before(path, before_block)


def _blocks(name: str, model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, module in model.named_modules(prefix=name):
        if type(module).__name__ == "BloomBlock":
            yield path, module
