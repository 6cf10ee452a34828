"""Contextual positions."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.ruler import Positions
from whatwhere.where.content import contract, for_each_head, require_content
from whatwhere.where.doors import Element, ScoreBias


@final
class CoPE(ScoreBias):
    """Count only the keys that matter to a query, and learn a vector for each count.

        score(h, i, j) += <q_i, e[p_ij]>        p_ij = min(g_ij + g_i(j+1) + ... + g_ii, max_position - 1)
        g_ij = sigmoid(<q_i, k_j> scale)        e between whole numbers by linear interpolation

    Golovneva et al. 2024, https://arxiv.org/abs/2405.18719. The paper's equations have scale 1; its listing divides
    the scores, and so what the gates see, by sqrt(head_dim). This is the listing, scale=1.0 the equations; <q_i, e>
    is divided in neither. The attention's own softmax gets the same scale. e starts at 0, as in the listing. All
    heads share e. p_ij counts what lies between query and key, so it looks backward only and attention must be causal.

    Args:
        head_dim: features of a query, as attention gets it.
        num_heads: H, heads of the queries.
        max_position: rows of e; counts beyond the last row are taken as the last.
        scale: above 0; None is 1 / sqrt(head_dim).
        std: spread of e at the start, 0 or more.

    Learned: `weight` (max_position, head_dim). Any length. Engines: dense, sdpa, flex, all from a table of every
    query and key, made for each layer. Used by: its authors' models.

    >>> from whatwhere import Where, positions
    >>> here = Where(score=CoPE(head_dim=4, num_heads=2, max_position=8)).at(positions(3))
    >>> q = torch.ones(1, 2, 3, 4)
    >>> here.attention(q, q, q).shape
    torch.Size([1, 2, 3, 4])
    """

    by_content = True
    causal_only = True
    scale: float
    weight: Float[Tensor, "max_position head_dim"]

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        max_position: int,
        scale: float | None = None,
        std: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("CoPE", head_dim=head_dim, num_heads=num_heads, max_position=max_position)
        if scale is not None:
            require_positive("CoPE", scale=scale)
        if std != 0:
            require_positive("CoPE", std=std)  # 0, too, is a spread
        self.head_dim, self.num_heads, self.max_position, self.std = head_dim, num_heads, max_position, std
        self.scale = head_dim**-0.5 if scale is None else scale
        self.weight = nn.Parameter(torch.empty(max_position, head_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw e anew."""
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
        """Make the whole table of <q_i, e[p_ij]>: (batch, heads, queries, keys)."""
        q, k = require_content("CoPE", "q", q, self.head_dim), require_content("CoPE", "k", k, self.head_dim)
        logits = contract("bhid,bhjd->bhij", q, for_each_head(k, self.num_heads)) * self.scale
        open_gates = logits.sigmoid() * queries.mask(keys)
        count = open_gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.max_position - 1)
        floor, ceil = count.detach().floor(), count.detach().ceil()
        whole = contract("bhid,pd->bhip", q, self.weight)  # (batch, heads, queries, max_position)
        table = torch.lerp(whole.gather(-1, floor.long()), whole.gather(-1, ceil.long()), count - floor)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return table[b, h, i, j]

        return element

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"head_dim={self.head_dim}, num_heads={self.num_heads}, max_position={self.max_position}, "
            f"scale={self.scale:.4g}, std={self.std}"
        )
