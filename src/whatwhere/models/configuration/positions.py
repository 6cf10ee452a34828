"""What reads the keys of each door: learned, sinusoidal and rotary positions. POSITIONS names all for the data file."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import Description, Plan
from whatwhere.models.configuration.keys import Keys, named
from whatwhere.models.configuration.layers import numbers_by_layer, read_layer_pattern, read_types
from whatwhere.models.configuration.model_types import FRACTION, FULL, Layers, ModelType, first_row
from whatwhere.models.configuration.rotary import read_rope, rotary_plan
from whatwhere.models.configuration.scores import (
    read_alibi,
    read_deberta,
    read_falcon_alibi,
    read_mpt,
    read_profiles,
    read_t5,
    read_xlnet,
)

Offset = int | Literal["padding"]


# Added to the token vectors


def read_learned(
    keys: Keys,
    model: Description,
    kind: ModelType,
    offset: Offset = 0,
    counted: bool = False,
    by_tokens: bool = True,  # the table has the features of the token table, if they differ from the model's
    unless: str | None = None,
    absolute: bool = False,  # `position_embedding_type` must be "absolute" for the table to be the only encoding
) -> Description:
    """Add the plan of a learned position table; `counted` lengths include the rows before position 0."""
    if absolute:
        name = "position_embedding_type"
        bias = "other values add a bias to the scores of each layer."
        jina = "'rotary' is that of 'jina_embeddings_v3': write this as the model_type."
        keys.require(name, "absolute", jina if keys.values.get(name) == "rotary" else bias)
    if unless is not None and not keys.flag(unless, default=True):
        return model
    key = kind.names_of(model.part)["max_length"][0]
    if model.max_length is None:
        raise keys.missing(key, "the number of rows of the position table")
    row = first_row(offset, model.padding_idx)
    if row is None:
        raise keys.missing("pad_token_id", "positions start at the row after it")
    length = model.max_length - row if counted else model.max_length
    if length < 1:
        raise SettingError(f"{keys.path}{key} is {model.max_length}, of which {row} rows come before 0.")
    dim = model.token_dim if by_tokens else model.dim
    plan = Plan("learned", {"dim": dim, "max_length": length, "offset": row})
    return replace(model, input=plan, max_length=length)


def _sinusoidal(
    keys: Keys,
    model: Description,
    kind: ModelType,
    layout: Literal["interleaved", "half", "tensor2tensor"] = "tensor2tensor",
    offset: Offset = 0,
    cosines_first: bool = False,
) -> Description:
    least = 4 if layout == "tensor2tensor" else 2
    if model.dim % 2 or model.dim < least:
        raise ShapeError(
            f"{model.dim} features cannot hold sinusoidal positions: a sine and a cosine share one frequency, so "
            f"an even number of at least {least} is needed."
        )
    row = first_row(offset, model.padding_idx or 0)
    plan = Plan("sinusoidal", {"dim": model.dim, "layout": layout, "offset": row})
    return replace(model, input=plan.with_settings(cosines_first=True) if cosines_first else plan)


def _learned_or_sinusoidal(keys: Keys, model: Description, kind: ModelType, offset: int) -> Description:
    """Read a learned position table, or sinusoidal positions in its place if a flag is off, as in TrOCR."""
    if keys.flag("use_learned_position_embeddings", default=True):
        return read_learned(keys, model, kind, offset)
    return _sinusoidal(keys, model, kind, offset="padding")


def _learned_or_rope(keys: Keys, model: Description, kind: ModelType, offset: Offset, counted: bool) -> Description:
    """Read a learned position table, or rotary positions in its place, as a key chooses, as in ESM."""
    if keys.choice("position_embedding_type", ("absolute", "rotary"), default="absolute") == "rotary":
        return read_rope(keys, model, kind)
    keys.known.add("rope_theta")
    return read_learned(keys, model, kind, offset, counted)


# Rotary, with keys beside `rope_parameters`


def _theta_by_layer(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read rotary positions whose theta a list has for each layer, 0 where a layer does not rotate."""
    key = "layer_rope_theta"
    model = read_rope(keys, model, kind)
    thetas = numbers_by_layer(keys, key, model.layers)
    if thetas is None:
        return model
    plans = []
    for layer, plan in enumerate(model.query_key):
        theta = thetas[layer].number(key, zero=True)
        if plan is None and theta != 0:
            raise keys.wrong(f"{key}[{layer}]", theta, "layers of its type do not rotate: write 0.")
        plans.append(None if plan is None or theta == 0 else plan.with_settings(theta=theta))
    return replace(model, query_key=tuple(plans))


def _lists_by_layer(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read rotary positions whose theta and fraction lists have by layer, alike by type, as in Step-3.7's files."""
    # `rope_scaling` is that of full attention alone.
    if keys.values.get("rope_parameters") is not None:
        return read_rope(keys, model, kind)
    types = read_types(keys, kind.layers or Layers(), model.layers)
    sets: dict[str, dict[str, object]] = {layer_type: {} for layer_type in types}
    for name, inner in (("rope_theta", "rope_theta"), ("partial_rotary_factors", FRACTION)):
        if not isinstance(keys.values.get(name), list | tuple):
            listed = [keys] * model.layers if keys.values.get(name) is not None else []
        else:
            listed = numbers_by_layer(keys, name, model.layers) or []
        for layer, (layer_type, one) in enumerate(zip(types, listed, strict=False)):
            number = one.number(name)
            if sets[layer_type].setdefault(inner, number) != number:
                raise SettingError(
                    f"{keys.path}{name}[{layer}] is {number}, but another layer of the type {layer_type} has "
                    f"{sets[layer_type][inner]}: the code of {keys.owner!r} takes one of each type."
                )
    if keys.take("rope_scaling", default=None) and FULL in sets:
        sets[FULL] |= keys.inside("rope_scaling").values
    keys.known |= {"rope_theta", "partial_rotary_factors"}
    others = {name: value for name, value in keys.values.items() if name not in ("rope_theta", "rope_scaling")}
    inner_keys = keys.nested("", {**others, "rope_parameters": sets})
    inner_keys.defaults, inner_keys.aliases, inner_keys.known = keys.defaults, keys.aliases, keys.known
    return read_rope(inner_keys, model, kind)


def _nested_theta(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read rotary positions whose theta is in a nested dictionary, as in DBRX: transformers 5 reads another."""
    model = read_rope(keys, model, kind)
    theta = keys.inside("attn_config", default={}).number("rope_theta", default=None)
    if theta is None:
        return model
    plans = tuple(None if plan is None else plan.with_settings(theta=theta) for plan in model.query_key)
    if plans != model.query_key and any(keys.values.get(name) for name in ("rope_parameters", "rope_theta")):
        raise SettingError(
            f"{keys.path}attn_config.rope_theta is {theta}, by which the code of the authors of {keys.owner!r} "
            "rotates, but rope_parameters have another theta, by which transformers 5 does: keep the right one.\n"
            "In the published file it is the first; transformers adds the second without reading it."
        )
    return replace(model, query_key=plans)


def _rotary_dim(
    keys: Keys,
    model: Description,
    kind: ModelType,
    key: str | None = "rotary_dim",
    interleaved: bool = True,
    unrotated: str | None = None,
) -> Description:
    """Read the rotary positions of GPT-J, CodeGen and RoFormer, and of the first Phi, whose theta is 10,000."""
    if unrotated is not None:
        keys.require(unrotated, False, "whatwhere has no scheme that rotates values.")
    rotary_dim = None if key is None else keys.whole(key, default=None)
    rotary_dim = None if rotary_dim == model.head_dim else rotary_dim
    return _in_all_layers(model, rotary_plan(keys.path, model.head_dim, 10_000.0, interleaved, rotary_dim))


# Of authors' code beside their files


def _qwen(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read those of the first Qwen, whose theta follows the length L in steps, beyond the trained L_0."""
    # theta (2 ** ceil(log2(L / L_0) + 1) - 1) ** (dim / (dim - 2))
    theta, fraction = keys.number("rotary_emb_base", default=10_000.0), keys.number("rotary_pct", default=1.0)
    rotary_dim = None if fraction == 1 else int(model.head_dim * fraction)
    scaling = None
    if keys.flag("use_dynamic_ntk", default=True):
        settings = {"factor": 2.0, "original_length": keys.whole("seq_length"), "doubling": True}
        scaling = Plan("rotary-dynamic-ntk", settings)
        note = "after a prompt its code keeps the theta of the prompt's length: pass that as regime_length"
        model = replace(model, notes=(*model.notes, note))
    path = f"{keys.path}rotary_pct: "
    return _in_all_layers(model, rotary_plan(path, model.head_dim, theta, False, rotary_dim, scaling))


def _glm(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read rotary positions of the first half of each head, interleaved, with theta 10,000 rope_ratio, as in GLM-4."""
    # ChatGLM2-6B-32K divides positions by rope_ratio instead, which no key says.
    planes, name = "position_encoding_2d", "_name_or_path"
    if keys.take(planes, default=None):
        raise SettingError(
            f"{keys.path}{planes} is on, as in ChatGLM-6B: each half of its heads is rotated by a coordinate "
            "of its own, whose second counts from the end of the prompt, and tokens of the prompt attend to later "
            "ones. No scheme here does so."
        )
    ratio = keys.number("rope_ratio", default=1.0)
    if ratio != 1 and keys.whole("padded_vocab_size") == 65_024 and "chatglm3" not in str(keys.values.get(name)):
        raise SettingError(
            f"{keys.path}rope_ratio is {ratio}, by which ChatGLM3 multiplies theta, but ChatGLM2-6B-32K divides "
            f"positions: no key says which. If it is ChatGLM3, state it: config[{name!r}] = 'chatglm3'."
        )
    return _in_all_layers(model, rotary_plan(keys.path, model.head_dim, 10_000.0 * ratio, True, model.head_dim // 2))


def _rotary_or_alibi(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read the positions of Baichuan: those of 7B are rotary with theta 10,000, those of 13B are ALiBi."""
    # Both have one model type and the code of each no key of the other: only 7B has `max_position_embeddings`.
    rotary, alibi, widths = "max_position_embeddings", "model_max_length", {4096: True, 5120: False}
    length, other = keys.whole(rotary, default=None), keys.whole(alibi, default=None)
    rotates = length is not None
    if (length or other) is None or widths.get(model.dim, rotates) != rotates:
        raise SettingError(
            f"whether this Baichuan rotates is said by {rotary}, which 7B alone has, of 4,096 features, or by "
            f"{alibi} alone, as in 13B, of 5,120 features with ALiBi. Here these are {length} and {other}, "
            f"with {model.dim:,} features: state what its code does."
        )
    if rotates:
        return _in_all_layers(model, rotary_plan(keys.path, model.head_dim, 10_000.0, False))
    alibi_plan = Plan("alibi", {"num_heads": model.num_heads})
    return replace(model, score=(alibi_plan,) * model.layers, max_length=other or model.max_length)


def _internlm(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read rotary positions whose theta is in a dictionary of its own, and grows with the length unless it says not."""
    inner, scaling = keys.inside("rotary", default={}), None
    theta, factor = inner.number("base", default=10_000.0), inner.number("scaling_factor", default=1.0)
    if inner.choice("type", ("dynamic", "origin"), default="dynamic") == "dynamic":
        scaling = Plan("rotary-dynamic-ntk", {"factor": factor, "original_length": model.max_length or 2048})
    inner.finish(every=True)
    return _in_all_layers(model, rotary_plan(inner.path, model.head_dim, theta, False, None, scaling))


def _gte(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read the rotary positions of GTE, whose `ntk` is not the usual one: every pair is slower."""
    # (theta factor) ** (-2 i / dim) / factor ** (2 / dim)
    model = read_rope(keys, model, kind)
    plan = model.query_key[0]
    if plan is None or plan.name != "rotary-ntk":
        return model
    factor = plan.settings["scaling"].settings["factor"]
    scaling = Plan("rotary-linear", {"factor": factor ** (2 / plan.rotary_dim)})
    return _in_all_layers(model, plan.with_settings(theta=plan.settings["theta"] * factor, scaling=scaling))


def _nomic(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read the rotary positions of Nomic's own files, whose theta may grow beyond the trained length."""
    factor_key, trained_key = "rotary_scaling_factor", "max_trained_positions"
    keys.require("rotary_emb_fraction", 1.0, "it would rotate a part of each head, or have a learned table instead.")
    model = read_rope(keys, model, kind)
    model = replace(model, max_length=keys.whole("n_positions", default=None) or model.max_length)
    factor, trained = keys.number(factor_key, default=None), keys.whole(trained_key, default=None)
    plan = model.query_key[0]
    if factor is None or plan is None:
        return model
    if trained is None:
        raise keys.missing(trained_key, f"{factor_key} is for texts beyond it")
    scaling = Plan("rotary-dynamic-ntk", {"factor": factor, "original_length": trained})
    return _in_all_layers(model, plan.with_settings(scaling=scaling))


# Others


def _falcon(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read the positions of Falcon: rotary, or a variant of ALiBi."""
    alibi = keys.flag("alibi", default=False)
    return read_falcon_alibi(keys, model, kind) if alibi else read_rope(keys, model, kind)


def _layer_pattern(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Read the types of layers without positions, as in Nemotron-H."""
    return replace(model, layer_types=read_layer_pattern(keys))


def _causal_text(keys: Keys, model: Description, kind: ModelType) -> Description:
    """Refuse a model whose text attends to later tokens, as Gemma 4 does with `use_bidirectional_attention: all`."""
    key = "use_bidirectional_attention"
    value = keys.take(key, default=None)
    if value not in (None, "vision"):  # "vision" concerns the tokens of an image alone
        needed = f"whatwhere reads {keys.owner!r} with null or 'vision' only: its text is read as causal."
        raise keys.wrong(key, value, needed)
    return model


def _in_all_layers(model: Description, plan: Plan) -> Description:
    return replace(model, query_key=(plan,) * model.layers)


POSITIONS: Mapping[str, Callable[..., Description]] = named(
    *(read_alibi, read_deberta, read_learned, read_mpt, read_profiles, read_rope, read_t5, read_xlnet),
    *(_learned_or_rope, _learned_or_sinusoidal, _sinusoidal),
    *(_lists_by_layer, _nested_theta, _rotary_dim, _theta_by_layer),
    *(_falcon, _glm, _gte, _internlm, _nomic, _qwen, _rotary_or_alibi),
    *(_causal_text, _layer_pattern),
)
"""Name in the data file -> function of the configuration, what was read of it, its model type, and settings."""
