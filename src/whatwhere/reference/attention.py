"""Attention with the three doors: mapped queries and keys, a score bias, and input vectors already added.

Beside them a window, which is a mask, and a sink, one more logit of the softmax.
"""

import math

import numpy as np

from whatwhere.reference.checks import Array, arrays, require_shape


@arrays(q=3, k=3, v=3, bias=..., mask=..., sink=1)
def attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    scale: float | None = None,
    sink: Array | None = None,
) -> Array:
    """Return scaled dot-product attention: for each query, the mean of the values weighted by softmax of the scores.

        s_ij = <q_i, k_j> scale + bias_ij        a_ij = exp(s_ij) / sum_j exp(s_ij)        y_i = sum_j a_ij v_j

    Vaswani et al. 2017, equation 1. Sums over j take the allowed keys only; a query that has none gets zeros.

    Args:
        q: (heads, queries, head_dim).
        k: (heads, keys, head_dim).
        v: (heads, keys, value_dim).
        bias: (heads, queries, keys), or any shape that broadcasts to it; minus infinity forbids a key.
        mask: bool, the same shapes; True where the query attends to the key.
        scale: None is 1 / sqrt(head_dim).
        sink: (heads), a logit in the denominator alone: a_ij = exp(s_ij) / (exp(sink) + sum_j exp(s_ij)).

    Returns:
        Shape (heads, queries, value_dim).

    Examples:
        >>> q, k = np.zeros((1, 2, 1)), np.zeros((1, 2, 1))
        >>> attention(q, k, np.array([[[1.0], [3.0]]]), mask=np.array([[True, False], [True, True]]))
        array([[[1.],
                [2.]]])
    """
    weights = attention_weights(q, k, bias, mask, scale, sink)
    heads, queries, keys = weights.shape
    require_shape("v", v, (heads, keys, v.shape[-1]))
    out = np.zeros((heads, queries, v.shape[-1]))
    for head in range(heads):
        for i in range(queries):
            for j in range(keys):
                out[head, i] += weights[head, i, j] * v[head, j]
    return out


@arrays(q=3, k=3, bias=..., mask=..., sink=1)
def attention_weights(
    q: Array,
    k: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    scale: float | None = None,
    sink: Array | None = None,
) -> Array:
    """Return the attention weights a_ij, as in attention.

    The result has the shape (heads, queries, keys); each row sums to one, to less with a sink, or to zero where every
    key is masked.
    """
    heads, queries, head_dim = q.shape
    keys = k.shape[1]
    require_shape("k", k, (heads, keys, head_dim))
    added = np.broadcast_to(np.zeros(()) if bias is None else bias, (heads, queries, keys))
    allowed = np.broadcast_to(np.ones((), dtype=bool) if mask is None else mask, (heads, queries, keys))
    factor = 1 / math.sqrt(head_dim) if scale is None else scale
    weights = np.zeros((heads, queries, keys))
    for head in range(heads):
        for i in range(queries):
            scores = {
                j: float(np.dot(q[head, i], k[head, j])) * factor + float(added[head, i, j])
                for j in range(keys)
                if allowed[head, i, j] and added[head, i, j] > -math.inf
            }
            # Subtracting the largest score leaves the softmax unchanged, and exp cannot overflow.
            logits = [*scores.values(), *([] if sink is None else [float(sink[head])])]
            largest = max(logits, default=0.0)
            total = sum(math.exp(logit - largest) for logit in logits)
            for j, score in scores.items():
                weights[head, i, j] = math.exp(score - largest) / total
    return weights


@arrays(query_positions=1, key_positions=1)
def window_mask(
    query_positions: Array, key_positions: Array, size: int, chunked: bool = False, first: int = 0
) -> Array:
    """Return which keys a query sees through a window, for tokens of one document that count from its start.

        sliding    |p_i - p_j| < size   or   p_j < first
        chunked    p_i // size = p_j // size   or   p_j < first

    Causality and documents are masks of their own.

    Args:
        query_positions: (queries).
        key_positions: (keys).
        size: tokens to one side, that of the query included; or of a chunk.
        chunked: which of the two.
        first: tokens that all see.

    Returns:
        Bool, (queries, keys).
    """
    mask = np.zeros((len(query_positions), len(key_positions)), dtype=bool)
    for i, at_query in enumerate(query_positions):
        for j, at_key in enumerate(key_positions):
            near = at_query // size == at_key // size if chunked else abs(at_query - at_key) < size
            mask[i, j] = near or at_key < first
    return mask
