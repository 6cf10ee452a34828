"""Difference of two tables: changed, new and removed rows, the best rotation between them, overlap of neighbors."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from whatwhere.analysis.nearest_neighbors import Metric, Search
from whatwhere.analysis.subject import Progress
from whatwhere.errors import SettingError, ShapeError
from whatwhere.large_arrays import new_array, row_blocks, sample_rows
from whatwhere.models.token_types import marking, texts, token_types
from whatwhere.records import MaybeNaN, Missing

_BLOCK = 8192
_FITTED = 16_384


@dataclass(frozen=True, eq=False)
class Alignment:
    """Corresponding rows of two tables, in the order of the first, and the rows of one of them alone."""

    first: Int64[np.ndarray, " shared"]
    second: Int64[np.ndarray, " shared"]
    removed: Int64[np.ndarray, " removed"]
    new: Int64[np.ndarray, " new"]


@dataclass(frozen=True, eq=False)
class Movement:
    """Difference of each row of one table from the corresponding row of another.

    Args:
        cosine: of the two; 1 where the rows are equal, NaN where only one of them is 0, which has no direction.
        distance: |y - x|, in units of the median norm of the rows x.
        norm_ratio: |y| / |x|; NaN where x is 0.
        equal: whether every number is the same.
        relative_error: sqrt(sum |y - x|^2 / sum |x|^2) over all rows; NaN where all x are 0.
    """

    cosine: Float[np.ndarray, " rows"]
    distance: Float[np.ndarray, " rows"]
    norm_ratio: Float[np.ndarray, " rows"]
    equal: Bool[np.ndarray, " rows"]
    relative_error: float


@dataclass(frozen=True, eq=False)
class Overlap:
    """The nearest neighbors that rows have in common in two tables.

    Args:
        k: number of neighbors that were compared.
        rows: the sampled rows.
        kept: for each, the share of its k nearest in one table that are among its k nearest in the other.
    """

    k: int
    rows: Int64[np.ndarray, " queries"]
    kept: Float[np.ndarray, " queries"]


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """Return the rows of two tables that have the same key.

    Rows with the key "" are skipped, and so are further rows with a key that occurred before.
    """
    rows_by_key: list[dict[Hashable, int]] = []
    for keys in (first, second):
        row_of: dict[Hashable, int] = {}
        for row, key in enumerate(keys):
            if key != "":
                row_of.setdefault(key, row)
        rows_by_key.append(row_of)
    one, other = rows_by_key
    shared = [(row, other[key]) for key, row in one.items() if key in other]
    pairs = np.array(shared, np.int64).reshape(-1, 2)
    removed = [row for key, row in one.items() if key not in other]
    new = [row for key, row in other.items() if key not in one]
    return Alignment(pairs[:, 0], pairs[:, 1], np.array(removed, np.int64), np.array(new, np.int64))


def token_keys(first: Sequence[str], second: Sequence[str]) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """Return keys by which the tokens of two vocabularies can be matched.

    If both vocabularies mark words in the same way, the keys are the tokens. Otherwise, as for "Ġthe" and "▁the", or
    "##ing" and its "ing" in GGUF, a key is the text of the token, and whether it begins a word; in a plain list each
    does.

    Examples:
        >>> one, other = token_keys(["the", "play", "##ing"], ["▁the", "▁play", "ing"])
        >>> one == other
        True
    """
    if marking(first) == marking(second):
        return first, second
    return _text_keys(first), _text_keys(second)


def movement(first: Float[np.ndarray, "rows dim"], second: Float[np.ndarray, "rows dim"]) -> Movement:
    """Compute the difference of row n of one table and row n of another, in float64.

    Raises:
        ShapeError: If the shapes differ, or are empty.
    """
    if first.ndim != 2 or first.shape != second.shape or 0 in first.shape:
        raise ShapeError(
            f"movement needs tables of the same shape, neither of them empty, but these have {first.shape} and "
            f"{second.shape}."
        )
    parts = [_row_changes(first[part], second[part]) for part in row_blocks(len(first), _BLOCK)]
    cosine, distance, norm, other, equal = (np.concatenate(part) for part in zip(*parts, strict=True))
    typical, total = float(np.median(norm)), float((norm**2).sum())
    ratio = np.divide(other, norm, out=np.full(len(norm), np.nan), where=norm > 0)
    return Movement(
        cosine,
        distance / (typical or 1.0),
        ratio,
        equal.astype(bool),
        float(np.sqrt((distance**2).sum() / total)) if total else float("nan"),
    )


def procrustes(
    first: Float[np.ndarray, "rows dim"], second: Float[np.ndarray, "rows dim"], seed: int = 0
) -> tuple[Float[np.ndarray, "dim dim"], Movement, Int64[np.ndarray, " fitted"]]:
    """Compute the best rotation of one table onto another (orthogonal Procrustes), and the remaining difference.

        R = argmin |X R - Y|,  R^T R = 1        X^T Y = U S V^T  =>  R = U V^T

    Schönemann 1966, https://doi.org/10.1007/BF02289451. Tables that were trained separately differ at least by a
    rotation, which changes no cosine within a table. R is fitted to half of the rows, at most 16,384; how well it fits
    the others shows whether the tables are similar.

    Returns:
        R, the movement from the rotated rows to the corresponding ones, and the rows to which R was fitted.

    Raises:
        ShapeError: If the shapes differ.
        SettingError: If there are too few rows.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ShapeError(f"procrustes needs tables of the same shape, but these have {first.shape} and {second.shape}.")
    if len(first) < 4 * first.shape[1]:
        raise SettingError(
            f"a rotation of {first.shape[1]} features needs {4 * first.shape[1]} rows or more, but got {len(first)}: "
            "with fewer it fits any table."
        )
    fitted = sample_rows(len(first), min(len(first) // 2, _FITTED), seed)
    dim = first.shape[1]
    product = np.zeros((dim, dim))
    for n in range(0, len(fitted), _BLOCK):
        rows = fitted[n : n + _BLOCK]
        product += first[rows].astype(np.float64).T @ second[rows].astype(np.float64)
    left, _, right = np.linalg.svd(product)
    rotation = left @ right
    rotated = new_array(first.shape, np.result_type(first.dtype, np.float32))
    for part in row_blocks(len(first), _BLOCK):
        rotated[part] = first[part] @ rotation
    return rotation, movement(rotated, second), fitted


def overlap(
    first: Float[np.ndarray, "rows dim"],
    second: Float[np.ndarray, "rows other"],
    k: int = 10,
    queries: int = 512,
    seed: int = 0,
    metric: Metric = "cosine",
) -> Overlap:
    """Compute which of the k nearest neighbors of a row are the same in two tables, which may have different dims.

    The search is exact; a row is not its own neighbor.

    Raises:
        ShapeError: If the tables differ in their number of rows.
        SettingError: If there are fewer than 2 rows, or k or queries is below 1.
    """
    if len(first) != len(second):
        raise ShapeError(f"overlap needs tables with as many rows, but these have {len(first)} and {len(second)}.")
    if len(first) < 2 or k < 1 or queries < 1:
        raise SettingError(f"overlap got {len(first)} rows, k={k} and queries={queries}, but needs 2, 1 and 1 or more.")
    k = min(k, len(first) - 1)
    rows = sample_rows(len(first), queries, seed)
    itself = [[n] for n in rows.tolist()]
    one = Search(first).nearest(first[rows], k, itself).ids
    other = Search(second, metric).nearest(second[rows], k, itself).ids
    same = [len(np.intersect1d(*pair, assume_unique=True)) for pair in zip(one, other, strict=True)]
    return Overlap(k, rows, np.array(same) / k)


def _row_changes(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
    x, y = first.astype(np.float64), second.astype(np.float64)
    norm, other = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    both = norm * other
    cosine = np.divide((x * y).sum(axis=1), both, out=np.full(len(x), np.nan), where=both > 0)
    equal = (x == y).all(axis=1)
    return np.where(equal, 1.0, cosine.clip(-1, 1)), np.linalg.norm(y - x, axis=1), norm, other, equal


def _text_keys(words: Sequence[str]) -> list[Hashable]:
    mark = marking(words)
    keys: list[Hashable] = []
    for word, text, token_type in zip(words, texts(words, mark), token_types(words, mark), strict=True):
        if token_type in ("special", "no token") or isinstance(text, bytes):
            keys.append(text or "")
        elif mark == "wordpiece":
            keys.append((text, text == word))
        else:
            keys.append((text.removeprefix(" "), mark == "plain" or text.startswith(" ")))
    return keys


ALIKE = 0.9
"""Median cosine of the rows, below which the embedding spaces count as different, and one is rotated onto the other."""
_LEAST_KEPT = 10


@dataclass(frozen=True)
class Summary:
    """A summary of some numbers; NaN where there are none."""

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
    """A token, and the share of its nearest neighbors that is the same in both tables."""

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
        k, queries: nearest neighbors that are compared, and tokens for which they are.
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
    _, rest, fitted = procrustes(x, y, settings.seed)
    held_out = _summary(np.delete(rest.cosine, fitted)).median
    rows = rows_difference(rest, name, ids, settings.rows)
    return RotatedDifference(**vars(rows), fitted=len(fitted), held_out_cosine=held_out)


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
