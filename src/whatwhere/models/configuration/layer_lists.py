"""Lists of the types of layers under other keys than `layer_types`: of Zamba 2, RecurrentGemma and Nemotron-H."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from whatwhere.errors import SettingError
from whatwhere.models.configuration.keys import Keys, short_repr
from whatwhere.models.configuration.layer_types import (
    ATTENTION,
    FULL,
    HYBRID,
    LINEAR,
    MLP,
    MOE,
    OLDER_NAMES,
    Labels,
    one_per_layer,
)
from whatwhere.models.configuration.model_type import MAX_LAYERS, Position, Sizes


@dataclass(frozen=True)
class HybridIfFlag:
    """The layers of the type `hybrid` rotate if a flag is on, and none otherwise, as in Zamba 2."""

    KEY, LISTED = "use_mem_rope", ("layers_block_type", "layer_types")
    HYBRIDS = (6, 12, 18, 24, 30, 36, 42, 47, 51)
    """Numbers of these layers if there is no list."""

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...]]:
        """Return the same label for all layers that rotate, and the types."""
        listed = keys.take(*self.LISTED, default=None)
        types = tuple(HYBRID if layer in self.HYBRIDS else LINEAR for layer in range(layers))
        if listed is not None:
            checked = one_per_layer(keys.path + self.LISTED[0], listed, layers)
            types = tuple(OLDER_NAMES.get(each, each) if isinstance(each, str) else each for each in checked)
        for layer, each in enumerate(types):
            if each not in (HYBRID, LINEAR):
                raise SettingError(
                    f"{keys.path}{self.LISTED[0]}[{layer}] is {short_repr(each)}, but must be {HYBRID} or {LINEAR}."
                )
        on = keys.flag(self.KEY, default=False)
        return tuple("" if on and each == HYBRID else None for each in types), types


@dataclass(frozen=True)
class RepeatedBlocks:
    """Layers are of types that a list repeats until there are as many as needed: RecurrentGemma.

    Args:
        names: type in the list -> type of a layer.
        default: the list, if the key is absent.
    """

    names: Mapping[str, str]
    default: tuple[str, ...] = ("recurrent", "recurrent", "attention")

    KEY = "block_types"

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...]]:
        """Return the type of each layer as its label, or None if it has no attention."""
        blocks = keys.listed(self.KEY, layers, default=self.default) or self.default
        for index, block in enumerate(blocks):
            if not isinstance(block, str) or block not in self.names:
                raise SettingError(
                    f"{keys.path}{self.KEY}[{index}] is {short_repr(block)}, but must be {' or '.join(self.names)}."
                )
        types = tuple(self.names[blocks[layer % len(blocks)]] for layer in range(layers))
        return tuple(each if each in ATTENTION else None for each in types), types


@dataclass(frozen=True)
class LayerPattern:
    """The types of layers without positions are a list, or a text with a letter for each layer, as in Nemotron-H."""

    KEYS, PATTERN = ("layers_block_type", "layer_types"), "hybrid_override_pattern"
    LETTERS: ClassVar[Mapping[str, str]] = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE}
    DEFAULT = (LINEAR, MOE, FULL, MLP)

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the type of each layer."""
        return Position(layer_types=self.types(keys))

    def types(self, keys: Keys) -> tuple[str, ...]:
        """Return the type of each layer; transformers does not read `num_hidden_layers` either."""
        listed, pattern = keys.take(*self.KEYS, default=None), keys.take(self.PATTERN, default=None)
        if listed is None and pattern is None:
            return self.DEFAULT
        if listed is None:
            unknown = [letter for letter in str(pattern) if letter not in self.LETTERS]
            if not isinstance(pattern, str) or unknown or not 0 < len(pattern) <= MAX_LAYERS:
                letters = ", ".join(self.LETTERS)
                raise SettingError(
                    f"{keys.path}{self.PATTERN} is {short_repr(pattern)}, but must be a text of {letters}."
                )
            return tuple(self.LETTERS[letter] for letter in pattern)
        if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MAX_LAYERS:
            raise SettingError(f"{keys.path}{self.KEYS[0]} is {short_repr(listed)}, but must be a list of layer types.")
        types = tuple(OLDER_NAMES.get(each, each) if isinstance(each, str) else each for each in listed)
        for layer, each in enumerate(types):
            if each not in self.LETTERS.values():
                raise SettingError(
                    f"{keys.path}{self.KEYS[0]}[{layer}] is {short_repr(each)}, but must be one of "
                    f"{', '.join(self.LETTERS.values())}."
                )
        return types
