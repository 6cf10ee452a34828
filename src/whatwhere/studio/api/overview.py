"""Overview: the inspection of what is open, as sections of text, tables and charts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.report import inspection as texts
from whatwhere.report.section import Part, Section, Table
from whatwhere.report.text import capital
from whatwhere.studio.api.settings import ExportedView, known
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

_STEPS = 10
"""Progress reports of an inspection, about."""


@dataclass(frozen=True)
class Overview:
    """The inspection of what is open.

    Args:
        headline: the main facts, a sentence without its full stop.
        format: of the checkpoint.
        whatwhere: the version that inspected it.
        seed: for row sampling.
        sections: the findings.
    """

    headline: str
    format: str
    whatwhere: str
    seed: int
    sections: Sequence[Section]


def inspected(session: Session, settings: Mapping[str, Any], report: Report) -> Overview:
    """Return the inspection. It is a job, for a large table takes half a minute.

    Raises:
        SettingError: If nothing here can be inspected.
    """
    known(settings)
    if not _inspectable(session):
        raise SettingError("there is no token table here, so there is nothing to inspect.\nOpen a model.")
    steps = iter(range(_STEPS))
    return _overview(session, lambda step: report(next(steps, _STEPS - 1) / _STEPS, step))


def exported(session: Session) -> ExportedView | None:
    """Return what an exported page needs of this view: the inspection."""
    if not _inspectable(session):
        return None
    made = _overview(session, lambda step: None)
    origin = f"Format: {made.format}. Read by whatwhere {made.whatwhere}; rows sampled with seed {made.seed}."
    text = [f"{made.headline}.", origin]
    return ExportedView("Overview", [("overview.inspected", {})], sections=made.sections, text=text)


def _inspectable(session: Session) -> bool:
    return bool(session.tables) or session.kind == "checkpoint"


def _overview(session: Session, progress: Callable[[str], None]) -> Overview:
    inspection = session.inspection(progress)
    sections = [replace(each, parts=[*map(_captioned, each.parts)]) for each in texts.sections(inspection)]
    headline = capital(texts.headline(inspection))
    return Overview(headline, inspection.format, inspection.whatwhere, inspection.seed, sections)


def _captioned(part: Part) -> Part:
    """Return a table with the number of its rows in the caption, where not all are listed."""
    if isinstance(part, Table) and part.total is not None and part.total > len(part.rows):
        return replace(part, caption=f"{part.caption}: the first {len(part.rows):,} of {part.total:,}")
    return part
