"""Overview and diagnostics: the inspection of what is open, and the suspicious rows of its token table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Int64

from whatwhere.analysis.inspection import Inspection
from whatwhere.analysis.token_diagnostics import TokenDiagnostics
from whatwhere.errors import SettingError
from whatwhere.records import Missing
from whatwhere.report import inspection as texts
from whatwhere.report.diagnostics import none_suspected
from whatwhere.report.section import Part, Table
from whatwhere.report.text import capital
from whatwhere.studio.api.settings import ExportedView, Findings, in_steps, query
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

_BINS = 60


@dataclass(frozen=True)
class RowHistogram:
    """A histogram of all rows and of the suspicious ones, by the name of the group; groups overlap."""

    edges: Float[np.ndarray, " edges"]
    groups: Mapping[str, Int[np.ndarray, " bins"]]


@dataclass(frozen=True)
class SuspiciousTokens:
    """The suspicious rows of a token table, and histograms of the numbers by which they were chosen.

    Args:
        found: the rows, of which the first 5,000 of each list are described.
        none_suspected: what was measured where no row is suspected of being under-trained; else "".
        norms, cosines: of the rows that are finite and not zero; the others have lists of their own.
    """

    name: str
    found: TokenDiagnostics
    none_suspected: str
    norms: RowHistogram
    cosines: RowHistogram


@query
def inspected(session: Session, report: Report) -> Findings:
    """Return the inspection. It is a job, for a large table takes half a minute."""
    if not session.tables and session.kind != "checkpoint":
        raise SettingError("there is no token table here, so there is nothing to inspect.\nOpen a model.")
    return _findings(session.inspection(in_steps(report, 10)))


def exported_overview(session: Session) -> ExportedView:
    """Return the inspection for an exported page."""
    found = _findings(session.inspection(lambda step: None))
    text = [f"{found.headline}.", found.method]
    return ExportedView([("overview.inspected", {})], sections=found.sections, text=text)


def _findings(inspection: Inspection) -> Findings:
    sections = [replace(each, parts=[*map(_captioned, each.parts)]) for each in texts.sections(inspection)]
    version, seed = inspection.whatwhere, inspection.seed
    method = f"Format: {inspection.format}. Read by whatwhere {version}; rows sampled with seed {seed}."
    return Findings(capital(texts.headline(inspection)), sections, method)


def _captioned(part: Part) -> Part:
    """Return a table with the number of its rows in the caption, where not all are listed."""
    if isinstance(part, Table) and part.total is not None and part.total > len(part.rows):
        return replace(part, caption=f"{part.caption}: the first {len(part.rows):,} of {part.total:,}")
    return part


@query
def examine(session: Session, report: Report) -> SuspiciousTokens:
    """Return the suspicious rows. It is a job, for a large table takes half a minute."""
    if not session.tables:
        raise SettingError("there is no token table here, so there is nothing to diagnose.\nOpen a model.")
    return session.once("diagnostics view", lambda: _examined(session, report))


def exported_diagnostics(session: Session) -> ExportedView:
    """Return the answer for an exported page, whose overview lists the rows for readers without JavaScript."""
    text = "The overview counts and lists these rows, under Diagnostics of the token table."
    return ExportedView([("diagnostics.examine", {})], text=[text])


def _examined(session: Session, report: Report) -> SuspiciousTokens:
    found = session.diagnostics(in_steps(report, 4))
    if isinstance(found, Missing):
        raise SettingError(f"{found.missing}.")
    computed, usable = session.subject.diagnostics, session.subject.usable
    groups = {"all rows": usable, "under-trained": found.under_trained.ids}
    if not isinstance(found.unreachable, Missing):
        groups["unreachable"] = np.intersect1d(found.unreachable.ids, usable)
    return SuspiciousTokens(
        name=session.table().name,
        found=found,
        none_suspected="" if found.under_trained.count else none_suspected(found.under_trained, found.rows),
        norms=_histogram(computed.norms, groups),
        cosines=_histogram(computed.cosine, groups),
    )


def _histogram(values: Float[np.ndarray, " rows"], groups: Mapping[str, Int64[np.ndarray, " ids"]]) -> RowHistogram:
    everyone = values[groups["all rows"]]
    bins = max(1, min(_BINS, int(np.ceil(2 * len(everyone) ** (1 / 3)))))  # Rice's rule: few tokens fill their bins
    edges = np.histogram_bin_edges(everyone, bins)
    shown = {name: values[ids] for name, ids in groups.items() if len(ids) or name == "all rows"}
    return RowHistogram(edges, {name: np.histogram(each, edges)[0] for name, each in shown.items()})
