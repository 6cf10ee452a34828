"""Methods of Hugging Face that compute positions or a bias of the scores, replaced: same shapes, from our schemes.

Each class here has a method that takes the place of a module's (`Patch.replace_method`), and reads its parameters. The
class of a table of positions finds the index of each row (offsets, padding, a KV cache); its rows are ours.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from whatwhere.errors import CheckpointError
from whatwhere.models.huggingface.attention import RelativeBias
from whatwhere.models.huggingface.attention_mask import NAME
from whatwhere.position.positions import Positions, positions
from whatwhere.where.input.learned import rows_at
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score.deberta import DeBERTa
from whatwhere.where.score.inkling import Inkling
from whatwhere.where.score.t5 import T5
from whatwhere.where.score_bias import ScoreBias, tabulate

Scheme = TypeVar("Scheme", bound=ScoreBias)
_ROUNDED = 2e-4
"""Largest difference of a table of transformers, some of which round angles to float32, from the exact one."""


# Tables of positions


class LearnedRows(nn.Embedding):
    """Look up rows in place of nn.Embedding, below a class that finds their indices."""

    def forward(self, input: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return the rows at these indices."""
        return rows_at(self.weight, input)


class LearnedRowsOfSlots(LearnedRows):
    """Look up rows in place of the forward of Whisper's table, of slots after those of the cache if none are given."""

    def forward(
        self, input_ids: Tensor, past_key_values_length: int = 0, position_ids: Tensor | None = None
    ) -> Float[Tensor, "*shape dim"]:
        """Return the rows of positions, or of slots."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=self.weight.device) + past_key_values_length
        return super().forward(position_ids)


class SinusoidalRows(nn.Embedding):
    """Compute rows of sines before cosines in place of nn.Embedding, below a class that finds their indices."""

    scheme: Sinusoidal

    def forward(self, input: Integer[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """Return the vectors of these positions."""
        vectors: Tensor = self.scheme(input.reshape(1, -1))
        return vectors.reshape(*input.shape, -1).to(self.weight.dtype)


class FairseqRows(nn.Module):
    """The table that modules of fairseq's sinusoids (M2M100, XGLM) make, also of longer sequences; padding is zero."""

    @staticmethod
    def get_embedding(
        num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
    ) -> Float[Tensor, "rows features"]:
        """Compute the rows."""
        table: Tensor = Sinusoidal(embedding_dim, layout="tensor2tensor")(torch.arange(num_embeddings)[None])[0]
        if padding_idx is not None:
            table[padding_idx] = 0
        return table.to(torch.get_default_dtype())


class SinusoidsOfSlots(nn.Module):
    """The forward of PEGASUS-X's sinusoids, which are computed anew in each call."""

    scheme: Sinusoidal

    def forward(
        self,
        inputs_embeds: Float[Tensor, "batch tokens dim"],
        past_key_values_length: int = 0,
        position_ids: Integer[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the vectors of positions, or of slots."""
        slots = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + past_key_values_length
        slots = slots if position_ids is None else position_ids
        rows: Tensor = self.scheme(slots.reshape(1, -1))
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


class BucketBias(nn.Module):
    """`compute_bias` of T5's attention, with the attention's own table.

    With `attn_implementation="whatwhere"` it returns the scheme, and no table of all pairs is made.
    """

    scheme: T5

    def compute_bias(
        self,
        query_length: int,
        key_length: int,
        device: torch.device | None = None,
        past_seen_tokens: int | Tensor = 0,
        **others: Any,
    ) -> Float[Tensor, "1 heads queries keys"] | RelativeBias:
        """Return the bias of all pairs, or its scheme."""
        table: Any = self.get_submodule("relative_attention_bias").weight
        scheme = _reading(self.scheme, weight=table)
        if _uses_our_attention(self):
            return RelativeBias(scheme, past_seen_tokens)
        where = table.device if device is None else device
        queries = torch.arange(query_length, device=where) + past_seen_tokens
        bias = _table(scheme, queries[None], torch.arange(key_length, device=where)[None])
        return bias.to(table.dtype)


class BucketBiasOfIds(nn.Module):
    """`compute_position_bias` of MPNet's encoder, with its own table."""

    scheme: T5

    def compute_position_bias(
        self, x: Tensor, position_ids: Tensor | None = None, num_buckets: int = 32
    ) -> Float[Tensor, "batch heads tokens tokens"]:
        """Return the bias of all pairs."""
        table: Any = self.get_submodule("relative_attention_bias").weight
        at = torch.arange(x.shape[1], device=x.device)[None] if position_ids is None else position_ids
        return _table(_reading(self.scheme, weight=table), at, at).to(table.dtype).expand(x.shape[0], -1, -1, -1)


class ProfileBias(nn.Module):
    """The forward of Inkling's `rel_logits_proj`, with its own profiles.

    The model multiplies what it returns, or what it is given, by its temperature.
    """

    proj: Tensor
    scheme: Inkling

    def forward(
        self,
        relative_states: Float[Tensor, "batch queries heads features"],
        query_positions: Integer[Tensor, " queries"],
        key_positions: Integer[Tensor, " keys"],
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Return the bias of all pairs."""
        batch, queries, heads, _ = relative_states.shape
        at_queries, at_keys = (Positions(at[None, None], at[None]) for at in (query_positions, key_positions))
        gates = relative_states.transpose(1, 2)
        element = _reading(self.scheme, profiles=self.proj).bind(at_queries, at_keys, gates=gates)
        bias = tabulate(element, batch, heads, queries, len(key_positions), self.proj.device)
        return bias.to(relative_states.dtype)


class DisentangledBias(nn.Module):
    """`disentangled_attention_bias` of the attention of DeBERTa-v2 and v3; that of the first has another name.

    The attention's own projections make the tables of each call. Positions are slots, as in the model.
    """

    scheme: DeBERTa
    share_att_key: bool

    def disentangled_attention_bias(
        self,
        query_layer: Tensor,
        key_layer: Tensor,
        relative_pos: Tensor | None,
        rel_embeddings: Tensor,
        scale_factor: int,
    ) -> Tensor:
        """Return the bias of all pairs."""
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


class FirstDisentangledBias(nn.Module):
    """`disentangled_att_bias` of the attention of the first DeBERTa."""

    scheme: DeBERTa
    disentangled_att_bias = DisentangledBias.disentangled_attention_bias


class LastRowOfALiBi(nn.Module):
    """MPT's `build_mpt_alibi_tensor`: the bias of the last query, whose row all queries use."""

    scheme: ALiBi

    def build_mpt_alibi_tensor(
        self, num_heads: int, sequence_length: int, alibi_bias_max: float = 8, device: torch.device | None = None
    ) -> Float[Tensor, "heads 1 keys"]:
        """Return the bias of the last query."""
        keys = torch.arange(sequence_length, device=device)[None]
        return _table(self.scheme, keys[:, -1:], keys)[0]


def _relative_alibi(
    scheme: ALiBi, mask: Tensor | None, tokens: int, keys: int, past: int, like: Tensor
) -> Float[Tensor, "batch_heads queries keys"]:
    """Compute BLOOM's bias from distances; its own uses positions of keys, which become equal in bfloat16.

    Args:
        mask: (batch, keys), 1 at tokens and 0 at padding; None is without padding.
        keys: number of keys, including slots of a KV cache that are not filled yet.
        past: number of keys before the first query.
        like: the bias that it replaces, (batch * heads, 1, keys).
    """
    batch = like.shape[0] // scheme.num_heads
    ones = torch.ones(1, keys, dtype=torch.long, device=like.device) if mask is None else mask.long()
    at = (ones.cumsum(-1) - 1).clamp(min=0)
    bias = _table(scheme, at[:, past : past + tokens], at).expand(batch, -1, -1, -1)
    return bias.flatten(0, 1).to(like.dtype)


@dataclass
class _Call:
    """What the blocks of BLOOM need to know of the call of its model."""

    scheme: ALiBi
    mask: Tensor | None = None
    past: int = 0

    def before_model(self, module: nn.Module, args: tuple[Any, ...], others: dict[str, Any]) -> None:
        names = ("input_ids", "past_key_values", "attention_mask", "inputs_embeds")
        arguments = {**dict(zip(names, args, strict=False)), **others}
        cache = arguments.get("past_key_values")
        self.mask, self.past = arguments.get("attention_mask"), 0 if cache is None else int(cache.get_seq_length())

    def before_block(
        self, module: nn.Module, args: tuple[Any, ...], others: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Pass the bias by distance, made for the first block of each call."""
        hidden: Tensor = args[0] if args else others["hidden_states"]
        replaced: Any = others["alibi"]
        # On the tensor of this call: a block that is checkpointed runs again after other calls.
        if not hasattr(replaced, "by_distance"):
            sizes = {"tokens": hidden.shape[1], "keys": replaced.shape[-1], "past": self.past}
            replaced.by_distance = _relative_alibi(self.scheme, self.mask, **sizes, like=replaced)
        return args, {**others, "alibi": replaced.by_distance}


def replace_alibi(patched: Any, name: str, model: nn.Module) -> None:
    """Pass BLOOM's bias by distance to every block."""
    call = _Call(ALiBi(patched.description.num_heads))
    patched.before(name, call.before_model)
    for path, module in model.named_modules(prefix=name):
        if type(module).__name__ == "BloomBlock":
            patched.before(path, call.before_block)


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
