"""Diagnostics: the suspicious rows of the token table, and where they lie among all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Int64

from whatwhere.analysis.token_diagnostics import TokenDiagnostics
from whatwhere.errors import SettingError
from whatwhere.records import Missing
from whatwhere.report.diagnostics import none_suspected
from whatwhere.report.section import Section, Table
from whatwhere.studio.api.settings import ExportedView, known
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

_BINS = 60
_STEPS = 4


@dataclass(frozen=True)
class RowGroup:
    """A group of rows in a histogram.

    Args:
        counts: of its rows, by bin.
    """

    name: str
    counts: Int[np.ndarray, " bins"]


@dataclass(frozen=True)
class RowHistogram:
    """A histogram of all rows and of the suspicious ones.

    Args:
        edges: of the bins.
        groups: which overlap.
    """

    edges: Float[np.ndarray, " edges"]
    groups: Sequence[RowGroup]


@dataclass(frozen=True)
class SuspiciousTokens:
    """The suspicious rows of a token table, and histograms of the numbers by which they were chosen.

    Args:
        name: of the tensor.
        found: the rows, of which the first 5,000 of each list are described.
        none_suspected: what was measured where no row is suspected of being under-trained; else "".
        norms, cosines: of the rows that are finite and not zero; the others have lists of their own.
    """

    name: str
    found: TokenDiagnostics
    none_suspected: str
    norms: RowHistogram
    cosines: RowHistogram


def examine(session: Session, settings: Mapping[str, Any], report: Report) -> SuspiciousTokens:
    """Return the suspicious rows. It is a job, for a large table takes half a minute."""
    known(settings)
    if not session.tables:
        raise SettingError("there is no token table here, so there is nothing to diagnose.\nOpen a model.")
    return session.once("diagnostics view", lambda: _examined(session, report))


def exported(session: Session) -> ExportedView | None:
    """Return the answer for an exported page, whose overview lists the rows for readers without JavaScript."""
    if not session.tables:
        return None
    found = examine(session, {}, lambda fraction, message: None).found
    counts = {
        "under-trained": found.under_trained.count,
        "far from the others": found.far.count,
        "unreachable": None if isinstance(found.unreachable, Missing) else found.unreachable.count,
        "duplicates": found.duplicates.rows,
        "hubs": len(found.hubs.rows),
        "zero": found.zero.count,
        "NaN or infinite": found.not_finite.count,
        "beyond the vocabulary": None
        if isinstance(found.beyond_vocabulary, Missing)
        else found.beyond_vocabulary.count,
    }
    rows = [(title, "not known" if count is None else f"{count:,}") for title, count in counts.items()]
    table = Table("Suspicious rows of the token table", ("list", "rows"), rows, (1,))
    text = ["The overview lists these rows, under Diagnostics of the token table."]
    sections = [Section("lists", "Suspicious rows", [table])]
    return ExportedView("Diagnostics", [("diagnostics.examine", {})], sections=sections, text=text)


def _examined(session: Session, report: Report) -> SuspiciousTokens:
    steps = iter(range(_STEPS))
    found = session.diagnostics(lambda step: report(next(steps, _STEPS - 1) / _STEPS, step))
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
    rows = len(groups["all rows"])
    bins = max(1, min(_BINS, int(np.ceil(2 * rows ** (1 / 3)))))  # Rice's rule, so that few tokens fill their bins
    edges = np.histogram_bin_edges(values[groups["all rows"]], bins)
    return RowHistogram(
        edges,
        [
            RowGroup(name, np.histogram(values[ids], edges)[0])
            for name, ids in groups.items()
            if len(ids) or name == "all rows"
        ],
    )
