"""The vectors added for positions: their statistics, and the share of the first layer's input that they explain."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.diagnostics import far_below
from whatwhere.analysis.pca import Spectrum, spectrum
from whatwhere.analysis.subject import NoData, Subject
from whatwhere.errors import ShapeError
from whatwhere.large_arrays import finite_rows
from whatwhere.models.model_text import token_factor
from whatwhere.models.parameter_count import are_sinusoids

_OUTSIDE, _LEAST = 6.0, 0.25
"""Robust standard deviations, and the share of the median, by which an outlier differs at least."""
_FEWEST = 16  # positions from which on a usual one is known
_FEWEST_UNTRAINED = 4  # rows at the end from which on training is said to have stopped before them; fewer are outliers


@dataclass(frozen=True, eq=False)
class TrainedPositions:
    """Statistics of a learned position table."""

    norms: Float[np.ndarray, " rows"]  # of each row
    neighbor_cosine: Float[np.ndarray, " rows"]  # of each row and that of its two neighbors which it resembles more
    outliers: Int64[np.ndarray, " outliers"]  # trained rows unlike others in norm, distance from the mean or neighbors
    spectrum: Spectrum  # of its variance along principal axes
    by_distance: Float[np.ndarray, " distances"]  # mean cosine of two rows at each distance 0, 1, ...
    shift: float | None  # held-out R^2 of one linear map from row p to row p + 1; None for tables of fewer than 64 rows
    trained: int  # number of positions that seem to be trained: later rows do not resemble their neighbors


def trained_positions(table: Float[np.ndarray, "rows dim"]) -> TrainedPositions:
    """Return statistics of a learned position table: norms, spectrum, cosines, and how many positions look trained.

    Args:
        table: row p for position p, without rows that no position reads, such as the first two of OPT.

    Raises:
        ShapeError: If the table is not two-dimensional, or has fewer than two rows.

    Examples:
        >>> angles = np.arange(200)[:, None] * np.array([[0.1, 0.02]])
        >>> circle = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        >>> round(trained_positions(circle).shift, 4)
        1.0
    """
    if table.ndim != 2 or len(table) < 2 or table.shape[1] < 1:
        raise ShapeError(
            f"a table of positions has shape (rows, dim) with two rows or more, but this one {table.shape}."
        )
    rows = table.astype(np.float64)
    norms = np.linalg.norm(rows, axis=1)
    size = norms[1:] * norms[:-1]
    cosines = np.divide((rows[1:] * rows[:-1]).sum(axis=1), size, out=np.zeros(len(rows) - 1), where=size > 0)
    near = np.maximum(np.append(cosines, -1), np.append(-1, cosines))
    trained = _trained(cosines)
    distances = np.linalg.norm(rows[:trained] - rows[:trained].mean(axis=0), axis=1)
    outside = _differs(near[:trained]) & (near[:trained] < np.median(near[:trained]))
    for values in (norms[:trained], distances):
        outside |= _differs(values)
        outside[far_below(values)] = True  # where the spread is wide, no norm is 6 deviations below the median
    return TrainedPositions(
        norms, near, np.flatnonzero(outside), spectrum(rows), _by_distance(rows, norms), _shift(rows), trained
    )


def _differs(values: np.ndarray) -> np.ndarray:
    """Return which values differ much from their median; of few, none does."""
    if len(values) < _FEWEST:
        return np.zeros(len(values), bool)
    median = np.median(values)
    deviation = np.abs(values - median)
    outside: np.ndarray = deviation > max(_OUTSIDE * 1.4826 * np.median(deviation), _LEAST * abs(median))
    return outside


def _by_distance(rows: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Compute the mean of each diagonal of the matrix of cosines, by Fourier transforms."""
    units = rows / np.where(norms > 0, norms, 1.0)[:, None]
    n = len(units)
    size = 1 << (2 * n - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for column in units.T:  # sum over features of the autocorrelation
        power += np.abs(np.fft.rfft(column, size)) ** 2
    correlation = np.fft.irfft(power, size)[:n]
    return correlation / (n - np.arange(n))


def _shift(rows: np.ndarray) -> float | None:
    """Compute R^2 of row p + 1 = M row p + b on blocks of a quarter of the positions, fitted on the others."""
    if len(rows) < 64:
        return None
    inputs = np.concatenate([rows[:-1], np.ones((len(rows) - 1, 1))], axis=1)
    targets = rows[1:]
    test = np.arange(len(targets)) // 8 % 4 == 3
    # Ridge regression: with fewer positions than features, plain least squares would fit any table.
    gram = inputs[~test].T @ inputs[~test]
    ridge = 1e-3 * np.trace(gram) / len(gram) * np.eye(len(gram))
    fitted = np.linalg.solve(gram + ridge, inputs[~test].T @ targets[~test])
    rest = targets[test] - inputs[test] @ fitted
    spread = targets[test] - targets[~test].mean(axis=0)
    total = float((spread**2).sum())
    return 1 - float((rest**2).sum()) / total if total else None


def _trained(cosines: np.ndarray) -> int:
    """Return the position from which on rows no longer resemble their neighbors, or the number of rows."""
    # The cosines are split in two in the best way; it counts only if that explains most of their variance.
    n = len(cosines) + 1
    if n < _FEWEST:
        return n
    total, count = np.cumsum(cosines), np.arange(1, n)
    before = total[:-1] / count[:-1]
    after = (total[-1] - total[:-1]) / (n - 1 - count[:-1])
    between = count[:-1] * (n - 1 - count[:-1]) / (n - 1) ** 2 * (before - after) ** 2
    best = int(between.argmax())
    breaks = between[best] > 0.75 * cosines.var() and before[best] - after[best] > 0.25
    return best + 2 if breaks and n - (best + 2) >= _FEWEST_UNTRAINED else n


_MAX_POSITIONS = 4096
_MAX_DISTANCES = 1024


@dataclass(frozen=True, eq=False)
class PositionTable(TrainedPositions):
    """The vectors that are added for positions. Inherits what was computed: norms, outliers, spectrum and so on."""

    learned: bool  # whether they are learned; else a fixed scheme's
    tensor: str | None  # the table of the file, if they are stored
    positions: int
    offset: int | None  # the row that position 0 reads; None where that is not known
    examined: int  # positions that the computations cover, from 0 on
    dim: int
    median_norm: float


def positions(subject: Subject) -> PositionTable:
    """Compute the similarities, norms and spectrum of the position embedding."""
    try:
        table = subject.positions
    except NoData as problem:
        raise NoData(instead_of_positions(subject, str(problem))) from None
    finite = np.isfinite(table).all(axis=1).sum()
    if finite < len(table) or len(table) < 2:
        raise NoData(f"the position table has {len(table)} rows, {len(table) - finite} of them not finite")
    subject.progress("examining positions")
    trained = trained_positions(table[:_MAX_POSITIONS])
    name = subject.checkpoint.position_table
    return PositionTable(
        **vars(trained) | {"by_distance": trained.by_distance[:_MAX_DISTANCES]},
        learned=name is not None and not are_sinusoids(table), tensor=name, positions=len(table),
        offset=subject.checkpoint.position_offset, examined=min(len(table), _MAX_POSITIONS), dim=table.shape[1],
        median_norm=float(np.median(trained.norms)),
    )  # fmt: skip


def adds_none(subject: Subject) -> bool:
    """Return whether the configuration, or the scheme of a run, shows that no position embedding is added."""
    try:
        if subject.checkpoint.format == "run":
            return subject.run[0].where.input is None
        return subject.description.input is None
    except NoData:
        return False


def instead_of_positions(subject: Subject, reason: str) -> str:
    """Return why there is no position embedding, and what encodes positions instead."""
    if not adds_none(subject):
        return reason
    order = "every position is treated alike"
    if subject.checkpoint.format == "run":
        where = subject.run[0].where
        names = {type(scheme).__name__ for scheme in (where.query_key, where.score, where.window) if scheme is not None}
    else:
        description = subject.description
        names = {plan.class_name for plan in (*description.query_key, *description.score) if plan is not None}
        names |= {type(window).__name__ for window in description.windows if window is not None}
        order = next(
            (note for note in description.notes if "have no attention" in note or "no layer has" in note), order
        )
        curves = [curve for curve in description.temperatures if curve is not None]
        names |= {"QueryTemperature" if curve.is_curve else curve.class_name for curve in curves}
    if not names:
        return f"this model has no positional encoding: {order}"
    *others, last = sorted(names)
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{reason}: positions enter its attention, by {listed}"


# What versus where: shares of the variance

_SAMPLE, _BLOCK = 512, 16
"""Tokens and positions at most that the variance is split over; tokens that are computed at once."""
_NORMS = (
    "embeddings.LayerNorm.weight", "embeddings.layer_norm.weight", "token_embd_norm.weight",
    "decoder.layernorm_embedding.weight", "layernorm_embedding.weight", "h.0.ln_1.weight", "blk.0.attn_norm.weight",
    "layers.0.self_attn_layer_norm.weight", "blocks.0.norm_attention.weight",
)  # fmt: skip
"""Suffixes of the name of the gain of the first normalization that the sum of token and position passes."""


@dataclass(frozen=True)
class VarianceSplit:
    """Shares of the variance, which sum to 1."""

    token: float  # explained by the token, whatever its position
    position: float  # explained by the position, whatever the token
    interaction: float  # the rest, which depends on both because of the normalization
    mean_abs_cosine: float  # of the effect of a token and that of a position: 0 if their directions are orthogonal


@dataclass(frozen=True)
class InputVariance(VarianceSplit):
    """Shares of the variance of the first layer's input, and how they were computed."""

    norm: str | None  # name of the gain of the first normalization; None where a plain one was used, for none was found
    scale: float  # factor of the token embeddings
    scale_known: bool  # whether the configuration gives it; else it is 1
    tokens: int  # sampled
    positions: int  # sampled


def variance_split(
    tokens: Float[np.ndarray, "rows dim"],
    positions: Float[np.ndarray, "positions dim"],
    *,
    scale: float = 1.0,
    normalize: bool = True,
    gain: Float[np.ndarray, " dim"] | None = None,
    shift: Float[np.ndarray, " dim"] | None = None,
    added: Float[np.ndarray, " dim"] | None = None,
    seed: int = 0,
) -> VarianceSplit:
    """Return how the variance of x(t, p) = norm(s E[t] + P[p] + added) splits over tokens t and positions p.

        x(t, p) - mean = token(t) + position(p) + interaction(t, p)        a two-way analysis of variance

    The three parts are orthogonal, so their variances sum to that of x. At most 512 tokens and 512 positions are
    sampled uniformly: every token has the same weight, whatever its frequency in texts.

    Args:
        tokens, positions: the two tables.
        scale: s, of the token rows.
        normalize: normalize each x to mean 0 and variance 1, like the first LayerNorm.
        gain, shift: weight and bias of that LayerNorm; None for 1 and 0.
        added: a vector that is added to all, such as a segment embedding.
        seed: of the samples.

    Raises:
        ShapeError: If the tables are not two-dimensional, or have different dims.

    Examples:
        >>> e = np.array([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]])
        >>> p = np.array([[0.0, 1.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]])
        >>> variance_split(e, p, normalize=False)
        VarianceSplit(token=0.5, position=0.5, interaction=0.0, mean_abs_cosine=0.0)
    """
    if tokens.ndim != 2 or positions.ndim != 2 or tokens.shape[1] != positions.shape[1]:
        raise ShapeError(f"tokens {tokens.shape} and positions {positions.shape} need the same dim, and two axes each.")
    g = np.random.default_rng(seed)
    what = _sample(tokens, g) * scale
    where = _sample(positions, g)
    constant = 0.0 if added is None else added.astype(np.float64)
    by_token, by_position, squares = np.zeros_like(what), np.zeros_like(where), 0.0
    for first in range(0, len(what), _BLOCK):
        x = what[first : first + _BLOCK, None] + where + constant  # (tokens, positions, dim)
        if normalize:
            x -= x.mean(axis=-1, keepdims=True)
            x /= np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)
            x *= 1.0 if gain is None else gain.astype(np.float64)
            x += 0.0 if shift is None else shift.astype(np.float64)
        by_token[first : first + _BLOCK] = x.mean(axis=1)
        by_position += x.sum(axis=0) / len(what)
        squares += float((x**2).sum()) / (len(what) * len(where))
    mean = by_token.mean(axis=0)
    by_token, by_position = by_token - mean, by_position - mean
    total = squares - float((mean**2).sum())
    if total <= 0:
        return VarianceSplit(0.0, 0.0, 0.0, 0.0)
    token, position = (float((part**2).sum(axis=-1).mean()) / total for part in (by_token, by_position))
    return VarianceSplit(token, position, max(0.0, 1 - token - position), _mean_abs_cosine(by_token, by_position))


def variance(subject: Subject) -> InputVariance:
    """Return the shares of the variance of the first layer's input that tokens and positions explain."""
    try:
        added = subject.positions
    except NoData as problem:
        alone = "; so the first layer's input is the token embedding alone" if adds_none(subject) else ""
        raise NoData(instead_of_positions(subject, str(problem)) + alone) from None
    table = subject.table
    if added.shape[1] != table.shape[1]:
        raise NoData(f"tokens have {table.shape[1]} features and positions {added.shape[1]}: a projection is between")
    if not np.isfinite(added).any() or not len(subject.usable):
        raise NoData("no row holds finite numbers")
    subject.progress("splitting the variance of tokens and positions")
    gain, shift, norm = _first_norm(subject, table.shape[1])
    types = subject.checkpoint.segment_table
    first_type = None if types is None else subject.checkpoint.array(types, rows=[0])[0]
    factor = token_factor(subject.checkpoint)
    split = variance_split(
        table, added, scale=factor or 1.0, gain=gain, shift=shift, added=first_type, seed=subject.seed
    )
    return InputVariance(
        **vars(split), norm=norm, scale=factor or 1.0, scale_known=factor is not None, tokens=min(_SAMPLE, len(table)),
        positions=min(_SAMPLE, len(added)),
    )  # fmt: skip


def _first_norm(
    subject: Subject, dim: int
) -> tuple[Float[np.ndarray, " dim"] | None, Float[np.ndarray, " dim"] | None, str | None]:
    """Return gain, shift and name of the first normalization that the sum of token passes; None without."""
    for end in _NORMS:
        gain, shift = (subject.optional(end.removesuffix("weight") + part) for part in ("weight", "bias"))
        if gain is not None and gain.shape == (dim,):
            return gain, shift if shift is not None and shift.shape == (dim,) else None, end
    return None, None, None


def _sample(table: np.ndarray, g: np.random.Generator) -> np.ndarray:
    rows = np.flatnonzero(finite_rows(table))
    if len(rows) > _SAMPLE:
        rows = np.sort(g.choice(rows, _SAMPLE, replace=False))
    return table[rows].astype(np.float64)


def _mean_abs_cosine(u: np.ndarray, v: np.ndarray) -> float:
    norms = np.linalg.norm(u, axis=1)[:, None] * np.linalg.norm(v, axis=1)
    inner = np.abs(u @ v.T)
    return float(np.divide(inner, norms, out=np.zeros_like(inner), where=norms > 0).mean())
