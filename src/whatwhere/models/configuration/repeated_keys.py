"""Keys that a model's code does not read, but that repeat in other words what was read, or contradict it."""

from collections.abc import Iterable, Mapping
from typing import Any

from whatwhere.models.configuration.description import Description
from whatwhere.models.configuration.keys import ANY, Keys

THETA = (
    "rope_base", "rope_freq_base", "rope_theta", "rotary_base", "rotary_emb_base", "rotary_embedding_base", "theta",
)  # fmt: skip
FRACTION = ("partial_rotary_factor", "rope_pct", "rotary_emb_fraction", "rotary_pct", "rotary_percentage")
ROTARY_DIM = ("rotary_dim", "rotary_ndims")
INTERLEAVED = (
    "rope_interleave", "rope_interleaved", "rope_traditional", "rotary_emb_interleaved", "rotary_interleaved",
)  # fmt: skip
HALF = ("is_neox_style", "rope_is_neox_style")
ROTATED = ("rope", "rotary", "use_rope", "use_rotary", "use_rotary_embeddings", "use_rotary_pos_emb")
UNSCALED = ("rope_ratio", "rope_scaling_factor", "rotary_scaling_factor")
WINDOW = ("sliding_window", "sliding_window_size")
HEAD_DIM = ("head_dim", "head_size")
IN_WINDOWS = {
    "num_heads": "swa_num_attention_heads",
    "key_heads": "swa_num_key_value_heads",
    "head_dim": "swa_head_dim",
}
"""Fields of Heads -> key of the layers with a window."""
ENCODING = ("pos_emb_type", "position_embedding", "position_embedding_type", "position_encoding")
ENCODINGS = {
    "learned": ("absolute", "learned", "learned_absolute"),
    "rotary": ("rope", "rotary"),
    "alibi": ("alibi",),
    "sinusoidal": ("sinusoidal",),
    "": ("none", "nope"),
}
"""Scheme, or none -> its words under the keys of ENCODING."""


def agreeing_values(description: Description, keys: Keys, window_key: str | None) -> Mapping[str, tuple[object, ...]]:
    """Return keys with the values by which they repeat a description; other values contradict it.

    `window_key` has the size of a window as it is written there; None if the model type has none.
    """
    plans = [plan for plan in description.query_key if plan is not None]
    scores = {plan.scheme for plan in description.score if plan is not None}
    schemes = scores | {"rotary" for _ in plans} | {plan.scheme for plan in (description.input,) if plan is not None}
    found: dict[str, tuple[object, ...]] = {}

    def state(names: Iterable[str], values: Iterable[object]) -> None:
        """State a value for keys where all layers share it."""
        if len(distinct := set(values)) == 1:
            found.update(dict.fromkeys(names, tuple(distinct)))

    state(THETA, [plan.number("theta") for plan in plans])
    state(FRACTION, [plan.rotary_dim / plan.whole("head_dim") for plan in plans])
    state(INTERLEAVED, [plan.settings["interleaved"] for plan in plans])
    state(ROTARY_DIM, [plan.rotary_dim for plan in plans])
    state(HALF, [not plan.settings["interleaved"] for plan in plans])
    state(UNSCALED, [1 for _ in plans])
    state(ROTATED, [bool(plans)])
    state(("alibi", "use_alibi"), ["alibi" in scores])
    state(("relative_attention",), [bool(scores - {"alibi"})])
    state(("causal",), [description.causal])
    state(("bidirectional", "use_bidirectional_attention"), [not description.causal])
    if not schemes:  # what has no positions does not rotate, by whatever theta
        found |= dict.fromkeys((*THETA, *FRACTION), (ANY,))
    if len(schemes or {""}) == 1:
        found |= dict.fromkeys(ENCODING, ENCODINGS.get(next(iter(schemes), ""), ()))
    found |= _of_heads(description)
    state(("softmax_scale",), description.scales)
    state(("scale_attn_weights",), [scale != 1.0 for scale in description.scales])
    state(("query_pre_attn_scalar",), [scale**-2 for scale in description.scales])
    factor = description.embedding_scale
    state(("scale_embedding", "scale_embeddings"), [factor is not None])
    state(("embedding_multiplier", "scale_emb"), [1.0 if factor is None else factor])
    state(("max_position_embeddings", "n_positions"), [description.max_length or ANY])
    if window_key in WINDOW:
        state(WINDOW, [keys.values.get(window_key, keys.defaults.get(window_key))])
    return found


def _of_heads(description: Description) -> dict[str, tuple[object, ...]]:
    """Return the keys of heads: of all layers, where they are alike, and of those with a window."""
    found: dict[str, tuple[object, ...]] = {}
    if not description.heads:
        return found
    windowed = [window is not None for window in description.windows or (None,) * len(description.heads)]
    for layers, names in (
        (description.heads, {"head_dim": HEAD_DIM}),
        (_where(description.heads, windowed), {field: (name,) for field, name in IN_WINDOWS.items()}),
    ):
        for field, keys in names.items():
            if len(sizes := {getattr(heads, field) for heads in layers}) == 1:
                found |= dict.fromkeys(keys, tuple(sizes))
    if len(set(description.heads)) == 1:
        heads = description.heads[0]
        found["multi_query"] = (heads.key_heads == 1,)
        kind = {1: "multiquery", heads.num_heads: "multihead"}.get(heads.key_heads, "grouped")
        found["attention_head_type"] = (kind,)
    if any(windowed):
        found["hybrid_layer_pattern"] = ([int(has) for has in windowed],)
        sinks = description.sinks or (False,) * description.layers
        found["add_swa_attention_sink_bias"] = (any(_where(sinks, windowed)),)
        found["add_full_attention_sink_bias"] = (any(_where(sinks, [not has for has in windowed])),)
    return found


def _where(values: Iterable[Any], chosen: Iterable[bool]) -> list[Any]:
    return [value for value, one in zip(values, chosen, strict=True) if one]
