"""Door 3: a number for each pair of positions, added to the scaled score."""

import numpy as np


def alibi_slopes(num_heads: int) -> list[float]:
    """Give the slope of each head, by the authors' rule for any number of heads.

        H = 2^a     m_h = 2 ** (-8 h / H),  h = 1 .. H
        else        the slopes of n, the power of two below H; then the 1st, 3rd, 5th, ... of the slopes of 2n

    Press, Smith and Lewis 2022, section 3, https://arxiv.org/abs/2108.12409; the second line is in their code only.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi_slopes(3)
    [0.0625, 0.00390625, 0.25]
    """
    if num_heads < 1:
        raise ValueError(f"num_heads is {num_heads}, but must be at least 1.")
    below = 1
    while 2 * below <= num_heads:
        below = 2 * below
    out = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    h = 1
    while len(out) < num_heads:
        out.append(2.0 ** (-8 * h / (2 * below)))
        h = h + 2
    return out


def alibi_bias(query_positions: np.ndarray, key_positions: np.ndarray, num_heads: int) -> np.ndarray:
    """Give the penalty of each pair of positions, in each head.

        bias[h, i, j] = -m_h |p_i - p_j|

    Press, Smith and Lewis 2022, section 3. Symmetric: in a causal model the mask takes the later keys away.

    Args:
        query_positions: (queries).
        key_positions: (keys).
        num_heads: heads.

    Gives (heads, queries, keys).

    >>> alibi_bias(np.array([2]), np.array([0, 1, 2]), num_heads=1) * 256
    array([[[-2., -1.,  0.]]])
    """
    slopes = alibi_slopes(num_heads)
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    for head in range(num_heads):
        for i, at_query in enumerate(query_positions):
            for j, at_key in enumerate(key_positions):
                bias[head, i, j] = slopes[head] * -abs(int(at_query) - int(at_key))
    return bias


def t5_bucket(distance: int, num_buckets: int = 32, max_distance: int = 128, bidirectional: bool = False) -> int:
    """Give the bucket of a distance, query minus key.

        bucket(n) = n                                                  n < E,  E = B // 2
                    min(E + floor((B - E) ln(n / E) / ln(D / E)), B - 1)    else

    Raffel et al. 2020, section 2.1, https://arxiv.org/abs/1910.10683, as in their code; B = num_buckets,
    D = max_distance. If bidirectional, B is half of num_buckets, and a later key's bucket is that of -n, plus B; else
    a later key has n = 0. The floor is counted up: it is the last whole f with (n / E) ** (B - E) >= (D / E) ** f.

    >>> [t5_bucket(n) for n in (-3, 0, 15, 16, 40, 127, 5000)]
    [0, 0, 15, 16, 23, 31, 31]
    >>> [t5_bucket(n, bidirectional=True) for n in (-200, -1, 0, 1, 200)]
    [31, 17, 0, 1, 15]
    """
    if bidirectional:
        side = num_buckets // 2
        later = side if distance < 0 else 0
        return later + t5_bucket(abs(distance), side, max_distance)
    n, exact = max(distance, 0), num_buckets // 2
    if n < exact:
        return n
    floor, wide = 0, num_buckets - exact
    while floor < wide - 1 and n**wide * exact ** (floor + 1) >= max_distance ** (floor + 1) * exact**wide:
        floor = floor + 1
    return exact + floor


def t5_bias(
    weight: np.ndarray,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    max_distance: int = 128,
    bidirectional: bool = False,
) -> np.ndarray:
    """Give the learned number of each pair's bucket, in each head.

        bias[h, i, j] = W[bucket(p_i - p_j), h]

    Args:
        weight: W, (num_buckets, heads).
        query_positions: (queries).
        key_positions: (keys).
        max_distance, bidirectional: as in t5_bucket.

    Gives (heads, queries, keys).

    >>> t5_bias(np.array([[0.5], [0.7]]), np.array([9]), np.array([0, 8, 9]))
    array([[[0.7, 0.7, 0.5]]])
    """
    num_buckets, heads = weight.shape
    bias = np.zeros((heads, len(query_positions), len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        distance = int(query_positions[i]) - int(key_positions[j])
        bias[h, i, j] = weight[t5_bucket(distance, num_buckets, max_distance, bidirectional), h]
    return bias


def t5_gradient(
    g: np.ndarray,
    num_buckets: int,
    query_positions: np.ndarray,
    key_positions: np.ndarray,
    max_distance: int = 128,
    bidirectional: bool = False,
) -> np.ndarray:
    """Give dL/dW: each row collects the gradients of all pairs in its bucket.

        dL/dW[b, h] = sum over bucket(p_i - p_j) = b of g_hij

    Args:
        g: (heads, queries, keys).
        num_buckets: rows of W.
        query_positions, key_positions, max_distance, bidirectional: as in t5_bias.

    Gives (num_buckets, heads).

    >>> t5_gradient(np.ones((1, 1, 3)), 2, np.array([9]), np.array([0, 8, 9])).T
    array([[1., 2.]])
    """
    total = np.zeros((num_buckets, g.shape[0]))
    for h, i, j in np.ndindex(g.shape):
        distance = int(query_positions[i]) - int(key_positions[j])
        total[t5_bucket(distance, num_buckets, max_distance, bidirectional), h] += g[h, i, j]
    return total
