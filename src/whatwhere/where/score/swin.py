"""Biases of distances within a window of a grid: Swin and Swin v2 from a table, SAM from queries."""

from abc import abstractmethod
from collections.abc import Callable
from math import log, sqrt
from typing import Any, ClassVar, final

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.initialization import sample_uniform
from whatwhere.kernels.backend import full_precision
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_generator
from whatwhere.where.base import NormalInit
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias, contract, require_content, require_known

WindowSize = int | tuple[int, int]  # height and width of a window in tokens; one number is both


class WindowTable(ScoreBias):
    """A bias that depends on the distances along the two axes of a grid, tabulated up to the size of a window.

        score(h, i, j) += B[y_i - y_j, x_i - x_j, h]        distances beyond the window count as its largest

    A subclass sets `num_heads` and `window_size`, and implements `table`.
    """

    axes = 2
    """Number of coordinates of a token; positions with one axis, as of text, serve as both."""
    window_size: tuple[int, int]
    """Height and width of the window in tokens."""

    @abstractmethod
    def table(self) -> Float[Tensor, "rows columns heads"]:
        """Return B, in float32 at least: the distances -(height - 1) .. height - 1, and of width likewise."""

    def bind(self, queries: Positions, keys: Positions, **content: Any) -> Element:
        """Return the bias as a function of elements."""
        require_known(self, content)
        table, row = self.table(), _within_window(type(self).__name__, queries, keys, self.window_size)
        return lambda b, h, i, j: table[row(0, b, i, j), row(1, b, i, j), h]


def _within_window(
    owner: str, queries: Positions, keys: Positions, window_size: tuple[int, int]
) -> Callable[[int, Tensor, Tensor, Tensor], Tensor]:
    """Return the row of a table for the distance along an axis of a pair; distances beyond it are its largest."""
    at_query, at_key = queries.on_axes(owner, 2), keys.on_axes(owner, 2)
    ends = tuple(size - 1 for size in window_size)

    def row(axis: int, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        y_query, y_key = at_query[axis], at_key[axis]
        distance = y_query[b % y_query.shape[0], i] - y_key[b % y_key.shape[0], j]
        return distance.clamp(-ends[axis], ends[axis]) + ends[axis]

    return row


def checked_size(owner: str, window_size: WindowSize) -> tuple[int, int]:
    """Return height and width of a window, after checking them."""
    sizes = (window_size, window_size) if isinstance(window_size, int) else tuple(window_size)
    if len(sizes) != 2:
        raise ShapeError(
            f"{owner} got window_size={window_size!r}, but needs height and width, or one number for both."
        )
    require_whole(owner, **{f"window_size[{axis}]": size for axis, size in enumerate(sizes)})
    height, width = sizes
    return height, width


@final
class Swin(NormalInit, WindowTable):
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

    def table(self) -> Float[Tensor, "rows columns heads"]:
        """Return the parameter by rows and columns, cast first, so that gradients are summed in float32."""
        wide = self.weight.to(torch.promote_types(self.weight.dtype, torch.float32))
        return wide.view(2 * self.window_size[0] - 1, 2 * self.window_size[1] - 1, self.num_heads)


@final
class SwinV2(WindowTable):
    """Compute one bias per head for each distance within a window from its logarithm, by a small network.

        score(h, i, j) += 16 sigmoid(W_2 relu(W_1 (s(y_i - y_j, H'), s(x_i - x_j, W')) + b_1))[h]
        s(d, n) = sign(d) log2(1 + 8 |d| / (n - 1)) / log2(8)

    with H', W' the window of training, so that a model can take a larger window. Liu et al. 2022, Swin Transformer V2,
    https://arxiv.org/abs/2111.09883, section 3.3. Beside it their scores are cosines of queries and keys times a
    learned scale, which is not a position and not part of this scheme. Distances beyond the window are its largest.

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


@final
class SAM(NormalInit, ScoreBias):
    """Add dot products of each query with a learned vector of the row distance and one of the column distance.

        score(h, i, j) += <q_i, R[y_i - y_j + H - 1]> + <q_i, C[x_i - x_j + W - 1]>        R: (2H - 1, head_dim)

    Li et al. 2022, MViTv2, section 4.1, https://arxiv.org/abs/2112.01526 (decomposed relative positions); ViTDet and
    SAM have them within windows of 14 by 14 and over the whole image. Queries are not scaled here, whereas the score
    they are added to is. Distances beyond the window, which its models do not have, count as the largest; for another
    size transformers interpolates the tables, which is not done here.

    Args:
        head_dim: features of a head.
        num_heads: heads of the attention, which share the tables.
        window_size: height and width of the window in tokens; one number is both.
        std: standard deviation of the initial tables, above 0.

    Learned: `rows` R and `columns` C, in the layouts of Hugging Face's `rel_pos_h` and `rel_pos_w`. Any length.
    Engines: dense, sdpa, flex. Used by: the paper's image models.

    Raises:
        ShapeError: If a size is not a whole number of at least 1.
        SettingError: If std is out of range.

    Examples:
        >>> from whatwhere import Positions, Where
        >>> sam, q = SAM(head_dim=8, num_heads=2, window_size=(2, 3)), torch.ones(1, 2, 6, 8)
        >>> Where(sam).at(Positions.grid(2, 3)).attention(q, q, q, causal=False).shape
        torch.Size([1, 2, 6, 8])
    """

    settings_in_repr = ("head_dim", "num_heads", "window_size", "std")
    head_axes: ClassVar = {}
    axes = 2
    """Number of coordinates of a token; positions with one axis, as of text, serve as both."""
    by_content = True
    rows: Float[Tensor, "row_distances head_dim"]
    columns: Float[Tensor, "column_distances head_dim"]

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        window_size: WindowSize = 14,
        *,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("SAM", head_dim=head_dim, num_heads=num_heads)
        require_positive("SAM", std=std)
        self.head_dim, self.num_heads, self.std = head_dim, num_heads, std
        self.window_size = checked_size("SAM", window_size)
        self.rows, self.columns = (
            nn.Parameter(torch.empty(2 * size - 1, head_dim, device=device, dtype=dtype)) for size in self.window_size
        )
        self.reset_parameters()

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute the dot products of queries and all vectors; each pair selects one of each table."""
        q = require_content("SAM", "q", q, self.head_dim)
        by_row, by_column = (contract("bhid,rd->bhir", q, table) for table in (self.rows, self.columns))
        row = _within_window("SAM", queries, keys, self.window_size)
        return lambda b, h, i, j: by_row[b, h, i, row(0, b, i, j)] + by_column[b, h, i, row(1, b, i, j)]
