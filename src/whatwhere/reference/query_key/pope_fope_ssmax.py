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


def _mixed(p: int, n: int, cosines: np.ndarray, sines: np.ndarray, head_dim: int, theta: float) -> tuple[float, float]:
    """Return c_n and s_n of one head at one position."""
    waves = list(enumerate(inverse_frequencies(head_dim, theta)[: len(cosines)]))
    c = sum(math.cos(p * w) * float(cosines[m, n]) for m, w in waves)
    s = sum(math.sin(p * w) * float(sines[m, n]) for m, w in waves)
    return c, s
