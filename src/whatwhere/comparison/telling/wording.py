"""Put names, numbers and scores into words, the same way everywhere."""

import math
from collections.abc import Iterable, Sequence

from whatwhere.comparison.reading import Results, Spread
from whatwhere.page.markup import visible

NO_ROW = "no row"
_LONGEST, _BEGIN, _END = 48, 36, 11


def named(name: str) -> str:
    """Write a name that a file brings: what cannot be shown is marked, the middle of a very long one left out.

    >>> named("a\\u202eb")
    'a\\ufffdb'
    """
    shown = visible(name)
    return shown if len(shown) <= _LONGEST else f"{shown[:_BEGIN]}\u2026{shown[-_END:]}"


def scheme_named(name: str) -> str:
    """Write the name of a scheme in a sentence, where none would say that there is none.

    >>> scheme_named("none"), scheme_named("alibi")
    ('“none”', 'alibi')
    """
    return "\u201cnone\u201d" if name == "none" else named(name)


def listed(parts: Sequence[str]) -> str:
    """Write a, b and c.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def plain(value: float, digits: int = 3) -> str:
    """Write a number with a true minus sign.

    >>> plain(-0.21)
    '−0.210'
    """
    if not math.isfinite(value):
        return "not finite"
    written = f"{value:.{digits}f}"
    return (written if float(written) else written.lstrip("-")).replace("-", "−")


def small(value: float) -> str:
    """Write a number that may be tiny, with two digits that count.

    >>> small(7.04e-6)
    '7.0e−6'
    """
    if not math.isfinite(value):
        return "not finite"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def score_text(results: Results, value: float, unit: bool = False) -> str:
    """Write a score for a sentence: always with its %, with the name of another unit where asked."""
    if not math.isfinite(value):
        return "not finite"
    name = f"\u00a0{visible(str(results.task['measure']))}" if unit else ""  # a number keeps its unit on its line
    return f"{100 * value:.1f}\u00a0%" if results.percent else f"{value:.3f}{name}"


def score_cell(results: Results, found: Spread | None) -> str:
    """Write median and range of a score, without its unit; the caption names it."""
    return spread_cell(found, 100.0, 1) if results.percent else spread_cell(found, 1.0, 3)


def spread_cell(found: Spread | None, factor: float = 1.0, digits: int = 3) -> str:
    """Write a median, and the range where seeds differ.

    >>> spread_cell((0.5, -0.25, 1.0), 1.0, 2)
    '0.50 (−0.25 to 1.00)'
    """
    if found is None:
        return NO_ROW
    middle, least, greatest = (plain(value * factor, digits) for value in found)
    return middle if least == greatest else f"{middle} ({least} to {greatest})"


def small_cell(found: Spread | None) -> str:
    """Write a median and a range of numbers that may be tiny."""
    if found is None:
        return NO_ROW
    middle, least, greatest = map(small, found)
    return middle if least == greatest else f"{middle} ({least} to {greatest})"


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
    return listed([str(length) for length in lengths])


def unit_of(results: Results) -> str:
    """Name what lengths are counted in."""
    return named(str(results.task["unit"]))


def measure(results: Results) -> str:
    """Name the measure, with its unit and its better side."""
    side = "higher" if results.higher else "lower"
    return f"{named(str(results.task['measure']))}{' in %' if results.percent else ''}; {side} is better"
