"""Shaw's relative position representations, in the keys."""

from math import sqrt
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.position.positions import Positions
from whatwhere.where.base import NormalInit
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias, contract, distances, require_content


@final
class Shaw(NormalInit, ScoreBias):
    """Add to each key a learned vector of its clipped distance from the query.

        score(h, i, j) += <q_i, E[clip(j - i, -D, F) + D]> / sqrt(head_dim)

    with D = max_distance, F = max_future_distance and E: (D + 1 + F, head_dim), initially N(0, std), shared by all
    heads. Shaw, Uszkoreit and Vaswani 2018, https://arxiv.org/abs/1803.02155, equation 5. Their equation 3 adds a
    second table to the values; that is not a bias of a score and not part of this library. Dot products of queries and
    rows are computed first, (batch, heads, queries, rows), and indexed by pairs: no tensor of size queries * keys *
    head_dim is needed.

    Args:
        head_dim: features of a head.
        num_heads: heads of the attention.
        max_distance: distance at which earlier keys are clipped; nearer ones have one row for each distance.
        max_future_distance: the same for later keys, 0 or more; None is max_distance. A causal model needs 0.
        std: standard deviation of the initial rows.

    Learned: one parameter, `weight`, in the layout of Hugging Face's `distance_embedding`. Any length. Engines: dense,
    sdpa, flex. Used by: Wav2Vec2-BERT.

    Raises:
        ShapeError: If a size or max_distance is not a whole number of at least 1.
        SettingError: If max_future_distance or std is out of range.

    Examples:
        >>> Shaw(head_dim=16, num_heads=4, max_distance=8, max_future_distance=0).weight.shape
        torch.Size([9, 16])
    """

    settings_in_repr = ("head_dim", "num_heads", "max_distance", "max_future_distance", "std")
    head_axes: ClassVar = {}
    weight: Float[Tensor, "rows head_dim"]
    by_content = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        max_distance: int = 16,
        max_future_distance: int | None = None,
        *,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("Shaw", head_dim=head_dim, num_heads=num_heads, max_distance=max_distance)
        require_positive("Shaw", std=std)
        future = max_distance if max_future_distance is None else max_future_distance
        if isinstance(future, bool) or not isinstance(future, int) or future < 0:
            raise SettingError(
                f"Shaw got max_future_distance={future!r}, but needs a whole number, 0 or more; 0 for causal attention."
            )
        self.head_dim, self.num_heads, self.std = head_dim, num_heads, std
        self.max_distance, self.max_future_distance = max_distance, future
        self.weight = nn.Parameter(torch.empty(max_distance + 1 + future, head_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute the dot products of queries and all rows; each pair selects one."""
        q = require_content("Shaw", "q", q, self.head_dim)
        products = contract("bhid,rd->bhir", q, self.weight) / sqrt(self.head_dim)  # (batch, heads, queries, rows)
        distance, past, future = distances("Shaw", queries, keys), self.max_distance, self.max_future_distance

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return products[b, h, i, (-distance(b, i, j)).clamp(-past, future) + past]

        return element
