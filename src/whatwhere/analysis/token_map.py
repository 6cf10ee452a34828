"""Token maps: rows of a table in two dimensions, the share of neighbors that are preserved, and named groups."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.nearest_neighbors import Search, units
from whatwhere.analysis.pca import principal_components
from whatwhere.analysis.table_difference import overlap
from whatwhere.errors import MissingExtra, SettingError, ShapeError
from whatwhere.large_arrays import finite_rows

Method = Literal["pca", "tsne", "umap"]
METHODS: tuple[Method, ...] = ("pca", "tsne", "umap")
PACKAGES: dict[str, tuple[str, str]] = {"tsne": ("openTSNE", "map"), "umap": ("umap", "umap")}
"""Method -> the module that it needs, and the extra of whatwhere that installs it."""

Progress = Callable[[float, str], None]
"""Progress callback: called with the finished share, 0 to 1, and a message; an exception in it stops the work."""

MINIMUM_ROWS: dict[str, int] = {"pca": 3, "tsne": 16, "umap": 16}
_NEIGHBORS = 15  # neighbors of a row in t-SNE and UMAP; at most a third of the rows
_EXAGGERATED, _STEPS, _EVERY = 150, 500, 10
"""Iterations of t-SNE: with early exaggeration, in all, between two callbacks. On MiniLM's 30,522 rows more iterations
(250 of 750, openTSNE's defaults) keep no more neighbors and take twice the time."""
_INTERVAL = 2
"""Side of a cell of the grid that interpolates repulsion; openTSNE's default of 1 takes four times as long."""
_SEARCHED, _OPTIMIZED = 0.4, 0.95
"""Approximate share of the work after the search for neighbors, and after the last iteration."""
_FEW_ROWS = 5000
_SEARCH_BLOCK = 2048
_SOON, _MOST_ROWS = 3.6e11, 50_000
"""Multiplications of the search for neighbors, about 12 s on one core; and rows whose optimization takes about 15 s."""


@dataclass(frozen=True)
class NeighborsKept:
    """The share of the k nearest neighbors that a map preserves."""

    share: float  # of the k nearest rows by cosine that are among the k nearest on the map; a mean over `queries`
    k: int
    queries: int
    chance: float  # the share that random coordinates would preserve


@dataclass(frozen=True, eq=False)
class TokenMap:
    """Coordinates of the rows of a table, and the share of their nearest neighbors that the map preserves."""

    method: Method
    coordinates: Float[np.ndarray, "rows 2"]
    kept: NeighborsKept
    explained_variance_ratio: tuple[float, float] | None  # of the two axes; None for t-SNE and UMAP


def make_map(
    table: Float[np.ndarray, "rows dim"],
    method: Method = "pca",
    k: int = 10,
    queries: int = 1000,
    seed: int = 0,
    progress: Progress = lambda share, message: None,
) -> TokenMap:
    """Return the rows of a table in two dimensions, by PCA, t-SNE or UMAP, and how many neighbors that preserves.

        pca     the two directions of largest variance; fast, but few nearest neighbors are preserved
        tsne    neighbors by cosine stay neighbors, distances mean little; van der Maaten and Hinton 2008,
                https://jmlr.org/papers/v9/vandermaaten08a.html, by openTSNE. The affinities are equal for the 15
                nearest rows, found exactly, in place of a perplexity: Böhm, Berens and Kobak 2022,
                https://jmlr.org/papers/v23/21-0055.html
        umap    likewise; McInnes, Healy and Melville 2018, https://arxiv.org/abs/1802.03426, with 15 neighbors

    Rows that are near on the map need not be near in the table: `kept.share` is the share of neighbors that are.

    Args:
        table: finite numbers; at least 3 rows, 16 for t-SNE and UMAP.
        method: t-SNE needs the extra `map`, UMAP the extra `umap`.
        k: number of neighbors to compare.
        queries: number of rows to sample, whose neighbors are compared by exact search.
        seed: of all random numbers.
        progress: callback of t-SNE and UMAP.

    Raises:
        SettingError: If the method is unknown, or a number not finite.
        ShapeError: If the table has too few rows, or is not two-dimensional.
        MissingExtra: If the package of the method is not installed.

    Examples:
        >>> ring = np.array([[np.cos(t), np.sin(t), 0.0] for t in np.linspace(0, 6, 40)])
        >>> plane = make_map(ring, k=2)
        >>> plane.coordinates.shape, plane.kept.share
        ((40, 2), 1.0)
    """
    if method not in METHODS:
        raise SettingError(f"a map got method={method!r}, but knows only: {', '.join(METHODS)}.")
    if table.ndim != 2 or 0 in table.shape or len(table) < MINIMUM_ROWS[method]:
        raise ShapeError(
            f"a map by {method} needs at least {MINIMUM_ROWS[method]} finite rows, but got the shape {table.shape}."
        )
    if (table[-1] == table[0]).all() and (table == table[0]).all():
        raise SettingError("all rows of the table are equal, so a map of them is one point.\nChoose other rows.")
    if method == "pca":
        projection = principal_components(table, 2, seed)
        first, second = projection.explained_variance_ratio.tolist()
        kept = neighbors_kept(table, projection.coordinates, k, queries, seed)
        return TokenMap(method, projection.coordinates, kept, (first, second))
    if not finite_rows(table).all():
        raise SettingError(
            "the table holds numbers that are not finite.\nRemove these rows: table[np.isfinite(table).all(axis=1)]."
        )
    reduce: Callable[[np.ndarray, int, Progress], np.ndarray] = _tsne if method == "tsne" else _umap
    coordinates = np.asarray(reduce(table, seed, progress), np.float64)
    progress(_OPTIMIZED, "comparing neighbors")
    return TokenMap(method, coordinates, neighbors_kept(table, coordinates, k, queries, seed), None)


def neighbors_kept(
    table: Float[np.ndarray, "rows dim"],
    coordinates: Float[np.ndarray, "rows 2"],
    k: int = 10,
    queries: int = 1000,
    seed: int = 0,
) -> NeighborsKept:
    """Return the mean over rows of |N_k(row in the table, by cosine) and N_k(row on the map)| / k."""
    compared = overlap(table, coordinates, k, queries, seed, "euclidean")
    chance = compared.k / (len(table) - 1)
    return NeighborsKept(float(compared.kept.mean()), compared.k, len(compared.rows), chance)


def neighbors_to_compare(rows: int) -> int:
    """Return a number of neighbors by which a map of so many rows is judged: 10, or a quarter of a few rows."""
    return min(10, max((rows - 1) // 4, 1))


def rows_for_half_a_minute(rows: int, dim: int) -> int:
    """Return how many rows of a table t-SNE lays out in about half a minute on one core, all of them if it can."""
    return min(rows, _MOST_ROWS, int((_SOON / max(dim, 1)) ** 0.5))


def _tsne(table: np.ndarray, seed: int, progress: Progress) -> np.ndarray:
    try:
        from openTSNE import TSNEEmbedding
        from openTSNE.affinity import Uniform
        from openTSNE.nearest_neighbors import PrecomputedNeighbors
    except ImportError as error:
        raise _missing("t-SNE", "openTSNE", "map") from error
    near = _nearest(table, min(_NEIGHBORS, (len(table) - 1) // 3), progress)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        affinities = Uniform(knn_index=PrecomputedNeighbors(near, np.ones(near.shape)), symmetrize="mean")
        embedding = TSNEEmbedding(
            _start(table, seed), affinities, n_jobs=_jobs(len(table)), random_state=seed,
            negative_gradient_method="fft", ints_in_interval=_INTERVAL, callbacks_every_iters=_EVERY,
        )  # fmt: skip
        for begin, end, exaggeration in ((0, _EXAGGERATED, 12), (_EXAGGERATED, _STEPS, None)):

            def step(done: int, error: float, coordinates: object, begin: int = begin) -> None:
                share = (begin + done) / _STEPS
                progress(_SEARCHED + (_OPTIMIZED - _SEARCHED) * share, f"step {begin + done} of {_STEPS}")

            embedding.optimize(end - begin, inplace=True, exaggeration=exaggeration, momentum=0.8, callbacks=step)
        return np.asarray(embedding)


def _nearest(table: np.ndarray, k: int, progress: Progress) -> np.ndarray:
    """Return the k nearest other rows of each row, by cosine."""
    search, found = Search(table, "cosine"), []
    for begin in range(0, len(table), _SEARCH_BLOCK):
        share = _SEARCHED * begin / len(table)
        progress(share, f"searching neighbors, {begin:,} of {len(table):,} tokens")
        own = np.arange(begin, min(begin + _SEARCH_BLOCK, len(table)))[:, None]
        found.append(search.nearest(table[begin : begin + _SEARCH_BLOCK], k, without=own).ids)
    return np.concatenate(found)


def _start(table: np.ndarray, seed: int) -> np.ndarray:
    """Return the principal components, made small, and slightly apart: equal rows could never separate."""
    coordinates = principal_components(table, 2, seed).coordinates
    spread = float(coordinates[:, 0].std()) or 1.0
    noise = np.random.default_rng(seed).standard_normal(coordinates.shape)
    return np.asarray(1e-4 * (coordinates / spread + 0.01 * noise))


def _umap(table: np.ndarray, seed: int, progress: Progress) -> np.ndarray:
    progress(0.0, "loading UMAP")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as on TensorFlow, which it tries to import
        try:
            from umap import UMAP
        except ImportError as error:
            raise _missing("UMAP", "umap-learn", "umap") from error
        progress(0.0, "searching neighbors and laying them out, which UMAP does in one step")
        # On one core: with more, the result depends on the order of the threads.
        reducer = UMAP(n_neighbors=min(_NEIGHBORS, len(table) - 1), metric="cosine", n_jobs=1, random_state=seed)
        return np.asarray(reducer.fit_transform(table))


def _missing(method: str, package: str, extra: str) -> MissingExtra:
    return MissingExtra(
        f'a map by {method} needs {package}, which is not installed.\nInstall it: pip install "whatwhere[{extra}]"'
        "\nOr choose pca, which needs no further package."
    )


def _jobs(rows: int) -> int:
    """Return the number of threads for t-SNE: one for few rows, else one core is left to other work."""
    if rows < _FEW_ROWS:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(max(cores - 1, 1), int(limit) if limit.isdecimal() and int(limit) else cores)


FOUR_GROUPS: Mapping[str, Sequence[str]] = {
    "animals": ("cat", "dog", "kitten", "puppy"),
    "royalty": ("king", "queen", "prince", "princess"),
    "actions": ("ran", "walked", "ate", "drank"),
    "places": ("city", "town", "country", "nation"),
}
"""The words that the fifth tutorial draws, by group."""


@dataclass(frozen=True, eq=False)
class GroupNeighbors:
    """The nearest neighbor of each token within a named set, and the cosines within and between its groups."""

    nearest: Int64[np.ndarray, " tokens"]  # row of the nearest other token of the set, by cosine
    cosines: Float[np.ndarray, " tokens"]  # of each token and that neighbor
    stay: int  # number of tokens whose nearest neighbor is of their own group
    compared: int  # number of tokens whose group has another token, so that it could be
    within: tuple[float, float] | None  # least and greatest cosine of two tokens of one group
    between: tuple[float, float] | None  # the same of two groups; None without a pair


def group_neighbors(rows: Float[np.ndarray, "tokens dim"], groups: Sequence[int]) -> GroupNeighbors:
    """Return which tokens of a set have their nearest neighbor of the set, by cosine, in their own group."""
    if rows.ndim != 2 or len(rows) < 2 or len(groups) != len(rows):
        raise ShapeError(f"group_neighbors got rows {rows.shape} and {len(groups)} groups; it needs one for each row.")
    unit, _ = units(np.asarray(rows, np.float64))
    cosines = unit @ unit.T
    numbers = np.asarray(groups)
    same = numbers[:, None] == numbers[None, :]
    pairs = ~np.eye(len(rows), dtype=bool)
    nearest = np.where(pairs, cosines, -np.inf).argmax(axis=1)
    comparable = (same & pairs).any(axis=1)
    return GroupNeighbors(
        nearest=nearest, cosines=cosines[np.arange(len(rows)), nearest],
        stay=int((numbers[nearest] == numbers)[comparable].sum()), compared=int(comparable.sum()),
        within=_range(cosines[same & pairs]), between=_range(cosines[~same]),
    )  # fmt: skip


def parse_groups(text: str) -> dict[str, list[str]]:
    """Read tokens that are separated by commas; semicolons or line breaks separate groups, which may have names."""
    groups: dict[str, list[str]] = {}
    parts = [part for part in text.replace("\n", ";").split(";") if part.strip(" ,\t\r")]
    for n, part in enumerate(parts):
        name, colon, rest = part.partition(":")
        named = bool(colon and name.strip())
        title = name.strip() if named else str(n + 1)
        tokens = [token.strip() for token in (rest if named else part).split(",") if token.strip()]
        if title in groups:
            raise SettingError(f"two groups of tokens are named {title!r}.\nName them apart, or merge them.")
        groups[title] = tokens
    if not any(groups.values()):
        raise SettingError("no tokens are named.\nSeparate them by commas, as in king, queen; cat, dog for two groups.")
    return groups


def _range(cosines: np.ndarray) -> tuple[float, float] | None:
    return (float(cosines.min()), float(cosines.max())) if cosines.size else None
