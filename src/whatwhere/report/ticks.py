"""Ticks of an axis: round numbers, and how they are written."""

import math
from collections.abc import Sequence
from itertools import pairwise

from whatwhere.report.text import decimals

Number = int | float


def round_ticks(low: Number, high: Number, most: int) -> list[float]:
    """Return ticks at round numbers, the first at or below low and the last at or above high.

    Args:
        low, high: ends of the values.
        most: ticks between them, roughly.

    Examples:
        >>> round_ticks(0, 100, 5), round_ticks(1, 32, 4), round_ticks(1.57, 1.66, 4)
        ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.0, 10.0, 20.0, 30.0, 40.0], [1.55, 1.6, 1.65, 1.7])
    """
    span = (high - low) or abs(high) or 1.0
    rough = span / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(n * step, digits) for n in range(first, max(last, first + 1) + 1)]


def tick_texts(ticks: Sequence[Number]) -> list[str]:
    """Write ticks with the decimals that all of them need.

    Examples:
        >>> tick_texts([0.0, 0.5, 1.0]), tick_texts([0.0, 1000.0])
        (['0.0', '0.5', '1.0'], ['0', '1,000'])
    """
    step = min((abs(b - a) for a, b in pairwise(ticks)), default=1.0)
    return [decimals(tick, max(0, -math.floor(math.log10(step) + 1e-9))) for tick in ticks]
