"""Project the rows of a table onto the few directions along which they differ most."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.errors import SettingError, ShapeError


@dataclass(frozen=True, eq=False)
class Projection:
    """Hold the rows seen along their principal axes."""

    coordinates: Float[np.ndarray, "rows axes"]
    axes: Float[np.ndarray, "axes dim"]
    share: Float[np.ndarray, " axes"]


def principal_components(table: Float[np.ndarray, "rows dim"], count: int = 2) -> Projection:
    """Find the directions along which the rows of a table differ most, and where each row lies on them.

        C = X - mean(X)        C = U S V^T        coordinates = C V_k        share_k = S_k^2 / sum(S^2)

    Pearson 1901, https://doi.org/10.1080/14786440109462720; computed in float64 by the singular value decomposition of
    the centered rows. The sign of an axis is free: we make its largest entry (the first of equals) positive, so that
    one table always gives one picture. Where rows lie in fewer dimensions than asked for, the axes left over carry
    coordinates 0.

    Args:
        table: one row for each thing, finite numbers, at least one row.
        count: how many axes, 1 or more.

    Cost: one decomposition, O(rows * dim * min(rows, dim)). For tables of 10,000 rows and more take a sample.

    >>> flat = principal_components(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), count=1)
    >>> flat.coordinates[:, 0].round(6).tolist(), flat.share.round(6).tolist()
    ([-5.0, 0.0, 5.0], [1.0])
    """
    rows = _checked(table, count)
    centered = rows - rows.mean(axis=0)
    _, singular, directions = np.linalg.svd(centered, full_matrices=False)
    # Rounding leaves directions of length 1e-17 that point anywhere: zero them, or equal rows would spread on the map.
    real = singular > singular.max(initial=0.0) * max(rows.shape) * np.finfo(np.float64).eps
    axes = np.zeros((count, rows.shape[1]))
    kept = min(count, len(singular))
    axes[:kept] = np.where(real[:kept, None], directions[:kept], 0.0)
    largest = axes[np.arange(count), np.abs(axes).argmax(axis=1)]
    axes *= np.where(largest < 0, -1.0, 1.0)[:, None]
    energy = np.zeros(count)
    energy[:kept] = np.where(real[:kept], singular[:kept] ** 2, 0.0)
    total = float((singular**2).sum())
    return Projection(centered @ axes.T, axes, energy / total if total > 0 else energy)


def _checked(table: np.ndarray, count: int) -> Float[np.ndarray, "rows dim"]:
    if count < 1:
        raise SettingError(f"count is {count}, but a projection needs at least 1 axis.\nPass count=2 for a map.")
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(
            f"the table has shape {tuple(table.shape)}, but a projection needs (rows, dim), neither of them 0.\n"
            "Pass a two-dimensional array, for one row row[None, :]."
        )
    rows = np.asarray(table, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise SettingError(
            "the table holds numbers that are not finite, so that no direction is the longest.\n"
            "Leave these rows out: table[np.isfinite(table).all(axis=1)]."
        )
    return rows
