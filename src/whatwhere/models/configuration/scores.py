"""Keys of what changes scores besides a rotation: biases, softmax scales, temperatures; and the factor of tokens.

SCALES and TEMPERATURES name the functions for the data file.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, log, log2
from struct import pack, unpack
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.models.configuration.description import Description, EmbeddingScale, Plan
from whatwhere.models.configuration.keys import Keys, named
from whatwhere.models.configuration.layers import read_types
from whatwhere.models.configuration.model_types import (
    DIRECTION,
    HYBRID,
    HYBRID_SLIDING,
    MAX_BUCKETS,
    MAX_FEATURES,
    Embedding,
    Layers,
    ModelType,
    Rope,
)
from whatwhere.models.configuration.rotary import ORIGINAL

Scales = float | list[float]  # the softmax scale of all layers, or of each
Temperatures = tuple[Plan | None, ...]

TERMS = ("c2p", "p2c")
MAX_EXPONENT = 8.0  # -log2 of ALiBi's smallest slope in the paper


def read_alibi(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Return ALiBi with the slopes of the paper, as in BLOOM; the model type implies it."""
    _require_causal(keys, model)
    return _in_all_layers(model, Plan("alibi", {"num_heads": model.num_heads}))


def read_mpt(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Return ALiBi as in MPT, with `alibi_bias_max` in place of the paper's 8.

    Transformers ignores `alibi` and `alibi_bias_max`, and always uses 8; MosaicML's code reads them, as this does. Both
    agree for every MPT that MosaicML published.
    """
    attention = keys.inside("attn_config", default={})
    attention.require(
        "alibi", True, "without ALiBi MosaicML's code uses a learned table, transformers no positions at all."
    )
    max_exponent = attention.number("alibi_bias_max", default=MAX_EXPONENT)
    attention.known |= {"softmax_scale", "attn_type", "kv_n_heads"}  # read as the scale and as the heads
    attention.known |= {name for name in attention.values if name.startswith("rope_")}  # of rope, which is off
    attention.finish(repeated={"prefix_lm": (False,), "rope": (False,), "sliding_window_size": (-1,)})
    keys.known.add("learned_pos_emb")  # read by MosaicML's code only where ALiBi is off
    plan = Plan("alibi", {"num_heads": model.num_heads})
    if max_exponent != MAX_EXPONENT:
        plan = plan.with_settings(slopes=alibi_slopes(model.num_heads, max_exponent))
        if not all(plan.settings["slopes"]):
            raise attention.wrong("alibi_bias_max", max_exponent, "this makes slopes of 0: MPT has 8.")
    return _in_all_layers(model, plan)


def read_falcon_alibi(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Return Falcon's variant of ALiBi.

        score = (q k + m bias) / sqrt(head_dim)        m rounded to bfloat16

    As in training, the bias is divided with the scores, and its slopes are rounded. Transformers rounds the product
    slope * position to bfloat16 too, which makes biases of near keys equal; this does not.
    """
    _require_causal(keys, model)
    for name in ("rope_parameters", "rope_scaling", "rope_theta"):
        keys.take(name, default=None)
    slopes = falcon_slopes(model.num_heads, model.head_dim)
    return _in_all_layers(model, Plan("alibi", {"num_heads": model.num_heads, "slopes": slopes}))


def read_t5(
    keys: Keys,
    model: Description,
    kind: ModelType,
    shared: bool = True,
    scaled: bool = False,  # scores are divided by sqrt(head_dim) too, as in MPNet
    bidirectional: bool | None = None,
    buckets: int | None = None,  # their number in the model's code, if it does not read the key
) -> Description:
    """Return T5's buckets, in one table (each layer of UMT5 has its own), in both directions in an encoder."""
    key, distance_key = "relative_attention_num_buckets", "relative_attention_max_distance"
    fixed = buckets is not None
    if fixed:
        keys.require(key, buckets, f"its code does not read the key, and uses {buckets} buckets.")
    buckets = keys.whole(key, default=32, most=MAX_BUCKETS)
    distance = 128 if fixed else keys.whole(distance_key, default=128)
    bidirectional = model.part == "encoder" if bidirectional is None else bidirectional
    side = buckets // 2 if bidirectional else buckets
    if side < 2 or (bidirectional and buckets % 2):
        raise keys.wrong(
            key, buckets, f"{'an even number of at least 4' if bidirectional else 'at least 2'} is needed."
        )
    if distance <= side // 2:
        needed = f"must be above {side // 2}: the nearest {side // 2} distances have a bucket each."
        raise keys.wrong(distance_key, distance, needed)
    settings = {
        "num_heads": model.num_heads,
        "num_buckets": buckets,
        "max_distance": distance,
        "bidirectional": bidirectional,
        "scale": None if scaled else 1.0,
    }
    return _in_all_layers(model, Plan("t5", settings, shared))


def read_deberta(keys: Keys, model: Description, kind: ModelType, shared_rows: bool) -> Description:
    """Return disentangled attention, whose large distances may share rows in DeBERTa v2 and v3 (`shared_rows`)."""
    stated, terms = keys.whole("max_relative_positions", default=-1, least=-1), read_terms(keys)
    buckets, projected = -1, False
    max_distance = stated if stated >= 1 else model.max_length
    if shared_rows:
        buckets = keys.whole("position_buckets", default=-1, least=-1, most=MAX_BUCKETS)
        projected = keys.flag("share_att_key", default=False)
        keys.take("norm_rel_ebd", default=None)
    if not keys.flag("relative_attention", default=False) or not terms:
        return model
    if max_distance is None:
        raise keys.missing("max_position_embeddings", "the distance at which rows are clipped")
    if buckets > 0:
        if buckets % 2 or buckets < 4:
            raise keys.wrong("position_buckets", buckets, "must be an even number of at least 4.")
        if max_distance <= (single := buckets // 2) + 1:
            needed = f"must be above {single + 1}: distances up to {single}, half of position_buckets, have a row each."
            raise keys.wrong("max_relative_positions", max_distance, needed)
    settings = {
        "head_dim": model.head_dim,
        "num_heads": model.num_heads,
        "terms": terms,
        "max_distance": max_distance,
        "position_buckets": buckets if buckets > 0 else None,
    }
    by = "the layer's own key and query matrices" if projected else "matrices of their own"
    note = f"the tables of DeBERTa are one table of relative positions, projected in each layer by {by}"
    return replace(_in_all_layers(model, Plan("deberta", settings, shared=False)), notes=(*model.notes, note))


def read_terms(keys: Keys) -> tuple[str, ...]:
    """Return DeBERTa's terms, `c2p`, `p2c`, both or none, from a list or from words joined by `|`."""
    key = "pos_att_type"
    value = keys.take(key, default=None)
    listed: Any = value.lower().split("|") if isinstance(value, str) else keys.listed(key, len(TERMS), default=None)
    terms = [term.strip() if isinstance(term, str) else term for term in listed or ()]
    terms = [] if terms == ["none"] else terms  # as authors write it; scores have no positions then
    keys.require_each(key, terms, TERMS.__contains__, f"whatwhere knows only: {', '.join(TERMS)}.")
    return tuple(term for term in TERMS if term in terms)


def read_xlnet(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Return Transformer-XL's scores as in XLNet, which has vectors and a matrix of its own in each layer."""
    keys.require("clamp_len", -1, "whatwhere has no scheme that clips the distance of a sinusoid.")
    keys.require("bi_data", False, "half of each batch would be read backwards.")
    keys.require("same_length", False, "the number of keys of a query would depend on the memory.")
    settings = {"head_dim": model.head_dim, "num_heads": model.num_heads, "dim": model.dim}
    return _in_all_layers(model, Plan("transformer-xl", settings, shared=False))


def read_profiles(keys: Keys, model: Description, kind: ModelType, norm_key: str | None = None) -> Description:
    """Return Inkling's bias, whose profiles end with the window; `norm_key` bounds the norm by which they are mixed."""
    types, curve = read_types(keys, kind.layers or Layers(), model.layers), read_clamped_curve(keys)
    features = keys.whole("d_rel", most=MAX_FEATURES)
    extents = {
        HYBRID: keys.whole("rel_extent", most=MAX_FEATURES),
        HYBRID_SLIDING: keys.whole("sliding_window_size", most=MAX_FEATURES),
    }
    max_norm = None if norm_key is None else keys.number(norm_key)
    plans = []
    for layer, (layer_type, heads) in enumerate(zip(types, model.heads, strict=True)):
        if layer_type not in extents:
            needed = f"the layers of {keys.owner!r} are {HYBRID} or {HYBRID_SLIDING}."
            raise keys.wrong(f"layer_types[{layer}]", layer_type, needed)
        settings = {
            "dim": model.dim,
            "num_heads": heads.num_heads,
            "features": features,
            "extent": extents[layer_type],
            "max_norm": max_norm,
            "temperature": curve if layer_type == HYBRID else None,
        }
        plans.append(Plan("inkling", settings, shared=False))
    return replace(model, score=tuple(plans), layer_types=types)


def read_clamped_curve(keys: Keys) -> Plan | None:
    """Return the curve by which Inkling multiplies queries and their bias from a number of visible tokens on.

        1 + log_scaling_alpha ln max(1, (p + 1) / log_scaling_n_floor)

    None if it is 1.
    """
    alpha = keys.number("log_scaling_alpha", default=0.1, zero=True)
    length = keys.whole("log_scaling_n_floor", default=None)
    return None if not alpha or length is None else Plan("clamped", {"alpha": alpha, "length": length})


def alibi_slopes(num_heads: int, max_exponent: float = MAX_EXPONENT) -> tuple[float, ...]:
    """Compute ALiBi's slopes as in MPT; with the exponent 8 they are those of the paper.

    m_h = 2 ** (-max_exponent h / n)        n the smallest power of two that is not below num_heads, even h first
    """
    power = 2 ** ceil(log2(num_heads))
    series = [2 ** (-max_exponent * h / power) for h in range(1, power + 1)]
    if power == num_heads:
        return tuple(series)
    return tuple((series[1::2] + series[::2])[:num_heads])


def falcon_slopes(num_heads: int, head_dim: int) -> tuple[float, ...]:
    """Compute Falcon's slopes, one for each head: those of the paper, rounded to bfloat16, over sqrt(head_dim)."""
    return tuple(_to_bfloat16(slope) * head_dim**-0.5 for slope in alibi_slopes(num_heads))


def _to_bfloat16(number: float) -> float:
    """Round to float32, and then to the nearest bfloat16, ties to even."""
    (bits,) = unpack("<I", pack("<f", number))
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return float(unpack("<f", pack("<I", rounded))[0])


def _require_causal(keys: Keys, model: Description) -> None:
    """Raise SettingError in both directions: transformers adds slope * key, which prefers the last keys then."""
    if not model.causal:
        raise SettingError(
            f"{keys.path}{DIRECTION} is False, but the bias of {keys.owner!r} is ALiBi's for earlier keys alone: in "
            "transformers it grows with every later key, which no scheme here does."
        )


def _in_all_layers(model: Description, plan: Plan) -> Description:
    return replace(model, score=(plan,) * model.layers)


# Factors


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


def _heads(keys: Keys, model: Description, power: float = -0.5, divided: int = 1) -> Scales:
    """A power of head_dim: -1 in Inkling, which norms queries and keys, 0 in T5; Zamba's heads are twice as wide."""
    return [(heads.head_dim / divided) ** power for heads in model.heads]


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
    """Divide by sqrt(head_dim times the number of terms), of which `none` is one in the first DeBERTa."""
    terms = len(read_terms(keys)) or int(counts_none and bool(keys.values.get("pos_att_type")))
    return float((model.head_dim * (1 + terms)) ** -0.5)


SCALES: Mapping[str, Callable[..., Scales]] = named(_deberta, _gpt2, _heads, _key, _key_multiplier, _latent, _low_rank)


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
    """Steps in all layers, after the rotation, by a number among the rope parameters: Ministral 3."""
    # 1 + llama_4_scaling_beta ln(1 + floor(p / original_max_position_embeddings))
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
    """The logarithm of the number of keys to the base of the trained length, beyond it, in all layers: Qwen 1."""
    # max(1, ln(p + 1) / ln L_0) = 1 + alpha ln max(1, (p + 1) / L_0), with alpha = 1 / ln L_0
    if not keys.flag("use_logn_attn", default=True):
        return (None,) * model.layers
    length = keys.whole("seq_length", least=2)
    return (Plan("clamped", {"alpha": 1 / log(length), "length": length}),) * model.layers


TEMPERATURES: Mapping[str, Callable[[Keys, Description, ModelType], Temperatures]] = named(
    _clamped_without_window, _learned_in_all_layers, _power_without_rotary, _qwen_logn, _stepped_in_all_layers,
    _stepped_without_rotary,
)  # fmt: skip
