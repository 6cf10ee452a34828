"""Which layers of a model rotate queries and keys, by which rope parameters, and which have a sliding window."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, Protocol, runtime_checkable

from whatwhere.errors import SettingError
from whatwhere.models.configuration.description import Description, Window
from whatwhere.models.configuration.keys import Keys, short_repr
from whatwhere.models.configuration.model_type import Position, Sizes

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
ATTENTION = (FULL, SLIDING, CHUNKED)
LAYER_TYPES = (*ATTENTION, "linear_attention", "conv")
OLDER_NAMES = {"attention": FULL, "mamba": "linear_attention"}
BIDIRECTIONAL = "tokens attend to later tokens too (use_bidirectional_attention)"

Labels = tuple[str | None, ...]
"""For each layer the label of its rope parameters, or None where it is not rotated."""


@runtime_checkable
class LayerRule(Protocol):
    """Read which layers are rotated, and write it."""

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...] | None]:
        """Return the label of each layer, and the layer types where they decide it."""

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the keys that describe it."""


@dataclass(frozen=True)
class AllLayers:
    """Every layer is rotated, all by the same parameters."""

    def read(self, keys: Keys, layers: int) -> tuple[Labels, None]:
        """Return one label for all."""
        return ("",) * layers, None

    def write(self, description: Description) -> Mapping[str, object]:
        """Return nothing: no key describes it."""
        return {}


@dataclass(frozen=True)
class ByType:
    """Layers are rotated by their type, from `layer_types` or from the period of older configurations.

    Args:
        period: number of layers of a period, if no key has it.
        period_key: the key of the period.
        one: type of one layer of each period.
        others: type of the other layers.
        first: whether the one is the first layer of its period instead of the last.
        rotated: the types that are rotated; layers of others are not.
        unless: a key that, being null, makes every layer rotated (EXAONE 4 without a window).
        one_key: a key that lists the numbers of the layers of type `one`, in place of a period; without it all are.
    """

    period: int
    period_key: str | None = None
    one: str = FULL
    others: str = SLIDING
    first: bool = False
    rotated: tuple[str, ...] = ATTENTION
    unless: str | None = None
    one_key: str | None = None

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...]]:
        """Return the type of each layer as its label, or None where the type is not rotated."""
        if self.unless is not None:
            keys.take(self.unless, default=None)
            keys.known |= {"layer_types", *self._pattern_keys()}
            if self.unless in keys.values and keys.values[self.unless] is None:
                return (FULL,) * layers, (FULL,) * layers
        types = self.types(keys, layers)
        return tuple(kind if kind in self.rotated else None for kind in types), types

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the list of types."""
        types = description.layer_types or ()
        written: dict[str, object] = {"layer_types": list(types)}
        all_rotated = all(plan is not None for plan in description.query_key)
        if self.unless is not None and all_rotated and not set(types) & set(self.rotated):
            written[self.unless] = None
        return written

    def types(self, keys: Keys, layers: int) -> tuple[str, ...]:
        """Return the type of each layer, from the list or else by the period."""
        keys.known |= self._pattern_keys()
        if (listed := read_layer_types(keys, layers)) is not None:
            return listed
        if self.one_key is not None:
            return self._types_of_list(keys, self.one_key, layers)
        period = self.period if self.period_key is None else keys.whole(self.period_key, default=self.period)
        shift = 0 if self.first else 1
        return tuple(self.others if (layer + shift) % period else self.one for layer in range(layers))

    def _pattern_keys(self) -> set[str]:
        return {key for key in (self.period_key, self.one_key) if key is not None}

    def _types_of_list(self, keys: Keys, key: str, layers: int) -> tuple[str, ...]:
        numbers = keys.listed(key, layers, default=None)
        numbers = range(layers) if numbers is None else numbers
        for index, layer in enumerate(numbers):
            if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < layers:
                raise SettingError(
                    f"{keys.path}{key}[{index}] is {short_repr(layer)}, but must be the number of a layer, "
                    f"0 to {layers - 1}."
                )
        chosen = set(numbers)
        return tuple(self.one if layer in chosen else self.others for layer in range(layers))


@dataclass(frozen=True)
class NoRopeLayers:
    """A list has 1 for each layer that is rotated and 0 for each that is not, in spite of its name.

    Args:
        untuned: a flag that must be off, which multiplies the queries of layers that are not rotated (Llama 4).
    """

    untuned: str | None = None

    KEY, PERIOD_KEY, PERIOD = "no_rope_layers", "no_rope_layer_interval", 4

    def read(self, keys: Keys, layers: int) -> tuple[Labels, None]:
        """Return one label for all that are rotated."""
        if self.untuned is not None and keys.flag(self.untuned, default=True):
            raise SettingError(
                f"{self.untuned} is on: layers without rope multiply queries by a step function of their position, for "
                f"which whatwhere has no scheme.\nWhere positions stay below floor_scale the factor is 1: then read it "
                f"with {self.untuned}=False."
            )
        keys.known |= {self.KEY, self.PERIOD_KEY}
        listed = keys.take(self.KEY, default=None)
        if listed is None or listed == []:
            period = keys.whole(self.PERIOD_KEY, default=self.PERIOD)
            listed = [int((layer + 1) % period != 0) for layer in range(layers)]
        for layer, rotated in enumerate(_one_per_layer(keys.path + self.KEY, listed, layers)):
            if isinstance(rotated, bool) or rotated not in (0, 1):
                raise SettingError(
                    f"{keys.path}{self.KEY}[{layer}] is {short_repr(rotated)}, but must be 1 (the layer is rotated) "
                    "or 0."
                )
        return tuple("" if rotated else None for rotated in listed), None

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the list."""
        off = {} if self.untuned is None else {self.untuned: False}
        return {self.KEY: [int(plan is not None) for plan in description.query_key], **off}


@runtime_checkable
class Pattern(Protocol):
    """Name the type of each layer where the configuration does not list them."""

    def types(self, keys: Keys, layers: int) -> tuple[str, ...]:
        """Return one type for each layer."""


@dataclass(frozen=True)
class FromLayer:
    """Layers from a number on have the window; or, alternating, every second layer below it, as in Qwen2-MoE.

    Args:
        start: the number, if no key has it.
        key: of the number.
        alternating: the second rule.
    """

    start: int
    key: str | None = "max_window_layers"
    alternating: bool = False

    def types(self, keys: Keys, layers: int) -> tuple[str, ...]:
        """Return one type for each layer, from the list or else by the number."""
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
        key: of its size, in tokens, that of the query included.
        by: which layers have it: `every` layer with attention; by the `type` that was read with the rotary positions;
            those that are `rotated` or `unrotated`, unless `layer_types` decides it; or by a pattern.
        switch: a flag without which no layer has it.
        halved: the key counts both sides of a token: what is added to its half; None where it is the size itself.
        bidirectional: whether `use_bidirectional_attention` makes it one that counts both sides (EmbeddingGemma).
        chunked: tokens attend within chunks of this size, not to the nearest ones (Llama 4).
    """

    key: str = "sliding_window"
    by: Pattern | Literal["every", "type", "rotated", "unrotated"] = "type"
    switch: str | None = None
    halved: int | None = None
    bidirectional: bool = False
    chunked: bool = False

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[tuple[Window | None, ...], tuple[str, ...]]:
        """Return the window of each layer, and notes."""
        on = self.switch is None or keys.flag(self.switch, default=False)
        size = keys.whole(self.key, default=None, least=1 if on else 0)
        types = self._types(keys, sizes, position, on and size is not None)
        both_sides = self.bidirectional and keys.flag("use_bidirectional_attention", default=False)
        if self._windowed in types and (size is None or not on):
            raise SettingError(
                f"layer {types.index(self._windowed)} is of the type {self._windowed}, but {keys.path}{self.key} is "
                f"{short_repr(size)}{'' if on else f' and {self.switch} is off'}: the number of tokens that it attends "
                "to is missing."
            )
        if self.halved is not None and size is not None:  # transformers writes the half as well
            keys.require("sliding_window", size // 2, f"it is half of {self.key}.")
        halved = 1 if both_sides else self.halved
        size = size if halved is None or size is None else size // 2 + halved
        window = Window(max(size, 1), self.chunked) if size is not None and on else None
        windows = tuple(window if kind == self._windowed else None for kind in types)
        notes = (BIDIRECTIONAL,) if both_sides else ()
        return windows, (*notes, *_count_windows(windows))

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the size, and the layers where no other keys have them."""
        window = next((window for window in description.windows if window is not None), None)
        written: dict[str, object] = {} if self.switch is None else {self.switch: window is not None}
        if window is not None:
            written[self.key] = self._stored_size(window.size, description)
        elif self.by == "every":
            written[self.key] = None
        if self.bidirectional and BIDIRECTIONAL in description.notes:
            written["use_bidirectional_attention"] = True
        if self.by not in ("every", "type"):
            written["layer_types"] = [FULL if window is None else self._windowed for window in description.windows]
        return written

    @property
    def _windowed(self) -> str:
        """The type of layers with the window."""
        return CHUNKED if self.chunked else SLIDING

    def _stored_size(self, size: int, description: Description) -> int:
        halved = 1 if self.bidirectional and BIDIRECTIONAL in description.notes else self.halved
        return size if halved is None else (size - halved) * 2

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
        windowed = tuple(SLIDING if kind == FULL and on else kind for kind in types)
        if position.layer_types is None and read_layer_types(keys, sizes.layers) not in (None, windowed):
            raise SettingError(
                f"{keys.path}layer_types names types of layers, but the code of {keys.owner!r} does not read it: by "
                f"{self.key} all are {windowed[0]}.\nRemove it, or use a model type whose layers differ, such as "
                "ministral."
            )
        return windowed


@dataclass(frozen=True)
class GlobalLocal:
    """Read GPT-Neo's windows: `attention_types` is a list of patterns, each with its number of repetitions."""

    def read(self, keys: Keys, sizes: Sizes, position: Position) -> tuple[tuple[Window | None, ...], tuple[str, ...]]:
        """Return the window of each layer, and notes."""
        size = keys.whole("window_size")
        kinds = self._kinds(keys, sizes.layers)
        repeated = keys.take("attention_layers", default=None)
        if repeated is not None and list(repeated if isinstance(repeated, list | tuple) else ()) != kinds:
            raise SettingError(
                f"{keys.path}attention_layers is {short_repr(repeated)}, but attention_types makes it "
                f"{short_repr(kinds)}: keep one of them."
            )
        windows = tuple(Window(size) if kind == "local" else None for kind in kinds)
        return windows, _count_windows(windows)

    def write(self, description: Description) -> Mapping[str, object]:
        """Return the list, and the size."""
        kinds = ["global" if window is None else "local" for window in description.windows]
        size = next((window.size for window in description.windows if window is not None), None)
        written = {"attention_types": [[kinds, 1]], "attention_layers": kinds}
        return written if size is None else {**written, "window_size": size}

    def _kinds(self, keys: Keys, layers: int) -> list[str]:
        patterns: list[tuple[list[str], int]] = []
        for entry in keys.listed("attention_types", layers):
            pattern, times = entry if isinstance(entry, list | tuple) and len(entry) == 2 else (None, None)
            if (
                not isinstance(pattern, list | tuple)
                or not isinstance(times, int)
                or not 0 <= times <= layers
                or any(kind not in ("global", "local") for kind in pattern)
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
        return [kind for pattern, times in patterns for _ in range(times) for kind in pattern]


def _count_windows(windows: tuple[Window | None, ...]) -> tuple[str, ...]:
    count = sum(window is not None for window in windows)
    return (f"{count} of {len(windows)} layers have windows: see `windows`",) if count else ()


def read_layer_types(keys: Keys, layers: int) -> tuple[str, ...] | None:
    """Return the type of each layer by `layer_types`, or None where there is no such list.

    Args:
        keys: the configuration.
        layers: number of layers.

    Returns:
        The types by their newer names.

    Raises:
        SettingError: the list has another length, or an unknown type.
    """
    value = keys.take("layer_types", default=None)
    if value is None:
        return None
    listed = _one_per_layer(f"{keys.path}layer_types", value, layers)
    for layer, kind in enumerate(listed):
        if not isinstance(kind, str) or kind not in (*LAYER_TYPES, *OLDER_NAMES):
            near = get_close_matches(kind, LAYER_TYPES, n=1) if isinstance(kind, str) else []
            raise SettingError(
                f"a configuration got {keys.path}layer_types[{layer}]={short_repr(kind)}, but knows only: "
                f"{', '.join(LAYER_TYPES)}.{f' Did you mean {near[0]!r}?' if near else ''}"
            )
    return tuple(OLDER_NAMES.get(kind, kind) for kind in listed)


def _one_per_layer(path: str, listed: Any, layers: int) -> Sequence[Any]:
    if not isinstance(listed, list | tuple):
        raise SettingError(
            f"{path} is {short_repr(listed)}, but must be a list of one entry for each of {layers} layers."
        )
    if len(listed) != layers:
        raise SettingError(f"{path} must be a list of one entry for each of {layers} layers, but has {len(listed)}.")
    return listed
