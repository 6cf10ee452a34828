"""The token table of the expressions task through the training, beside the numbers of the first tutorial."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.pca import principal_components
from whatwhere.claims.preconditions import AUTHORS_RECIPE
from whatwhere.comparison.read import AFTER, BEFORE, Comparison
from whatwhere.comparison.results import RunResult, Spread, TableSnapshot, spread

Quantity = Literal[
    "mean",
    "std",
    "range",
    "range with positions",
    "max_min",
    "first_last",
    "within_digits",
    "within_operators",
    "within_syntax",
    "number_line",
]

TUTORIAL: dict[Quantity, str] = {
    "mean": "about 0 throughout",
    "std": "0.15, then 0.5, then 0.8",
    "range": "±0.3, then ±1.5, then ±2.5",
    "range with positions": "±1.3 at first, ±3 after training",
    "max_min": "they become similar",
    "first_last": "not named; operators cluster",
    "within_digits": "digits cluster",
    "within_operators": "operators cluster",
    "within_syntax": "syntax tokens cluster",
    "number_line": "not mentioned",
}
"""What the first tutorial reports of its table of 20 x 64, at 0, 10 and 50 epochs of 50."""

_DIGITS = "0123456789"


@dataclass(frozen=True)
class TableRow:
    """One quantity of the token table.

    Args:
        quantity: its name; of a range, `low` and `high` are the two ends.
        low: by snapshot, the spread over all runs; None where no run has it.
        high: likewise; equal to `low` where the quantity is a single number.
        tutorial: what the tutorial reports of it.
    """

    quantity: Quantity
    low: Sequence[Spread | None]
    high: Sequence[Spread | None]
    tutorial: str


@dataclass(frozen=True)
class TokenTable:
    """The token table of all runs, at shares of the steps.

    Args:
        percents: of the steps, one for each snapshot.
        runs: how many runs the spreads are over.
        rows: one for each quantity.
        authors: whether the runs have the tutorial's 50 epochs, beside which its numbers can be set.
    """

    percents: Sequence[int]
    runs: int
    rows: Sequence[TableRow]
    authors: bool

    def __getitem__(self, quantity: Quantity) -> TableRow:
        """Return the row of a quantity."""
        return next(row for row in self.rows if row.quantity == quantity)


@dataclass(frozen=True, eq=False)
class NumberLine:
    """The digits along the first principal axis of what training wrote into them, E - E0.

    Args:
        scheme: of the run, which is that of the first seed.
        coordinates: of the digits 0 to 9; greater digits tend to the right.
        r: absolute correlation of digit and coordinate.
    """

    scheme: str
    coordinates: Float[np.ndarray, " digits"]
    r: float


def token_table(results: Comparison) -> TokenTable | None:
    """Summarize the token table through the training, over all runs.

    Args:
        results: of a comparison.

    Returns:
        The summary; None where the task is not the expressions.
    """
    with_table = [run for run in results.runs if run.token_table]
    if not with_table:
        return None
    runs = [run.token_table for run in with_table]
    percents = [snapshot.percent for snapshot in runs[0]]
    by_percent = [[s for snapshots in runs for s in snapshots if s.percent == percent] for percent in percents]
    rows = []
    for quantity, tutorial in TUTORIAL.items():
        read = [lambda s, q=quantity, side=side: _value(s, q, side) for side in ("low", "high")]
        low, high = ([_spread(snapshots, reader) for snapshots in by_percent] for reader in read)
        rows.append(TableRow(quantity, low, high, tutorial))
    return TokenTable(percents, len(runs), rows, all(AUTHORS_RECIPE.met(results, run) for run in with_table))


def number_lines(results: Comparison) -> list[NumberLine]:
    """Compute the number line of the first seed of each scheme, except for runs whose tables are not saved.

    Args:
        results: of a comparison.

    Raises:
        ResultsError: If a file of the folder is damaged.
    """
    tokens = list(results.task.tokens)
    digits = [tokens.index(digit) for digit in _DIGITS if digit in tokens]
    if len(digits) < len(_DIGITS) or not any(run.token_table for run in results.runs):
        return []
    lines = (_number_line(results, run, digits) for run in first_runs(results))
    return [line for line in lines if line is not None]


def first_runs(results: Comparison) -> list[RunResult]:
    """Return the run of the first seed of each scheme, in the order of the schemes."""
    first: dict[str, RunResult] = {}
    for run in sorted(results.runs, key=lambda run: run.seed):
        first.setdefault(run.scheme, run)
    return [first[scheme] for scheme in results.schemes if scheme in first]


def _number_line(results: Comparison, run: RunResult, digits: Sequence[int]) -> NumberLine | None:
    tables = results.tables(run)
    if not {BEFORE, AFTER} <= tables.keys() or max(digits) >= len(tables[AFTER]):
        return None
    change = (tables[AFTER] - tables[BEFORE])[list(digits)]
    coordinates = principal_components(change, 1).coordinates[:, 0]
    r = float(np.corrcoef(coordinates, np.arange(len(digits)))[0, 1]) if np.ptp(coordinates) else 0.0
    # The sign of a principal axis is arbitrary.
    return NumberLine(run.scheme, -coordinates if r < 0 else coordinates, abs(r))


def _spread(snapshots: Sequence[TableSnapshot], read: Callable[[TableSnapshot], float | None]) -> Spread | None:
    return spread(value for value in map(read, snapshots) if value is not None)


def _value(snapshot: TableSnapshot, quantity: Quantity, side: str) -> float | None:
    if quantity == "number_line":
        return snapshot.number_line
    if quantity in ("range", "range with positions"):
        numbers = snapshot.table if quantity == "range" else snapshot.with_positions
        return None if numbers is None else numbers.min if side == "low" else numbers.max
    if quantity in ("mean", "std"):
        return float(getattr(snapshot.table, quantity))
    value: float | None = getattr(snapshot.cosines, quantity)
    return value
