"""Difference of two tables: changed, new and removed rows, the best rotation between them, overlap of neighbors."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from whatwhere.analysis.nearest_neighbors import Metric, Search
from whatwhere.errors import SettingError, ShapeError
from whatwhere.large_arrays import new_array, row_blocks, sample_rows
from whatwhere.models.model_text import marking, texts, token_types

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
    """Difference of each row of one table from the corresponding row of another: see `movement`."""

    cosine: Float[np.ndarray, " rows"]
    distance: Float[np.ndarray, " rows"]
    norm_ratio: Float[np.ndarray, " rows"]
    equal: Bool[np.ndarray, " rows"]
    relative_error: float


@dataclass(frozen=True, eq=False)
class Overlap:
    """Of sampled rows, the share of their k nearest in one table that are among their k nearest in the other."""

    k: int
    rows: Int64[np.ndarray, " queries"]
    kept: Float[np.ndarray, " queries"]


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """Return the rows of two tables that have the same key, each the first with it; the key "" is none."""
    one, other = _first_rows(first), _first_rows(second)
    pairs = np.array([(row, other[key]) for key, row in one.items() if key in other], np.int64).reshape(-1, 2)
    removed, new = ([row for key, row in a.items() if key not in b] for a, b in ((one, other), (other, one)))
    return Alignment(pairs[:, 0], pairs[:, 1], np.array(removed, np.int64), np.array(new, np.int64))


def _first_rows(keys: Sequence[Hashable]) -> dict[Hashable, int]:
    rows: dict[Hashable, int] = {}
    for row, key in enumerate(keys):
        if key != "":
            rows.setdefault(key, row)
    return rows


def token_keys(first: Sequence[str], second: Sequence[str]) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """Return keys by which the tokens of two vocabularies can be matched.

    If both vocabularies mark words in the same way, the keys are the tokens. Otherwise, as for "Ġthe" and "▁the", or
    "##ing" and its "ing" in GGUF, a key is the text of the token, and whether it begins a word; in a plain list each
    does.
    """
    if marking(first) == marking(second):
        return first, second
    return _text_keys(first), _text_keys(second)


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


def movement(first: Float[np.ndarray, "rows dim"], second: Float[np.ndarray, "rows dim"]) -> Movement:
    """Compute the difference of row x of one table and the corresponding row y of another, in float64.

    cosine            1 where the rows are equal, NaN where only one of them is 0, which has no direction
    distance          |y - x|, in units of the median norm of the rows x
    norm_ratio        |y| / |x|; NaN where x is 0
    equal             whether every number is the same
    relative_error    sqrt(sum |y - x|^2 / sum |x|^2) over all rows; NaN where all x are 0
    """
    if first.ndim != 2 or first.shape != second.shape or 0 in first.shape:
        raise ShapeError(
            f"movement needs tables of the same shape, neither of them empty, but these have {first.shape} and "
            f"{second.shape}."
        )
    cosine, distance, norm, other = (np.full(len(first), np.nan) for _ in range(4))
    equal = np.empty(len(first), bool)
    for part in row_blocks(len(first), _BLOCK):
        x, y = first[part].astype(np.float64), second[part].astype(np.float64)
        norm[part], other[part] = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
        distance[part], equal[part] = np.linalg.norm(y - x, axis=1), (x == y).all(axis=1)
        both = norm[part] * other[part]
        np.divide((x * y).sum(axis=1), both, out=cosine[part], where=both > 0)
    ratio = np.divide(other, norm, out=np.full(len(norm), np.nan), where=norm > 0)
    total = float((norm**2).sum())
    error = float(np.sqrt((distance**2).sum() / total)) if total else float("nan")
    cosine = np.where(equal, 1.0, cosine.clip(-1, 1))
    return Movement(cosine, distance / (float(np.median(norm)) or 1.0), ratio, equal, error)


def procrustes(
    first: Float[np.ndarray, "rows dim"], second: Float[np.ndarray, "rows dim"], seed: int = 0
) -> tuple[Float[np.ndarray, "dim dim"], Movement, Int64[np.ndarray, " fitted"]]:
    """Compute the best rotation of one table onto another, the movement that is left, and the rows it was fitted to.

        R = argmin |X R - Y|,  R^T R = 1        X^T Y = U S V^T  =>  R = U V^T

    Schönemann 1966, https://doi.org/10.1007/BF02289451. Tables trained separately differ at least by a rotation.
    R is fitted to half of the rows, at most 16,384; how well it fits the others shows whether the tables are similar.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ShapeError(f"procrustes needs tables of the same shape, but these have {first.shape} and {second.shape}.")
    if len(first) < 4 * first.shape[1]:
        raise SettingError(
            f"a rotation of {first.shape[1]} features needs {4 * first.shape[1]} rows or more, but got {len(first)}: "
            "with fewer it fits any table."
        )
    fitted = sample_rows(len(first), min(len(first) // 2, _FITTED), seed)
    product = np.zeros((first.shape[1], first.shape[1]))
    for part in row_blocks(len(fitted), _BLOCK):
        product += first[fitted[part]].astype(np.float64).T @ second[fitted[part]].astype(np.float64)
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
    """Compute which of the k nearest neighbors of a row, by cosine in the first table, are the same in two tables."""
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
