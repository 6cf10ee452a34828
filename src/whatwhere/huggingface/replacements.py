"""What `patch` puts in place of modules and methods of Hugging Face: same signatures and shapes, from our schemes.

A function here takes the place of a method of a module (`Patch.replace_method`), whose parameters it reads; `scheme` is
an attribute that the patch adds. A method of a table finds the index of each row (offsets, padding, a KV cache); its
rows are ours.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from inspect import signature
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.errors import CheckpointError
from whatwhere.huggingface.attention import RelativeBias
from whatwhere.huggingface.attention_mask import NAME
from whatwhere.kernels.deferred_logits import DeferredLogits
from whatwhere.models.configuration.description import EmbeddingScale
from whatwhere.position.positions import Positions, positions
from whatwhere.tensor_checks import readable
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.what.loss import Reduction, linear_cross_entropy
from whatwhere.where.input.learned import Learned, rows_at
from whatwhere.where.input.sinusoidal import Sinusoidal
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.score.alibi import ALiBi
from whatwhere.where.score_bias import ScoreBias, tabulate

_COMPARED_AT = (1, 64, 4095)
"""Positions at which a rotary module is compared with its configuration, besides twice the original length."""

# Rounding errors in float32 of a cosine, and of a frequency: a power, a product and a blend, each rounded.
_ROUNDED_VALUE, _ROUNDED_FREQUENCY = 1e-6, 4e-6

_NORM = "embed_norm"  # name of the norm inside a token table

Form = Literal["half", "interleaved", "single", "complex"]
"""Form of cos and sin: repeated for both features of a pair (half, interleaved); once (single); as complex numbers."""

Scheme = TypeVar("Scheme", bound=ScoreBias)
_ROUNDED = 2e-4
"""Largest difference of a table of transformers, some of which round angles to float32, from the exact one."""


class RotaryTables(nn.Module):
    """Compute cos and sin as a rotary module of Hugging Face does, from angles in float64.

    `schemes` has the scheme of each layer type, or one under ""; `dtype` None takes that of x.
    """

    def __init__(
        self,
        schemes: Mapping[str, Rotary | MultimodalRotary],
        form: Form = "half",
        regime_length: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.schemes, self.form, self.regime_length, self.dtype = dict(schemes), form, regime_length, dtype
        self.config: Any = None
        self.layer_types = list(schemes)  # which LFM3 asks its rotary module for

    @torch.no_grad()
    def forward(
        self, x: Tensor, position_ids: Integer[Tensor, "*axes batch tokens"], layer_type: str | None = None
    ) -> tuple[Float[Tensor, "batch tokens features"], Float[Tensor, "batch tokens features"]] | Tensor:
        """Compute cos and sin of positions, or both as one complex tensor; of x only the dtype is used."""
        scheme = self.schemes.get(layer_type or "", next(iter(self.schemes.values())))
        index = position_ids.long()
        index = index if index.dim() == 3 else index[None]
        positions = Positions(index, index[0])
        lengths: Tensor | int | None = None
        if scheme.follows_length:
            length = index.amax() + 1 if self.regime_length is None else index.new_tensor(self.regime_length)
            lengths = length.expand(index.shape[1:])
            compared = self.config is not None  # before it is, positions are examples
            # Without position 0 there is a cache before these tokens.
            if compared and self.regime_length is None and readable(index) and index.numel() and int(index.amin()):
                scheme.warn_of_other_frequencies(Positions(index, index[0], max_length=int(length)))
        cos, sin = (part[:, 0] for part in scheme.bind(positions, lengths))  # (batch, tokens, pairs)
        if isinstance(scheme, Rotary) and scheme.reversed:  # the attention itself takes angles as negative ones
            sin = -sin
        if self.form == "complex":
            return torch.complex(cos, sin)
        dtype = x.dtype if self.dtype is None else self.dtype
        return self.repeat(cos.to(dtype)), self.repeat(sin.to(dtype))

    def repeat(self, part: Float[Tensor, "*batch pairs"]) -> Float[Tensor, "*batch features"]:
        """Repeat the values of pairs for their features, in this form."""
        if self.form == "half":
            return torch.cat([part, part], dim=-1)
        return part.repeat_interleave(2, dim=-1) if self.form == "interleaved" else part

    def extra_repr(self) -> str:
        """Return the schemes."""
        return ", ".join(f"{kind or 'all'}={type(scheme).__name__}" for kind, scheme in self.schemes.items())


def with_method(kind: type[nn.Module], name: str, method: Callable[..., Any], below: bool = False) -> type[nn.Module]:
    """Return a class of modules of transformers with a method of ours, whose modules can be copied and pickled.

    `below` is for a method of nn.Embedding that the class calls by `super()`.
    """
    own = type(name, (nn.Embedding if below else nn.Module,), {name: method})
    bases = (kind, own) if below else (own, kind)
    made = {"__module__": kind.__module__, "__reduce__": _reduced, "replaced_method": (kind, name, method, below)}
    return type(kind.__name__, bases, made)


def _reduced(module: Any) -> tuple[Any, ...]:
    return _without_state, module.replaced_method, vars(module)


def _without_state(kind: type[nn.Module], name: str, method: Callable[..., Any], below: bool) -> nn.Module:
    made = with_method(kind, name, method, below)
    return made.__new__(made)


def rotary_tables(
    original: nn.Module, schemes: Mapping[str, Rotary | MultimodalRotary], regime_length: int | None
) -> RotaryTables:
    """Return the replacement of a rotary module; raise CheckpointError if cos or sin of both differ."""
    if "layer_type" not in signature(original.forward).parameters:
        schemes = {"": next(iter(schemes.values()))}
    if any(buffer.is_meta for buffer in original.buffers()):
        raise CheckpointError(
            f"this model's {type(original).__name__} is on the meta device and has no values to compare.\n"
            "Load the model first, then patch it."
        )
    # A copy is called, because some have state.
    probe, (layer_type, scheme) = deepcopy(original).to("cpu"), next(iter(schemes.items()))
    with torch.device("cpu"):
        at = torch.ones(1, 1, dtype=torch.long)
        form = _form(_call(probe, layer_type, at)[-1], scheme.rotary_dim // 2)
        dtype = _call(probe, layer_type, at, torch.bfloat16)[-1].dtype
        tables = RotaryTables(schemes, form, dtype=None if dtype == torch.bfloat16 else dtype)
        for layer_type, scheme in schemes.items():
            _require_same_rotation(probe, tables, layer_type, scheme)
    tables.regime_length = regime_length
    tables.config = getattr(original, "config", None)  # of which Granite with windows asks the theta
    return tables.train(original.training)


def _call(module: nn.Module, layer_type: str, index: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Return cos and sin of a rotary module or its replacement for a layer type, or one complex tensor."""
    x = torch.zeros(1, dtype=dtype)
    out: Tensor | tuple[Tensor, Tensor] = module(x, index, layer_type) if layer_type else module(x, index)
    return (out,) if isinstance(out, Tensor) else out


def _form(part: Tensor, pairs: int) -> Form:
    """Return the form of a sine, or of a complex tensor; the cosine of a small angle is rounded to 1."""
    if part.is_complex():
        return "complex"
    if part.shape[-1] == pairs:
        return "single"
    return "half" if part[..., :pairs].equal(part[..., pairs:]) else "interleaved"


def _require_same_rotation(
    original: nn.Module, ours: RotaryTables, layer_type: str, scheme: Rotary | MultimodalRotary
) -> None:
    """Raise CheckpointError if cos or sin of a layer type differ by more than rounding errors at some position."""
    original_length: int | None = getattr(scheme.scaling, "original_length", None)
    axes = torch.arange(1, (scheme.axes if isinstance(scheme, MultimodalRotary) else 1) + 1)
    # In ascending order: dynamic frequencies depend on the longest call so far.
    for position in sorted({*_COMPARED_AT, *([] if original_length is None else [2 * original_length])}):
        index = (position // axes)[:, None, None] if len(axes) > 1 else torch.tensor([[position]])
        parts = (_call(module, layer_type, index) for module in (original, ours))
        theirs, expected = (torch.complex(*map(Tensor.float, each)) if len(each) > 1 else each[0] for each in parts)
        allowed = ours.repeat(_rounding(original, scheme, position))
        if theirs.shape != expected.shape:
            reason = f"it returns {theirs.shape[-1]} features, not {expected.shape[-1]}"
        elif not bool(((theirs - expected).abs() <= allowed).all()):  # False for NaN too
            where = f" in layers of type {layer_type!r}" if layer_type else ""
            difference = float((theirs - expected).abs().max())
            reason = f"at position {position:,}{where} its cos and sin are {difference:.2g} away"
        else:
            continue
        raise CheckpointError(
            f"this model's {type(original).__name__} does not rotate as its configuration states: {reason}.\n"
            "If its frequencies or its configuration were changed after loading, or frequencies were rounded by a cast "
            "to bfloat16 or\nfloat16 and back, make both agree: load the model again in the configuration and dtype "
            "you want."
        )


def _rounding(original: nn.Module, scheme: Rotary | MultimodalRotary, position: int) -> Float[Tensor, " pairs"]:
    """Return the difference that rounded frequencies, as after a cast, may cause in each pair at a position."""
    types = [torch.finfo(buffer.dtype) for buffer in original.buffers() if buffer.is_floating_point()]
    relative = max([_ROUNDED_FREQUENCY, *(info.eps for info in types)])
    absolute = max([0.0, *(info.tiny * info.eps for info in types)])  # the smallest step of float16 is 6e-8
    frequencies = scheme.frequencies(torch.tensor(position + 1)).abs()
    return scheme.magnitude * (_ROUNDED_VALUE + position * (relative * frequencies + absolute)).float()


def token_table(original: nn.Embedding, scale: EmbeddingScale | None, scaled: bool) -> TokenEmbedding:
    """Return a token table that shares the parameter of another; raise CheckpointError if its factor is another.

    `scaled` tells whether the table itself multiplies by it, rather than the model afterwards.
    """
    rows, dim = original.weight.shape
    table = TokenEmbedding(rows, dim, scale=scale if scaled else None, padding_idx=original.padding_idx, device="meta")
    table.weight = original.weight
    if normed(original):
        table.embed_norm = original.get_submodule(_NORM)
        table.register_forward_hook(_with_norm)
    if scaled and not original.weight.is_meta:
        ids = torch.tensor([0, rows // 2, rows - 1], device=original.weight.device)
        with torch.no_grad():
            theirs, ours = original(ids), table(ids)
        if not torch.allclose(theirs, ours, rtol=0, atol=0, equal_nan=True):
            raise CheckpointError(
                f"this model's {type(original).__name__} does not scale its rows as its configuration states, by "
                f"{table.factor}.\nA cast to bfloat16 and back rounds its scale: load the model in the dtype you want."
            )
    return table.train(original.training)


def normed(table: nn.Module) -> bool:
    """Return whether a token table is of a class in transformers that norms what it looks up, as Inkling's does."""
    kind = type(table)
    return (
        kind.__module__.startswith("transformers.")
        and kind.__name__.endswith("NormedEmbedding")
        and _NORM in vars(table).get("_modules", {})
    )


def _with_norm(table: nn.Module, args: tuple[Tensor], rows: Tensor) -> Tensor:
    normed: Tensor = table.get_submodule(_NORM)(rows)
    return normed


def position_table(original: nn.Embedding) -> Learned:
    """Return a position table that shares the parameter of another; a padding row has no gradient."""
    rows, dim = original.weight.shape
    table = Learned(dim, rows, device="meta")
    table.weight = original.weight
    if original.padding_idx is not None:
        table.register_forward_hook(partial(_without_gradient, original.padding_idx))
    return table.train(original.training)


def _without_gradient(padding: int, module: nn.Module, args: tuple[Tensor], rows: Tensor) -> Tensor:
    return torch.where((args[0] == padding)[..., None], rows.detach(), rows)


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


# The loss of a causal model


def note_labels(model: Any, args: Any, others: dict[str, Any]) -> None:
    """Record in the output projection whether this call has labels; without them nothing is deferred."""
    if not torch.compiler.is_compiling():
        model.get_output_embeddings().deferring = others.get("labels") is not None


def causal_loss(logits: Tensor, labels: Tensor, vocab_size: int, *args: Any, **others: Any) -> Tensor:
    """Compute transformers' ForCausalLMLoss, in parts where logits are deferred, and nothing else was done to them."""
    # Logits that were read may have been written to, as Chameleon does.
    if isinstance(logits, DeferredLogits) and logits.logits is None and logits.shape[-1] == vocab_size:
        return _deferred_loss(logits, labels, *args, **others)
    from transformers.loss.loss_utils import ForCausalLMLoss  # a graph is not broken by it, as by import_module

    loss: Tensor = ForCausalLMLoss(logits, labels, vocab_size, *args, **others)
    return loss


def _deferred_loss(
    logits: DeferredLogits,
    labels: Tensor,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    targets, hidden = shift_labels.to(logits.device).flatten(), logits.hidden.flatten(0, -2)
    head = logits.head
    bias = head.bias
    if logits.scale != 1:
        hidden, bias = hidden * logits.scale, bias if bias is None else bias * logits.scale
    how: Reduction = "mean" if num_items_in_batch is None else "sum"
    total = linear_cross_entropy(
        hidden, head.weight, targets, bias, ignore_index=ignore_index, reduction=how, softcap=logits.softcap
    )
    return total if num_items_in_batch is None else total / torch.as_tensor(num_items_in_batch, device=total.device)
