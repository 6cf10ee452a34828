"""Door 3: further functions of the distance, learned and fixed."""

import math

import numpy as np

from whatwhere.reference.frequencies import inverse_frequencies


def kerple_bias(
    query_positions: np.ndarray, key_positions: np.ndarray, p: np.ndarray, a: np.ndarray, kind: str = "log"
) -> np.ndarray:
    """Give what a learned kernel adds at each distance d = |p_i - p_j|, in each head.

        log      bias = -p_h ln(1 + a_h d)
        power    bias = -a_h d ** p_h

    Chi et al. 2022, https://arxiv.org/abs/2205.09921, in the letters of their code.

    Args:
        query_positions: (queries).
        key_positions: (keys).
        p: (heads), above 0; for the power at most 2.
        a: (heads), above 0.

    Gives (heads, queries, keys).

    >>> kerple_bias(np.array([3]), np.array([0, 3]), p=np.array([1.0]), a=np.array([2.0]), kind="power")
    array([[[-6., -0.]]])
    """
    bias = np.zeros((len(p), len(query_positions), len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        d = abs(int(query_positions[i]) - int(key_positions[j]))
        bias[h, i, j] = -a[h] * d ** p[h] if kind == "power" else -p[h] * math.log(1 + a[h] * d)
    return bias


def kerple_gradient(
    g: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    p: np.ndarray,
    a: np.ndarray,
    kind: str = "log",
) -> tuple[np.ndarray, np.ndarray]:
    """Give dL/dp and dL/da of kerple_bias.

        log      dL/dp_h = -sum g ln(1 + a_h d)         dL/da_h = -sum g p_h d / (1 + a_h d)
        power    dL/dp_h = -sum g a_h d ** p_h ln d     dL/da_h = -sum g d ** p_h               no term for d = 0

    Args:
        g: (heads, queries, keys).

    Gives two arrays, (heads).

    >>> kerple_gradient(np.ones((1, 1, 1)), np.array([1]), np.array([0]), np.array([3.0]), np.array([1.0]))[1]
    array([-1.5])
    """
    d_p, d_a = np.zeros(len(p)), np.zeros(len(a))
    for h, i, j in np.ndindex(g.shape):
        d = abs(int(query_positions[i]) - int(key_positions[j]))
        if kind == "power" and d > 0:
            d_p[h] -= g[h, i, j] * a[h] * d ** p[h] * math.log(d)
            d_a[h] -= g[h, i, j] * d ** p[h]
        if kind == "log":
            d_p[h] -= g[h, i, j] * math.log(1 + a[h] * d)
            d_a[h] -= g[h, i, j] * p[h] * d / (1 + a[h] * d)
    return d_p, d_a


def sandwich_bias(
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    num_heads: int,
    sinusoid_dim: int = 128,
    theta: float = 10_000.0,
) -> np.ndarray:
    """Give the inner product of the sinusoids of each pair of positions, over the ratio of each head.

        bias[h, i, j] = sum_n cos((p_i - p_j) w_n) / (8 h / H)        h = 1 .. H

    Chi et al. 2023, https://arxiv.org/abs/2212.10356, with w_n as in inverse_frequencies.

    Gives (heads, queries, keys).

    >>> sandwich_bias(np.array([5]), np.array([5]), num_heads=2, sinusoid_dim=8).ravel()
    array([1. , 0.5])
    """
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    frequencies = inverse_frequencies(sinusoid_dim, theta)
    for h, i, j in np.ndindex(bias.shape):
        d = int(query_positions[i]) - int(key_positions[j])
        bias[h, i, j] = sum(math.cos(d * w) for w in frequencies) / (8 * (h + 1) / num_heads)
    return bias


def fire_ratio(distance: int, query: int, c: float, threshold: float) -> float:
    """Give the distance of a key as a share of how far back a query can look, both as logarithms.

        ratio = ln(|c d| + 1) / (ln(|c max(i, |threshold|)| + 1) + 1e-6)

    Li et al. 2024, https://arxiv.org/abs/2310.04418.

    >>> round(fire_ratio(1000, query=1000, c=0.1, threshold=512.0), 6)
    1.0
    """
    reach = max(query, abs(threshold))
    return math.log(abs(c * distance) + 1) / (math.log(abs(c * reach) + 1) + 1e-6)


def fire_bias(
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    c: float,
    threshold: float,
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """Give a learned function of fire_ratio, in each head.

        bias[h, i, j] = b_h + sum_n V_hn max(0, U_n ratio + a_n)

    Li et al. 2024, https://arxiv.org/abs/2310.04418.

    Args:
        first: U and a, (width) each.
        second: V, (heads, width), and b, (heads).

    Gives (heads, queries, keys).

    >>> one = np.ones(1)
    >>> fire_bias(np.array([7]), np.array([7]), 0.1, 512.0, (one, 2 * one), (3 * np.ones((1, 1)), one))
    array([[[7.]]])
    """
    (u, a), (v, b) = first, second
    bias = np.zeros((len(b), len(query_positions), len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        i_at, j_at = int(query_positions[i]), int(key_positions[j])
        ratio = fire_ratio(i_at - j_at, i_at, c, threshold)
        bias[h, i, j] = b[h] + sum(v[h, n] * max(0.0, u[n] * ratio + a[n]) for n in range(len(u)))
    return bias


def fire_gradient(
    g: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    c: float,
    threshold: float,
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
) -> tuple[float, float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Give dL/dc, dL/dthreshold, dL/dU, dL/da, dL/dV and dL/db of fire_bias, for c and threshold above 0.

        ratio = N / D        dL/dratio = sum_n V_hn U_n g, over the n that are above 0
        dN/dc = d / (1 + c d)        dD/dc = r / (1 + c r)        r = max(i, threshold)
        dD/dthreshold = c / (1 + c r) where the threshold is the larger, else 0

    >>> one = np.ones(1)
    >>> zero, at = np.zeros((1, 1)), np.array([7])
    >>> fire_gradient(np.ones((1, 1, 1)), at, at, 0.1, 512.0, (one, one), (zero, one))[-1]
    array([1.])
    """
    (u, a), (v, b) = first, second
    d_c, d_threshold = 0.0, 0.0
    d_u, d_a, d_v, d_b = np.zeros(u.shape), np.zeros(a.shape), np.zeros(v.shape), np.zeros(b.shape)
    for h, i, j in np.ndindex(g.shape):
        i_at, d = int(query_positions[i]), abs(int(query_positions[i]) - int(key_positions[j]))
        reach = max(i_at, threshold)
        ratio, below = fire_ratio(d, i_at, c, threshold), math.log(c * reach + 1) + 1e-6
        d_ratio = 0.0
        d_b[h] += g[h, i, j]
        for n in range(len(u)):
            hidden = u[n] * ratio + a[n]
            if hidden > 0:
                d_v[h, n] += g[h, i, j] * hidden
                d_u[n] += g[h, i, j] * v[h, n] * ratio
                d_a[n] += g[h, i, j] * v[h, n]
                d_ratio += g[h, i, j] * v[h, n] * u[n]
        d_c += d_ratio * (d / (1 + c * d) - ratio * reach / (1 + c * reach)) / below
        if threshold > i_at:
            d_threshold -= d_ratio * ratio * c / (1 + c * reach) / below
    return d_c, d_threshold, d_u, d_a, d_v, d_b
