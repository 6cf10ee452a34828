"""Keys of attention heads that differ between layers: wider ones in Gemma 4, more or fewer in Laguna."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import Heads
from whatwhere.models.configuration.keys import REQUIRED, Keys, short_repr
from whatwhere.models.configuration.layer_types import FULL, HYBRID_SLIDING, SLIDING, ByType
from whatwhere.models.configuration.model_type import MAX_FEATURES, MAX_HEADS, Position, Sizes


@dataclass(frozen=True)
class WiderInFullAttention:
    """Read the heads of each layer from `per_layer_config`, or from the two keys of full attention, as in Gemma 4.

    Args:
        layers: types of the layers.
        head_dim: of full attention, if no key has it.
    """

    layers: ByType
    head_dim: int = 512

    LISTED, DIM, KEY_HEADS = "per_layer_config", "global_head_dim", "num_global_key_value_heads"

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        usual = Heads(sizes.num_heads, sizes.key_heads, sizes.head_dim)
        keys.known |= {self.DIM, self.KEY_HEADS, "attention_k_eq_v"}
        if keys.values.get(self.LISTED) is not None:
            return self._listed(keys, usual, sizes.layers)
        keys.known.add(self.LISTED)
        wide = replace(usual, head_dim=keys.whole(self.DIM, default=self.head_dim, most=MAX_FEATURES))
        if keys.flag("attention_k_eq_v", default=False):
            wide = replace(wide, key_heads=keys.whole(self.KEY_HEADS, default=usual.key_heads, most=MAX_HEADS))
        types = self.layers.types(keys, sizes.layers)
        return tuple(_checked(wide if layer_type == FULL else usual) for layer_type in types)

    def _listed(self, keys: Keys, usual: Heads, layers: int) -> tuple[Heads, ...]:
        by_layer = [usual] * layers
        for layer, one in _settings_of_layers(keys, self.LISTED, layers):
            head_dim = one.whole("head_dim", default=usual.head_dim, most=MAX_FEATURES)
            key_heads = one.whole("num_key_value_heads", default=usual.key_heads, most=MAX_HEADS)
            one.finish_all()
            by_layer[layer] = _checked(Heads(usual.num_heads, key_heads, head_dim))
        return tuple(by_layer)


@dataclass(frozen=True)
class QueryHeadsByLayer:
    """Read the number of query heads of each layer from a list, as in Laguna.

    Args:
        key: of the list; without it all layers have as many.
    """

    key: str = "num_attention_heads_per_layer"

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        listed = keys.listed(self.key, sizes.layers, default=None)
        if listed is None:
            return (Heads(sizes.num_heads, sizes.key_heads, sizes.head_dim),) * sizes.layers
        if len(listed) != sizes.layers:
            raise SettingError(f"{keys.path}{self.key} has {len(listed)} numbers, but there are {sizes.layers} layers.")
        numbers = [Keys({self.key: one}, {}, keys.owner, keys.path).whole(self.key, most=MAX_HEADS) for one in listed]
        return tuple(_checked(Heads(number, sizes.key_heads, sizes.head_dim)) for number in numbers)


@dataclass(frozen=True)
class QueryHeadsInWindows:
    """Layers with a window have a number of query heads of their own, as in Step-3.7.

    It is in `per_layer_config`, or a key has it for all these layers, or the published files' own dictionary.

    Args:
        layers: types of the layers.
    """

    layers: ByType

    LISTED, KEY, OTHER, NUMBER = (
        "per_layer_config", "num_sliding_attention_heads", "attention_other_setting", "num_attention_heads",
    )  # fmt: skip

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        usual = Heads(sizes.num_heads, sizes.key_heads, sizes.head_dim)
        keys.known |= {self.LISTED, self.KEY, self.OTHER}
        types = self.layers.types(keys, sizes.layers)
        if keys.values.get(self.LISTED) is None:
            own = _checked(replace(usual, num_heads=self._number(keys, usual)))
            return tuple(own if layer_type == SLIDING else usual for layer_type in types)
        by_layer = [usual] * sizes.layers
        for layer, one in _settings_of_layers(keys, self.LISTED, sizes.layers):
            by_layer[layer] = _checked(replace(usual, num_heads=one.whole(self.NUMBER, most=MAX_HEADS)))
            one.finish_all()
        return tuple(by_layer)

    def _number(self, keys: Keys, usual: Heads) -> int:
        number = keys.whole(self.KEY, default=None, most=MAX_HEADS)
        if number is not None or keys.values.get(self.OTHER) is None:
            return usual.num_heads if number is None else number
        other = keys.inside(self.OTHER)
        other.require("attention_type", SLIDING, "its code takes it as that of layers with a window.")
        for name, size in (("num_attention_groups", usual.key_heads), ("head_dim", usual.head_dim)):
            other.require(name, size, "its code takes that of the other layers.")
        number = other.whole(self.NUMBER, default=usual.num_heads, most=MAX_HEADS)
        keys.absorb(other)
        return number


@dataclass(frozen=True)
class NestedKeyHeads:
    """Read the number of key heads from a nested dictionary, as in DBRX."""

    INSIDE, KEY = "attn_config", "kv_n_heads"

    def read(self, keys: Keys, num_heads: int) -> int:
        """Return the number."""
        if keys.values.get(self.INSIDE) is None:
            keys.known.add(self.INSIDE)
            return 1
        inner = keys.inside(self.INSIDE)
        key_heads = inner.whole(self.KEY, default=1, most=MAX_HEADS)
        inner.known.add("rope_theta")  # read with the rotary positions
        if num_heads % key_heads:
            raise ShapeError(f"{num_heads} query heads cannot share {key_heads} key heads evenly.")
        inner.finish()
        keys.absorb(inner)
        return key_heads


@dataclass(frozen=True)
class MptKeyHeads:
    """Read the number of key heads by the kind of attention in a nested dictionary, as MosaicML's code of MPT does.

    Transformers does not read the kind, and fails where it loads the weights of fewer key heads.
    """

    INSIDE, KIND, KEY = "attn_config", "attn_type", "kv_n_heads"

    def read(self, keys: Keys, num_heads: int) -> int:
        """Return the number."""
        if keys.values.get(self.INSIDE) is None:
            return num_heads
        inner = keys.inside(self.INSIDE)
        kinds = {"multihead_attention": num_heads, "multiquery_attention": 1, "grouped_query_attention": None}
        implied = kinds[inner.choice(self.KIND, choices=tuple(kinds), default="multihead_attention")]
        key_heads = inner.whole(self.KEY, default=REQUIRED if implied is None else implied, most=MAX_HEADS)
        if implied not in (None, key_heads):
            raise SettingError(
                f"{inner.path}{self.KEY} is {key_heads}, but by {self.KIND} there are {implied}: keep the right one. "
                "With grouped_query_attention it is the number of key heads."
            )
        if num_heads % key_heads:
            raise ShapeError(f"{num_heads} query heads cannot share {key_heads} key heads evenly.")
        return key_heads


@dataclass(frozen=True)
class LatentHeadsInWindows:
    """Layers with a window have other heads of latent attention, by `per_layer_config` or keys of their own: dots3.

    Args:
        layers: types of the layers.
        num_heads, unrotated: of layers with a window, if no key has them: heads, and features that are not rotated.
    """

    layers: ByType
    num_heads: int = 64
    unrotated: int = 192

    LISTED, OWN = "per_layer_config", "swa_"
    PARTS = ("qk_nope_head_dim", "qk_rope_head_dim")
    VALUES = ("kv_lora_rank", "q_lora_rank", "v_head_dim", "num_key_value_heads")

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        usual, rotated = Heads(sizes.num_heads, sizes.num_heads, sizes.head_dim), sizes.rotary_part or 0
        own = [f"{self.OWN}{name}" for name in ("num_attention_heads", self.PARTS[0], self.PARTS[1], "head_dim")]
        if keys.values.get(self.LISTED) is None:
            keys.known.add(self.LISTED)
            num_heads = keys.whole(own[0], default=self.num_heads, most=MAX_HEADS)
            unrotated = keys.whole(own[1], default=self.unrotated, most=MAX_FEATURES)
            total = keys.whole(own[3], default=unrotated + rotated, most=MAX_FEATURES)
            stated = keys.whole(own[2], default=total - unrotated, least=0, most=MAX_FEATURES)
            _require_rotated(keys, own[2], stated, rotated)
            keys.require(own[3], keys.whole("head_dim", most=MAX_FEATURES), "fractions of a head are read of head_dim.")
            windowed = Heads(num_heads, num_heads, unrotated + rotated)
            types = self.layers.types(keys, sizes.layers)
            return tuple(windowed if layer_type == SLIDING else usual for layer_type in types)
        given = [name for name in own if keys.values.get(name) is not None]
        if given:
            raise SettingError(f"{keys.path}{given[0]} is given beside {self.LISTED}, which replaces it: remove it.")
        return self._listed(keys, usual, rotated, sizes.layers)

    def _listed(self, keys: Keys, usual: Heads, rotated: int, layers: int) -> tuple[Heads, ...]:
        by_layer = [usual] * layers
        for layer, one in _settings_of_layers(keys, self.LISTED, layers):
            num_heads = one.whole("num_attention_heads", default=usual.num_heads, most=MAX_HEADS)
            unrotated = one.whole(self.PARTS[0], default=usual.head_dim - rotated, most=MAX_FEATURES)
            _require_rotated(one, self.PARTS[1], one.whole(self.PARTS[1], default=rotated, most=MAX_FEATURES), rotated)
            one.known |= set(self.VALUES)
            one.finish_all()
            by_layer[layer] = Heads(num_heads, num_heads, unrotated + rotated)
        return tuple(by_layer)


def _settings_of_layers(keys: Keys, name: str, layers: int) -> Iterator[tuple[int, Keys]]:
    """Yield the layers that a dictionary of `transformers` names, with a reader of their settings."""
    inner = keys.inside(name)
    for layer, own in inner.values.items():
        if not str(layer).isdigit() or int(layer) >= layers or not isinstance(own, Mapping):
            raise SettingError(
                f"{inner.path}{layer} is {short_repr(own)}, but must be the settings of a layer, 0 to {layers - 1}."
            )
        yield int(layer), Keys(own, {}, keys.owner, f"{inner.path}{layer}.")


def _require_rotated(keys: Keys, name: str, stated: int, rotated: int) -> None:
    if stated != rotated:
        raise SettingError(
            f"{keys.path}{name} is {stated}, but whatwhere reads {keys.owner!r} with as many rotated features in all "
            f"layers only, here {rotated}."
        )


@dataclass(frozen=True)
class MoreKeyHeadsInWindows:
    """Layers with a window have twice the key heads of others, as in MiMo-V2.

    Args:
        layers: types of the layers.
    """

    layers: ByType

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        usual = Heads(sizes.num_heads, sizes.key_heads, sizes.head_dim)
        more = replace(usual, key_heads=2 * usual.key_heads)
        types = self.layers.types(keys, sizes.layers)
        return tuple(_checked(more if layer_type == SLIDING else usual) for layer_type in types)


@dataclass(frozen=True)
class OwnHeadsInWindows:
    """Layers with a window have heads by keys of their own, as in Inkling.

    Args:
        layers: types of the layers.
    """

    layers: ByType

    OWN = "swa_"
    NAMES = ("num_attention_heads", "num_key_value_heads", "head_dim")

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        limits = zip(self.NAMES, (MAX_HEADS, MAX_HEADS, MAX_FEATURES), strict=True)
        own = _checked(Heads(*[keys.whole(f"{self.OWN}{name}", most=most) for name, most in limits]))
        usual = Heads(sizes.num_heads, sizes.key_heads, sizes.head_dim)
        types = self.layers.types(keys, sizes.layers)
        return tuple(own if layer_type == HYBRID_SLIDING else usual for layer_type in types)


@dataclass(frozen=True)
class HeadRatio:
    """Divide the number of heads by a key, and halve the features of each, as in ConvBERT."""

    KEY = "head_ratio"

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        number = max(sizes.num_heads // keys.whole(self.KEY, default=2), 1)
        if sizes.dim % number or sizes.dim // number < 2:
            raise ShapeError(f"{sizes.dim} features do not divide into {number} heads of two halves.")
        return (Heads(number, number, sizes.dim // number // 2),) * sizes.layers


@dataclass(frozen=True)
class BottleneckHeads:
    """Read the heads of MobileBERT, which attends to fewer features than its hidden states have."""

    SWITCH, KEY = "use_bottleneck", "intra_bottleneck_size"

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""
        dim = keys.whole(self.KEY, default=128) if keys.flag(self.SWITCH, default=True) else sizes.dim
        keys.known |= {self.KEY, "true_hidden_size"}
        if dim % sizes.num_heads:
            raise ShapeError(f"{dim} features do not divide into {sizes.num_heads} heads.")
        return (Heads(sizes.num_heads, sizes.num_heads, dim // sizes.num_heads),) * sizes.layers


def _checked(heads: Heads) -> Heads:
    if heads.num_heads % heads.key_heads:
        raise ShapeError(f"{heads.num_heads} query heads cannot share {heads.key_heads} key heads evenly.")
    return heads


@dataclass(frozen=True)
class CausalText:
    """Refuse a model whose text attends to later tokens, as Gemma 4 does with `use_bidirectional_attention: all`."""

    KEY = "use_bidirectional_attention"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return nothing; "vision" concerns the tokens of an image alone."""
        value = keys.take(self.KEY, default=None)
        if value not in (None, "vision"):
            raise SettingError(
                f"{keys.path}{self.KEY} is {short_repr(value)}, but whatwhere reads {keys.owner!r} with null or "
                "'vision' only: its text is read as causal."
            )
        return Position()
