"""What versus where: the share of variance of the first layer's input that token and position explain."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.position_table import adds_none, instead_of_positions
from whatwhere.analysis.subject import Absent, Subject
from whatwhere.errors import ShapeError
from whatwhere.large_arrays import finite_rows
from whatwhere.models.model_text import token_factor

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
    """Shares of the variance, which sum to 1.

    Args:
        token: explained by the token, whatever its position.
        position: explained by the position, whatever the token.
        interaction: the rest, which depends on both because of the normalization.
        mean_abs_cosine: of the effect of a token and that of a position: 0 if their directions are orthogonal.
    """

    token: float
    position: float
    interaction: float
    mean_abs_cosine: float


@dataclass(frozen=True)
class InputVariance(VarianceSplit):
    """Shares of the variance of the first layer's input, and how they were computed.

    Args:
        norm: name of the gain of the first normalization; None where a plain one was used, for none was found.
        scale: factor of the token embeddings.
        scale_known: whether the configuration gives it; else it is taken as 1.
        tokens, positions: how many were sampled.
    """

    norm: str | None
    scale: float
    scale_known: bool
    tokens: int
    positions: int


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
    """Split the variance of x(t, p) = norm(s E[t] + P[p] + added) over tokens t and positions p.

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

    Returns:
        The share of each part.

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
    except Absent as problem:
        alone = "; so the first layer's input is the token embedding alone" if adds_none(subject) else ""
        raise Absent(instead_of_positions(subject, str(problem)) + alone) from None
    table = subject.table
    if added.shape[1] != table.shape[1]:
        raise Absent(f"tokens have {table.shape[1]} features and positions {added.shape[1]}: a projection is between")
    if not np.isfinite(added).any() or not len(subject.usable):
        raise Absent("no row holds finite numbers")
    subject.progress("splitting the variance of tokens and positions")
    gain, shift, norm = first_norm(subject, table.shape[1])
    types = subject.checkpoint.segment_table
    first_type = None if types is None else subject.checkpoint.array(types, rows=[0])[0]
    factor = token_factor(subject.checkpoint)
    split = variance_split(
        table,
        added,
        scale=factor or 1.0,
        gain=gain,
        shift=shift,
        added=first_type,
        seed=subject.seed,
    )
    return InputVariance(
        **vars(split),
        norm=norm,
        scale=factor or 1.0,
        scale_known=factor is not None,
        tokens=min(_SAMPLE, len(table)),
        positions=min(_SAMPLE, len(added)),
    )


def first_norm(
    subject: Subject, dim: int
) -> tuple[Float[np.ndarray, " dim"] | None, Float[np.ndarray, " dim"] | None, str | None]:
    """Return gain, shift and name of the first normalization that the sum of token passes; None without."""
    for end in _NORMS:
        gain = subject.optional([end])
        if gain is not None and gain.shape == (dim,):
            shift = subject.optional([end.removesuffix("weight") + "bias"])
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
