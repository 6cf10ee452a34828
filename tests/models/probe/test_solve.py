"""The solver, on vectors whose map is known."""

import numpy as np
import pytest

from whatwhere.models.probe.solve import merged, solve

POSITIONS = (0, 1, 4, 16, 64, 256, 1024, 4096, 20_000)


def rotated(base, frequencies, pairs, positions=POSITIONS, factors=None):
    """Rotate pairs of features by position times frequency: written out for each pair, in float64."""
    out = np.repeat(base, len(positions), axis=2)
    for slot, position in enumerate(positions):
        for frequency, (one, other) in zip(frequencies, pairs, strict=True):
            cos, sin = np.cos(position * frequency), np.sin(position * frequency)
            a, b = base[:, :, 0, one], base[:, :, 0, other]
            out[:, :, slot, one], out[:, :, slot, other] = a * cos - b * sin, b * cos + a * sin
        out[:, :, slot] *= 1.0 if factors is None else factors[slot]
    return out


@pytest.fixture
def base():
    return np.random.default_rng(0).normal(size=(24, 2, 1, 8))


@pytest.mark.parametrize(
    ("pairs", "layout", "start"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], "half", 0),
        ([(0, 1), (2, 3), (4, 5), (6, 7)], "interleaved", 0),
        ([(4, 6), (5, 7)], "half", 4),
        ([(4, 5), (6, 7)], "interleaved", 4),
    ],
)
def test_the_pairs_and_frequencies_are_found(base, pairs, layout, start):
    frequencies = 500_000.0 ** -np.linspace(0, 0.9, len(pairs))
    found = solve(rotated(base, frequencies, pairs), POSITIONS)
    assert (found.kind, found.layout, found.start, found.rotary_dim) == ("rotary", layout, start, 2 * len(pairs))
    np.testing.assert_allclose(found.frequencies, frequencies, rtol=1e-9)
    assert found.scales == ()
    assert found.residual < 1e-9


def test_a_factor_by_position_is_found_beside_a_rotation_and_alone(base):
    factors = 1 + 0.1 * np.log1p(np.floor(np.array(POSITIONS) / 100))
    pairs = [(0, 4), (1, 5), (2, 6), (3, 7)]
    found = solve(rotated(base, [1.0, 0.3, 0.1, 0.03], pairs, factors=factors), POSITIONS)
    assert found.kind == "rotary"
    np.testing.assert_allclose(found.scales, factors, rtol=1e-9)
    alone = solve(rotated(base, [], [], factors=factors), POSITIONS)
    assert alone.kind == "scaled"
    np.testing.assert_allclose(alone.scales, factors, rtol=1e-9)


def test_a_factor_of_each_head_is_found(base):
    vectors = rotated(base, [1.0, 0.1], [(0, 1), (2, 3)])
    vectors[:, 1] *= np.linspace(1, 2, len(POSITIONS))[None, :, None]
    found = solve(vectors, POSITIONS)
    assert found.kind == "rotary"
    assert "each head" in found.reason


def test_too_few_contents_and_maps_that_are_not_linear_are_not_guessed(base):
    vectors = rotated(base, [1.0], [(0, 1)])
    assert solve(np.repeat(base, len(POSITIONS), axis=2), POSITIONS).kind == "none"
    assert solve(vectors[:3], POSITIONS).kind == "not measured"
    assert solve(vectors * (vectors > 0), POSITIONS).kind == "other"
    noise = np.random.default_rng(1).normal(size=(8, 8))
    mixed = np.concatenate([base, base @ noise], axis=2)
    assert solve(mixed, (0, 1)).kind == "other"
    other_angles = rotated(base, [1.0], [(0, 1)], positions=(0, 1, 2, 4))
    assert solve(other_angles, (0, 1, 2, 5)).kind == "other"


def test_frequencies_that_change_with_length_are_kept_apart(base):
    pairs = [(0, 4), (1, 5), (2, 6), (3, 7)]
    near = solve(rotated(base, [1.0, 0.3, 0.1, 0.03], pairs, positions=(0, 1, 2, 4, 8, 16)), (0, 1, 2, 4, 8, 16))
    far = solve(rotated(base, [1.0, 0.2, 0.05, 0.01], pairs), POSITIONS)
    both = merged(near, far)
    assert both.frequencies == near.frequencies
    assert both.far_frequencies == far.frequencies
    assert merged(near, near).far_frequencies == ()
