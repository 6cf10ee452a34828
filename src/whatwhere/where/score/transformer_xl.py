"""Transformer-XL's relative positional encoding."""

from math import sqrt
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.position.positions import Positions
from whatwhere.where.base import NormalInit
from whatwhere.where.frequencies import sinusoid
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias, contract, for_each_head, require_content


@final
class TransformerXL(NormalInit, ScoreBias):
    """Add dot products of queries with the projected sinusoid of the distance, and bias vectors for keys and distances.

        score(h, i, j) = (<q_i + u_h, k_j> + <q_i + v_h, W_h R(i - j)>) / sqrt(head_dim)

        R(n) = (sin n w_0, sin n w_1, ..., cos n w_0, cos n w_1, ...)        w_m = theta ** (-2m / dim)

    Dai et al. 2019, https://arxiv.org/abs/1901.02860, section 3.3; sines before cosines, as in their code and XLNet's.
    <q_i, k_j> is the score of the attention itself; this scheme adds the rest. R of a negative distance is for later
    keys. Their code computes R of all distances and shifts the result; here sine and cosine of the difference are
    expanded,

        <y, R(i - j)> = <z, R(j)>        z = (y_c sin i w - y_s cos i w,  y_s sin i w + y_c cos i w)

    so a pair costs one dot product of dim features, and positions may have gaps. `clamp_len` is not supported.

    Args:
        head_dim: features of a head.
        num_heads: heads of the attention.
        dim: features of R, even; None is num_heads * head_dim.
        theta: base of the frequencies, above 0.
        std: standard deviation of the initial parameters.

    Learned: `u` and `v` (heads, head_dim), `weight` W (heads, head_dim, dim); XLNet's `r_w_bias`, `r_r_bias` and
    `r.permute(1, 2, 0)`. Any length. Engines: dense, sdpa, flex. Used by: Transformer-XL, XLNet.

    Examples:
        >>> TransformerXL(head_dim=16, num_heads=4).weight.shape
        torch.Size([4, 16, 64])
    """

    settings_in_repr = ("head_dim", "num_heads", "dim", "theta", "std")
    head_axes: ClassVar = {"u": 0, "v": 0, "weight": 0}
    u: Float[Tensor, "heads head_dim"]
    v: Float[Tensor, "heads head_dim"]
    weight: Float[Tensor, "heads head_dim dim"]
    by_content = True

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        dim: int | None = None,
        *,
        theta: float = 10_000.0,
        std: float = 0.02,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_whole("TransformerXL", head_dim=head_dim, num_heads=num_heads)
        dim = num_heads * head_dim if dim is None else dim
        require_whole("TransformerXL", dim=dim)
        require_even("TransformerXL", "a sine and a cosine share one frequency", dim=dim)
        require_positive("TransformerXL", theta=theta, std=std)
        self.head_dim, self.num_heads, self.dim, self.theta, self.std = head_dim, num_heads, dim, theta, std
        self.u, self.v = (nn.Parameter(torch.empty(num_heads, head_dim, device=device, dtype=dtype)) for _ in range(2))
        self.weight = nn.Parameter(torch.empty(num_heads, head_dim, dim, device=device, dtype=dtype))
        self.reset_parameters()

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute the table of all pairs, (batch, heads, queries, keys)."""
        q = require_content("TransformerXL", "q", q, self.head_dim)
        k = for_each_head(require_content("TransformerXL", "k", k, self.head_dim), self.num_heads)
        # v and q are multiplied by W separately: their sum in bfloat16 would be rounded once more.
        y = contract("bhid,hdn->bhin", q, self.weight) + contract("hd,hdn->hn", self.v, self.weight)[:, None]
        by_distance = contract("bhin,bjn->bhij", self._rotated(y, queries), self._sinusoid(keys))
        by_key = contract("hd,bhjd->bhj", self.u, k)
        table = (by_distance + by_key[:, :, None]) / sqrt(self.head_dim)

        def element(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return table[b, h, i, j]

        return element

    def _rotated(
        self, y: Float[Tensor, "batch heads queries dim"], queries: Positions
    ) -> Float[Tensor, "batch heads queries dim"]:
        """Return z, for which <z, R(j)> = <y, R(i - j)>."""
        sin, cos = self._sinusoid(queries)[:, None].chunk(2, dim=-1)
        y_sin, y_cos = y.chunk(2, dim=-1)
        return torch.cat([y_cos * sin - y_sin * cos, y_sin * sin + y_cos * cos], dim=-1)

    def _sinusoid(self, positions: Positions) -> Float[Tensor, "batch tokens dim"]:
        return sinusoid(positions.single_axis("TransformerXL"), self.dim, self.theta, "half")
