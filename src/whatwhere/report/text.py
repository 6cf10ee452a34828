"""Numbers, counts and lists as text: the one format of terminal, page and files."""

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whatwhere.comparison.results import Spread

MINUS = "\u2212"
NARROW = "\u00a0"  # a space that does not break: a number keeps its unit on its line

_EXACT = Context(prec=2000)
"""Holds every digit of a float64, of which there are at most 1,075 after the point and 309 before it."""


def capital(sentence: str) -> str:
    """Capitalize the first letter of a sentence."""
    return sentence[:1].upper() + sentence[1:]


def count(number: int, one: str, several: str = "") -> str:
    """Format a number of things, with the noun in singular, or else the one for several: with an s by default."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """Join parts as a list in a sentence."""
    return f" {last} ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def ranges(numbers: Sequence[int]) -> str:
    """Format whole numbers in ascending order, consecutive ones by their ends.

    Examples:
        >>> ranges([0, 1, 2, 4]), ranges([64])
        ('0–2, 4', '64')
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("–".join(map(str, run)) for run in runs)


def number(value: float | int | None, digits: int = 3, absent: str = "") -> str:
    """Format a number of any size with so many significant digits, its whole part in full.

    Zeros at the end of a fraction are dropped. Below 0.0001 and from 1e15 on, powers of ten are written.
    """
    if value is None:
        return absent
    if not math.isfinite(value):
        return _not_finite(value)
    exact = _exact(value)
    exponent = Context(digits, ROUND_HALF_UP).plus(exact).adjusted()
    if exact and not -4 <= exponent < 15:
        mantissa = _rounded(exact.scaleb(-exponent, _EXACT), digits - 1)
        return f"{mantissa}e{exponent}".replace("-", MINUS)
    written = decimals(value, max(0, digits - 1 - exponent))
    return written.rstrip("0").rstrip(".") if "." in written else written


def decimals(value: float | int, places: int = 3) -> str:
    """Format a number with so many decimal places."""
    if not math.isfinite(value):
        return _not_finite(value)
    rounded = _rounded(_exact(value), places)
    return f"{rounded or abs(rounded):,f}".replace("-", MINUS)


def _not_finite(value: float) -> str:
    return "not a number" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"


def _exact(value: float | int) -> Decimal:
    return Decimal(value if isinstance(value, int) else float(value))


def _rounded(value: Decimal, places: int) -> Decimal:
    """Round a number to decimal places, a tie away from zero, as JavaScript's toFixed does."""
    return value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, _EXACT)


def duration(seconds: float) -> str:
    """Format a time in its two largest units of hours, minutes and seconds.

    Examples:
        >>> duration(6.2), duration(185.0), duration(5_400.0)
        ('6 s', '3 min 5 s', '1 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{decimals(seconds, 0)} s"


def percent(share: float | int | None, places: int = 1) -> str:
    """Format a share in percent; a small one with two significant digits."""
    if share is None:
        return ""
    small = 0 < abs(share) < 0.01
    written = number(100 * share, 2) if small else decimals(100 * share, places)
    return f"{written}{NARROW}%" if math.isfinite(share) else written


def spread(values: "Spread | None", places: int = 3, factor: float = 1.0, absent: str = "") -> str:
    """Format a median times a factor, with the range where the values differ: "0.50 (−0.25 to 1.00)"."""
    if values is None:
        return absent
    median, least, greatest = (decimals(value * factor, places) for value in (values.median, values.min, values.max))
    return median if least == greatest else f"{median} ({least} to {greatest})"
