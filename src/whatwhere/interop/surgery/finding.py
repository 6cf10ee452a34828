"""Which tensors of a checkpoint an operation changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.contents import Entry
from whatwhere.interop.checkpoint.files import shown
from whatwhere.interop.checkpoint.names import ELSEWHERE, POSITIONS, READOUTS, TOKENS, WHOLE_READOUTS

if TYPE_CHECKING:
    from whatwhere.interop.huggingface import Description

_BIASES = (
    "final_logits_bias", "lm_head.bias", "predictions.bias", "predictions.decoder.bias", "lm_head.decoder.bias",
    "vocab_projector.bias", "generator_lm_head.bias", "lm_loss.bias", "pred_layer.proj.bias", "embed_out.bias",
    "proj_out.bias", "output_projection.bias",
)  # fmt: skip
_WHOLE_BIASES = ("output.bias", "decoder.bias", "head.bias")
_QUERIES = ("q_proj", "wq", "attn_q", "query_proj", "to_q", "query", "q")
_KEYS = ("k_proj", "wk", "attn_k", "key_proj", "to_k", "key", "k")
_QUERY_NORMS = ("q_norm", "q_layernorm", "query_layernorm", "attn_q_norm")
_KEY_NORMS = ("k_norm", "k_layernorm", "key_layernorm", "attn_k_norm")
_FUSED = (
    "qkv_proj",
    "query_key_value",
    "c_attn",
    "Wqkv",
    "wqkv",
    "qkv",
    "attn_qkv",
    "in_proj_weight",
    "in_proj",
    "to_qkv",
)


def has_end(name: str, ends: Sequence[str]) -> bool:
    """Tell whether a name is one of these, or ends with one behind a dot."""
    return any(name == end or name.endswith((f".{end}", f"/{end}")) for end in ends)


def vocabulary(checkpoint: Checkpoint) -> list[Entry]:
    """Give every tensor with one row, or one number, for each token: the token table first, copies, head, biases."""
    table = checkpoint.token_table
    if table is None:
        raise CheckpointError(
            f"{checkpoint.path} has no tensor that is known as a token table.\nIts tensors are listed by "
            "whatwhere.read(path).tensors."
        )
    rows = checkpoint.entry(table).shape[0]

    def belongs(entry: Entry) -> bool:
        if any(part in entry.name.lower() for part in ELSEWHERE):
            return False
        if len(entry.shape) == 2 and entry.shape[0] == rows:
            return has_end(entry.name, (*TOKENS, *READOUTS)) or entry.name in (*WHOLE_READOUTS, checkpoint.readout)
        return entry.shape in ((rows,), (1, rows)) and (has_end(entry.name, _BIASES) or entry.name in _WHOLE_BIASES)

    found = [entry for entry in checkpoint.tensors.values() if entry.name != table and belongs(entry)]
    if checkpoint.names.position_table in {entry.name for entry in found}:
        found = [entry for entry in found if entry.name != checkpoint.names.position_table]
    return [checkpoint.entry(table), *found]


def alike(checkpoint: Checkpoint, changed: Sequence[Entry]) -> list[str]:
    """Give tensors that are not changed, though they have as many rows as the vocabulary and might belong to it."""
    rows, names = changed[0].shape[0], {entry.name for entry in changed}
    return [
        entry.name
        for entry in checkpoint.tensors.values()
        if entry.shape and entry.shape[0] == rows and entry.name not in names and len(entry.shape) <= 2
    ]


def positions(checkpoint: Checkpoint) -> list[Entry]:
    """Give the tables of learned positions, of both halves of a model that has two; not those for images."""
    table = checkpoint.position_table
    if table is None:
        raise CheckpointError(
            f"{checkpoint.path} has no table of learned positions, so there is none to interpolate.\nRotary positions "
            "are stretched by a scaling in the configuration, such as YaRN; ALiBi needs nothing."
        )
    shape, end = checkpoint.entry(table).shape, next(end for end in POSITIONS if has_end(table, [end]))
    return [
        entry
        for entry in checkpoint.tensors.values()
        if entry.shape == shape
        and has_end(entry.name, [end])
        and not any(part in entry.name.lower() for part in ELSEWHERE)
    ]


@dataclass(frozen=True)
class Projection:
    """Say what of a tensor turns.

    Args:
        entry: a weight (out, in) of queries or keys, their bias, or the weight of a norm over them.
        num_heads: heads of its rows.
        rotary_dim: features of each head that turn.
        interleaved: how this model type makes pairs.
    """

    entry: Entry
    num_heads: int
    rotary_dim: int
    interleaved: bool


def projections(checkpoint: Checkpoint) -> list[Projection]:
    """Give every tensor whose rows follow the layout of rotary pairs, or refuse what cannot be told."""
    from whatwhere.where.query_key.rotary import Rotary

    description = checkpoint.description
    plans = [plan for plan in description.query_key if plan is not None]
    if not plans or any(plan.scheme is not Rotary for plan in plans) or description.part is not None:
        raise CheckpointError(
            f"{description.model_type} does not turn queries and keys by Rotary alone: it has no layout to convert.\n"
            "Plain rotary positions have one: those of Llama, Mistral, Qwen, Gemma, GPT-J."
        )
    fused = [name for name in checkpoint.tensors if _owner(name)[0] in _FUSED]
    if fused:
        raise CheckpointError(
            f"{shown(fused[0])} holds queries, keys and values in one tensor, in an order that differs from model to "
            "model, so its rows are not moved.\nSplit it first: load the model, and call whatwhere.layout on the rows "
            "of queries and of keys."
        )
    found = [one for entry in checkpoint.tensors.values() if (one := _projection(entry, description)) is not None]
    _require_both(checkpoint, found, sum(plan is not None for plan in description.query_key))
    return found


def _projection(entry: Entry, description: "Description") -> Projection | None:
    owner, own = _owner(entry.name)
    kinds = ((_QUERIES, _QUERY_NORMS, description.num_heads), (_KEYS, _KEY_NORMS, description.key_heads))
    for names, norms, heads in kinds:
        layer = _layer(entry.name)
        if owner not in (*names, *norms) or layer is None or any(part in entry.name.lower() for part in ELSEWHERE):
            continue
        plan = description.query_key[layer] if layer < description.layers else None
        if plan is None:
            return None
        head_dim = int(plan.settings["head_dim"])
        heads = 1 if owner in norms and entry.shape == (head_dim,) else heads
        rows = entry.shape[0] if own in ("weight", "bias") and entry.shape and len(entry.shape) <= 2 else 0
        if rows != heads * head_dim or (owner in norms and len(entry.shape) != 1):
            raise CheckpointError(
                f"{shown(entry.name)} of shape {entry.shape} does not hold {heads} heads of {head_dim} features by "
                "rows, so the features that make a pair are not known.\nQuantized, packed and adapted weights: merge "
                "them into plain ones first."
            )
        turning = plan.settings.get("rotary_dim") or head_dim
        return Projection(entry, heads, int(turning), bool(plan.settings.get("interleaved", False)))
    return None


def _require_both(checkpoint: Checkpoint, found: Sequence[Projection], layers: int) -> None:
    """Raise CheckpointError unless each layer that turns has a weight for queries and one for keys."""
    weights = [one.entry.name for one in found if len(one.entry.shape) == 2]
    queries = sum(_owner(name)[0] in _QUERIES for name in weights)
    if queries != layers or len(weights) != 2 * layers:
        raise CheckpointError(
            f"{checkpoint.path} has {queries} query and {len(weights) - queries} key projections that are known, but "
            f"{layers} layers that turn.\nConvert them by hand, with whatwhere.layout."
        )


def _owner(name: str) -> tuple[str, str]:
    """Give the module that holds a tensor, and the tensor's own name."""
    parts = name.split(".")
    if parts[-1] in _FUSED:
        return parts[-1], parts[-1]
    return (parts[-2] if len(parts) > 1 else ""), parts[-1]


def _layer(name: str) -> int | None:
    """Give the number of the layer that a name speaks of."""
    numbers: Iterator[str] = (part for part in name.split(".") if part.isdecimal())
    first = next(numbers, None)
    return int(first) if first is not None and len(first) < 6 else None
