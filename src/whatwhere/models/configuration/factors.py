"""Keys of factors: the softmax scale, that of token vectors, and the query temperature.

SCALES and TEMPERATURES name the functions for the data file.
"""

from collections.abc import Callable, Mapping
from math import log

from whatwhere.models.configuration.biases import read_clamped_curve, read_terms
from whatwhere.models.configuration.description import Description, EmbeddingScale, Plan
from whatwhere.models.configuration.keys import Keys, named
from whatwhere.models.configuration.model_types import HYBRID, Embedding, ModelType, Rope
from whatwhere.models.configuration.rotary import ORIGINAL

Scales = float | list[float]
"""The softmax scale of all layers, or of each."""
Temperatures = tuple[Plan | None, ...]


def read_embedding_scale(keys: Keys, rule: Embedding) -> EmbeddingScale | None:
    """Return the factor of the token vectors, or None for 1."""
    if rule.number is not None:
        factor = keys.number(rule.number, default=float(rule.default or 1.0))
        return None if factor == 1.0 else factor
    on = rule.flag is None or keys.flag(rule.flag, default=bool(rule.default))
    return rule.factor if on else None


def read_scales(keys: Keys, model: Description, kind: ModelType) -> tuple[float, ...]:
    """Return the softmax scale of each layer, 1 / sqrt(head_dim) in almost all models."""
    scales = SCALES[kind.scale.name](keys, model, **kind.scale.settings)
    return (scales,) * model.layers if isinstance(scales, float) else tuple(scales)


# Softmax scale


def _heads(keys: Keys, model: Description, power: float = -0.5, divided: int = 1) -> Scales:
    """A power of head_dim: -1 in Inkling, whose queries and keys are normed; Zamba's heads are twice as wide."""
    return [(heads.head_dim / divided) ** power for heads in model.heads]


def _one(keys: Keys, model: Description) -> Scales:
    """Scores are not scaled, as in T5 and GPT-Neo."""
    return 1.0


def _key(
    keys: Keys, model: Description, key: str, default: float | None = None, power: float = 1, inside: str | None = None
) -> Scales:
    """A power of a number, which may be in a nested dictionary, as in MPT; without default it is 1 / sqrt(head_dim)."""
    keys = keys if inside is None else keys.inside(inside, default={})
    number = keys.number(key, default=default)
    return float(model.head_dim**-0.5 if number is None else number**power)


def _gpt2(keys: Keys, model: Description, by_layer: bool = True) -> Scales:
    """Divide by sqrt(head_dim), and by the number of the layer, each if its flag is set."""
    scale = model.head_dim**-0.5 if keys.flag("scale_attn_weights", default=True) else 1.0
    if by_layer and keys.flag("scale_attn_by_inverse_layer_idx", default=False):
        return [scale / (layer + 1) for layer in range(model.layers)]
    return scale


def _latent(keys: Keys, model: Description) -> list[float]:
    """Multiply by the square of YaRN's magnitude too, as in DeepSeek's latent attention."""
    scales = []
    for plan, heads in zip(model.query_key or (None,) * model.layers, model.heads, strict=True):
        yarn = plan.scaling.settings if plan is not None and plan.name == "rotary-yarn" and plan.scaling else {}
        magnitude = 1.0
        if yarn.get("mscale_all_dim") and yarn["factor"] > 1:
            magnitude = 0.1 * yarn["mscale_all_dim"] * log(yarn["factor"]) + 1.0
        scales.append(heads.head_dim**-0.5 * magnitude * magnitude)
    return scales


def _low_rank(keys: Keys, model: Description) -> Scales:
    """Multiply by the factor of the queries, sqrt(dim / q_lora_rank), too, as in LongCat."""
    factor = (model.dim / keys.whole("q_lora_rank")) ** 0.5
    return [scale * factor for scale in _latent(keys, model)]


def _key_multiplier(keys: Keys, model: Description) -> Scales:
    """Divide by sqrt(head_dim), and multiply by the factor of the keys, as in Falcon-H1."""
    return float(keys.number("key_multiplier", default=1.0) * model.head_dim**-0.5)


def _deberta(keys: Keys, model: Description, counts_none: bool = False) -> Scales:
    """Divide by sqrt(head_dim times the number of terms), with relative attention or without.

    `none` counts as a term in the first DeBERTa.
    """
    terms = len(read_terms(keys)) or int(counts_none and bool(keys.values.get("pos_att_type")))
    return float((model.head_dim * (1 + terms)) ** -0.5)


SCALES: Mapping[str, Callable[..., Scales]] = named(
    _deberta, _gpt2, _heads, _key, _key_multiplier, _latent, _low_rank, _one
)


# Query temperature


def _stepped_without_rotary(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """Steps in the layers that do not rotate, as in Llama 4: 1 + attn_scale ln(1 + floor((p + 1) / floor_scale))."""
    switch = "attn_temperature_tuning"
    on = keys.take(switch, default=True)
    if not isinstance(on, bool):  # the first files have a number, of which 0 is off
        on = keys.whole(switch, least=0) > 0
    alpha = keys.number("attn_scale", default=0.1, zero=True)
    plan = Plan("stepped", {"alpha": alpha, "period": keys.whole("floor_scale", default=8192), "offset": 1})
    return _without_rotary(plan if on and alpha else None, model)


def _power_without_rotary(keys: Keys, model: Description, kind: ModelType) -> Temperatures:
    """A power of the position in the layers that do not rotate, (1 + (p + 1) / 2048) ** 0.1, by the code of Beam."""
    return _without_rotary(Plan("power", {"exponent": 0.1, "length": 2048}), model)


def _without_rotary(curve: Plan | None, model: Description) -> Temperatures:
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
    alpha, period = rope.number(key, default=None, zero=True), rope.whole(ORIGINAL, default=None)
    if not alpha:
        return (None,) * model.layers
    if period is None:
        needed = f"{rope.path}{ORIGINAL} is missing: the number of tokens after which queries are multiplied by more."
        raise rope.wrong(key, alpha, needed)
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
    _clamped_without_window, _learned_in_all_layers, _power_without_rotary, _qwen_logn, _stepped_in_all_layers,
    _stepped_without_rotary,
)  # fmt: skip
