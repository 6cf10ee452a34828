"""SAM's bias: queries read vectors of the distances along rows and along columns."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.initialization import sample_normal
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_generator
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias, contract, require_content
from whatwhere.where.window_table import WindowSize, checked_size


@final
class SAM(ScoreBias):
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

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize both tables."""
        require_generator("SAM", generator, self.rows)
        for table in (self.rows, self.columns):
            sample_normal(table, self.std, generator)

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute the dot products of queries and all vectors; each pair selects one of each table."""
        q = require_content("SAM", "q", q, self.head_dim)
        by_row, by_column = (contract("bhid,rd->bhir", q, table) for table in (self.rows, self.columns))
        at_query, at_key = queries.on_axes("SAM", 2), keys.on_axes("SAM", 2)
        ends = tuple(size - 1 for size in self.window_size)

        def slot(axis: int, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
            y_query, y_key = at_query[axis], at_key[axis]
            distance = y_query[b % y_query.shape[0], i] - y_key[b % y_key.shape[0], j]
            return distance.clamp(-ends[axis], ends[axis]) + ends[axis]

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return by_row[b, h, i, slot(0, b, i, j)] + by_column[b, h, i, slot(1, b, i, j)]

        return element
