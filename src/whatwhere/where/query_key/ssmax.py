"""Scalable softmax: queries multiplied by the logarithm of the number of visible keys."""

from math import lgamma
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import ShapeError
from whatwhere.position.positions import Positions
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.query_factor import QueryFactor


@final
class SSMax(QueryFactor):
    """Multiply each query by the logarithm of the number of keys it attends to; attention stays sharp in long text.

        q_i -> (s_h ln(n_i) + b_h) q_i        s_h from 1 / mean(ln 1, ..., ln original_length), b_h from 0

    Softmax over more keys is flatter; this compensates for it. Nakanishi 2025, Scalable-Softmax,
    https://arxiv.org/abs/2501.19399; s is initialized so that the mean factor over the trained length is 1, 0.168 for
    1024. Forms without parameters are curves of QueryTemperature, among them Qwen's `temperature.LogN`.

    n_i is the position plus 1, which in a causal model is the number of tokens up to and including this one. So it
    depends on the query alone, and decoding with a KV cache is exact. In an encoder every query attends to the whole
    text instead, and for positions that do not count from 0 (random, assigned) n is only the coordinate plus 1.

    A door takes one scheme, so another map of queries and keys is nested: `then`. It is applied first; keys are mapped
    by it alone.

    Args:
        head_dim: features of a head.
        num_heads: heads of the queries.
        then: a map of queries and keys, such as Rotary, of the same head_dim; None is none.
        original_length: the trained length, at least 2.
        bias: add a parameter b to each head's factor, as Mistral Large 4 does.

    Learned: `weight`, s of each head, and `bias`, b of each head, where there is one. Any length. Engines: dense, sdpa,
    flex. Used by: the paper's language models, Mistral Large 4.

    Raises:
        DoorError: If `then` is not a map of queries and keys.
        ShapeError: If a size is not a whole number of at least 1, original_length is 1, or `then` has another head_dim.

    Examples:
        >>> scaled = SSMax(head_dim=1, num_heads=1, original_length=4)
        >>> q = k = torch.ones(1, 1, 4, 1)
        >>> scaled(q, k)[0].flatten().detach()
        tensor([0.0000, 0.8724, 1.3827, 1.7448])
    """

    head_axes: ClassVar = {"weight": 0, "bias": 0}
    settings_in_repr = ("head_dim", "num_heads", "then", "original_length")
    weight: Float[Tensor, " heads"]
    bias: Float[Tensor, " heads"] | None

    def __init__(
        self,
        head_dim: int,
        num_heads: int,
        then: QueryKeyMap | None = None,
        original_length: int = 1024,
        bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(head_dim, then)
        require_whole("SSMax", num_heads=num_heads, original_length=original_length)
        if original_length < 2:
            raise ShapeError("SSMax got original_length=1, but divides by its logarithm: pass the trained length.")
        self.num_heads, self.original_length = num_heads, original_length
        self.weight = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(num_heads, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set s of every head so that the mean factor over the trained length is 1, and b to 0; `then` stays."""
        # ln 1 + ... + ln L = ln L!
        nn.init.constant_(self.weight, self.original_length / lgamma(self.original_length + 1))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def factor(self, positions: Positions) -> Float[Tensor, "batch heads tokens 1"]:
        """Return s_h ln(p + 1) + b_h."""
        growth = (positions.single_axis("SSMax").double() + 1).log()[:, None, :, None]
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        factor = self.weight.double()[:, None, None] * growth
        return (factor if self.bias is None else factor + self.bias.double()[:, None, None]).to(wide)

    def extra_repr(self) -> str:
        """Return the settings."""
        return super().extra_repr() + ("" if self.bias is None else ", bias=True")
