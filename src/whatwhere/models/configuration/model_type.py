"""How one model type writes tokens and positions in its configuration: the classes of the registry's entries."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import EmbeddingScale, Heads
from whatwhere.models.configuration.keys import REQUIRED, Keys
from whatwhere.models.configuration.plan import CurvePlan, Plan
from whatwhere.where.window import Window

KeyNames = Mapping[str, tuple[str, ...]]
"""Field of Description -> its keys, the usual one first."""

LLAMA_KEYS: KeyNames = {
    "vocab_size": ("vocab_size",),
    "dim": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "num_heads": ("num_attention_heads",),
    "key_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "max_length": ("max_position_embeddings",),
    "padding_idx": ("pad_token_id",),
    "tied": ("tie_word_embeddings",),
}
DIRECTION = "is_causal"
BOTH_WAYS = "tokens attend to later tokens too (is_causal)"
MAX_LAYERS, MAX_HEADS, MAX_FEATURES, MAX_BUCKETS = 10_000, 65_536, 1_048_576, 4096
"""Larger numbers of layers, heads, features of a head and buckets are rejected: reading them would take too much memory
or time."""


@dataclass(frozen=True)
class Sizes:
    """Sizes that every model type has; the fields are those of Description.

    Heads that differ between layers are `by_layer`; then num_heads, key_heads and head_dim are those of most. All are 0
    without attention. `turned` is whether a key made a causal model attend in both directions.
    """

    vocab_size: int
    dim: int
    token_dim: int
    num_heads: int
    key_heads: int
    head_dim: int
    layers: int
    tied: bool
    padding_idx: int | None
    max_length: int | None
    segments: int = 0
    causal: bool = True
    turned: bool = False
    part: str | None = None
    rotary_part: int | None = None
    output_dim: int | None = None
    extra_rows: int = 0
    by_layer: tuple[Heads, ...] | None = None

    @property
    def heads(self) -> tuple[Heads, ...]:
        """The heads of each layer."""
        if not self.num_heads:
            return ()
        return self.by_layer or (Heads(self.num_heads, self.key_heads, self.head_dim),) * self.layers


@dataclass(frozen=True)
class Position:
    """The positions that one reader has read; the fields are those of Description, None if others read them.

    `parameters` are the rope parameters that transformers uses where the configuration has none.
    """

    input: Plan | None = None
    query_key: tuple[Plan | None, ...] | None = None
    score: tuple[Plan | None, ...] | None = None
    layer_types: tuple[str, ...] | None = None
    max_length: int | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@runtime_checkable
class Reader(Protocol):
    """Read the keys of one door."""

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plans of the door."""


@runtime_checkable
class ScaleRule(Protocol):
    """Read the softmax scale of each layer."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the scale of each layer."""


@runtime_checkable
class EmbeddingRule(Protocol):
    """Read the factor of the token vectors."""

    def read(self, keys: Keys, sizes: Sizes) -> EmbeddingScale | None:
        """Return the factor, or None for 1."""


@runtime_checkable
class WindowRule(Protocol):
    """Read which layers have a sliding window."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[tuple[Window | None, ...], tuple[str, ...]]:
        """Return the window of each layer, and notes."""


@runtime_checkable
class TemperatureRule(Protocol):
    """Read the query temperature of each layer."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[CurvePlan | Plan | None, ...]:
        """Return the curve of each layer."""


@runtime_checkable
class KeyHeadRule(Protocol):
    """Read the number of key heads."""

    def read(self, keys: Keys, num_heads: int) -> int:
        """Return the number."""


@runtime_checkable
class HeadRule(Protocol):
    """Read the heads of each layer."""

    def read(self, keys: Keys, sizes: Sizes) -> tuple[Heads, ...]:
        """Return the heads of each layer."""


@runtime_checkable
class LayerList(Protocol):
    """Read the types of layers, whose number no other key has."""

    def types(self, keys: Keys) -> tuple[str, ...]:
        """Return the type of each layer."""


@dataclass(frozen=True)
class ByHeadDim:
    """Scale scores by 1 / sqrt(head_dim), as almost all models do."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[float, ...]:
        """Return the same scale for each layer."""
        return tuple(heads.head_dim**-0.5 for heads in sizes.heads)


@dataclass(frozen=True)
class Unscaled:
    """Do not scale token vectors."""

    def read(self, keys: Keys, sizes: Sizes) -> None:
        """Return None."""


@dataclass(frozen=True)
class NoWindows:
    """Attend to all tokens; keys of windows are rejected."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[tuple[None, ...], tuple[()]]:
        """Return None for each layer."""
        return (None,) * sizes.layers, ()


@dataclass(frozen=True)
class NoTemperature:
    """Do not multiply queries."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[None, ...]:
        """Return None for each layer."""
        return (None,) * sizes.layers


@dataclass(frozen=True)
class MultiQuery:
    """Read the number of key heads from the flag `multi_query`: one, or as many as there are query heads.

    Args:
        grouped: whether another flag makes `num_kv_heads` the number, as in later Falcon models.
    """

    grouped: bool = False

    def read(self, keys: Keys, num_heads: int) -> int:
        """Return the number."""
        keys.known.add("multi_query")
        key_heads = keys.whole("num_kv_heads", default=num_heads) if self.grouped else num_heads
        if self.grouped and keys.flag("new_decoder_architecture", default=False):
            return key_heads
        return 1 if keys.flag("multi_query", default=True) else num_heads


@dataclass(frozen=True)
class ModelType:
    """How one model type is read.

    Args:
        readers: one for each door that the model uses.
        names: keys of its sizes.
        defaults: those of transformers for absent keys.
        scale, embedding, windows, temperature: readers of the softmax scale, the factor of token vectors, sliding
            windows and the query temperature.
        sinks: whether each head has a learned sink in the softmax, of all layers or of those with a window.
        listed: reader of the types of layers, if their number is that of a list.
        attentions: of each layer of the model's code; each counts as a layer here (LongCat has two).
        key_heads: reader of the number of key heads, if it has no key of its own.
        heads: reader of the heads of each layer, if they differ.
        token_dim: key of the features of the token table, if they may differ from the model's.
        output_dim: key of the features of the output projection, if they may differ from those of the token table.
        segments: rows of the table of segments if `type_vocab_size` is absent; None if the model has none.
        causal: whether attention is causal; or the flag that makes an encoder causal, or a key and its value.
        head_dim_read: whether the model's code reads `head_dim`, rather than dividing its features by the heads.
        can_tie: whether the model's code can tie the output projection to the token table; else the flag has no effect.
        head_width: heads have so many times the features that the model's features divided by its heads are.
        extra_rows: rows of the token table beyond the vocabulary, which the output projection lacks.
        head_dim_parts: two keys whose sum is the head_dim (latent attention), the rotated features second.
        parts: `decoder` and `encoder` -> the keys of sizes in which they differ; empty for a model of one part.
        aliases: a further name of a key that only this model type has -> the key.
        unread: keys with names of positions that the model's code does not read -> the only value that agrees with
            the code, or ANY.
        notes: further parts of the model, which are not built.
    """

    readers: tuple[Reader, ...]
    names: KeyNames = field(default_factory=lambda: LLAMA_KEYS)
    defaults: Mapping[str, object] = field(default_factory=dict)
    scale: ScaleRule = field(default_factory=ByHeadDim)
    embedding: EmbeddingRule = field(default_factory=Unscaled)
    windows: WindowRule = field(default_factory=NoWindows)
    sinks: bool | Literal["windowed"] = False
    listed: LayerList | None = None
    attentions: int = 1
    temperature: TemperatureRule = field(default_factory=NoTemperature)
    key_heads: KeyHeadRule | None = None
    heads: HeadRule | None = None
    token_dim: str | None = None
    output_dim: str | None = None
    segments: int | None = None
    causal: bool | str | tuple[str, str] = True
    head_dim_read: bool = True
    can_tie: bool = True
    head_width: int = 1
    extra_rows: int = 0
    head_dim_parts: tuple[str, str] | tuple[()] = ()
    parts: Mapping[str, KeyNames] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def names_of(self, part: str | None) -> KeyNames:
        """Return the keys of sizes of one part."""
        return {**self.names, **self.parts.get(part or "", {})}

    @property
    def all_names(self) -> set[str]:
        """The keys of sizes of all parts."""
        return {key for names in (self.names, *self.parts.values()) for keys in names.values() for key in keys}

    def read_sizes(self, keys: Keys, part: str | None) -> tuple[Sizes, tuple[str, ...]]:
        """Read the sizes that every model type has.

        Args:
            keys: the configuration.
            part: `encoder` or `decoder` of a model that has both.

        Returns:
            The sizes, and notes.

        Raises:
            SettingError, ShapeError: If sizes cannot be read, or contradict one another.
            CheckpointError: If a size is absent and has no default.
        """
        names = self.names_of(part)
        dim = keys.whole(*names["dim"])
        num_heads = keys.whole(*names["num_heads"], most=MAX_HEADS) if "num_heads" in names else 0
        token_dim = dim if self.token_dim is None else keys.whole(self.token_dim, default=dim)
        padding_idx, notes = _read_padding(keys, names["padding_idx"])
        causal = self._read_causal(keys)
        turned = not self._read_direction(keys, causal)
        sizes = Sizes(
            vocab_size=keys.whole(*names["vocab_size"]) + self.extra_rows,
            dim=dim,
            token_dim=token_dim,
            num_heads=num_heads,
            key_heads=self._read_key_heads(keys, names, num_heads),
            head_dim=self._read_head_dim(keys, names, dim, num_heads),
            layers=self._read_layers(keys, names),
            tied=keys.flag(*names["tied"], default=self.defaults.get(names["tied"][0], True) is True),
            padding_idx=padding_idx,
            max_length=keys.whole(*names["max_length"], default=None) if "max_length" in names else None,
            segments=0 if self.segments is None else keys.whole("type_vocab_size", default=self.segments, least=0),
            causal=causal and not turned and part != "encoder",
            turned=turned and part != "encoder",
            part=part,
            rotary_part=keys.whole(self.head_dim_parts[1], most=MAX_FEATURES) if self.head_dim_parts else None,
            output_dim=None if self.output_dim is None else keys.whole(self.output_dim),
            extra_rows=self.extra_rows,
        )
        if self.heads is not None:
            sizes = replace(sizes, by_layer=self.heads.read(keys, sizes))
        notes = (*notes, BOTH_WAYS) if sizes.turned else notes
        projected = f"a projection from {token_dim} to {dim} features follows the token table and is not built"
        return sizes, (*notes, projected) if token_dim != dim else notes

    def _read_causal(self, keys: Keys) -> bool:
        if isinstance(self.causal, tuple):
            return bool(keys.take(self.causal[0], default=None) == self.causal[1])
        if isinstance(self.causal, str):
            return keys.flag(self.causal, default=self.defaults.get(self.causal) is True)
        return self.causal

    def _read_direction(self, keys: Keys, causal: bool) -> bool:
        """Return the flag by which transformers makes the masks of any causal model bidirectional."""
        keys.known.add(DIRECTION)
        honoured = causal and DIRECTION not in self.unread
        if keys.values.get(DIRECTION) is None:  # transformers takes null for false
            return not (honoured and DIRECTION in keys.values)
        if honoured:
            return keys.flag(DIRECTION)
        keys.require(
            DIRECTION, causal, "its code does not read the key, fails, or reads it with one attn_implementation alone."
        )
        return True

    def _read_layers(self, keys: Keys, names: KeyNames) -> int:
        if self.listed is not None:
            return len(self.listed.types(keys))
        alternative = names.get("layers_else")
        layers = keys.whole(*names["layers"], default=REQUIRED if alternative is None else None, most=MAX_LAYERS)
        layers = keys.whole(*(alternative or ()), most=MAX_LAYERS) if layers is None else layers
        return layers * self.attentions

    def _read_key_heads(self, keys: Keys, names: KeyNames, num_heads: int) -> int:
        if self.key_heads is not None:
            return self.key_heads.read(keys, num_heads)
        if "key_heads" not in names:
            return num_heads
        key_heads = keys.whole(*names["key_heads"], default=num_heads, most=MAX_HEADS)
        if num_heads % key_heads:
            raise ShapeError(f"{num_heads} query heads cannot share {key_heads} key heads evenly.")
        return key_heads

    def _read_head_dim(self, keys: Keys, names: KeyNames, dim: int, num_heads: int) -> int:
        if self.head_dim_parts:
            parts = [keys.whole(name, most=MAX_FEATURES) for name in self.head_dim_parts]
            if "head_dim" not in self.unread:
                # without rotation no code reads the size that older files have, features by heads
                others = [] if self.readers else [dim // max(num_heads, 1)]
                _require_head_dim(keys, parts[1], sum(parts), *others)
            return sum(parts)
        if not num_heads:
            return 0
        head_dim = keys.whole(*names["head_dim"], default=None, most=MAX_FEATURES) if "head_dim" in names else None
        if head_dim is not None and self.head_dim_read:
            return head_dim
        dim *= self.head_width
        if dim % num_heads:
            raise ShapeError(f"{dim} features do not divide into {num_heads} heads of equal size.")
        if dim // num_heads > MAX_FEATURES:
            raise ShapeError(
                f"{keys.path}{names['dim'][0]}={dim:,} makes heads of {dim // num_heads:,} features, but at most "
                f"{MAX_FEATURES:,} are read."
            )
        if not self.head_dim_read:
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
