"""Door 3 (score), by the distances along two axes of a window: Swin, Swin v2 and SAM."""

import math

import numpy as np

from whatwhere.reference.checks import arrays


def window_row(dy: int, dx: int, height: int, width: int) -> int:
    """Return the row of a pair's distances in the table of a window; distances beyond it are its largest.

        (dy + H - 1) (2 W - 1) + dx + W - 1

    Examples:
        >>> window_row(0, 0, 7, 7), window_row(-6, -6, 7, 7), window_row(99, 6, 7, 7)
        (84, 0, 168)
    """
    dy = min(max(dy, 1 - height), height - 1)
    dx = min(max(dx, 1 - width), width - 1)
    return (dy + height - 1) * (2 * width - 1) + dx + width - 1


@arrays(weight=2, query_positions=2, key_positions=2)
def swin_bias(
    weight: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray, height: int, width: int
) -> np.ndarray:
    """Compute the learned bias of each pair's distances, in each head.

        bias[h, i, j] = B[window_row(y_i - y_j, x_i - x_j), h]

    Liu et al. 2021, https://arxiv.org/abs/2103.14030.

    Args:
        weight: B, ((2 H - 1)(2 W - 1), heads).
        query_positions: rows and columns, (2, queries).
        key_positions: likewise, (2, keys).
        height, width: H and W, the window in tokens.

    Returns:
        Shape (heads, queries, keys).

    Examples:
        >>> swin_bias(np.array([[1.0], [2.0], [3.0]]), np.array([[0], [0]]), np.array([[0, 0], [0, 1]]), 1, 2)
        array([[[2., 1.]]])
    """
    bias = np.zeros((weight.shape[1], query_positions.shape[1], key_positions.shape[1]))
    for h, i, j in np.ndindex(bias.shape):
        dy, dx = (int(query_positions[axis, i]) - int(key_positions[axis, j]) for axis in (0, 1))
        bias[h, i, j] = weight[window_row(dy, dx, height, width), h]
    return bias


def log_distance(distance: int, trained: int) -> float:
    """Compute the logarithmic distance of Swin v2.

        s(d, n) = sign(d) log2(1 + 8 |d| / (n - 1)) / log2(8)

    Examples:
        >>> round(log_distance(-7, 8), 4), log_distance(0, 1)
        (-1.0566, 0.0)
    """
    if distance == 0:
        return 0.0
    return math.copysign(math.log2(1 + 8 * abs(distance) / (trained - 1)) / 3, distance)


@arrays(weight_in=2, bias_in=1, weight_out=2)
def swin_v2_table(
    weight_in: np.ndarray,
    bias_in: np.ndarray,
    weight_out: np.ndarray,
    window: tuple[int, int],
    trained: tuple[int, int],
) -> np.ndarray:
    """Compute the table of Swin v2, in the rows of swin_bias.

        B = 16 / (1 + exp(-W_2 max(0, W_1 (s(dy), s(dx)) + b_1)))

    Liu et al. 2022, https://arxiv.org/abs/2111.09883.

    Args:
        weight_in: W_1, (hidden, 2).
        bias_in: b_1, (hidden).
        weight_out: W_2, (heads, hidden).
        window: height and width in tokens.
        trained: those of training.

    Returns:
        Shape ((2 H - 1)(2 W - 1), heads).

    Examples:
        >>> swin_v2_table(np.zeros((1, 2)), np.zeros(1), np.zeros((1, 1)), (1, 1), (1, 1))
        array([[8.]])
    """
    rows = []
    for dy in range(1 - window[0], window[0]):
        for dx in range(1 - window[1], window[1]):
            hidden = weight_in @ [log_distance(dy, trained[0]), log_distance(dx, trained[1])] + bias_in
            rows.append([16 / (1 + math.exp(-float(out @ np.maximum(hidden, 0)))) for out in weight_out])
    return np.array(rows)


@arrays(q=3, rows=2, columns=2, query_positions=2, key_positions=2)
def sam_bias(
    q: np.ndarray, rows: np.ndarray, columns: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray
) -> np.ndarray:
    """Compute the dot products of each query with the vectors of each pair's two distances.

        bias[h, i, j] = <q_hi, R[y_i - y_j + H - 1]> + <q_hi, C[x_i - x_j + W - 1]>, distances clipped to the tables

    Li et al. 2022, MViTv2, https://arxiv.org/abs/2112.01526.

    Args:
        q: (heads, queries, head_dim).
        rows, columns: R and C, (2 H - 1, head_dim) and (2 W - 1, head_dim).
        query_positions: rows and columns, (2, queries).
        key_positions: likewise, (2, keys).

    Returns:
        Shape (heads, queries, keys).

    Examples:
        >>> one, at = np.ones((1, 1, 1)), np.array([[0], [1]])
        >>> sam_bias(one, np.array([[1.0], [2.0], [3.0]]), np.array([[10.0], [20.0], [30.0]]), at, np.zeros((2, 1)))
        array([[[32.]]])
    """
    bias = np.zeros((q.shape[0], q.shape[1], key_positions.shape[1]))
    for h, i, j in np.ndindex(bias.shape):
        r, c = _table_rows(query_positions[:, i], key_positions[:, j], len(rows), len(columns))
        bias[h, i, j] = np.dot(q[h, i], rows[r]) + np.dot(q[h, i], columns[c])
    return bias


def _table_rows(query: np.ndarray, key: np.ndarray, *lengths: int) -> list[int]:
    """Return the row of each axis's distance, query minus key, in tables of these lengths with 0 in the middle."""
    return [
        min(max(int(y) - int(z) + length // 2, 0), length - 1) for y, z, length in zip(query, key, lengths, strict=True)
    ]
