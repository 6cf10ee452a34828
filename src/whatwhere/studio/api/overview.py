"""Overview: what inspection finds in an input layer, in sentences, tables, and the numbers of two figures."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from whatwhere.errors import SettingError
from whatwhere.inspection.answer import there
from whatwhere.inspection.telling import Part, tell
from whatwhere.inspection.wording import percent
from whatwhere.page.wording import capital
from whatwhere.studio.api.settings import known
from whatwhere.studio.api.sheets import Left, Sheet
from whatwhere.studio.examined import inspection
from whatwhere.studio.jobs import Report
from whatwhere.studio.sources import Source

_STEPS = 10
"""Times that an inspection tells what it does, about."""
_SPECTRA = (("spectrum", "token rows"), ("positions", "positions"))


def inspected(source: Source, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Tell what inspection finds. It is a job, for a large table takes half a minute."""
    known(settings)
    if not source.tables and source.kind != "checkpoint":
        raise SettingError("there is no table of tokens here, so there is nothing to inspect.")
    steps = iter(range(_STEPS))
    found = inspection(source, lambda said: report(next(steps, _STEPS - 1) / _STEPS, said))
    sections = found["sections"]
    return {
        "answer": capital(found["answer"]),
        "made": {name: found[name] for name in ("checkpoint", "whatwhere", "seed")},
        "passages": [
            {"name": passage.name, "title": passage.title, "parts": [_wired(part) for part in passage.parts]}
            for passage in tell(sections)
        ],
        "lengths": _lengths(sections.get("norms")),
        "spectra": _spectra(sections),
    }


def left(source: Source) -> Left | None:
    """Leave all of it on a frozen page."""
    if not source.tables and source.kind != "checkpoint":
        return None
    found = inspection(source, lambda said: None)
    sheets = []
    for passage in tell(found["sections"]):
        sheets += _sheets(passage.title, passage.parts)
        sheets += _axes(found) if passage.name == "positions" else []
    made = "Format: {checkpoint}. Read by whatwhere {whatwhere}, samples drawn with seed {seed}.".format_map(found)
    return Left("Overview", [("overview.inspected", {})], sheets, said=[f"{capital(found['answer'])}.", made])


def _wired(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"said": part}
    first = f": the first {len(part.rows):,} of {part.count:,}" if part.count and part.count > len(part.rows) else ""
    return {
        "caption": part.caption + first,
        "head": list(part.head),
        "rows": part.rows,
        "numbers": list(part.numbers),
        "drawn": part.drawn,
    }


def _sheets(title: str, parts: Any) -> list[Sheet]:
    """Put the sentences of a section above its tables, in the order of reading."""
    found: list[Sheet] = []
    said: list[str] = []
    for part in parts:
        if isinstance(part, str):
            said.append(part)
        else:
            wired = _wired(part)
            found.append(Sheet(wired["caption"], part.head, part.rows, said, "" if found else title))
            said = []
    return [*found, Sheet("", (), (), said, "" if found else title)] if said else found


def _axes(found: Mapping[str, Any]) -> list[Sheet]:
    """Leave the numbers of the spectrum of positions, which the page draws; that of tokens has a table."""
    own = [each["shares"] for each in _spectra(found["sections"]) if each["name"] == "positions"]
    rows = [(str(n), percent(share)) for shares in own for n, share in enumerate(shares, 1)]
    return [Sheet("Share of the variance of positions by principal axis", ("axis", "share"), rows)] if rows else []


def _lengths(norms: Any) -> dict[str, Any] | None:
    if not there(norms):
        return None
    histogram = norms["histogram"]
    return {
        "edges": np.array(histogram["edges"], np.float64),
        "counts": np.array(histogram["counts"], np.int64),
        "rows": norms["finite"],
        "median": norms["percentiles"]["50"],
    }


def _spectra(sections: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name, title in _SPECTRA:
        section = sections.get(name)
        if there(section):
            numbers = section["spectrum"] if name == "positions" else section
            found.append(
                {"name": title, "shares": np.array(numbers["shares"], np.float64)}
                | {part: numbers[part] for part in ("dim", "for_ninety")}
            )
    return found
