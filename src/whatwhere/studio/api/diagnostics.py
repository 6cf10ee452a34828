"""Diagnostics: under-trained and unreachable tokens, duplicates, hubs, and other suspicious rows, with the evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.errors import SettingError
from whatwhere.inspection.diagnostics import Duplicates, HubTokens, RowList, TokenDiagnostics, UnreachableRow
from whatwhere.records import Missing
from whatwhere.report.diagnostics import none_suspected
from whatwhere.report.section import Section, Table
from whatwhere.report.text import number
from whatwhere.studio.api.settings import known
from whatwhere.studio.api.static_tables import ExportedView
from whatwhere.studio.api.tokens import labels
from whatwhere.studio.jobs import Report
from whatwhere.studio.session import Session

LISTED = 5000
"""Rows of each list that are sent; their count is complete."""
_TITLES = {
    "under_trained": "under-trained",
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


def examine(session: Session, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Return the suspicious rows. It is a job, for a large table takes half a minute."""
    known(settings)
    if not session.tables:
        raise SettingError("there is no token table here, so there is nothing to diagnose.\nOpen a model.")
    return session.once("diagnostics view", lambda: _examined(session, report))


def exported(session: Session) -> ExportedView | None:
    """Return all lists for an exported page."""
    if not session.tables:
        return None
    lists = examine(session, {}, lambda share, step: None)["lists"]
    counts = [
        (title, "not known" if lists[name].get("missing") else f"{lists[name]['count']:,}")
        for name, title in _TITLES.items()
    ]
    tables = [Table("Suspicious rows of the token table", ("list", "rows"), counts, (1,))]
    for name, title in _TITLES.items():
        rows = zip(lists[name]["words"][:_EXAMPLES], lists[name]["ids"], lists[name]["norms"], strict=False)
        cells = [(word, str(row), number(float(norm), 4)) for word, row, norm in rows]
        if cells:
            tables.append(Table(f"{title}: the first {len(cells)}", ("token", "id", "norm"), cells, (1, 2)))
    sections = [Section("lists", "Suspicious rows", tables)]
    return ExportedView("Diagnostics", [("diagnostics.examine", {})], [], sections=sections)


def _examined(session: Session, report: Report) -> dict[str, Any]:
    steps = iter(range(_STEPS))
    found = session.diagnostics(lambda step: report(next(steps, _STEPS - 1) / _STEPS, step))
    if isinstance(found, Missing):
        raise SettingError(f"{found.missing}.")
    computed, usable = session.subject.diagnostics, session.subject.usable
    under, unreachable = found.under_trained, found.unreachable
    lost = np.zeros(0, np.int64) if isinstance(unreachable, Missing) else unreachable.ids
    # Both histograms are of the rows that are finite and not zero: the others have lists of their own.
    edges = np.histogram_bin_edges(computed.norms[usable], _bins(len(usable)))
    cosines = np.histogram_bin_edges(computed.cosine[usable], _bins(len(usable)))
    groups = {"all rows": usable, "under-trained": under.ids, "unreachable": np.intersect1d(lost, usable)}
    return {
        "rows": found.rows,
        "name": session.table().name,
        "reference": len(under.reference),
        "threshold": under.threshold,
        "none_suspected": "" if under.count else none_suspected(under, found.rows),
        "norms": {"edges": edges, "groups": _counts(computed.norms, groups, edges)},
        "cosines": {"edges": cosines, "groups": _counts(computed.cosine, groups, cosines)},
        "lists": {
            "under_trained": _under_trained(session, found, lost),
            "unreachable": _unreachable(session, computed.norms, unreachable),
            "duplicates": _duplicates(session, computed.norms, found.duplicates),
            "hubs": _hubs(session, computed.norms, found.hubs),
            "zero": _rows(session, computed.norms, found.zero.ids),
            "not_finite": _rows(session, computed.norms, found.not_finite.ids)
            | {name: [getattr(row, name) for row in found.not_finite.examples] for name in ("nan", "infinite")},
            "beyond_vocabulary": _beyond(session, computed.norms, computed.beyond_vocabulary, found),
        },
    }


def _rows(session: Session, norms: Float[np.ndarray, " rows"], ids: Int64[np.ndarray, " ids"]) -> dict[str, Any]:
    shown = ids[:LISTED]
    return {"count": len(ids), "missing": None, "ids": shown, "norms": norms[shown], **labels(session, shown.tolist())}


def _under_trained(session: Session, found: TokenDiagnostics, lost: Int64[np.ndarray, " lost"]) -> dict[str, Any]:
    computed, listed = session.subject.diagnostics, found.under_trained
    shown = listed.ids[:LISTED]
    evidence = {"cosines": computed.cosine[shown], "proximity": computed.proximity[shown]}
    unreachable = {"unreachable": np.isin(shown, lost), "also_unreachable": listed.also_unreachable}
    return _rows(session, computed.norms, listed.ids) | evidence | unreachable


def _unreachable(
    session: Session, norms: Float[np.ndarray, " rows"], found: RowList[UnreachableRow] | Missing
) -> dict[str, Any]:
    """Return the ids, and for the first of them the text that was tried and what it is encoded as."""
    if isinstance(found, Missing):
        none = _rows(session, norms, np.zeros(0, np.int64))
        return none | {"missing": found.missing, "texts_tried": [], "read_as": []}
    tried = {"texts_tried": [row.text for row in found.examples], "read_as": [row.read_as for row in found.examples]}
    return _rows(session, norms, found.ids) | tried


def _duplicates(session: Session, norms: Float[np.ndarray, " rows"], found: Duplicates) -> dict[str, Any]:
    ids = np.array([n for group in found.ids for n in group], np.int64)
    group = np.repeat(np.arange(found.groups), [len(group) for group in found.ids])
    return _rows(session, norms, ids) | {"groups": found.groups, "group": group[:LISTED]}


def _hubs(session: Session, norms: Float[np.ndarray, " rows"], found: HubTokens) -> dict[str, Any]:
    ids = np.array([row.id for row in found.rows], np.int64)
    numbers = {"queries": found.queries, "neighbors": found.neighbors, "expected": found.expected}
    return _rows(session, norms, ids) | numbers | {"times": [row.times for row in found.rows]}


def _beyond(
    session: Session, norms: Float[np.ndarray, " rows"], ids: Int64[np.ndarray, " ids"], found: TokenDiagnostics
) -> dict[str, Any]:
    beyond = found.beyond_vocabulary
    if isinstance(beyond, Missing):
        return _rows(session, norms, ids[:0]) | {"missing": beyond.missing, "median_norm": None}
    return _rows(session, norms, ids) | {"median_norm": beyond.median_norm}


def _bins(rows: int) -> int:
    return max(1, min(_BINS, int(np.ceil(2 * rows ** (1 / 3)))))  # Rice's rule, so that few tokens fill their bins


def _counts(
    values: Float[np.ndarray, " rows"],
    groups: Mapping[str, Int64[np.ndarray, " ids"]],
    edges: Float[np.ndarray, " edges"],
) -> Sequence[dict[str, Any]]:
    return [
        {"name": name, "counts": np.histogram(values[ids], edges)[0]}
        for name, ids in groups.items()
        if len(ids) or name == "all rows"
    ]
