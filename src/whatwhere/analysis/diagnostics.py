"""Diagnostics of a token table: under-trained, duplicate, zero, non-finite, hub and unreachable tokens."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log, nan, sqrt
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.nearest_neighbors import Search
from whatwhere.errors import ShapeError
from whatwhere.large_arrays import row_blocks, sample_rows, selected_rows
from whatwhere.what.text import ids_of_each

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_REFERENCE_SHARE, _FEWEST_REFERENCES = 0.005, 8
_MAX_DEVIATION = 8.0  # in robust standard deviations; of a million normal numbers none is beyond 6
_MIN_COSINE = 0.5
_BLOCK = 8192
HUB_NEIGHBORS = 10
FAR = ("low norm", "near the mean", "high norm")
_CHANCE = 1e-3  # that a table whose norms follow a power law has a row `far_below` the others
_CONTEXTS = ("a", "0", "b", "x", "", "a ", "(")
FEWEST_TO_COMPARE = 4
_FEWEST_UNDER_TRAINED = 8
_TOLERANCE = 1.15  # weight decay and a few updates change the standard deviation of under-trained rows by some percent
CONFIGURED = "the configuration's initializer_range"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Suspicious rows of a token table, and the evidence."""

    norms: Float[np.ndarray, " rows"]
    reference_rows: Int64[np.ndarray, " references"]  # finite, nonzero rows of lowest norm, to which all are compared
    proximity: Float[np.ndarray, " rows"]  # to the mean of the reference rows: 1 at it, 0 at the median distance
    cosine: Float[np.ndarray, " rows"]  # of each row and this mean, after subtracting the mean of all rows from both
    threshold: float  # the cosine above which a row is suspected
    under_trained: Int64[np.ndarray, " under_trained"]  # the suspected rows, the nearest to the reference rows first
    distances: Float[np.ndarray, " rows"]  # to the mean of the rows that nothing suspects; 0 of those not finite
    low_norm: Int64[np.ndarray, " low"]  # whose norm lies far below those of trained rows
    high_norm: Int64[np.ndarray, " high"]  # whose norm lies far above those of trained rows
    near_mean: Int64[np.ndarray, " near"]  # rows whose distance lies far below the others', though their norm does not
    zero: Int64[np.ndarray, " zero"]
    non_finite: Int64[np.ndarray, " non_finite"]
    duplicates: tuple[tuple[int, ...], ...]  # groups of equal rows, each in the order of ids
    beyond_vocabulary: Int64[np.ndarray, " beyond"]

    @property
    def decisive(self) -> bool:
        """Whether the threshold is below 1, so that rows can exceed it: in few dimensions cosines vary widely."""
        return len(self.reference_rows) > 0 and self.threshold < 1

    @property
    def far(self) -> dict[int, str]:
        """The rows far from the others, and by what: one of FAR."""
        kinds = zip(FAR, (self.low_norm, self.near_mean, self.high_norm), strict=True)
        return {row: why for why, rows in kinds for row in rows.tolist()}

    @property
    def highest(self) -> float | None:
        """The largest cosine of a row and the mean of the reference rows; None without reference rows."""
        return float(self.cosine.max()) if len(self.reference_rows) else None


def diagnostics(table: Float[np.ndarray, "rows dim"], tokens: int | None = None) -> Diagnostics:
    """Find suspicious rows of a token table: under-trained, far from the others, zero, non-finite, duplicate.

    Under-trained rows often have low norms, and a common direction from updates that change all of them alike. The rows
    of lowest norm are therefore the reference: a row is suspected if its cosine to their mean, itself excluded, is
    above 0.5 and 8 robust deviations above the median. Land and Bartolo, https://arxiv.org/abs/2405.05417, choose the
    reference by hand. Rows that keep their random initial values have no common direction: they are found by their norm
    where it lies `far_below` the others', and else not at all. Rows beyond the ids of `tokens` are padding.
    """
    _require_table(table)
    norms = row_norms(table)
    finite = np.isfinite(norms)
    valid = np.flatnonzero(finite & (norms > 0))
    # Huge rows first, for they displace the mean of all; then the others without those that share a direction.
    high = valid[far_below(1 / np.maximum(norms[valid], np.finfo(np.float64).tiny))]
    rest = np.setdiff1d(valid, high)
    reference_rows, proximity, cosine = _compared(table, norms, rest)
    threshold = _threshold(cosine[rest])
    suspected = rest[cosine[rest] > threshold]
    rest = np.setdiff1d(rest, suspected)
    low = rest[far_below(norms[rest])]
    rest = np.setdiff1d(rest, low)
    distances = _distances(table, rest, valid)
    return Diagnostics(
        norms, reference_rows, proximity, cosine, threshold,
        suspected[np.argsort(-proximity[suspected], kind="stable")], distances, low, high,
        rest[far_below(distances[rest])], np.flatnonzero(norms == 0), np.flatnonzero(~finite),
        _duplicates(table, valid),
        np.arange(tokens, len(table)) if tokens is not None and tokens < len(table) else np.arange(0),
    )  # fmt: skip


def _require_table(table: np.ndarray) -> None:
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(f"a token table has shape (rows, dim), but this one {table.shape}.")


def row_norms(table: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, " rows"]:
    """Compute the norm of each row in float64, by blocks: a large table is never converted as a whole."""
    norms = np.empty(len(table))
    for part in row_blocks(len(table), _BLOCK):
        norms[part] = np.linalg.norm(table[part].astype(np.float64), axis=1)
    return norms


def unreachable(tokenizer: "Tokenizer", ids: Iterable[int]) -> Int64[np.ndarray, " ids"]:
    """Return those of some ids whose tokens no text is encoded to.

    Each id is decoded after the ids of seven short texts, and the result is encoded again. Tokens of incomplete UTF-8
    characters cannot be decoded alone, and are not counted.
    """
    left = np.array([n for n in ids if tokenizer.id_to_token(n) is not None], np.int64)
    for context in _CONTEXTS:
        front = ids_of_each(tokenizer, [context])[0]
        texts = tokenizer.decode_batch([[*front, int(n)] for n in left], skip_special_tokens=False)
        encoded = ids_of_each(tokenizer, texts)
        back = [n in code or _REPLACEMENT in text for n, code, text in zip(left, encoded, texts, strict=True)]
        left = left[~np.array(back, bool)]
    return left


def _compared(table: np.ndarray, norms: np.ndarray, valid: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the reference rows, and the proximity and cosine of every row to their mean, the row itself excluded."""
    distance, cosine = np.zeros(len(table)), np.zeros(len(table))
    count = min(max(_FEWEST_REFERENCES, round(_REFERENCE_SHARE * len(valid))), len(valid) // 2)
    if count < 2:
        return np.arange(0), np.zeros(len(table)), cosine
    references = valid[np.argsort(norms[valid], kind="stable")[:count]]
    mean = selected_rows(table, valid).mean(axis=0, dtype=np.float64)
    rows = table[references].astype(np.float64)
    center, directions = rows.mean(axis=0), _directions(rows - mean)
    total = directions.sum(axis=0)
    for block in row_blocks(len(valid), _BLOCK):
        part = valid[block]
        distance[part] = np.linalg.norm(table[part] - center, axis=1)
        cosine[part] = _directions(table[part] - mean) @ total / max(np.linalg.norm(total), 1e-300)
    # A reference row is part of the mean; its distance from the mean of the others is n / (n - 1) times as large.
    distance[references] *= count / (count - 1)
    cosine[references] = (directions * _directions(total - directions)).sum(axis=1)
    typical, proximity = float(np.median(distance[valid])), np.zeros(len(table))
    if typical:
        proximity[valid] = 1 - distance[valid] / typical
    return references, proximity, cosine


def far_below(values: Float[np.ndarray, " rows"]) -> Int64[np.ndarray, " below"]:
    """Return the indices of values far below the others, the least first: under half of their median, behind a gap.

    Where values follow a power law, as norms do that depend on a token's frequency, the gap of their logarithms above
    the i-th least, times i, is exponential with the scale of the law. A gap counts if, with a scale estimated from the
    quartiles, any as wide occurs in one of a thousand such tables; normal rows, and most others, have fewer.

    Examples:
        >>> far_below(np.append(np.linspace(0.7, 1.3, 40), [0.1, 0.02]))
        array([41, 40])
    """
    order = np.argsort(values, kind="stable")
    logs = np.log(np.maximum(values[order], np.finfo(np.float64).tiny))
    below = 0
    # The clearest gap first: rows beneath one gap must not make that above the next row look surer than it is.
    while len(rest := logs[below:]) >= FEWEST_TO_COMPARE:
        first, median, third = np.quantile(rest, [0.25, 0.5, 0.75])
        # Half of the spacings estimate the scale; 0.4 keeps the promise of _CHANCE in tables of any size.
        rank, spacings = np.arange(1, len(rest)), 0.4 * len(rest)
        gaps = np.where(rest[:-1] < median - log(2), rank * np.diff(rest), 0) / max((third - first) / log(3), 1e-9)
        surprise = gaps / (spacings * ((rank * (rank + 1) / _CHANCE) ** (1 / spacings) - 1))
        best = int(surprise.argmax())
        if surprise[best] < 1:
            break
        below += best + 1
    return order[:below]


def _distances(table: np.ndarray, typical: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Return the distance of every valid row from the mean of the typical ones."""
    distances = np.zeros(len(table))
    mean = selected_rows(table, typical).mean(axis=0, dtype=np.float64) if len(typical) else np.zeros(table.shape[1])
    for block in row_blocks(len(valid), _BLOCK):
        distances[valid[block]] = np.linalg.norm(table[valid[block]] - mean, axis=1)
    return distances


def _directions(rows: np.ndarray) -> np.ndarray:
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(sizes > 0, sizes, 1.0)


def _threshold(cosines: np.ndarray) -> float:
    if not len(cosines):
        return _MIN_COSINE
    median = float(np.median(cosines))
    return max(_MIN_COSINE, median + _MAX_DEVIATION * 1.4826 * float(np.median(np.abs(cosines - median))))


def _duplicates(table: np.ndarray, valid: np.ndarray) -> tuple[tuple[int, ...], ...]:
    # By hash first: keeping the bytes of all rows would take the memory of a second table.
    hashes = np.empty(len(valid), np.int64)
    for part in row_blocks(len(valid), _BLOCK):
        hashes[part] = [hash(row.tobytes()) for row in table[valid[part]]]
    order = np.argsort(hashes, kind="stable")
    repeated = np.flatnonzero(np.diff(hashes[order]) == 0)
    exact: dict[bytes, list[int]] = {}
    for row in np.sort(valid[order[np.union1d(repeated, repeated + 1)]]).tolist():
        exact.setdefault(table[row].tobytes(), []).append(row)
    return tuple(sorted(tuple(rows) for rows in exact.values() if len(rows) > 1))


def hubs(
    table: Float[np.ndarray, "rows dim"], valid: Int64[np.ndarray, " valid"], seed: int = 0, queries: int = 4096
) -> tuple[list[tuple[int, int]], int, float]:
    """Find the rows among the ten nearest neighbors of many others (hubness), of the valid ids.

    The result is the id of each hub and how often it is a neighbor, the number of rows that were searched, and how
    often a row is a neighbor on average.
    """
    if len(valid) < 2 or queries < 1:
        return [], 0, 0.0
    itself = sample_rows(len(valid), queries, seed)
    sample, rows = valid[itself], selected_rows(table, valid)
    near = Search(rows).nearest(table[sample], HUB_NEIGHBORS, without=itself[:, None])
    counts = np.bincount(near.ids.ravel(), minlength=len(valid))
    order = np.argsort(-counts, kind="stable")[:20]
    expected = len(sample) * min(HUB_NEIGHBORS, len(valid) - 1) / len(valid)
    # Without hubs the count is about Poisson, which practically never exceeds ten times the mean plus 10.
    found = [(int(valid[n]), int(counts[n])) for n in order if counts[n] > 10 * expected + 10]
    return found, len(sample), expected


@dataclass(frozen=True)
class InitialScale:
    """An estimate of the standard deviation of the initial values."""

    std: float  # standard deviation of the rows, after subtracting their mean row
    rows: int  # number of rows that were used
    under_trained: bool  # whether these are the under-trained rows; else all, and `std` is that of trained values
    rule: str | None  # the nearest usual initialization; None if none is within 15 %
    expected_std: float | None  # the standard deviation of that initialization
    norm_variation: float  # of the rows' norms, as a multiple of that of normal samples; trained rows differ more

    @property
    def looks_random(self) -> bool:
        """Whether spread and norms of all rows are those of normal samples with the configured standard deviation."""
        as_normal = 1 / _TOLERANCE <= self.norm_variation <= _TOLERANCE
        return as_normal and self.rule == CONFIGURED and not self.under_trained


def initial_scale(
    table: Float[np.ndarray, "rows dim"], under_trained: Int64[np.ndarray, " ids"], configured: float | None = None
) -> InitialScale:
    """Estimate the standard deviation of the initial values from under-trained rows, and name the usual value nearby.

    Such rows keep their initial values but for updates that are common to all of them, so their mean is subtracted.
    """
    _require_table(table)
    selected = len(under_trained) >= _FEWEST_UNDER_TRAINED
    rows, squares = table[under_trained].astype(np.float64) if selected else table, 0.0
    mean = np.zeros(table.shape[1])
    for part in row_blocks(len(rows), _BLOCK):  # without converting a large table
        mean += rows[part].sum(axis=0, dtype=np.float64) / len(rows)
    for part in row_blocks(len(rows), _BLOCK):
        squares += float(((rows[part] - mean) ** 2).sum())
    std = sqrt(squares / (max(len(rows) - 1, 1) * rows.shape[1]))
    usual = {} if configured is None else {CONFIGURED: configured}
    usual |= {
        "as in BERT and GPT-2": 0.02,
        "as in PyTorch and T5": 1.0,
        "1 / sqrt(dim)": 1 / sqrt(table.shape[1]),
        "sqrt(2 / (5 dim)), as in GPT-NeoX": sqrt(2 / (5 * table.shape[1])),
    }
    ratios = {rule: max(std / value, value / std) for rule, value in usual.items() if value > 0 and std > 0}
    best = min(ratios, key=lambda rule: ratios[rule], default=None)
    best = None if best is None or ratios[best] > _TOLERANCE else best
    norms = row_norms(rows)
    variation = float(norms.std() / norms.mean() * sqrt(2 * rows.shape[1])) if norms.any() else nan
    return InitialScale(std, len(rows), selected, best, None if best is None else usual[best], variation)
