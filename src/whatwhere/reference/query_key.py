"""Door 2: queries and keys, each mapped by its own position."""

import math

import numpy as np

from whatwhere.reference.checks import require_shape
from whatwhere.reference.frequencies import inverse_frequencies


def rotary(
    x: np.ndarray,
    positions: np.ndarray,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    frequencies: list[float] | None = None,
    magnitude: float = 1.0,
) -> np.ndarray:
    """Turn each pair of features of a query or key by the angle p w_i.

        y_a = x_a cos - x_b sin        y_b = x_a sin + x_b cos        angle = p w_i,  w_i = theta ** (-2i / rotary_dim)

        both times a magnitude, which is 1 but for some scalings

        interleaved   a = 2i,  b = 2i + 1                  the paper, GPT-J
        half-split    a = i,   b = i + rotary_dim / 2      GPT-NeoX, Hugging Face

    Su et al. 2021, equations 14, 15 and 34, https://arxiv.org/abs/2104.09864.

    Args:
        x: (heads, tokens, head_dim).
        positions: (tokens).
        theta: above 0.
        interleaved: which features make a pair.
        rotary_dim: only the first features turn, the others stay; None turns all.
        frequencies: w_i of each pair, such as a scaling gives, in place of theta's.
        magnitude: what the features that turn are multiplied by.

    Gives (heads, tokens, head_dim).

    >>> rotary(np.array([[[1.0, 0.0]]]), np.array([1])).round(4)
    array([[[0.5403, 0.8415]]])
    """
    heads, tokens, head_dim = x.shape
    require_shape("positions", positions, (tokens,))
    out = np.array(x, dtype=np.float64)
    pairs = _pairs(head_dim, theta, interleaved, rotary_dim, frequencies)
    for head in range(heads):
        for token in range(tokens):
            for a, b, w in pairs:
                angle = int(positions[token]) * w
                x_a, x_b = float(x[head, token, a]), float(x[head, token, b])
                out[head, token, a] = magnitude * (x_a * math.cos(angle) - x_b * math.sin(angle))
                out[head, token, b] = magnitude * (x_a * math.sin(angle) + x_b * math.cos(angle))
    return out


def rotary_gradient(
    g: np.ndarray,
    positions: np.ndarray,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    frequencies: list[float] | None = None,
    magnitude: float = 1.0,
) -> np.ndarray:
    """Give dL/dx of a rotation: the gradient, turned back.

        dL/dx_a = g_a cos + g_b sin        dL/dx_b = -g_a sin + g_b cos        both times the magnitude

    A rotation is an orthogonal matrix R, so R^T, which the chain rule asks for, is R at the opposite angle.

    Args:
        g: (heads, tokens, head_dim).
        positions, theta, interleaved, rotary_dim, frequencies, magnitude: as in rotary.

    Gives (heads, tokens, head_dim).

    >>> x, p = np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.array([7])
    >>> np.allclose(rotary_gradient(rotary(x, p), p), x)
    True
    """
    heads, tokens, head_dim = g.shape
    require_shape("positions", positions, (tokens,))
    out = np.array(g, dtype=np.float64)
    pairs = _pairs(head_dim, theta, interleaved, rotary_dim, frequencies)
    for head in range(heads):
        for token in range(tokens):
            for a, b, w in pairs:
                angle = int(positions[token]) * w
                g_a, g_b = float(g[head, token, a]), float(g[head, token, b])
                out[head, token, a] = magnitude * (g_a * math.cos(angle) + g_b * math.sin(angle))
                out[head, token, b] = magnitude * (-g_a * math.sin(angle) + g_b * math.cos(angle))
    return out


def _pairs(
    head_dim: int,
    theta: float,
    interleaved: bool,
    rotary_dim: int | None,
    frequencies: list[float] | None = None,
) -> list[tuple[int, int, float]]:
    """Give the two features of each pair, and how far it turns per position."""
    dim = head_dim if rotary_dim is None else rotary_dim
    if dim > head_dim:
        raise ValueError(f"rotary_dim is {dim}, but a head has only {head_dim} features.")
    places = [(2 * i, 2 * i + 1) if interleaved else (i, i + dim // 2) for i in range(dim // 2)]
    turns = inverse_frequencies(dim, theta) if frequencies is None else frequencies
    return [(a, b, w) for (a, b), w in zip(places, turns, strict=True)]
