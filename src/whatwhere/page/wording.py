"""Put numbers and names into words and cells, the same way everywhere on a page."""

import math
from collections.abc import Sequence

from whatwhere.page.markup import Markup, element, join


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


def count(number: int, one: str, many: str = "") -> str:
    """Write 1 seed, 3 seeds."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
