"""Attention over several blocks of keys, merged: with the logarithms of their sums, exactly that over all keys.

    y_i = sum_n exp(l_in - l_i) y_in        l_i = log sum_n exp(l_in)        l_in = log sum_j exp(s_ij), of block n

where y_in is the output over the keys of block n. A query that sees no key of a block has l_in = -infinity there, and
y_in = 0. A sink s is one more term of the sum, and has no value: it multiplies the merged output by sigmoid(l_i - s).
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.errors import ShapeError


def merge_attention(
    parts: Iterable[tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]],
) -> tuple[Float[Tensor, "batch heads queries value_dim"], Float[Tensor, "batch heads queries"]]:
    """Merge the outputs of the same queries over disjoint blocks of keys."""
    outputs, logs = zip(*parts, strict=True) if (parts := list(parts)) else ((), ())
    shapes = {(tuple(y.shape), tuple(lse.shape)) for y, lse in zip(outputs, logs, strict=True)}
    if len(shapes) != 1 or any(shape[:-1] != lse for shape, lse in shapes):
        raise ShapeError(
            f"merged attention needs outputs and logarithms of the same queries, but got {sorted(shapes)}.\n"
            "Pass what here.attention_with_lse(q, k, v) returns for each block of keys."
        )
    dtype = torch.promote_types(logs[0].dtype, torch.float32)
    of_blocks = torch.stack([lse.to(dtype) for lse in logs])
    empty = (of_blocks == -torch.inf).all(0)
    finite = of_blocks.masked_fill(empty, 0)  # else weights and gradients would be NaN
    weights = finite.softmax(0).masked_fill(empty, 0)[..., None]
    y = sum(
        (weight * output.to(dtype) for weight, output in zip(weights, outputs, strict=True)),
        start=weights.new_zeros(()),
    )
    return y.to(outputs[0].dtype), finite.logsumexp(0).masked_fill(empty, -torch.inf)


def with_sink(
    y: Float[Tensor, "batch heads queries value_dim"],
    lse: Float[Tensor, "batch heads queries"],
    sink: Float[Tensor, " heads"] | None,
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Return outputs over all keys with a sink in the denominator of the softmax."""
    if sink is None:
        return y
    share = torch.sigmoid(lse - sink.to(lse.dtype)[:, None])  # of the weights that is not the sink's
    return (y * share[..., None]).to(y.dtype)
