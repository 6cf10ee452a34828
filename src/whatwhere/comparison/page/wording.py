"""Put measured numbers into words and cells, the same way everywhere on the page."""

import math
from collections.abc import Iterable, Sequence

from whatwhere.comparison.page.markup import Markup, element, join
from whatwhere.comparison.page.reading import Results, Spread

NO_ROW = element("span", "no row", class_="unknown")


def code(name: str) -> Markup:
    """Set a name apart from the sentence around it. The middle of a very long one is left out."""
    return element("code", name if len(name) <= 48 else f"{name[:36]}\u2026{name[-11:]}")


def listed(parts: Sequence[str]) -> Markup:
    """Write a, b and c."""
    if len(parts) < 2:
        return join(*parts)
    commas = [piece for part in parts[:-2] for piece in (part, ", ")]
    return join(*commas, parts[-2], " and ", parts[-1])


def plain(value: float, digits: int = 3) -> str:
    """Write a number with a true minus sign.

    >>> plain(-0.21)
    '−0.210'
    """
    if not math.isfinite(value):
        return "not finite"
    written = f"{value:.{digits}f}"
    return (written if float(written) else written.lstrip("-")).replace("-", "−")


def small(value: float) -> Markup:
    """Write a number that may be tiny, with two digits that count."""
    if not math.isfinite(value):
        return join("not finite")
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return join(f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}")
    mantissa, exponent = f"{value:.1e}".split("e")
    return join(f"{mantissa} × 10", element("sup", str(int(exponent)).replace("-", "−")))


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


def count(number: int, one: str, many: str = "") -> str:
    """Write 1 seed, 3 seeds."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def measure(results: Results) -> str:
    """Name the measure, with its unit and its better side."""
    side = "higher" if results.higher else "lower"
    return f"{results.task['measure']}{' in %' if results.percent else ''}; {side} is better"
