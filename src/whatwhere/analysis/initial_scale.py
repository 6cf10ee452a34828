"""Guess how wide a token table was drawn before training."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.errors import ShapeError

_FEWEST = 8
_NEAR = 1.15
"""Weight decay and a few steps move the spread of rows that no text reached by some percent."""


@dataclass(frozen=True)
class InitialScale:
    """Hold the guess and what it rests on.

    Args:
        spread: standard deviation of a number of the rows looked at, each less their mean row.
        rows: how many were looked at.
        untouched: whether these are rows that training seems never to have reached; else all of them, and the spread
            is that of today.
        rule: the usual initial spread that is nearest, or None where none is within 15 %.
        expected: what that rule says.
    """

    spread: float
    rows: int
    untouched: bool
    rule: str | None
    expected: float | None


def initial_scale(
    table: Float[np.ndarray, "rows dim"], untouched: Int64[np.ndarray, " untouched"], configured: float | None = None
) -> InitialScale:
    """Guess the spread of the initial draw from rows that training left alone.

    Such rows keep their initial numbers, but for what decay and the optimizer did to all of them alike; so their common
    mean is taken away first. Compared with what is usual: the configuration's own, 0.02 (BERT, GPT-2), 1 (PyTorch,
    T5), 1 / sqrt(dim), and sqrt(2 / (5 dim)) (GPT-NeoX).

    Args:
        table: one row for each token, finite numbers.
        untouched: ids of rows that no training reached, as `health` finds them; with fewer than 8 all rows are taken.
        configured: what the configuration calls initializer_range, or None.

    >>> g = np.random.default_rng(0)
    >>> table = np.concatenate([0.02 * g.standard_normal((40, 64)), g.standard_normal((60, 64))])
    >>> initial_scale(table, np.arange(40)).rule
    'as BERT and GPT-2 draw'
    """
    if table.ndim != 2 or 0 in table.shape:
        raise ShapeError(f"a token table has shape (rows, dim), but this one {table.shape}.")
    alone = len(untouched) >= _FEWEST
    rows = table[untouched].astype(np.float64) if alone else table
    spread = _spread(rows)
    usual = {} if configured is None else {"the configuration's initializer_range": configured}
    usual |= {
        "as BERT and GPT-2 draw": 0.02,
        "as PyTorch and T5 draw": 1.0,
        "1 / sqrt(dim)": 1 / sqrt(table.shape[1]),
        "sqrt(2 / (5 dim)), as GPT-NeoX draws": sqrt(2 / (5 * table.shape[1])),
    }
    near = {rule: max(spread / value, value / spread) for rule, value in usual.items() if value > 0 and spread > 0}
    best = min(near, key=lambda rule: near[rule], default=None)
    if best is None or near[best] > _NEAR:
        return InitialScale(spread, len(rows), alone, None, None)
    return InitialScale(spread, len(rows), alone, best, usual[best])


def _spread(rows: np.ndarray) -> float:
    """Give the root of the mean square of rows less their mean row, by blocks: a large table is never widened whole."""
    count, size = len(rows), 4096
    blocks = [rows[first : first + size] for first in range(0, count, size)]
    mean = sum((block.sum(axis=0, dtype=np.float64) for block in blocks), np.zeros(rows.shape[1])) / count
    squares = sum(float(((block - mean) ** 2).sum()) for block in blocks)
    return sqrt(squares / (max(count - 1, 1) * rows.shape[1]))
