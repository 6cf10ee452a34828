"""The sinusoid equals positional-encodings' one-dimensional one."""

import pytest
import torch
from positional_encodings.torch_encodings import PositionalEncoding1D

import whatwhere as ww

LENGTH = 512


@pytest.mark.parametrize("dim", [2, 16, 64])
def test_sinusoid(dim: int) -> None:
    theirs = PositionalEncoding1D(dim)(torch.zeros(3, LENGTH, dim))
    ours = ww.Sinusoidal(dim)(ww.positions(LENGTH))
    # Its angles are float32: p * 6e-8 from the angle, as much from the frequency.
    torch.testing.assert_close(ours.expand(3, -1, -1), theirs, rtol=0, atol=LENGTH * 1.2e-7)


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
