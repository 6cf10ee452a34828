"""Context-aware rotary positions: each token rotates all later ones by angles that it decides."""

from math import exp, log1p
from typing import ClassVar, final

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.position.positions import Positions
from whatwhere.where.rotation_by_content import RotationByContent, without_padding
from whatwhere.where.score_bias import contract, require_features
from whatwhere.where.sums import slots_in_order, sums_in_order


@final
class CARoPE(RotationByContent):
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

    settings_in_repr = ("dim", "head_dim", "num_heads", "theta", "interleaved")
    head_axes: ClassVar = {"weight": 0, "bias": 0}
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
        """Set w to 0, and b so that f is that of rotary."""
        slow = self.theta ** (2 / self.head_dim) - 1  # softplus(b), of which b is the inverse
        nn.init.zeros_(self.weight)
        nn.init.constant_(self.bias, slow + log1p(-exp(-slow)))

    def increments(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens"]:
        """Return f of each token, in float32 at least."""
        require_features(self, x)
        z = contract("btd,hd->bht", x, self.weight) + self.bias[:, None]
        # softplus by another name: that of PyTorch 2.13 has a gradient whose strides torch.compile predicts wrongly
        return 1 / (torch.logaddexp(z, z.new_zeros(())) + 1)

    def angles(
        self, keys: Positions, increments: Float[Tensor, "batch heads keys"]
    ) -> Float64[Tensor, "batch heads keys pairs"]:
        """Return f_1 ** i + ... + f_t ** i of each pair i, for each key t."""
        powers = torch.arange(self.head_dim // 2, dtype=torch.float64, device=increments.device)
        added = without_padding(increments.double()[..., None] ** powers, keys)
        return sums_in_order(added.mT, slots_in_order(keys)).mT
