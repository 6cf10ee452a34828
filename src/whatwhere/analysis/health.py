"""Rows of a token table that are not well: never trained, doubled, zero, broken, everybody's neighbor, out of reach."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.neighbors import Search
from whatwhere.errors import ShapeError

_SEED_SHARE, _FEWEST_SEEDS = 0.005, 8
_OUTSIDE = 8.0
"""Robust standard deviations; of a million normal numbers none is beyond 6."""
_ALIKE = 0.5
_BLOCK, _HUB_NEIGHBORS = 8192, 10
_CONTEXTS = ("a", "0", "b", "x", "", "a ", "(")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, eq=False)
class Health:
    """Hold what looks wrong with the rows of a table, and the evidence.

    Args:
        norms: of each row.
        seeds: the rows of lowest norm that are neither zero nor broken, from which the suspicion starts.
        likeness: how near each row lies to the mean of the seeds: 1 on it, 0 at the median distance.
        cosine: to that mean, both less the mean of all rows.
        threshold: from where on a cosine is no accident.
        untrained: rows above it, the nearest to the seeds first.
        zero, broken: rows of zeros; rows with NaN or infinity.
        duplicates: groups of rows that are equal, each in the order of ids.
        beyond: rows that the tokenizer has no token for.
        hubs: rows that are among the nearest of many, with the number of times, most first.
        asked: how many rows were asked for their nearest, to find the hubs.
        expected: how often a row is a neighbor on average.
    """

    norms: Float[np.ndarray, " rows"]
    seeds: Int64[np.ndarray, " seeds"]
    likeness: Float[np.ndarray, " rows"]
    cosine: Float[np.ndarray, " rows"]
    threshold: float
    untrained: Int64[np.ndarray, " untrained"]
    zero: Int64[np.ndarray, " zero"]
    broken: Int64[np.ndarray, " broken"]
    duplicates: tuple[tuple[int, ...], ...]
    beyond: Int64[np.ndarray, " beyond"]
    hubs: tuple[tuple[int, int], ...]
    asked: int
    expected: float


def health(table: Float[np.ndarray, "rows dim"], tokens: int | None = None, seed: int = 0, ask: int = 4096) -> Health:
    """Examine the rows of a token table.

    A row that training never reached keeps its initial values, less what weight decay took, and so do all such rows:
    their norms are low, and what moved them moved them alike. So the rows of lowest norm are taken for seeds, and
    every row is measured by its distance and its cosine to the mean of the seeds, itself left out. The idea is Land and
    Bartolo's, https://arxiv.org/abs/2405.05417, who start from a list of ids made by hand; here nothing is. A row is
    suspected where its cosine is above 0.5, and 8 robust standard deviations above the median.

    Args:
        table: one row for each token.
        tokens: how many ids the tokenizer has; rows beyond these are padding. None: not known.
        seed: of the sample of rows that are asked for their neighbors where the table is large.
        ask: how many rows at most are asked, to find the hubs; 0 finds none.

    >>> rng = np.random.default_rng(0)
    >>> table = rng.standard_normal((2000, 256))
    >>> table[40:60] = 0.1 + 0.01 * rng.standard_normal((20, 256))
    >>> sorted(health(table).untrained.tolist()) == list(range(40, 60))
    True
    """
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(f"a token table has shape (rows, dim), but this one {table.shape}.")
    norms = row_norms(table)
    whole = np.isfinite(norms)
    sound = np.flatnonzero(whole & (norms > 0))
    seeds, likeness, cosine = _likeness(table, norms, sound)
    threshold = _threshold(cosine[sound])
    suspected = sound[cosine[sound] > threshold]
    asked, found = hubs(table, sound, seed, ask)
    return Health(
        norms,
        seeds,
        likeness,
        cosine,
        threshold,
        suspected[np.argsort(-likeness[suspected], kind="stable")],
        np.flatnonzero(norms == 0),
        np.flatnonzero(~whole),
        _duplicates(table, sound),
        np.arange(tokens, len(table)) if tokens is not None and tokens < len(table) else np.arange(0),
        found,
        asked,
        expected(asked, len(sound)),
    )


def row_norms(table: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, " rows"]:
    """Give the length of each row, in float64, by blocks: a large table is never widened whole.

    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float16))
    array([5., 0.])
    """
    found = np.empty(len(table))
    for first in range(0, len(table), _BLOCK):
        found[first : first + _BLOCK] = np.linalg.norm(table[first : first + _BLOCK].astype(np.float64), axis=1)
    return found


def unreachable(tokenizer: Any, rows: int | None = None) -> Int64[np.ndarray, " ids"]:
    """Give the ids that no text leads to, by the tokenizer's own round trip.

    Each id is decoded behind the ids of some short text, and what comes out is encoded again; an id that comes back in
    none of seven such texts is out of reach. An id that stands for part of a character's bytes says nothing alone, and
    is not counted.

    Args:
        tokenizer: of the `tokenizers` library, which must neither cut nor pad.
        rows: of the table; ids beyond are not asked. None asks for all.
    """
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = [n for n in range(size if rows is None else min(size, rows)) if tokenizer.id_to_token(n) is not None]
    return lost(tokenizer, ids)


def lost(tokenizer: Any, ids: Sequence[int]) -> Int64[np.ndarray, " ids"]:
    """Give those of some ids that no text leads to, as `unreachable` finds them."""
    left = np.array(ids, np.int64)
    for context in _CONTEXTS:
        front = _encoded(tokenizer, [context])[0]
        texts = tokenizer.decode_batch([[*front, int(n)] for n in left], skip_special_tokens=False)
        encoded = _encoded(tokenizer, texts)
        back = [n in code or _REPLACEMENT in text for n, code, text in zip(left, encoded, texts, strict=True)]
        left = left[~np.array(back, bool)]
    return left


def _encoded(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Give the ids of each text; none where the tokenizer refuses it, as it does without a word for the unknown."""
    try:
        return [code.ids for code in tokenizer.encode_batch(texts, add_special_tokens=False)]
    except Exception:  # the library raises nothing narrower
        return [] if not texts else [[]] if len(texts) == 1 else [_encoded(tokenizer, [text])[0] for text in texts]


def _likeness(table: np.ndarray, norms: np.ndarray, sound: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give the seeds, and of every row the likeness and the cosine to their mean, itself left out."""
    distance, cosine = np.zeros(len(table)), np.zeros(len(table))
    count = min(max(_FEWEST_SEEDS, round(_SEED_SHARE * len(sound))), len(sound) // 2)
    if count < 2:
        return np.arange(0), np.zeros(len(table)), cosine
    seeds = sound[np.argsort(norms[sound], kind="stable")[:count]]
    mean = (table if len(sound) == len(table) else table[sound]).mean(axis=0, dtype=np.float64)
    rows = table[seeds].astype(np.float64)
    middle, directions = rows.mean(axis=0), _directions(rows - mean)
    total = directions.sum(axis=0)
    for first in range(0, len(sound), _BLOCK):
        part = sound[first : first + _BLOCK]
        distance[part] = np.linalg.norm(table[part] - middle, axis=1)
        cosine[part] = _directions(table[part] - mean) @ total / max(np.linalg.norm(total), 1e-300)
    # A seed is a part of the mean that it is held against: n / (n - 1) times as far it lies from that of the others.
    distance[seeds] *= count / (count - 1)
    cosine[seeds] = (directions * _directions(total - directions)).sum(axis=1)
    typical = float(np.median(distance[sound]))
    return seeds, np.where(norms > 0, 1 - distance / typical if typical else 0.0, 0.0), cosine


def _directions(rows: np.ndarray) -> np.ndarray:
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(sizes > 0, sizes, 1.0)


def _threshold(cosines: np.ndarray) -> float:
    if not len(cosines):
        return _ALIKE
    middle = float(np.median(cosines))
    return max(_ALIKE, middle + _OUTSIDE * 1.4826 * float(np.median(np.abs(cosines - middle))))


def _duplicates(table: np.ndarray, sound: np.ndarray) -> tuple[tuple[int, ...], ...]:
    # By digest first: the bytes of all rows beside each other would be a second table.
    alike: dict[int, list[int]] = {}
    for row in sound.tolist():
        alike.setdefault(hash(table[row].tobytes()), []).append(row)
    groups: list[tuple[int, ...]] = []
    for ids in alike.values():
        exact: dict[bytes, list[int]] = {}
        for row in ids if len(ids) > 1 else ():
            exact.setdefault(table[row].tobytes(), []).append(row)
        groups += [tuple(same) for same in exact.values() if len(same) > 1]
    return tuple(sorted(groups))


def expected(asked: int, rows: int) -> float:
    """Give how often a row is among the ten nearest on average, where so many rows are asked."""
    return asked * min(_HUB_NEIGHBORS, max(rows - 1, 0)) / max(rows, 1)


def hubs(
    table: Float[np.ndarray, "rows dim"], sound: Int64[np.ndarray, " sound"], seed: int = 0, ask: int = 4096
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Give how many rows were asked, and the rows that are among the ten nearest of many, with the number of times.

    Args:
        table: one row for each token.
        sound: ids of its rows that are finite and not 0, among which neighbors are found.
        seed: of the sample of rows that are asked.
        ask: how many rows at most are asked.
    """
    if len(sound) < 2 or ask < 1:
        return 0, ()
    asked = sound
    if len(sound) > ask:
        asked = np.sort(np.random.default_rng(seed).choice(sound, ask, replace=False))
    rows = table if len(sound) == len(table) else table[sound]
    own = np.searchsorted(sound, asked)
    near = Search(rows).nearest(table[asked], _HUB_NEIGHBORS, without=[[n] for n in own.tolist()])
    times = np.bincount(near.ids.ravel(), minlength=len(sound))
    order = np.argsort(-times, kind="stable")[:20]
    expected = len(asked) * near.ids.shape[1] / len(sound)
    # By chance the number is about Poisson's: ten times the mean, and 10 more, is no chance.
    return len(asked), tuple((int(sound[n]), int(times[n])) for n in order if times[n] > 10 * expected + 10)
