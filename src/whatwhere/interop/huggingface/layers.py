"""Which layers turn queries and keys, and by which set of rope parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from whatwhere.checks import require_choice
from whatwhere.errors import SettingError
from whatwhere.interop.huggingface.description import Description
from whatwhere.interop.huggingface.keys import Keys

ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")
KINDS = (*ATTENDING, "linear_attention", "conv")
OLDER = {"attention": "full_attention", "mamba": "linear_attention"}

Labels = tuple[str | None, ...]
"""For each layer the kind of its rope, or None where it has none."""


@runtime_checkable
class LayerRule(Protocol):
    """Say which layers turn, and write it back."""

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...] | None]:
        """Give the label of each layer, and the kinds of the layers where they bear on it."""

    def write(self, description: Description) -> dict[str, Any]:
        """Give the keys that say it."""


@dataclass(frozen=True)
class AllLayers:
    """Every layer turns, and alike."""

    def read(self, keys: Keys, layers: int) -> tuple[Labels, None]:
        """Give one label for all."""
        return ("",) * layers, None

    def write(self, description: Description) -> dict[str, Any]:
        """Give nothing: no key says it."""
        return {}


@dataclass(frozen=True)
class ByKind:
    """Layers turn by their kind, in `layer_types` or by the period of older configurations.

    Args:
        every: the period, if no key gives it.
        key: the key of the period.
        marked: the kind of the one layer of each period.
        others: the kind of the other layers.
        leads: the marked layer leads its period, instead of ending it.
        turning: the kinds that turn; the others have no rope.
        unless: a key that, being null, makes every layer turn (EXAONE 4 without a window).
        marks: a key that lists the marked layers by number, in place of a period; without it all are marked.
    """

    every: int
    key: str | None = None
    marked: str = "full_attention"
    others: str = "sliding_attention"
    leads: bool = False
    turning: tuple[str, ...] = ATTENDING
    unless: str | None = None
    marks: str | None = None

    def read(self, keys: Keys, layers: int) -> tuple[Labels, tuple[str, ...]]:
        """Give each layer's kind as its label, or None if its kind does not turn."""
        if self.unless is not None:
            keys.take(self.unless, default=None)
            if self.unless in keys.values and keys.values[self.unless] is None:
                return ("full_attention",) * layers, ("full_attention",) * layers
        kinds = self._kinds(keys, layers)
        return tuple(kind if kind in self.turning else None for kind in kinds), kinds

    def write(self, description: Description) -> dict[str, Any]:
        """Give the list of kinds."""
        kinds = description.layer_types or ()
        written: dict[str, Any] = {"layer_types": list(kinds)}
        turns = [plan is not None for plan in description.query_key]
        if self.unless is not None and all(turns) and not set(kinds) & set(self.turning):
            written[self.unless] = None
        return written

    def _kinds(self, keys: Keys, layers: int) -> tuple[str, ...]:
        listed = keys.take("layer_types", default=None)
        keys.known |= {name for name in (self.key, self.marks) if name is not None}
        if listed is not None:
            kinds = tuple(OLDER.get(kind, kind) for kind in _one_for_each_layer("layer_types", listed, layers))
            for layer, kind in enumerate(kinds):
                require_choice("a configuration", f"layer_types[{layer}]", kind, KINDS)
            return kinds
        if self.marks is not None:
            marked = keys.take(self.marks, default=range(layers))
            return tuple(self.marked if layer in marked else self.others for layer in range(layers))
        period = self.every if self.key is None else keys.whole(self.key, default=self.every)
        shift = 0 if self.leads else 1
        return tuple(self.others if (layer + shift) % period else self.marked for layer in range(layers))


@dataclass(frozen=True)
class Listed:
    """A list has 1 for each layer that turns and 0 for each that does not, whatever its name suggests.

    Args:
        key: of the list.
        interval_key, interval: every so many layers one does not turn, if there is no list.
        untuned: a flag that must be off, which multiplies the queries of layers that do not turn (Llama 4).
    """

    key: str = "no_rope_layers"
    interval_key: str = "no_rope_layer_interval"
    interval: int = 4
    untuned: str | None = None

    def read(self, keys: Keys, layers: int) -> tuple[Labels, None]:
        """Give one label for all that turn."""
        if self.untuned is not None and keys.flag(self.untuned, default=True):
            raise SettingError(
                f"{self.untuned} is on: layers without rope multiply queries by a step of their position, for which "
                f"whatwhere has no scheme.\nWhere positions stay below floor_scale the factor is 1: then read it with "
                f"{self.untuned}=False."
            )
        keys.known |= {self.key, self.interval_key}
        listed = keys.take(self.key, default=None)
        if not listed:
            period = keys.whole(self.interval_key, default=self.interval)
            listed = [int((layer + 1) % period != 0) for layer in range(layers)]
        for layer, turns in enumerate(_one_for_each_layer(self.key, listed, layers)):
            if turns not in (0, 1):
                raise SettingError(f"{self.key}[{layer}] is {turns!r}, but must be 1 (the layer turns) or 0.")
        return tuple("" if turns else None for turns in listed), None

    def write(self, description: Description) -> dict[str, Any]:
        """Give the list."""
        off = {} if self.untuned is None else {self.untuned: False}
        return {self.key: [int(plan is not None) for plan in description.query_key], **off}


def _one_for_each_layer(name: str, listed: Any, layers: int) -> Sequence[Any]:
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) != layers:
        size = len(listed) if isinstance(listed, Sequence) else 0
        raise SettingError(f"{name} must be a list of one entry for each of {layers} layers, but has {size}.")
    return listed
