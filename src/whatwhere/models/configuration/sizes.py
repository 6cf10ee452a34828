"""Keys of sizes, and of heads that differ between layers; HEADS and KEY_HEADS name functions for the data file."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import Description, Heads
from whatwhere.models.configuration.keys import REQUIRED, Keys, named
from whatwhere.models.configuration.layers import numbers_by_layer, read_layer_pattern, read_types
from whatwhere.models.configuration.model_types import (
    DIRECTION,
    MAX_FEATURES,
    MAX_HEADS,
    MAX_LAYERS,
    SLIDING,
    Layers,
    ModelType,
)
from whatwhere.what.token_ids import has_two_vocabularies

BOTH_WAYS = "tokens attend to later tokens too (is_causal)"
"""Note of a causal model that a key made attend in both directions."""
OF_DECODER = "decoder_vocab_size"
KeyNames = Mapping[str, tuple[str, ...]]
ByLayer = tuple[Heads, ...]


def read_sizes(kind: ModelType, keys: Keys, model_type: str, part: str | None) -> Description:
    """Return a description with the sizes that every model type has, as yet without positions."""
    names = kind.names_of(part)
    if part == "decoder" and has_two_vocabularies(keys.values) and keys.values.get(OF_DECODER) is not None:
        names = {**names, "vocab_size": (OF_DECODER,)}
    dim = keys.whole(*names["dim"])
    token_dim = dim if kind.token_dim is None else keys.whole(kind.token_dim, default=dim)
    padding_idx, notes = keys.whole(*names["padding_idx"], default=None, least=-1), []
    if padding_idx == -1:
        # A placeholder in early Llama files, which transformers uses as an index: the last row of the table.
        padding_idx, notes = None, [f"{names['padding_idx'][0]}=-1 is read as no padding token"]
    causal = _read_causal(kind, keys)
    turned = not _read_direction(kind, keys, causal) and part != "encoder"
    notes += [BOTH_WAYS] if turned else []
    if token_dim != dim:
        notes.append(f"a projection from {token_dim} to {dim} features follows the token table and is not built")
    model = Description(
        model_type,
        part,
        vocab_size=keys.whole(*names["vocab_size"]) + kind.extra_rows,
        dim=dim,
        token_dim=token_dim,
        heads=(),
        layers=_read_layers(kind, keys, names),
        tied=keys.flag(*names["tied"], default=kind.defaults.get(names["tied"][0], True) is True),
        padding_idx=padding_idx,
        max_length=keys.whole(*names["max_length"], default=None) if "max_length" in names else None,
        segments=0 if kind.segments is None else keys.whole("type_vocab_size", default=kind.segments, least=0),
        causal=causal and not turned and part != "encoder",
        output_dim=None if kind.output_dim is None else keys.whole(kind.output_dim),
        extra_rows=kind.extra_rows,
        notes=tuple(notes),
    )
    if "num_heads" not in names:
        return model
    num_heads = keys.whole(*names["num_heads"], most=MAX_HEADS)
    key_heads = num_heads
    if kind.key_heads is not None:
        key_heads = KEY_HEADS[kind.key_heads](keys, num_heads)
    elif "key_heads" in names:
        key_heads = keys.whole(*names["key_heads"], default=num_heads, most=MAX_HEADS)
    _require_shared(num_heads, key_heads)
    usual = Heads(num_heads, key_heads, _read_head_dim(kind, keys, names, dim, num_heads))
    part_dim = None if kind.head_dim_parts is None else keys.whole(kind.head_dim_parts[1], most=MAX_FEATURES)
    model = replace(model, heads=(usual,) * model.layers, rotary_part=part_dim)
    if kind.heads is not None:
        heads = HEADS[kind.heads.name](keys, model, kind.layers or Layers(), **kind.heads.settings)
        for each in heads:
            _require_shared(each.num_heads, each.key_heads)
        model = replace(model, heads=heads)
    return model


def _read_causal(kind: ModelType, keys: Keys) -> bool:
    if isinstance(kind.causal, tuple):
        return bool(keys.take(kind.causal[0], default=None) == kind.causal[1])
    if isinstance(kind.causal, str):
        return keys.flag(kind.causal, default=kind.defaults.get(kind.causal) is True)
    return kind.causal


def _read_direction(kind: ModelType, keys: Keys, causal: bool) -> bool:
    """Return the flag by which transformers makes the masks of any causal model bidirectional."""
    keys.known.add(DIRECTION)
    honoured = causal and DIRECTION not in kind.unread
    if keys.values.get(DIRECTION) is None:  # transformers takes null for false
        return not (honoured and DIRECTION in keys.values)
    if honoured:
        return keys.flag(DIRECTION)
    reason = "its code does not read the key, fails, or reads it with one attn_implementation alone."
    keys.require(DIRECTION, causal, reason)
    return True


def _read_layers(kind: ModelType, keys: Keys, names: KeyNames) -> int:
    if kind.listed:
        return len(read_layer_pattern(keys))
    alternative = names.get("layers_else")
    layers = keys.whole(*names["layers"], default=REQUIRED if alternative is None else None, most=MAX_LAYERS)
    layers = keys.whole(*(alternative or ()), most=MAX_LAYERS) if layers is None else layers
    return layers * kind.attentions


def _read_head_dim(kind: ModelType, keys: Keys, names: KeyNames, dim: int, num_heads: int) -> int:
    if kind.head_dim_parts is not None:
        return sum(keys.whole(name, most=MAX_FEATURES) for name in kind.head_dim_parts)
    head_dim = keys.whole(*names["head_dim"], default=None, most=MAX_FEATURES) if "head_dim" in names else None
    if head_dim is not None:
        return head_dim
    head_dim = _divided(dim * kind.head_width, num_heads)
    if head_dim > MAX_FEATURES:
        raise ShapeError(
            f"{keys.path}{names['dim'][0]}={dim:,} makes heads of {head_dim:,} features, but at most "
            f"{MAX_FEATURES:,} are read."
        )
    return head_dim


def _divided(dim: int, num_heads: int) -> int:
    if dim % num_heads:
        raise ShapeError(f"{dim} features do not divide into {num_heads} heads of equal size.")
    return dim // num_heads


def _require_shared(num_heads: int, key_heads: int) -> None:
    if num_heads % key_heads:
        raise ShapeError(f"{num_heads} query heads cannot share {key_heads} key heads evenly.")


# The number of key heads


def _multi_query(keys: Keys, num_heads: int) -> int:
    """One, or as many as there are query heads, by the flag `multi_query`."""
    return 1 if keys.flag("multi_query", default=True) else num_heads


def _falcon(keys: Keys, num_heads: int) -> int:
    """The same, unless the flag of later Falcon models makes it `num_kv_heads`."""
    keys.known.add("multi_query")
    key_heads = keys.whole("num_kv_heads", default=num_heads)
    return key_heads if keys.flag("new_decoder_architecture", default=False) else _multi_query(keys, num_heads)


def _dbrx(keys: Keys, num_heads: int) -> int:
    inner = keys.inside("attn_config", default={})
    inner.known.add("rope_theta")  # read with the rotary positions
    key_heads = inner.whole("kv_n_heads", default=1, most=MAX_HEADS)
    inner.finish()
    return key_heads


def _mpt(keys: Keys, num_heads: int) -> int:
    """By the kind of attention in a nested dictionary, as in MosaicML's code: transformers fails with fewer."""
    kind_key, key = "attn_type", "kv_n_heads"
    inner = keys.inside("attn_config", default={})
    kinds = {"multihead_attention": num_heads, "multiquery_attention": 1, "grouped_query_attention": None}
    implied = kinds[inner.choice(kind_key, kinds, default="multihead_attention")]
    key_heads = inner.whole(key, default=REQUIRED if implied is None else implied, most=MAX_HEADS)
    if implied not in (None, key_heads):
        raise SettingError(
            f"{inner.path}{key} is {key_heads}, but by {kind_key} there are {implied}: keep the right one. "
            "With grouped_query_attention it is the number of key heads."
        )
    return key_heads


def _glm(keys: Keys, num_heads: int) -> int:
    """A number, unless a flag makes it that of the query heads, as in ChatGLM."""
    groups = keys.whole("multi_query_group_num", default=1)
    return groups if keys.flag("multi_query_attention", default=False) else num_heads


KEY_HEADS: Mapping[str, Callable[[Keys, int], int]] = named(_dbrx, _falcon, _glm, _mpt, _multi_query)


# Heads of each layer


LISTED = "per_layer_config"  # a dictionary of transformers with the settings of some layers, by their numbers
SWA = ("swa_num_attention_heads", "swa_qk_nope_head_dim", "swa_qk_rope_head_dim", "swa_head_dim")
MOST = {"num_heads": MAX_HEADS, "key_heads": MAX_HEADS, "head_dim": MAX_FEATURES}


def _named_sizes(keys: Keys, usual: Heads, names: Mapping[str, str]) -> Heads:
    """Return heads with the sizes that have these keys, and others as usual."""
    usually = {key: REQUIRED if key in keys.defaults else getattr(usual, size) for size, key in names.items()}
    sizes = {size: keys.whole(key, default=usually[key], most=MOST[size]) for size, key in names.items()}
    return replace(usual, **sizes)


def _in_type(keys: Keys, model: Description, layers: Layers, own: Heads, of: str = SLIDING) -> ByLayer:
    """Return heads that layers of one type have, and the usual ones of others."""
    types = read_types(keys, layers, model.layers)
    return tuple(own if layer_type == of else usual for layer_type, usual in zip(types, model.heads, strict=True))


def _listed(keys: Keys, model: Description, read: Callable[[Keys], Heads]) -> ByLayer:
    """Return the heads that `per_layer_config` has for some layers, and the usual ones of others."""
    inner, by_layer = keys.inside(LISTED), list(model.heads)
    for layer, settings in inner.values.items():
        if not str(layer).isdigit() or int(layer) >= model.layers or not isinstance(settings, Mapping):
            needed = f"must be the settings of a layer, 0 to {model.layers - 1}."
            raise inner.wrong(str(layer), settings, needed)
        own = Keys(settings, {}, keys.owner, f"{inner.path}{layer}.")
        by_layer[int(layer)] = read(own)
        own.finish(every=True)
    return tuple(by_layer)


def _by_type(
    keys: Keys,
    model: Description,
    layers: Layers,
    names: Mapping[str, str],
    of: str = SLIDING,
    flags: Mapping[str, str] | None = None,  # sizes whose key is read only if a flag is on -> the flag
    listed: Mapping[str, str] | None = None,  # sizes -> keys of them in `per_layer_config`, which replaces the others
) -> ByLayer:
    """Layers of one type have sizes by keys of their own."""
    usual, flags = model.heads[0], flags or {}
    keys.known |= {*names.values(), *flags.values()}
    if listed is not None:
        keys.known.add(LISTED)
        if keys.values.get(LISTED) is not None:
            read_types(keys, layers, model.layers)
            return _listed(keys, model, lambda own: _named_sizes(own, usual, listed))
    on = {size: name for size, name in names.items() if size not in flags or keys.flag(flags[size], default=False)}
    return _in_type(keys, model, layers, _named_sizes(keys, usual, on), of)


def _laguna(keys: Keys, model: Description, layers: Layers) -> ByLayer:
    """A list has the number of query heads of each layer; without it all layers have as many."""
    key = "num_attention_heads_per_layer"
    numbers = numbers_by_layer(keys, key, model.layers)
    if numbers is None:
        return model.heads
    return tuple(replace(model.heads[0], num_heads=each.whole(key, most=MAX_HEADS)) for each in numbers)


def _step3p5(keys: Keys, model: Description, layers: Layers) -> ByLayer:
    """Layers with a window have a number of query heads of their own, in published files in a dictionary."""
    key, inside, inner = "num_sliding_attention_heads", "attention_other_setting", "num_attention_heads"
    keys.known.add(inside)
    if keys.values.get(inside) is None or any(keys.values.get(name) is not None for name in (key, LISTED)):
        return _by_type(keys, model, layers, {"num_heads": key}, listed={"num_heads": inner})
    other, usual = keys.inside(inside), model.heads[0]
    keys.known |= {key, LISTED}
    other.require("attention_type", SLIDING, "its code takes it as that of layers with a window.")
    for name, size in (("num_attention_groups", usual.key_heads), ("head_dim", usual.head_dim)):
        other.require(name, size, "its code takes that of the other layers.")
    return _in_type(keys, model, layers, _named_sizes(other, usual, {"num_heads": inner}))


def _dots3(keys: Keys, model: Description, layers: Layers) -> ByLayer:
    """Layers with a window have other heads of latent attention, by `per_layer_config` or keys of their own."""
    # As many of their features are rotated as in other layers, because fractions of a head are read of `head_dim`.
    rotated, usual = model.rotary_part or 0, replace(model.heads[0], key_heads=model.heads[0].num_heads)
    model = replace(model, heads=(usual,) * model.layers)

    def read(own: Keys, prefix: str = "", heads: int = usual.num_heads, rest: int = usual.head_dim - rotated) -> Heads:
        part, total = f"{prefix}qk_rope_head_dim", f"{prefix}head_dim"
        heads = own.whole(f"{prefix}num_attention_heads", default=heads, most=MAX_HEADS)
        rest = own.whole(f"{prefix}qk_nope_head_dim", default=rest, most=MAX_FEATURES)
        whole = own.whole(total, default=rest + rotated, most=MAX_FEATURES)
        stated = own.whole(part, default=whole - rest, least=0, most=MAX_FEATURES)
        if stated != rotated:
            raise SettingError(
                f"{own.path}{part} is {stated}, but whatwhere reads {keys.owner!r} with as many rotated features in "
                f"all layers only, here {rotated}."
            )
        own.require(total, keys.whole("head_dim", most=MAX_FEATURES), "fractions of a head are read of head_dim.")
        own.known |= {"kv_lora_rank", "q_lora_rank", "v_head_dim", "num_key_value_heads"}
        return Heads(heads, heads, rest + rotated)

    keys.known |= {LISTED, *SWA}
    if keys.values.get(LISTED) is None:
        return _in_type(keys, model, layers, read(keys, "swa_", 64, 192))
    given = [name for name in SWA if keys.values.get(name) is not None]
    if given:
        raise SettingError(f"{keys.path}{given[0]} is given beside {LISTED}, which replaces it: remove it.")
    return _listed(keys, model, read)


def _mimo(keys: Keys, model: Description, layers: Layers) -> ByLayer:
    """Layers with a window have twice the key heads of others, as in MiMo-V2."""
    return _in_type(keys, model, layers, replace(model.heads[0], key_heads=2 * model.heads[0].key_heads))


def _convbert(keys: Keys, model: Description, layers: Layers) -> ByLayer:
    """A key divides the number of heads, and the features of each are halved."""
    number = max(model.num_heads // keys.whole("head_ratio", default=2), 1)
    if model.dim % number or model.dim // number < 2:
        raise ShapeError(f"{model.dim} features do not divide into {number} heads of two halves.")
    return (Heads(number, number, model.dim // number // 2),) * model.layers


def _mobilebert(keys: Keys, model: Description, layers: Layers) -> ByLayer:
    """Attention is to fewer features than hidden states have."""
    key, number = "intra_bottleneck_size", model.num_heads
    dim = keys.whole(key, default=128) if keys.flag("use_bottleneck", default=True) else model.dim
    keys.known |= {key, "true_hidden_size"}
    return (Heads(number, number, _divided(dim, number)),) * model.layers


HEADS: Mapping[str, Callable[..., ByLayer]] = named(_by_type, _convbert, _dots3, _laguna, _mimo, _mobilebert, _step3p5)
