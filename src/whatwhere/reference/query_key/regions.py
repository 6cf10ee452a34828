"""Door 2 (query_key): rotations by a distance that each pair of query and key has: Self-Extend, dual chunk attention.

No rotation of queries and one of keys gives these distances to all pairs, so the reference rotates the query of each
pair by the distance of the pair: <R(p_i) q, R(p_j) k> = <R(p_i - p_j) q, k>.
"""

import numpy as np

from whatwhere.reference.checks import arrays, require_shape
from whatwhere.reference.query_key.rotary import rotary


def self_extend_distance(query: int, key: int, window: int, group_size: int) -> int:
    """Return the distance of a pair: its own below the window, that of groups of positions beyond.

        p_i - p_j                              where p_i - p_j < W
        p_i // G - p_j // G + W - W // G       beyond

    Jin et al. 2024, section 3, https://arxiv.org/abs/2401.01325.

    Args:
        query, key: positions.
        window: W.
        group_size: G.

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

    Args:
        query, key: positions, the key's not after the query's chunk.
        chunk_size: s.
        max_distance: M, at least s.

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
    q: np.ndarray,
    k: np.ndarray,
    distances: np.ndarray,
    theta: float = 10_000.0,
    interleaved: bool = False,
    rotary_dim: int | None = None,
) -> np.ndarray:
    """Return the dot product of each query, rotated by the distance of the pair, and each key.

        score(i, j) = < R(d_ij) q_i, k_j >

    Args:
        q: (heads, queries, head_dim).
        k: (heads, keys, head_dim).
        distances: d, (queries, keys), of any pairs of positions.
        theta, interleaved, rotary_dim: as in rotary.

    Returns:
        Shape (heads, queries, keys).

    Examples:
        >>> one = np.array([[[1.0, 0.0]]])
        >>> rotary_scores(one, one, np.array([[1]])).round(4)
        array([[[0.5403]]])
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
