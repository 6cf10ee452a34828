"""Methods of Hugging Face that compute positions or a bias of the scores, replaced: same shapes, from our schemes.

Each function here takes the place of a method of a module (`Patch.replace_method`), whose parameters it reads; `scheme`
is an attribute that the patch adds. A method of a table finds the index of each row (offsets, padding, a KV cache); its
rows are ours.
"""

from typing import Any, TypeVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.huggingface.attention import RelativeBias
from whatwhere.huggingface.attention_mask import NAME
from whatwhere.position.positions import Positions, positions
from whatwhere.where.input.learned import rows_at
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score_bias import ScoreBias, tabulate

Scheme = TypeVar("Scheme", bound=ScoreBias)
_ROUNDED = 2e-4
"""Largest difference of a table of transformers, some of which round angles to float32, from the exact one."""


# Tables of positions


def learned_rows(self: Any, input: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
    """Look up rows in place of nn.Embedding, below a class that finds their indices."""
    return rows_at(self.weight, input)


def learned_rows_of_slots(
    self: Any, input_ids: Tensor, past_key_values_length: int = 0, position_ids: Tensor | None = None
) -> Float[Tensor, "*shape dim"]:
    """Look up rows in place of Whisper's table, of slots after those of the cache if no positions are given."""
    if position_ids is None:
        position_ids = torch.arange(input_ids.shape[1], device=self.weight.device) + past_key_values_length
    return rows_at(self.weight, position_ids)


def sinusoidal_rows(self: Any, input: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
    """Compute rows of sines before cosines in place of nn.Embedding, below a class that finds their indices."""
    vectors: Tensor = self.scheme(input.reshape(1, -1))
    return vectors.reshape(*input.shape, -1).to(self.weight.dtype)


def fairseq_rows(
    self: Any, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
) -> Float[Tensor, "rows features"]:
    """Compute the table that modules of fairseq's sinusoids (M2M100, XGLM) make, also for longer sequences."""
    table: Tensor = Sinusoidal(embedding_dim, layout="tensor2tensor")(torch.arange(num_embeddings)[None])[0]
    if padding_idx is not None:
        table[padding_idx] = 0
    return table.to(torch.get_default_dtype())


def sinusoids_of_slots(
    self: Any,
    inputs_embeds: Float[Tensor, "batch tokens dim"],
    past_key_values_length: int = 0,
    position_ids: Integer[Tensor, "..."] | None = None,
) -> Float[Tensor, "batch tokens dim"]:
    """Compute PEGASUS-X's sinusoids, which are made anew in each call."""
    if position_ids is None:
        position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past_key_values_length
    rows: Tensor = self.scheme(position_ids.reshape(1, -1))
    return rows.to(inputs_embeds.dtype).expand(inputs_embeds.shape[0], -1, -1)


def rotary_rows(module: nn.Module, scheme: Rotary) -> Float[Tensor, "positions features"]:
    """Return the table `embed_positions` of GPT-J's and CodeGen's attention: sines before cosines, computed by ours."""
    before = module.get_buffer("embed_positions")
    cos, sin = (part[0, 0] for part in scheme.bind(positions(len(before), device=before.device)))
    exact = torch.cat([sin, cos], dim=-1)
    require_near(type(module).__name__, before, exact)
    return exact


def require_near(name: str, table: Tensor, exact: Tensor) -> None:
    """Raise CheckpointError unless a table is another, within its rounding."""
    allowed = max(_ROUNDED, torch.finfo(table.dtype).eps)
    if table.shape != exact.shape or not bool(((table.float() - exact).abs() <= allowed).all()):
        raise CheckpointError(
            f"this model's {name} does not have the positions that its configuration states.\n"
            "If its table was changed after loading, load the model again."
        )


# Biases of scores


def without_bias(attention: nn.Module, args: Any, others: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """Pass no bias to T5's cross-attention in place of the table of zeros that it would make."""
    if not _uses_our_attention(attention) or others.get("position_bias") is not None:
        return None
    return args, {**others, "position_bias": RelativeBias(None)}


def _uses_our_attention(module: nn.Module) -> bool:
    return getattr(getattr(module, "config", None), "_attn_implementation", None) == NAME


def bucket_bias(
    self: Any,
    query_length: int,
    key_length: int,
    device: torch.device | None = None,
    past_seen_tokens: int | Tensor = 0,
    **others: Any,
) -> Float[Tensor, "1 heads queries keys"] | RelativeBias:
    """Compute the bias of T5's attention with its own table; our attention gets the scheme and makes no table."""
    table: Tensor = self.relative_attention_bias.weight
    scheme = _reading(self.scheme, weight=table)
    if _uses_our_attention(self):
        return RelativeBias(scheme, past_seen_tokens)
    where = table.device if device is None else device
    queries = torch.arange(query_length, device=where) + past_seen_tokens
    return _table(scheme, queries[None], torch.arange(key_length, device=where)[None]).to(table.dtype)


def bucket_bias_of_ids(
    self: Any, x: Tensor, position_ids: Tensor | None = None, num_buckets: int = 32
) -> Float[Tensor, "batch heads tokens tokens"]:
    """Compute the bias of MPNet's encoder, with its own table."""
    table: Tensor = self.relative_attention_bias.weight
    at = torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids
    return _table(_reading(self.scheme, weight=table), at, at).to(table.dtype).expand(x.shape[0], -1, -1, -1)


def profile_bias(
    self: Any,
    relative_states: Float[Tensor, "batch queries heads features"],
    query_positions: Integer[Tensor, " queries"],
    key_positions: Integer[Tensor, " keys"],
) -> Float[Tensor, "batch heads queries keys"]:
    """Compute the bias of Inkling by its own profiles, which the model multiplies by its temperature."""
    batch, queries, heads, _ = relative_states.shape
    at_queries, at_keys = (Positions(at[None, None], at[None]) for at in (query_positions, key_positions))
    element = _reading(self.scheme, profiles=self.proj).bind(at_queries, at_keys, gates=relative_states.transpose(1, 2))
    bias = tabulate(element, batch, heads, queries, len(key_positions), self.proj.device)
    return bias.to(relative_states.dtype)


def disentangled_bias(
    self: Any,
    query_layer: Tensor,
    key_layer: Tensor,
    relative_pos: Tensor | None,
    rel_embeddings: Tensor,
    scale_factor: int,
) -> Tensor:
    """Compute the bias of DeBERTa's attention, whose projections make the tables of each call; positions are slots."""
    scheme, first = self.scheme, hasattr(self, "in_proj")
    heads, rows = scheme.num_heads, len(next(scheme.parameters()))
    shared = not first and self.share_att_key
    names = {
        "position_keys": "pos_proj" if first else "key_proj" if shared else "pos_key_proj",
        "position_queries": "pos_q_proj" if first else "query_proj" if shared else "pos_query_proj",
    }
    tables = {
        name: self.get_submodule(path)(rel_embeddings[:rows]).unflatten(-1, (heads, scheme.head_dim))
        for name, path in names.items()
        if getattr(scheme, name) is not None
    }
    # The first DeBERTa has divided queries by the scale already, the others have heads and sequences in one axis.
    q, k = (query_layer, key_layer) if first else (x.unflatten(0, (-1, heads)) for x in (query_layer, key_layer))
    at = [torch.arange(x.shape[2], device=x.device)[None] for x in (q, k)]
    at_queries, at_keys = (Positions(each[None], each) for each in at)
    element = _reading(scheme, **tables).bind(at_queries, at_keys, q=q / scheme.scale if first else q, k=k)
    table = tabulate(element, q.shape[0], heads, q.shape[2], k.shape[2], q.device).to(q.dtype)
    return table if first else table.flatten(0, 1)


def last_row_of_alibi(
    self: Any, num_heads: int, sequence_length: int, alibi_bias_max: float = 8, device: torch.device | None = None
) -> Float[Tensor, "heads 1 keys"]:
    """Compute MPT's bias of the last query, whose row all queries use."""
    keys = torch.arange(sequence_length, device=device)[None]
    return _table(self.scheme, keys[:, -1:], keys)[0]


def alibi_by_distance(
    scheme: ALiBi, block: Any, args: tuple[Any, ...], others: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Pass BLOOM's bias by distance to a block; its own is by positions of keys, which become equal in bfloat16."""
    replaced: Any = others["alibi"]  # (batch * heads, 1, keys)
    # Kept on the tensor of this call: a block that is checkpointed runs again after other calls.
    if not hasattr(replaced, "by_distance"):
        hidden, mask, cache = (args or (others["hidden_states"],))[0], others["attention_mask"], others["layer_past"]
        past = 0 if cache is None else int(cache.get_seq_length(block.self_attention.layer_idx))
        keys = torch.ones_like(replaced[:: scheme.num_heads, 0], dtype=torch.long)
        if isinstance(mask, Tensor):  # the last query sees all keys but padding
            seen = mask[:, 0, -1, : keys.shape[1]]
            keys = (seen if seen.dtype == torch.bool else seen >= 0).long()
        at = (keys.cumsum(-1) - 1).clamp(min=0)
        bias = _table(scheme, at[:, past : past + hidden.shape[1]], at)
        replaced.by_distance = bias.flatten(0, 1).to(replaced.dtype)
    return args, {**others, "alibi": replaced.by_distance}


def _table(scheme: ScoreBias, queries: Tensor, keys: Tensor) -> Float[Tensor, "batch heads queries keys"]:
    """Compute a bias for every pair of query and key, including later keys, which the model masks itself."""
    at_queries, at_keys = Positions(queries[None], queries), Positions(keys[None], keys)
    element = scheme.bind(at_queries, at_keys)
    return tabulate(element, queries.shape[0], scheme.num_heads, queries.shape[1], keys.shape[1], queries.device)


def _reading(scheme: Scheme, **tables: Tensor) -> Scheme:
    """Return a copy of a scheme that reads these tensors in place of its parameters, without a trace in the scheme."""
    copied = type(scheme).__new__(type(scheme))
    vars(copied).update(vars(scheme), _parameters=dict.fromkeys(scheme._parameters), **tables)
    return copied
