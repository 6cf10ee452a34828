"""The results as rows of words, for the terminal and for the page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.records import CandidateRecord, Judgement, Results, VariantRecord
from benchmarks.targets import as_seconds, verdicts


@dataclass(frozen=True)
class Row:
    """A row of the table: one candidate of one variant, its numbers formatted.

    Args:
        case, variant, candidate: their names.
        ours: whether it is a part of whatwhere.
        ratios: to the limit, by regime; a regime that was not measured is missing.
        spreads: lower and upper quartile of the same.
        time: the median, under the last regime.
        peak: MiB beyond what was allocated at the start.
        error: against float64.
        verdicts: of the targets that this row has.
        note: why it was not measured.
    """

    case: str
    variant: str
    candidate: str
    ours: bool
    ratios: Mapping[str, str]
    spreads: Mapping[str, str]
    time: str
    peak: str
    error: str
    verdicts: tuple[str, ...]
    note: str


def regimes(results: Results) -> list[str]:
    """Return the regimes that were measured, in their order.

    Args:
        results: of a benchmark.
    """
    names = [name for _, variant in variants(results) for row in variant["rows"] for name in row["regimes"]]
    return list(dict.fromkeys(names))


def variants(results: Results) -> Iterator[tuple[str, VariantRecord]]:
    """Return each variant with the name of its case.

    Args:
        results: of a benchmark.
    """
    for case, record in results["cases"].items():
        for variant in record["variants"]:
            yield case, variant


def judged(results: Results) -> list[Judgement]:
    """Return the targets of the cases that were measured, as JSON holds them.

    Args:
        results: of a benchmark.
    """
    return [
        {
            "case": verdict.target.case,
            "variant": verdict.variant,
            "candidate": verdict.target.candidate,
            "target": verdict.target.words,
            "value": verdict.value,
            "met": verdict.met,
        }
        for verdict in verdicts(results)
    ]


def rows(results: Results) -> list[Row]:
    """Return all rows in their order.

    Args:
        results: of a benchmark.
    """
    words: dict[tuple[str, str, str], list[str]] = {}
    for verdict in verdicts(results):
        row = (verdict.target.case, verdict.variant, verdict.target.candidate)
        words.setdefault(row, []).append(f"{verdict.target.words}: {verdict.words}")
    return [
        _row(case, variant["variant"], row, tuple(words.get((case, variant["variant"], row["candidate"]), ())))
        for case, variant in variants(results)
        for row in variant["rows"]
    ]


def _row(case: str, variant: str, row: CandidateRecord, verdicts: tuple[str, ...]) -> Row:
    measured = {name: times["ratio"] for name, times in row["regimes"].items()}
    last = list(row["regimes"].values())[-1] if measured else None
    return Row(
        case,
        variant,
        row["candidate"],
        row["ours"],
        {name: ratio(summary["median"]) for name, summary in measured.items()},
        {name: f"{ratio(summary['low'])}-{ratio(summary['high'])}" for name, summary in measured.items()},
        "" if last is None else as_seconds(last["seconds"]["median"]),
        "" if row["peak"] is None else f"{row['peak'] / 2**20:,.0f}",
        "" if row["error"] is None else f"{row['error']:.1e}",
        verdicts,
        row["note"],
    )


def ratio(value: float) -> str:
    """Write a ratio with three digits, as far as they mean something.

    Args:
        value: the ratio.

    Returns:
        Its words.

    Examples:
        >>> ratio(1.0449), ratio(18.31), ratio(417.2)
        ('1.04', '18.3', '417')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
