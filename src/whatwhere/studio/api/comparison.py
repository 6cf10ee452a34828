"""Compare: the report of a comparison, or two checkpoints side by side."""

from dataclasses import replace
from typing import Annotated

from whatwhere.analysis.checkpoint_difference import difference as compute_difference
from whatwhere.errors import SettingError
from whatwhere.report import difference as texts
from whatwhere.report.comparison import sections
from whatwhere.report.text import capital
from whatwhere.studio.api.settings import ExportedView, Findings, Which, in_steps, query
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session


@query
def results(session: Session) -> Findings:
    """Return the report of a comparison: its headline, then the rest of its sections."""
    comparison = session.results
    first, *rest = session.once("report", lambda: sections(comparison))
    return Findings(str(first.parts[0]).removesuffix("."), [replace(first, parts=first.parts[1:]), *rest])


def exported(session: Session) -> ExportedView:
    """Return what an exported page needs of this view: the report of a comparison."""
    found = results(session, {})
    return ExportedView([("compare.results", {})], sections=found.sections, text=[f"{found.headline}."])


@query
def difference(
    session: Session, progress: Report, *, table: Which = "input", k: Annotated[int, 1, 100] = 10
) -> Findings:
    """Return the difference between the two open checkpoints, A and B. It is a job, for large tables take a minute."""
    other = session.other
    if other is None:
        raise SettingError("one file is open, but two are compared.\nOpen both: whatwhere studio A B.")
    paths, step = (session.checkpoint.path, other.path), in_steps(progress, 6)
    pickles = "pickle" in (session.checkpoint.format, other.format)  # the command allowed it when it opened them

    def compared() -> Findings:
        found = compute_difference(*paths, table=table, k=k, rows=20, allow_pickle=pickles, progress=step)
        return Findings(capital(texts.headline(found)), texts.sections(found))

    return session.once(("difference", table, k), compared, most=8)
