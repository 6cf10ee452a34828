"""Learned Fourier features of positions."""

from math import sqrt
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.ruler import as_positions
from whatwhere.where.doors import InputEncoding, PositionsLike
from whatwhere.where.precision import full_precision


@final
class Fourier(InputEncoding):
    """Give each position what a small network makes of waves whose frequencies are learned.

        r = (cos(W_r p'), sin(W_r p')) / sqrt(D)        p' = p / longest,  W_r: (D/2, axes)
        x_i += W_2 gelu(W_1 r + b_1) + b_2

    Li et al. 2021, https://arxiv.org/abs/2106.02795, equations 2 and 6, with one group of axes. W_r is drawn from
    N(0, 1 / gamma^2): on average two positions then look alike as exp(-distance^2 / (2 gamma^2)). We give this width
    in positions, gamma = width / longest. (Implementations circulate that take the deviation 1 / gamma^2.) The paper
    says nothing of the other weights: here r goes into the network at size 1 and comes out at `std` 0.02, as the rows
    of Learned start.

    Args:
        dim: features.
        longest: positions 0..longest-1 become 0..1, so that a step of the optimizer turns no wave by more at longer
            texts; the trained length is right. Positions beyond are defined, but training has not shown them.
        axes: of the positions, 2 for images; a ruler with one axis stands at the same number on each.
        features: D, even; None is dim.
        hidden: rows of W_1; None is dim.
        width: how many positions apart tokens still look alike at the start, above 0.

    Learned: W_r `frequencies`, W_1 `weight_in`, b_1 `bias_in`, W_2 `weight_out`, b_2 `bias_out`. Any length. Angles
    are float64 and all else float32 at least, also where the weights are bfloat16 or autocast is on. Used by: the
    paper's image generation, detection and classification models.

    >>> Fourier(dim=8, longest=100)(torch.tensor([0, 1, 2])).shape
    torch.Size([1, 3, 8])
    """

    frequencies: Float[Tensor, "waves axes"]
    weight_in: Float[Tensor, "hidden features"]
    bias_in: Float[Tensor, " hidden"]
    weight_out: Float[Tensor, "dim hidden"]
    bias_out: Float[Tensor, " dim"]

    def __init__(
        self,
        dim: int,
        longest: int,
        axes: int = 1,
        features: int | None = None,
        hidden: int | None = None,
        width: float = 4.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.longest, self.axes, self.width = dim, longest, axes, width
        self.features, self.hidden = dim if features is None else features, dim if hidden is None else hidden
        require_whole("Fourier", dim=dim, longest=longest, axes=axes, features=self.features, hidden=self.hidden)
        require_even("Fourier", "a cosine and a sine share one frequency", features=self.features)
        require_positive("Fourier", width=width)

        def empty(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.frequencies = empty(self.features // 2, axes)
        self.weight_in, self.bias_in = empty(self.hidden, self.features), empty(self.hidden)
        self.weight_out, self.bias_out = empty(dim, self.hidden), empty(dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        nn.init.normal_(self.frequencies, std=self.longest / self.width)
        nn.init.normal_(self.weight_in, std=sqrt(2))  # |r|^2 = 1/2, so each hidden feature starts at deviation 1
        nn.init.normal_(self.weight_out, std=_STD / sqrt(_GELU * self.hidden))
        nn.init.zeros_(self.bias_in)
        nn.init.zeros_(self.bias_out)

    def forward(self, positions: PositionsLike) -> Float[Tensor, "batch tokens dim"]:
        """Give the vector of each position, in float32 at least."""
        index = as_positions(positions).on_axes("Fourier", self.axes)
        wide = torch.promote_types(self.frequencies.dtype, torch.float32)
        share = index.to(torch.float64)[..., None] / self.longest  # (axes, batch, tokens, 1)
        turns = (share * self.frequencies.double().mT[:, None, None]).sum(0)  # (batch, tokens, waves)
        waves = torch.cat([turns.cos(), turns.sin()], dim=-1).to(wide) / sqrt(self.features)
        with full_precision(index.device):
            inner = F.gelu(F.linear(waves, self.weight_in.to(wide), self.bias_in.to(wide)))
            return F.linear(inner, self.weight_out.to(wide), self.bias_out.to(wide))

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"dim={self.dim}, longest={self.longest}, axes={self.axes}, features={self.features}, "
            f"hidden={self.hidden}, width={self.width}"
        )


_STD = 0.02
_GELU = 0.4252  # the mean of gelu(z)^2 over z ~ N(0, 1)
