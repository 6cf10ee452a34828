"""Door 3 (score), biases by distance, added to the scaled score.

Along one axis: ALiBi, T5, KERPLE, Sandwich, FIRE. Along the two axes of a window: Swin, Swin v2.

Everywhere query_positions have the shape (queries), along two axes (2, queries) for rows and columns; key_positions
likewise; and a bias (heads, queries, keys).
"""

import math

import numpy as np

from whatwhere.reference.checks import Array, arrays
from whatwhere.reference.frequencies import inverse_frequencies


def alibi_slopes(num_heads: int) -> list[float]:
    """Compute the slope of each head, by the authors' rule for any number of heads.

        H = 2^a     m_h = 2 ** (-8 (h + 1) / H),  h = 0 .. H-1
        else        the slopes of n, the power of two below H; then the 1st, 3rd, 5th, ... of the slopes of 2n

    Press, Smith and Lewis 2022, section 3, https://arxiv.org/abs/2108.12409; the second line is in their code only.

    Raises:
        ValueError: If num_heads is below 1.

    Examples:
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


@arrays(query_positions=1, key_positions=1)
def alibi_bias(query_positions: Array, key_positions: Array, num_heads: int) -> Array:
    """Compute the penalty of each pair of positions, in each head.

        bias[h, i, j] = -m_h |p_i - p_j|

    Press, Smith and Lewis 2022, section 3. Symmetric: in a causal model the mask excludes later keys.

    Examples:
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
    """Return the bucket of a distance, query minus key.

        bucket(n) = n                                                  n < E,  E = B // 2
                    min(E + floor((B - E) ln(n / E) / ln(D / E)), B - 1)    else

    Raffel et al. 2020, section 2.1, https://arxiv.org/abs/1910.10683, as in their code; B = num_buckets,
    D = max_distance. If bidirectional, B is half of num_buckets, and a later key's bucket is that of -n, plus B; else
    a later key has n = 0. The floor is computed exactly: it is the last f with (n / E) ** (B - E) >= (D / E) ** f.

    Examples:
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


@arrays(weight=2, query_positions=1, key_positions=1)
def t5_bias(
    weight: Array, query_positions: Array, key_positions: Array, max_distance: int = 128, bidirectional: bool = False
) -> Array:
    """Compute the learned bias of each pair's bucket, in each head.

        bias[h, i, j] = W[bucket(p_i - p_j), h]

    weight: W, (num_buckets, heads); max_distance, bidirectional: as in t5_bucket.

    Examples:
        >>> t5_bias(np.array([[0.5], [0.7]]), np.array([9]), np.array([0, 8, 9]))
        array([[[0.7, 0.7, 0.5]]])
    """
    num_buckets, heads = weight.shape
    bias = np.zeros((heads, len(query_positions), len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        distance = int(query_positions[i]) - int(key_positions[j])
        bias[h, i, j] = weight[t5_bucket(distance, num_buckets, max_distance, bidirectional), h]
    return bias


@arrays(query_positions=1, key_positions=1, p=1, a=1)
def kerple_bias(query_positions: Array, key_positions: Array, p: Array, a: Array, kind: str = "log") -> Array:
    """Compute a learned kernel of the distance d = |p_i - p_j|, in each head.

        log      bias = -p_h ln(1 + a_h d)
        power    bias = -a_h d ** p_h

    Chi et al. 2022, https://arxiv.org/abs/2205.09921, in the symbols of their code.

    Args:
        p: (heads), above 0; for the power at most 2.
        a: (heads), above 0.
        kind: `log` or `power`.
    """
    bias = np.zeros((len(p), len(query_positions), len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        d = abs(int(query_positions[i]) - int(key_positions[j]))
        bias[h, i, j] = -a[h] * d ** p[h] if kind == "power" else -p[h] * math.log(1 + a[h] * d)
    return bias


@arrays(query_positions=1, key_positions=1)
def sandwich_bias(
    query_positions: Array, key_positions: Array, num_heads: int, sinusoid_dim: int = 128, theta: float = 10_000.0
) -> Array:
    """Compute the inner product of the sinusoids of each pair of positions, divided by a ratio of each head.

        bias[h, i, j] = sum_n cos((p_i - p_j) w_n) / (8 (h + 1) / H)        h = 0 .. H-1

    Chi et al. 2023, https://arxiv.org/abs/2212.10356, with w_n as in inverse_frequencies.

    num_heads: H; sinusoid_dim: twice the number of w_n, even.
    """
    bias = np.zeros((num_heads, len(query_positions), len(key_positions)))
    frequencies = inverse_frequencies(sinusoid_dim, theta)
    for h, i, j in np.ndindex(bias.shape):
        d = int(query_positions[i]) - int(key_positions[j])
        bias[h, i, j] = sum(math.cos(d * w) for w in frequencies) / (8 * (h + 1) / num_heads)
    return bias


def fire_ratio(distance: int, query: int, c: float, threshold: float) -> float:
    """Return the distance of a key relative to the query's position, both as logarithms.

        ratio = ln(|c d| + 1) / (ln(|c max(i, |threshold|)| + 1) + 1e-6)

    Li et al. 2024, https://arxiv.org/abs/2310.04418.
    """
    largest = max(query, abs(threshold))
    return math.log(abs(c * distance) + 1) / (math.log(abs(c * largest) + 1) + 1e-6)


@arrays(query_positions=1, key_positions=1, first=(1, 1), second=(2, 1))
def fire_bias(
    query_positions: Array,
    key_positions: Array,
    c: float,
    threshold: float,
    first: tuple[Array, Array],
    second: tuple[Array, Array],
) -> Array:
    """Compute a learned function of fire_ratio (a two-layer perceptron), in each head.

        bias[h, i, j] = b_h + sum_n V_hn max(0, U_n ratio + a_n)

    Li et al. 2024, https://arxiv.org/abs/2310.04418.

    c, threshold: as in fire_ratio; first: U and a, (width) each; second: V, (heads, width), and b, (heads).
    """
    (u, a), (v, b) = first, second
    bias = np.zeros((len(b), len(query_positions), len(key_positions)))
    for h, i, j in np.ndindex(bias.shape):
        i_at, j_at = int(query_positions[i]), int(key_positions[j])
        ratio = fire_ratio(i_at - j_at, i_at, c, threshold)
        bias[h, i, j] = b[h] + sum(v[h, n] * max(0.0, u[n] * ratio + a[n]) for n in range(len(u)))
    return bias


def window_row(dy: int, dx: int, height: int, width: int) -> int:
    """Return the row of a pair's distances in the table of a window; distances beyond it are its largest.

    (dy + H - 1) (2 W - 1) + dx + W - 1
    """
    dy = min(max(dy, 1 - height), height - 1)
    dx = min(max(dx, 1 - width), width - 1)
    return (dy + height - 1) * (2 * width - 1) + dx + width - 1


@arrays(weight=2, query_positions=2, key_positions=2)
def swin_bias(weight: Array, query_positions: Array, key_positions: Array, height: int, width: int) -> Array:
    """Compute the learned bias of each pair's distances, in each head.

        bias[h, i, j] = B[window_row(y_i - y_j, x_i - x_j), h]

    Liu et al. 2021, https://arxiv.org/abs/2103.14030.

    weight: B, ((2 H - 1)(2 W - 1), heads); height, width: H and W, the window in tokens.
    """
    bias = np.zeros((weight.shape[1], query_positions.shape[1], key_positions.shape[1]))
    for h, i, j in np.ndindex(bias.shape):
        dy, dx = (int(query_positions[axis, i]) - int(key_positions[axis, j]) for axis in (0, 1))
        bias[h, i, j] = weight[window_row(dy, dx, height, width), h]
    return bias


def log_distance(distance: int, trained: int) -> float:
    """Compute the logarithmic distance of Swin v2.

    s(d, n) = sign(d) log2(1 + 8 |d| / (n - 1)) / log2(8)
    """
    if distance == 0:
        return 0.0
    return math.copysign(math.log2(1 + 8 * abs(distance) / (trained - 1)) / 3, distance)


@arrays(weight_in=2, bias_in=1, weight_out=2)
def swin_v2_table(
    weight_in: Array, bias_in: Array, weight_out: Array, window: tuple[int, int], trained: tuple[int, int]
) -> Array:
    """Compute the table of Swin v2, in the rows of swin_bias.

        B = 16 / (1 + exp(-W_2 max(0, W_1 (s(dy), s(dx)) + b_1)))

    Liu et al. 2022, https://arxiv.org/abs/2111.09883.

    weight_in: W_1, (hidden, 2); bias_in: b_1, (hidden); weight_out: W_2, (heads, hidden); window: height and width in
    tokens; trained: those of training. The result has the shape ((2 H - 1)(2 W - 1), heads).
    """
    rows = []
    for dy in range(1 - window[0], window[0]):
        for dx in range(1 - window[1], window[1]):
            hidden = weight_in @ [log_distance(dy, trained[0]), log_distance(dx, trained[1])] + bias_in
            rows.append([16 / (1 + math.exp(-float(out @ np.maximum(hidden, 0)))) for out in weight_out])
    return np.array(rows)
