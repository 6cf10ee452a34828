"""Door 2 (query_key), maps that are not a rotation by position alone.

Parameters: PoPE (polar), FoPE (Fourier), SSMax (scaled softmax). Rotations by content: CARoPE and Selective RoPE, whose
tokens add to the angles of later ones. The query temperature: queries multiplied by a fixed function of their position.

Everywhere x, q and the results have the shape (heads, tokens, head_dim), and positions (tokens); theta is above 0, and
interleaved says which features make a pair, as in `rotary`.
"""

import math

import numpy as np

from whatwhere.reference.checks import Array, arrays, require_shape
from whatwhere.reference.frequencies import inverse_frequencies
from whatwhere.reference.rotation import rotate


@arrays(x=3, positions=1, delta=2)
def pope(x: Array, positions: Array, theta: float = 10_000.0, delta: Array | None = None) -> Array:
    """Compute each feature of a query or key in polar form: a magnitude and an angle.

        y_c = softplus(x_c) cos(p w_c - delta_c)        y_(d+c) = softplus(x_c) sin(p w_c - delta_c)
        w_c = theta ** (-c / d),  c = 0 .. d-1

    Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534. They add delta to the angle of the keys; subtracting
    it from that of the queries gives the same scores.

    Args:
        delta: (heads, d), for queries; None for keys.

    Returns:
        Shape (heads, tokens, 2 d).
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
    x: Array, positions: Array, cosines: Array, sines: Array, theta: float = 10_000.0, interleaved: bool = False
) -> Array:
    """Rotate each pair of queries or keys by a mixture of waves; pairs beyond the mixed ones stay.

        y_a = x_a c - x_b s        y_b = x_a s + x_b c
        c_n = sum_m cos(p w_m) C[m, n]        s_n = sum_m sin(p w_m) S[m, n]        w_m as in rotary

    Hua et al. 2024, https://arxiv.org/abs/2412.17739.

    Args:
        cosines, sines: C and S, (heads, waves, waves), for the waves of a frequency above 2 pi / trained length.
        interleaved: pairs are (2i, 2i+1); else (i, i + head_dim/2).
    """
    require_shape("positions", positions, x.shape[1:2])
    angles = np.outer(positions, inverse_frequencies(x.shape[-1], theta)[: cosines.shape[-1]])
    c, s = (np.einsum("pm,hmn->hpn", *each) for each in ((np.cos(angles), cosines), (np.sin(angles), sines)))
    return rotate(x, c, s, interleaved, pairs=x.shape[-1] // 2)


@arrays(q=3, positions=1, weight=1, bias=1)
def ssmax(q: Array, positions: Array, weight: Array, bias: Array | None = None) -> Array:
    """Multiply each query by the logarithm of the number of tokens that it attends to.

        y = (s_h ln(p + 1) + b_h) q

    Nakanishi 2025, equation 3, https://arxiv.org/abs/2501.19399; in a causal model a query at p attends to p + 1 keys.

    Args:
        weight: s, (heads).
        bias: b, (heads); None is 0.
    """
    out = np.zeros(q.shape)
    for head, token, c in np.ndindex(q.shape):
        added = 0.0 if bias is None else bias[head]
        out[head, token, c] = (weight[head] * math.log(int(positions[token]) + 1) + added) * q[head, token, c]
    return out


@arrays(q=3, factors=1)
def query_temperature(q: Array, factors: Array) -> Array:
    """Multiply each query by the factor of its position.

        y = tau_p q

    factors: tau of each token, (tokens), by one of the functions below.
    """
    require_shape("factors", factors, q.shape[1:2])
    out = np.zeros(q.shape)
    for head, token, c in np.ndindex(q.shape):
        out[head, token, c] = factors[token] * q[head, token, c]
    return out


@arrays(positions=1)
def stepped_log_temperature(positions: Array, alpha: float, period: int, offset: int = 1) -> Array:
    """Compute the factor of Llama 4 (offset 1) and of Ministral 3 and Mistral 4 (offset 0).

    tau_p = 1 + alpha ln(1 + floor((p + offset) / period)).
    """
    return np.array([1 + alpha * math.log(1 + (int(p) + offset) // period) for p in positions])


@arrays(positions=1)
def clamped_log_temperature(positions: Array, alpha: float, length: int) -> Array:
    """Compute the factor of Inkling: tau_p = 1 + alpha ln max(1, (p + 1) / length)."""
    return np.array([1 + alpha * math.log(max(1.0, (int(p) + 1) / length)) for p in positions])


@arrays(positions=1)
def power_temperature(positions: Array, exponent: float, length: int) -> Array:
    """Compute the factor of Beam: tau_p = (1 + (p + 1) / length) ** exponent."""
    return np.array([(1 + (int(p) + 1) / length) ** exponent for p in positions])


@arrays(positions=1)
def log_n_temperature(positions: Array, original_length: int) -> Array:
    """Compute the factor of Qwen's first generation.

        tau_p = max(1, ln(p + 1) / ln original_length)

    original_length: at least 2.
    """
    return np.array([max(1.0, math.log(int(p) + 1) / math.log(original_length)) for p in positions])


@arrays(x=2, weight=2, bias=1)
def carope_increments(x: Array, weight: Array, bias: Array) -> Array:
    """Compute by how much each token rotates the second pair of features, in each head.

        f_t = 1 / (softplus(<w_h, x_t> + b_h) + 1)

    Veisi et al. 2025, https://arxiv.org/abs/2507.23083, which has no b.

    x: (tokens, dim); weight: (heads, dim); bias: (heads). The result has the shape (heads, tokens).
    """
    out = np.zeros((len(weight), len(x)))
    for h, t in np.ndindex(out.shape):
        z = float(np.dot(weight[h], x[t]) + bias[h])
        out[h, t] = 1 / (max(z, 0.0) + math.log1p(math.exp(-abs(z))) + 1)
    return out


@arrays(x=3, increments=2)
def carope(x: Array, increments: Array, interleaved: bool = False) -> Array:
    """Rotate pair n of a token by the sum of f^n over the tokens up to it.

        y_a = x_a cos - x_b sin        y_b = x_a sin + x_b cos        angle = f_1^n + ... + f_t^n

    increments: f, (heads, tokens).
    """
    heads, tokens, head_dim = x.shape
    require_shape("increments", increments, (heads, tokens))
    angles = (increments[..., None] ** np.arange(head_dim // 2)).cumsum(axis=1)
    return rotate(x, np.cos(angles), np.sin(angles), interleaved)


@arrays(x=2, down=2, up=3, gate_weight=2, gate_bias=1)
def selective_rope_increments(
    x: Array,
    down: Array,
    up: Array,
    gate_weight: Array | None = None,
    gate_bias: Array | None = None,
    groups: int | None = None,
) -> Array:
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
    x: Array, increments: Array, convolution: Array, theta: float = 500_000.0, interleaved: bool = False
) -> Array:
    """Rotate pair n of a token by the sum of the convolved increments of the tokens up to it.

        angle = theta^(-2n / head_dim) (s_1 + ... + s_t)
        s_t = g_t (c_0 f_(t-3) + c_1 f_(t-2) + c_2 f_(t-1) + c_3 f_t)

    increments: f, (heads, tokens, pairs), or with g behind it (heads, tokens, pairs + 1); convolution: c, (heads,
    pairs, tokens that it sees); theta: base of the frequencies.
    """
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
    return rotate(x, np.cos(angles), np.sin(angles), interleaved)


def _unit(x: Array, groups: int) -> Array:
    out, size = np.zeros(x.shape), x.shape[1] // groups
    for t, first in np.ndindex(len(x), groups):
        part = slice(first * size, (first + 1) * size)
        out[t, part] = x[t, part] / math.sqrt(float(x[t, part] @ x[t, part]) + 1e-6)
    return out
