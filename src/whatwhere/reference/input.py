"""Door 1: a vector for each position, added to the token's vector."""

import math

import numpy as np

from whatwhere.reference.checks import require_rows
from whatwhere.reference.frequencies import inverse_frequencies, tensor2tensor_frequencies


def sinusoid(positions: np.ndarray, dim: int, theta: float = 10_000.0, layout: str = "interleaved") -> np.ndarray:
    """Give the sinusoidal vector of each position.

        interleaved     PE[p, 2i] = sin(p w_i)   PE[p, 2i+1] = cos(p w_i)        w_i = theta ** (-2i / dim)
        halves          PE[p, i]  = sin(p w_i)   PE[p, dim/2 + i] = cos(p w_i)   the same w_i
        tensor2tensor   as halves                                                w_i = theta ** (-i / (dim/2 - 1))

    Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762; i counts pairs of features.

    Args:
        positions: whole numbers, any shape.
        dim: features, even.
        theta: above 0.
        layout: `interleaved`, `halves` or `tensor2tensor`.

    Gives (*positions.shape, dim).

    >>> sinusoid(np.array([0]), 4), sinusoid(np.array([0]), 4, layout="halves")
    (array([[0., 1., 0., 1.]]), array([[0., 0., 1., 1.]]))
    """
    if layout not in ("interleaved", "halves", "tensor2tensor"):
        raise ValueError(f"layout is {layout!r}, but must be 'interleaved', 'halves' or 'tensor2tensor'.")
    frequencies = (
        tensor2tensor_frequencies(dim, theta) if layout == "tensor2tensor" else inverse_frequencies(dim, theta)
    )
    out = np.zeros((*positions.shape, dim))
    for place in np.ndindex(positions.shape):
        for i, w in enumerate(frequencies):
            angle = int(positions[place]) * w
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, dim // 2 + i)
            out[place][sine] = math.sin(angle)
            out[place][cosine] = math.cos(angle)
    return out


def learned(weight: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Give the trained row of each position.

        x_n = P[p_n]

    Gehring et al. 2017, section 3.1, https://arxiv.org/abs/1705.03122.

    Args:
        weight: P, (max_length, dim).
        positions: whole numbers 0..max_length-1, any shape.

    Gives (*positions.shape, dim).

    >>> learned(np.array([[0.5], [0.7]]), np.array([0, 1, 1])).T
    array([[0.5, 0.7, 0.7]])
    """
    require_rows("position", positions, weight.shape[0])
    out = np.zeros((*positions.shape, weight.shape[1]))
    for place in np.ndindex(positions.shape):
        out[place] = weight[positions[place]]
    return out


def learned_gradient(g: np.ndarray, positions: np.ndarray, max_length: int) -> np.ndarray:
    """Give dL/dP: each row collects the gradients of all tokens that stand at its position.

        dL/dP[p] = sum over n with p_n = p of g_n

    In a batch, every sequence adds to the rows of the positions that it has; rows beyond the longest get nothing.

    Args:
        g: (*positions.shape, dim).
        positions: as in learned.
        max_length: rows of P.

    Gives (max_length, dim).

    >>> learned_gradient(np.ones((2, 2, 1)), np.array([[0, 1], [0, 1]]), max_length=3).T
    array([[2., 2., 0.]])
    """
    require_rows("position", positions, max_length)
    total = np.zeros((max_length, g.shape[-1]))
    for place in np.ndindex(positions.shape):
        total[positions[place]] += g[place]
    return total
