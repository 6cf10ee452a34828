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


def axial_sinusoid(positions: np.ndarray, dim: int, theta: float = 10_000.0, layout: str = "interleaved") -> np.ndarray:
    """Give one sinusoid for each axis, side by side.

        PE[p] = (S(p_1), ..., S(p_A))        S: of F features, F = 2 ceil(dim / 2A)

    Of the last axis the slowest pairs are left out where A F is more than dim. Parmar et al. 2018,
    https://arxiv.org/abs/1802.05751.

    Args:
        positions: whole numbers, (axes, *shape).
        dim: features, even.
        theta, layout: of each sinusoid, as in sinusoid.

    Gives (*shape, dim).

    >>> axial_sinusoid(np.array([[0], [1]]), 4).round(4)
    array([[0.    , 1.    , 0.8415, 0.5403]])
    """
    axes = len(positions)
    pairs = math.ceil(dim // 2 / axes)
    parts = []
    for axis in range(axes):
        wave = sinusoid(positions[axis], 2 * pairs, theta, layout)
        kept = min(pairs, dim // 2 - axis * pairs)
        places = [i for pair in range(kept) for i in (2 * pair, 2 * pair + 1)]
        if layout != "interleaved":
            places = [*range(kept), *range(pairs, pairs + kept)]
        parts.append(wave[..., places])
    return np.concatenate(parts, axis=-1)


def fourier(
    positions: np.ndarray,
    longest: int,
    frequencies: np.ndarray,
    weight_in: np.ndarray,
    bias_in: np.ndarray,
    weight_out: np.ndarray,
    bias_out: np.ndarray,
) -> np.ndarray:
    """Give what a small network makes of waves of learned frequency.

        r = (cos(W_r p / longest), sin(W_r p / longest)) / sqrt(D)        x = W_2 gelu(W_1 r + b_1) + b_2
        gelu(z) = z (1 + erf(z / sqrt(2))) / 2

    Li et al. 2021, equations 2 and 6, https://arxiv.org/abs/2106.02795.

    Args:
        positions: whole numbers, (axes, *shape).
        longest: what positions are divided by.
        frequencies: W_r, (D/2, axes).
        weight_in, bias_in: W_1 (hidden, D) and b_1.
        weight_out, bias_out: W_2 (dim, hidden) and b_2.

    Gives (*shape, dim).

    >>> fourier(np.array([[0]]), 1, np.ones((1, 1)), np.eye(2), np.zeros(2), np.ones((1, 2)), np.zeros(1)).round(4)
    array([[0.5376]])
    """
    shape, waves = positions.shape[1:], len(frequencies)
    out = np.zeros((*shape, len(bias_out)))
    for place in np.ndindex(*shape):
        r = np.zeros(2 * waves)
        for n in range(waves):
            turn = sum(float(frequencies[n, a]) * int(p[place]) / longest for a, p in enumerate(positions))
            r[n] = math.cos(turn) / math.sqrt(2 * waves)
            r[waves + n] = math.sin(turn) / math.sqrt(2 * waves)
        inner = [float(np.dot(row, r)) + float(b) for row, b in zip(weight_in, bias_in, strict=True)]
        gelu = [z * (1 + math.erf(z / math.sqrt(2))) / 2 for z in inner]
        for n, row in enumerate(weight_out):
            out[place][n] = float(np.dot(row, gelu)) + float(bias_out[n])
    return out


def learned(weight: np.ndarray, positions: np.ndarray, offset: int = 0) -> np.ndarray:
    """Give the trained row of each position.

        x_n = P[p_n + offset]

    Gehring et al. 2017, section 3.1, https://arxiv.org/abs/1705.03122.

    Args:
        weight: P, (offset + max_length, dim).
        positions: whole numbers 0..max_length-1, any shape.
        offset: rows before that of position 0.

    Gives (*positions.shape, dim).

    >>> learned(np.array([[0.5], [0.7]]), np.array([0, 1, 1])).T
    array([[0.5, 0.7, 0.7]])
    """
    require_rows("position", positions, weight.shape[0] - offset)
    out = np.zeros((*positions.shape, weight.shape[1]))
    for place in np.ndindex(positions.shape):
        out[place] = weight[positions[place] + offset]
    return out


def learned_gradient(g: np.ndarray, positions: np.ndarray, max_length: int, offset: int = 0) -> np.ndarray:
    """Give dL/dP: each row collects the gradients of all tokens that stand at its position.

        dL/dP[r] = sum over n with p_n + offset = r of g_n

    In a batch, every sequence adds to the rows of the positions that it has; rows beyond the longest get nothing.

    Args:
        g: (*positions.shape, dim).
        positions, offset: as in learned.
        max_length: positions that P has rows for.

    Gives (offset + max_length, dim).

    >>> learned_gradient(np.ones((2, 2, 1)), np.array([[0, 1], [0, 1]]), max_length=3).T
    array([[2., 2., 0.]])
    """
    require_rows("position", positions, max_length)
    total = np.zeros((offset + max_length, g.shape[-1]))
    for place in np.ndindex(positions.shape):
        total[positions[place] + offset] += g[place]
    return total
