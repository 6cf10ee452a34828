"""Sinusoidal positions on a grid."""

from typing import final

import torch
from jaxtyping import Float32
from torch import Tensor

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.position.positions import PositionsLike, as_positions
from whatwhere.where.base import InputEncoding
from whatwhere.where.frequencies import LAYOUTS, Layout, sinusoid


@final
class AxialSinusoidal(InputEncoding):
    """Encode each position on a grid by one sinusoidal vector for each axis, concatenated.

        PE[p] = (S(p_1), S(p_2), ..., S(p_A))        S: the sinusoid of Vaswani et al. 2017, of dim / A features

    Parmar et al. 2018, https://arxiv.org/abs/1802.05751, divide the features among the axes in this way. A step along
    one axis changes only its part. Where dim / A is not an even number, every part gets the next larger one, as in the
    package positional-encodings, and the last axis lacks its slowest pairs: all axes have the same frequencies. That
    package cuts in the middle of a pair where dim is odd; here dim is even.

    Args:
        dim: features, even, with at least one pair for the last axis.
        axes: A, 2 for images, 3 for video.
        theta: base of the frequencies, above 0.
        layout: of each part: `interleaved`, `half` or `tensor2tensor`, see Sinusoidal.

    Fixed: no parameters, no state. Any length. Positions with one axis, as of text, serve as the coordinate on every
    axis. Used by: the Image Transformer, MAE (layout `half`; its first part encodes the column).

    Examples:
        >>> from whatwhere import Positions
        >>> AxialSinusoidal(dim=4)(Positions.grid(2, 2))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.0000, 1.0000, 0.8415, 0.5403],
                 [0.8415, 0.5403, 0.0000, 1.0000],
                 [0.8415, 0.5403, 0.8415, 0.5403]]])
    """

    settings_in_repr = ("dim", "axes", "theta", "layout")

    def __init__(self, dim: int, axes: int = 2, theta: float = 10_000.0, layout: Layout = "interleaved") -> None:
        super().__init__()
        require_whole("AxialSinusoidal", dim=dim, axes=axes)
        require_even("AxialSinusoidal", "a sine and a cosine share one frequency", dim=dim)
        require_positive("AxialSinusoidal", theta=theta)
        require_choice("AxialSinusoidal", "layout", layout, LAYOUTS)
        self.dim, self.axes, self.theta, self.layout = dim, axes, theta, layout
        self._require_parts()

    @property
    def parts(self) -> tuple[slice, ...]:
        """The features of each axis.

        Examples:
            >>> AxialSinusoidal(dim=16, axes=3).parts
            (slice(0, 6, None), slice(6, 12, None), slice(12, 16, None))
        """
        width = self._width()
        return tuple(slice(axis * width, min((axis + 1) * width, self.dim)) for axis in range(self.axes))

    def forward(self, positions: PositionsLike) -> Float32[Tensor, "batch tokens dim"]:
        """Return the vector of each position, float32 of float64 angles."""
        index = as_positions(positions, vectors=True).on_axes("AxialSinusoidal", self.axes, real=True)
        waves = [sinusoid(axis, self._width(), self.theta, self.layout) for axis in index]
        last = self.parts[-1]
        waves[-1] = _first_pairs(waves[-1], (last.stop - last.start) // 2, self.layout)
        return torch.cat(waves, dim=-1)

    def _width(self) -> int:
        pairs = self.dim // 2
        return 2 * -(-pairs // self.axes)  # rounded up

    def _require_parts(self) -> None:
        each = 2 * self.axes
        fits = f"A multiple of {each}, such as {-(-self.dim // each) * each}, gives all axes equally many."
        if self.parts[-1].start >= self.dim:
            raise ShapeError(
                f"AxialSinusoidal got dim={self.dim} for axes={self.axes}: with {self._width()} features for each axis "
                f"none are left for the last.\n{fits}"
            )
        if self.layout == "tensor2tensor" and self._width() < 4:
            raise ShapeError(
                "AxialSinusoidal(layout='tensor2tensor') divides by pairs - 1, so each axis needs at least 4 features, "
                f"but dim={self.dim} gives {self._width()}.\nPass dim={4 * self.axes} or more."
            )


def _first_pairs(wave: Float32[Tensor, "*batch width"], pairs: int, layout: Layout) -> Float32[Tensor, "*batch kept"]:
    """Return only the fastest pairs, a sine and a cosine each."""
    if layout == "interleaved":
        return wave[..., : 2 * pairs]
    sines, cosines = wave.chunk(2, dim=-1)
    return torch.cat([sines[..., :pairs], cosines[..., :pairs]], dim=-1)
