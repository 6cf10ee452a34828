"""Door 2 (query_key), maps with parameters: PoPE (polar), FoPE (Fourier), SSMax (scaled softmax)."""

import math

import numpy as np

from whatwhere.reference.checks import arrays, require_shape
from whatwhere.reference.frequencies import inverse_frequencies
from whatwhere.reference.query_key.rotary import feature_pairs


@arrays(x=3, positions=1, delta=2)
def pope(x: np.ndarray, positions: np.ndarray, theta: float = 10_000.0, delta: np.ndarray | None = None) -> np.ndarray:
    """Compute each feature of a query or key in polar form: a magnitude and an angle.

        y_c = softplus(x_c) cos(p w_c - delta_c)        y_(d+c) = softplus(x_c) sin(p w_c - delta_c)
        w_c = theta ** (-c / d),  c = 0 .. d-1

    Gopalakrishnan et al. 2025, https://arxiv.org/abs/2509.10534. They add delta to the angle of the keys; subtracting
    it from that of the queries gives the same scores.

    Args:
        x: (heads, tokens, d).
        positions: (tokens).
        theta: above 0.
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


@arrays(g=3, x=3, positions=1, delta=2)
def pope_gradient(
    g: np.ndarray, x: np.ndarray, positions: np.ndarray, theta: float, delta: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute dL/dx and dL/d(delta) of polar queries; the derivative of softplus is the logistic function.

        dL/dx_c     = (g_c cos a + g_(d+c) sin a) / (1 + exp(-x_c))        a = p w_c - delta_c
        dL/ddelta_c = sum over tokens of softplus(x_c) (g_c sin a - g_(d+c) cos a)

    Args:
        g: (heads, tokens, 2 d).
        x, positions, theta, delta: as in pope.

    Returns:
        Arrays of the shapes of x and delta.

    Examples:
        >>> pope_gradient(np.array([[[1.0, 0.0]]]), np.zeros((1, 1, 1)), np.array([0]), 10_000.0, np.zeros((1, 1)))
        (array([[[0.5]]]), array([[0.]]))
    """
    d = x.shape[-1]
    d_x, d_delta = np.zeros(x.shape), np.zeros(delta.shape)
    for head, token, c in np.ndindex(x.shape):
        angle = int(positions[token]) * theta ** (-c / d) - float(delta[head, c])
        along, across = float(g[head, token, c]), float(g[head, token, d + c])
        value = float(x[head, token, c])
        d_x[head, token, c] = (along * math.cos(angle) + across * math.sin(angle)) / (1 + math.exp(-value))
        normal = along * math.sin(angle) - across * math.cos(angle)
        d_delta[head, c] += math.log1p(math.exp(value)) * normal
    return d_x, d_delta


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
        x: (heads, tokens, head_dim).
        positions: (tokens).
        cosines, sines: C and S, (heads, waves, waves), for the waves of a frequency above 2 pi / trained length.
        theta: above 0.
        interleaved: pairs are (2i, 2i+1); else (i, i + head_dim/2).

    Returns:
        Shape (heads, tokens, head_dim).

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


@arrays(g=3, x=3, positions=1, cosines=3, sines=3)
def fope_gradient(
    g: np.ndarray,
    x: np.ndarray,
    positions: np.ndarray,
    cosines: np.ndarray,
    sines: np.ndarray,
    theta: float = 10_000.0,
    interleaved: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute dL/dx, dL/dC and dL/dS of mixed waves.

        dL/dx_a = g_a c + g_b s        dL/dx_b = -g_a s + g_b c
        dL/dC[m, n] = sum over tokens of cos(p w_m) (g_a x_a + g_b x_b)
        dL/dS[m, n] = sum over tokens of sin(p w_m) (g_b x_a - g_a x_b)

    Args:
        g: (heads, tokens, head_dim).
        x, positions, cosines, sines, theta, interleaved: as in fope.

    Returns:
        Arrays of the shapes of x, C and S.

    Examples:
        >>> one, x = np.ones((1, 1, 1)), np.array([[[2.0, 0.0]]])
        >>> [d.ravel().tolist() for d in fope_gradient(x, x, np.array([0]), one, one)]
        [[2.0, 0.0], [4.0], [0.0]]
    """
    heads, tokens, head_dim = x.shape
    d_x, d_cosines, d_sines = np.array(g, dtype=np.float64), np.zeros(cosines.shape), np.zeros(sines.shape)
    waves = cosines.shape[-1]
    frequencies = inverse_frequencies(head_dim, theta)[:waves]
    for head in range(heads):
        for token in range(tokens):
            p = int(positions[token])
            for n, (a, b) in enumerate(feature_pairs(head_dim // 2, interleaved)[:waves]):
                c, s = _mixed(p, n, cosines[head], sines[head], head_dim, theta)
                x_a, x_b, g_a, g_b = (float(v[head, token, f]) for v in (x, g) for f in (a, b))
                d_x[head, token, a], d_x[head, token, b] = g_a * c + g_b * s, g_b * c - g_a * s
                for m, w in enumerate(frequencies):
                    d_cosines[head, m, n] += math.cos(p * w) * (g_a * x_a + g_b * x_b)
                    d_sines[head, m, n] += math.sin(p * w) * (g_b * x_a - g_a * x_b)
    return d_x, d_cosines, d_sines


@arrays(q=3, positions=1, weight=1, bias=1)
def ssmax(q: np.ndarray, positions: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Multiply each query by the logarithm of the number of tokens that it attends to.

        y = (s_h ln(p + 1) + b_h) q

    Nakanishi 2025, equation 3, https://arxiv.org/abs/2501.19399; in a causal model a query at p attends to p + 1 keys.

    Args:
        q: (heads, tokens, head_dim).
        positions: (tokens).
        weight: s, (heads).
        bias: b, (heads); None is 0.

    Returns:
        Shape (heads, tokens, head_dim).

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


@arrays(g=3, q=3, positions=1, weight=1, bias=1)
def ssmax_gradient(
    g: np.ndarray, q: np.ndarray, positions: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute dL/dq, dL/ds and dL/db of scaled queries.

        dL/dq = (s_h ln(p + 1) + b_h) g
        dL/ds_h = sum over tokens of ln(p + 1) <g, q>        dL/db_h = sum over tokens of <g, q>

    Args:
        g: (heads, tokens, head_dim).
        q, positions, weight, bias: as in ssmax.

    Returns:
        Arrays of the shapes of q, s and s.

    Examples:
        >>> ssmax_gradient(np.ones((1, 1, 1)), np.ones((1, 1, 1)), np.array([0]), np.array([0.5]))
        (array([[[0.]]]), array([0.]), array([1.]))
    """
    d_weight, d_bias = np.zeros(weight.shape), np.zeros(weight.shape)
    for head, token, c in np.ndindex(q.shape):
        product = g[head, token, c] * q[head, token, c]
        d_weight[head] += math.log(int(positions[token]) + 1) * product
        d_bias[head] += product
    return ssmax(g, positions, weight, bias), d_weight, d_bias


def _mixed(p: int, n: int, cosines: np.ndarray, sines: np.ndarray, head_dim: int, theta: float) -> tuple[float, float]:
    """Return c_n and s_n of one head at one position."""
    waves = list(enumerate(inverse_frequencies(head_dim, theta)[: len(cosines)]))
    c = sum(math.cos(p * w) * float(cosines[m, n]) for m, w in waves)
    s = sum(math.sin(p * w) * float(sines[m, n]) for m, w in waves)
    return c, s
