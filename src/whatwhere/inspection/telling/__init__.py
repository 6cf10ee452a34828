"""What was found, in sentences and tables: one place for the terminal, the page, and readers without JavaScript."""

from collections.abc import Callable, Mapping
from typing import Any

from whatwhere.inspection.answer import there
from whatwhere.inspection.telling.ill import unhealthy
from whatwhere.inspection.telling.parts import Part, Passage, Table, shown
from whatwhere.inspection.telling.what import norms, shares, sizes, spectrum
from whatwhere.inspection.telling.where import biases, positions, rotary
from whatwhere.inspection.wording import TITLES
from whatwhere.page.wording import capital

__all__ = ["Part", "Passage", "Table", "tell"]

_TOLD: Mapping[str, Callable[[Mapping[str, Any]], list[Part]]] = {
    "sizes": sizes,
    "shares": shares,
    "norms": norms,
    "spectrum": spectrum,
    "unhealthy": unhealthy,
    "positions": positions,
    "rotary": rotary,
    "biases": biases,
}


def tell(sections: Mapping[str, Any]) -> list[Passage]:
    """Tell each section: what was found, or why there is nothing.

    Args:
        sections: by name, as `gather` gives them.

    >>> tell({"rotary": {"missing": "no layer turns"}})[0].parts
    ['No layer turns.']
    """
    return [Passage(name, TITLES[name], list(map(shown, _parts(name, found)))) for name, found in sections.items()]


def _parts(name: str, found: Mapping[str, Any]) -> list[Part]:
    if there(found):
        return _TOLD[name](found)
    missing = str(found["missing"])
    return [f"{capital(missing)}."]
