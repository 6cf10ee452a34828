"""A table of positions, interpolated to another length or grid."""

import math

import numpy as np

from whatwhere.reference.checks import require_shape


def resized_rows(rows: np.ndarray, length: int, rule: str = "linear", align: str = "ends") -> np.ndarray:
    """Interpolate rows along the position.

        ends     new row n is read at t = n (L - 1) / (L' - 1)          first and last row stay
        cells    new row n is read at t = (n + 1/2) L / L' - 1/2        rows stand for cells
        y_n = sum_m k(t - m) x_m        a row beyond the ends is that of the end

        linear   k(u) = 1 - |u|                                            |u| < 1
        cubic    k(u) = (a + 2)|u|^3 - (a + 3)|u|^2 + 1                    |u| <= 1
                        a |u|^3 - 5a |u|^2 + 8a |u| - 4a                   1 < |u| < 2,  a = -3/4

    Keys 1981, Cubic convolution interpolation for digital image processing.

    Args:
        rows: (L, dim).
        length: L'.
        rule: `linear` or `cubic`.
        align: `ends` or `cells`.

    Gives (L', dim).

    >>> resized_rows(np.array([[0.0], [2.0]]), 4, align="cells").T
    array([[0. , 0.5, 1.5, 2. ]])
    """
    old = len(rows)
    out = np.zeros((length, rows.shape[1]))
    for n in range(length):
        t = _place(n, old, length, align)
        for m in range(math.floor(t) - 1, math.floor(t) + 3):
            out[n] += _kernel(t - m, rule) * rows[min(max(m, 0), old - 1)]
    return out


def resized_grid(
    rows: np.ndarray, old: tuple[int, int], new: tuple[int, int], rule: str = "cubic", align: str = "cells"
) -> np.ndarray:
    """Interpolate the rows of a grid's places: along its height, then along its width.

    Args:
        rows: (old[0] * old[1], dim), the width fastest.
        old, new: (height, width).
        rule, align: as in resized_rows.

    Gives (new[0] * new[1], dim).

    >>> resized_grid(np.array([[0.0], [1.0], [2.0], [3.0]]), (2, 2), (2, 3), "linear", "ends").T
    array([[0. , 0.5, 1. , 2. , 2.5, 3. ]])
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


def _place(n: int, old: int, length: int, align: str) -> float:
    """Give where among the old rows a new one is read."""
    if align == "cells":
        return (n + 0.5) * old / length - 0.5
    return n * (old - 1) / (length - 1) if length > 1 else 0.0


def _kernel(u: float, rule: str) -> float:
    """Give the weight of a row at distance u."""
    x, a = abs(u), -0.75
    if rule == "linear":
        return max(1 - x, 0.0)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0
