"""Maps: the rows of a table on a plane, always with how far the plane can be trusted."""

import io
import os
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.difference import overlap
from whatwhere.analysis.projection import principal_components
from whatwhere.errors import MissingExtra, SettingError, ShapeError

Method = Literal["pca", "tsne", "umap"]
METHODS: tuple[Method, ...] = ("pca", "tsne", "umap")
PACKAGES: dict[str, tuple[str, str]] = {"tsne": ("openTSNE", "map"), "umap": ("umap", "umap")}
"""What a method needs: the module, and the extra that brings it."""

Tell = Callable[[float, str], None]
"""Is told the share of the work that is done, 0 to 1, and a word on it; what it raises ends the work."""

FEWEST: dict[str, int] = {"pca": 3, "tsne": 16, "umap": 16}
_NEIGHBORS = 15
"""What UMAP's authors take; t-SNE's perplexity of 30 looks at 90."""
_STEPS, _EVERY = 750, 10
"""Of t-SNE, 250 of them with neighbors drawn together, as openTSNE has it; and how many pass between two words."""
_FOUND, _SETTLED = 0.1, 0.95
"""Where neighbors are found, and where all places are: shares of the work that bars go by, measured roughly."""
_FEW = 5000


@dataclass(frozen=True, eq=False)
class Map:
    """Hold where each row lies on the plane, and how many of its neighbors it has kept.

    Args:
        method: that made it.
        places: of each row.
        kept: share of the k nearest rows of the full space, by cosine, that are among the k nearest on the map.
        k: how many neighbors were looked at.
        asked: how many rows were asked.
        chance: what rows strewn at random would keep.
        share: of the variance that each of the two axes shows; None where axes mean nothing (t-SNE, UMAP).
    """

    method: Method
    places: Float[np.ndarray, "rows 2"]
    kept: float
    k: int
    asked: int
    chance: float
    share: tuple[float, float] | None


def make_map(
    table: Float[np.ndarray, "rows dim"],
    method: Method = "pca",
    k: int = 10,
    asked: int = 1000,
    seed: int = 0,
    tell: Tell = lambda share, said: None,
) -> Map:
    """Lay the rows of a table out on a plane.

        pca     the two directions of greatest variance; at once, and nearly all neighbors are lost
        tsne    neighbors by cosine stay neighbors, distances mean little; van der Maaten and Hinton 2008,
                https://jmlr.org/papers/v9/vandermaaten08a.html, by openTSNE with perplexity 30
        umap    likewise; McInnes, Healy and Melville 2018, https://arxiv.org/abs/1802.03426, with 15 neighbors

    Whatever the method, the map says how many true neighbors it keeps: near on the map is not near in the table.

    Args:
        table: finite numbers; at least 3 rows, 16 for t-SNE and UMAP.
        method: t-SNE needs the extra `map`, UMAP the extra `umap`.
        k: neighbors that are compared.
        asked: rows whose neighbors are compared, drawn evenly; the search for them is exact.
        seed: of what is drawn.
        tell: is called now and then while t-SNE or UMAP is at work.

    >>> ring = np.array([[np.cos(t), np.sin(t), 0.0] for t in np.linspace(0, 6, 40)])
    >>> found = make_map(ring, k=2)
    >>> found.places.shape, found.kept
    ((40, 2), 1.0)
    """
    if method not in METHODS:
        raise SettingError(f"a map got method={method!r}, but knows only: {', '.join(METHODS)}.")
    if table.ndim != 2 or 0 in table.shape or len(table) < FEWEST[method]:
        raise ShapeError(
            f"a map by {method} needs a table of at least {FEWEST[method]} rows, but got the shape {table.shape}."
        )
    if method == "pca":
        found = principal_components(table, 2, seed)
        places, share = found.coordinates, (float(found.share[0]), float(found.share[1]))
        return Map(method, places, *neighbors_kept(table, places, k, asked, seed), share)
    if not np.isfinite(table).all():
        raise SettingError("the table holds numbers that are not finite: leave these rows out.")
    draw: Callable[[np.ndarray, int, Tell], np.ndarray] = _tsne if method == "tsne" else _umap
    places = np.asarray(draw(table, seed, tell), np.float64)
    tell(_SETTLED, "counting the neighbors that were kept")
    return Map(method, places, *neighbors_kept(table, places, k, asked, seed), None)


def neighbors_kept(
    table: Float[np.ndarray, "rows dim"],
    places: Float[np.ndarray, "rows 2"],
    k: int = 10,
    asked: int = 1000,
    seed: int = 0,
) -> tuple[float, int, int, float]:
    """Give the share of true nearest neighbors that a map keeps; with k, the rows asked, and what chance would keep.

        kept = mean over rows of |N_k(row in the table, by cosine) and N_k(row on the map)| / k

    >>> neighbors_kept(np.eye(3), np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]), k=2)
    (1.0, 2, 3, 1.0)
    """
    found = overlap(table, places, k, asked, seed, "euclidean")
    return float(found.kept.mean()), found.k, len(found.rows), found.k / (len(table) - 1)


def _tsne(table: np.ndarray, seed: int, tell: Tell) -> np.ndarray:
    try:
        from openTSNE import TSNE
    except ImportError as problem:
        raise _missing("t-SNE", "openTSNE", "map") from problem
    perplexity = min(30.0, (len(table) - 1) / 3)
    done = 0

    def step(*_: object) -> None:
        nonlocal done  # openTSNE counts anew after the first 250
        done += _EVERY
        tell(_FOUND + (_SETTLED - _FOUND) * min(done / _STEPS, 1.0), f"step {done} of {_STEPS}")

    tell(0.0, "looking for neighbors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = TSNE(
            perplexity=perplexity,
            metric="cosine",
            n_jobs=_jobs(len(table)),
            random_state=seed,
            callbacks=step,
            callbacks_every_iters=_EVERY,
        )
        return np.asarray(made.fit(table))


def _umap(table: np.ndarray, seed: int, tell: Tell) -> np.ndarray:
    near = min(_NEIGHBORS, len(table) - 1)
    tell(0.0, "loading UMAP")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as of TensorFlow, which it looks for
        try:
            from umap import UMAP
        except ImportError as problem:
            raise _missing("UMAP", "umap-learn", "umap") from problem
        tell(0.0, "looking for neighbors")
        # It tells of its steps by a bar in the terminal alone, and of the rest by print.
        bar = {"file": _Bar(tell), "bar_format": "{n_fmt}/{total_fmt}", "mininterval": 0.2}
        # With a seed it runs on one core, or neighbors would be found in another order each time.
        made = UMAP(n_neighbors=near, metric="cosine", n_jobs=1, random_state=seed, verbose=True, tqdm_kwds=bar)
        with redirect_stdout(io.StringIO()):
            return np.asarray(made.fit_transform(table))


class _Bar(io.StringIO):
    """Read a bar of progress, "12/200", as it is drawn."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def write(self, text: str) -> int:
        done, slash, total = text.strip().partition("/")
        if slash and done.isdigit() and total.isdigit() and int(total):
            share = _FOUND + (_SETTLED - _FOUND) * int(done) / int(total)
            self._tell(share, f"step {done} of {total}")
        return len(text)


def _missing(method: str, package: str, extra: str) -> MissingExtra:
    return MissingExtra(
        f'a map by {method} is made by {package}, which is not installed.\nInstall it: pip install "whatwhere[{extra}]"'
        "\nOr take the method pca, which needs nothing."
    )


def _jobs(rows: int) -> int:
    """Give how many threads t-SNE shall have: its steps on few rows are shorter than waiting for each other."""
    if rows < _FEW:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    said = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(said)) if said.isdecimal() and int(said) else cores
