"""Door 2 (query_key): queries and keys rotated by positions, along one axis or several; xPos; distances of pairs.

Self-Extend and dual chunk attention give each pair a distance that no rotation of queries and one of keys gives to all
pairs. So the reference rotates the query of each pair by the pair's distance: <R(p_i) q, R(p_j) k> = <R(p_i - p_j) q,
k>.

Everywhere x, q, k and the results have the shape (heads, tokens, head_dim), and positions (tokens); theta is above 0.
Other arguments of a rotation are as in `rotary`, which comes first.
"""

from collections.abc import Sequence

import numpy as np

from whatwhere.reference.checks import Array, arrays, require_shape
from whatwhere.reference.frequencies import inverse_frequencies


@arrays(x=3, positions=1)
def rotary(
    x: Array,
    positions: Array,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    frequencies: list[float] | None = None,
    magnitude: float = 1.0,
    rotary_start: int = 0,
) -> Array:
    """Rotate each pair of features of queries or keys by the angle p w_i.

        y_a = x_a cos - x_b sin        y_b = x_a sin + x_b cos        angle = p w_i,  w_i = theta ** (-2i / rotary_dim)

        both times a magnitude, which is 1 without a scaling and for most scalings

        interleaved   a = 2i,  b = 2i + 1                  the paper, GPT-J
        half          a = i,   b = i + rotary_dim / 2      GPT-NeoX, Hugging Face (rotate_half)

    Su et al. 2021, equations 14, 15 and 34, https://arxiv.org/abs/2104.09864.

    Args:
        interleaved: which features make a pair.
        rotary_dim: how many features rotate; None rotates all.
        frequencies: w_i of each pair, such as those of a scaling, in place of theta's.
        magnitude: factor of the features that rotate.
        rotary_start: the first feature that rotates; a and b count from it.

    Raises:
        ValueError: If rotary_dim is odd or above head_dim, or the frequencies are not one for each pair.

    Examples:
        >>> rotary(np.array([[[1.0, 0.0]]]), np.array([1])).round(4)
        array([[[0.5403, 0.8415]]])
    """
    _, tokens, head_dim = x.shape
    require_shape("positions", positions, (tokens,))
    dim = head_dim - rotary_start if rotary_dim is None else rotary_dim
    if rotary_start < 0 or rotary_start + dim > head_dim:
        raise ValueError(
            f"rotary_dim is {dim} from feature {rotary_start} on, but a head has only {head_dim} features."
        )
    w = inverse_frequencies(dim, theta) if frequencies is None else frequencies
    if len(w) != dim // 2:
        raise ValueError(
            f"got {len(w)} frequencies, but {dim} features that rotate need {dim // 2}: one for each pair."
        )
    angles = np.outer(positions, w)
    return rotate(x, magnitude * np.cos(angles), magnitude * np.sin(angles), interleaved, rotary_start)


def rotate(
    x: Array, cosines: Array, sines: Array, interleaved: bool = False, start: int = 0, pairs: int | None = None
) -> Array:
    """Rotate pair n of each token by cosine and sine n, (tokens, rotating) or (heads, tokens, rotating); others stay.

    pairs: of which features are made from `start` on; None: as many as rotate.
    """
    heads, tokens, head_dim = x.shape
    rotating = cosines.shape[-1]
    half = rotating if pairs is None else pairs
    if 2 * rotating > head_dim:
        raise ValueError(f"{2 * rotating} features are to rotate, but a head has only {head_dim}.")
    cosines, sines = (np.broadcast_to(each, (heads, tokens, rotating)) for each in (cosines, sines))
    out = np.array(x, dtype=np.float64)
    for n in range(rotating):
        a, b = (start + 2 * n, start + 2 * n + 1) if interleaved else (start + n, start + n + half)
        for h, t in np.ndindex(heads, tokens):
            out[h, t, a] = x[h, t, a] * cosines[h, t, n] - x[h, t, b] * sines[h, t, n]
            out[h, t, b] = x[h, t, a] * sines[h, t, n] + x[h, t, b] * cosines[h, t, n]
    return out


@arrays(x=3, positions=2)
def axial_rotary(
    x: Array, positions: Array, sections: Sequence[int], theta: float = 10_000.0, interleaved: bool = False
) -> Array:
    """Rotate the first pairs of queries or keys by the first coordinate, the next by the second, and so on.

        pair i of axis a rotates by p_a w_i        w_i = theta ** (-i / n_a),  i = 0 .. n_a - 1

    Heo et al. 2024, https://arxiv.org/abs/2403.13298.

    positions: (axes, tokens); sections: n_a, the pairs of each axis, head_dim / 2 in sum.
    """
    w = [[theta ** (-i / pairs) for i in range(pairs)] for pairs in sections]
    angles = np.concatenate([np.outer(at, of_axis) for at, of_axis in zip(positions, w, strict=True)], axis=1)
    return rotate(x, np.cos(angles), np.sin(angles), interleaved)


@arrays(x=3, positions=2, weight=3)
def mixed_rotary(x: Array, positions: Array, weight: Array, interleaved: bool = False) -> Array:
    """Rotate each pair of queries or keys by both coordinates, with a frequency for each.

        pair i of head h rotates by y u_hi + x v_hi

    Heo et al. 2024, section 3.2, https://arxiv.org/abs/2403.13298.

    positions: rows and columns, (2, tokens); weight: u and v, (2, heads, head_dim / 2).
    """
    angles = np.einsum("at,ahi->hti", positions, weight)
    return rotate(x, np.cos(angles), np.sin(angles), interleaved)


def multimodal_axes(sections: Sequence[int], layout: str = "chunked") -> list[int]:
    """Return the axis whose coordinate rotates each pair.

        chunked         the first pairs by the first axis, the next by the second, and so on
        interleaved     in rotation, until an axis has its pairs; the rest is of the first axis

    Wang et al. 2024, section 2.1, https://arxiv.org/abs/2409.12191; interleaved: Qwen3-VL.

    Examples:
        >>> multimodal_axes([3, 1, 2]), multimodal_axes([4, 2, 2], "interleaved")
        ([0, 0, 0, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0, 0])
    """
    if layout == "chunked":
        return [axis for axis, pairs in enumerate(sections) for _ in range(pairs)]
    axes = []
    for pair in range(sum(sections)):
        axis, cycle = pair % len(sections), pair // len(sections)
        axes.append(axis if cycle < sections[axis] else 0)
    return axes


@arrays(x=3, positions=2)
def multimodal_rotary(
    x: Array,
    positions: Array,
    sections: Sequence[int],
    theta: float = 10_000.0,
    layout: str = "chunked",
    interleaved: bool = False,
    frequencies: list[float] | None = None,
    magnitude: float = 1.0,
) -> Array:
    """Rotate each pair of queries or keys by the coordinate of its axis, as in multimodal_axes.

        pair i rotates by p_a(i) w_i        w_i = theta ** (-2i / rotary_dim)

    Args:
        positions: (axes, tokens).
        sections: pairs of each axis; twice their sum features rotate, the first ones.
        layout: as in multimodal_axes.
    """
    w = inverse_frequencies(2 * sum(sections), theta) if frequencies is None else frequencies
    angles = positions[multimodal_axes(sections, layout)].T * w
    return rotate(x, magnitude * np.cos(angles), magnitude * np.sin(angles), interleaved)


@arrays(x=3, positions=1)
def xpos(
    x: Array,
    positions: Array,
    key: bool,
    theta: float = 10_000.0,
    interleaved: bool = False,
    scale_base: float = 512.0,
    center: int = 0,
) -> Array:
    """Rotate queries or keys as rotary does; queries shrink with their position, and keys grow.

        query    R_p x zeta_i ** ((p - c) / 512)        zeta_i = (2i + 0.4 head_dim) / (1.4 head_dim)
        key      R_p x / zeta_i ** ((p - c) / 512)

    Sun et al. 2022, https://arxiv.org/abs/2212.10554. The gradient is rotated back and keeps the factor, which
    is `xpos(g, -positions, not key, theta, interleaved, scale_base, -center)`.

    key: whether x are keys; scale_base: 512 above; center: c, the same for queries and keys.
    """
    dim = x.shape[-1]
    require_shape("positions", positions, x.shape[1:2])
    zeta = (2 * np.arange(dim // 2) + 0.4 * dim) / (1.4 * dim)
    factors = zeta ** ((-1 if key else 1) * (positions[:, None] - center) / scale_base)
    angles = np.outer(positions, inverse_frequencies(dim, theta))
    return rotate(x, factors * np.cos(angles), factors * np.sin(angles), interleaved)


def self_extend_distance(query: int, key: int, window: int, group_size: int) -> int:
    """Return the distance of a pair: its own below the window, that of groups of positions beyond.

        p_i - p_j                              where p_i - p_j < W
        p_i // G - p_j // G + W - W // G       beyond

    Jin et al. 2024, section 3, https://arxiv.org/abs/2401.01325.

    window: W; group_size: G.

    Examples:
        >>> [self_extend_distance(9, key, window=4, group_size=2) for key in range(9, -1, -1)]
        [0, 1, 2, 3, 4, 4, 5, 5, 6, 6]
    """
    if query - key < window:
        return query - key
    return query // group_size - key // group_size + window - window // group_size


def dual_chunk_distance(query: int, key: int, chunk_size: int, max_distance: int) -> int:
    """Return the distance of a pair: its own in a chunk, and at most M beyond.

        p_i mod s - p_j mod s                  in one chunk of s positions
        min(p_i mod s + s, M) - p_j mod s      of a key in the chunk before
        M - p_j mod s                          of a key in a chunk before that

    An et al. 2024, section 3, https://arxiv.org/abs/2402.17463.

    query, key: positions, the key's not after the query's chunk; chunk_size: s; max_distance: M, at least s.

    Examples:
        >>> [dual_chunk_distance(13, key, chunk_size=6, max_distance=9) for key in range(13, -1, -1)]
        [0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 8, 9]
    """
    chunks = query // chunk_size - key // chunk_size
    inside = query % chunk_size
    at_query = inside if chunks == 0 else min(inside + chunk_size, max_distance) if chunks == 1 else max_distance
    return at_query - key % chunk_size


@arrays(q=3, k=3, distances=2)
def rotary_scores(
    q: Array,
    k: Array,
    distances: Array,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
) -> Array:
    """Return the dot product of each query, rotated by the distance of the pair, and each key.

        score(i, j) = < R(d_ij) q_i, k_j >

    distances: d, (queries, keys), of any pairs of positions. The result has the shape (heads, queries, keys).
    """
    heads, queries, _ = q.shape
    keys = k.shape[1]
    require_shape("distances", distances, (queries, keys))
    scores = np.zeros((heads, queries, keys))
    for i in range(queries):
        for j in range(keys):
            rotated = rotary(q[:, i : i + 1], distances[i, j : j + 1], theta, interleaved, rotary_dim)
            for head in range(heads):
                scores[head, i, j] = float(np.dot(rotated[head, 0], k[head, j]))
    return scores
