"""Rotary positions: the wavelength of each pair against the trained and the claimed length, and what a scaling changes.

With them what else a layer does at each position: its window, its sinks and the temperature of its queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from jaxtyping import Bool, Float, Float64

from whatwhere.analysis.subject import NoData, Subject
from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.load_where import fill_frequencies

if TYPE_CHECKING:
    from whatwhere.models.configuration.description import Description, Plan


@dataclass(frozen=True, eq=False)
class RotarySpectrum:
    """Wavelengths and rotations of rotary pairs, in their order."""

    wavelengths: Float64[np.ndarray, " pairs"]  # positions for one rotation, 2 pi / w; infinite for a frequency of 0
    unscaled: Float64[np.ndarray, " pairs"]  # the same without the scaling
    slowdown: Float64[np.ndarray, " pairs"]  # unscaled frequency / scaled one; infinite if the scaled one is 0
    rotations_trained: Float64[np.ndarray, " pairs"]  # within the trained length, at the frequencies of training
    rotations_claimed: Float64[np.ndarray, " pairs"]  # within the claimed length, at the frequencies used there
    partial: Bool[np.ndarray, " pairs"]  # no full rotation in training: larger angles are out of distribution
    unseen: Bool[np.ndarray, " pairs"]  # those of `partial` that rotate farther within the claimed length
    constant: Bool[np.ndarray, " pairs"]  # pairs of frequency 0, which never rotate


def rotary_spectrum(
    frequencies: Float[np.ndarray, " pairs"],
    unscaled: Float[np.ndarray, " pairs"],
    trained: int,
    claimed: int | None = None,
) -> RotarySpectrum:
    """Return the wavelength of each pair, and its rotations within the trained and the claimed length.

        wavelength = 2 pi / w        rotations(L) = L w / (2 pi)

    A pair that makes a full rotation within the trained length takes every angle in training. Any other pair takes new
    angles beyond that length, which RoPE scaling is meant to prevent: Peng et al. 2023,
    https://arxiv.org/abs/2309.00071.

    Args:
        frequencies: radians per position, as used at the claimed length.
        unscaled: the same without the scaling, as used in training.
        trained: the trained length.
        claimed: the length in the configuration; None is the trained length.

    Raises:
        ShapeError: If there is not one frequency for each pair.
        SettingError: If a frequency is negative or not finite, or a length is below 1.

    Examples:
        >>> spectrum = rotary_spectrum(np.array([1.0, 0.001]), np.array([1.0, 0.01]), trained=100, claimed=1000)
        >>> spectrum.slowdown.tolist(), spectrum.partial.tolist(), spectrum.unseen.tolist()
        ([1.0, 10.0], [False, True], [False, False])
    """
    claimed = trained if claimed is None else claimed
    now, plain = (_checked(values, len(frequencies)) for values in (frequencies, unscaled))
    if trained < 1 or claimed < 1:
        raise SettingError(f"rotary_spectrum got trained={trained}, claimed={claimed}, but needs lengths of 1 or more.")
    rotations_trained, rotations_claimed = trained * plain / (2 * np.pi), claimed * now / (2 * np.pi)
    partial = rotations_trained < 1
    # 1e-6 more: factor and length often cancel up to rounding.
    unseen = partial & (rotations_claimed > rotations_trained * (1 + 1e-6))
    return RotarySpectrum(
        _divided(2 * np.pi, now), _divided(2 * np.pi, plain), _divided(plain, now), rotations_trained,
        rotations_claimed, partial, unseen, now == 0,
    )  # fmt: skip


def rotary_agreement(
    one: Float[np.ndarray, " pairs"],
    other: Float[np.ndarray, " pairs"],
    distances: Sequence[int] | Sequence[float] | np.ndarray,
) -> Float64[np.ndarray, " distances"]:
    """Return the cosine between a vector rotated at one set of frequencies and at another, at each distance.

        cos(R_d x, R'_d x) = mean_i cos(d (w_i - w'_i))        for x with equal norm in each pair

    It is 1 if both rotate by the same angles; near 0 the scores are as different as those of unrelated distances.

    Args:
        one, other: radians per position, of as many pairs.
        distances: any numbers.

    Raises:
        ShapeError: If the two differ in the number of pairs.
        SettingError: If a frequency is negative or not finite.

    Examples:
        >>> rotary_agreement(np.array([1.0, 0.01]), np.array([1.0, 0.02]), [0, 100]).round(4).tolist()
        [1.0, 0.7702]
    """
    first, second = _checked(one, len(one)), _checked(other, len(one))
    angles = np.asarray(distances, np.float64)[:, None] * (first - second)
    return np.asarray(np.cos(angles).mean(axis=1))


def _checked(frequencies: np.ndarray, pairs: int) -> Float64[np.ndarray, " pairs"]:
    values = np.asarray(frequencies, dtype=np.float64)
    if values.shape != (pairs,) or not pairs:
        raise ShapeError(f"one frequency for each of {pairs} pairs is needed, but these have the shape {values.shape}.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise SettingError("frequencies must be finite and 0 or more, but some of these are not.")
    return values


def _divided(above: float | np.ndarray, below: np.ndarray) -> Float64[np.ndarray, " pairs"]:
    top = np.broadcast_to(np.asarray(above, np.float64), below.shape)
    return np.asarray(np.divide(top, below, out=np.where(top > 0, np.inf, 1.0), where=below > 0))


_POINTS = 96
Setting = TypeVar("Setting")


@dataclass(frozen=True, eq=False)
class Agreement:
    """The cosine of a vector rotated by the one and by the other rotation, at each distance of two tokens."""

    distances: Sequence[int]
    cosine: Float[np.ndarray, " distances"]


@dataclass(frozen=True, eq=False)
class LayerAgreement(Agreement):
    """The agreement of the rotations of two groups of layers, numbered as in `RotaryReport.groups`."""

    first: int
    second: int


@dataclass(frozen=True, eq=False)
class RotaryLayers(RotarySpectrum):
    """The rotation that some layers share. Inherits what was computed for each pair."""

    layers: Sequence[int]
    scheme: str
    theta: float  # the base of the frequencies
    head_dim: int
    rotary_dim: int  # features of a head that are rotated
    interleaved: bool  # whether features 2i and 2i + 1 are a pair; else i and i + rotary_dim / 2
    scaling: str | None  # in code; None without
    magnitude: float  # factor of queries and keys
    trained: int  # positions that the model was trained on
    claimed: int  # positions that the configuration allows
    lengths: str  # how these two are known
    effect: Agreement  # of the scaling: the rotation with it against that without


@dataclass(frozen=True)
class WindowedLayers:
    """Layers that attend to a window of tokens alone: the nearest ones, or those of a chunk."""

    layers: Sequence[int]
    size: int
    chunked: bool
    causal: bool  # else a sliding one reaches as far to later tokens


@dataclass(frozen=True, eq=False)
class TemperatureLayers:
    """Layers that multiply queries by a function of their position, in code; of a learned one the scheme."""

    layers: Sequence[int]
    curve: str
    positions: Sequence[int]
    factors: Float[np.ndarray, " positions"] | None  # of queries up to the claimed length; None of a learned function


@dataclass(frozen=True, eq=False)
class RotaryReport:
    """The rotations of a model."""

    layers: int
    without: Sequence[int]  # layers that rotate nothing
    groups: Sequence[RotaryLayers]  # of layers that share a rotation
    between: Sequence[LayerAgreement]  # the first group against each other one with as many pairs
    windows: Sequence[WindowedLayers] = ()  # all other layers attend to every token, or every earlier one
    sinks: Sequence[int] = ()  # layers whose heads have a learned sink in the denominator of the softmax
    temperatures: Sequence[TemperatureLayers] = ()  # layers that multiply queries by a function of their position


def rotary(subject: Subject) -> RotaryReport:
    """Return each rotation of a model, and how much those of different layers differ."""
    description = subject.description
    rotations = [
        (plan, layers) for plan, layers in layers_of(description.query_key) if plan.scheme.startswith("rotary")
    ]
    if not rotations:
        raise NoData(f"no layer of this model {'rotates queries and keys' if description.heads else 'has attention'}")
    subject.progress("examining rotary")
    groups, used = zip(*(_examined(plan, layers, subject) for plan, layers in rotations), strict=True)
    between = []
    for n, (group, other) in enumerate(zip(groups, used, strict=True)):
        if n and len(other) == len(used[0]):
            distances = _distances(max(groups[0].claimed, group.claimed))
            between.append(LayerAgreement(distances, rotary_agreement(used[0], other, distances), 0, n))
    return RotaryReport(
        layers=description.layers,
        without=[n for n, plan in enumerate(description.query_key) if plan is None],
        groups=groups,
        between=between,
        windows=[
            WindowedLayers(layers, one.size, one.chunked, description.causal)
            for one, layers in layers_of(description.windows)
        ],
        sinks=[layer for layer, has in enumerate(description.sinks) if has],
        temperatures=_temperatures(description),
    )


def layers_of(settings: Sequence[Setting | None]) -> list[tuple[Setting, list[int]]]:
    """Return each distinct setting of layers with the numbers of the layers that have it; None has no group."""
    groups: list[tuple[Setting, list[int]]] = []
    for layer, setting in enumerate(settings):
        if setting is not None:
            # Plans compare equal but are not hashable.
            same = next((layers for other, layers in groups if other == setting), None)
            if same is None:
                groups.append((setting, same := []))
            same.append(layer)
    return groups


def _examined(plan: "Plan", layers: list[int], subject: Subject) -> tuple[RotaryLayers, np.ndarray]:
    from torch import tensor

    from whatwhere.where.frequencies import inverse_frequencies

    description, scheme = subject.description, cast("Any", plan.build())
    if not fill_frequencies(scheme, subject.checkpoint):
        raise NoData("its frequencies are weights (rotary_emb.alpha), which are not in the file")
    trained, claimed, lengths = _lengths(scheme.scaling, description.max_length)
    unscaled = inverse_frequencies(scheme.rotary_dim, scheme.theta).numpy()
    used = scheme.frequencies(tensor(claimed)) if scheme.follows_length else scheme.inverse_frequencies
    frequencies = used.detach().abs().numpy()  # those of nanochat are negative
    distances = _distances(claimed)
    group = RotaryLayers(
        **vars(rotary_spectrum(frequencies, unscaled, trained, claimed)), layers=layers, scheme=plan.class_name,
        theta=float(scheme.theta), head_dim=scheme.head_dim, rotary_dim=scheme.rotary_dim,
        interleaved=scheme.interleaved, scaling=None if scheme.scaling is None else repr(scheme.scaling),
        magnitude=float(scheme.magnitude), trained=trained, claimed=claimed, lengths=lengths,
        effect=Agreement(distances, rotary_agreement(frequencies, unscaled, distances)),
    )  # fmt: skip
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


def _temperatures(description: "Description") -> list[TemperatureLayers]:
    from torch import tensor

    found, at = [], [0, *_distances((description.max_length or 2) - 1)]
    for curve, layers in layers_of(description.temperatures):
        factors = curve.build().at(tensor(at)).numpy() if curve.is_curve else None
        found.append(TemperatureLayers(layers, repr(curve), at, factors))
    return found


def _distances(last: int) -> list[int]:
    """Return distances that are even in their logarithm, with 1, 8, 10, 80, 100, ... among them."""
    even = {round(n) for n in np.geomspace(1, last, _POINTS)}
    return sorted(even | {n for power in range(9) for n in (10**power, 8 * 10**power) if n <= last})
