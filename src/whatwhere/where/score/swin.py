"""Swin's table of biases within a window of the image."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.initialization import sample_normal
from whatwhere.tensor_checks import require_generator
from whatwhere.where.window_table import WindowSize, WindowTable, checked_size


@final
class Swin(WindowTable):
    """Learn one bias per head for each distance within a window of a grid.

        score(h, i, j) += B[(y_i - y_j + H - 1) (2 W - 1) + x_i - x_j + W - 1, h]        B: ((2H - 1)(2W - 1), heads)

    with a window of H by W tokens. Liu et al. 2021, Swin Transformer, https://arxiv.org/abs/2103.14030. Attention in
    Swin stays within windows: give each window's tokens `Positions.grid(H, W)`, in a batch of windows. Between tokens
    farther apart than a window, which its models do not have, the bias is that of the largest distance.

    Args:
        num_heads: heads of the attention.
        window_size: height and width of the window in tokens; one number is both.
        std: standard deviation of the initial table.

    Learned: one parameter, `weight`, in the layout of Hugging Face's `relative_position_bias_table`. Any length.
    Engines: dense, sdpa, flex. Used by: the paper's image models.

    Raises:
        ShapeError: If a size is not a whole number of at least 1.
        SettingError: If std is out of range.

    Examples:
        >>> from whatwhere import Positions
        >>> swin = Swin(num_heads=3, window_size=(2, 2))
        >>> swin.weight.shape, swin(Positions.grid(2, 2)).shape
        (torch.Size([9, 3]), torch.Size([1, 3, 4, 4]))
    """

    settings_in_repr = ("num_heads", "window_size", "std")
    head_axes: ClassVar = {"weight": 1}
    weight: Float[Tensor, "distances heads"]

    def __init__(
        self,
        num_heads: int,
        window_size: WindowSize = 7,
        *,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("Swin", num_heads=num_heads)
        require_positive("Swin", std=std)
        self.num_heads, self.window_size, self.std = num_heads, checked_size("Swin", window_size), std
        height, width = self.window_size
        distances = (2 * height - 1) * (2 * width - 1)
        self.weight = nn.Parameter(torch.empty(distances, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize the table."""
        require_generator("Swin", generator, self.weight)
        sample_normal(self.weight, self.std, generator)

    def table(self) -> Float[Tensor, "rows columns heads"]:
        """Return the parameter by rows and columns, cast first, so that gradients are summed in float32."""
        wide = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))
        return wide.view(2 * self.window_size[0] - 1, 2 * self.window_size[1] - 1, self.num_heads)
