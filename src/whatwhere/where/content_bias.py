"""Functions shared by the biases that depend on queries and keys."""

from collections.abc import Callable
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.errors import DoorError, ShapeError
from whatwhere.kernels.backend import full_precision
from whatwhere.position import Positions

Distance = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`distance(batch, query_slot, key_slot)` -> query position minus key position."""


def require_content(
    owner: str, name: str, x: Float[Tensor, "batch heads tokens features"] | None, head_dim: int
) -> Float[Tensor, "batch heads tokens features"]:
    """Return queries or keys unchanged, after checking that they are there and have head_dim features.

    Raises:
        DoorError: they are missing.
        ShapeError: they have another number of features.

    Examples:
        >>> require_content("Shaw", "q", None, 16)
        Traceback (most recent call last):
        whatwhere.errors.DoorError: Shaw depends on queries and keys, so it needs more than positions: q is missing.
        Use here = where.at(positions) and here.attention(q, k, v).
    """
    if x is None:
        raise DoorError(
            f"{owner} depends on queries and keys, so it needs more than positions: {name} is missing.\n"
            "Use here = where.at(positions) and here.attention(q, k, v)."
        )
    if x.shape[-1] != head_dim:
        raise ShapeError(f"{owner} was made for head_dim={head_dim}, but {name} has shape {tuple(x.shape)}.")
    return x


def for_each_head(
    k: Float[Tensor, "batch key_heads keys head_dim"], num_heads: int
) -> Float[Tensor, "batch heads keys head_dim"]:
    """Repeat each key head for its group of query heads.

    Examples:
        >>> for_each_head(torch.tensor([1.0, 2.0]).view(1, 2, 1, 1), 4).flatten()
        tensor([1., 1., 2., 2.])
    """
    return k.repeat_interleave(num_heads // k.shape[1], dim=1)


def contract(equation: str, *factors: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Evaluate torch.einsum in float32 at least, also under autocast.

    Examples:
        >>> half = torch.ones(3, dtype=torch.bfloat16)
        >>> contract("n,n->", half, half)
        tensor(3.)
    """
    wide = reduce(torch.promote_types, (factor.dtype for factor in factors), torch.float32)
    with full_precision(factors[0].device):
        return torch.einsum(equation, *(factor.to(wide) for factor in factors))


def distances(owner: str, queries: Positions, keys: Positions) -> Distance:
    """Return the distance of each pair as a function of elements; positions of batch 1 broadcast over the batch."""
    at_query, at_key = queries.single_axis(owner), keys.single_axis(owner)

    def distance(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return at_query[b % at_query.shape[0], i] - at_key[b % at_key.shape[0], j]

    return distance
