"""AxialSinusoidal equals positional-encodings on images and video, also where the channels do not divide."""

import pytest
import torch
from positional_encodings.torch_encodings import PositionalEncoding2D, PositionalEncoding3D

import whatwhere as ww

# Its angles are float32: p * 6e-8 from the angle, as much from the frequency.
ANGLES = 20 * 1.2e-7


@pytest.mark.parametrize("dim", [4, 16, 64, 10, 18])
def test_image(dim: int) -> None:
    theirs = PositionalEncoding2D(dim)(torch.zeros(2, 20, 7, dim))
    ours = ww.AxialSinusoidal(dim)(ww.Positions.grid(20, 7)).unflatten(1, (20, 7))
    torch.testing.assert_close(ours.expand(2, -1, -1, -1), theirs, rtol=0, atol=ANGLES)


@pytest.mark.parametrize("dim", [6, 12, 64, 16, 10])
def test_video(dim: int) -> None:
    theirs = PositionalEncoding3D(dim)(torch.zeros(1, 5, 20, 3, dim))
    ours = ww.AxialSinusoidal(dim, axes=3)(ww.Positions.grid(5, 20, 3)).unflatten(1, (5, 20, 3))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=ANGLES)


def test_pin_an_axis_may_get_no_features() -> None:
    """With 8 channels its third axis gets none, without a word: all frames of a video look alike."""
    theirs = PositionalEncoding3D(8)(torch.zeros(1, 2, 2, 5, 8))
    assert torch.equal(theirs[..., :1, :].expand_as(theirs), theirs)
    with pytest.raises(ww.errors.ShapeError, match="none are left for the last"):
        ww.AxialSinusoidal(8, axes=3)
