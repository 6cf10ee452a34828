"""DeBERTa's disentangled attention: content-to-position and position-to-content scores."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor, nn

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.position.positions import Positions
from whatwhere.where.base import NormalInit
from whatwhere.where.frequencies import to_device
from whatwhere.where.score_bias import (
    Element,
    Gates,
    K,
    Q,
    ScoreBias,
    contract,
    distances,
    for_each_head,
    require_content,
)

TERMS = ("c2p", "p2c")


@final
class DeBERTa(NormalInit, ScoreBias):
    """Add dot products of queries with learned keys of the distance, and of keys with learned queries of the distance.

        score(h, i, j) = (<q_i, k_j> + <q_i, K[r, h]> + <k_j, Q[r, h]>) / sqrt(3 head_dim)        r = row(i - j)
                                        c2p             p2c

        row(n) = clip(bucket(n) + B, 0, 2 B - 1)        K, Q: (2 B, heads, head_dim), initially N(0, std)

    With one term, 3 becomes 2. He et al. 2021, https://arxiv.org/abs/2006.03654. In the paper K and Q are projections
    of one table of relative positions, by separate matrices (DeBERTa) or by the layer's W_k and W_q (`share_att_key`,
    DeBERTa-v2 and v3); here they are the parameters, separate for each layer. From a trained layer:
    `key_proj(table[: 2 * B]).unflatten(-1, (heads, head_dim))`. The paper writes row(j - i) in p2c; its code, and so
    every checkpoint, uses row(i - j) in both, and so does this class.

    Without position_buckets, bucket(n) = n and B = max_distance: distances are clipped, as in DeBERTa. With them,
    B = position_buckets and far distances share rows, as in v2 and v3:

        bucket(n) = n                                                          |n| <= M,  M = B // 2
                    sign(n) (M + ceil((M - 1) ln(|n| / M) / ln((max_distance - 1) / M)))    else

    Edges are computed with integers, so they are the same on every device. Hugging Face's float32 logarithm gives the
    same rows at v3's settings; elsewhere it may miss an edge by one, as at 1,643 with 512 buckets up to 4,096.

    Args:
        head_dim: features of a head.
        num_heads: heads of the attention.
        max_distance: all distances from here on share the outermost row (`max_relative_positions` in a configuration).
            512 in DeBERTa and v3.
        position_buckets: rows for each direction, even, at least 4 and below 2 * (max_distance - 1); None is one row
            for each distance. 256 in v3.
        terms: "c2p", "p2c" or both.
        std: standard deviation of the initial tables.

    Learned: `position_keys` (c2p) and `position_queries` (p2c). Any length. Engines: dense, sdpa, flex. Dot products
    with the tables are computed first, (batch, heads, tokens, 2 B), and indexed by pairs. Used by: DeBERTa, DeBERTa-v3.

    Examples:
        >>> DeBERTa(head_dim=16, num_heads=4, max_distance=512, position_buckets=256).rows(
        ...     torch.tensor([0, 128, 300, 511, -9999])
        ... )
        tensor([256, 384, 463, 511,   0])
    """

    settings_in_repr = ("head_dim", "num_heads", "max_distance", "position_buckets", "terms", "std")
    head_axes: ClassVar = {"position_keys": 1, "position_queries": 1}
    position_keys: Float[Tensor, "rows heads head_dim"] | None
    position_queries: Float[Tensor, "rows heads head_dim"] | None
    by_content = True
    scale: float

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        max_distance: int = 512,
        position_buckets: int | None = None,
        *,
        terms: Sequence[str] = TERMS,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("DeBERTa", head_dim=head_dim, num_heads=num_heads, max_distance=max_distance)
        require_positive("DeBERTa", std=std)
        self.head_dim, self.num_heads = head_dim, num_heads
        self.max_distance, self.position_buckets = max_distance, position_buckets
        self.terms, self.std = _checked_terms(terms), std
        self._edges = () if position_buckets is None else _checked_edges(position_buckets, max_distance)
        self.scale = (head_dim * (1 + len(self.terms))) ** -0.5
        for name, term in (("position_keys", "c2p"), ("position_queries", "p2c")):
            table = torch.empty(2 * self._rows_per_side, num_heads, head_dim, device=device, dtype=dtype)
            self.register_parameter(name, nn.Parameter(table) if term in self.terms else None)
        self.reset_parameters()

    def rows(self, distance: Integer[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """Return the row of each distance, query minus key."""
        n, side = distance.long(), self._rows_per_side
        if self.position_buckets is not None:
            middle, begins = side // 2, to_device(self._edges, n.device, torch.int64)
            beyond = middle + torch.bucketize(n.abs(), begins, right=True)
            n = torch.where(n.abs() <= middle, n, n.sign() * beyond)
        return (n + side).clamp(0, 2 * side - 1)

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute the dot products of queries and keys with all rows; each pair selects its own."""
        q, k = require_content("DeBERTa", "q", q, self.head_dim), require_content("DeBERTa", "k", k, self.head_dim)
        by_query = self._products(q, self.position_keys)
        by_key = self._products(for_each_head(k, self.num_heads), self.position_queries)
        distance, last = distances("DeBERTa", queries, keys), self.max_distance
        # A lookup, since FlexAttention cannot trace bucketize; all distances from `last` on have the same row.
        rows = self.rows(torch.arange(-last, last + 1, device=q.device))

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            row = rows[distance(b, i, j).clamp(-last, last) + last]
            terms = [] if by_query is None else [by_query[b, h, i, row]]
            terms += [] if by_key is None else [by_key[b, h, j, row]]
            return terms[0] if len(terms) == 1 else terms[0] + terms[1]

        return element

    @property
    def _rows_per_side(self) -> int:
        return self.max_distance if self.position_buckets is None else self.position_buckets

    def _products(
        self, x: Float[Tensor, "batch heads tokens head_dim"], table: Float[Tensor, "rows heads head_dim"] | None
    ) -> Float[Tensor, "batch heads tokens rows"] | None:
        return None if table is None else contract("bhtd,rhd->bhtr", x, table) * self.scale


def edges(position_buckets: int, max_distance: int) -> tuple[int, ...]:
    """Return the distances at which the rows that several distances share begin.

        row M + 1 + m begins at the first n with (n / M) ** (M - 1) > ((max_distance - 1) / M) ** m    m = 0 .. M - 1

    Compared as integers, so that no rounding can move an edge. M is half of the `position_buckets`.
    """
    middle = position_buckets // 2
    bounds = ((max_distance - 1) ** m * middle ** (middle - 1 - m) for m in range(middle))
    return tuple(bisect_right(range(max_distance), bound, key=lambda n: n ** (middle - 1)) for bound in bounds)


def _checked_terms(terms: Sequence[str]) -> tuple[str, ...]:
    chosen = (terms,) if isinstance(terms, str) else tuple(terms)
    for term in chosen:
        require_choice("DeBERTa", "terms", term, TERMS)
    if not chosen:
        raise SettingError('DeBERTa got no terms, but needs "c2p", "p2c" or both: without them there is no bias.')
    return tuple(term for term in TERMS if term in chosen)


def _checked_edges(position_buckets: int, max_distance: int) -> tuple[int, ...]:
    require_whole("DeBERTa", position_buckets=position_buckets)
    reason = "half of the rows of a direction are for single distances"
    require_even("DeBERTa", reason, position_buckets=position_buckets)
    if position_buckets < 4:
        raise SettingError(
            f"DeBERTa got position_buckets={position_buckets}, but shared rows need at least 4.\n"
            "Pass None for one row for each distance."
        )
    single = position_buckets // 2
    if max_distance <= single + 1:
        raise SettingError(
            f"DeBERTa got max_distance={max_distance}, but with position_buckets={position_buckets} distances up to "
            f"{single} have their own rows, and the others need some too: pass max_distance={single + 2} or more, or "
            "position_buckets=None for one row for each distance."
        )
    return edges(position_buckets, max_distance)
