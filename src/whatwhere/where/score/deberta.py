"""Disentangled attention: content meets position, position meets content."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor, nn

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import SettingError
from whatwhere.ruler import Positions
from whatwhere.where.content import contract, distances, for_each_head, require_content
from whatwhere.where.doors import Element, ScoreBias
from whatwhere.where.frequencies import sent

TERMS = ("c2p", "p2c")


@final
class DeBERTa(ScoreBias):
    """Let queries meet a learned key of the distance, and keys a learned query of the distance.

        score(h, i, j) = (<q_i, k_j> + <q_i, K[r, h]> + <k_j, Q[r, h]>) / sqrt(3 head_dim)        r = row(i - j)
                                        c2p             p2c

        row(n) = clip(bucket(n) + span, 0, 2 span - 1)        K, Q: (2 span, heads, head_dim), drawn from N(0, std)

    With one term, 3 becomes 2. He et al. 2021, https://arxiv.org/abs/2006.03654. In the paper K and Q are projections
    of one table of relative positions, by matrices of their own (DeBERTa) or by the layer's W_k and W_q
    (`share_att_key`, DeBERTa-v2 and v3); here they are the parameters, each layer's own. From a trained layer:
    `key_proj(table[: 2 * span]).unflatten(-1, (heads, head_dim))`. The paper writes row(j - i) in p2c; its code, and
    so every checkpoint, reads row(i - j) in both, and so does this class.

    Without max_distance, bucket(n) = n: distances are clipped, as in DeBERTa. With it they share rows, as in v2 and v3:

        bucket(n) = n                                                          |n| <= M,  M = span // 2
                    sign(n) (M + ceil((M - 1) ln(|n| / M) / ln((max_distance - 1) / M)))    else

    Edges are found in whole numbers, so they are the same on every device. Hugging Face's float32 logarithm gives the
    same rows at v3's settings; elsewhere it may miss an edge by one, as at 1,643 with span 512 up to 4,096.

    Args:
        head_dim: features of a head.
        num_heads: heads of the attention.
        span: rows for each direction, even and at least 4 if max_distance is given. DeBERTa has 512, v3 256 (there
            `position_buckets`).
        max_distance: from here on all distances share the outermost row; above span // 2 + 1. v3 has 512.
        terms: "c2p", "p2c" or both.
        std: spread of the initial tables.

    Learned: `position_keys` (c2p) and `position_queries` (p2c). Any length. Engines: dense, sdpa, flex. Queries and
    keys meet the tables first, (batch, heads, tokens, 2 span). Used by: DeBERTa, DeBERTa-v3.

    >>> DeBERTa(head_dim=16, num_heads=4, span=256, max_distance=512).rows(torch.tensor([0, 128, 300, 511, -9999]))
    tensor([256, 384, 463, 511,   0])
    """

    position_keys: Float[Tensor, "rows heads head_dim"] | None
    position_queries: Float[Tensor, "rows heads head_dim"] | None
    by_content = True
    scale: float

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        span: int = 512,
        max_distance: int | None = None,
        *,
        terms: Sequence[str] = TERMS,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("DeBERTa", head_dim=head_dim, num_heads=num_heads, span=span)
        require_positive("DeBERTa", std=std)
        self.head_dim, self.num_heads, self.span, self.max_distance = head_dim, num_heads, span, max_distance
        self.terms, self.std = _known(terms), std
        self._edges = () if max_distance is None else _checked_edges(span, max_distance)
        self.scale = (head_dim * (1 + len(self.terms))) ** -0.5
        for name, term in (("position_keys", "c2p"), ("position_queries", "p2c")):
            table = torch.empty(2 * span, num_heads, head_dim, device=device, dtype=dtype)
            self.register_parameter(name, nn.Parameter(table) if term in self.terms else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the tables anew."""
        for table in self.parameters(recurse=False):
            nn.init.normal_(table, std=self.std)

    def rows(self, distance: Integer[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """Give the row of each distance, query minus key."""
        n = distance.long()
        if self.max_distance is not None:
            middle, begins = self.span // 2, sent(self._edges, n.device, torch.int64)
            beyond = middle + torch.bucketize(n.abs(), begins, right=True)
            n = torch.where(n.abs() <= middle, n, n.sign() * beyond)
        return (n + self.span).clamp(0, 2 * self.span - 1)

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
        """Let queries and keys meet all rows; give the picks of each pair."""
        q, k = require_content("DeBERTa", "q", q, self.head_dim), require_content("DeBERTa", "k", k, self.head_dim)
        each_head = for_each_head(k, self.num_heads)
        by_query, by_key = self._met(q, self.position_keys), self._met(each_head, self.position_queries)
        between = distances("DeBERTa", queries, keys)
        # Looked up, for kernels know no bucketize; from `last` on, every distance has the same row.
        last = self.span if self.max_distance is None else self.max_distance
        rows = self.rows(torch.arange(-last, last + 1, device=q.device))

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            row = rows[between(b, i, j).clamp(-last, last) + last]
            picks = [] if by_query is None else [by_query[b, h, i, row]]
            picks += [] if by_key is None else [by_key[b, h, j, row]]
            return picks[0] if len(picks) == 1 else picks[0] + picks[1]

        return element

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"head_dim={self.head_dim}, num_heads={self.num_heads}, span={self.span}, "
            f"max_distance={self.max_distance}, terms={self.terms}, std={self.std}"
        )

    def _met(
        self, x: Float[Tensor, "batch heads tokens head_dim"], table: Float[Tensor, "rows heads head_dim"] | None
    ) -> Float[Tensor, "batch heads tokens rows"] | None:
        return None if table is None else contract("bhtd,rhd->bhtr", x, table) * self.scale


def edges(span: int, max_distance: int) -> tuple[int, ...]:
    """Give the distances at which the shared rows begin.

        row M + 1 + m begins at the first n with (n / M) ** (M - 1) > ((max_distance - 1) / M) ** m    m = 0 .. M - 1

    Compared in whole numbers, where no rounding can move an edge.

    >>> edges(8, 20)
    (5, 7, 12, 20)
    """
    middle = span // 2
    bounds = ((max_distance - 1) ** m * middle ** (middle - 1 - m) for m in range(middle))
    return tuple(bisect_right(range(max_distance), bound, key=lambda n: n ** (middle - 1)) for bound in bounds)


def _known(terms: Sequence[str]) -> tuple[str, ...]:
    given = (terms,) if isinstance(terms, str) else tuple(terms)
    for term in given:
        require_choice("DeBERTa", "terms", term, TERMS)
    if not given:
        raise SettingError('DeBERTa got no terms, but needs "c2p", "p2c" or both: without them it says nothing.')
    return tuple(term for term in TERMS if term in given)


def _checked_edges(span: int, max_distance: int) -> tuple[int, ...]:
    require_whole("DeBERTa", max_distance=max_distance)
    require_even("DeBERTa", "half of the rows of a direction are for single distances", span=span)
    if span < 4:
        raise SettingError(
            f"DeBERTa got span={span}, but shared rows need at least 4; without max_distance any will do."
        )
    if max_distance <= span // 2 + 1:
        raise SettingError(
            f"DeBERTa got max_distance={max_distance}, but distances up to {span // 2} have a row each, and the others "
            f"need room: pass max_distance={span // 2 + 2} or more, or None to clip at the span."
        )
    return edges(span, max_distance)
