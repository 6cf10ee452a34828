"""The sinusoid, also of images and videos, equals that of positional-encodings, whose angles are float32."""

import pytest
import torch
from positional_encodings.torch_encodings import PositionalEncoding1D, PositionalEncoding2D, PositionalEncoding3D

import whatwhere as ww

from .shared import ANGLES, LENGTH


@pytest.mark.parametrize("dim", [2, 16, 64])
def test_sinusoid(dim: int) -> None:
    theirs = PositionalEncoding1D(dim)(torch.zeros(3, LENGTH, dim))
    ours = ww.Sinusoidal(dim)(ww.positions(LENGTH))
    torch.testing.assert_close(ours.expand(3, -1, -1), theirs, rtol=0, atol=ANGLES)


@pytest.mark.parametrize("dim", [4, 16, 64, 10, 18])
def test_image(dim: int) -> None:
    theirs = PositionalEncoding2D(dim)(torch.zeros(2, 20, 7, dim))
    ours = ww.AxialSinusoidal(dim)(ww.Positions.grid(20, 7)).unflatten(1, (20, 7))
    torch.testing.assert_close(ours.expand(2, -1, -1, -1), theirs, rtol=0, atol=20 * 1.2e-7)


@pytest.mark.parametrize("dim", [6, 12, 64, 16, 10])
def test_video(dim: int) -> None:
    theirs = PositionalEncoding3D(dim)(torch.zeros(1, 5, 20, 3, dim))
    ours = ww.AxialSinusoidal(dim, axes=3)(ww.Positions.grid(5, 20, 3)).unflatten(1, (5, 20, 3))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=20 * 1.2e-7)
