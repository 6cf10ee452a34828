"""Diagnostics: under-trained and unreachable tokens, duplicates, hubs, and other suspicious rows, with the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

from whatwhere.analysis.token_diagnostics import Duplicates, HubTokens, RowList, TokenDiagnostics, UnreachableRow
from whatwhere.errors import SettingError
from whatwhere.records import Missing
from whatwhere.report.diagnostics import none_suspected
from whatwhere.report.section import Section, Table
from whatwhere.report.text import number
from whatwhere.studio.api.settings import ExportedView, known
from whatwhere.studio.api.tokens import Tokens, labels
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

LISTED = 5000
"""Rows of each list that are sent; their count is complete."""
_TITLES = {
    "under_trained": "under-trained",
    "far": "far from the others",
    "unreachable": "unreachable",
    "duplicates": "duplicates",
    "hubs": "hubs",
    "zero": "zero",
    "not_finite": "NaN or infinite",
    "beyond_vocabulary": "beyond the vocabulary",
}
_EXAMPLES = 100
"""Rows of each list on a page without JavaScript."""
_BINS = 60
_STEPS = 4


_Fields = tuple[
    Int[np.ndarray, " tokens"],
    list[str],
    list[str | None],
    list[str],
    int,
    str | None,
    Float[np.ndarray, " tokens"],
]


@dataclass(frozen=True)
class SuspiciousRows(Tokens):
    """A list of suspicious rows, of which the first are listed.

    Args:
        count: of all rows of the list.
        missing: why they are not known; None where they are.
        norms: of the rows.
    """

    count: int
    missing: str | None
    norms: Float[np.ndarray, " tokens"]


@dataclass(frozen=True)
class UnderTrainedRows(SuspiciousRows):
    """Rows that look under-trained.

    Args:
        cosines: to the mean of the reference.
        proximity: the distance of the cosine from the median, in robust standard deviations.
        unreachable: whether each is unreachable too.
        also_unreachable: how many of all are; None without a tokenizer.
    """

    cosines: Float[np.ndarray, " tokens"]
    proximity: Float[np.ndarray, " tokens"]
    unreachable: Bool[np.ndarray, " tokens"]
    also_unreachable: int | None


@dataclass(frozen=True)
class FarRows(SuspiciousRows):
    """Rows far from the others by norm or distance from the mean row, or the extremes of either.

    Args:
        distances: from the mean of the rows that are not suspicious.
        why: by what each is far from the others: "low norm", "near the mean" or "high norm"; "" where it is not.
    """

    distances: Float[np.ndarray, " tokens"]
    why: Sequence[str]


@dataclass(frozen=True)
class UnreachableRows(SuspiciousRows):
    """Tokens that no text is encoded to.

    Args:
        texts_tried: the text that was tried, for the first of them.
        read_as: the tokens that it is encoded as.
    """

    texts_tried: Sequence[str]
    read_as: Sequence[Sequence[str]]


@dataclass(frozen=True)
class DuplicateRows(SuspiciousRows):
    """Rows that are equal.

    Args:
        groups: how many groups of equal rows there are.
        group: of each row, counted from 0.
    """

    groups: int
    group: Int[np.ndarray, " tokens"]


@dataclass(frozen=True)
class HubRows(SuspiciousRows):
    """Rows that are near neighbors of far more tokens than chance.

    Args:
        times: of how many sampled tokens each is a neighbor.
        queries: how many tokens were sampled.
        neighbors: of each.
        expected: of how many tokens a row is a neighbor on average.
    """

    times: Sequence[int]
    queries: int
    neighbors: int
    expected: float


@dataclass(frozen=True)
class NonFiniteRows(SuspiciousRows):
    """Rows with NaN or infinity.

    Args:
        nan, infinite: how many there are in the row, for the first rows.
    """

    nan: Sequence[int]
    infinite: Sequence[int]


@dataclass(frozen=True)
class RowsBeyondVocabulary(SuspiciousRows):
    """Rows without a token.

    Args:
        median_norm: of these rows.
    """

    median_norm: float | None


@dataclass(frozen=True)
class SuspiciousLists:
    """All lists of suspicious rows."""

    under_trained: UnderTrainedRows
    far: FarRows
    unreachable: UnreachableRows
    duplicates: DuplicateRows
    hubs: HubRows
    zero: SuspiciousRows
    not_finite: NonFiniteRows
    beyond_vocabulary: RowsBeyondVocabulary


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
    """The suspicious rows of a token table, with the evidence.

    Args:
        rows: of the table.
        name: of the tensor.
        reference: how many rows of lowest norm are the reference.
        threshold: the cosine from which rows are suspected of being under-trained.
        none_suspected: what was measured where no row is suspected of it; else "".
        lowest, farthest: the rows of lowest norm, and those farthest from the mean row, suspicious or not.
        norms, cosines: of the rows that are finite and not zero; the others have lists of their own.
    """

    rows: int
    name: str
    reference: int
    threshold: float
    none_suspected: str
    norms: RowHistogram
    cosines: RowHistogram
    lists: SuspiciousLists
    lowest: FarRows
    farthest: FarRows


def examine(session: Session, settings: Mapping[str, Any], report: Report) -> SuspiciousTokens:
    """Return the suspicious rows. It is a job, for a large table takes half a minute.

    Args:
        session: what is open.
        settings: none.
        report: called with the progress.
    """
    known(settings)
    if not session.tables:
        raise SettingError("there is no token table here, so there is nothing to diagnose.\nOpen a model.")
    return session.once("diagnostics view", lambda: _examined(session, report))


def exported(session: Session) -> ExportedView | None:
    """Return all lists for an exported page."""
    if not session.tables:
        return None
    lists = examine(session, {}, lambda fraction, message: None).lists
    rows_of: Mapping[str, SuspiciousRows] = vars(lists)
    counts = [
        (title, "not known" if rows_of[name].missing is not None else f"{rows_of[name].count:,}")
        for name, title in _TITLES.items()
    ]
    tables = [Table("Suspicious rows of the token table", ("list", "rows"), counts, (1,))]
    for name, title in _TITLES.items():
        rows = rows_of[name]
        each = zip(rows.words[:_EXAMPLES], rows.ids, rows.norms, strict=False)
        cells = [(word, str(row), number(float(norm))) for word, row, norm in each]
        if cells:
            tables.append(Table(f"{title}: the first {len(cells)}", ("token", "id", "norm"), cells, (1, 2)))
    sections = [Section("lists", "Suspicious rows", tables)]
    return ExportedView("Diagnostics", [("diagnostics.examine", {})], sections=sections)


def _examined(session: Session, report: Report) -> SuspiciousTokens:
    steps = iter(range(_STEPS))
    findings = session.diagnostics(lambda step: report(next(steps, _STEPS - 1) / _STEPS, step))
    if isinstance(findings, Missing):
        raise SettingError(f"{findings.missing}.")
    computed, usable = session.subject.diagnostics, session.subject.usable
    under, unreachable = findings.under_trained, findings.unreachable
    lost = np.zeros(0, np.int64) if isinstance(unreachable, Missing) else unreachable.ids
    edges = np.histogram_bin_edges(computed.norms[usable], _bins(len(usable)))
    cosines = np.histogram_bin_edges(computed.cosine[usable], _bins(len(usable)))
    groups = {"all rows": usable, "under-trained": under.ids, "unreachable": np.intersect1d(lost, usable)}
    return SuspiciousTokens(
        rows=findings.rows,
        name=session.table().name,
        reference=len(under.reference),
        threshold=under.threshold,
        none_suspected="" if under.count else none_suspected(under, findings.rows),
        norms=RowHistogram(edges, _counts(computed.norms, groups, edges)),
        cosines=RowHistogram(cosines, _counts(computed.cosine, groups, cosines)),
        lists=_lists(session, findings, lost),
        lowest=_far(session, np.array([row.id for row in findings.far.lowest], np.int64)),
        farthest=_far(session, np.array([row.id for row in findings.far.farthest], np.int64)),
    )


def _lists(session: Session, findings: TokenDiagnostics, lost: Int64[np.ndarray, " lost"]) -> SuspiciousLists:
    norms = session.subject.diagnostics.norms
    examples = findings.not_finite.examples
    return SuspiciousLists(
        under_trained=_under_trained(session, findings, lost),
        far=_far(session, findings.far.ids),
        unreachable=_unreachable(session, norms, findings.unreachable),
        duplicates=_duplicates(session, norms, findings.duplicates),
        hubs=_hubs(session, norms, findings.hubs),
        zero=SuspiciousRows(*_rows(session, norms, findings.zero.ids)),
        not_finite=NonFiniteRows(
            *_rows(session, norms, findings.not_finite.ids),
            [row.nan for row in examples],
            [row.infinite for row in examples],
        ),
        beyond_vocabulary=_beyond(session, norms, findings),
    )


def _rows(
    session: Session, norms: Float[np.ndarray, " rows"], ids: Int64[np.ndarray, " ids"], missing: str | None = None
) -> _Fields:
    """Return the fields of `SuspiciousRows`."""
    shown = ids[:LISTED]
    return (*labels(session, shown.tolist()), len(ids), missing, norms[shown])


def _under_trained(session: Session, findings: TokenDiagnostics, lost: Int64[np.ndarray, " lost"]) -> UnderTrainedRows:
    computed, listed = session.subject.diagnostics, findings.under_trained
    shown = listed.ids[:LISTED]
    return UnderTrainedRows(
        *_rows(session, computed.norms, listed.ids),
        computed.cosine[shown],
        computed.proximity[shown],
        np.isin(shown, lost),
        listed.also_unreachable,
    )


def _far(session: Session, ids: Int64[np.ndarray, " ids"]) -> FarRows:
    computed, shown = session.subject.diagnostics, ids[:LISTED]
    why = computed.far
    distances = computed.distances[shown]
    return FarRows(*_rows(session, computed.norms, ids), distances, [why.get(n, "") for n in shown.tolist()])


def _unreachable(
    session: Session, norms: Float[np.ndarray, " rows"], findings: RowList[UnreachableRow] | Missing
) -> UnreachableRows:
    """Return the tokens, and for the first of them the text that was tried and what it is encoded as."""
    if isinstance(findings, Missing):
        return UnreachableRows(*_rows(session, norms, np.zeros(0, np.int64), findings.missing), [], [])
    tried = [row.tried for row in findings.examples]
    return UnreachableRows(*_rows(session, norms, findings.ids), tried, [row.read_as for row in findings.examples])


def _duplicates(session: Session, norms: Float[np.ndarray, " rows"], findings: Duplicates) -> DuplicateRows:
    ids = np.array([n for group in findings.ids for n in group], np.int64)
    group = np.repeat(np.arange(findings.groups), [len(group) for group in findings.ids])
    return DuplicateRows(*_rows(session, norms, ids), findings.groups, group[:LISTED])


def _hubs(session: Session, norms: Float[np.ndarray, " rows"], findings: HubTokens) -> HubRows:
    rows = _rows(session, norms, np.array([row.id for row in findings.rows], np.int64))
    return HubRows(*rows, [row.times for row in findings.rows], findings.queries, findings.neighbors, findings.expected)


def _beyond(session: Session, norms: Float[np.ndarray, " rows"], findings: TokenDiagnostics) -> RowsBeyondVocabulary:
    ids, beyond = session.subject.diagnostics.beyond_vocabulary, findings.beyond_vocabulary
    if isinstance(beyond, Missing):
        return RowsBeyondVocabulary(*_rows(session, norms, ids[:0], beyond.missing), None)
    return RowsBeyondVocabulary(*_rows(session, norms, ids), beyond.median_norm)


def _bins(rows: int) -> int:
    return max(1, min(_BINS, int(np.ceil(2 * rows ** (1 / 3)))))  # Rice's rule, so that few tokens fill their bins


def _counts(
    values: Float[np.ndarray, " rows"],
    groups: Mapping[str, Int64[np.ndarray, " ids"]],
    edges: Float[np.ndarray, " edges"],
) -> list[RowGroup]:
    return [
        RowGroup(name, np.histogram(values[ids], edges)[0])
        for name, ids in groups.items()
        if len(ids) or name == "all rows"
    ]
