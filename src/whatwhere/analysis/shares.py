"""What against where: how much of the first layer's input is the token's, how much the position's."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.errors import ShapeError

_TOKENS, _POSITIONS, _BLOCK = 512, 512, 16


@dataclass(frozen=True)
class Shares:
    """Hold shares of variance, which sum to 1.

    Args:
        token: explained by which token it is, whatever its position.
        position: explained by where it stands, whatever the token.
        interaction: the rest, which normalization makes of both.
        angle: mean absolute cosine between a token's deviation and a position's: 0 where they use different features.
    """

    token: float
    position: float
    interaction: float
    angle: float


def shares(
    tokens: Float[np.ndarray, "rows dim"],
    positions: Float[np.ndarray, "places dim"],
    *,
    scale: float = 1.0,
    normalize: bool = True,
    gain: Float[np.ndarray, " dim"] | None = None,
    shift: Float[np.ndarray, " dim"] | None = None,
    added: Float[np.ndarray, " dim"] | None = None,
    seed: int = 0,
) -> Shares:
    """Split the variance of x(t, p) = norm(s E[t] + P[p] + added) over tokens t and positions p.

        x(t, p) - mean = token(t) + position(p) + interaction(t, p)        a two-way analysis of variance

    The three parts are orthogonal, so their variances sum to that of x. Tokens and positions are sampled evenly; each
    token counts alike, as rare ones do not in a text.

    Args:
        tokens, positions: the two tables.
        scale: s, of the token rows.
        normalize: take x to mean 0 and variance 1 by vector, as the first LayerNorm does.
        gain, shift: of that LayerNorm; None for 1 and 0.
        added: to all, such as a row of token types.
        seed: of the samples.

    >>> e = np.array([[1.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0]])
    >>> p = np.array([[0.0, 1.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0]])
    >>> shares(e, p, normalize=False)
    Shares(token=0.5, position=0.5, interaction=0.0, angle=0.0)
    """
    if tokens.ndim != 2 or positions.ndim != 2 or tokens.shape[1] != positions.shape[1]:
        raise ShapeError(f"tokens {tokens.shape} and positions {positions.shape} need one dim, and two axes each.")
    g = np.random.default_rng(seed)
    what = _sample(tokens, _TOKENS, g) * scale
    where = _sample(positions, _POSITIONS, g)
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
    middle = by_token.mean(axis=0)
    by_token, by_position = by_token - middle, by_position - middle
    total = squares - float((middle**2).sum())
    if total <= 0:
        return Shares(0.0, 0.0, 0.0, 0.0)
    token, position = (float((part**2).sum(axis=-1).mean()) / total for part in (by_token, by_position))
    return Shares(token, position, max(0.0, 1 - token - position), _angle(by_token, by_position))


def _sample(table: np.ndarray, count: int, g: np.random.Generator) -> np.ndarray:
    rows = np.flatnonzero(np.isfinite(table).all(axis=1))
    if len(rows) > count:
        rows = np.sort(g.choice(rows, count, replace=False))
    return table[rows].astype(np.float64)


def _angle(u: np.ndarray, v: np.ndarray) -> float:
    sizes = np.linalg.norm(u, axis=1)[:, None] * np.linalg.norm(v, axis=1)
    inner = np.abs(u @ v.T)
    return float(np.divide(inner, sizes, out=np.zeros_like(inner), where=sizes > 0).mean())
