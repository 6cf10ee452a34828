"""Rotary: the wavelength of each pair against the trained and the claimed length, and what a scaling changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.rotary_frequencies import RotarySpectrum, rotary_agreement, rotary_spectrum
from whatwhere.inspection.subject import Absent, Subject

if TYPE_CHECKING:
    from whatwhere.models.huggingface import Description, Plan

_POINTS = 96


@dataclass(frozen=True, eq=False)
class Agreement:
    """How alike two rotations are.

    Args:
        distances: between two tokens.
        cosine: of a vector rotated by the one and by the other, at each distance.
    """

    distances: Sequence[int]
    cosine: Float[np.ndarray, " distances"]


@dataclass(frozen=True, eq=False)
class LayerAgreement(Agreement):
    """How alike the rotations of two groups of layers are.

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


@dataclass(frozen=True, eq=False)
class RotaryReport:
    """The rotations of a model.

    Args:
        layers: of the model.
        without: layers that rotate nothing.
        groups: of layers that share a rotation.
        between: the first group against each other one with as many pairs.
    """

    layers: int
    without: Sequence[int]
    groups: Sequence[RotaryLayers]
    between: Sequence[LayerAgreement]


def rotary(subject: Subject) -> RotaryReport:
    """Return each rotation of a model, and how much those of different layers differ."""
    description = subject.description
    rotations = [
        (plan, layers) for plan, layers in layers_of(description.query_key) if plan.scheme.startswith("rotary")
    ]
    if not rotations:
        raise Absent("no layer of this model rotates queries and keys")
    subject.progress("examining rotary")
    found = [_examined(plan, layers, description) for plan, layers in rotations]
    return RotaryReport(
        layers=description.layers,
        without=[n for n, plan in enumerate(description.query_key) if plan is None],
        groups=[group for group, _ in found],
        between=_between(found),
    )


def layers_of(plans: "tuple[Plan | None, ...]") -> "list[tuple[Plan, list[int]]]":
    """Return each distinct plan with the numbers of the layers that have it.

    Args:
        plans: of the layers; None for one without.
    """
    found: list[tuple[Plan, list[int]]] = []
    for layer, plan in enumerate(plans):
        if plan is None:
            continue
        # Plans compare equal but are not hashable.
        same = next((layers for other, layers in found if other == plan), None)
        if same is None:
            found.append((plan, [layer]))
        else:
            same.append(layer)
    return found


def _examined(plan: "Plan", layers: list[int], description: "Description") -> tuple[RotaryLayers, np.ndarray]:
    from torch import tensor

    from whatwhere.where.frequencies import inverse_frequencies

    scheme: Any = plan.build()
    trained, claimed, lengths = _lengths(scheme.scaling, description.max_length)
    unscaled = inverse_frequencies(scheme.rotary_dim, scheme.theta).numpy()
    used = scheme.frequencies(tensor(claimed)) if scheme.follows_length else scheme.inverse_frequencies
    frequencies = used.numpy()
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


def _between(found: list[tuple[RotaryLayers, np.ndarray]]) -> list[LayerAgreement]:
    """Compare the rotation of each group of layers with that of the first, by distance."""
    (first, frequencies), *others = found
    compared = []
    for n, (group, other) in enumerate(others, 1):
        if len(other) == len(frequencies):
            distances = _distances(max(first.claimed, group.claimed))
            compared.append(LayerAgreement(distances, rotary_agreement(frequencies, other, distances), 0, n))
    return compared


def _distances(last: int) -> list[int]:
    """Return distances that are even in their logarithm, with 1, 8, 10, 80, 100, ... among them."""
    even = {round(n) for n in np.geomspace(1, last, _POINTS)}
    return sorted(even | {n for power in range(9) for n in (10**power, 8 * 10**power) if n <= last})
