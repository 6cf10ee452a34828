"""Forgetting Transformer (FoX): forget gates as a bias of the scores."""

from typing import ClassVar, final

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional as F

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.initialization import sample_normal
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import readable, require_generator
from whatwhere.where.score_bias import Element, Gates, K, Q, ScoreBias, contract, require_features
from whatwhere.where.sums import at_slots, differences, query_slots, slots_in_order, sums_in_order


@final
class FoX(ScoreBias):
    """Learn for each token and head how much of the earlier tokens is forgotten.

        score(h, i, j) += ln f_(j+1) + ln f_(j+2) + ... + ln f_i        f_t = sigmoid(<w_h, x_t> + b_h)

    Lin et al. 2025, Forgetting Transformer, https://arxiv.org/abs/2503.02130. x is the input of the query and key
    projections, after the norm. Gates are one number for each token and query head, `here.gates(x)`; a KV cache stores
    them beside the keys. Logarithms are float32 and their cumulative sum float64: in float32 it would not separate
    neighboring tokens far from the start. w is initialized from N(0, 0.02) and b as 0, as in the authors' models.
    Attention must be causal. Padding forgets nothing, and packed documents do not affect one another. Keys may be
    in any order, but none between two of a document may be missing.

    Args:
        dim: features of x.
        num_heads: H, heads of the queries.

    Learned: `weight` (heads, dim) and `bias` (heads). Any length. Engines: dense, sdpa, flex. Used by: its authors'
    models.

    Examples:
        >>> from whatwhere import Where, positions
        >>> here = Where(score=FoX(dim=8, num_heads=2)).at(positions(3))
        >>> x, q = torch.ones(1, 3, 8), torch.ones(1, 2, 3, 4)
        >>> here.attention(q, q, q, gates=here.gates(x)).shape
        torch.Size([1, 2, 3, 4])
    """

    settings_in_repr = ("dim", "num_heads")
    head_axes: ClassVar = {"weight": 0, "bias": 0}
    by_content = True
    sums_between = True
    causal_only = True
    weight: Float[Tensor, "heads dim"]
    bias: Float[Tensor, " heads"]

    def __init__(
        self, dim: int, num_heads: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        require_whole("FoX", dim=dim, num_heads=num_heads)
        self.dim, self.num_heads = dim, num_heads
        self.weight = nn.Parameter(torch.empty(num_heads, dim, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize the gates."""
        require_generator("FoX", generator, self.weight)
        sample_normal(self.weight, 0.02, generator)
        nn.init.zeros_(self.bias)

    def gates(self, x: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch heads tokens"]:
        """Return ln f of each token, in float32 at least."""
        require_features(self, x)
        return F.logsigmoid(contract("btd,hd->bht", x, self.weight) + self.bias[:, None])

    def bind(
        self, queries: Positions, keys: Positions, *, q: Q = None, k: K = None, gates: Gates = None, causal: bool = True
    ) -> Element:
        """Compute the cumulative sum of the gates; a bias is the difference of two sums."""
        gates = self._require_gates(gates, keys, q)
        total = self.sums(keys, gates)
        return differences(at_slots(total, query_slots(queries, keys)), total, gates.dtype)

    def sums(self, keys: Positions, gates: Float[Tensor, "batch heads keys"]) -> Float64[Tensor, "batch heads keys"]:
        """Return the cumulative sum of the gates up to each key, in the order of the tokens."""
        visible = gates if keys.segment is None else gates.masked_fill(keys.segment[:, None] < 0, 0)
        return sums_in_order(visible.double(), slots_in_order(keys))

    def _require_gates(self, gates: Tensor | None, keys: Positions, q: Tensor | None) -> Tensor:
        if gates is None:
            raise SettingError(
                "FoX needs the gates of all keys, but got none.\n"
                "Pass gates=here.gates(x) to here.attention; with a KV cache, store them beside the keys."
            )
        needed = (gates.shape[0] if q is None else q.shape[0], self.num_heads, keys.tokens)
        if gates.shape != needed:
            raise ShapeError(
                f"FoX needs gates of shape (batch, heads, keys) = {needed}, but got {tuple(gates.shape)}.\n"
                "With a KV cache, append the new gates to the cached ones: torch.cat([cached, here.gates(x)], dim=-1)."
            )
        if readable(gates) and gates.numel() and (largest := gates.detach().amax()) > 0:
            raise SettingError(
                f"FoX got gates up to {largest:.3g}, but they are logarithms of f < 1, so never above 0.\n"
                "Pass what here.gates(x) returns, not f itself."
            )
        return gates
