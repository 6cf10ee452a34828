"""Unhealthy tokens: rows that training never reached, tokens that no text leads to, doubles, hubs; and the evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whatwhere.errors import SettingError
from whatwhere.studio.api.settings import known
from whatwhere.studio.api.sheets import Left, Sheet
from whatwhere.studio.api.tokens import labels
from whatwhere.studio.examined import subject, unhealthy
from whatwhere.studio.jobs import Report
from whatwhere.studio.sources import Source

LISTED = 5000
"""Rows of each list that are sent; how many there are is said besides."""
_TITLES = {
    "never": "never trained",
    "unreachable": "unreachable",
    "duplicates": "duplicates",
    "hubs": "hubs",
    "zero": "zero",
    "broken": "not finite",
    "beyond": "beyond the vocabulary",
}
_READ = 100
"""Rows of each list on a page without JavaScript."""
_BINS = 60
_STEPS = 4


def examine(source: Source, settings: Mapping[str, Any], report: Report) -> dict[str, Any]:
    """Find the rows that are not well. It is a job, for a large table takes half a minute."""
    known(settings)
    if not source.tables:
        raise SettingError("there is no table of tokens here, so none of its rows can be unwell.")
    return source.once("unhealthy", lambda: _examined(source, report))


def left(source: Source) -> Left | None:
    """Leave all lists on a frozen page."""
    if not source.tables:
        return None
    lists = examine(source, {}, lambda share, said: None)["lists"]
    counts = [
        (title, "not known" if lists[name].get("missing") else f"{lists[name]['count']:,}")
        for name, title in _TITLES.items()
    ]
    sheets = [Sheet("What is wrong with rows of the token table", ("list", "rows"), counts)]
    for name, title in _TITLES.items():
        rows = zip(lists[name]["words"][:_READ], lists[name]["ids"], lists[name]["norms"], strict=False)
        cells = [(word, str(number), f"{norm:.4g}") for word, number, norm in rows]
        if cells:
            sheets.append(Sheet(f"{title}: the first {len(cells)}", ("token", "id", "length"), cells))
    return Left("Unhealthy tokens", [("health.examine", {})], sheets)


def _examined(source: Source, report: Report) -> dict[str, Any]:
    steps = iter(range(_STEPS))
    told = unhealthy(source, lambda said: report(next(steps, _STEPS - 1) / _STEPS, said))
    if "missing" in told:
        raise SettingError(f"{told['missing']}.")
    found, sound = subject(source).health, subject(source).sound
    never, lost = found.untrained, np.array(told["unreachable"].get("ids", []), np.int64)
    # Both histograms are of the rows that are sound: the others have lists of their own.
    edges = np.histogram_bin_edges(found.norms[sound], _bins(len(sound)))
    cosines = np.histogram_bin_edges(found.cosine[sound], _bins(len(sound)))
    groups = {"all rows": sound, "never trained": never, "unreachable": np.intersect1d(lost, sound)}
    return {
        "rows": told["rows"],
        "name": source.table().name,
        "tokenizer": "missing" not in told["unreachable"],
        "seeds": len(found.seeds),
        "threshold": found.threshold,
        "norms": {"edges": edges, "groups": _counts(found.norms, groups, edges)},
        "cosines": {"edges": cosines, "groups": _counts(found.cosine, groups, cosines)},
        "lists": {
            "never": _rows(source, found.norms, never)
            | {"cosines": found.cosine[never[:LISTED]], "likeness": found.likeness[never[:LISTED]]}
            | {"lost": np.isin(never[:LISTED], lost), "also": told["never_trained"]["also_unreachable"]},
            "unreachable": _unreachable(source, found.norms, lost, told["unreachable"]),
            "duplicates": _duplicates(source, found.norms, found.duplicates),
            "hubs": _hubs(source, found.norms, told["hubs"]),
            "zero": _rows(source, found.norms, found.zero),
            "broken": _rows(source, found.norms, found.broken)
            | {name: [row[name] for row in told["broken"]["shown"]] for name in ("nan", "infinite")},
            "beyond": _rows(source, found.norms, found.beyond) | {"median": told["beyond"]["median_norm"]},
        },
    }


def _rows(source: Source, norms: np.ndarray, ids: np.ndarray) -> dict[str, Any]:
    shown = ids[:LISTED]
    return {"count": len(ids), "ids": shown, "norms": norms[shown], **labels(source, shown.tolist())}


def _unreachable(source: Source, norms: np.ndarray, lost: np.ndarray, told: Mapping[str, Any]) -> dict[str, Any]:
    """Give the ids, and of the first of them the text that was tried and what the tokenizer made of it."""
    shown: Sequence[Mapping[str, Any]] = told.get("shown", [])
    tried = {"tried": [row["text"] for row in shown], "read": [row["reads_as"] for row in shown]}
    return _rows(source, norms, lost) | tried | {"missing": told.get("missing")}


def _duplicates(source: Source, norms: np.ndarray, groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    ids = np.array([n for group in groups for n in group], np.int64)
    number = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return _rows(source, norms, ids) | {"groups": len(groups), "group": number[:LISTED]}


def _hubs(source: Source, norms: np.ndarray, told: Mapping[str, Any]) -> dict[str, Any]:
    ids = np.array([row["id"] for row in told["shown"]], np.int64)
    times = {"times": [row["times"] for row in told["shown"]]}
    return _rows(source, norms, ids) | times | {name: told[name] for name in ("asked", "neighbors", "expected")}


def _bins(rows: int) -> int:
    return max(1, min(_BINS, int(np.ceil(2 * rows ** (1 / 3)))))  # Rice's rule: few tokens make no comb


def _counts(values: np.ndarray, groups: Mapping[str, np.ndarray], edges: np.ndarray) -> list[dict[str, Any]]:
    return [
        {"name": name, "counts": np.histogram(values[ids], edges)[0]}
        for name, ids in groups.items()
        if len(ids) or name == "all rows"
    ]
