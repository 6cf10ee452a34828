"""The sinusoid of lines, images and videos equals that of positional-encodings, whose angles are float32."""

import pytest
import torch
from positional_encodings import torch_encodings as theirs

import whatwhere as ww

from .shared import ANGLES


@pytest.mark.parametrize(
    ("sizes", "dim"), [((512,), 2), ((512,), 64), ((20, 7), 4), ((20, 7), 18), ((5, 20, 3), 6), ((5, 20, 3), 16)]
)
def test_sinusoids(sizes: tuple[int, ...], dim: int) -> None:
    """Some of these features do not divide among the axes."""
    axes = len(sizes)
    wanted = getattr(theirs, f"PositionalEncoding{axes}D")(dim)(torch.zeros(1, *sizes, dim))
    scheme = ww.Sinusoidal(dim) if axes == 1 else ww.AxialSinusoidal(dim, axes)
    torch.testing.assert_close(scheme(ww.Positions.grid(*sizes)).view_as(wanted), wanted, rtol=0, atol=ANGLES)
