"""Door 2 (query_key), rotations by content: CARoPE and Selective RoPE, whose tokens add to the angles of later ones."""

import math

import numpy as np

from whatwhere.reference.checks import arrays, require_shape
from whatwhere.reference.query_key.rotary import feature_pairs


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
        x: queries or keys of all tokens of a text, (heads, tokens, head_dim).
        increments: f, (heads, tokens).
        interleaved: which features make a pair, as in rotary.

    Returns:
        Shape (heads, tokens, head_dim).

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
        x: queries or keys of all tokens of a text, (heads, tokens, head_dim).
        increments: f, (heads, tokens, pairs), or with g behind it (heads, tokens, pairs + 1).
        convolution: c, (heads, pairs, tokens that it sees).
        theta: base of the frequencies.
        interleaved: which features make a pair, as in rotary.

    Returns:
        Shape (heads, tokens, head_dim).

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
