"""Door 3 (score): gated biases, FoX, CoPE and Inkling's, of a causal sequence; later keys get 0 and are masked."""

import math

import numpy as np

from whatwhere.reference.checks import arrays


def sigmoid(y: float) -> float:
    """Return 1 / (1 + exp(-y)).

    Examples:
        >>> sigmoid(0.0)
        0.5
    """
    return 1 / (1 + math.exp(-y)) if y > 0 else math.exp(y) / (1 + math.exp(y))


@arrays(x=2, weight=2, bias=1)
def fox_gates(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Compute the logarithm of each token's forget gate, in each head.

        ln f_t = ln sigmoid(<w_h, x_t> + b_h)

    Lin et al. 2025, https://arxiv.org/abs/2503.02130.

    Args:
        x: (tokens, dim).
        weight: (heads, dim).
        bias: (heads).

    Returns:
        Shape (heads, tokens).

    Examples:
        >>> np.exp(fox_gates(np.zeros((2, 3)), np.ones((1, 3)), np.zeros(1)))
        array([[0.5, 0.5]])
    """
    out = np.zeros((len(weight), len(x)))
    for h, t in np.ndindex(out.shape):
        out[h, t] = math.log(sigmoid(float(np.dot(weight[h], x[t]) + bias[h])))
    return out


@arrays(gates=2)
def fox_bias(gates: np.ndarray) -> np.ndarray:
    """Compute the sum of the log gates after each key, up to each query.

        bias[h, i, j] = sum_{t = j+1 .. i} ln f_t        j <= i

    Lin et al. 2025, https://arxiv.org/abs/2503.02130.

    Args:
        gates: ln f, (heads, tokens).

    Returns:
        Shape (heads, tokens, tokens).

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
def cope_counts(q: np.ndarray, k: np.ndarray, rows: int, scale: float) -> np.ndarray:
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
def cope_bias(q: np.ndarray, k: np.ndarray, weight: np.ndarray, scale: float) -> np.ndarray:
    """Compute the dot product of each query with the vector of each key's count, interpolated between whole counts.

        bias[h, i, j] = <q_i, (1 - r) e[floor p_ij] + r e[ceil p_ij]>        r = p_ij - floor p_ij,  j <= i

    Golovneva et al. 2024, https://arxiv.org/abs/2405.18719.

    Args:
        q, k: (heads, tokens, head_dim).
        weight: e, (rows, head_dim).
        scale: of the scores that the gates are computed from.

    Returns:
        Shape (heads, tokens, tokens).

    Examples:
        >>> cope_bias(np.ones((1, 1, 1)), np.zeros((1, 1, 1)), np.array([[4.0], [8.0]]), scale=1.0)
        array([[[6.]]])
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
    x: np.ndarray, weight: np.ndarray, num_heads: int, gain: np.ndarray | None = None, max_norm: float | None = None
) -> np.ndarray:
    """Compute the numbers by which each token's query mixes the profiles of Inkling's bias.

        r_hi = W_h x_i,  then with a largest norm M: r = gain_h r, and r M / |r| where |r| > M

    Thinking Machines 2026, Inkling and Inkling 2.

    Args:
        x: (tokens, dim).
        weight: W, (heads * features, dim), head by head.
        num_heads: heads.
        gain: (heads, features), with max_norm only.
        max_norm: M; None is none.

    Returns:
        Shape (heads, tokens, features).

    Examples:
        >>> inkling_gates(np.ones((1, 2)), np.array([[1.0, 2.0], [4.0, 0.0]]), num_heads=1)
        array([[[3., 4.]]])
        >>> inkling_gates(np.ones((1, 2)), np.array([[1.0, 2.0], [4.0, 0.0]]), 1, np.ones((1, 2)), max_norm=0.5)
        array([[[0.3, 0.4]]])
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
def inkling_bias(
    r: np.ndarray, profiles: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray
) -> np.ndarray:
    """Compute Inkling's bias: each query's mixture of learned profiles of the distance.

        bias[h, i, j] = <r_hi, P[:, p_i - p_j]>        for 0 <= p_i - p_j < extent, else 0

    Args:
        r: numbers of the queries, (heads, queries, features).
        profiles: P, (features, extent).
        query_positions: (queries).
        key_positions: (keys).

    Returns:
        Shape (heads, queries, keys).

    Examples:
        >>> inkling_bias(np.full((1, 1, 1), 2.0), np.array([[5.0, 7.0]]), np.array([9]), np.array([7, 8, 9, 10]))
        array([[[ 0., 14., 10.,  0.]]])
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
