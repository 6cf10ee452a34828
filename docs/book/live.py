"""The exported studio pages that the course shows in frames."""

from pathlib import Path

import whatwhere as ww
from whatwhere.errors import MissingExtra


def write_live_pages(folder: Path) -> frozenset[str]:
    """Write the exported pages, and return the names of those that could be written here.

    Without a bundled page (no Node.js when the package was built) there is none, and chapters keep their text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ww.export(None, folder / "expressions.html")
    except MissingExtra:
        return frozenset()
    return frozenset({"expressions"})
