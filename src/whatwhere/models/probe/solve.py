"""Solve for the map of queries and keys by position: which pairs of features rotate, by which frequencies."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from whatwhere.models.probe.findings import NONE, NOT_MEASURED, OTHER, ROTARY, SCALED, FeatureMap, Layout

Vectors = Float64[np.ndarray, "contents heads positions features"]
Maps = Float64[np.ndarray, "later features features"]
Pairs = list[tuple[int, int]]
FITS = 2e-4
"""Largest residual of a map, relative to the largest value, that counts as measured: float32 at far positions."""
BY_HEAD = "each head has a factor by position of its own, listed is that of the first"
SPANNED = 1e-5  # smallest share of the largest singular value at which contents count as spanning all features
MOVES = 1e-4  # smallest entry of a map that counts as mixing two features


def solve(vectors: Vectors, positions: Sequence[int]) -> FeatureMap:
    """Return how queries or keys of the same contents change with increasing positions; the first one is the base."""
    features, at = vectors.shape[-1], tuple(positions)
    base = vectors[:, :, 0].reshape(-1, features)
    singular = np.linalg.svd(base, compute_uv=False)
    if len(base) < features or singular[-1] < SPANNED * singular[0]:
        reason = f"{base.shape[0]} contents span fewer than {features} features, so that the map is not determined"
        return FeatureMap(NOT_MEASURED, positions=at, reason=reason)
    maps, worst = _maps(vectors)
    if worst <= FITS:
        return _read(maps, worst, at)
    norms = np.linalg.norm(vectors, axis=(0, 3), keepdims=True)
    factors = norms / np.maximum(norms[:, :, :1], 1e-30)
    maps, error = _maps(vectors / np.maximum(factors, 1e-30))
    if error > FITS:
        reason = f"no linear map takes the vectors of position 0 to the others (residual {worst:.1e})"
        return FeatureMap(OTHER, worst, at, reason=reason)
    found = _read(maps, error, at)
    kind = SCALED if found.kind == NONE else found.kind
    return replace(found, kind=kind, scales=tuple(map(float, factors[0, 0, :, 0])), reason=BY_HEAD)


def _maps(vectors: Vectors) -> tuple[Maps, float]:
    """Return the linear map to each position after the first by least squares, and the largest relative residual."""
    features = vectors.shape[-1]
    base, *moved = vectors.transpose(2, 0, 1, 3).reshape(vectors.shape[2], -1, features)
    maps = np.stack([np.linalg.lstsq(base, each, rcond=None)[0] for each in moved])
    error = np.abs(base @ maps - moved).max(axis=(1, 2)) / np.maximum(np.abs(moved).max(axis=(1, 2)), 1e-30)
    return maps, float(error.max())


def merged(near: FeatureMap, far: FeatureMap) -> FeatureMap:
    """Return the map of a sequence that reaches far, with the frequencies of a short one where they differ."""
    if near.kind != far.kind or far.kind != ROTARY:
        return near if far.kind == NOT_MEASURED else far
    if len(near.frequencies) != len(far.frequencies):
        return far
    apart = np.abs(np.subtract(near.frequencies, far.frequencies)).max() * max(near.positions)
    if apart < MOVES:
        return far
    return replace(far, frequencies=near.frequencies, far_frequencies=far.frequencies)


def _read(maps: Maps, residual: float, at: tuple[int, ...]) -> FeatureMap:
    """Return what maps of each position have in common: pairs that rotate, and a factor of all features."""

    def other(error: float, reason: str) -> FeatureMap:
        return FeatureMap(OTHER, error, at, reason=reason)

    identity = np.eye(maps.shape[-1])
    moved = float(np.abs(maps - identity).max())
    if moved < MOVES:
        return FeatureMap(NONE, max(residual, moved), at)
    pairs = _pairs(np.abs(maps * (1 - identity)).max(axis=0))
    if pairs is None:
        return other(residual, "the map mixes features, but not in pairs")
    angles, factors, error = _blocks(maps, pairs)
    worst = max(residual, error)
    if worst > 5 * FITS:
        return other(worst, "features mix in pairs, but do not rotate")
    frequencies, error = unwind(angles, at[1:])
    if error > 1e-3 + 3e-7 * at[-1]:
        return other(error, f"pairs rotate, but not by position times a frequency (off by {error:.1e} radians)")
    if np.ptp(factors, axis=1).max() > 10 * FITS * max(1.0, float(np.abs(factors).max())):
        return other(worst, f"{'pairs rotate, and ' if pairs else ''}each feature has a factor by position of its own")
    scales = (1.0, *map(float, np.median(factors, axis=1)))
    if not pairs:
        return FeatureMap(SCALED, worst, at, scales=scales)
    layout, start = layout_of(pairs)
    by_first = dict(zip((one for one, _ in pairs), map(float, frequencies), strict=True))
    if layout == "half":  # pairs between them do not rotate, as the last ones of proportional rotary positions
        half = pairs[0][1] - start
        by_first = {feature: by_first.get(feature, 0.0) for feature in range(start, start + half)}
    return FeatureMap(
        ROTARY, worst, at, layout, start=start, rotary_dim=2 * len(by_first), frequencies=tuple(by_first.values()),
        scales=() if max(abs(scale - 1) for scale in scales) < FITS else scales,
    )  # fmt: skip


def _pairs(mixing: Float64[np.ndarray, "features features"]) -> Pairs | None:
    """Return the pairs of features that mix, or None if features mix otherwise."""
    partner = {int(row): int(mixing[row].argmax()) for row in np.flatnonzero(mixing.max(axis=1) > MOVES)}
    if any(partner.get(other) != one for one, other in partner.items()):
        return None
    rest = mixing.copy()
    for one, other in partner.items():
        rest[one, other] = 0.0
    return None if rest.max() > 10 * MOVES else sorted((one, other) for one, other in partner.items() if one < other)


def _blocks(
    maps: Maps, pairs: Pairs
) -> tuple[Float64[np.ndarray, "later pairs"], Float64[np.ndarray, "later factors"], float]:
    """Return the angle of each pair, the factor of each pair and of each other feature, and the largest residual."""
    one, other = np.array(pairs, dtype=int).reshape(-1, 2).T
    above, below = maps[:, one, other], maps[:, other, one]
    trace, determinant = maps[:, one, one] + maps[:, other, other], maps[:, one, one] * maps[:, other, other]
    factors = np.sqrt(np.maximum(determinant - above * below, 1e-30))
    angles = np.arctan2(np.sign(above - below) * np.sqrt(np.maximum(-above * below, 0.0)), trace / 2)
    # A norm after the rotation weights the two features, which leaves the product of the off-diagonal entries.
    weighted = np.minimum(np.abs(above), np.abs(below)) > MOVES
    weight = np.sqrt(np.abs(np.divide(above, below, out=np.ones_like(above), where=weighted)))
    cosine, sine = factors * np.cos(angles), factors * np.sin(angles)
    rest = maps.copy()
    rest[:, one, one] -= cosine
    rest[:, other, other] -= cosine
    rest[:, one, other] -= sine * weight
    rest[:, other, one] += sine / weight
    single = np.setdiff1d(np.arange(maps.shape[-1]), [*one, *other])
    alone = maps[:, single, single]
    rest[:, single, single] = 0.0
    return angles, np.concatenate([factors, alone], axis=1), float(np.abs(rest).max())


def unwind(
    angles: Float64[np.ndarray, "positions pairs"], positions: Sequence[int]
) -> tuple[Float64[np.ndarray, " pairs"], float]:
    """Return frequencies whose multiples are these angles at increasing positions, and the largest deviation."""
    # The first position must be small: a frequency beyond pi per its step would be taken for another.
    frequencies = angles[0] / positions[0]
    for angle, position in zip(angles[1:], positions[1:], strict=True):
        turns = np.round((position * frequencies - angle) / (2 * np.pi))
        frequencies = (angle + 2 * np.pi * turns) / position
    expected = np.array(positions)[:, None] * frequencies
    return frequencies, float(np.abs(np.angle(np.exp(1j * (expected - angles)))).max(initial=0.0))


def layout_of(pairs: Pairs) -> tuple[Layout, int]:
    """Return the layout of sorted pairs of features, and the first feature."""
    start, count = pairs[0][0], len(pairs)
    if pairs == [(start + 2 * index, start + 2 * index + 1) for index in range(count)]:
        return "interleaved", start
    half = pairs[0][1] - start
    if half >= count and all(other - one == half and one < start + half for one, other in pairs):
        return "half", start
    return "other", start
