"""How figures draw a scheme: the one registry of its color, strokes and marker, for reports, papers and the page."""

from collections.abc import Sequence

FIXED = ("none", "sinusoidal", "learned", "rotary", "alibi", "t5", "kerple")
"""The schemes that are compared most, by look: as many as figures have colors."""


def looks(schemes: Sequence[str]) -> dict[str, int]:
    """Return the look of each scheme, a number that figures turn into color, strokes and marker.

    A common scheme has the same look in every figure. Others take the looks that these leave free.

    Examples:
        >>> looks(["fope", "rotary", "rotary@dim=16", "none"])
        {'fope': 1, 'rotary': 3, 'rotary@dim=16': 2, 'none': 0}
    """
    found = {scheme: FIXED.index(scheme) for scheme in schemes if scheme in FIXED}
    free = (number for number in range(len(FIXED) + len(schemes)) if number not in found.values())
    others = {scheme: next(free) for scheme in schemes if scheme not in FIXED}
    return {scheme: (found | others)[scheme] for scheme in schemes}
