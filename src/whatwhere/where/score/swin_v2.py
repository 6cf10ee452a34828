"""Swin v2's biases: a small network of logarithmic distances within a window of the image."""

from math import log, sqrt
from typing import ClassVar, final

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError
from whatwhere.initialization import sample_uniform
from whatwhere.kernels.backend import full_precision
from whatwhere.tensor_checks import require_generator
from whatwhere.where.window_table import WindowSize, WindowTable, checked_size


@final
class SwinV2(WindowTable):
    """Compute one bias per head for each distance within a window from its logarithm, by a small network.

        score(h, i, j) += 16 sigmoid(W_2 relu(W_1 (s(y_i - y_j, H'), s(x_i - x_j, W')) + b_1))[h]
        s(d, n) = sign(d) log2(1 + 8 |d| / (n - 1)) / log2(8)

    with H', W' the window of training, so that a model can take a larger window. Liu et al. 2022, Swin Transformer V2,
    https://arxiv.org/abs/2111.09883, section 3.3. Beside it their scores are cosines of queries and keys times a
    learned scale, which is no position and not part of this scheme. Distances beyond the window are its largest.

    Args:
        num_heads: heads of the attention.
        window_size: height and width of the window in tokens; one number is both.
        trained_size: that of training, from which the units of distance come; None is the window. An axis of one
            token has no distances, so each must be at least 2 where the window's axis is.
        hidden: features of the hidden layer; 512 in the paper.

    Learned: `weight_in` W_1, (hidden, 2), `bias_in` b_1 and `weight_out` W_2, (heads, hidden). Any length. Engines:
    dense, sdpa, flex. Used by: the paper's image models.

    Raises:
        ShapeError: If a size is not a whole number of at least 1, or trained_size is too small.

    Examples:
        >>> from whatwhere import Positions
        >>> SwinV2(num_heads=3, window_size=8)(Positions.grid(8, 8)).shape
        torch.Size([1, 3, 64, 64])
    """

    settings_in_repr = ("num_heads", "window_size", "trained_size", "hidden")
    head_axes: ClassVar = {"weight_out": 0}
    weight_in: Float[Tensor, "hidden 2"]
    bias_in: Float[Tensor, " hidden"]
    weight_out: Float[Tensor, "heads hidden"]

    def __init__(
        self,
        num_heads: int,
        window_size: WindowSize = 8,
        trained_size: WindowSize | None = None,
        *,
        hidden: int = 512,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("SwinV2", num_heads=num_heads, hidden=hidden)
        self.num_heads, self.hidden, self.window_size = num_heads, hidden, checked_size("SwinV2", window_size)
        self.trained_size = self.window_size if trained_size is None else checked_size("SwinV2", trained_size)
        if any(size > 1 and unit < 2 for size, unit in zip(self.window_size, self.trained_size, strict=True)):
            raise ShapeError(
                f"SwinV2 got trained_size={self.trained_size} for window_size={self.window_size}, but divides "
                "distances by its sizes less 1.\nPass at least 2 where the window has more than one token."
            )
        self.weight_in = nn.Parameter(torch.empty(hidden, 2, device=device, dtype=dtype))
        self.bias_in = nn.Parameter(torch.empty(hidden, device=device, dtype=dtype))
        self.weight_out = nn.Parameter(torch.empty(num_heads, hidden, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize both layers as nn.Linear does: uniform within 1 / sqrt(inputs)."""
        require_generator("SwinV2", generator, self.weight_in)
        for weight, inputs in ((self.weight_in, 2), (self.bias_in, 2), (self.weight_out, self.hidden)):
            sample_uniform(weight, 1 / sqrt(inputs), generator)

    def distances(self) -> Float64[Tensor, "rows columns 2"]:
        """Return s of each distance along both axes.

        Examples:
            >>> SwinV2(num_heads=1, window_size=(1, 2)).distances()[0, :, 1]
            tensor([-1.0566,  0.0000,  1.0566], dtype=torch.float64)
        """
        lines = []
        for size, unit in zip(self.window_size, self.trained_size, strict=True):
            steps = torch.arange(1 - size, size, dtype=torch.float64, device=self.weight_in.device)
            lines.append(steps.sign() * (8 * steps.abs() / max(unit - 1, 1)).log1p() / log(8))
        return torch.stack(torch.meshgrid(*lines, indexing="ij"), dim=-1)

    def table(self) -> Float[Tensor, "rows columns heads"]:
        """Return the network's output at every distance, in float32 at least."""
        wide = torch.promote_types(self.weight_in.dtype, torch.float32)
        with full_precision(self.weight_in.device):
            hidden = F.linear(self.distances().to(wide), self.weight_in.to(wide), self.bias_in.to(wide)).relu()
            return 16 * F.linear(hidden, self.weight_out.to(wide)).sigmoid()
