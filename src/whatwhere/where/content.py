"""What the schemes have in common that read queries and keys."""

from collections.abc import Callable
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.errors import DoorError, ShapeError
from whatwhere.ruler import Positions
from whatwhere.where.precision import full_precision

Between = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`between(batch, query_slot, key_slot)` -> query position minus key position."""


def require_content(
    owner: str, name: str, x: Float[Tensor, "batch heads tokens features"] | None, head_dim: int
) -> Float[Tensor, "batch heads tokens features"]:
    """Give queries or keys as they are; raise where they are missing or of another size.

    >>> require_content("Shaw", "q", None, 16)
    Traceback (most recent call last):
    whatwhere.errors.DoorError: Shaw depends on queries and keys, so positions alone give no bias: q is missing.
    Use here = where.at(positions) and here.attention(q, k, v).
    """
    if x is None:
        raise DoorError(
            f"{owner} depends on queries and keys, so positions alone give no bias: {name} is missing.\n"
            "Use here = where.at(positions) and here.attention(q, k, v)."
        )
    if x.shape[-1] != head_dim:
        raise ShapeError(f"{owner} was made for head_dim={head_dim}, but {name} has shape {tuple(x.shape)}.")
    return x


def for_each_head(
    k: Float[Tensor, "batch key_heads keys head_dim"], num_heads: int
) -> Float[Tensor, "batch heads keys head_dim"]:
    """Repeat each key head for the group of query heads that reads it.

    >>> for_each_head(torch.tensor([1.0, 2.0]).view(1, 2, 1, 1), 4).flatten()
    tensor([1., 1., 2., 2.])
    """
    return k.repeat_interleave(num_heads // k.shape[1], dim=1)


def contract(equation: str, *factors: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Evaluate torch.einsum in float32 at least, also under autocast.

    >>> half = torch.ones(3, dtype=torch.bfloat16)
    >>> contract("n,n->", half, half)
    tensor(3.)
    """
    wide = reduce(torch.promote_types, (factor.dtype for factor in factors), torch.float32)
    with full_precision(factors[0].device):
        return torch.einsum(equation, *(factor.to(wide) for factor in factors))


def distances(owner: str, queries: Positions, keys: Positions) -> Between:
    """Give the distance of each pair by element; batch 1 serves any number of sequences."""
    at_query, at_key = queries.single_axis(owner), keys.single_axis(owner)

    def between(b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return at_query[b % at_query.shape[0], i] - at_key[b % at_key.shape[0], j]

    return between
