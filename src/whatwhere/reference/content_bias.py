"""Door 3 (score), biases that depend on queries and keys: Shaw, SAM, DeBERTa, Transformer-XL; FoX, CoPE, Inkling.

The last three are gated: of a causal sequence, whose later keys get 0 and are masked.

Everywhere q has the shape (heads, queries, head_dim), and k (heads, keys, head_dim); query_positions (queries), of SAM
(2, queries) for rows and columns, and key_positions likewise; a bias (heads, queries, keys).
"""

import math

import numpy as np

from whatwhere.reference.checks import Array, arrays, require_shape
from whatwhere.reference.input import sinusoid


@arrays(q=3, weight=2, query_positions=1, key_positions=1)
def shaw_bias(q: Array, weight: Array, query_positions: Array, key_positions: Array, max_distance: int) -> Array:
    """Compute the dot product of each query with the vector of each clipped distance.

        bias[h, i, j] = <q_hi, E[clip(p_j - p_i, -max_distance, F) + max_distance]> / sqrt(head_dim)

    Shaw, Uszkoreit and Vaswani 2018, equation 5, https://arxiv.org/abs/1803.02155.

    weight: E, (max_distance + 1 + F, head_dim), with F rows for later keys; max_distance: distance at which earlier
    keys are clipped.
    """
    heads, queries, head_dim = q.shape
    require_shape("weight", weight, (weight.shape[0], head_dim))
    bias = np.zeros((heads, queries, len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        row = _clip(int(key_positions[j]) - int(query_positions[i]) + max_distance, weight.shape[0])
        bias[h, i, j] = float(np.dot(q[h, i], weight[row])) / math.sqrt(head_dim)
    return bias


@arrays(q=3, rows=2, columns=2, query_positions=2, key_positions=2)
def sam_bias(q: Array, rows: Array, columns: Array, query_positions: Array, key_positions: Array) -> Array:
    """Compute the dot products of each query with the vectors of each pair's two distances.

        bias[h, i, j] = <q_hi, R[y_i - y_j + H - 1]> + <q_hi, C[x_i - x_j + W - 1]>, distances clipped to the tables

    Li et al. 2022, MViTv2, https://arxiv.org/abs/2112.01526.

    rows, columns: R and C, (2 H - 1, head_dim) and (2 W - 1, head_dim).
    """
    bias = np.zeros((q.shape[0], q.shape[1], key_positions.shape[1]))
    for h, i, j in np.ndindex(bias.shape):
        r, c = _table_rows(query_positions[:, i], key_positions[:, j], len(rows), len(columns))
        bias[h, i, j] = np.dot(q[h, i], rows[r]) + np.dot(q[h, i], columns[c])
    return bias


def _table_rows(query: Array, key: Array, *lengths: int) -> list[int]:
    """Return the row of each axis's distance, query minus key, in tables of these lengths with 0 in the middle."""
    return [
        min(max(int(y) - int(z) + length // 2, 0), length - 1) for y, z, length in zip(query, key, lengths, strict=True)
    ]


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
    q: Array,
    k: Array,
    query_positions: Array,
    key_positions: Array,
    position_keys: Array | None,
    position_queries: Array | None,
    max_distance: int | None = None,
) -> Array:
    """Compute the terms content-to-position (c2p) and position-to-content (p2c) of disentangled attention.

        bias[h, i, j] = (<q_hi, K[r, h]> + <k_hj, Q[r, h]>) / sqrt(s head_dim)        r = row(p_i - p_j)

    He et al. 2021, equation 4; s is 1 plus the number of terms. A term without a table is dropped.

    position_keys: K, (2 span, heads, head_dim); position_queries: Q, of the same shape; max_distance: as in
    deberta_row.

    Raises:
        ValueError: If both tables are None, or their shapes do not fit.
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
    q: Array,
    k: Array,
    query_positions: Array,
    key_positions: Array,
    u: Array,
    v: Array,
    weight: Array,
    theta: float = 10_000.0,
) -> Array:
    """Compute terms b, c and d of a score; term a is <q_hi, k_hj>.

        bias[h, i, j] = (<u_h, k_hj> + <q_hi + v_h, W_h R(p_i - p_j)>) / sqrt(head_dim)

    Dai et al. 2019, section 3.3, https://arxiv.org/abs/1901.02860; R is the sinusoid, sines before cosines.

    u, v: (heads, head_dim); weight: W, (heads, head_dim, dim); theta: of the sinusoid.
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


def sigmoid(y: float) -> float:
    """Return 1 / (1 + exp(-y))."""
    return 1 / (1 + math.exp(-y)) if y > 0 else math.exp(y) / (1 + math.exp(y))


@arrays(x=2, weight=2, bias=1)
def fox_gates(x: Array, weight: Array, bias: Array) -> Array:
    """Compute the logarithm of each token's forget gate, in each head.

        ln f_t = ln sigmoid(<w_h, x_t> + b_h)

    Lin et al. 2025, https://arxiv.org/abs/2503.02130.

    x: (tokens, dim); weight: (heads, dim); bias: (heads). The result has the shape (heads, tokens).
    """
    out = np.zeros((len(weight), len(x)))
    for h, t in np.ndindex(out.shape):
        out[h, t] = math.log(sigmoid(float(np.dot(weight[h], x[t]) + bias[h])))
    return out


@arrays(gates=2)
def fox_bias(gates: Array) -> Array:
    """Compute the sum of the log gates after each key, up to each query.

        bias[h, i, j] = sum_{t = j+1 .. i} ln f_t        j <= i

    Lin et al. 2025, https://arxiv.org/abs/2503.02130.

    gates: ln f, (heads, tokens).

    Examples:
        >>> fox_bias(np.array([[-9.0, -1.0, -2.0]]))[0, 2]
        array([-3., -2.,  0.])
    """
    heads, tokens = gates.shape
    bias = np.zeros((heads, tokens, tokens))
    for h, i, j in np.ndindex(bias.shape):
        for t in range(j + 1, i + 1):
            bias[h, i, j] += gates[h, t]
    return bias


@arrays(q=2, k=2)
def cope_counts(q: Array, k: Array, rows: int, scale: float) -> Array:
    """Compute the contextual position of each key: the sum of the gates from the key up to the query.

        p_ij = min(sum_{t = j .. i} sigmoid(<q_i, k_t> scale), rows - 1)        j <= i

    Golovneva et al. 2024, https://arxiv.org/abs/2405.18719.

    Args:
        q, k: (tokens, head_dim), of one head.
        rows: of the table of vectors; counts are clipped to rows - 1.
        scale: of the scores that the gates are computed from.

    Returns:
        Shape (tokens, tokens).

    Examples:
        >>> cope_counts(np.zeros((3, 1)), np.zeros((3, 1)), rows=8, scale=1.0)[2]
        array([1.5, 1. , 0.5])
    """
    counts = np.zeros((len(q), len(k)))
    for i in range(len(q)):
        for j in range(i + 1):
            gates = sum(sigmoid(float(np.dot(q[i], k[t])) * scale) for t in range(j, i + 1))
            counts[i, j] = min(gates, rows - 1)
    return counts


@arrays(q=3, k=3, weight=2)
def cope_bias(q: Array, k: Array, weight: Array, scale: float) -> Array:
    """Compute the dot product of each query with the vector of each key's count, interpolated between whole counts.

        bias[h, i, j] = <q_i, (1 - r) e[floor p_ij] + r e[ceil p_ij]>        r = p_ij - floor p_ij,  j <= i

    Golovneva et al. 2024, https://arxiv.org/abs/2405.18719.

    weight: e, (rows, head_dim); scale: of the scores that the gates are computed from.
    """
    heads, tokens, _ = q.shape
    bias = np.zeros((heads, tokens, tokens))
    for h in range(heads):
        counts = cope_counts(q[h], k[h], len(weight), scale)
        for i in range(tokens):
            for j in range(i + 1):
                low, high, r = _between(counts[i, j])
                bias[h, i, j] = np.dot(q[h, i], (1 - r) * weight[low] + r * weight[high])
    return bias


@arrays(x=2, weight=2)
def inkling_gates(
    x: Array, weight: Array, num_heads: int, gain: Array | None = None, max_norm: float | None = None
) -> Array:
    """Compute the numbers by which each token's query mixes the profiles of Inkling's bias.

        r_hi = W_h x_i,  then with a largest norm M: r = gain_h r, and r M / |r| where |r| > M

    Thinking Machines 2026, Inkling and Inkling 2.

    Args:
        x: (tokens, dim).
        weight: W, (heads * features, dim), head by head.
        gain: (heads, features), with max_norm only.
        max_norm: M; None for no limit.

    Returns:
        Shape (heads, tokens, features).
    """
    features = len(weight) // num_heads
    out = np.zeros((num_heads, len(x), features))
    for h, i in np.ndindex(num_heads, len(x)):
        r = weight[h * features : (h + 1) * features] @ x[i]
        if max_norm is not None and gain is not None:
            r = np.asarray(gain)[h] * r
            norm = math.sqrt(float(np.dot(r, r)))
            r = r * max_norm / norm if norm > max_norm else r
        out[h, i] = r
    return out


@arrays(r=3, profiles=2, query_positions=1, key_positions=1)
def inkling_bias(r: Array, profiles: Array, query_positions: Array, key_positions: Array) -> Array:
    """Compute Inkling's bias: each query's mixture of learned profiles of the distance.

        bias[h, i, j] = <r_hi, P[:, p_i - p_j]>        for 0 <= p_i - p_j < extent, else 0

    r: numbers of the queries, (heads, queries, features); profiles: P, (features, extent).
    """
    bias = np.zeros((len(r), len(query_positions), len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        distance = int(query_positions[i]) - int(key_positions[j])
        if 0 <= distance < profiles.shape[1]:
            bias[h, i, j] = np.dot(r[h, i], profiles[:, distance])
    return bias


def _between(count: float) -> tuple[int, int, float]:
    low = math.floor(count)
    return low, math.ceil(count), count - low
