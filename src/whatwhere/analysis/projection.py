"""Project the rows of a table onto the few directions along which they differ most."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.errors import SettingError, ShapeError

_DECOMPOSED = 2e9
"""rows * dim * min(rows, dim) up to which the rows themselves are decomposed: a second or two."""
_ROWS = 16_384
"""More rows are sampled: a covariance is then right to about 1 %, at a tenth of the cost."""
_WIDE = 1536
"""Above so many features only the axes asked for are found: all of them would take a minute."""
_SPARE, _PRODUCTS = 8, 25
_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class Projection:
    """Hold the rows seen along their principal axes."""

    coordinates: Float[np.ndarray, "rows axes"]
    axes: Float[np.ndarray, "axes dim"]
    share: Float[np.ndarray, " axes"]


def principal_components(table: Float[np.ndarray, "rows dim"], count: int = 2, seed: int = 0) -> Projection:
    """Find the directions along which the rows of a table differ most, and where each row lies on them.

        C = X - mean(X)        C = U S V^T        coordinates = C V_k        share_k = S_k^2 / sum(S^2)

    Pearson 1901, https://doi.org/10.1080/14786440109462720; computed in float64 by the singular value decomposition of
    the centered rows. Where that would take long, V and S come from the covariance of the rows, of 16,384 of them where
    there are more; every row is then projected onto these axes. The sign of an axis is free: we make its largest entry
    (the first of equals) positive, so that one table always gives one picture. Where rows lie in fewer dimensions than
    asked for, the axes left over carry coordinates 0.

    Args:
        table: one row for each thing, finite numbers, at least one row.
        count: how many axes, 1 or more.
        seed: of the sample of rows, where the table is large.

    Cost: O(rows * dim * min(rows, dim)) for a small table; else O(min(rows, 16,384) * dim^2), and above 1,536 features
    the greatest axes alone.

    >>> flat = principal_components(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), count=1)
    >>> flat.coordinates[:, 0].round(6).tolist(), flat.share.round(6).tolist()
    ([-5.0, 0.0, 5.0], [1.0])
    """
    _check(table, count)
    if table.size * min(table.shape) <= _DECOMPOSED:
        energies, directions, mean, total = _by_rows(table)
        dtype = np.dtype(np.float64)
    else:
        energies, directions, mean, total = _by_covariance(table, count, seed)
        dtype = np.result_type(table.dtype, np.float32)  # widening every row costs more than its product
    # Rounding leaves directions of length 1e-17 that point anywhere: zero them, or equal rows would spread on the map.
    axes = np.zeros((count, table.shape[1]))
    kept = min(count, len(energies))
    axes[:kept] = np.where(energies[:kept, None] > 0, directions[:kept], 0.0)
    largest = axes[np.arange(count), np.abs(axes).argmax(axis=1)]
    axes *= np.where(largest < 0, -1.0, 1.0)[:, None]
    energy = np.zeros(count)
    energy[:kept] = energies[:kept]
    blocks = (table[n : n + _BLOCK].astype(dtype) - mean.astype(dtype) for n in range(0, len(table), _BLOCK))
    coordinates = np.concatenate([rows @ axes.T.astype(dtype) for rows in blocks]).astype(np.float64)
    return Projection(coordinates, axes, energy / total if total > 0 else energy)


def greatest(covariance: Float[np.ndarray, "dim dim"], count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Find the greatest eigenvalues and their eigenvectors, as rows, in a Krylov space of blocks.

    Products with a few columns stand in place of a decomposition, whose cost grows with the third power of the
    features: Musco and Musco 2015, https://arxiv.org/abs/1504.05477. It ends where no eigenvalue moves by more than a
    part in 10^10, or after 25 products.

    Args:
        covariance: symmetric, no eigenvalue below 0.
        count: how many.
        seed: of the first columns.

    >>> values, vectors = greatest(np.diag([1.0, 9.0, 4.0]), 2)
    >>> values.round(6).tolist(), np.abs(vectors).round(6).tolist()
    ([9.0, 4.0], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    """
    dim = len(covariance)
    width = min(count + _SPARE, dim)
    block = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, width)))[0]
    basis, products, before = block, covariance @ block, np.zeros(count)
    for _ in range(_PRODUCTS):
        values, turned = np.linalg.eigh(basis.T @ products)
        found = values[::-1][:count]
        if basis.shape[1] == dim or np.allclose(found, before[: len(found)], rtol=1e-10, atol=0):
            break
        before, block = found, products[:, -width:][:, : dim - basis.shape[1]]
        for _ in range(2):  # once leaves what rounding put in
            block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
        basis, products = np.hstack([basis, block]), np.hstack([products, covariance @ block])
        width = block.shape[1]
    return found, (basis[:, : len(turned)] @ turned).T[::-1][:count]


def _by_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    rows = table.astype(np.float64)
    mean = rows.mean(axis=0)
    _, singular, directions = np.linalg.svd(rows - mean, full_matrices=False)
    real = singular > singular.max(initial=0.0) * max(rows.shape) * np.finfo(np.float64).eps
    return np.where(real, singular**2, 0.0), directions, mean, float((singular**2).sum())


def _by_covariance(table: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    if len(table) > _ROWS:
        table = table[np.sort(np.random.default_rng(seed).choice(len(table), _ROWS, replace=False))]
    mean = table.mean(axis=0, dtype=np.float64)
    covariance = np.zeros((table.shape[1], table.shape[1]))
    dtype = np.result_type(table.dtype, np.float32)
    for first in range(0, len(table), _BLOCK):
        rows = table[first : first + _BLOCK].astype(dtype) - mean.astype(dtype)
        covariance += rows.T @ rows  # of float32 in float32, summed in float64: 1e-6, far below what sampling costs
    if len(covariance) > _WIDE:
        values, directions = greatest(covariance, count, seed)
    else:
        values, vectors = np.linalg.eigh(covariance)
        values, directions = values[::-1], vectors.T[::-1]
    real = values > values.max(initial=0.0) * np.finfo(dtype).eps
    return np.where(real, values, 0.0), directions, mean, float(np.trace(covariance))


def _check(table: np.ndarray, count: int) -> None:
    if count < 1:
        raise SettingError(f"count is {count}, but a projection needs at least 1 axis.\nPass count=2 for a map.")
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(
            f"the table has shape {tuple(table.shape)}, but a projection needs (rows, dim), neither of them 0.\n"
            "Pass a two-dimensional array, for one row row[None, :]."
        )
    if not all(np.isfinite(table[n : n + _BLOCK]).all() for n in range(0, len(table), _BLOCK)):
        raise SettingError(
            "the table holds numbers that are not finite, so that no direction is the longest.\n"
            "Leave these rows out: table[np.isfinite(table).all(axis=1)]."
        )
