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
