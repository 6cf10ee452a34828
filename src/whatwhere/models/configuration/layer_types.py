"""Keys that differ between layers: which layers rotate queries and keys, by which parameters; sliding windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, Protocol, runtime_checkable

from whatwhere.errors import SettingError
from whatwhere.models.configuration.keys import Keys, short_repr
from whatwhere.models.configuration.model_type import DIRECTION, Position, Sizes
from whatwhere.where.window import Window

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
INDEXED, BLOCK_SPARSE = "indexed_attention", "minimax_m3_sparse"
"""Layers in which a small network selects the keys, one by one or in blocks."""
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"
"""Layers with convolutions or a state space model beside attention, in all tokens or in a window."""
ATTENTION = (FULL, SLIDING, CHUNKED, INDEXED, BLOCK_SPARSE, HYBRID, HYBRID_SLIDING)
LINEAR, CONVOLUTION = "linear_attention", "conv"
CROSS = "cross_attention"
"""A layer that attends to pictures alone (Llama 3.2 Vision)."""
MLP, MOE = "mlp", "moe"
"""Layers that are a feed-forward network alone, dense or of experts (Nemotron-H)."""
LAYER_TYPES = (*ATTENTION, LINEAR, CONVOLUTION, MLP, MOE)
OLDER_NAMES = {"attention": FULL, "mamba": LINEAR}
BIDIRECTIONAL = "tokens attend to later tokens too (use_bidirectional_attention)"

Labels = tuple[str | None, ...]
"""For each layer the label of its set of rope parameters; None if it does not rotate."""


@runtime_checkable
class LayerRule(Protocol):
    """Read which layers rotate queries and keys."""

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...] | None]:
        """Return the label of each layer, and the layer types if they determine it."""


@dataclass(frozen=True)
class AllLayers:
    """All layers rotate by the same parameters."""

    def read(self, keys: Keys, layers: int) -> tuple[Labels, None]:
        """Return the same label for all layers."""
        return ("",) * layers, None


@dataclass(frozen=True)
class ByType:
    """Layers rotate by their type, which `layer_types` lists, or which older configurations repeat with a period.

    Args:
        period: number of layers in a period, if no key has it.
        period_key: key of the period.
        one: type of one layer in each period.
        others: type of the other layers.
        first: whether `one` is the first layer of its period rather than the last.
        from_end: whether the last period is whole, rather than the first (Muse).
        rotated: the types that rotate.
        unless: a key with which, if it is null, every layer rotates (EXAONE 4 without a window).
        one_key: a key that lists the layers of type `one`, instead of a period; without it all have this type, or none
            if `listed_only`.
        cycle: types that are repeated, instead of a period, or where the list of one_key is absent.
        at: number of a layer -> its type in spite of the cycle; -1 is the last.
        only: a key and the value of it without which no layer rotates.
        drafts_key: key of a number of layers that draft further tokens, whose types the list may end with (Step-3.7).
    """

    period: int
    period_key: str | None = None
    one: str = FULL
    others: str = SLIDING
    first: bool = False
    from_end: bool = False
    rotated: tuple[str, ...] = ATTENTION
    unless: str | None = None
    one_key: str | None = None
    listed_only: bool = False
    cycle: tuple[str, ...] = ()
    at: Mapping[int, str] = field(default_factory=dict)
    only: tuple[str, str] | None = None
    drafts_key: str | None = None

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...]]:
        """Return the type of each layer as its label, or None if the type does not rotate."""
        if self.unless is not None:
            keys.take(self.unless, default=None)
            keys.known |= {"layer_types", *self._pattern_keys()}
            if self.unless in keys.values and keys.values[self.unless] is None:
                return (FULL,) * layers, (FULL,) * layers
        types = self.types(keys, layers)
        rotated = self.rotated if self.only is None or keys.take(self.only[0], default=None) == self.only[1] else ()
        return tuple(layer_type if layer_type in rotated else None for layer_type in types), types

    def types(self, keys: Keys, layers: int) -> tuple[str, ...]:
        """Return the type of each layer, from the list if there is one, or by the period."""
        keys.known |= self._pattern_keys()
        if (listed := read_layer_types(keys, with_drafts(keys, "layer_types", layers, self.drafts_key))) is not None:
            return listed[:layers]
        if self.one_key is not None and not (self.cycle and keys.values.get(self.one_key) is None):
            return self._types_of_list(keys, self.one_key, layers)
        if self.cycle:
            types = [self.cycle[layer % len(self.cycle)] for layer in range(layers)]
            for layer, layer_type in self.at.items():
                if -layers <= layer < layers:
                    types[layer] = layer_type
            return tuple(types)
        period = self.period if self.period_key is None else keys.whole(self.period_key, default=self.period)
        shift = -layers % period if self.from_end else 0
        shift += 0 if self.first else 1
        return tuple(self.others if (layer + shift) % period else self.one for layer in range(layers))

    def _pattern_keys(self) -> set[str]:
        return {key for key in (self.period_key, self.one_key) if key is not None}

    def _types_of_list(self, keys: Keys, key: str, layers: int) -> tuple[str, ...]:
        numbers = keys.listed(key, layers, default=None)
        numbers = range(0 if self.listed_only else layers) if numbers is None else numbers
        for index, layer in enumerate(numbers):
            if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < layers:
                raise SettingError(
                    f"{keys.path}{key}[{index}] is {short_repr(layer)}, but must be the number of a layer, "
                    f"0 to {layers - 1}."
                )
        chosen = set(numbers)
        return tuple(self.one if layer in chosen else self.others for layer in range(layers))


@dataclass(frozen=True)
class DensePrefix:
    """Layers with a window rotate, and so do full ones of a dense prefix whose pattern is 1 (Command A+).

    Args:
        prefix_period, period: number of layers in a period of the prefix, and of the layers behind it, if no key has
            it; the last layer of each period has full attention.
    """

    prefix_period: int = 1
    period: int = 4

    MLP, FIRST = "mlp_layer_types", "first_k_dense_replace"
    PREFIX_PERIOD, PERIOD = "prefix_dense_sliding_window_pattern", "sliding_window_pattern"

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...]]:
        """Return the type of each layer as its label, or None if it does not rotate."""
        dense = keys.whole(self.FIRST, default=0, least=0, most=layers)
        prefix_period = keys.whole(self.PREFIX_PERIOD, default=self.prefix_period)
        period = keys.whole(self.PERIOD, default=self.period)
        listed = keys.listed(self.MLP, layers, default=None)
        mlps = ["dense"] * dense + ["sparse"] * (layers - dense) if listed is None else listed
        one_per_layer(keys.path + self.MLP, mlps, layers)
        types = read_layer_types(keys, layers)
        if types is None:
            periods = [(layer, prefix_period) for layer in range(dense)]
            periods += [(layer, period) for layer in range(layers - dense)]
            types = tuple(SLIDING if (layer + 1) % each else FULL for layer, each in periods)
        rotated = [
            each == SLIDING or (mlp == "dense" and prefix_period == 1) for each, mlp in zip(types, mlps, strict=True)
        ]
        return tuple(each if turns else None for each, turns in zip(types, rotated, strict=True)), types


@dataclass(frozen=True)
class NoRopeLayers:
    """The list `no_rope_layers` has 1 for each layer that rotates, in spite of its name, and 0 for each other one."""

    KEY, PERIOD_KEY, PERIOD = "no_rope_layers", "no_rope_layer_interval", 4

    def read(self, keys: Keys, layers: int) -> tuple[Labels, None]:
        """Return the same label for all layers that rotate."""
        keys.known |= {self.KEY, self.PERIOD_KEY}
        listed = keys.take(self.KEY, default=None)
        if listed is None or listed == []:
            period = keys.whole(self.PERIOD_KEY, default=self.PERIOD)
            listed = [int((layer + 1) % period != 0) for layer in range(layers)]
        for layer, rotated in enumerate(one_per_layer(keys.path + self.KEY, listed, layers)):
            if isinstance(rotated, bool) or rotated not in (0, 1):
                raise SettingError(
                    f"{keys.path}{self.KEY}[{layer}] is {short_repr(rotated)}, but must be 1 (the layer rotates) or 0."
                )
        return tuple("" if rotated else None for rotated in listed), None


@runtime_checkable
class Pattern(Protocol):
    """Determine the type of each layer if the configuration does not list them."""

    def types(self, keys: Keys, layers: int) -> tuple[str, ...]:
        """Return one type for each layer."""


@dataclass(frozen=True)
class FromLayer:
    """Layers from `start` on have the window; or, if alternating, every second layer before it, as in Qwen2-MoE.

    Args:
        start: number of the layer, if no key has it.
        key: of this number.
        alternating: use the second rule.
    """

    start: int
    key: str | None = "max_window_layers"
    alternating: bool = False

    def types(self, keys: Keys, layers: int) -> tuple[str, ...]:
        """Return the type of each layer, from the list if there is one, or by its number."""
        start = self.start if self.key is None else keys.whole(self.key, default=self.start, least=0)
        if (listed := read_layer_types(keys, layers)) is not None:
            return listed
        if self.alternating:
            return tuple(SLIDING if layer < start and layer % 2 == 0 else FULL for layer in range(layers))
        return tuple(SLIDING if layer >= start else FULL for layer in range(layers))


@dataclass(frozen=True)
class Windows:
    """Read the sliding window of layers.

    Args:
        key: of its size in tokens, including that of the query.
        by: which layers have it: `every` layer with attention; by the `type` that was read with the rotary positions;
            those that are `rotated` or `unrotated`, unless there are `layer_types`; or by a pattern.
        switch: a flag without which no layer has it.
        halved: if the key counts both sides of a token, the number that is added to its half; otherwise None.
        added: to the size: 1 if the key counts the tokens on one side, without that of the query.
        added_to: the part of a model to whose windows it is added; None is all.
        bidirectional: whether `use_bidirectional_attention` makes the key count both sides (EmbeddingGemma).
        chunked: whether tokens attend within chunks of this size (Llama 4), rather than to the nearest tokens.
        windowed: type of the layers with the window.
        previous: a key of the size without the query's own token, which goes before the other one (MiMo-V2).
    """

    key: str = "sliding_window"
    by: Pattern | Literal["every", "type", "rotated", "unrotated"] = "type"
    switch: str | None = None
    halved: int | None = None
    added: int = 0
    added_to: str | None = None
    bidirectional: bool = False
    chunked: bool = False
    windowed: str = SLIDING
    previous: str | None = None

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[tuple[Window | None, ...], tuple[str, ...]]:
        """Return the window of each layer, and notes."""
        on = self.switch is None or keys.flag(self.switch, default=False)
        size = keys.whole(self.key, default=None, least=1 if on else 0)
        before = None if self.previous is None else keys.whole(self.previous, default=None)
        size = size if before is None else before + 1
        types = self._types(keys, sizes, position, on and size is not None)
        both_sides = self.bidirectional and keys.flag("use_bidirectional_attention", default=False)
        if self._windowed in types and (size is None or not on):
            raise SettingError(
                f"layer {types.index(self._windowed)} is of the type {self._windowed}, but {keys.path}{self.key} is "
                f"{short_repr(size)}{'' if on else f' and {self.switch} is off'}: the number of tokens that it attends "
                "to is missing."
            )
        if self.halved is not None and size is not None:  # transformers writes the half too
            keys.require("sliding_window", size // 2, f"it is half of {self.key}.")
        halved = 1 if both_sides else self.halved
        size = size if halved is None or size is None else size // 2 + halved
        size = None if size is None else size + self._added(sizes.part) + sizes.turned
        if sizes.turned and self.chunked and self._windowed in types:
            raise SettingError(
                f"{keys.path}{DIRECTION} is False, but chunks of {keys.owner!r} stay causal in transformers: layers "
                "would attend in different directions, which whatwhere does not read."
            )
        window = Window(max(size, 1), self.chunked) if size is not None and on else None
        windows = tuple(window if layer_type == self._windowed else None for layer_type in types)
        notes = (BIDIRECTIONAL,) if both_sides else ()
        return windows, (*notes, *_count_windows(windows))

    @property
    def _windowed(self) -> str:
        """The type of layers with the window."""
        return CHUNKED if self.chunked else self.windowed

    def _added(self, part: str | None) -> int:
        return self.added if self.added_to in (None, part) else 0

    def _types(self, keys: Keys, sizes: Sizes, position: Position, on: bool) -> tuple[str, ...]:
        """Return the type of each layer."""
        if self.by == "type":
            return position.layer_types or (FULL,) * sizes.layers
        if self.by == "every":
            return self._types_of_every(keys, sizes, position, on)
        if isinstance(self.by, str):
            if (listed := read_layer_types(keys, sizes.layers)) is not None:
                return listed
            rotated = [plan is not None for plan in position.query_key or ()]
            return tuple(self._windowed if on and each == (self.by == "rotated") else FULL for each in rotated)
        types = self.by.types(keys, sizes.layers)
        if on or not isinstance(self.by, FromLayer) or keys.values.get("layer_types") is not None:
            return types
        return (FULL,) * sizes.layers

    def _types_of_every(self, keys: Keys, sizes: Sizes, position: Position, on: bool) -> tuple[str, ...]:
        types = position.layer_types or (FULL,) * sizes.layers
        windowed = tuple(SLIDING if layer_type == FULL and on else layer_type for layer_type in types)
        if position.layer_types is None and read_layer_types(keys, sizes.layers) not in (None, windowed):
            raise SettingError(
                f"{keys.path}layer_types names types of layers, but the code of {keys.owner!r} does not read it: by "
                f"{self.key} all are {windowed[0]}.\nRemove it, or use a model type whose layers differ, such as "
                "ministral."
            )
        return windowed


@dataclass(frozen=True)
class GlobalLocal:
    """Read GPT-Neo's windows: `attention_types` lists patterns of layers, each with its number of repetitions."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[tuple[Window | None, ...], tuple[str, ...]]:
        """Return the window of each layer, and notes."""
        size = keys.whole("window_size")
        types = self._read_types(keys, sizes.layers)
        repeated = keys.take("attention_layers", default=None)
        if repeated is not None and list(repeated if isinstance(repeated, list | tuple) else ()) != types:
            raise SettingError(
                f"{keys.path}attention_layers is {short_repr(repeated)}, but attention_types makes it "
                f"{short_repr(types)}: keep one of them."
            )
        windows = tuple(Window(size) if layer_type == "local" else None for layer_type in types)
        return windows, _count_windows(windows)

    def _read_types(self, keys: Keys, layers: int) -> list[str]:
        patterns: list[tuple[list[str], int]] = []
        for entry in keys.listed("attention_types", layers):
            pattern, times = entry if isinstance(entry, list | tuple) and len(entry) == 2 else (None, None)
            if (
                not isinstance(pattern, list | tuple)
                or not isinstance(times, int)
                or not 0 <= times <= layers
                or any(layer_type not in ("global", "local") for layer_type in pattern)
            ):
                raise SettingError(
                    f"{keys.path}attention_types has {short_repr(entry)}, but needs pairs such as "
                    "[['global', 'local'], 12]."
                )
            patterns.append((list(pattern), times))
        if (count := sum(len(pattern) * times for pattern, times in patterns)) != layers:
            raise SettingError(
                f"{keys.path}attention_types names {count} layers, but there are {layers}: "
                f"write [[['global', 'local'], {max(layers // 2, 1)}]], or one entry for each."
            )
        return [layer_type for pattern, times in patterns for _ in range(times) for layer_type in pattern]


def _count_windows(windows: tuple[Window | None, ...]) -> tuple[str, ...]:
    count = sum(window is not None for window in windows)
    return (f"{count} of {len(windows)} layers have windows: see `windows`",) if count else ()


def read_layer_types(keys: Keys, layers: int) -> tuple[str, ...] | None:
    """Read `layer_types`; None if there is no such list.

    Args:
        keys: the configuration.
        layers: number of layers.

    Returns:
        The type of each layer, by its current name.

    Raises:
        SettingError: If the list has another length, or an unknown type.
    """
    value = keys.take("layer_types", default=None)
    if value is None:
        return None
    listed = one_per_layer(f"{keys.path}layer_types", value, layers)
    for layer, layer_type in enumerate(listed):
        if not isinstance(layer_type, str) or layer_type not in (*LAYER_TYPES, *OLDER_NAMES):
            near = get_close_matches(layer_type, LAYER_TYPES, n=1) if isinstance(layer_type, str) else []
            raise SettingError(
                f"a configuration got {keys.path}layer_types[{layer}]={short_repr(layer_type)}, but knows only: "
                f"{', '.join(LAYER_TYPES)}.{f' Did you mean {near[0]!r}?' if near else ''}"
            )
    return tuple(OLDER_NAMES.get(layer_type, layer_type) for layer_type in listed)


def with_drafts(keys: Keys, name: str, layers: int, drafts_key: str | None) -> int:
    """Return the number of entries that a list by layer has: one for each layer, and for each that drafts if it has.

    Args:
        keys: the configuration.
        name: key of the list.
        layers: number of layers.
        drafts_key: key of the number of layers that draft; None is none.
    """
    drafts = 0 if drafts_key is None else keys.whole(drafts_key, default=0, least=0, most=layers)
    listed = keys.values.get(name)
    return layers + drafts if isinstance(listed, list | tuple) and len(listed) == layers + drafts else layers


def one_per_layer(path: str, listed: Any, layers: int) -> Sequence[Any]:
    """Return a list, if it has one entry for each layer.

    Args:
        path: of its key, for messages.
        listed: the value of the key.
        layers: their number.

    Raises:
        SettingError: If it is no list, or has another length.

    Examples:
        >>> one_per_layer("layer_types", ["full_attention"], 2)
        Traceback (most recent call last):
        whatwhere.errors.SettingError: layer_types must be a list of one entry for each of 2 layers, but has 1.
    """
    if not isinstance(listed, list | tuple):
        raise SettingError(
            f"{path} is {short_repr(listed)}, but must be a list of one entry for each of {layers} layers."
        )
    if len(listed) != layers:
        raise SettingError(f"{path} must be a list of one entry for each of {layers} layers, but has {len(listed)}.")
    return listed
