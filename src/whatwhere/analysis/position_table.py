"""Statistics of a learned position table."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.pca import Spectrum, spectrum
from whatwhere.errors import ShapeError

_OUTSIDE = 6.0


@dataclass(frozen=True, eq=False)
class TrainedPositions:
    """Statistics of a learned position table.

    Args:
        norms: of each row.
        outliers: positions whose norm differs from the median by more than half of it and 6 robust deviations.
        spectrum: of its variance along principal axes.
        by_distance: mean cosine of two rows at each distance 0, 1, ....
        shift: held-out R^2 of one linear map from row p to row p + 1; None for tables of fewer than 64 rows.
        trained: number of positions that seem to be trained: later rows do not resemble their neighbors; the number of
            rows if there is no such break.
    """

    norms: Float[np.ndarray, " rows"]
    outliers: Int64[np.ndarray, " outliers"]
    spectrum: Spectrum
    by_distance: Float[np.ndarray, " distances"]
    shift: float | None
    trained: int


def trained_positions(table: Float[np.ndarray, "rows dim"]) -> TrainedPositions:
    """Compute statistics of a learned position table.

    Args:
        table: row p for position p, without rows that no position reads, such as the first two of OPT.

    Returns:
        Norms, spectrum, mean cosine by distance, and how many positions seem to be trained.

    Raises:
        ShapeError: If the table is not two-dimensional, or has fewer than two rows.

    Examples:
        >>> angles = np.arange(200)[:, None] * np.array([[0.1, 0.02]])
        >>> circle = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        >>> round(trained_positions(circle).shift, 4)
        1.0
    """
    if table.ndim != 2 or len(table) < 2 or table.shape[1] < 1:
        raise ShapeError(
            f"a table of positions has shape (rows, dim) with two rows or more, but this one {table.shape}."
        )
    rows = table.astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)
    median = float(np.median(norms))
    spread = 1.4826 * float(np.median(np.abs(norms - median)))
    outliers = np.flatnonzero(np.abs(norms - median) > max(_OUTSIDE * spread, 0.5 * median))
    return TrainedPositions(
        norms, outliers, spectrum(rows), _by_distance(rows, norms), _shift(rows), _trained(rows, norms)
    )


def _by_distance(rows: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Compute the mean of each diagonal of the matrix of cosines, by Fourier transforms."""
    units = rows / np.where(norms > 0, norms, 1.0)[:, None]
    n = len(units)
    size = 1 << (2 * n - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for column in units.T:  # sum over features of the autocorrelation
        power += np.abs(np.fft.rfft(column, size)) ** 2
    correlation = np.fft.irfft(power, size)[:n]
    return correlation / (n - np.arange(n))


def _shift(rows: np.ndarray) -> float | None:
    """Compute R^2 of row p + 1 = M row p + b on blocks of a quarter of the positions, fitted on the others."""
    if len(rows) < 64:
        return None
    inputs = np.concatenate([rows[:-1], np.ones((len(rows) - 1, 1))], axis=1)
    targets = rows[1:]
    test = np.arange(len(targets)) // 8 % 4 == 3
    # Ridge regression: with fewer positions than features, plain least squares would fit any table.
    gram = inputs[~test].T @ inputs[~test]
    ridge = 1e-3 * np.trace(gram) / len(gram) * np.eye(len(gram))
    fitted = np.linalg.solve(gram + ridge, inputs[~test].T @ targets[~test])
    rest = targets[test] - inputs[test] @ fitted
    spread = targets[test] - targets[~test].mean(axis=0)
    total = float((spread**2).sum())
    return 1 - float((rest**2).sum()) / total if total else None


def _trained(rows: np.ndarray, norms: np.ndarray) -> int:
    """Return the position from which on rows no longer resemble their neighbors, or the number of rows.

    Trained rows resemble the next one; rows at their initial values do not. The cosines of neighbors are split into two
    groups in the best way, and the split counts only if it explains most of their variance.
    """
    n = len(rows)
    if n < 16:
        return n
    size = norms[1:] * norms[:-1]
    cosines = np.divide((rows[1:] * rows[:-1]).sum(axis=1), size, out=np.zeros(n - 1), where=size > 0)
    total, count = np.cumsum(cosines), np.arange(1, n)
    before = total[:-1] / count[:-1]
    after = (total[-1] - total[:-1]) / (n - 1 - count[:-1])
    between = count[:-1] * (n - 1 - count[:-1]) / (n - 1) ** 2 * (before - after) ** 2
    best = int(between.argmax())
    breaks = between[best] > 0.75 * cosines.var() and before[best] - after[best] > 0.25
    return best + 2 if breaks else n
