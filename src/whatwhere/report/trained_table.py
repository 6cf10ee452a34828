"""What training wrote into the token table of the expressions task: in numbers, and the ten digits on a line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.pca import principal_components
from whatwhere.comparison.read import AFTER, BEFORE, Comparison
from whatwhere.comparison.results import RunResult, Spread, Statistics, TableSnapshot, spread
from whatwhere.escape import cut, visible
from whatwhere.report.comparison_sentences import deviation_sentence
from whatwhere.report.section import Paragraph, Part, Section, Table
from whatwhere.report.text import count, decimals
from whatwhere.report.text import spread as spread_text

ABSENT = "–"
_DIGITS = "0123456789"
_NUMBERS: Mapping[str, tuple[int, Callable[[TableSnapshot], float | None]]] = {
    "mean": (3, lambda at: at.table.mean),
    "standard deviation": (3, lambda at: at.table.std),
    "cosine of Max and Min": (2, lambda at: at.cosines.max_min),
    "cosine of First and Last": (2, lambda at: at.cosines.first_last),
    "mean cosine within the digits": (2, lambda at: at.cosines.within_digits),
    "mean cosine within the operators": (2, lambda at: at.cosines.within_operators),
    "mean cosine within ( ) and comma": (2, lambda at: at.cosines.within_syntax),
    "digits on a line, |r|": (2, lambda at: at.number_line),
}
"""Decimals of each quantity, and how it is read from a snapshot."""


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


def sections(results: Comparison) -> list[Section]:
    """Return the section on the token table; none for other tasks than the expressions."""
    table = trained_table(results)
    if table is None:
        return []
    parts: list[Part] = [Paragraph(sentence(results)), table]
    lines = number_lines(results)
    parts += [_lines_table(lines)] if lines else []
    return [Section("token-table", "What training wrote into the token table", parts)]


def trained_table(results: Comparison) -> Table | None:
    """Return the numbers of the token table at shares of the steps, over all runs that recorded them."""
    runs = [run.token_table for run in results.runs if run.token_table]
    if not runs:
        return None
    percents = [snapshot.percent for snapshot in runs[0]]
    at = [[each for snapshots in runs for each in snapshots if each.percent == percent] for percent in percents]
    rows = [
        [name, *(spread_text(_spread(read, snapshots), digits, absent=ABSENT) for snapshots in at)]
        for name, (digits, read) in _NUMBERS.items()
    ]
    rows.insert(2, ["least and greatest value", *(_range([each.table for each in snapshots]) for snapshots in at)])
    with_positions = [[each.with_positions for each in snapshots if each.with_positions] for snapshots in at]
    rows.insert(3, ["the same after adding positions", *map(_range, with_positions)])
    caption = (
        f"The token table after a share of the steps: median over {count(len(runs), 'run')} of all schemes, with least "
        "and greatest."
    )
    return Table(caption, ["quantity", *(f"at {percent} %" for percent in percents)], rows)


def sentence(results: Comparison) -> str:
    """Describe what training did to the token table, where runs recorded it."""
    runs = [run.token_table for run in results.runs if run.token_table]
    first, last = [snapshots[0] for snapshots in runs], [snapshots[-1] for snapshots in runs]
    std, cosine, line = (
        _NUMBERS[name][1] for name in ("standard deviation", "cosine of Max and Min", "digits on a line, |r|")
    )
    parts = []
    if (before := _spread(std, first)) is not None and (after := _spread(std, last)) is not None:
        parts.append(deviation_sentence(before.median, after.median))
    if (before := _spread(cosine, first)) is not None and (after := _spread(cosine, last)) is not None:
        start, end = decimals(before.median, 2), decimals(after.median, 2)
        parts.append(f"the cosine of Max and Min from {start} to {end}")
    if (after := _spread(line, last)) is not None:
        parts.append(f"the digits' order and the direction in which they moved have |r| {spread_text(after, 2)}")
    return f"{'; '.join(parts)}; medians over {count(len(runs), 'run')}."


def number_lines(results: Comparison) -> list[NumberLine]:
    """Compute the number line of the first seed of each scheme, except for runs whose tables are not saved."""
    tokens = list(results.task.tokens)
    digits = [tokens.index(digit) for digit in _DIGITS if digit in tokens]
    if len(digits) < len(_DIGITS) or not any(run.token_table for run in results.runs):
        return []
    lines = (_number_line(results, run, digits) for run in results.first_runs)
    return [line for line in lines if line is not None]


def _number_line(results: Comparison, run: RunResult, digits: list[int]) -> NumberLine | None:
    tables = results.tables(run)
    if not {BEFORE, AFTER} <= tables.keys() or max(digits) >= len(tables[AFTER]):
        return None
    change = (tables[AFTER] - tables[BEFORE])[digits]
    coordinates = principal_components(change, 1).coordinates[:, 0]
    r = float(np.corrcoef(coordinates, np.arange(len(digits)))[0, 1]) if np.ptp(coordinates) else 0.0
    # The sign of a principal axis is arbitrary.
    return NumberLine(run.scheme, -coordinates if r < 0 else coordinates, abs(r))


def _lines_table(lines: list[NumberLine]) -> Table:
    rows = [
        [cut(visible(line.scheme)), *(decimals(float(x), 2) for x in line.coordinates), decimals(line.r, 2)]
        for line in lines
    ]
    caption = "The digits along the first principal axis of what training wrote into them, first seed of each scheme"
    return Table(caption, ["scheme", *_DIGITS, "|r|"], rows, numeric=range(1, 12))


def _spread(read: Callable[[TableSnapshot], float | None], snapshots: Sequence[TableSnapshot]) -> Spread | None:
    return spread(value for value in map(read, snapshots) if value is not None)


def _range(tables: Sequence[Statistics]) -> str:
    """Return the median of the least and of the greatest values of several tables."""
    low, high = spread(each.min for each in tables), spread(each.max for each in tables)
    return ABSENT if low is None or high is None else f"{decimals(low.median, 2)} to {decimals(high.median, 2)}"
