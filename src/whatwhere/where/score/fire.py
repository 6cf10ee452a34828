"""Functional interpolation of relative positions."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.kernels.blocks import ByBlocks
from whatwhere.kernels.polyline import Polyline, fills, polyline_of_relus
from whatwhere.ruler import Positions
from whatwhere.where.doors import Element, ScoreBias

_EPSILON = 1e-6


@final
class FIRE(ScoreBias):
    """Learn the bias as a function of the distance, measured by how far back a query can look.

        score(h, i, j) += MLP_h( ln(|c (i - j)| + 1) / (ln(|c max(i, |m L|)| + 1) + 1e-6) )
        MLP: 1 -> width, ReLU -> H

    Li et al. 2024, https://arxiv.org/abs/2310.04418. i is the coordinate of the query, which counts from 0 within its
    document: in packed, padded and decoded sequences it is the same number. Earlier keys lie at ratios 0..1, at any
    length. Up to the threshold |m L| the divisor is constant, and the bias depends on the distance alone; beyond it,
    moving a text moves its scores. c, the factor m and the MLP are learned, L is given. The numbers at the start are
    those of https://github.com/mcleish7/arithmetic, whose MLP starts as PyTorch's linear layers do. The paper is about
    decoders: for an encoder, a later key is read as an earlier one at the same distance, and its ratio may be above 1.

    Args:
        num_heads: H, any positive integer.
        width: features between the two layers of the MLP.
        threshold: L, in positions, above 0.
        c: what c starts as, above 0.

    Learned: `c`, `threshold_factor` (m) and the two layers of the MLP. Any length. Engines: dense, sdpa, flex. Used by:
    its authors' models.

    >>> FIRE(num_heads=2)(torch.tensor([0, 1, 2])).shape
    torch.Size([1, 2, 3, 3])
    """

    c: Float[Tensor, ""]
    threshold_factor: Float[Tensor, ""]
    weight_in: Float[Tensor, " width"]
    bias_in: Float[Tensor, " width"]
    weight_out: Float[Tensor, "heads width"]
    bias_out: Float[Tensor, " heads"]

    def __init__(
        self,
        num_heads: int,
        width: int = 32,
        threshold: float = 512.0,
        c: float = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("FIRE", num_heads=num_heads, width=width)
        require_positive("FIRE", threshold=threshold, c=c)
        self.num_heads, self.width, self.threshold, self.first_c = num_heads, width, threshold, c
        shapes = {"c": (), "threshold_factor": (), "weight_in": (width,), "bias_in": (width,)}
        shapes |= {"weight_out": (num_heads, width), "bias_out": (num_heads,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put c and m back to their start, and draw the MLP anew."""
        nn.init.constant_(self.c, self.first_c)
        nn.init.ones_(self.threshold_factor)
        for weights, fan_in in ((self.weight_in, 1), (self.bias_in, 1), (self.weight_out, self.width)):
            nn.init.uniform_(weights, -(fan_in**-0.5), fan_in**-0.5)
        nn.init.uniform_(self.bias_out, -(self.width**-0.5), self.width**-0.5)

    def bind(
        self,
        queries: Positions,
        keys: Positions,
        *,
        q: Tensor | None = None,
        k: Tensor | None = None,
        gates: Tensor | None = None,
        causal: bool = True,
    ) -> Element:
        """Give the bias by element."""
        at_query, at_key = queries.single_axis("FIRE"), keys.single_axis("FIRE")
        wide = torch.promote_types(self.c.dtype, torch.float32)
        c, threshold = self.c.to(wide)[None], (self.threshold_factor.to(wide) * self.threshold).abs()[None]
        weight_in, bias_in = self.weight_in.to(wide), self.bias_in.to(wide)
        weight_out, bias_out = self.weight_out.to(wide), self.bias_out.to(wide)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            # FlexAttention gives gradients to what a tensor picks out, and to nothing else; hence no plain c or [n].
            query, first = at_query[b % at_query.shape[0], i], j * 0
            distance = (query - at_key[b % at_key.shape[0], j]).to(wide)
            reach = torch.maximum(query.to(wide), threshold[first])
            ratio = (c[first] * distance).abs().log1p() / ((c[first] * reach).abs().log1p() + _EPSILON)
            bias = bias_out[h]
            for n in range(self.width):  # by element a kernel has no matrix product
                hidden = (weight_in[first + n] * ratio + bias_in[first + n]).relu()
                bias = bias + weight_out[h, first + n] * hidden
            return bias

        return element

    def by_blocks(self, positions: Positions, causal: bool) -> ByBlocks | None:
        """Give the MLP as a polyline of the ratio; None for later keys and where sequences stand differently."""
        wide = torch.promote_types(self.c.dtype, torch.float32)
        if not causal or positions.batch > 1 or wide != torch.float32:
            return None
        rate, threshold = self.c.to(wide).abs(), (self.threshold_factor.to(wide) * self.threshold).abs()
        reach = (rate * torch.maximum(positions.single_axis("FIRE")[0].to(wide), threshold)).log1p() + _EPSILON
        mlp = (weight.to(wide) for weight in (self.weight_in, self.bias_in, self.weight_out, self.bias_out))
        return ByBlocks(Polyline, (rate, reach, *polyline_of_relus(*mlp)), fills)

    def extra_repr(self) -> str:
        """Show the settings."""
        return f"num_heads={self.num_heads}, width={self.width}, threshold={self.threshold}, c={self.first_c}"
