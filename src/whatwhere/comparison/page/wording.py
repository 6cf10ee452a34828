"""Put scores into words and cells, the same way everywhere on the page."""

import math
from collections.abc import Iterable, Sequence

from whatwhere.comparison.page.reading import Results, Spread
from whatwhere.page.markup import Markup, element, join
from whatwhere.page.wording import listed, plain

NO_ROW = element("span", "no row", class_="unknown")


def score_text(results: Results, value: float, unit: bool = False) -> str:
    """Write a score for a sentence: always with its %, with the name of another unit where asked."""
    if not math.isfinite(value):
        return "not finite"
    named = f"\u00a0{results.task['measure']}" if unit else ""  # a number keeps its unit on its line
    return f"{100 * value:.1f}\u00a0%" if results.percent else f"{value:.3f}{named}"


def score_cell(results: Results, found: Spread | None) -> Markup:
    """Write median and range of a score, without its unit; the caption names it."""
    return spread_cell(found, 100.0, 1) if results.percent else spread_cell(found, 1.0, 3)


def spread_cell(found: Spread | None, factor: float = 1.0, digits: int = 3) -> Markup:
    """Write a median, and below it the range where seeds differ."""
    if found is None:
        return NO_ROW
    middle, least, greatest = (plain(value * factor, digits) for value in found)
    if least == greatest:
        return join(middle)
    return join(middle, element("small", f"{least} to {greatest}"))


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Compute median, least and greatest of what is there."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    half = len(found) // 2
    median = found[half] if len(found) % 2 else (found[half - 1] + found[half]) / 2
    return median, found[0], found[-1]


def run_of(lengths: Sequence[int]) -> str:
    """Write lengths as a stretch where they are one.

    >>> run_of([1, 2, 3]), run_of([64]), run_of([8, 16])
    ('1 to 3', '64', '8 and 16')
    """
    if len(lengths) > 2 and list(lengths) == list(range(lengths[0], lengths[-1] + 1)):
        return f"{lengths[0]} to {lengths[-1]}"
    return str(listed([str(length) for length in lengths]))


def measure(results: Results) -> str:
    """Name the measure, with its unit and its better side."""
    side = "higher" if results.higher else "lower"
    return f"{results.task['measure']}{' in %' if results.percent else ''}; {side} is better"
