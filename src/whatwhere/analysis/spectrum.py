"""How a table fills its space: the variance along its axes, how many of them count, and how alike its rows are."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.projection import greatest
from whatwhere.errors import SettingError, ShapeError

_ROWS = 16_384
"""More rows are sampled: shares of variance are then right to about 1 %, at a tenth of the cost."""
_WIDE = 1536
"""Above so many features only the greatest axes are found: all of them would take a minute."""
_GREATEST = 32


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Hold how variance is spread over axes.

    Args:
        shares: of the variance along each principal axis, falling; the greatest ones only where the table is wide.
        participation: (sum v)^2 / sum(v^2) of the variances v: dim where all are equal, 1 where one has all.
        for_ninety: how many axes hold 90 % of the variance; None where only the greatest were found.
        mean_cosine: of two different rows, on average: near 0 where rows point everywhere.
        mean_length: of the mean row, in units of the mean length of a row.
        rows: that were looked at.
    """

    shares: Float[np.ndarray, " axes"]
    participation: float
    for_ninety: int | None
    mean_cosine: float
    mean_length: float
    rows: int


def spectrum(table: Float[np.ndarray, "rows dim"], seed: int = 0) -> Spectrum:
    """Find how the rows of a table are spread.

        C = covariance of the rows = sum_n v_n a_n a_n^T        participation = (tr C)^2 / tr(C^2)
        mean cosine = (|sum of unit rows|^2 - n) / (n (n - 1))

    Args:
        table: at least two rows, of finite numbers.
        seed: of the sample of rows, where the table is large.

    >>> flat = spectrum(np.array([[1.0, 0.0], [-1.0, 0.0], [3.0, 0.0]]))
    >>> flat.participation, flat.for_ninety
    (1.0, 1)
    """
    if table.ndim != 2 or 0 in table.shape or len(table) < 2:
        raise ShapeError(f"a spectrum needs a table of shape (rows, dim) with two rows or more, but got {table.shape}.")
    if len(table) > _ROWS:
        table = table[np.sort(np.random.default_rng(seed).choice(len(table), _ROWS, replace=False))]
    rows = table.astype(np.float64)
    if not np.isfinite(rows).all():
        raise SettingError("the table holds numbers that are not finite: leave these rows out.")
    lengths = np.linalg.norm(rows, axis=1)
    units = rows / np.where(lengths > 0, lengths, 1.0)[:, None]
    n, mean = len(rows), rows.mean(axis=0)
    centered = rows - mean
    covariance = centered.T @ centered / n
    total, squared = float(np.trace(covariance)), float((covariance**2).sum())
    wide = covariance.shape[0] > _WIDE
    variances = (greatest(covariance, _GREATEST, seed)[0] if wide else np.linalg.eigvalsh(covariance)[::-1]).clip(min=0)
    shares = variances / total if total else np.zeros_like(variances)
    return Spectrum(
        shares,
        total**2 / squared if squared else 0.0,
        None if wide or not total else int(np.searchsorted(np.cumsum(shares), 0.9 - 1e-12) + 1),
        float(((units.sum(axis=0) ** 2).sum() - (lengths > 0).sum()) / (n * (n - 1))),
        float(np.linalg.norm(mean) / lengths.mean()) if lengths.any() else 0.0,
        n,
    )
