"""The laws that schemes of this library and other people's share: each gives how far something is from holding.

They take plain functions of tensors. What calls them says how far is too far.
"""

from collections.abc import Callable, Sequence
from math import sqrt

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

Turn = Callable[[Tensor, Tensor], Tensor]
"""(x, positions) -> x, mapped: (batch, heads, tokens, head_dim) and (tokens) -> (batch, heads, tokens, mapped_dim)."""

Encode = Callable[[Tensor], Tensor]
"""positions -> vectors: (tokens) -> (tokens, dim)."""


def logits_apart(
    here: Sequence[Float[Tensor, "*batch tokens mapped_dim"]],
    there: Sequence[Float[Tensor, "*batch tokens mapped_dim"]],
) -> Float64[Tensor, "*batch tokens tokens"]:
    """Give how far apart the logits <q_i, k_j> of two places are, as a share of |q_i| |k_j|.

    Args:
        here: queries and keys, mapped by their positions.
        there: the same, mapped by other positions.

    >>> q, k, turned = torch.tensor([[[1.0, 0.0]], [[2.0, 0.0]], [[0.0, 2.0]]])
    >>> logits_apart((q, k), (q, turned)).item()
    1.0
    """
    logits = [q.double() @ k.double().mT for q, k in (here, there)]
    lengths = [x.double().norm(dim=-1) for x in here]
    apart: Tensor = (logits[0] - logits[1]).abs() / (lengths[0][..., :, None] * lengths[1][..., None, :])
    return apart


def of_logits(error: float) -> float:
    """Give how far apart two logits may be whose queries and keys are off by this share of each pair's length.

    Both features of a pair are off: the vector by sqrt(2) of the error, a logit by twice that, two logits by as much
    again.
    """
    return 4 * sqrt(2) * error


def lengths_changed(
    before: Float[Tensor, "*batch tokens features"], after: Float[Tensor, "*batch tokens features"], factor: float = 1.0
) -> Float64[Tensor, "*batch tokens"]:
    """Give how far each vector's length is from a factor of what it was, as a share of that.

    >>> lengths_changed(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 10.0]])).item()
    1.0
    """
    changed: Tensor = after.double().norm(dim=-1) / (factor * before.double().norm(dim=-1)) - 1
    return changed.abs()


def rows_moved(
    encode: Encode, positions: Int64[Tensor, " tokens"], order: Int64[Tensor, " tokens"]
) -> Float64[Tensor, " tokens"]:
    """Give how far each row is from what it is where the positions come in another order.

    >>> rows_moved(lambda p: p[:, None].cumsum(0).double(), torch.tensor([1, 2]), torch.tensor([1, 0]))
    tensor([1., 2.], dtype=torch.float64)
    """
    straight, permuted = encode(positions).double()[order], encode(positions[order]).double()
    return (permuted - straight).abs().amax(-1)


def products_apart(encode: Encode, distance: int, starts: Sequence[int]) -> Float64[Tensor, " starts"]:
    """Give how far <PE(p), PE(p + distance)> is from what it is at the first start.

    >>> products_apart(lambda p: p[:, None].double(), 1, [0, 2])
    tensor([0., 6.], dtype=torch.float64)
    """
    products = []
    for start in starts:
        here, there = encode(torch.tensor([start, start + distance])).double()
        products.append(here @ there)
    together = torch.stack(products)
    return (together - together[0]).abs()


def merged(biases: Float[Tensor, "heads keys"]) -> Bool[Tensor, "heads keys"]:
    """Tell at which keys a head has a number that it has at an earlier key too.

    >>> merged(torch.tensor([[0.0, -1.0, -1.0, -2.0]]))
    tensor([[False, False,  True, False]])
    """
    same = biases[:, :, None] == biases[:, None, :]
    return same.tril(-1).any(-1)
