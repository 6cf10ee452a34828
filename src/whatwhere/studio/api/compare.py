"""Compare: the results of a comparison, or the difference between two checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whatwhere.analysis.checkpoint_difference import difference as compute_difference
from whatwhere.errors import SettingError
from whatwhere.models.checkpoint.lookup import TABLES
from whatwhere.report import difference as texts
from whatwhere.report.section import Section
from whatwhere.report.text import capital
from whatwhere.studio.api.settings import ExportedView, known, one_of, whole
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.studio.api.measurements import Measurements

_STEPS = 6
_MAX_LISTED = 200


@dataclass(frozen=True)
class DifferenceReport:
    """The difference between the two open checkpoints, A and B.

    Args:
        headline: the main facts, a sentence without its full stop.
        sections: the findings on tokens, positions and configuration.
    """

    headline: str
    sections: Sequence[Section]


def results(session: Session, settings: Mapping[str, Any]) -> "Measurements":
    """Return what a comparison measured: scores, shift test, verdicts, and what is needed to repeat it."""
    known(settings)
    comparison = session.results
    from whatwhere.studio.api.measurements import measurements

    return session.once("measurements", lambda: measurements(comparison))


def exported(session: Session) -> ExportedView | None:
    """Return what an exported page needs of this view: the report of a comparison."""
    if session.kind != "results":
        return None
    comparison = session.results
    from whatwhere.report.comparison import sections

    return ExportedView("Compare", [("compare.results", {})], sections=sections(comparison))


def difference(session: Session, settings: Mapping[str, Any], report: Report) -> DifferenceReport:
    """Return the difference between the two open checkpoints. It is a job, for large tables take a minute.

    Args:
        settings: table ("input", "output"); k (10), neighbors that are compared; most (20), rows that are listed.

    Raises:
        SettingError: If only one checkpoint is open.
    """
    known(settings, "table", "k", "most")
    table, k = one_of(settings, "table", TABLES), whole(settings, "k", 10, 1, 100)
    most = whole(settings, "most", 20, 0, _MAX_LISTED)
    other = session.other
    if other is None:
        raise SettingError("one file is open, but two are compared.\nOpen both: whatwhere studio A B.")
    steps = iter(range(_STEPS))

    def progress(step: str) -> None:
        report(next(steps, _STEPS - 1) / _STEPS, step)

    paths = session.checkpoint.path, other.path
    pickles = "pickle" in (session.checkpoint.format, other.format)  # the command allowed it when it opened them

    def compared() -> DifferenceReport:
        findings = compute_difference(*paths, table=table, k=k, rows=most, allow_pickle=pickles, progress=progress)
        return DifferenceReport(capital(texts.headline(findings)), texts.sections(findings))

    return session.once(("difference", table, k, most), compared, most=8)
