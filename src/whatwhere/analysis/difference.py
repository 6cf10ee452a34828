"""What differs between two tables: rows that moved, neighborhoods that changed, rows that came and went."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64

from whatwhere.analysis.kinds import kinds, marking, texts
from whatwhere.analysis.neighbors import Metric, Search
from whatwhere.errors import SettingError, ShapeError

_BLOCK = 8192
_FITTED = 16_384


@dataclass(frozen=True, eq=False)
class Alignment:
    """Hold which row of one table stands for the same thing as which row of another.

    Args:
        first, second: rows of the two tables that belong together, in the order of the first.
        removed: rows of the first table alone.
        new: rows of the second alone.
    """

    first: Int64[np.ndarray, " shared"]
    second: Int64[np.ndarray, " shared"]
    removed: Int64[np.ndarray, " removed"]
    new: Int64[np.ndarray, " new"]


@dataclass(frozen=True, eq=False)
class Movement:
    """Hold how far each row of one table is from its partner in another.

    Args:
        cosine: of the two; 1 where the rows are equal, 0 where one alone has length 0.
        distance: |y - x|, in units of the median length of the rows x.
        ratio: of the lengths, |y| / |x|; NaN where x has length 0.
        equal: whether every number is the same.
        relative_error: sqrt(sum |y - x|^2 / sum |x|^2) over all rows; NaN where all x are 0.
    """

    cosine: Float[np.ndarray, " rows"]
    distance: Float[np.ndarray, " rows"]
    ratio: Float[np.ndarray, " rows"]
    equal: Bool[np.ndarray, " rows"]
    relative_error: float


@dataclass(frozen=True, eq=False)
class Turned:
    """Hold one table turned onto another as well as a rotation can.

    Args:
        rotation: orthogonal; x @ rotation is near y.
        movement: from the turned rows to their partners.
        fitted: rows that the rotation was found from.
    """

    rotation: Float[np.ndarray, "dim dim"]
    movement: Movement
    fitted: Int64[np.ndarray, " fitted"]

    @property
    def held_out(self) -> Bool[np.ndarray, " rows"]:
        """Tell which rows the rotation was not found from: they alone say how well it fits."""
        out = np.ones(len(self.movement.cosine), bool)
        out[self.fitted] = False
        return out


@dataclass(frozen=True, eq=False)
class Overlap:
    """Hold how much of the neighborhood of some rows is the same in two tables.

    Args:
        k: how many neighbors were looked at.
        rows: that were asked.
        kept: for each, the share of its k nearest in one table that are among its k nearest in the other.
    """

    k: int
    rows: Int64[np.ndarray, " asked"]
    kept: Float[np.ndarray, " asked"]


def align(first: Sequence[Hashable], second: Sequence[Hashable]) -> Alignment:
    """Find the rows of two tables that have the same key.

    Rows with the key "" have no name and belong to none. Where several rows of a table have one key, the first counts,
    and the others are left out.

    >>> found = align(["a", "b", "", "c"], ["c", "a", "d"])
    >>> found.first.tolist(), found.second.tolist(), found.removed.tolist(), found.new.tolist()
    ([0, 3], [1, 0], [1], [2])
    """
    places: list[dict[Hashable, int]] = []
    for keys in (first, second):
        place: dict[Hashable, int] = {}
        for row, key in enumerate(keys):
            if key != "":
                place.setdefault(key, row)
        places.append(place)
    one, other = places
    shared = [(row, other[key]) for key, row in one.items() if key in other]
    pairs = np.array(shared, np.int64).reshape(-1, 2)
    removed = [row for key, row in one.items() if key not in other]
    new = [row for key, row in other.items() if key not in one]
    return Alignment(pairs[:, 0], pairs[:, 1], np.array(removed, np.int64), np.array(new, np.int64))


def token_keys(first: Sequence[str], second: Sequence[str]) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """Give keys by which the tokens of two vocabularies can be matched.

    Where both mark words in one way, the tokens themselves. Where they do not, as "Ġthe" and "▁the", or "##ing" and
    the "ing" that GGUF has for it, the text of a token and whether a word begins with it, as in a plain list all do.

    >>> one, other = token_keys(["the", "play", "##ing"], ["▁the", "▁play", "ing"])
    >>> one == other
    True
    """
    if marking(first) == marking(second):
        return first, second
    return _meanings(first), _meanings(second)


def movement(first: Float[np.ndarray, "rows dim"], second: Float[np.ndarray, "rows dim"]) -> Movement:
    """Measure how far rows moved, in float64: row n of the first is the partner of row n of the second.

    >>> found = movement(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [2.0, 0.0]]))
    >>> found.cosine.tolist(), found.ratio.tolist(), found.equal.tolist()
    ([1.0, 0.0], [1.0, 1.0], [True, False])
    """
    if first.ndim != 2 or first.shape != second.shape or 0 in first.shape:
        raise ShapeError(
            f"rows are compared one by one where both tables have one shape, but these have {first.shape} and "
            f"{second.shape}."
        )
    parts = [_moved(first[n : n + _BLOCK], second[n : n + _BLOCK]) for n in range(0, len(first), _BLOCK)]
    cosine, away, length, other, equal = (np.concatenate(part) for part in zip(*parts, strict=True))
    typical, total = float(np.median(length)), float((length**2).sum())
    ratio = np.divide(other, length, out=np.full(len(length), np.nan), where=length > 0)
    return Movement(
        cosine,
        away / (typical or 1.0),
        ratio,
        equal.astype(bool),
        float(np.sqrt((away**2).sum() / total)) if total else float("nan"),
    )


def turn(first: Float[np.ndarray, "rows dim"], second: Float[np.ndarray, "rows dim"], seed: int = 0) -> Turned:
    """Turn one table onto another, and measure what movement is left.

        R = argmin |X R - Y|,  R^T R = 1        X^T Y = U S V^T  =>  R = U V^T

    Schönemann 1966, https://doi.org/10.1007/BF02289451. Spaces that were trained apart differ by a rotation at least,
    which changes no cosine within a table. R is found from half of the rows, at most 16,384 of them; how well it fits
    the others tells whether the spaces are alike, for its own it fits in any case.

    Args:
        first, second: rows that belong together, at least four for each feature: half of them must be able to say more
            than a rotation has freedom.
        seed: of the rows drawn.

    >>> x = np.random.default_rng(0).standard_normal((50, 3))
    >>> found = turn(x, x[:, [1, 2, 0]])
    >>> bool(np.allclose(found.movement.cosine, 1))
    True
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ShapeError(f"a rotation joins tables of one shape, but these have {first.shape} and {second.shape}.")
    if len(first) < 4 * first.shape[1]:
        raise SettingError(
            f"a rotation of {first.shape[1]} features needs {4 * first.shape[1]} rows or more, but got {len(first)}: "
            "with fewer it fits anything."
        )
    fitted = drawn(len(first), min(len(first) // 2, _FITTED), seed)
    dim = first.shape[1]
    product = np.zeros((dim, dim))
    for n in range(0, len(fitted), _BLOCK):
        rows = fitted[n : n + _BLOCK]
        product += first[rows].astype(np.float64).T @ second[rows].astype(np.float64)
    left, _, right = np.linalg.svd(product)
    rotation = left @ right
    turned = np.empty(first.shape, np.result_type(first.dtype, np.float32))
    for n in range(0, len(first), _BLOCK):
        turned[n : n + _BLOCK] = first[n : n + _BLOCK] @ rotation
    return Turned(rotation, movement(turned, second), fitted)


def overlap(
    first: Float[np.ndarray, "rows dim"],
    second: Float[np.ndarray, "rows other"],
    k: int = 10,
    asked: int = 512,
    seed: int = 0,
    metric: Metric = "cosine",
) -> Overlap:
    """Compare the neighborhoods of the same rows in two tables, which may have different features.

    Neighbors are the k nearest, exact, among the rows that both tables have; a row is not its own.

    Args:
        first: by cosine.
        second: by `metric`.
        asked: how many rows are asked for theirs, drawn evenly.
        seed: of the drawing.

    >>> x = np.random.default_rng(0).standard_normal((30, 4))
    >>> overlap(x, 2 * x, k=3).kept.mean()
    np.float64(1.0)
    """
    if len(first) != len(second):
        raise ShapeError(f"row n of both tables must be the same thing, but they have {len(first)} and {len(second)}.")
    if len(first) < 2 or k < 1 or asked < 1:
        raise SettingError(f"neighborhoods need 2 rows, k and asked of 1; these are {len(first)}, {k} and {asked}.")
    k = min(k, len(first) - 1)
    rows = drawn(len(first), asked, seed)
    own = [[n] for n in rows.tolist()]
    one = Search(first).nearest(first[rows], k, own).ids
    other = Search(second, metric).nearest(second[rows], k, own).ids
    same = [len(np.intersect1d(*pair, assume_unique=True)) for pair in zip(one, other, strict=True)]
    return Overlap(k, rows, np.array(same) / k)


def drawn(rows: int, most: int, seed: int = 0) -> Int64[np.ndarray, " drawn"]:
    """Draw at most so many rows, each once, in order; all where there are no more.

    >>> drawn(4, 9).tolist(), len(drawn(9, 4))
    ([0, 1, 2, 3], 4)
    """
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def _moved(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
    x, y = first.astype(np.float64), second.astype(np.float64)
    length, other = np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1)
    both = length * other
    cosine = np.divide((x * y).sum(axis=1), both, out=np.zeros(len(x)), where=both > 0)
    equal = (x == y).all(axis=1)
    return np.where(equal, 1.0, cosine.clip(-1, 1)), np.linalg.norm(y - x, axis=1), length, other, equal


def _meanings(words: Sequence[str]) -> list[Hashable]:
    how = marking(words)
    plain = zip(words, texts(words, how), kinds(words, how), strict=True)
    found: list[Hashable] = []
    for word, text, kind in plain:
        if kind in ("special", "no token") or isinstance(text, bytes):
            found.append(text or "")
        elif how == "wordpiece":
            found.append((text, text == word))
        else:
            found.append((text.removeprefix(" "), how == "plain" or text.startswith(" ")))
    return found
