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


def test_pin_it_answers_in_the_dtype_of_the_data() -> None:
    """It reads the shape and dtype of the data it is shown: whole numbers turn its sines into zeros."""
    theirs = PositionalEncoding1D(16)(torch.ones(1, 8, 16, dtype=torch.long))
    assert not theirs[..., 1:, 2:].is_floating_point()
    assert theirs.abs().sum() < ww.Sinusoidal(16)(ww.positions(8)).abs().sum() / 2


def test_pin_it_cuts_an_odd_dim() -> None:
    """It takes the frequencies of dim + 1 and drops the last cosine; we refuse, since a pair would lack its half."""
    theirs = PositionalEncoding1D(5)(torch.zeros(1, 8, 5))[0]
    ours = ww.Sinusoidal(6)(ww.positions(8))[0, :, :5]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)
    with pytest.raises(ww.errors.ShapeError, match="even"):
        ww.Sinusoidal(5)


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


def test_pin_an_axis_may_get_no_features() -> None:
    """With 8 channels its third axis gets none, without a word: all frames of a video look alike."""
    theirs = PositionalEncoding3D(8)(torch.zeros(1, 2, 2, 5, 8))
    assert torch.equal(theirs[..., :1, :].expand_as(theirs), theirs)
    with pytest.raises(ww.errors.ShapeError, match="none are left for the last"):
        ww.AxialSinusoidal(8, axes=3)
