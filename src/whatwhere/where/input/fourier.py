"""Learned Fourier features of positions."""

from math import sqrt
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.initialization import sample_normal
from whatwhere.kernels.backend import full_precision
from whatwhere.position.positions import PositionsLike, as_positions
from whatwhere.tensor_checks import require_generator
from whatwhere.where.base import InputEncoding


@final
class Fourier(InputEncoding):
    """Encode each position by a small MLP of Fourier features with learned frequencies.

        r = (cos(W_r p'), sin(W_r p')) / sqrt(D)        p' = p / max_length,  W_r: (D/2, axes)
        x_i += W_2 gelu(W_1 r + b_1) + b_2

    Li et al. 2021, https://arxiv.org/abs/2106.02795, equations 2 and 6, with one group of axes. W_r is
    initialized from N(0, 1 / gamma^2), so that the expected similarity of two positions is
    exp(-distance^2 / (2 gamma^2)). `width` is gamma in positions, gamma = width / max_length. (Some implementations use
    1 / gamma^2 as the standard deviation.) The paper does not specify the initialization of the other weights: here the
    input of the MLP has norm 1 and its output standard deviation 0.02, as the rows of Learned.

    Args:
        dim: features.
        max_length: positions 0..max_length-1 are scaled to 0..1, so that the effect of an optimizer step does not grow
            with the length; pass the trained length. Larger positions are defined, but not trained.
        axes: axes of the positions, 2 for images; positions with one axis serve as the coordinate on every axis.
        features: number of Fourier features D, even; None is dim.
        hidden: hidden features of the MLP; None is dim.
        width: distance, in positions, over which encodings are similar initially, above 0.

    Learned: W_r `frequencies`, W_1 `weight_in`, b_1 `bias_in`, W_2 `weight_out`, b_2 `bias_out`. Any length. Angles
    are float64 and all else float32 at least, also where the weights are bfloat16 or autocast is on. Used by: the
    paper's image generation, detection and classification models.

    Examples:
        >>> Fourier(dim=8, max_length=100)(torch.tensor([0, 1, 2])).shape
        torch.Size([1, 3, 8])
    """

    settings_in_repr = ("dim", "max_length", "axes", "features", "hidden", "width")

    frequencies: Float[Tensor, "waves axes"]
    weight_in: Float[Tensor, "hidden features"]
    bias_in: Float[Tensor, " hidden"]
    weight_out: Float[Tensor, "dim hidden"]
    bias_out: Float[Tensor, " dim"]

    def __init__(
        self,
        dim: int,
        max_length: int,
        axes: int = 1,
        features: int | None = None,
        hidden: int | None = None,
        width: float = 4.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.max_length, self.axes, self.width = dim, max_length, axes, width
        self.features, self.hidden = dim if features is None else features, dim if hidden is None else hidden
        require_whole("Fourier", dim=dim, max_length=max_length, axes=axes, features=self.features, hidden=self.hidden)
        require_even("Fourier", "a cosine and a sine share one frequency", features=self.features)
        require_positive("Fourier", width=width)

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.frequencies = empty(self.features // 2, axes)
        self.weight_in, self.bias_in = empty(self.hidden, self.features), empty(self.hidden)
        self.weight_out, self.bias_out = empty(dim, self.hidden), empty(dim)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize all weights."""
        require_generator("Fourier", generator, self.frequencies)
        sample_normal(self.frequencies, self.max_length / self.width, generator)
        # |r|^2 = 1/2, so each hidden feature has standard deviation 1
        sample_normal(self.weight_in, sqrt(2), generator)
        sample_normal(self.weight_out, _STD / sqrt(_GELU * self.hidden), generator)
        nn.init.zeros_(self.bias_in)
        nn.init.zeros_(self.bias_out)

    def forward(self, positions: PositionsLike) -> Float[Tensor, "batch tokens dim"]:
        """Return the vector of each position, in float32 at least."""
        index = as_positions(positions, self.weight_in.device, vectors=True).on_axes("Fourier", self.axes, real=True)
        wide = torch.promote_types(self.frequencies.dtype, torch.float32)
        scaled = index.to(torch.float64)[..., None] / self.max_length  # (axes, batch, tokens, 1)
        radians = (scaled * self.frequencies.double().mT[:, None, None]).sum(0)  # (batch, tokens, waves)
        waves = torch.cat([radians.cos(), radians.sin()], dim=-1).to(wide) / sqrt(self.features)
        with full_precision(index.device):
            hidden = F.gelu(F.linear(waves, self.weight_in.to(wide), self.bias_in.to(wide)))
            return F.linear(hidden, self.weight_out.to(wide), self.bias_out.to(wide))


_STD = 0.02
_GELU = 0.4252  # the mean of gelu(z)^2 over z ~ N(0, 1)
