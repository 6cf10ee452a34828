"""Rotary positions: the wavelength of each pair against the trained and the claimed length, and what a scaling changes.

With them what else a layer does at each position: its window, its sinks and the temperature of its queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.rotary_frequencies import RotarySpectrum, rotary_agreement, rotary_spectrum
from whatwhere.analysis.subject import Absent, Subject
from whatwhere.models.configuration.plan import CurvePlan
from whatwhere.models.load_where import fill_frequencies

if TYPE_CHECKING:
    from whatwhere.models.configuration.description import Description
    from whatwhere.models.huggingface import Plan

_POINTS = 96


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreement of two rotations.

    Args:
        distances: between two tokens.
        cosine: of a vector rotated by the one and by the other, at each distance.
    """

    distances: Sequence[int]
    cosine: Float[np.ndarray, " distances"]


@dataclass(frozen=True, eq=False)
class LayerAgreement(Agreement):
    """The agreement of the rotations of two groups of layers.

    Args:
        first, second: the groups, numbered as in `RotaryReport.groups`.
    """

    first: int
    second: int


@dataclass(frozen=True, eq=False)
class RotaryLayers(RotarySpectrum):
    """The rotation that some layers share. Inherits what was computed for each pair.

    Args:
        layers: their numbers.
        scheme: its name.
        theta: the base of the frequencies.
        head_dim, rotary_dim: features of a head, and those of them that are rotated.
        interleaved: whether features 2i and 2i + 1 are a pair; else i and i + rotary_dim / 2.
        scaling: the scaling in code; None without.
        magnitude: factor of queries and keys.
        trained, claimed: positions that the model was trained on, and that the configuration allows.
        lengths: how these two are known.
        effect: of the scaling: the rotation with it against that without.
    """

    layers: Sequence[int]
    scheme: str
    theta: float
    head_dim: int
    rotary_dim: int
    interleaved: bool
    scaling: str | None
    magnitude: float
    trained: int
    claimed: int
    lengths: str
    effect: Agreement


@dataclass(frozen=True)
class WindowedLayers:
    """Layers that attend to a window of tokens alone.

    Args:
        layers: their numbers.
        size: of the window, in tokens.
        chunked: whether it is a chunk, rather than the nearest tokens.
    """

    layers: Sequence[int]
    size: int
    chunked: bool


@dataclass(frozen=True, eq=False)
class TemperatureLayers:
    """Layers that multiply queries by a function of their position.

    Args:
        layers: their numbers.
        curve: the function in code; of a learned one the scheme.
        positions: up to the claimed length.
        factors: of queries there; None where the function is learned.
    """

    layers: Sequence[int]
    curve: str
    positions: Sequence[int]
    factors: Float[np.ndarray, " positions"] | None


@dataclass(frozen=True, eq=False)
class RotaryReport:
    """The rotations of a model.

    Args:
        layers: of the model.
        without: layers that rotate nothing.
        groups: of layers that share a rotation.
        between: the first group against each other one with as many pairs.
        windows: layers with sliding windows; all others attend to every earlier token.
        sinks: layers whose heads have a learned sink in the denominator of the softmax.
        temperatures: layers whose queries are multiplied by a function of their position, after the rotation.
    """

    layers: int
    without: Sequence[int]
    groups: Sequence[RotaryLayers]
    between: Sequence[LayerAgreement]
    windows: Sequence[WindowedLayers] = ()
    sinks: Sequence[int] = ()
    temperatures: Sequence[TemperatureLayers] = ()


def rotary(subject: Subject) -> RotaryReport:
    """Return each rotation of a model, and how much those of different layers differ."""
    description = subject.description
    rotations = [
        (plan, layers) for plan, layers in layers_of(description.query_key) if plan.scheme.startswith("rotary")
    ]
    if not rotations:
        raise Absent(f"no layer of this model {'rotates queries and keys' if description.heads else 'has attention'}")
    subject.progress("examining rotary")
    examined = [_examined(plan, layers, subject) for plan, layers in rotations]
    return RotaryReport(
        layers=description.layers,
        without=[n for n, plan in enumerate(description.query_key) if plan is None],
        groups=[group for group, _ in examined],
        between=_between(examined),
        windows=[
            WindowedLayers([n for n, own in enumerate(description.windows) if own == one], one.size, one.chunked)
            for one in dict.fromkeys(description.windows)
            if one is not None
        ],
        sinks=[layer for layer, has in enumerate(description.sinks) if has],
        temperatures=_temperatures(description),
    )


def layers_of(plans: "tuple[Plan | None, ...]") -> "list[tuple[Plan, list[int]]]":
    """Return each distinct plan with the numbers of the layers that have it.

    Args:
        plans: of the layers; None for one without.
    """
    groups: list[tuple[Plan, list[int]]] = []
    for layer, plan in enumerate(plans):
        if plan is None:
            continue
        # Plans compare equal but are not hashable.
        same = next((layers for other, layers in groups if other == plan), None)
        if same is None:
            groups.append((plan, [layer]))
        else:
            same.append(layer)
    return groups


def _examined(plan: "Plan", layers: list[int], subject: Subject) -> tuple[RotaryLayers, np.ndarray]:
    from torch import tensor

    from whatwhere.where.frequencies import inverse_frequencies

    description, scheme = subject.description, cast("Any", plan.build())
    if not fill_frequencies(scheme, subject.checkpoint):
        raise Absent("its frequencies are weights (rotary_emb.alpha), which are not in the file")
    trained, claimed, lengths = _lengths(scheme.scaling, description.max_length)
    unscaled = inverse_frequencies(scheme.rotary_dim, scheme.theta).numpy()
    used = scheme.frequencies(tensor(claimed)) if scheme.follows_length else scheme.inverse_frequencies
    frequencies = used.detach().abs().numpy()  # those of nanochat are negative
    distances = _distances(claimed)
    group = RotaryLayers(
        **vars(rotary_spectrum(frequencies, unscaled, trained, claimed)),
        layers=layers,
        scheme=plan.class_name,
        theta=float(scheme.theta),
        head_dim=scheme.head_dim,
        rotary_dim=scheme.rotary_dim,
        interleaved=scheme.interleaved,
        scaling=None if scheme.scaling is None else repr(scheme.scaling),
        magnitude=float(scheme.magnitude),
        trained=trained,
        claimed=claimed,
        lengths=lengths,
        effect=Agreement(distances, rotary_agreement(frequencies, unscaled, distances)),
    )
    return group, frequencies


def _lengths(scaling: Any, max_length: int | None) -> tuple[int, int, str]:
    """Return the trained and the claimed length, and how they are known."""
    factor = getattr(scaling, "factor", 1.0)
    original = getattr(scaling, "original_length", None)
    if original is not None:
        claimed = max(max_length or 0, original if scaling is None else round(original * factor))
        return original, claimed, "the scaling names the trained length"
    if max_length is None:
        return 2048, 2048, "the configuration names no length; 2,048 is assumed"
    if factor > 1:
        trained = max(1, round(max_length / factor))
        return trained, max_length, "the configuration names no trained length; claimed length / factor is assumed"
    return max_length, max_length, "the configuration names one length, which is assumed to be the trained one"


def _between(examined: list[tuple[RotaryLayers, np.ndarray]]) -> list[LayerAgreement]:
    """Compare the rotation of each group of layers with that of the first, by distance."""
    (first, frequencies), *others = examined
    compared = []
    for n, (group, other) in enumerate(others, 1):
        if len(other) == len(frequencies):
            distances = _distances(max(first.claimed, group.claimed))
            compared.append(LayerAgreement(distances, rotary_agreement(frequencies, other, distances), 0, n))
    return compared


def _temperatures(description: "Description") -> list[TemperatureLayers]:
    from torch import tensor

    found = []
    for one in dict.fromkeys(repr(curve) for curve in description.temperatures if curve is not None):
        layers = [n for n, own in enumerate(description.temperatures) if repr(own) == one]
        curve = description.temperatures[layers[0]]
        at = [0, *_distances((description.max_length or 2) - 1)]
        factors = curve.build().at(tensor(at)).numpy() if isinstance(curve, CurvePlan) else None
        found.append(TemperatureLayers(layers, one, at, factors))
    return found


def _distances(last: int) -> list[int]:
    """Return distances that are even in their logarithm, with 1, 8, 10, 80, 100, ... among them."""
    even = {round(n) for n in np.geomspace(1, last, _POINTS)}
    return sorted(even | {n for power in range(9) for n in (10**power, 8 * 10**power) if n <= last})
