"""Errors of the laws: how far an implementation, ours or another's, is from keeping each one.

They take plain functions of tensors; the caller sets the tolerance.
"""

from collections.abc import Callable, Sequence
from math import sqrt

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

Rotate = Callable[[Tensor, Tensor], Tensor]
"""(x, positions) -> x mapped: (batch, heads, tokens, head_dim) and (tokens) -> (batch, heads, tokens, mapped_dim)."""

Encode = Callable[[Tensor], Tensor]
"""positions -> vectors: (tokens) -> (tokens, dim)."""


def logit_error(
    first: Sequence[Float[Tensor, "*batch tokens mapped_dim"]],
    second: Sequence[Float[Tensor, "*batch tokens mapped_dim"]],
) -> Float64[Tensor, "*batch tokens tokens"]:
    """Return the difference of the logits <q_i, k_j> at two sets of positions, relative to |q_i| |k_j|."""
    logits = [q.double() @ k.double().mT for q, k in (first, second)]
    norms = [x.double().norm(dim=-1) for x in first]
    error: Tensor = (logits[0] - logits[1]).abs() / (norms[0][..., :, None] * norms[1][..., None, :])
    return error


def logit_tolerance(error: float) -> float:
    """Return the tolerance of logit_error, if queries and keys are off by at most `error` times the norm of each pair.

    Both features of a pair are off: the vector by sqrt(2) times the error, a logit by twice that, the difference of two
    logits by twice as much again.
    """
    return 4 * sqrt(2) * error


def norm_error(
    before: Float[Tensor, "*batch tokens features"], after: Float[Tensor, "*batch tokens features"], factor: float = 1.0
) -> Float64[Tensor, "*batch tokens"]:
    """Return the relative error of each vector's norm, which should be `factor` times the norm before."""
    relative: Tensor = after.double().norm(dim=-1) / (factor * before.double().norm(dim=-1)) - 1
    return relative.abs()


def permutation_error(
    encode: Encode, positions: Int64[Tensor, " tokens"], order: Int64[Tensor, " tokens"]
) -> Float64[Tensor, " tokens"]:
    """Return the largest difference of each row from the same row when the positions are permuted."""
    straight, permuted = encode(positions).double()[order], encode(positions[order]).double()
    return (permuted - straight).abs().amax(-1)


def inner_product_error(encode: Encode, distance: int, starts: Sequence[int]) -> Float64[Tensor, " starts"]:
    """Return the difference of <PE(p), PE(p + distance)> from that of the first p, for each p in `starts`."""
    products = []
    for start in starts:
        one, other = encode(torch.tensor([start, start + distance])).double()
        products.append(one @ other)
    stacked = torch.stack(products)
    return (stacked - stacked[0]).abs()


def repeated(
    biases: Float[Tensor, "heads keys"], exact: Float[Tensor, "heads keys"] | None = None
) -> Bool[Tensor, "heads keys"]:
    """Return whether each head has the same bias at an earlier key."""
    same = biases[:, :, None] == biases[:, None, :]
    if exact is not None:
        same &= exact[:, :, None] != exact[:, None, :]
    return same.tril(-1).any(-1)
