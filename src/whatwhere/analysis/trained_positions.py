"""What training made of a table of positions."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.spectrum import Spectrum, spectrum
from whatwhere.errors import ShapeError

_OUTSIDE = 6.0


@dataclass(frozen=True, eq=False)
class TrainedPositions:
    """Hold what a learned table of positions looks like.

    Args:
        norms: of each row.
        outliers: positions whose norm is off the median by more than half of it, and by 6 robust standard deviations.
        spectrum: how its variance is spread over axes.
        by_distance: mean cosine of two rows at each distance 0, 1, ....
        shift: share of the variance of row p + 1 that one linear map of row p explains, on positions that did not
            take part in the fit; None for tables of fewer than 64 rows.
        trained: how many positions training seems to have reached: rows from there on are alike and unlike those
            before; equal to the number of rows where nothing breaks off.
    """

    norms: Float[np.ndarray, " rows"]
    outliers: Int64[np.ndarray, " outliers"]
    spectrum: Spectrum
    by_distance: Float[np.ndarray, " distances"]
    shift: float | None
    trained: int


def trained_positions(table: Float[np.ndarray, "rows dim"]) -> TrainedPositions:
    """Examine a learned table of positions.

    Args:
        table: row p for position p; rows that no position reads, such as the first two of OPT, left out.

    >>> turn = np.arange(200)[:, None] * np.array([[0.1, 0.02]])
    >>> circle = np.concatenate([np.cos(turn), np.sin(turn)], axis=1)
    >>> round(trained_positions(circle).shift, 4)
    1.0
    """
    if table.ndim != 2 or len(table) < 2 or table.shape[1] < 1:
        raise ShapeError(
            f"a table of positions has shape (rows, dim) with two rows or more, but this one {table.shape}."
        )
    rows = table.astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)
    middle = float(np.median(norms))
    spread = 1.4826 * float(np.median(np.abs(norms - middle)))
    outliers = np.flatnonzero(np.abs(norms - middle) > max(_OUTSIDE * spread, 0.5 * middle))
    return TrainedPositions(
        norms, outliers, spectrum(rows), _by_distance(rows, norms), _shift(rows), _trained(rows, norms)
    )


def _by_distance(rows: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Average the diagonals of the matrix of cosines; by Fourier transforms where it would be large."""
    units = rows / np.where(norms > 0, norms, 1.0)[:, None]
    n = len(units)
    size = 1 << (2 * n - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for column in units.T:  # sum over features of the autocorrelation
        power += np.abs(np.fft.rfft(column, size)) ** 2
    correlation = np.fft.irfft(power, size)[:n]
    return correlation / (n - np.arange(n))


def _shift(rows: np.ndarray) -> float | None:
    """Fit row p + 1 = M row p + b on three quarters of the positions, by blocks; test on the others."""
    if len(rows) < 64:
        return None
    inputs = np.concatenate([rows[:-1], np.ones((len(rows) - 1, 1))], axis=1)
    targets = rows[1:]
    held = np.arange(len(targets)) // 8 % 4 == 3
    # Ridge: with fewer positions than features the least squares alone would fit anything.
    gram = inputs[~held].T @ inputs[~held]
    ridge = 1e-3 * np.trace(gram) / len(gram) * np.eye(len(gram))
    fitted = np.linalg.solve(gram + ridge, inputs[~held].T @ targets[~held])
    rest = targets[held] - inputs[held] @ fitted
    spread = targets[held] - targets[~held].mean(axis=0)
    total = float((spread**2).sum())
    return 1 - float((rest**2).sum()) / total if total else None


def _trained(rows: np.ndarray, norms: np.ndarray) -> int:
    """Find where rows stop to resemble their neighbors, if they do so for good.

    Trained rows resemble the next one; rows at their initial draw resemble none. The split is that which best cuts the
    cosines of neighbors in two, and counts only where it explains most of their variance.
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
