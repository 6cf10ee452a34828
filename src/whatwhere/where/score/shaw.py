"""Relative positions as vectors that queries meet."""

from math import sqrt
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.ruler import Positions
from whatwhere.where.content import contract, distances, require_content
from whatwhere.where.doors import Element, ScoreBias


@final
class Shaw(ScoreBias):
    """Let each query meet a learned vector of the clipped distance, as if it were part of the key.

        score(h, i, j) += <q_i, E[clip(j - i, -left, right) + left]> / sqrt(head_dim)

    with E: (left + 1 + right, head_dim), drawn from N(0, std), shared by all heads. Shaw, Uszkoreit and Vaswani 2018,
    https://arxiv.org/abs/1803.02155, equation 5. Their equation 3 adds a second table to the values; that is no
    number added to a score and stays outside of this library. Queries meet the table first, (batch, heads, queries,
    rows), and pairs pick from the result: nothing of size queries * keys * head_dim is made.

    Args:
        head_dim: features of a head.
        num_heads: heads of the attention.
        left: earlier keys at distances 0..left have a row each, farther ones the first row.
        right: later keys up to this distance have a row each, farther ones the last row; 0 if none are seen.
        std: spread of the initial rows.

    Learned: one parameter, `weight`, in the layout of Hugging Face's `distance_embedding`. Any length. Engines: dense,
    sdpa, flex. Used by: Wav2Vec2-BERT.

    >>> Shaw(head_dim=16, num_heads=4, left=8, right=0).weight.shape
    torch.Size([9, 16])
    """

    weight: Float[Tensor, "rows head_dim"]
    by_content = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        left: int = 16,
        right: int = 16,
        *,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("Shaw", head_dim=head_dim, num_heads=num_heads, left=left)
        require_positive("Shaw", std=std)
        if isinstance(right, bool) or not isinstance(right, int) or right < 0:
            raise SettingError(f"Shaw got right={right!r}, but needs a whole number; 0 where no later key is seen.")
        self.head_dim, self.num_heads, self.left, self.right, self.std = head_dim, num_heads, left, right, std
        self.weight = nn.Parameter(torch.empty(left + 1 + right, head_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the rows anew."""
        nn.init.normal_(self.weight, std=self.std)

    def bind(
        self,
        queries: Positions,
        keys: Positions,
        *,
        q: Float[Tensor, "batch heads queries head_dim"] | None = None,
        k: Float[Tensor, "batch key_heads keys head_dim"] | None = None,
        gates: Float[Tensor, "batch heads keys"] | None = None,
        causal: bool = True,
    ) -> Element:
        """Let queries meet all rows; give the pick of each pair."""
        q = require_content("Shaw", "q", q, self.head_dim)
        met = contract("bhid,rd->bhir", q, self.weight) / sqrt(self.head_dim)  # (batch, heads, queries, rows)
        between, left, right = distances("Shaw", queries, keys), self.left, self.right

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return met[b, h, i, (-between(b, i, j)).clamp(-left, right) + left]

        return element

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"head_dim={self.head_dim}, num_heads={self.num_heads}, left={self.left}, right={self.right}, "
            f"std={self.std}"
        )
