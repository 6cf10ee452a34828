"""Door 1 (input): a vector for each position, added to the token's vector; learned tables and their resizing.

Vectors have the shape of the positions and one axis more: (*shape, dim). positions are whole numbers of any shape;
along several axes (axes, *shape).
"""

import math

import numpy as np

from whatwhere.reference.checks import Array, arrays, require_rows, require_shape
from whatwhere.reference.frequencies import inverse_frequencies, tensor2tensor_frequencies


@arrays(positions=...)
def sinusoid(
    positions: Array, dim: int, theta: float = 10_000.0, layout: str = "interleaved", cosines_first: bool = False
) -> Array:
    """Compute the sinusoidal vector of each position.

        interleaved     PE[p, 2i] = sin(p w_i)   PE[p, 2i+1] = cos(p w_i)        w_i = theta ** (-2i / dim)
        half            PE[p, i]  = sin(p w_i)   PE[p, dim/2 + i] = cos(p w_i)   the same w_i
        tensor2tensor   as half                                                  w_i = theta ** (-i / (dim/2 - 1))

    Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762; i counts pairs of features. MusicGen has the
    cosine of each pair first.

    dim: features, even; theta: above 0; layout: `interleaved`, `half` or `tensor2tensor`; cosines_first: swap the sine
    and the cosine of each pair.

    Raises:
        ValueError: If the layout is unknown, or dim is odd.

    Examples:
        >>> sinusoid(np.array([0]), 4), sinusoid(np.array([0]), 4, layout="half")
        (array([[0., 1., 0., 1.]]), array([[0., 0., 1., 1.]]))
    """
    if layout not in ("interleaved", "half", "tensor2tensor"):
        raise ValueError(f"layout is {layout!r}, but must be 'interleaved', 'half' or 'tensor2tensor'.")
    frequencies = (
        tensor2tensor_frequencies(dim, theta) if layout == "tensor2tensor" else inverse_frequencies(dim, theta)
    )
    out = np.zeros((*positions.shape, dim))
    for slot in np.ndindex(positions.shape):
        for i, w in enumerate(frequencies):
            angle = int(positions[slot]) * w
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, dim // 2 + i)
            sine, cosine = (cosine, sine) if cosines_first else (sine, cosine)
            out[slot][sine] = math.sin(angle)
            out[slot][cosine] = math.cos(angle)
    return out


@arrays(positions=...)
def axial_sinusoid(positions: Array, dim: int, theta: float = 10_000.0, layout: str = "interleaved") -> Array:
    """Compute one sinusoid for each axis, side by side.

        PE[p] = (S(p_1), ..., S(p_A))        S: of F features, F = 2 ceil(dim / 2A)

    The slowest pairs of the last axis are dropped where A F is more than dim. Parmar et al. 2018,
    https://arxiv.org/abs/1802.05751.

    dim: features, even; theta, layout: of each sinusoid, as in sinusoid.
    """
    axes = len(positions)
    pairs = math.ceil(dim // 2 / axes)
    parts = []
    for axis in range(axes):
        wave = sinusoid(positions[axis], 2 * pairs, theta, layout)
        kept = min(pairs, dim // 2 - axis * pairs)
        features = [i for pair in range(kept) for i in (2 * pair, 2 * pair + 1)]
        if layout != "interleaved":
            features = [*range(kept), *range(pairs, pairs + kept)]
        parts.append(wave[..., features])
    return np.concatenate(parts, axis=-1)


@arrays(positions=..., frequencies=2, weight_in=2, bias_in=1, weight_out=2, bias_out=1)
def fourier(
    positions: Array,
    max_length: int,
    frequencies: Array,
    weight_in: Array,
    bias_in: Array,
    weight_out: Array,
    bias_out: Array,
) -> Array:
    """Compute learned Fourier features of each position, through a two-layer perceptron.

        r = (cos(W_r p / L), sin(W_r p / L)) / sqrt(D)        x = W_2 gelu(W_1 r + b_1) + b_2
        gelu(z) = z (1 + erf(z / sqrt(2))) / 2

    Li et al. 2021, equations 2 and 6, https://arxiv.org/abs/2106.02795.

    max_length: L, what positions are divided by; frequencies: W_r, (D/2, axes); weight_in, bias_in: W_1 (hidden, D) and
    b_1; weight_out, bias_out: W_2 (dim, hidden) and b_2.
    """
    shape, waves = positions.shape[1:], len(frequencies)
    out = np.zeros((*shape, len(bias_out)))
    for slot in np.ndindex(*shape):
        r = np.zeros(2 * waves)
        for n in range(waves):
            angle = sum(float(frequencies[n, a]) * int(p[slot]) / max_length for a, p in enumerate(positions))
            r[n] = math.cos(angle) / math.sqrt(2 * waves)
            r[waves + n] = math.sin(angle) / math.sqrt(2 * waves)
        inner = [float(np.dot(row, r)) + float(b) for row, b in zip(weight_in, bias_in, strict=True)]
        gelu = [z * (1 + math.erf(z / math.sqrt(2))) / 2 for z in inner]
        for n, row in enumerate(weight_out):
            out[slot][n] = float(np.dot(row, gelu)) + float(bias_out[n])
    return out


@arrays(weight=2, positions=...)
def learned(weight: Array, positions: Array, offset: int = 0) -> Array:
    """Look up the trained row of each position.

        x_n = P[p_n + offset]

    Gehring et al. 2017, section 3.1, https://arxiv.org/abs/1705.03122.

    weight: P, (offset + max_length, dim); positions: whole numbers 0..max_length-1, any shape; offset: rows before that
    of position 0.

    Raises:
        IndexError: If a position is not below max_length.

    Examples:
        >>> learned(np.array([[0.5], [0.7]]), np.array([0, 1, 1])).T
        array([[0.5, 0.7, 0.7]])
    """
    require_rows("position", positions, weight.shape[0] - offset)
    out = np.zeros((*positions.shape, weight.shape[1]))
    for slot in np.ndindex(positions.shape):
        out[slot] = weight[positions[slot] + offset]
    return out


@arrays(g=..., positions=...)
def learned_gradient(g: Array, positions: Array, max_length: int, offset: int = 0) -> Array:
    """Compute dL/dP: each row sums the gradients of all tokens at its position.

        dL/dP[r] = sum over n with p_n + offset = r of g_n

    In a batch, every sequence adds to the rows of its positions; rows beyond the longest sequence stay at zero.

    g: (*positions.shape, dim); positions, offset: as in learned; max_length: positions that P has rows for.
    """
    require_rows("position", positions, max_length)
    total = np.zeros((offset + max_length, g.shape[-1]))
    for slot in np.ndindex(positions.shape):
        total[positions[slot] + offset] += g[slot]
    return total


@arrays(rows=2)
def resized_rows(rows: Array, length: int, rule: str = "linear", align: str = "ends") -> Array:
    """Interpolate a table of positions to another length.

        ends     new row n is read at t = n (L - 1) / (L' - 1)          first and last row stay
        cells    new row n is read at t = (n + 1/2) L / L' - 1/2        rows are cell centers
        y_n = sum_m k(t - m) x_m        rows beyond the ends repeat the end

        linear   k(u) = 1 - |u|                                            |u| < 1
        cubic    k(u) = (a + 2)|u|^3 - (a + 3)|u|^2 + 1                    |u| <= 1
                        a |u|^3 - 5a |u|^2 + 8a |u| - 4a                   1 < |u| < 2,  a = -3/4

    Keys 1981, Cubic convolution interpolation for digital image processing.

    rows: (L, dim); length: L'; rule: `linear` or `cubic`; align: `ends` or `cells`.

    Examples:
        >>> resized_rows(np.array([[0.0], [2.0]]), 4, align="cells").T
        array([[0. , 0.5, 1.5, 2. ]])
    """
    old = len(rows)
    out = np.zeros((length, rows.shape[1]))
    for n in range(length):
        t = _source_coordinate(n, old, length, align)
        for m in range(math.floor(t) - 1, math.floor(t) + 3):
            out[n] += _kernel(t - m, rule) * rows[min(max(m, 0), old - 1)]
    return out


@arrays(rows=2)
def resized_grid(
    rows: Array, old: tuple[int, int], new: tuple[int, int], rule: str = "cubic", align: str = "cells"
) -> Array:
    """Interpolate a table of grid positions to another grid: along its height, then along its width.

    rows: (old[0] * old[1], dim), the width fastest; old, new: (height, width); rule, align: as in resized_rows.
    """
    dim = rows.shape[1]
    require_shape("rows", rows, (old[0] * old[1], dim))
    image = rows.reshape(*old, dim)
    higher = np.zeros((new[0], old[1], dim))
    for column in range(old[1]):
        higher[:, column] = resized_rows(image[:, column], new[0], rule, align)
    out = np.zeros((*new, dim))
    for line in range(new[0]):
        out[line] = resized_rows(higher[line], new[1], rule, align)
    return out.reshape(-1, dim)


def _source_coordinate(n: int, old: int, length: int, align: str) -> float:
    """Return the coordinate among the old rows at which a new row is read."""
    if align == "cells":
        return (n + 0.5) * old / length - 0.5
    return n * (old - 1) / (length - 1) if length > 1 else 0.0


def _kernel(u: float, rule: str) -> float:
    """Return the weight of a row at distance u."""
    x, a = abs(u), -0.75
    if rule == "linear":
        return max(1 - x, 0.0)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0
