"""Principal component analysis of a table: projection of its rows, and the spectrum of their variance."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.errors import SettingError, ShapeError
from whatwhere.large_arrays import finite_rows, row_blocks, sample_rows, selected_rows

_DECOMPOSED = 2e9
"""Value of rows * dim * min(rows, dim) up to which the rows themselves are decomposed, in a second or two."""
_ROWS = 16_384  # number of rows above which a sample is used: the covariance is then accurate to about 1 %
_WIDE = 1536  # number of features above which only the requested axes are computed: all of them would take a minute
_SPARE, _PRODUCTS = 8, 25
_AXES, _LEADING = 64, 32  # number of axes at most in a spectrum, and in that of a wide table
_BLOCK = 2048
_NOT_FINITE = "the table holds numbers that are not finite.\nRemove these rows: table[np.isfinite(table).all(axis=1)]."


@dataclass(frozen=True, eq=False)
class Projection:
    """The rows of a table in the coordinates of its principal axes, unit vectors in descending order of variance."""

    coordinates: Float[np.ndarray, "rows axes"]
    axes: Float[np.ndarray, "axes dim"]
    explained_variance_ratio: Float[np.ndarray, " axes"]


def principal_components(table: Float[np.ndarray, "rows dim"], count: int = 2, seed: int = 0) -> Projection:
    """Return the principal axes of a table, and the coordinates of its rows along them.

        C = X - mean(X)        C = U S V^T        coordinates = C V_k        ratio_k = S_k^2 / sum(S^2)

    Pearson 1901, https://doi.org/10.1080/14786440109462720, in float64 by the singular value decomposition of the
    centered rows. Where that would take long, V and S are computed from the covariance of the rows, or of a sample of
    16,384 rows, and every row is projected onto these axes. The sign of an axis is arbitrary: its largest entry (the
    first of equals) is made positive, so that the result is unique. If the rows span fewer dimensions than `count`, the
    remaining axes are 0.

    Args:
        table: finite numbers, at least one row.
        count: number of axes, 1 or more.
        seed: of the sample of rows, if the table is large.

    Raises:
        ShapeError: If the table is not two-dimensional, or empty.
        SettingError: If count is below 1, or a number not finite.

    Cost: O(rows * dim * min(rows, dim)) for a small table; else O(min(rows, 16,384) * dim^2), and above 1,536 features
    the leading axes alone.

    Examples:
        >>> flat = principal_components(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), count=1)
        >>> flat.coordinates[:, 0].round(6).tolist(), flat.explained_variance_ratio.round(6).tolist()
        ([-5.0, 0.0, 5.0], [1.0])
    """
    if count < 1:
        raise SettingError(f"count is {count}, but a projection needs at least 1 axis.\nPass count=2 for a map.")
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(
            f"the table has shape {tuple(table.shape)}, but a projection needs (rows, dim), neither of them 0.\n"
            "Pass a two-dimensional array, for one row row[None, :]."
        )
    if not finite_rows(table).all():
        raise SettingError(_NOT_FINITE)
    if table.size * min(table.shape) <= _DECOMPOSED:
        energies, directions, mean, total = _by_rows(table)
        dtype = np.dtype(np.float64)
    else:
        energies, directions, mean, total = _by_covariance(table, count, seed)
        dtype = np.result_type(table.dtype, np.float32)  # widening every row costs more than its product
    axes, energy, kept = np.zeros((count, table.shape[1])), np.zeros(count), min(count, len(energies))
    # Axes without variance are rounding errors: zero them, or equal rows would differ on a map.
    axes[:kept], energy[:kept] = np.where(energies[:kept, None] > 0, directions[:kept], 0.0), energies[:kept]
    largest = axes[np.arange(count), np.abs(axes).argmax(axis=1)]
    axes *= np.where(largest < 0, -1.0, 1.0)[:, None]
    blocks = (table[part].astype(dtype) - mean.astype(dtype) for part in row_blocks(len(table), _BLOCK))
    coordinates = np.concatenate([rows @ axes.T.astype(dtype) for rows in blocks]).astype(np.float64)
    return Projection(coordinates, axes, energy / total if total > 0 else energy)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The variance of a table along its principal axes."""

    explained_variance_ratio: Float[np.ndarray, " axes"]  # of each axis, descending: the 64 largest, of a wide table 32
    participation_ratio: float  # (sum v)^2 / sum(v^2) of the variances v: dim if all are equal, 1 if one axis has all
    axes_for_90: int | None  # number of axes that explain 90 % of the variance; None if only the largest were computed
    mean_cosine: float  # mean over pairs of different rows: near 0 for rows in all directions
    mean_row_norm: float  # norm of the mean row, divided by the mean norm of a row
    rows: int  # number of rows that were used
    dim: int  # features of a row
    sampled: bool  # whether the rows are a sample


def spectrum(table: Float[np.ndarray, "rows dim"], seed: int = 0) -> Spectrum:
    """Return the spectrum of the covariance of the rows of a table, and their mean cosine.

    C = covariance of the rows = sum_n v_n a_n a_n^T        participation ratio = (tr C)^2 / tr(C^2)
    mean cosine = (|sum of unit rows|^2 - n) / (n (n - 1))
    """
    if table.ndim != 2 or 0 in table.shape or len(table) < 2:
        raise ShapeError(f"a spectrum needs a table of shape (rows, dim) with two rows or more, but got {table.shape}.")
    sampled = len(table) > _ROWS
    rows = table[sample_rows(len(table), _ROWS, seed)].astype(np.float64)
    if not np.isfinite(rows).all():
        raise SettingError(_NOT_FINITE)
    norms = np.linalg.norm(rows, axis=1)
    units = rows / np.where(norms > 0, norms, 1.0)[:, None]
    n, mean = len(rows), rows.mean(axis=0)
    centered = rows - mean
    covariance = centered.T @ centered / n
    total, squared = float(np.trace(covariance)), float((covariance**2).sum())
    wide = covariance.shape[0] > _WIDE
    variances = (
        leading_eigenvectors(covariance, _LEADING, seed)[0] if wide else np.linalg.eigvalsh(covariance)[::-1]
    ).clip(min=0)
    ratios = variances / total if total else np.zeros_like(variances)
    return Spectrum(
        ratios[:_AXES], total**2 / squared if squared else 0.0,
        None if wide or not total else int(np.searchsorted(np.cumsum(ratios), 0.9 - 1e-12) + 1),
        float(((units.sum(axis=0) ** 2).sum() - (norms > 0).sum()) / (n * (n - 1))),
        float(np.linalg.norm(mean) / norms.mean()) if norms.any() else 0.0, n, rows.shape[1], sampled,
    )  # fmt: skip


def leading_eigenvectors(
    covariance: Float[np.ndarray, "dim dim"], count: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest eigenvalues and their eigenvectors, as rows, by block Krylov iteration."""
    # Musco and Musco 2015, https://arxiv.org/abs/1504.05477: products with a few columns instead of a decomposition.
    dim = len(covariance)
    block = np.random.default_rng(seed).standard_normal((dim, min(count + _SPARE, dim)))
    basis = products = np.empty((dim, 0))
    before = np.zeros(count)
    for _ in range(_PRODUCTS):
        for _ in range(2):  # twice, because one pass leaves rounding errors
            block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
        basis, products = np.hstack([basis, block]), np.hstack([products, covariance @ block])
        values, vectors = np.linalg.eigh(basis.T @ products)
        largest = values[::-1][:count]
        if basis.shape[1] == dim or np.allclose(largest, before[: len(largest)], rtol=1e-10, atol=0):
            break
        before, block = largest, products[:, -block.shape[1] :][:, : dim - basis.shape[1]]
    return largest, (basis @ vectors).T[::-1][:count]


def _by_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    rows = table.astype(np.float64)
    mean = rows.mean(axis=0)
    _, singular, directions = np.linalg.svd(rows - mean, full_matrices=False)
    real = singular > singular.max(initial=0.0) * max(rows.shape) * np.finfo(np.float64).eps
    return np.where(real, singular**2, 0.0), directions, mean, float((singular**2).sum())


def _by_covariance(table: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    table = selected_rows(table, sample_rows(len(table), _ROWS, seed))
    mean = table.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((table.shape[1], table.shape[1]))
    dtype = np.result_type(table.dtype, np.float32)
    for first in range(0, len(table), _BLOCK):
        rows = table[first : first + _BLOCK].astype(dtype) - mean.astype(dtype)
        covariance += rows.T @ rows  # of float32 in float32, summed in float64: 1e-6, far below what sampling costs
    if len(covariance) > _WIDE:
        values, directions = leading_eigenvectors(covariance, count, seed)
    else:
        values, vectors = np.linalg.eigh(covariance)
        values, directions = values[::-1], vectors.T[::-1]
    real = values > values.max(initial=0.0) * np.finfo(dtype).eps
    return np.where(real, values, 0.0), directions, mean, float(np.trace(covariance))
