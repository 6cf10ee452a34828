"""Context-aware rotary positions: each token rotates all later ones by angles that it decides."""

from math import exp, log1p
from typing import ClassVar, NoReturn, final

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import DoorError, ShapeError
from whatwhere.kernels.rotary import rotate
from whatwhere.position import Positions
from whatwhere.where.base import Bound, QueryKeyMap
from whatwhere.where.score_bias import (
    contract,
    query_slots,
    require_beginnings,
    require_no_holes,
    slots_in_order,
    sums_in_order,
)


@final
class CARoPE(QueryKeyMap):
    """Rotate each pair of features by the sum of the angles that the tokens up to this one add, in each head.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)      angle of pair i = f_1 ** i + ... + f_t ** i
        f_t = 1 / (softplus(<w_h, x_t> + b_h) + 1)                i = 0..head_dim/2 - 1

    Veisi et al. 2025, Context-aware Rotary Position Embedding, https://arxiv.org/abs/2507.23083. Rotary has
    f = theta ** (-2 / head_dim) for every token. The paper starts from it, but its equation has no b, without which no
    w has this value for all x; here w starts at 0 and b at the value of rotary. x is the input of the query and key
    projections, as for FoX. Angles are sums in float64.

    `here.increments(x)` returns f of each token, and `here.query_key(q, k, increments=...)` takes those of all keys: a
    KV cache stores them beside the keys. Positions give the order and the documents alone: padding rotates nothing.
    Attention must be causal, and all keys of a cache are kept. With grouped queries keys and values are repeated for
    all heads, because each head rotates them otherwise.

    Args:
        dim: features of x.
        head_dim: features of a head, an even number.
        num_heads: H, heads of the queries.
        theta: base of the frequencies at the start, above 1.
        interleaved: whether a pair is (2i, 2i+1); else it is (i, i + head_dim/2).

    Learned: `weight` (heads, dim) and `bias` (heads). Any length. Engines: dense, sdpa, flex. Used by: the paper's
    language models.

    Raises:
        ShapeError: If a size is not a whole number of at least 1, or head_dim is odd.
        SettingError: If theta is out of range.

    Examples:
        >>> from whatwhere import Where
        >>> here = Where(CARoPE(dim=8, head_dim=4, num_heads=2)).at(3)
        >>> x, q = torch.ones(1, 3, 8), torch.ones(1, 2, 3, 4)
        >>> q, k = here.query_key(q, q, increments=here.increments(x))
        >>> here.attention(q, k, q).shape
        torch.Size([1, 2, 3, 4])
    """

    head_axes: ClassVar = {"weight": 0, "bias": 0}
    by_content = True
    causal_only = True
    weight: Float[Tensor, "heads dim"]
    bias: Float[Tensor, " heads"]

    def __init__(
        self,
        dim: int,
        head_dim: int,
        num_heads: int,
        theta: float = 10_000.0,
        interleaved: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("CARoPE", dim=dim, head_dim=head_dim, num_heads=num_heads)
        require_even("CARoPE", "it rotates pairs of features", head_dim=head_dim)
        require_positive("CARoPE", **{"theta - 1": theta - 1})
        self.dim, self.head_dim, self.num_heads = dim, head_dim, num_heads
        self.theta, self.interleaved = theta, interleaved
        self.weight = nn.Parameter(torch.empty(num_heads, dim, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set w to 0, and b so that f is that of rotary.

        Args:
            generator: not used; nothing is sampled.
        """
        slow = self.theta ** (2 / self.head_dim) - 1  # softplus(b), of which b is the inverse
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, slow + log1p(-exp(-slow)))

    def increments(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens"]:
        """Return f of each token, in float32 at least.

        Args:
            x: the input of the query and key projections.

        Raises:
            ShapeError: If x does not have dim features.
        """
        if x.shape[-1] != self.dim:
            raise ShapeError(f"CARoPE was made for dim={self.dim}, but the token vectors have shape {tuple(x.shape)}.")
        return 1 / (F.softplus(contract("btd,hd->bht", x, self.weight) + self.bias[:, None]) + 1)

    def bind(self, positions: Positions, lengths: Int64[Tensor, "batch tokens"] | int | None = None) -> NoReturn:
        """Raise DoorError: positions do not suffice.

        Args:
            positions, lengths: not used.

        Raises:
            DoorError: If it is called: a map by content has `bind_content`.
        """
        raise DoorError(
            "CARoPE depends on token vectors, so it needs more than positions.\n"
            "Use here = where.at(positions) and here.query_key(q, k, increments=here.increments(x))."
        )

    def bind_content(
        self, queries: Positions, keys: Positions, increments: Float[Tensor, "batch heads keys"]
    ) -> tuple[Bound, Bound]:
        """Return cosine and sine of every angle for queries and for keys, (batch, heads, tokens, pairs).

        Args:
            queries, keys: positions of the queries and keys.
            increments: f of all keys.

        Raises:
            ShapeError: If there is not one increment for each key and head.
            PositionError: If keys were taken from a sequence without all tokens before them.
        """
        if increments.shape[1:] != (self.num_heads, keys.tokens):
            raise ShapeError(
                f"CARoPE needs increments of shape (batch, {self.num_heads}, {keys.tokens}), heads and keys, but "
                f"got {tuple(increments.shape)}.\n"
                "With a KV cache, append the new ones to the cached: torch.cat([cached, here.increments(x)], dim=-1)."
            )
        powers = torch.arange(self.head_dim // 2, dtype=torch.float64, device=increments.device)
        added = increments.double()[..., None] ** powers  # (batch, heads, keys, pairs)
        if keys.segment is not None:
            added = added.masked_fill((keys.segment < 0)[:, None, :, None], 0)
        require_beginnings(keys)
        require_no_holes(keys)
        total = sums_in_order(added.mT, slots_in_order(keys)).mT
        dtype = torch.promote_types(increments.dtype, torch.float32)
        at_keys = total.cos().to(dtype), total.sin().to(dtype)
        if queries is keys:
            return at_keys, at_keys
        slots = query_slots(queries, keys)[:, None, :, None]
        at_queries = total.gather(2, slots.expand(*total.shape[:2], -1, total.shape[3]))
        return (at_queries.cos().to(dtype), at_queries.sin().to(dtype)), at_keys

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Rotate queries.

        Raises:
            ShapeError: If q has another number of heads.
        """
        if q.shape[1] != self.num_heads:
            raise ShapeError(
                f"CARoPE was made for num_heads={self.num_heads}, but q has {q.shape[1]} heads: shape {tuple(q.shape)}."
            )
        cos, sin = bound
        return rotate(q, cos, sin, self.interleaved)

    def map_key(
        self, k: Float[Tensor, "batch key_heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Rotate keys, repeated for each head of the queries.

        Raises:
            ShapeError: If the heads of k do not divide those of the queries.
        """
        if k.shape[1] == 0 or self.num_heads % k.shape[1]:
            raise ShapeError(
                f"CARoPE was made for num_heads={self.num_heads}, which the heads of k {tuple(k.shape)} do not divide."
            )
        cos, sin = bound
        return rotate(k.repeat_interleave(self.num_heads // k.shape[1], dim=1), cos, sin, self.interleaved)

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"dim={self.dim}, head_dim={self.head_dim}, num_heads={self.num_heads}, theta={self.theta}, "
            f"interleaved={self.interleaved}"
        )
