"""Cosines and sines are right to the last bit of float32, also at position 1,000,000: mpmath with 50 digits says so."""

import mpmath
import numpy as np
import pytest
import torch

import whatwhere as ww

POSITIONS = [0, 1, 255, 257, 4_095, 65_537, 131_071, 1_000_000]


def exact(dim: int, theta: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin of p * theta ** (-2i / dim), (positions, pairs), correct to float64."""
    with mpmath.workdps(50):
        turns = [[p * mpmath.power(theta, mpmath.mpf(-2 * i) / dim) for i in range(dim // 2)] for p in POSITIONS]
        cos = np.array([[float(mpmath.cos(turn)) for turn in row] for row in turns])
        sin = np.array([[float(mpmath.sin(turn)) for turn in row] for row in turns])
    return cos, sin


def assert_rounded(ours: torch.Tensor, wanted: np.ndarray) -> None:
    """Each number is the float32 nearest to the exact one, but for what float64 angles leave open."""
    assert ours.dtype == torch.float32
    half_a_step = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64) / 2
    # An angle of 1,000,000 turns by at most 4e-10 if its float64 frequency and the product are rounded once each.
    left_open = 4e-10 * np.array(POSITIONS)[:, None] / 1_000_000 + 1e-15
    assert (np.abs(ours.double().numpy() - wanted) <= half_a_step + left_open).all()


@pytest.mark.parametrize("theta", [10_000, 500_000])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(theta: int, interleaved: bool) -> None:
    cos, sin = exact(128, theta)
    rope = ww.Rotary(128, float(theta), interleaved=interleaved)
    first = torch.zeros(1, 1, len(POSITIONS), 128)
    pair = first.unflatten(-1, (64, 2) if interleaved else (2, 64))
    (pair[..., 0] if interleaved else pair[..., 0, :]).fill_(1)  # a turned (1, 0) is (cos, sin)
    rotated = rope(first, first, torch.tensor(POSITIONS))[0][0, 0]
    halves = rotated.unflatten(-1, (64, 2)).unbind(-1) if interleaved else rotated.chunk(2, -1)
    assert_rounded(halves[0], cos)
    assert_rounded(halves[1], sin)


@pytest.mark.parametrize("theta", [10_000, 500_000])
def test_sinusoid(theta: int) -> None:
    cos, sin = exact(128, theta)
    vectors = ww.Sinusoidal(128, float(theta))(torch.tensor(POSITIONS))[0]
    assert_rounded(vectors[:, 0::2], sin)
    assert_rounded(vectors[:, 1::2], cos)


def test_alibi_slopes() -> None:
    with mpmath.workdps(50):
        wanted = np.array([float(mpmath.power(2, mpmath.mpf(-8 * h) / 64)) for h in range(1, 65)])
    assert np.array_equal(ww.ALiBi(64).slopes.numpy(), wanted.astype(np.float32))
