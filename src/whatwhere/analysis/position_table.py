"""The vectors added for positions: norms, outliers, cosine by distance, spectrum, and where training stopped."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.diagnostics import far_below
from whatwhere.analysis.pca import Spectrum, spectrum
from whatwhere.analysis.subject import Absent, Subject
from whatwhere.errors import ShapeError
from whatwhere.models.configuration.plan import CurvePlan

_OUTSIDE, _LEAST = 6.0, 0.25
"""Robust standard deviations, and the share of the median, by which an outlier differs at least."""
_FEWEST = 16
"""Positions from which on a usual one is known."""
_FEWEST_UNTRAINED = 4
"""Rows at the end from which on training is said to have stopped before them; fewer are outliers."""


@dataclass(frozen=True, eq=False)
class TrainedPositions:
    """Statistics of a learned position table.

    Args:
        norms: of each row.
        neighbor_cosine: of each row and that of its two neighbors which it resembles more.
        outliers: positions whose norm or distance from the mean row differs from the median by more than a quarter of
            it and 6 robust deviations or is `far_below` the others', or whose `neighbor_cosine` is that much smaller;
            of the trained ones.
        spectrum: of its variance along principal axes.
        by_distance: mean cosine of two rows at each distance 0, 1, ....
        shift: held-out R^2 of one linear map from row p to row p + 1; None for tables of fewer than 64 rows.
        trained: number of positions that seem to be trained: later rows do not resemble their neighbors; the number of
            rows if there is no such break.
    """

    norms: Float[np.ndarray, " rows"]
    neighbor_cosine: Float[np.ndarray, " rows"]
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
    size = norms[1:] * norms[:-1]
    cosines = np.divide((rows[1:] * rows[:-1]).sum(axis=1), size, out=np.zeros(len(rows) - 1), where=size > 0)
    near = np.maximum(np.append(cosines, -1), np.append(-1, cosines))
    trained = _trained(cosines)
    distances = np.linalg.norm(rows[:trained] - rows[:trained].mean(axis=0), axis=1)
    outside = _differs(near[:trained]) & (near[:trained] < np.median(near[:trained]))
    for values in (norms[:trained], distances):
        outside |= _differs(values)
        outside[far_below(values)] = True  # where the spread is wide, no norm is 6 deviations below the median
    return TrainedPositions(
        norms, near, np.flatnonzero(outside), spectrum(rows), _by_distance(rows, norms), _shift(rows), trained
    )


def _differs(values: np.ndarray) -> np.ndarray:
    """Return which values differ much from their median; of few, none does."""
    if len(values) < _FEWEST:
        return np.zeros(len(values), bool)
    median = np.median(values)
    deviation = np.abs(values - median)
    outside: np.ndarray = deviation > max(_OUTSIDE * 1.4826 * np.median(deviation), _LEAST * abs(median))
    return outside


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


def _trained(cosines: np.ndarray) -> int:
    """Return the position from which on rows no longer resemble their neighbors, or the number of rows.

    Trained rows resemble the next one; rows at their initial values do not. The cosines of neighbors are split into two
    groups in the best way, and the split counts only if it explains most of their variance.
    """
    n = len(cosines) + 1
    if n < _FEWEST:
        return n
    total, count = np.cumsum(cosines), np.arange(1, n)
    before = total[:-1] / count[:-1]
    after = (total[-1] - total[:-1]) / (n - 1 - count[:-1])
    between = count[:-1] * (n - 1 - count[:-1]) / (n - 1) ** 2 * (before - after) ** 2
    best = int(between.argmax())
    breaks = between[best] > 0.75 * cosines.var() and before[best] - after[best] > 0.25
    return best + 2 if breaks and n - (best + 2) >= _FEWEST_UNTRAINED else n


_MAX_POSITIONS = 4096
_MAX_DISTANCES = 1024


@dataclass(frozen=True, eq=False)
class PositionTable(TrainedPositions):
    """The vectors that are added for positions. Inherits what was computed: norms, outliers, spectrum and so on.

    Args:
        learned: whether they are a table of the file; else a fixed scheme's.
        tensor: name of the table.
        positions: how many there are.
        offset: the row that position 0 reads; None where that is not known.
        examined: positions that the computations cover, from 0 on.
        dim: features of a vector.
        median_norm: of the vectors.
    """

    learned: bool
    tensor: str | None
    positions: int
    offset: int | None
    examined: int
    dim: int
    median_norm: float


def positions(subject: Subject) -> PositionTable:
    """Compute the similarities, norms and spectrum of the position embedding."""
    try:
        table = subject.positions
    except Absent as problem:
        raise Absent(instead_of_positions(subject, str(problem))) from None
    finite = np.isfinite(table).all(axis=1).sum()
    if finite < len(table) or len(table) < 2:
        raise Absent(f"the position table has {len(table)} rows, {len(table) - finite} of them not finite")
    subject.progress("examining positions")
    trained = trained_positions(table[:_MAX_POSITIONS])
    name = subject.checkpoint.position_table
    return PositionTable(
        **vars(trained) | {"by_distance": trained.by_distance[:_MAX_DISTANCES]},
        learned=name is not None,
        tensor=name,
        positions=len(table),
        offset=subject.checkpoint.position_offset,
        examined=min(len(table), _MAX_POSITIONS),
        dim=table.shape[1],
        median_norm=float(np.median(trained.norms)),
    )


def adds_none(subject: Subject) -> bool:
    """Return whether the configuration, or the scheme of a run, shows that no position embedding is added."""
    try:
        if subject.checkpoint.format == "run":
            return subject.run[0].where.input is None
        return subject.description.input is None
    except Absent:
        return False


def instead_of_positions(subject: Subject, reason: str) -> str:
    """Return why there is no position embedding, and what encodes positions instead."""
    if not adds_none(subject):
        return reason
    if subject.checkpoint.format == "run":
        where = subject.run[0].where
        names = {type(scheme).__name__ for scheme in (where.query_key, where.score, where.window) if scheme is not None}
    else:
        description = subject.description
        names = {plan.class_name for plan in (*description.query_key, *description.score) if plan is not None}
        names |= {type(window).__name__ for window in description.windows if window is not None}
        curves = [curve for curve in description.temperatures if curve is not None]
        names |= {"QueryTemperature" if isinstance(curve, CurvePlan) else curve.class_name for curve in curves}
    if not names:
        return "this model has no positional encoding: every position is treated alike"
    *others, last = sorted(names)
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{reason}: positions enter its attention, by {listed}"
