"""Contextual position encoding."""

from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_positive, require_whole
from whatwhere.position.positions import Positions
from whatwhere.where.base import NormalInit
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias, contract, for_each_head, require_content
from whatwhere.where.sums import require_own_keys, slots_in_order, sums_in_order


@final
class CoPE(NormalInit, ScoreBias):
    """Count only the keys whose gate is open for the query, and learn a vector for each count.

        score(h, i, j) += <q_i, e[p_ij]>        p_ij = min(g_ij + g_i(j+1) + ... + g_ii, max_distance - 1)
        g_ij = sigmoid(<q_i, k_j> scale)        e between whole numbers by linear interpolation

    Golovneva et al. 2024, https://arxiv.org/abs/2405.18719. The paper's equations have scale 1; its listing divides
    the scores, and so the input of the gates, by sqrt(head_dim). The default is the listing, scale=1.0 the equations;
    <q_i, e> is divided in neither. The softmax of the attention gets the same scale. e is initially 0, as in the
    listing. All heads share e. p_ij counts the keys between key and query, so attention must be causal.

    Args:
        head_dim: features of a query, as passed to attention.
        num_heads: H, heads of the queries.
        max_distance: rows of e; counts from max_distance - 1 on use the last row.
        scale: above 0; None is 1 / sqrt(head_dim).
        std: standard deviation of the initial e, 0 or more.

    Learned: `weight` (max_distance, head_dim). Any length. Engines: dense, sdpa, flex, all from a table of all
    queries and keys, computed for each layer. Used by: its authors' models.

    Examples:
        >>> from whatwhere import Where, positions
        >>> here = Where(score=CoPE(head_dim=4, num_heads=2, max_distance=8)).at(positions(3))
        >>> q = torch.ones(1, 2, 3, 4)
        >>> here.attention(q, q, q).shape
        torch.Size([1, 2, 3, 4])
    """

    settings_in_repr = ("head_dim", "num_heads", "max_distance", "scale", "std")
    head_axes: ClassVar = {}
    by_content = True
    sums_between = True
    causal_only = True
    scale: float
    weight: Float[Tensor, "max_distance head_dim"]

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        max_distance: int,
        scale: float | None = None,
        std: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("CoPE", head_dim=head_dim, num_heads=num_heads, max_distance=max_distance)
        if scale is not None:
            require_positive("CoPE", scale=scale)
        if std != 0:
            require_positive("CoPE", std=std)
        self.head_dim, self.num_heads, self.max_distance, self.std = head_dim, num_heads, max_distance, std
        self.scale = head_dim**-0.5 if scale is None else scale
        self.weight = nn.Parameter(torch.empty(max_distance, head_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute the whole table of <q_i, e[p_ij]>: (batch, heads, queries, keys)."""
        q, k = require_content("CoPE", "q", q, self.head_dim), require_content("CoPE", "k", k, self.head_dim)
        logits = contract("bhid,bhjd->bhij", q, for_each_head(k, self.num_heads)) * self.scale
        open_gates = logits.sigmoid() * queries.mask(keys)
        require_own_keys(queries, keys)
        count = sums_in_order(open_gates, slots_in_order(keys), backward=True).clamp(max=self.max_distance - 1)
        floor, ceil = count.detach().floor(), count.detach().ceil()
        products = contract("bhid,pd->bhip", q, self.weight)  # (batch, heads, queries, max_distance)
        table = torch.lerp(products.gather(-1, floor.long()), products.gather(-1, ceil.long()), count - floor)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return table[b, h, i, j]

        return element
