"""Rotary positions."""

from typing import final

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

from whatwhere.checks import require_even, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.ruler import Positions
from whatwhere.where.doors import Bound, QueryKeyMap
from whatwhere.where.frequencies import angles, cos_sin, inverse_frequencies


@final
class Rotary(QueryKeyMap):
    """Turn each pair of features of a query or key by an angle that grows with its position.

        (x_a, x_b) -> (x_a cos - x_b sin, x_a sin + x_b cos)      angle = p w_i,  w_i = theta ** (-2i / rotary_dim)
        <R_m q, R_n k> = <q, R_(n-m) k>                           so scores depend on the distance m - n only

    Su et al. 2021, https://arxiv.org/abs/2104.09864. Which features make a pair is a convention of the weights, and
    mixing the two is a silent fault: `interleaved=True` pairs (2i, 2i+1) as the paper, GPT-J and Meta's Llama code
    do; the default pairs (i, i + rotary_dim/2) as Hugging Face and GPT-NeoX do.

    Args:
        head_dim: features of a head.
        theta: above 0; 10,000 in the paper, 500,000 in Llama 3.
        interleaved: which features make a pair.
        rotary_dim: turn only the first features, an even number up to head_dim; None turns all.

    Fixed: no parameters, no state. Any length; quality beyond the trained length needs a scaling. Angles are float64,
    the rotation is done in float32 and cast back. Used by: Llama, Qwen, Mistral, GPT-NeoX (partial), GPT-J.

    >>> rope = Rotary(head_dim=4)
    >>> q = torch.ones(1, 1, 2, 4)
    >>> rope(q, q, torch.tensor([0, 1]))[0][0, 0]
    tensor([[ 1.0000,  1.0000,  1.0000,  1.0000],
            [-0.3012,  0.9900,  1.3818,  1.0099]])
    """

    def __init__(
        self, head_dim: int, theta: float = 10_000.0, *, interleaved: bool = False, rotary_dim: int | None = None
    ) -> None:
        super().__init__()
        require_whole("Rotary", head_dim=head_dim)
        if rotary_dim is None:
            require_even("Rotary", "it turns pairs of features", head_dim=head_dim)
            rotary_dim = head_dim
        require_whole("Rotary", rotary_dim=rotary_dim)
        require_even("Rotary", "it turns pairs of features", rotary_dim=rotary_dim)
        if rotary_dim > head_dim:
            raise ShapeError(f"Rotary got rotary_dim={rotary_dim}, but a head has only head_dim={head_dim} features.")
        require_positive("Rotary", theta=theta)
        self.head_dim, self.theta, self.interleaved, self.rotary_dim = head_dim, theta, interleaved, rotary_dim

    @property
    def inverse_frequencies(self) -> Float64[Tensor, " pairs"]:
        """How far each pair turns per position, in radians."""
        return inverse_frequencies(self.rotary_dim, self.theta)

    def bind(self, positions: Positions) -> Bound:
        """Give cos and sin of every angle, (batch, 1, tokens, pairs): one table for all heads and layers."""
        frequencies = inverse_frequencies(self.rotary_dim, self.theta, positions.device)
        cos, sin = cos_sin(angles(positions.single_axis("Rotary"), frequencies))
        return cos[:, None], sin[:, None]

    def map_query(
        self, q: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn queries."""
        cos, sin = bound
        if self.rotary_dim == self.head_dim:
            return rotate(q, cos, sin, self.interleaved)
        turned = rotate(q[..., : self.rotary_dim], cos, sin, self.interleaved)
        return torch.cat([turned, q[..., self.rotary_dim :]], dim=-1)

    def map_key(
        self, k: Float[Tensor, "batch heads tokens head_dim"], bound: Bound
    ) -> Float[Tensor, "batch heads tokens head_dim"]:
        """Turn keys, as queries are."""
        return self.map_query(k, bound)

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"head_dim={self.head_dim}, theta={self.theta}, interleaved={self.interleaved}, "
            f"rotary_dim={self.rotary_dim}"
        )


def rotate(
    x: Float[Tensor, "batch heads tokens features"],
    cos: Float32[Tensor, "#batch 1 tokens pairs"],
    sin: Float32[Tensor, "#batch 1 tokens pairs"],
    interleaved: bool,
) -> Float[Tensor, "batch heads tokens features"]:
    """Turn pairs of features, in float32 at least, and cast back.

    >>> one = torch.tensor([[[[1.0, 0.0]]]])
    >>> rotate(one, torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1), interleaved=True)
    tensor([[[[0., 1.]]]])
    """
    # bfloat16 arithmetic would double the error of the result: 2.7e-3 against the format's own 1.7e-3.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if interleaved:
        a, b = wide.unflatten(-1, (-1, 2)).unbind(-1)  # (..., features) -> 2 x (..., pairs)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2).to(x.dtype)
    a, b = wide.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)
