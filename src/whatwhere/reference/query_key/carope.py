"""Door 2 (query_key), rotations by content: CARoPE, whose tokens add to the angles of all later ones."""

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


@arrays(g=2, x=2, weight=2, bias=1)
def carope_increments_gradient(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute dL/dx, dL/dw and dL/db of carope_increments: the derivative of f is -f^2 sigmoid(z).

    Args:
        g: (heads, tokens).
        x, weight, bias: as in carope_increments.

    Examples:
        >>> carope_increments_gradient(np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1))[2].round(4)
        array([-0.1744])
    """
    increments = carope_increments(x, weight, bias)
    require_shape("g", g, increments.shape)
    d_x, d_weight, d_bias = np.zeros(x.shape), np.zeros(weight.shape), np.zeros(bias.shape)
    for h, t in np.ndindex(increments.shape):
        softplus = 1 / increments[h, t] - 1  # whose exponential is 1 + exp(z)
        slope = -g[h, t] * increments[h, t] ** 2 * (1 - math.exp(-softplus))
        d_x[t] += slope * weight[h]
        d_weight[h] += slope * x[t]
        d_bias[h] += slope
    return d_x, d_weight, d_bias


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
    out = np.zeros(x.shape)
    for n, (a, b) in enumerate(feature_pairs(head_dim // 2, interleaved)):
        for h in range(heads):
            angle = 0.0
            for t in range(tokens):
                angle += float(increments[h, t]) ** n
                out[h, t, a] = x[h, t, a] * math.cos(angle) - x[h, t, b] * math.sin(angle)
                out[h, t, b] = x[h, t, a] * math.sin(angle) + x[h, t, b] * math.cos(angle)
    return out


@arrays(g=3, x=3, increments=2)
def carope_gradient(
    g: np.ndarray, x: np.ndarray, increments: np.ndarray, interleaved: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Compute dL/dx and dL/df of carope.

        dL/dangle_tn = g_b y_a - g_a y_b        dL/df_s = sum over t >= s and n of n f_s^(n-1) dL/dangle_tn

    dL/dx is g, rotated back.

    Args:
        g: (heads, tokens, head_dim).
        x, increments, interleaved: as in carope.

    Returns:
        Arrays of the shapes of x and increments.

    Examples:
        >>> carope_gradient(np.ones((1, 1, 2)), np.ones((1, 1, 2)), np.array([[0.3]]))[1]  # the first pair has f^0
        array([[0.]])
    """
    y = carope(x, increments, interleaved)
    d_x, d_increments = np.zeros(x.shape), np.zeros(increments.shape)
    heads, tokens, head_dim = x.shape
    for n, (a, b) in enumerate(feature_pairs(head_dim // 2, interleaved)):
        for h in range(heads):
            angle = 0.0
            for t in range(tokens):
                angle += float(increments[h, t]) ** n
                d_x[h, t, a] = g[h, t, a] * math.cos(angle) + g[h, t, b] * math.sin(angle)
                d_x[h, t, b] = g[h, t, b] * math.cos(angle) - g[h, t, a] * math.sin(angle)
                d_angle = g[h, t, b] * y[h, t, a] - g[h, t, a] * y[h, t, b]
                for s in range(t + 1):
                    d_increments[h, s] += n * float(increments[h, s]) ** (n - 1) * d_angle if n else 0.0
    return d_x, d_increments
