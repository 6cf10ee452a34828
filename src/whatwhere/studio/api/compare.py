"""Two kinds of comparison: schemes that were trained side by side, and two checkpoints."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from whatwhere.errors import SettingError
from whatwhere.inspection.difference import Difference
from whatwhere.inspection.difference import difference as differ
from whatwhere.records import Missing
from whatwhere.studio.api.settings import known, one_of, whole
from whatwhere.studio.api.static_tables import ExportedView
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.report.section import Section
    from whatwhere.studio.api.measurements import Measurements

_TABLES = ("input", "readout")
_STEPS = 6
_MOST_NAMED = 200


def results(session: Session, settings: Mapping[str, Any]) -> "Measurements":
    """Return what a comparison measured: scores, shift test, verdicts, and what it takes to repeat it."""
    known(settings)
    found = session.results
    from whatwhere.studio.api.measurements import measurements

    return session.once("measurements", lambda: measurements(found))


def sections(session: Session) -> list["Section"]:
    """Return what a comparison measured as sections, for readers without JavaScript."""
    from whatwhere.studio.api import measurements

    return measurements.sections(session.results)


def exported(session: Session) -> ExportedView | None:
    """Return what an exported page needs of this view."""
    if session.kind != "results":
        return None
    return ExportedView("Compare", [("compare.results", {})], [], sections=sections(session))


def difference(session: Session, settings: Mapping[str, Any], report: Report) -> Difference:
    """Compare the two checkpoints that are open. It is a job, for large tables take a minute.

    Args:
        settings: table ("input", "readout"); k (10), neighbors that are compared; most (20), rows that are named.
    """
    known(settings, "table", "k", "most")
    table, k = one_of(settings, "table", _TABLES), whole(settings, "k", 10, 1, 100)
    most = whole(settings, "most", 20, 0, _MOST_NAMED)
    other = session.other
    if other is None:
        raise SettingError("one file is open, but two are compared.\nOpen both: whatwhere studio A B.")
    steps = iter(range(_STEPS))

    def progress(step: str) -> None:
        report(next(steps, _STEPS - 1) / _STEPS, step)

    # The second time it is only read, whoever asks.
    paths = session.checkpoint.path, other.path
    pickles = "pickle" in (session.checkpoint.format, other.format)  # opened already, by leave of the command
    found = session.once(
        ("difference", table, k, most),
        lambda: differ(*paths, table=table, k=k, rows=most, allow_pickle=pickles, progress=progress),
    )
    tokens = found.tokens
    if isinstance(tokens, Missing):
        return found
    # Their numbers stay; a list of 100,000 helps nobody.
    few = replace(tokens, removed=tokens.removed[:_MOST_NAMED], new=tokens.new[:_MOST_NAMED])
    return replace(found, tokens=few)
