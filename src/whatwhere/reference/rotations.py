"""Door 2: rotations by several coordinates, and rotations that fade.

Each is a linear map, y = A x, so dL/dx = A^T g. Of a rotation, A^T is the rotation by the opposite angle: the gradient
is the function itself, of g at the opposite positions.
"""

import math
from collections.abc import Sequence

import numpy as np

from whatwhere.reference.checks import require_shape
from whatwhere.reference.frequencies import inverse_frequencies


def axial_rotary(
    x: np.ndarray,
    positions: np.ndarray,
    sections: Sequence[int],
    theta: float = 10_000.0,
    interleaved: bool = False,
) -> np.ndarray:
    """Turn the first pairs by the first coordinate, the next by the second, and so on.

        pair i of axis a turns by p_a w_i        w_i = theta ** (-i / n_a),  i = 0 .. n_a - 1

    Heo et al. 2024, https://arxiv.org/abs/2403.13298.

    Args:
        x: (heads, tokens, head_dim).
        positions: (axes, tokens).
        sections: n_a, the pairs of each axis, head_dim / 2 in sum.
        theta, interleaved: as in rotary.

    Gives (heads, tokens, head_dim).

    >>> axial_rotary(np.array([[[1.0, 0.0, 1.0, 0.0]]]), np.array([[0], [1]]), [1, 1], interleaved=True).round(4)
    array([[[1.    , 0.    , 0.5403, 0.8415]]])
    """
    angles = [[0.0] * sum(sections) for _ in range(x.shape[1])]
    for token, row in enumerate(angles):
        pair = 0
        for axis, own in enumerate(sections):
            for i in range(own):
                row[pair] = int(positions[axis, token]) * theta ** (-i / own)
                pair = pair + 1
    return _turn(x, angles, interleaved)


def multimodal_axes(sections: Sequence[int], layout: str = "chunked") -> list[int]:
    """Say by which coordinate each pair turns.

        chunked         the first pairs by the first, the next by the second, and so on
        interleaved     in turn, until an axis has its pairs; what is left is of the first axis

    Wang et al. 2024, section 2.1, https://arxiv.org/abs/2409.12191; interleaved: Qwen3-VL.

    >>> multimodal_axes([3, 1, 2]), multimodal_axes([4, 2, 2], "interleaved")
    ([0, 0, 0, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0, 0])
    """
    if layout == "chunked":
        return [axis for axis, own in enumerate(sections) for _ in range(own)]
    out = []
    for pair in range(sum(sections)):
        axis, turn = pair % len(sections), pair // len(sections)
        out.append(axis if turn < sections[axis] else 0)
    return out


def multimodal_rotary(
    x: np.ndarray,
    positions: np.ndarray,
    sections: Sequence[int],
    theta: float = 10_000.0,
    layout: str = "chunked",
    interleaved: bool = False,
    frequencies: list[float] | None = None,
    magnitude: float = 1.0,
) -> np.ndarray:
    """Turn each pair by the coordinate that it was dealt.

        pair i turns by p_a(i) w_i        w_i = theta ** (-2i / rotary_dim)

    Args:
        x: (heads, tokens, head_dim).
        positions: (axes, tokens).
        sections: pairs of each axis; twice their sum are the features that turn, the first ones.
        layout: as in multimodal_axes.
        theta, interleaved, frequencies, magnitude: as in rotary.

    Gives (heads, tokens, head_dim).

    >>> x, text = np.ones((1, 1, 6)), np.array([[7], [7], [7]])
    >>> from whatwhere.reference import rotary
    >>> np.allclose(multimodal_rotary(x, text, [1, 1, 1]), rotary(x, text[0]))
    True
    """
    turns = inverse_frequencies(2 * sum(sections), theta) if frequencies is None else frequencies
    dealt = multimodal_axes(sections, layout)
    angles = [
        [int(positions[axis, token]) * w for axis, w in zip(dealt, turns, strict=True)] for token in range(x.shape[1])
    ]
    return _turn(x, angles, interleaved, magnitude)


def xpos(
    x: np.ndarray,
    positions: np.ndarray,
    key: bool,
    theta: float = 10_000.0,
    interleaved: bool = False,
    scale_base: float = 512.0,
    center: int = 0,
) -> np.ndarray:
    """Turn as rotary does; queries shrink with their position, and keys grow.

        query    R_p x zeta_i ** ((p - c) / 512)        zeta_i = (2i + 0.4 head_dim) / (1.4 head_dim)
        key      R_p x / zeta_i ** ((p - c) / 512)

    Sun et al. 2022, https://arxiv.org/abs/2212.10554. The gradient turns back and keeps the factor, which
    is `xpos(g, -positions, not key, theta, interleaved, scale_base, -center)`.

    Args:
        x: (heads, tokens, head_dim).
        positions: (tokens).
        key: x are keys.
        theta, interleaved: as in rotary.
        scale_base: 512 above.
        center: c, the same for queries and keys.

    Gives (heads, tokens, head_dim).

    >>> xpos(np.array([[[3.5, 0.0]]]), np.array([512]), key=False, theta=1.0).round(4)
    array([[[-0.9968,  0.0795]]])
    """
    heads, tokens, dim = x.shape
    require_shape("positions", positions, (tokens,))
    frequencies = inverse_frequencies(dim, theta)
    out = _turn(x, [[int(p) * w for w in frequencies] for p in positions], interleaved)
    for head in range(heads):
        for token in range(tokens):
            exponent = (int(positions[token]) - center) / scale_base
            for i in range(dim // 2):
                zeta = (2 * i + 0.4 * dim) / (1.4 * dim)
                factor = zeta**-exponent if key else zeta**exponent
                for feature in _places(i, dim // 2, interleaved):
                    out[head, token, feature] = factor * out[head, token, feature]
    return out


def _places(pair: int, pairs: int, interleaved: bool) -> tuple[int, int]:
    """Give the two features of a pair."""
    return (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + pairs)


def _turn(x: np.ndarray, angles: list[list[float]], interleaved: bool, magnitude: float = 1.0) -> np.ndarray:
    """Turn each pair of each token by its angle, times the magnitude; features that have no angle stay."""
    heads, tokens, head_dim = x.shape
    out = np.array(x, dtype=np.float64)
    for head in range(heads):
        for token in range(tokens):
            pairs = len(angles[token])
            if 2 * pairs > head_dim:
                raise ValueError(f"{2 * pairs} features turn, but a head has only {head_dim}.")
            for i, angle in enumerate(angles[token]):
                a, b = _places(i, pairs, interleaved)
                x_a, x_b = float(x[head, token, a]), float(x[head, token, b])
                out[head, token, a] = magnitude * (x_a * math.cos(angle) - x_b * math.sin(angle))
                out[head, token, b] = magnitude * (x_a * math.sin(angle) + x_b * math.cos(angle))
    return out
