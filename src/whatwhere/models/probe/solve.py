"""Solve for the map of queries and keys by position: which pairs of features rotate, by which frequencies."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from whatwhere.models.probe.findings import NONE, NOT_MEASURED, OTHER, ROTARY, SCALED, FeatureMap, Layout

Matrix = Float64[np.ndarray, "features features"]
FITS = 2e-4
"""Largest residual of a map, relative to the largest value, that counts as measured: float32 at far positions."""
BY_HEAD = "each head has a factor by position of its own, listed is that of the first"
SPANNED = 1e-5
"""Smallest share of the largest singular value at which contents count as spanning all features."""
MOVES = 1e-4
"""Smallest entry of a map that counts as mixing two features."""


def solve(vectors: Float64[np.ndarray, "contents heads positions features"], positions: Sequence[int]) -> FeatureMap:
    """Return how vectors of the same contents change with position.

    Args:
        vectors: queries or keys; those at the first position are the base.
        positions: of the tokens, from 0, increasing.
    """
    features = vectors.shape[-1]
    base = vectors[:, :, 0].reshape(-1, features)
    at = tuple(positions)
    singular = np.linalg.svd(base, compute_uv=False)
    if len(base) < features or singular[-1] < SPANNED * singular[0]:
        reason = f"{base.shape[0]} contents span fewer than {features} features, so that the map is not determined"
        return FeatureMap(NOT_MEASURED, positions=at, reason=reason)
    maps, worst = _maps(vectors, positions)
    if worst <= FITS:
        return _read(maps, worst, at)
    norms = np.linalg.norm(vectors, axis=(0, 3), keepdims=True)
    factors = norms / np.maximum(norms[:, :, :1], 1e-30)
    maps, error = _maps(vectors / np.maximum(factors, 1e-30), positions)
    if error > FITS:
        reason = f"no linear map takes the vectors of position 0 to the others (residual {worst:.1e})"
        return FeatureMap(OTHER, worst, at, reason=reason)
    found = _read(maps, error, at)
    kind = SCALED if found.kind == NONE else found.kind
    return replace(found, kind=kind, scales=tuple(map(float, factors[0, 0, :, 0])), reason=BY_HEAD)


def _maps(
    vectors: Float64[np.ndarray, "contents heads positions features"], positions: Sequence[int]
) -> tuple[dict[int, Matrix], float]:
    """Return the linear map of each position after the first by least squares, and the largest relative residual."""
    features = vectors.shape[-1]
    base = vectors[:, :, 0].reshape(-1, features)
    maps, worst = {}, 0.0
    for slot, position in enumerate(positions[1:], start=1):
        moved = vectors[:, :, slot].reshape(-1, features)
        maps[position] = np.linalg.lstsq(base, moved, rcond=None)[0]
        error = np.abs(base @ maps[position] - moved).max() / max(np.abs(moved).max(), 1e-30)
        worst = max(worst, float(error))
    return maps, worst


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


def _read(maps: Mapping[int, Matrix], residual: float, positions: tuple[int, ...]) -> FeatureMap:
    """Return what maps of each position have in common."""
    size = next(iter(maps.values())).shape[0]
    identity = np.eye(size)
    moved = max(float(np.abs(each - identity).max()) for each in maps.values())
    if moved < MOVES:
        return FeatureMap(NONE, max(residual, moved), positions)
    mixing = np.max([np.abs(each - np.diag(np.diag(each))) for each in maps.values()], axis=0)
    if mixing.max() < MOVES:
        return _scaled(maps, residual, positions)
    pairs = _pairs(mixing)
    if pairs is None:
        return FeatureMap(OTHER, residual, positions, reason="the map mixes features, but not in pairs")
    return _rotation(maps, pairs, residual, positions)


def _scaled(maps: Mapping[int, Matrix], residual: float, positions: tuple[int, ...]) -> FeatureMap:
    factors = np.array([np.diag(each) for each in maps.values()])
    if np.ptp(factors, axis=1).max() > MOVES * np.abs(factors).max():
        return FeatureMap(OTHER, residual, positions, reason="each feature has a factor by position of its own")
    return FeatureMap(SCALED, residual, positions, scales=(1.0, *map(float, factors.mean(axis=1))))


def _pairs(mixing: Matrix) -> list[tuple[int, int]] | None:
    """Return the pairs of features that mix, or None if features mix otherwise."""
    partner = {int(row): int(mixing[row].argmax()) for row in np.flatnonzero(mixing.max(axis=1) > MOVES)}
    if any(partner.get(other) != one for one, other in partner.items()):
        return None
    rest = mixing.copy()
    for one, other in partner.items():
        rest[one, other] = 0.0
    return None if rest.max() > 10 * MOVES else sorted((one, other) for one, other in partner.items() if one < other)


def _rotation(
    maps: Mapping[int, Matrix], pairs: list[tuple[int, int]], residual: float, positions: tuple[int, ...]
) -> FeatureMap:
    angles, norms, worst = [], [], residual
    for each in maps.values():
        angle, norm, error = _blocks(each, pairs)
        angles.append(angle)
        norms.append(norm)
        worst = max(worst, error)
    if worst > 5 * FITS:
        return FeatureMap(OTHER, worst, positions, reason="features mix in pairs, but do not rotate")
    frequencies, error = unwind(np.array(angles), list(maps))
    if error > 1e-3 + 3e-7 * max(maps):
        reason = f"pairs rotate, but not by position times a frequency (off by {error:.1e} radians)"
        return FeatureMap(OTHER, error, positions, reason=reason)
    factors = np.array(norms)
    if np.ptp(factors, axis=1).max() > 10 * FITS:
        return FeatureMap(OTHER, worst, positions, reason="pairs rotate, each with a factor by position of its own")
    scales = (1.0, *map(float, np.median(factors, axis=1)))
    layout, start = layout_of(pairs)
    by_first = dict(zip((one for one, _ in pairs), map(float, frequencies), strict=True))
    if layout == "half":  # pairs between them do not rotate, as the last ones of proportional rotary positions
        half = pairs[0][1] - start
        by_first = {feature: by_first.get(feature, 0.0) for feature in range(start, start + half)}
    return FeatureMap(
        ROTARY,
        worst,
        positions,
        layout=layout,
        start=start,
        rotary_dim=2 * len(by_first),
        frequencies=tuple(by_first.values()),
        scales=() if max(abs(scale - 1) for scale in scales) < FITS else scales,
    )


def _blocks(
    matrix: Matrix, pairs: list[tuple[int, int]]
) -> tuple[Float64[np.ndarray, " pairs"], Float64[np.ndarray, " factors"], float]:
    """Return angle of each pair, factor of each pair and of each other feature, and the largest residual."""
    rest = matrix.copy()
    angles, factors = [], []
    for one, other in pairs:
        block = matrix[np.ix_((one, other), (one, other))]
        factor = np.sqrt(max(float(np.linalg.det(block)), 1e-30))
        sine = np.sign(block[0, 1] - block[1, 0]) * np.sqrt(max(-block[0, 1] * block[1, 0], 0.0))
        angle = float(np.arctan2(sine, block.trace() / 2))
        angles.append(angle)
        factors.append(factor)
        # A norm after the rotation weights the two features, which leaves the product of the off-diagonal entries.
        weight = np.sqrt(abs(block[0, 1] / block[1, 0])) if min(abs(block[0, 1]), abs(block[1, 0])) > MOVES else 1.0
        cosine, sine = factor * np.cos(angle), factor * np.sin(angle)
        rest[np.ix_((one, other), (one, other))] -= [[cosine, sine * weight], [-sine / weight, cosine]]
    paired = {feature for pair in pairs for feature in pair}
    for feature in set(range(matrix.shape[0])) - paired:
        factors.append(float(matrix[feature, feature]))
        rest[feature, feature] = 0.0
    return np.array(angles), np.array(factors), float(np.abs(rest).max())


def unwind(
    angles: Float64[np.ndarray, "positions pairs"], positions: Sequence[int]
) -> tuple[Float64[np.ndarray, " pairs"], float]:
    """Return frequencies whose multiples are these angles, by ever larger positions, and the largest deviation.

    Args:
        positions: increasing, the first one small: a frequency beyond pi per its step would be taken for another.
    """
    frequencies = angles[0] / positions[0]
    for angle, position in zip(angles[1:], positions[1:], strict=True):
        turns = np.round((position * frequencies - angle) / (2 * np.pi))
        frequencies = (angle + 2 * np.pi * turns) / position
    expected = np.array(positions)[:, None] * frequencies
    return frequencies, float(np.abs(np.angle(np.exp(1j * (expected - angles)))).max())


def layout_of(pairs: list[tuple[int, int]]) -> tuple[Layout, int]:
    """Return the layout of sorted pairs of features, and the first feature."""
    start, count = pairs[0][0], len(pairs)
    if pairs == [(start + 2 * index, start + 2 * index + 1) for index in range(count)]:
        return "interleaved", start
    half = pairs[0][1] - start
    if half >= count and all(other - one == half and one < start + half for one, other in pairs):
        return "half", start
    return "other", start
