"""Keys of sizes, and of heads that differ between layers; HEADS and KEY_HEADS name functions for the data file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import Heads
from whatwhere.models.configuration.keys import REQUIRED, Keys, short_repr
from whatwhere.models.configuration.layers import numbers_by_layer, read_layer_pattern, read_types
from whatwhere.models.configuration.model_type import (
    DIRECTION,
    FULL,
    HYBRID_SLIDING,
    MAX_FEATURES,
    MAX_HEADS,
    MAX_LAYERS,
    SLIDING,
    KeyNames,
    Layers,
    ModelType,
    Sizes,
)

BOTH_WAYS = "tokens attend to later tokens too (is_causal)"
ByLayer = tuple[Heads, ...]


def read_sizes(kind: ModelType, keys: Keys, part: str | None) -> tuple[Sizes, tuple[str, ...]]:
    """Return the sizes that every model type has, and notes."""
    names = kind.names_of(part)
    dim = keys.whole(*names["dim"])
    num_heads = keys.whole(*names["num_heads"], most=MAX_HEADS) if "num_heads" in names else 0
    token_dim = dim if kind.token_dim is None else keys.whole(kind.token_dim, default=dim)
    padding_idx, notes = _read_padding(keys, names["padding_idx"])
    causal = _read_causal(kind, keys)
    turned = not _read_direction(kind, keys, causal)
    sizes = Sizes(
        vocab_size=keys.whole(*names["vocab_size"]) + kind.extra_rows,
        dim=dim,
        token_dim=token_dim,
        num_heads=num_heads,
        key_heads=_read_key_heads(kind, keys, names, num_heads),
        head_dim=_read_head_dim(kind, keys, names, dim, num_heads),
        layers=_read_layers(kind, keys, names),
        tied=keys.flag(*names["tied"], default=kind.defaults.get(names["tied"][0], True) is True),
        padding_idx=padding_idx,
        max_length=keys.whole(*names["max_length"], default=None) if "max_length" in names else None,
        segments=0 if kind.segments is None else keys.whole("type_vocab_size", default=kind.segments, least=0),
        causal=causal and not turned and part != "encoder",
        turned=turned and part != "encoder",
        part=part,
        rotary_part=None if kind.head_dim_parts is None else keys.whole(kind.head_dim_parts[1], most=MAX_FEATURES),
        output_dim=None if kind.output_dim is None else keys.whole(kind.output_dim),
        extra_rows=kind.extra_rows,
    )
    if kind.heads is not None:
        sizes = replace(sizes, by_layer=HEADS[kind.heads](keys, sizes, kind.layers or Layers()))
    notes = (*notes, BOTH_WAYS) if sizes.turned else notes
    projected = f"a projection from {token_dim} to {dim} features follows the token table and is not built"
    return sizes, (*notes, projected) if token_dim != dim else notes


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
    keys.require(
        DIRECTION, causal, "its code does not read the key, fails, or reads it with one attn_implementation alone."
    )
    return True


def _read_layers(kind: ModelType, keys: Keys, names: KeyNames) -> int:
    if kind.listed:
        return len(read_layer_pattern(keys))
    alternative = names.get("layers_else")
    layers = keys.whole(*names["layers"], default=REQUIRED if alternative is None else None, most=MAX_LAYERS)
    layers = keys.whole(*(alternative or ()), most=MAX_LAYERS) if layers is None else layers
    return layers * kind.attentions


def _read_key_heads(kind: ModelType, keys: Keys, names: KeyNames, num_heads: int) -> int:
    if kind.key_heads is not None:
        return KEY_HEADS[kind.key_heads](keys, num_heads)
    if "key_heads" not in names:
        return num_heads
    return _shared(num_heads, keys.whole(*names["key_heads"], default=num_heads, most=MAX_HEADS))


def _read_head_dim(kind: ModelType, keys: Keys, names: KeyNames, dim: int, num_heads: int) -> int:
    if kind.head_dim_parts is not None:
        parts = [keys.whole(name, most=MAX_FEATURES) for name in kind.head_dim_parts]
        if "head_dim" not in kind.unread:
            # without rotation no code reads the size that older files have, features by heads
            others = [] if kind.positions else [dim // max(num_heads, 1)]
            _require_head_dim(keys, parts[1], sum(parts), *others)
        return sum(parts)
    if not num_heads:
        return 0
    head_dim = keys.whole(*names["head_dim"], default=None, most=MAX_FEATURES) if "head_dim" in names else None
    if head_dim is not None and kind.head_dim_read:
        return head_dim
    dim *= kind.head_width
    if dim % num_heads:
        raise ShapeError(f"{dim} features do not divide into {num_heads} heads of equal size.")
    if dim // num_heads > MAX_FEATURES:
        raise ShapeError(
            f"{keys.path}{names['dim'][0]}={dim:,} makes heads of {dim // num_heads:,} features, but at most "
            f"{MAX_FEATURES:,} are read."
        )
    if not kind.head_dim_read:
        _require_head_dim(keys, dim // num_heads)
    return dim // num_heads


def _require_head_dim(keys: Keys, *sizes: int) -> None:
    """Raise SettingError unless head_dim is one of the sizes that the model's code computes from other keys."""
    head_dim = keys.whole("head_dim", default=sizes[0])
    if head_dim not in sizes:
        raise SettingError(
            f"{keys.path}head_dim is {head_dim:,}, but the code of {keys.owner!r} does not read it: its heads have "
            f"{' or '.join(map(str, sizes))} features. Remove it: config.pop('head_dim')."
        )


def _read_padding(keys: Keys, names: tuple[str, ...]) -> tuple[int | None, tuple[str, ...]]:
    padding_idx = keys.whole(*names, default=None, least=-1)
    if padding_idx == -1:
        # A placeholder in early Llama files, which transformers uses as an index: the last row of the table.
        return None, (f"{names[0]}=-1 is read as no padding token",)
    return padding_idx, ()


# The number of key heads


def _shared(num_heads: int, key_heads: int) -> int:
    """Return the number of key heads, if query heads can share them evenly."""
    if num_heads % key_heads:
        raise ShapeError(f"{num_heads} query heads cannot share {key_heads} key heads evenly.")
    return key_heads


def _multi_query(keys: Keys, num_heads: int) -> int:
    """One, or as many as there are query heads, by the flag `multi_query`."""
    return 1 if keys.flag("multi_query", default=True) else num_heads


def _falcon_key_heads(keys: Keys, num_heads: int) -> int:
    """The same, unless the flag of later Falcon models makes it `num_kv_heads`."""
    keys.known.add("multi_query")
    key_heads = keys.whole("num_kv_heads", default=num_heads)
    return key_heads if keys.flag("new_decoder_architecture", default=False) else _multi_query(keys, num_heads)


def _dbrx_key_heads(keys: Keys, num_heads: int) -> int:
    inside = "attn_config"
    if keys.values.get(inside) is None:
        keys.known.add(inside)
        return 1
    inner = keys.inside(inside)
    key_heads = inner.whole("kv_n_heads", default=1, most=MAX_HEADS)
    inner.known.add("rope_theta")  # read with the rotary positions
    _shared(num_heads, key_heads)
    inner.finish()
    keys.absorb(inner)
    return key_heads


def _mpt_key_heads(keys: Keys, num_heads: int) -> int:
    """By the kind of attention in a nested dictionary, as MosaicML's code of MPT does.

    Transformers does not read the kind, and fails where it loads the weights of fewer key heads.
    """
    kind_key, key = "attn_type", "kv_n_heads"
    if keys.values.get("attn_config") is None:
        return num_heads
    inner = keys.inside("attn_config")
    kinds = {"multihead_attention": num_heads, "multiquery_attention": 1, "grouped_query_attention": None}
    implied = kinds[inner.choice(kind_key, choices=tuple(kinds), default="multihead_attention")]
    key_heads = inner.whole(key, default=REQUIRED if implied is None else implied, most=MAX_HEADS)
    if implied not in (None, key_heads):
        raise SettingError(
            f"{inner.path}{key} is {key_heads}, but by {kind_key} there are {implied}: keep the right one. "
            "With grouped_query_attention it is the number of key heads."
        )
    return _shared(num_heads, key_heads)


def _glm_key_heads(keys: Keys, num_heads: int) -> int:
    """A number, unless a flag makes it that of the query heads, as in ChatGLM."""
    groups = keys.whole("multi_query_group_num", default=1)
    return groups if keys.flag("multi_query_attention", default=False) else num_heads


KEY_HEADS: Mapping[str, Callable[[Keys, int], int]] = {
    "dbrx": _dbrx_key_heads,
    "falcon": _falcon_key_heads,
    "glm": _glm_key_heads,
    "mpt": _mpt_key_heads,
    "multi_query": _multi_query,
}


# Heads of each layer


LISTED = "per_layer_config"
"""A dictionary of transformers with the settings of some layers, by their numbers."""


def _usual(sizes: Sizes) -> Heads:
    return Heads(sizes.num_heads, sizes.key_heads, sizes.head_dim)


def _checked(heads: Heads) -> Heads:
    _shared(heads.num_heads, heads.key_heads)
    return heads


def _by_type(keys: Keys, sizes: Sizes, layers: Layers, own: Heads, of: str) -> ByLayer:
    """Return heads that layers of one type have, and the usual ones of others."""
    types = read_types(keys, layers, sizes.layers)
    return tuple(own if layer_type == of else _usual(sizes) for layer_type in types)


def _settings_of_layers(keys: Keys, layers: int) -> Iterator[tuple[int, Keys]]:
    """Yield the layers that `per_layer_config` names, with a reader of their settings."""
    inner = keys.inside(LISTED)
    for layer, own in inner.values.items():
        if not str(layer).isdigit() or int(layer) >= layers or not isinstance(own, Mapping):
            raise SettingError(
                f"{inner.path}{layer} is {short_repr(own)}, but must be the settings of a layer, 0 to {layers - 1}."
            )
        yield int(layer), Keys(own, {}, keys.owner, f"{inner.path}{layer}.")


def _gemma4(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """Heads are wider in full attention, by two keys, or as `per_layer_config` states."""
    dim_key, key_heads_key, switch = "global_head_dim", "num_global_key_value_heads", "attention_k_eq_v"
    usual = _usual(sizes)
    keys.known |= {dim_key, key_heads_key, switch}
    if keys.values.get(LISTED) is not None:
        by_layer = [usual] * sizes.layers
        for layer, one in _settings_of_layers(keys, sizes.layers):
            head_dim = one.whole("head_dim", default=usual.head_dim, most=MAX_FEATURES)
            key_heads = one.whole("num_key_value_heads", default=usual.key_heads, most=MAX_HEADS)
            one.finish_all()
            by_layer[layer] = _checked(Heads(usual.num_heads, key_heads, head_dim))
        return tuple(by_layer)
    keys.known.add(LISTED)
    wide = replace(usual, head_dim=keys.whole(dim_key, default=512, most=MAX_FEATURES))
    if keys.flag(switch, default=False):
        wide = replace(wide, key_heads=keys.whole(key_heads_key, default=usual.key_heads, most=MAX_HEADS))
    return tuple(_checked(heads) for heads in _by_type(keys, sizes, layers, wide, FULL))


def _laguna(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """A list has the number of query heads of each layer; without it all layers have as many."""
    key = "num_attention_heads_per_layer"
    listed = numbers_by_layer(keys, key, sizes.layers)
    if listed is None:
        return (_usual(sizes),) * sizes.layers
    numbers = [each.whole(key, most=MAX_HEADS) for each in listed]
    return tuple(_checked(Heads(number, sizes.key_heads, sizes.head_dim)) for number in numbers)


def _step3p5(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """Layers with a window have a number of query heads of their own.

    It is in `per_layer_config`, or a key has it for all these layers, or the published files' own dictionary.
    """
    key, inside = "num_sliding_attention_heads", "attention_other_setting"
    usual = _usual(sizes)
    keys.known |= {LISTED, key, inside}
    types = read_types(keys, layers, sizes.layers)
    if keys.values.get(LISTED) is not None:
        by_layer = [usual] * sizes.layers
        for layer, one in _settings_of_layers(keys, sizes.layers):
            by_layer[layer] = _checked(replace(usual, num_heads=one.whole("num_attention_heads", most=MAX_HEADS)))
            one.finish_all()
        return tuple(by_layer)
    number = keys.whole(key, default=None, most=MAX_HEADS)
    if number is None and keys.values.get(inside) is not None:
        other = keys.inside(inside)
        other.require("attention_type", SLIDING, "its code takes it as that of layers with a window.")
        for name, size in (("num_attention_groups", usual.key_heads), ("head_dim", usual.head_dim)):
            other.require(name, size, "its code takes that of the other layers.")
        number = other.whole("num_attention_heads", default=usual.num_heads, most=MAX_HEADS)
        keys.absorb(other)
    own = _checked(usual if number is None else replace(usual, num_heads=number))
    return tuple(own if layer_type == SLIDING else usual for layer_type in types)


def _dots3(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """Layers with a window have other heads of latent attention, by `per_layer_config` or keys of their own."""
    unrotated_key, rotated_key = "qk_nope_head_dim", "qk_rope_head_dim"
    usual, rotated = replace(_usual(sizes), key_heads=sizes.num_heads), sizes.rotary_part or 0
    own = [f"swa_{name}" for name in ("num_attention_heads", unrotated_key, rotated_key, "head_dim")]
    if keys.values.get(LISTED) is None:
        keys.known.add(LISTED)
        num_heads = keys.whole(own[0], default=64, most=MAX_HEADS)
        unrotated = keys.whole(own[1], default=192, most=MAX_FEATURES)
        total = keys.whole(own[3], default=unrotated + rotated, most=MAX_FEATURES)
        stated = keys.whole(own[2], default=total - unrotated, least=0, most=MAX_FEATURES)
        _require_rotated(keys, own[2], stated, rotated)
        keys.require(own[3], keys.whole("head_dim", most=MAX_FEATURES), "fractions of a head are read of head_dim.")
        types = read_types(keys, layers, sizes.layers)
        windowed = Heads(num_heads, num_heads, unrotated + rotated)
        return tuple(windowed if layer_type == SLIDING else usual for layer_type in types)
    given = [name for name in own if keys.values.get(name) is not None]
    if given:
        raise SettingError(f"{keys.path}{given[0]} is given beside {LISTED}, which replaces it: remove it.")
    by_layer = [usual] * sizes.layers
    for layer, one in _settings_of_layers(keys, sizes.layers):
        num_heads = one.whole("num_attention_heads", default=usual.num_heads, most=MAX_HEADS)
        unrotated = one.whole(unrotated_key, default=usual.head_dim - rotated, most=MAX_FEATURES)
        _require_rotated(one, rotated_key, one.whole(rotated_key, default=rotated, most=MAX_FEATURES), rotated)
        one.known |= {"kv_lora_rank", "q_lora_rank", "v_head_dim", "num_key_value_heads"}
        one.finish_all()
        by_layer[layer] = Heads(num_heads, num_heads, unrotated + rotated)
    return tuple(by_layer)


def _require_rotated(keys: Keys, name: str, stated: int, rotated: int) -> None:
    if stated != rotated:
        raise SettingError(
            f"{keys.path}{name} is {stated}, but whatwhere reads {keys.owner!r} with as many rotated features in all "
            f"layers only, here {rotated}."
        )


def _mimo(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """Layers with a window have twice the key heads of others, as in MiMo-V2."""
    more = replace(_usual(sizes), key_heads=2 * sizes.key_heads)
    return tuple(_checked(heads) for heads in _by_type(keys, sizes, layers, more, SLIDING))


def _inkling(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """Layers with a window have heads by keys of their own."""
    num_heads = keys.whole("swa_num_attention_heads", most=MAX_HEADS)
    key_heads = keys.whole("swa_num_key_value_heads", most=MAX_HEADS)
    own = _checked(Heads(num_heads, key_heads, keys.whole("swa_head_dim", most=MAX_FEATURES)))
    return _by_type(keys, sizes, layers, own, HYBRID_SLIDING)


def _convbert(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """A key divides the number of heads, and the features of each are halved."""
    number = max(sizes.num_heads // keys.whole("head_ratio", default=2), 1)
    if sizes.dim % number or sizes.dim // number < 2:
        raise ShapeError(f"{sizes.dim} features do not divide into {number} heads of two halves.")
    return (Heads(number, number, sizes.dim // number // 2),) * sizes.layers


def _mobilebert(keys: Keys, sizes: Sizes, layers: Layers) -> ByLayer:
    """Attention is to fewer features than hidden states have."""
    key = "intra_bottleneck_size"
    dim = keys.whole(key, default=128) if keys.flag("use_bottleneck", default=True) else sizes.dim
    keys.known |= {key, "true_hidden_size"}
    if dim % sizes.num_heads:
        raise ShapeError(f"{dim} features do not divide into {sizes.num_heads} heads.")
    return (Heads(sizes.num_heads, sizes.num_heads, dim // sizes.num_heads),) * sizes.layers


HEADS: Mapping[str, Callable[[Keys, Sizes, Layers], ByLayer]] = {
    "convbert": _convbert,
    "dots3": _dots3,
    "gemma4": _gemma4,
    "inkling": _inkling,
    "laguna": _laguna,
    "mimo": _mimo,
    "mobilebert": _mobilebert,
    "step3p5": _step3p5,
}
