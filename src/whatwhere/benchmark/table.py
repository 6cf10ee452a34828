"""The results as rows of words, for the terminal and for the page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whatwhere.benchmark.targets import as_seconds, verdicts


@dataclass(frozen=True)
class Row:
    """Hold one candidate of one case, as a reader reads it.

    Args:
        ratios: to the limit, by regime; empty words where it was not measured.
        spreads: lower and upper quartile of the same.
        time: the median, under the last regime.
        peak: MiB over what was held at the start.
        verdicts: of the targets that this row has.
    """

    work: str
    case: str
    candidate: str
    ours: bool
    ratios: Mapping[str, str]
    spreads: Mapping[str, str]
    time: str
    peak: str
    error: str
    verdicts: tuple[str, ...]
    note: str


def regimes(results: Mapping[str, Any]) -> list[str]:
    """Give the regimes that occur, in their order."""
    found = [name for _, case in cases(results) for row in case["rows"] for name in row["regimes"]]
    return list(dict.fromkeys(found))


def cases(results: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give each case with the name of its work."""
    for work, record in results["works"].items():
        for case in record["cases"]:
            yield work, case


def judged(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the targets of the works that were measured, as JSON holds them."""
    return [
        {
            "work": verdict.target.work,
            "case": verdict.case,
            "candidate": verdict.target.candidate,
            "target": verdict.target.words,
            "value": verdict.value,
            "met": verdict.met,
        }
        for verdict in verdicts(results)
    ]


def rows(results: Mapping[str, Any]) -> list[Row]:
    """Give all rows in their order."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for verdict in verdicts(results):
        place = (verdict.target.work, verdict.case, verdict.target.candidate)
        said.setdefault(place, []).append(f"{verdict.target.words}: {verdict.words}")
    return [
        _row(work, case, row, tuple(said.get((work, case["case"], row["candidate"]), ())))
        for work, case in cases(results)
        for row in case["rows"]
    ]


def _row(work: str, case: Mapping[str, Any], row: Mapping[str, Any], judged: tuple[str, ...]) -> Row:
    measured: Mapping[str, Any] = row["regimes"]
    last = list(measured.values())[-1] if measured else None
    return Row(
        work,
        case["case"],
        row["candidate"],
        row["ours"],
        {name: ratio(found["ratio"]["median"]) for name, found in measured.items()},
        {name: f"{ratio(found['ratio']['low'])}-{ratio(found['ratio']['high'])}" for name, found in measured.items()},
        "" if last is None else as_seconds(last["seconds"]["median"]),
        "" if row["peak"] is None else f"{row['peak'] / 2**20:,.0f}",
        "" if row["error"] is None else f"{row['error']:.1e}",
        judged,
        row["note"],
    )


def ratio(value: float) -> str:
    """Write a ratio with three digits, as far as they mean something.

    >>> ratio(1.0449), ratio(18.31), ratio(417.2)
    ('1.04', '18.3', '417')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
