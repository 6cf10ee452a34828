"""Views that are read as the sections of a report: overview, diagnostics, a comparison, and two checkpoints."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.added_positions import PositionTable
from whatwhere.analysis.checkpoint_difference import difference as compute_difference
from whatwhere.analysis.inspection import Inspection
from whatwhere.analysis.lint import Severity, check_subject
from whatwhere.analysis.token_diagnostics import TokenDiagnostics
from whatwhere.analysis.token_table import Sizes
from whatwhere.errors import SettingError
from whatwhere.records import Missing
from whatwhere.report import comparison, diagnostics, inspection, lint
from whatwhere.report import difference as differences
from whatwhere.report.section import Chart, Part, Section, Series, Table
from whatwhere.report.text import capital, count, number, percent, ranges
from whatwhere.studio.api.settings import ExportedView, Findings, Which, in_steps, query
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

_BINS, _ODD = 60, 8
_SUSPICIOUS: Mapping[str, Severity] = {
    **dict.fromkeys(("under_trained", "far", "duplicates"), "warning"),
    **dict.fromkeys(("unmoved", "unreachable", "hubs"), "note"),
}
"""Lists of suspicious rows that lead the overview; zero rows and those that are not finite are found with the files."""


@query("overview.inspected")
def inspected(session: Session, report: Report) -> Findings:
    """Return the inspection. It is a job, for a large table takes half a minute."""
    if not session.tables and session.kind != "checkpoint":
        raise SettingError("there is no token table here, so there is nothing to inspect.\nOpen a model.")
    return _findings(session, session.inspection(in_steps(report, 10)))


def exported_overview(session: Session) -> ExportedView:
    """Return the inspection for an exported page."""
    found = _findings(session, session.inspection(lambda step: None))
    text = [f"{found.headline}.", found.method]
    return ExportedView([("overview.inspected", {})], sections=found.sections, text=text)


def _findings(session: Session, found: Inspection) -> Findings:
    method = f"Format: {found.format}. Read by whatwhere {found.whatwhere}; rows sampled with seed {found.seed}."
    sections = [replace(s, folded=s.name == "diagnostics") for s in _captioned(inspection.sections(found))]
    short = [each for each in sections if len(each.parts) == 1 and isinstance(each.parts[0], str)]
    absent = [Section("absent", "Not in this file", [str(each.parts[0]) for each in short])] if short else []
    sections = sorted((each for each in sections if each not in short), key=lambda each: each.name == "sizes")
    sections = [_warnings(session, found), *sections, *absent]  # the sizes are not a figure: after those
    headline = inspection.headline(found)
    if session.checkpoint.format == "run":
        scheme = session.checkpoint.path.name.rpartition("-")[0]  # of the run "rotary-0"
        headline += f", {'no' if scheme == 'none' else scheme} positions"
        if isinstance(found.sizes, Sizes) and found.sizes.change is not None:
            headline += f"; training changed the table by {percent(found.sizes.change.share, 0)} of its norm"
    return Findings(capital(headline), sections, method)


def _warnings(session: Session, found: Inspection) -> Section:
    """Return a row for each contradiction of the files, each list of suspicious rows and odd positions; worst first.

    The second cell of a row is the rule, or the view that shows more, as in "diagnostics.hubs".
    """
    files = session.kind == "checkpoint" and session.checkpoint.format != "run" and session.checkpoint.path.exists()
    checked = check_subject(session.subject).findings if files else []
    shown = [each for each in checked if each.rule != "duplicate-rows"]  # the diagnostics have them too, with a view
    rows = [(each.severity, each.rule, lint.line(each).partition(": ")[2]) for each in shown]
    if isinstance(found.diagnostics, TokenDiagnostics):
        lists = diagnostics.first_sentences(found.diagnostics)
        rows += [(level, f"diagnostics.{name}", lists[name]) for name, level in _SUSPICIOUS.items() if name in lists]
    if isinstance(found.positions, PositionTable) and len(odd := found.positions.outliers):
        named = ranges(odd[:_ODD].tolist()) + ", ..." * (len(odd) > _ODD)
        text = "unlike the others by norm, distance from the mean row, or cosine to both neighbors"
        rows.append(("note", "positions", f"{count(len(odd), 'position')} {text}: {named}."))
    rows.sort(key=lambda row: get_args(Severity).index(row[0]))
    table = Table(
        "Contradictions, suspicious rows and odd positions", ("severity", "about", "finding"), rows, shorten="never"
    )
    return Section("warnings", "Warnings", [table if rows else "No contradiction and no suspicious row was found."])


def _captioned(sections: Sequence[Section]) -> list[Section]:
    """Return sections whose tables have the number of their rows in the caption, where not all are listed."""

    def captioned(part: Part) -> Part:
        if isinstance(part, Table) and part.total is not None and part.total > len(part.rows):
            return replace(part, caption=f"{part.caption}: the first {len(part.rows):,} of {part.total:,}")
        return part

    return [replace(each, parts=[*map(captioned, each.parts)]) for each in sections]


@query("diagnostics.examine")
def examine(session: Session, report: Report) -> Findings:
    """Return the suspicious rows. It is a job, for a large table takes half a minute."""
    if not session.tables:
        raise SettingError("there is no token table here, so there is nothing to diagnose.\nOpen a model.")
    found = session.diagnostics(in_steps(report, 4))
    if isinstance(found, Missing):
        raise SettingError(f"{found.missing}.")
    return session.once("diagnostics view", lambda: _examined(session, found))


def exported_diagnostics(session: Session) -> ExportedView:
    """Return the answer for an exported page, whose overview lists the rows for readers without JavaScript."""
    text = "The overview counts and lists these rows, under Diagnostics of the token table."
    return ExportedView([("diagnostics.examine", {})], text=[text])


def _examined(session: Session, found: TokenDiagnostics) -> Findings:
    groups = {"all rows": session.subject.usable, "under-trained": found.under_trained.ids}
    if not isinstance(found.unreachable, Missing):
        groups["unreachable"] = np.intersect1d(found.unreachable.ids, groups["all rows"])
    threshold, computed = found.under_trained.threshold, session.subject.diagnostics
    norms = _histogram(
        "Norms of the rows",
        "norm |x|",
        computed.norms,
        groups,
        note="Under-trained rows often have low norms: weight decay shrinks rows that no update moves.",
        method="|x| of each row, in float64. Groups overlap: an unreachable token is often under-trained.",
    )
    cosines = _histogram(
        "Cosine to the rows of lowest norm",
        "cosine to the mean of the rows of lowest norm",
        computed.cosine,
        groups,
        marks=[(threshold, f"suspected above {number(threshold)}")] if threshold < 1 else [],
        note="Updates that move under-trained rows alike give them one direction. Rows that keep a random "
        "initialization share none: they are found where their norm lies far from the others'.",
        method=f"The {len(found.under_trained.reference)} rows of lowest norm, half a percent, are the reference; "
        "cos(x − m, s − m), with m the mean of all rows and s the mean of the reference, the row itself excluded. "
        "Suspected are rows above 0.5 and 8 robust standard deviations above the median. After Land and Bartolo 2024, "
        "who begin with a list made by hand.",
    )
    method = (
        f"Norms and cosines in float64; duplicates by their bytes; hubs by the exact nearest rows of "
        f"{found.hubs.queries:,} tokens; unreachable by decoding each token behind seven short texts and encoding what "
        "comes out."
    )
    said = diagnostics.first_sentences(found)
    worst = [said[name] for name in ("not_finite", "zero", *_SUSPICIOUS, "beyond_vocabulary") if name in said]
    headline = (
        worst[0].removesuffix(".").partition(": ")[0] if worst else f"None of {count(found.rows, 'row')} is suspicious"
    )
    spread = Section("spread", "Norms and cosines of all rows", [norms, cosines])
    return Findings(headline, [*_captioned(diagnostics.lists(found)), spread], method)


def _histogram(
    title: str,
    x_label: str,
    values: Float[np.ndarray, " rows"],
    groups: Mapping[str, Int64[np.ndarray, " ids"]],
    **more: Any,
) -> Chart:
    """Return a histogram of all rows that are finite and not zero, and of the suspicious ones among them."""
    everyone = values[groups["all rows"]]
    bins = max(1, min(_BINS, int(np.ceil(2 * len(everyone) ** (1 / 3)))))  # Rice's rule: few tokens fill their bins
    edges = np.histogram_bin_edges(everyone, bins)
    shown = {name: values[ids] for name, ids in groups.items() if len(ids) or name == "all rows"}
    series = [Series(name, np.histogram(each, edges)[0].astype(float).tolist()) for name, each in shown.items()]
    return Chart("histogram", title, x_label, "rows", edges.tolist(), series, **more)


@query("compare.results")
def results(session: Session) -> Findings:
    """Return the report of a comparison: its headline, then the rest of its sections."""
    measured = session.results
    first, *rest = session.once("report", lambda: comparison.sections(measured))
    return Findings(str(first.parts[0]).removesuffix("."), [replace(first, parts=first.parts[1:]), *rest])


def exported_comparison(session: Session) -> ExportedView:
    """Return what an exported page needs of this view: the report of a comparison."""
    found = results(session, {})
    return ExportedView([("compare.results", {})], sections=found.sections, text=[f"{found.headline}."])


@query("compare.difference")
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
        return Findings(capital(differences.headline(found)), differences.sections(found))

    return session.once(("difference", table, k), compared, most=8)
