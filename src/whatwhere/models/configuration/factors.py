"""Keys of factors: the softmax scale, that of token vectors, and the query temperature.

SCALES, EMBEDDINGS and TEMPERATURES name the functions for the data file.
"""

from collections.abc import Callable, Mapping
from math import log

from whatwhere.errors import SettingError
from whatwhere.models.configuration.biases import read_clamped_curve, read_terms
from whatwhere.models.configuration.description import Description, EmbeddingScale
from whatwhere.models.configuration.keys import Keys, named
from whatwhere.models.configuration.model_types import HYBRID, ModelType, Rope
from whatwhere.models.configuration.plan import Plan
from whatwhere.models.configuration.rope_scaling import ORIGINAL

Scales = tuple[float, ...]
Temperatures = tuple[Plan | None, ...]


def read_scales(keys: Keys, model: Description, kind: ModelType) -> Scales:
    """Return the softmax scale of each layer, 1 / sqrt(head_dim) in almost all models."""
    if kind.scale is None:
        return tuple(heads.head_dim**-0.5 for heads in model.heads)
    return SCALES[kind.scale.name](keys, model, **kind.scale.settings)


def read_embedding_scale(keys: Keys, kind: ModelType) -> EmbeddingScale | None:
    """Return the factor of the token vectors, or None for 1."""
    return None if kind.embedding is None else EMBEDDINGS[kind.embedding.name](keys, **kind.embedding.settings)


def read_temperatures(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """Return the curve by which each layer multiplies queries."""
    if kind.temperature is None:
        return (None,) * model.layers
    return TEMPERATURES[kind.temperature](keys, model, kind)


# Softmax scale


def _one(keys: Keys, model: Description) -> Scales:
    """Scores are not scaled, as in T5 and GPT-Neo."""
    return (1.0,) * model.layers


def _key(
    keys: Keys,
    model: Description,
    key: str = "attention_multiplier",
    default: float | None = 1.0,
    inside: str | None = None,
) -> Scales:
    """A key has the scale, which may be in a nested dictionary, as in MPT; the default None is 1 / sqrt(head_dim)."""
    usual = model.head_dim**-0.5
    if inside is not None and keys.values.get(inside) is None:
        return (usual,) * model.layers
    keys = keys if inside is None else keys.inside(inside)
    return (keys.number(key, default=usual if default is None else default),) * model.layers


def _pre_attention_scalar(keys: Keys, model: Description, default: float | None = 256.0) -> Scales:
    """1 / sqrt of the value of a key, as in Gemma 2 and 3; the default None is head_dim."""
    value = keys.number("query_pre_attn_scalar", default=float(model.head_dim) if default is None else default)
    return (value**-0.5,) * model.layers


def _gpt2(keys: Keys, model: Description, by_layer: bool = True) -> Scales:
    """Divide by sqrt(head_dim), and by the number of the layer, each if its flag is set."""
    scale = model.head_dim**-0.5 if keys.flag("scale_attn_weights", default=True) else 1.0
    if by_layer and keys.flag("scale_attn_by_inverse_layer_idx", default=False):
        return tuple(scale / (layer + 1) for layer in range(model.layers))
    return (scale,) * model.layers


def _latent(keys: Keys, model: Description) -> Scales:
    """Multiply by the square of YaRN's magnitude too, as in DeepSeek's latent attention."""
    scales = []
    for plan, heads in zip(model.query_key or (None,) * model.layers, model.heads, strict=True):
        yarn = plan.settings["scaling"].settings if plan is not None and plan.name == "rotary-yarn" else {}
        magnitude = 1.0
        if yarn.get("mscale_all_dim") and yarn["factor"] > 1:
            magnitude = 0.1 * yarn["mscale_all_dim"] * log(yarn["factor"]) + 1.0
        scales.append(heads.head_dim**-0.5 * magnitude * magnitude)
    return tuple(scales)


def _low_rank(keys: Keys, model: Description) -> Scales:
    """Multiply by the factor of the queries, sqrt(dim / q_lora_rank), too, as in LongCat."""
    factor = (model.dim / keys.whole("q_lora_rank")) ** 0.5
    return tuple(scale * factor for scale in _latent(keys, model))


def _key_multiplier(keys: Keys, model: Description) -> Scales:
    """Divide by sqrt(head_dim), and multiply by the factor of the keys, as in Falcon-H1."""
    return (keys.number("key_multiplier", default=1.0) * model.head_dim**-0.5,) * model.layers


def _normed_heads(keys: Keys, model: Description) -> Scales:
    """Divide by head_dim, as Inkling does, whose queries and keys are normed."""
    return tuple(1 / heads.head_dim for heads in model.heads)


def _half_head(keys: Keys, model: Description) -> Scales:
    """Divide by sqrt(head_dim / 2), as Zamba does: its heads are twice as wide as its features divided by them."""
    return ((model.head_dim / 2) ** -0.5,) * model.layers


def _deberta(keys: Keys, model: Description, counts_none: bool = False) -> Scales:
    """Divide by sqrt(head_dim times the number of terms), with relative attention or without.

    `none` counts as a term in the first DeBERTa.
    """
    terms = len(read_terms(keys)) or int(counts_none and bool(keys.values.get("pos_att_type")))
    return ((model.head_dim * (1 + terms)) ** -0.5,) * model.layers


SCALES: Mapping[str, Callable[..., Scales]] = named(
    _deberta, _gpt2, _half_head, _key, _key_multiplier, _latent, _low_rank, _normed_heads, _one, _pre_attention_scalar
)


# Token vectors


def _sqrt_dim(keys: Keys, rounded: bool = False) -> EmbeddingScale:
    """sqrt(dim), as the model type implies; rounded to the dtype of the table in Gemma."""
    return "sqrt_dim_rounded" if rounded else "sqrt_dim"


def _flagged_sqrt_dim(keys: Keys, key: str = "scale_embedding", default: bool = False) -> EmbeddingScale | None:
    """sqrt(dim) if a flag is set."""
    return "sqrt_dim" if keys.flag(key, default=default) else None


def _masked_tokens(keys: Keys) -> float | None:
    """1 less the share of masked tokens in training, 0.12, if a flag is set, as in ESM-2."""
    return 1 - 0.15 * 0.8 if keys.flag("token_dropout", default=False) else None


def _number(keys: Keys, key: str, default: float = 1.0) -> float | None:
    """A number of the configuration."""
    factor = keys.number(key, default=default)
    return None if factor == 1.0 else factor


EMBEDDINGS: Mapping[str, Callable[..., EmbeddingScale | None]] = named(
    _flagged_sqrt_dim, _masked_tokens, _number, _sqrt_dim
)


# Query temperature


def _stepped_without_rotary(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """Steps in the layers that do not rotate, as in Llama 4.

    1 + attn_scale ln(1 + floor((p + 1) / floor_scale))
    """
    switch = "attn_temperature_tuning"
    on = keys.take(switch, default=True)
    if not isinstance(on, bool):  # the first files have a number, of which 0 is off
        on = keys.whole(switch, least=0) > 0
    alpha = keys.number("attn_scale", default=0.1, zero=True)
    period = keys.whole("floor_scale", default=8192)
    if not on or alpha == 0:
        return (None,) * model.layers
    return _without_rotary(Plan("stepped", {"alpha": alpha, "period": period, "offset": 1}), model)


def _power_without_rotary(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """A power of the position in the layers that do not rotate: Beam, whose code has its numbers.

    (1 + (p + 1) / 2048) ** 0.1
    """
    return _without_rotary(Plan("power", {"exponent": 0.1, "length": 2048}), model)


def _without_rotary(curve: Plan, model: Description) -> Temperatures:
    return tuple(curve if plan is None else None for plan in model.query_key)


def _learned_in_all_layers(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """A learned factor of the logarithm of the position, and a learned bias, of each layer: Mistral Large 4."""
    return tuple(
        Plan("ssmax", {"head_dim": heads.head_dim, "num_heads": heads.num_heads, "bias": True}, shared=False)
        for heads in model.heads
    )


def _clamped_without_window(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """A logarithm from a number of visible tokens on, in the layers without a window: Inkling."""
    curve = read_clamped_curve(keys)
    return tuple(curve if each == HYBRID else None for each in model.layer_types or ())


def _stepped_in_all_layers(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """Steps in all layers, after the rotation, by a number among the rope parameters: Ministral 3.

    1 + llama_4_scaling_beta ln(1 + floor(p / original_max_position_embeddings))
    """
    key = "llama_4_scaling_beta"
    name = next((name for name in ("rope_parameters", "rope_scaling") if keys.values.get(name)), "")
    usual = next(iter((kind.rope or Rope()).sets.values())).parameters or {}
    rope = keys.inside(name) if name else keys.nested("", usual)
    alpha = rope.number(key, default=None, zero=True)
    if not alpha:
        return (None,) * model.layers
    period = rope.whole(ORIGINAL, default=None)
    if period is None:
        raise SettingError(
            f"{rope.path}{key} is {alpha}, but {rope.path}{ORIGINAL} is missing: the number of tokens "
            "after which queries are multiplied by more."
        )
    return (Plan("stepped", {"alpha": alpha, "period": period, "offset": 0}),) * model.layers


def _qwen_logn(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """The logarithm of the number of keys to the base of the trained length, beyond it, in all layers: the first Qwen.

    max(1, ln(p + 1) / ln L_0) = 1 + alpha ln max(1, (p + 1) / L_0), with alpha = 1 / ln L_0
    """
    if not keys.flag("use_logn_attn", default=True):
        return (None,) * model.layers
    length = keys.whole("seq_length", least=2)
    return (Plan("clamped", {"alpha": 1 / log(length), "length": length}),) * model.layers


TEMPERATURES: Mapping[str, Callable[[Keys, Description, ModelType], Temperatures]] = named(
    _clamped_without_window,
    _learned_in_all_layers,
    _power_without_rotary,
    _qwen_logn,
    _stepped_in_all_layers,
    _stepped_without_rotary,
)
