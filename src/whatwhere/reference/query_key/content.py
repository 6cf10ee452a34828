"""Door 2 (query_key), maps that are not a rotation by position alone.

Parameters: PoPE (polar), FoPE (Fourier), SSMax (scaled softmax). Rotations by content: CARoPE and Selective RoPE, whose
tokens add to the angles of later ones. The query temperature: queries multiplied by a fixed function of their position.

Everywhere x, q and the results have the shape (heads, tokens, head_dim), and positions (tokens); theta is above 0, and
interleaved says which features make a pair, as in `rotary`.
"""

import math

import numpy as np

from whatwhere.reference.checks import arrays, require_shape
from whatwhere.reference.frequencies import inverse_frequencies
from whatwhere.reference.query_key.rotation import feature_pairs


@arrays(x=3, positions=1, delta=2)
def pope(x: np.ndarray, positions: np.ndarray, theta: float = 10_000.0, delta: np.ndarray | None = None) -> np.ndarray:
    """Compute each feature of a query or key in polar form: a magnitude and an angle.

        y_c = softplus(x_c) cos(p w_c - delta_c)        y_(d+c) = softplus(x_c) sin(p w_c - delta_c)
        w_c = theta ** (-c / d),  c = 0 .. d-1

    Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534. They add delta to the angle of the keys; subtracting
    it from that of the queries gives the same scores.

    Args:
        delta: (heads, d), for queries; None for keys.

    Returns:
        Shape (heads, tokens, 2 d).

    Examples:
        >>> pope(np.zeros((1, 1, 1)), np.array([0])).round(4)
        array([[[0.6931, 0.    ]]])
    """
    heads, tokens, d = x.shape
    require_shape("positions", positions, (tokens,))
    out = np.zeros((heads, tokens, 2 * d))
    for head, token, c in np.ndindex(x.shape):
        angle = int(positions[token]) * theta ** (-c / d) - (0.0 if delta is None else float(delta[head, c]))
        magnitude = math.log1p(math.exp(x[head, token, c]))
        out[head, token, c] = magnitude * math.cos(angle)
        out[head, token, d + c] = magnitude * math.sin(angle)
    return out


@arrays(x=3, positions=1, cosines=3, sines=3)
def fope(
    x: np.ndarray,
    positions: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
    theta: float = 10_000.0,
    interleaved: bool = False,
) -> np.ndarray:
    """Rotate each pair of queries or keys by a mixture of waves; pairs beyond the mixed ones stay.

        y_a = x_a c - x_b s        y_b = x_a s + x_b c
        c_n = sum_m cos(p w_m) C[m, n]        s_n = sum_m sin(p w_m) S[m, n]        w_m as in rotary

    Hua et al. 2024, https://arxiv.org/abs/2412.17739.

    Args:
        cosines, sines: C and S, (heads, waves, waves), for the waves of a frequency above 2 pi / trained length.
        interleaved: pairs are (2i, 2i+1); else (i, i + head_dim/2).

    Examples:
        >>> one = np.ones((1, 1, 1))
        >>> fope(np.array([[[1.0, 5.0, 0.0, 5.0]]]), np.array([1]), one, one).round(4)
        array([[[0.5403, 5.    , 0.8415, 5.    ]]])
    """
    heads, tokens, head_dim = x.shape
    require_shape("positions", positions, (tokens,))
    out = np.array(x, dtype=np.float64)
    for head in range(heads):
        for token in range(tokens):
            for n, (a, b) in enumerate(feature_pairs(head_dim // 2, interleaved)[: cosines.shape[-1]]):
                c, s = _mixed(int(positions[token]), n, cosines[head], sines[head], head_dim, theta)
                x_a, x_b = float(x[head, token, a]), float(x[head, token, b])
                out[head, token, a] = x_a * c - x_b * s
                out[head, token, b] = x_a * s + x_b * c
    return out


@arrays(q=3, positions=1, weight=1, bias=1)
def ssmax(q: np.ndarray, positions: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Multiply each query by the logarithm of the number of tokens that it attends to.

        y = (s_h ln(p + 1) + b_h) q

    Nakanishi 2025, equation 3, https://arxiv.org/abs/2501.19399; in a causal model a query at p attends to p + 1 keys.

    Args:
        weight: s, (heads).
        bias: b, (heads); None is 0.

    Examples:
        >>> ssmax(np.ones((1, 2, 1)), np.array([0, 9]), np.array([0.5])).round(4)
        array([[[0.    ],
                [1.1513]]])
    """
    out = np.zeros(q.shape)
    for head, token, c in np.ndindex(q.shape):
        added = 0.0 if bias is None else bias[head]
        out[head, token, c] = (weight[head] * math.log(int(positions[token]) + 1) + added) * q[head, token, c]
    return out


def _mixed(p: int, n: int, cosines: np.ndarray, sines: np.ndarray, head_dim: int, theta: float) -> tuple[float, float]:
    """Return c_n and s_n of one head at one position."""
    waves = list(enumerate(inverse_frequencies(head_dim, theta)[: len(cosines)]))
    c = sum(math.cos(p * w) * float(cosines[m, n]) for m, w in waves)
    s = sum(math.sin(p * w) * float(sines[m, n]) for m, w in waves)
    return c, s


@arrays(q=3, factors=1)
def query_temperature(q: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Multiply each query by the factor of its position.

        y = tau_p q

    Args:
        factors: tau of each token, (tokens), by one of the functions below.

    Examples:
        >>> query_temperature(np.ones((1, 2, 1)), power_temperature(np.array([0, 3]), 0.5, 4)).round(4)
        array([[[1.118 ],
                [1.4142]]])
    """
    require_shape("factors", factors, q.shape[1:2])
    out = np.zeros(q.shape)
    for head, token, c in np.ndindex(q.shape):
        out[head, token, c] = factors[token] * q[head, token, c]
    return out


@arrays(positions=1)
def stepped_log_temperature(positions: np.ndarray, alpha: float, period: int, offset: int = 1) -> np.ndarray:
    """Compute the factor of Llama 4 (offset 1) and of Ministral 3 and Mistral 4 (offset 0).

        tau_p = 1 + alpha ln(1 + floor((p + offset) / period))

    Examples:
        >>> stepped_log_temperature(np.array([2, 3]), alpha=1.0, period=4).round(4)
        array([1.    , 1.6931])
    """
    return np.array([1 + alpha * math.log(1 + (int(p) + offset) // period) for p in positions])


@arrays(positions=1)
def clamped_log_temperature(positions: np.ndarray, alpha: float, length: int) -> np.ndarray:
    """Compute the factor of Inkling.

        tau_p = 1 + alpha ln max(1, (p + 1) / length)

    Examples:
        >>> clamped_log_temperature(np.array([3, 7]), alpha=1.0, length=4).round(4)
        array([1.    , 1.6931])
    """
    return np.array([1 + alpha * math.log(max(1.0, (int(p) + 1) / length)) for p in positions])


@arrays(positions=1)
def power_temperature(positions: np.ndarray, exponent: float, length: int) -> np.ndarray:
    """Compute the factor of Beam.

        tau_p = (1 + (p + 1) / length) ** exponent

    Examples:
        >>> power_temperature(np.array([3]), exponent=0.5, length=4).round(4)
        array([1.4142])
    """
    return np.array([(1 + (int(p) + 1) / length) ** exponent for p in positions])


@arrays(positions=1)
def log_n_temperature(positions: np.ndarray, original_length: int) -> np.ndarray:
    """Compute the factor of Qwen's first generation.

        tau_p = max(1, ln(p + 1) / ln original_length)

    Args:
        original_length: at least 2.

    Examples:
        >>> log_n_temperature(np.array([3, 15]), original_length=4)
        array([1., 2.])
    """
    return np.array([max(1.0, math.log(int(p) + 1) / math.log(original_length)) for p in positions])


@arrays(x=2, weight=2, bias=1)
def carope_increments(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Compute by how much each token rotates the second pair of features, in each head.

        f_t = 1 / (softplus(<w_h, x_t> + b_h) + 1)

    Veisi et al. 2025, https://arxiv.org/abs/2507.23083, which has no b.

    Args:
        x: (tokens, dim).
        weight: (heads, dim).
        bias: (heads).

    Returns:
        Shape (heads, tokens).

    Examples:
        >>> carope_increments(np.zeros((1, 3)), np.ones((1, 3)), np.zeros(1)).round(4)
        array([[0.5906]])
    """
    out = np.zeros((len(weight), len(x)))
    for h, t in np.ndindex(out.shape):
        z = float(np.dot(weight[h], x[t]) + bias[h])
        out[h, t] = 1 / (max(z, 0.0) + math.log1p(math.exp(-abs(z))) + 1)
    return out


@arrays(x=3, increments=2)
def carope(x: np.ndarray, increments: np.ndarray, interleaved: bool = False) -> np.ndarray:
    """Rotate pair n of a token by the sum of f^n over the tokens up to it.

        y_a = x_a cos - x_b sin        y_b = x_a sin + x_b cos        angle = f_1^n + ... + f_t^n

    Args:
        increments: f, (heads, tokens).

    Examples:
        >>> carope(np.array([[[1.0, 0.0], [1.0, 0.0]]]), np.array([[0.3, 0.3]])).round(4)
        array([[[ 0.5403,  0.8415],
                [-0.4161,  0.9093]]])
    """
    heads, tokens, head_dim = x.shape
    require_shape("increments", increments, (heads, tokens))
    return _rotated(x, _powers(increments, head_dim // 2).cumsum(axis=1), interleaved)


def _powers(increments: np.ndarray, pairs: int) -> np.ndarray:
    """Return f^n of each pair n, (heads, tokens, pairs)."""
    return np.stack([increments**n for n in range(pairs)], axis=-1)


@arrays(x=2, down=2, up=3, gate_weight=2, gate_bias=1)
def selective_rope_increments(
    x: np.ndarray,
    down: np.ndarray,
    up: np.ndarray,
    gate_weight: np.ndarray | None = None,
    gate_bias: np.ndarray | None = None,
    groups: int | None = None,
) -> np.ndarray:
    """Compute what each token adds to each pair of features, before the convolution, and its gate.

        f_t = U_hn D u_t        g_t = sigmoid(<v_h, u_t> + b_h)        u_t = x_t / |x_t|, |x| of each part

    Movahedi et al. 2025, https://arxiv.org/abs/2511.17388.

    Args:
        x: (tokens, dim).
        down: D, (rank, dim).
        up: U, (heads, pairs, rank).
        gate_weight, gate_bias: v, (heads, dim), and b, (heads); None without a gate.
        groups: equal parts of x that are normalized, by sqrt(sum of squares + 1e-6); None is the number of heads.

    Returns:
        Shape (heads, tokens, pairs), and with a gate (heads, tokens, pairs + 1), the gate last.

    Examples:
        >>> selective_rope_increments(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]), np.ones((1, 1, 1))).round(4)
        array([[[0.6]]])
    """
    unit = _unit(x, len(up) if groups is None else groups)
    heads, pairs, _ = up.shape
    out = np.zeros((heads, len(x), pairs + (gate_weight is not None)))
    for h, t in np.ndindex(heads, len(x)):
        out[h, t, :pairs] = up[h] @ (down @ unit[t])
        if gate_weight is not None and gate_bias is not None:
            out[h, t, pairs] = 1 / (1 + math.exp(-float(gate_weight[h] @ unit[t] + gate_bias[h])))
    return out


@arrays(x=3, increments=3, convolution=3)
def selective_rope(
    x: np.ndarray,
    increments: np.ndarray,
    convolution: np.ndarray,
    theta: float = 500_000.0,
    interleaved: bool = False,
) -> np.ndarray:
    """Rotate pair n of a token by the sum of the convolved increments of the tokens up to it.

        angle = theta^(-2n / head_dim) (s_1 + ... + s_t)
        s_t = g_t (c_0 f_(t-3) + c_1 f_(t-2) + c_2 f_(t-1) + c_3 f_t)

    Args:
        increments: f, (heads, tokens, pairs), or with g behind it (heads, tokens, pairs + 1).
        convolution: c, (heads, pairs, tokens that it sees).
        theta: base of the frequencies.

    Examples:
        >>> x, f = np.array([[[1.0, 0.0], [1.0, 0.0]]]), np.array([[[1.0], [2.0]]])
        >>> selective_rope(x, f, np.array([[[0.5, 0.0]]])).round(4)  # angles 0 and 0.5
        array([[[1.    , 0.    ],
                [0.8776, 0.4794]]])
    """
    return _rotated(x, _selective_angles(x, increments, convolution, theta), interleaved)


def _selective_angles(x: np.ndarray, increments: np.ndarray, convolution: np.ndarray, theta: float) -> np.ndarray:
    heads, pairs, seen = convolution.shape
    tokens, gated = x.shape[1], increments.shape[2] == pairs + 1
    require_shape("x", x, (heads, tokens, 2 * pairs))
    require_shape("increments", increments, (heads, tokens, pairs + gated))
    angles = np.zeros((heads, tokens, pairs))
    for h, n in np.ndindex(heads, pairs):
        total = 0.0
        for t in range(tokens):
            added = 0.0
            for c in range(seen):
                s = t - (seen - 1 - c)
                added += float(convolution[h, n, c] * increments[h, s, n]) if s >= 0 else 0.0
            total += added * (float(increments[h, t, pairs]) if gated else 1.0)
            angles[h, t, n] = theta ** (-2 * n / x.shape[2]) * total
    return angles


def _norm(part: np.ndarray) -> float:
    return math.sqrt(float(part @ part) + 1e-6)


def _unit(x: np.ndarray, groups: int) -> np.ndarray:
    out, size = np.zeros(x.shape), x.shape[1] // groups
    for t, first in np.ndindex(len(x), groups):
        part = slice(first * size, (first + 1) * size)
        out[t, part] = x[t, part] / _norm(x[t, part])
    return out


def _rotated(x: np.ndarray, angles: np.ndarray, interleaved: bool) -> np.ndarray:
    """Rotate pair n of each head and token by angles[head, token, n]."""
    out = np.zeros(x.shape)
    for n, (a, b) in enumerate(feature_pairs(x.shape[-1] // 2, interleaved)):
        cos, sin = np.cos(angles[..., n]), np.sin(angles[..., n])
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out
