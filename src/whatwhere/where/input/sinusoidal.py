"""Sinusoidal positions."""

from typing import final

from jaxtyping import Float32
from torch import Tensor

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.position.positions import PositionsLike, as_positions
from whatwhere.where.base import InputEncoding
from whatwhere.where.frequencies import LAYOUTS, Layout, sinusoid


@final
class Sinusoidal(InputEncoding):
    """Encode each position as sines and cosines of decreasing frequencies.

        PE[p, 2i] = sin(p w_i)    PE[p, 2i+1] = cos(p w_i)    w_i = theta ** (-2i / dim),  i = 0..dim/2-1

    Vaswani et al. 2017, https://arxiv.org/abs/1706.03762. Here i counts pairs, not dimensions. Two other layouts
    are in use: `half` puts all sines before all cosines (Transformer-XL), `tensor2tensor` does so with
    w_i = theta ** (-i / (dim/2 - 1)) (tensor2tensor, fairseq).

    Args:
        dim: features, even (tensor2tensor: at least 4).
        theta: base of the frequencies, above 0.
        layout: `interleaved`, `half` or `tensor2tensor`.
        offset: added to every position: 2 in fairseq and XGLM, whose tables begin with rows for padding.
        cosines_first: swap the sine and the cosine of each pair, as MusicGen does.

    Fixed: no parameters, no state. Any length. Used by: the original Transformer, Transformer-XL, fairseq.

    Raises:
        ShapeError: If dim is odd, below 2, or too small for the layout.
        SettingError: If theta, layout or offset is out of range or unknown.

    Examples:
        >>> import torch
        >>> Sinusoidal(dim=4)(torch.tensor([0, 1]))
        tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
                 [0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    settings_in_repr = ("dim", "theta", "layout", "offset", "cosines_first")
    _shown_if_set = ("offset", "cosines_first")

    def __init__(
        self,
        dim: int,
        theta: float = 10_000.0,
        layout: Layout = "interleaved",
        offset: int = 0,
        *,
        cosines_first: bool = False,
    ) -> None:
        super().__init__()
        require_whole("Sinusoidal", dim=dim)
        require_even("Sinusoidal", "a sine and a cosine share one frequency", dim=dim)
        require_positive("Sinusoidal", theta=theta)
        require_choice("Sinusoidal", "layout", layout, LAYOUTS)
        if layout == "tensor2tensor" and dim < 4:
            raise ShapeError(
                "Sinusoidal(layout='tensor2tensor') divides by dim/2 - 1, so dim must be at least 4, not 2."
            )
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise SettingError(f"Sinusoidal got offset={offset!r}, but needs a whole number, 0 or more.")
        self.dim, self.theta, self.layout, self.offset = dim, theta, layout, offset
        self.cosines_first = cosines_first

    def forward(self, positions: PositionsLike) -> Float32[Tensor, "batch tokens dim"]:
        """Return the vector of each position, float32 of float64 angles."""
        positions = as_positions(positions, vectors=True)
        index = positions.single_axis("Sinusoidal", real=True)
        positions.require_from_zero("Sinusoidal", self.offset)
        vectors = sinusoid(index + self.offset if self.offset else index, self.dim, self.theta, self.layout)
        if not self.cosines_first:
            return vectors
        if self.layout == "interleaved":
            pairs: Tensor = vectors.unflatten(-1, (-1, 2)).flip(-1)
            return pairs.flatten(-2)
        return vectors.roll(self.dim // 2, -1)
