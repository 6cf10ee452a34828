"""Layouts by layer of the schemes in a comparison, in groups: which layers have windows, and what positions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from whatwhere.comparison.variants import read_name
from whatwhere.errors import SettingError
from whatwhere.where.catalogue.options import LAYER_OPTIONS, Scalar, join_options, split_layers, split_options

Reach = Literal["all", "some", "none"]
"""Which layers of a model attend within a window or a chunk."""


@dataclass(frozen=True)
class LayerKind:
    """What one layer of a layout has.

    Args:
        positions: its schemes, without options of the layer, such as "rotary" or "none+temperature".
        window, chunk: tokens that a query sees; None sees all.
        sink: whether its heads have learned sinks.
    """

    positions: str
    window: int | None = None
    chunk: int | None = None
    sink: bool = False

    @property
    def local(self) -> bool:
        """Whether it attends within a window or a chunk."""
        return self.window is not None or self.chunk is not None


@dataclass(frozen=True)
class Layout:
    """The layers of a scheme, from the first.

    Args:
        scheme: its name in the comparison.
        layers: one kind for each layer of the model.
    """

    scheme: str
    layers: tuple[LayerKind, ...]

    @property
    def windows(self) -> Reach:
        """Which layers attend within a window or a chunk: all, some or none."""
        local = [layer.local for layer in self.layers]
        return "all" if all(local) else "some" if any(local) else "none"


def layouts(schemes: Mapping[str, int]) -> list[Layout]:
    """Return the layouts of schemes, by group: no layer has a window, all have one, some have one.

    Examples:
        >>> found = layouts({"rotary@512*3/none": 4, "rotary": 4})
        >>> [(one.scheme, one.windows, one.layers[-1].positions) for one in found]
        [('rotary', 'none', 'rotary'), ('rotary@512*3/none', 'some', 'none')]
        >>> layouts({"rotary": 4, "alibi": 4})
        []
    """
    found = [Layout(name, _layers(name, count)) for name, count in schemes.items()]
    if all(len(set(one.layers)) == 1 and one.windows == "none" and not one.layers[0].sink for one in found):
        return []
    return sorted(found, key=lambda one: ("none", "all", "some").index(one.windows))


def _layers(name: str, count: int) -> tuple[LayerKind, ...]:
    try:
        kinds = [_kind(part) for part in split_layers(read_name(name)[0])]
    except SettingError:  # a scheme of the caller's own, whose name has no layers
        kinds = [LayerKind(name)]
    return tuple(kinds[number % len(kinds)] for number in range(count))


def _kind(part: str) -> LayerKind:
    """Return the kind of a layer from its part of a name."""
    doors, of_layer = [], dict[str, Scalar | None]()
    for door in part.split("+"):
        entry, options = split_options(door)
        of_layer |= {key: value for key, value in options.items() if key in LAYER_OPTIONS}
        doors.append(join_options(entry, {key: value for key, value in options.items() if key not in LAYER_OPTIONS}))
    return LayerKind(
        "+".join(doors), _tokens(of_layer, "window"), _tokens(of_layer, "chunk"), bool(of_layer.get("sink"))
    )


def _tokens(options: Mapping[str, Scalar | None], key: str) -> int | None:
    value = options.get(key)
    return value if isinstance(value, int) else None


def runs_of(layers: Iterable[LayerKind]) -> list[tuple[LayerKind, int]]:
    """Return each kind of layer with the number of layers that have it, in the order of their first layer.

    Examples:
        >>> runs_of([LayerKind("rotary", 8), LayerKind("rotary", 8), LayerKind("none")])[0]
        (LayerKind(positions='rotary', window=8, chunk=None, sink=False), 2)
    """
    counts: dict[LayerKind, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return list(counts.items())
