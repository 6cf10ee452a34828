"""The difference between matched rows of two tables: norms, cosines, a rotation, and nearest neighbors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.subject import Progress
from whatwhere.analysis.table_difference import Movement, overlap, procrustes
from whatwhere.records import MaybeNaN, Missing

ALIKE = 0.9
"""Median cosine of the rows, below which the embedding spaces count as different, and one is rotated onto the other."""
_LEAST_KEPT = 10


@dataclass(frozen=True)
class Summary:
    """A summary of some numbers; NaN where there are none.

    Args:
        min, median, mean, max: of the numbers.
    """

    min: MaybeNaN
    median: MaybeNaN
    mean: MaybeNaN
    max: MaybeNaN


@dataclass(frozen=True)
class MovedRow:
    """A row that differs.

    Args:
        token: or position.
        ids: of the row in both tables.
        distance: between the two rows, in units of the median norm of the first table's.
        cosine: of the two; NaN where one of them is 0.
        norm_ratio: norm of the second / norm of the first; NaN where the first is 0.
    """

    token: str
    ids: tuple[int, int]
    distance: float
    cosine: MaybeNaN
    norm_ratio: MaybeNaN


@dataclass(frozen=True)
class RowsDifference:
    """The difference between matched rows.

    Args:
        equal: rows whose numbers are all the same.
        relative_error: sqrt(sum |y - x|^2 / sum |x|^2); NaN where all x are 0.
        without_cosine: rows that are 0 in one table alone, and so have no cosine.
        cosine, distance, norm_ratio: of matched rows, as in `MovedRow`.
        moved_most: the rows of greatest distance.
    """

    equal: int
    relative_error: MaybeNaN
    without_cosine: int
    cosine: Summary
    distance: Summary
    norm_ratio: Summary
    moved_most: Sequence[MovedRow]


@dataclass(frozen=True)
class RotatedDifference(RowsDifference):
    """The difference that is left once the first table is rotated onto the second as well as a rotation can.

    Args:
        fitted: rows that the rotation was fitted to.
        held_out_cosine: median cosine of the other rows.
    """

    fitted: int
    held_out_cosine: MaybeNaN


@dataclass(frozen=True)
class KeptNeighbors:
    """A token, and the share of its nearest neighbors that is the same in both tables.

    Args:
        token: its text.
        kept: the share.
    """

    token: str
    kept: float


@dataclass(frozen=True)
class NeighborsDifference:
    """The difference between the nearest neighbors of tokens.

    Args:
        k: neighbors of each.
        queries: tokens that were sampled.
        kept: mean share of neighbors that are the same.
        chance: the share that random neighbors would keep.
        least_kept: the tokens whose neighbors changed most.
    """

    k: int
    queries: int
    kept: float
    chance: float
    least_kept: Sequence[KeptNeighbors]


@dataclass(frozen=True)
class DifferenceSettings:
    """The settings of a difference.

    Args:
        table: "input", "output", or the name of a tensor.
        k: nearest neighbors that are compared.
        queries: tokens whose neighbors are compared.
        rows: how many of the rows that moved most are listed.
        seed: random seed of the samples.
    """

    table: str
    k: int
    queries: int
    rows: int
    seed: int


def rows_difference(
    moved: Movement, name: Callable[[int], str], ids: Int64[np.ndarray, "rows 2"], most: int
) -> RowsDifference:
    """Summarize the difference between matched rows, and list those that moved most."""
    order = np.argsort(-moved.distance, kind="stable")
    order = order[~moved.equal[order]][:most]
    return RowsDifference(
        equal=int(moved.equal.sum()),
        relative_error=moved.relative_error,
        without_cosine=int(np.isnan(moved.cosine).sum()),
        cosine=_summary(moved.cosine),
        distance=_summary(moved.distance),
        norm_ratio=_summary(moved.norm_ratio),
        moved_most=[
            MovedRow(
                token=name(row),
                ids=(int(ids[row, 0]), int(ids[row, 1])),
                distance=float(moved.distance[row]),
                cosine=float(moved.cosine[row]),
                norm_ratio=float(moved.norm_ratio[row]),
            )
            for row in order.tolist()
        ],
    )


def _summary(values: Float[np.ndarray, " values"]) -> Summary:
    values = values[np.isfinite(values)]
    if not len(values):
        return Summary(*4 * [float("nan")])
    return Summary(float(values.min()), float(np.median(values)), float(values.mean()), float(values.max()))


def rotated_difference(
    moved: Movement,
    x: Float[np.ndarray, "rows dim"],
    y: Float[np.ndarray, "rows dim"],
    name: Callable[[int], str],
    ids: Int64[np.ndarray, "rows 2"],
    settings: DifferenceSettings,
    progress: Progress,
) -> RotatedDifference | Missing:
    """Rotate one space onto the other and compare again; Missing where they are alike, or rows are too few to fit."""
    if _summary(moved.cosine).median >= ALIKE:
        return Missing(f"the embedding spaces are alike: the median cosine is at least {ALIKE}")
    if len(x) < 4 * x.shape[1]:
        return Missing(f"{len(x):,} shared rows are too few to fit a rotation of {x.shape[1]:,} features")
    progress("rotating one space onto the other")
    fit = procrustes(x, y, settings.seed)
    held_out = _summary(fit.movement.cosine[fit.held_out]).median
    rows = rows_difference(fit.movement, name, ids, settings.rows)
    return RotatedDifference(**vars(rows), fitted=len(fit.fitted), held_out_cosine=held_out)


def neighbors_difference(
    x: np.ndarray, y: np.ndarray, name: Callable[[int], str], settings: DifferenceSettings, progress: Progress
) -> NeighborsDifference | Missing:
    """Compare the nearest neighbors of sampled tokens; Missing where there are fewer than two."""
    if len(x) < 2:
        return Missing("there are fewer than two shared tokens")
    progress("comparing nearest neighbors")
    shared = overlap(x, y, settings.k, settings.queries, settings.seed)
    order = np.argsort(shared.kept, kind="stable")[:_LEAST_KEPT].tolist()
    return NeighborsDifference(
        k=shared.k,
        queries=len(shared.rows),
        kept=float(shared.kept.mean()),
        chance=shared.k / (len(x) - 1),
        least_kept=[
            KeptNeighbors(name(int(shared.rows[n])), float(shared.kept[n])) for n in order if shared.kept[n] < 1
        ],
    )
