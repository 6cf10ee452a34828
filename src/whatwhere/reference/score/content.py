"""Door 3 (score): biases that depend on queries and keys: Shaw, DeBERTa, Transformer-XL."""

import math

import numpy as np

from whatwhere.reference.checks import arrays, require_shape
from whatwhere.reference.input import sinusoid


@arrays(q=3, weight=2, query_positions=1, key_positions=1)
def shaw_bias(
    q: np.ndarray,
    weight: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    max_distance: int,
) -> np.ndarray:
    """Compute the dot product of each query with the vector of each clipped distance.

        bias[h, i, j] = <q_hi, E[clip(p_j - p_i, -max_distance, F) + max_distance]> / sqrt(head_dim)

    Shaw, Uszkoreit and Vaswani 2018, equation 5, https://arxiv.org/abs/1803.02155.

    Args:
        q: (heads, queries, head_dim).
        weight: E, (max_distance + 1 + F, head_dim), with F rows for later keys.
        query_positions: (queries).
        key_positions: (keys).
        max_distance: distance at which earlier keys are clipped.

    Returns:
        Shape (heads, queries, keys).

    Examples:
        >>> q, weight = np.ones((1, 1, 1)), np.array([[-2.0], [-1.0], [0.0]])
        >>> shaw_bias(q, weight, np.array([5]), np.array([0, 4, 5, 6]), max_distance=2)
        array([[[-2., -1.,  0.,  0.]]])
    """
    heads, queries, head_dim = q.shape
    require_shape("weight", weight, (weight.shape[0], head_dim))
    bias = np.zeros((heads, queries, len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        row = _clip(int(key_positions[j]) - int(query_positions[i]) + max_distance, weight.shape[0])
        bias[h, i, j] = float(np.dot(q[h, i], weight[row])) / math.sqrt(head_dim)
    return bias


def deberta_row(distance: int, span: int, max_distance: int | None = None) -> int:
    """Return the row of a distance, query minus key.

        row(n) = clip(bucket(n) + span, 0, 2 span - 1)

        bucket(n) = n                                                     without max_distance, or if |n| <= M = span/2
                    sign(n) (M + ceil((M-1) ln(|n|/M) / ln((D-1)/M)))     else, D = max_distance

    He et al. 2021, https://arxiv.org/abs/2006.03654; buckets as in the code of its second version. The ceiling is
    computed in whole numbers: it is the first c with (|n| / M) ** (M - 1) <= ((D - 1) / M) ** c.

    Examples:
        >>> [deberta_row(n, 4) for n in (-9, -4, 0, 3, 9)]
        [0, 0, 4, 7, 7]
        >>> [deberta_row(n, 8, 20) - 8 for n in (-9, 4, 5, 7, 12)]
        [-6, 4, 5, 6, 7]
    """
    bucket, middle = abs(distance), span // 2
    if max_distance is not None and bucket > middle:
        ceiling = 0
        while bucket ** (middle - 1) * middle**ceiling > (max_distance - 1) ** ceiling * middle ** (middle - 1):
            ceiling = ceiling + 1
        bucket = middle + ceiling
    return _clip(bucket + span if distance > 0 else span - bucket, 2 * span)


@arrays(q=3, k=3, query_positions=1, key_positions=1, position_keys=3, position_queries=3)
def deberta_bias(
    q: np.ndarray,
    k: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    position_keys: np.ndarray | None,
    position_queries: np.ndarray | None,
    max_distance: int | None = None,
) -> np.ndarray:
    """Compute the terms content-to-position (c2p) and position-to-content (p2c) of disentangled attention.

        bias[h, i, j] = (<q_hi, K[r, h]> + <k_hj, Q[r, h]>) / sqrt(s head_dim)        r = row(p_i - p_j)

    He et al. 2021, equation 4; s is 1 plus the number of terms. A term without a table is dropped.

    Args:
        q: (heads, queries, head_dim).
        k: (heads, keys, head_dim).
        query_positions: (queries).
        key_positions: (keys).
        position_keys: K, (2 span, heads, head_dim).
        position_queries: Q, of the same shape.
        max_distance: as in deberta_row.

    Returns:
        Shape (heads, queries, keys).

    Raises:
        ValueError: If both tables are None, or their shapes do not fit.

    Examples:
        >>> one, at = np.ones((1, 1, 1)), np.array([0])
        >>> deberta_bias(one, one, at, at, None, np.full((2, 1, 1), 6.0)) * np.sqrt(2)
        array([[[6.]]])
    """
    tables = [table for table in (position_keys, position_queries) if table is not None]
    if not tables:
        raise ValueError(
            "position_keys and position_queries are both None, so that no term is left.\nPass one of them."
        )
    heads, queries, head_dim = q.shape
    span = tables[0].shape[0] // 2
    for table in tables:
        require_shape("a table", table, (2 * span, heads, head_dim))
    bias = np.zeros((heads, queries, len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        row = deberta_row(int(query_positions[i]) - int(key_positions[j]), span, max_distance)
        if position_keys is not None:
            bias[h, i, j] += float(np.dot(q[h, i], position_keys[row, h]))
        if position_queries is not None:
            bias[h, i, j] += float(np.dot(k[h, j], position_queries[row, h]))
    return bias / math.sqrt((1 + len(tables)) * head_dim)


@arrays(q=3, k=3, query_positions=1, key_positions=1, u=2, v=2, weight=3)
def transformer_xl_bias(
    q: np.ndarray,
    k: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    u: np.ndarray,
    v: np.ndarray,
    weight: np.ndarray,
    theta: float = 10_000.0,
) -> np.ndarray:
    """Compute terms b, c and d of a score; term a is <q_hi, k_hj>.

        bias[h, i, j] = (<u_h, k_hj> + <q_hi + v_h, W_h R(p_i - p_j)>) / sqrt(head_dim)

    Dai et al. 2019, section 3.3, https://arxiv.org/abs/1901.02860; R is the sinusoid, sines before cosines.

    Args:
        q: (heads, queries, head_dim).
        k: (heads, keys, head_dim).
        query_positions: (queries).
        key_positions: (keys).
        u, v: (heads, head_dim).
        weight: W, (heads, head_dim, dim).
        theta: of the sinusoid.

    Returns:
        Shape (heads, queries, keys).

    Examples:
        >>> one, at, zero = np.ones((1, 1, 1)), np.array([7]), np.zeros((1, 1))
        >>> transformer_xl_bias(one, 5 * one, at, at, zero + 2, zero, np.ones((1, 1, 2)))  # 2 * 5 + (sin 0 + cos 0)
        array([[[11.]]])
    """
    heads, queries, head_dim = q.shape
    require_shape("weight", weight, (heads, head_dim, weight.shape[-1]))
    bias = np.zeros((heads, queries, len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        distance = np.array(int(query_positions[i]) - int(key_positions[j]))
        r = weight[h] @ sinusoid(distance, weight.shape[-1], theta, layout="half")
        bias[h, i, j] = (np.dot(u[h], k[h, j]) + np.dot(q[h, i] + v[h], r)) / math.sqrt(head_dim)
    return bias


def _clip(row: int, rows: int) -> int:
    return min(max(row, 0), rows - 1)
