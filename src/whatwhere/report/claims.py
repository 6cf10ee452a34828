"""The claims of the tutorials beside what a comparison measured, as sentences and tables."""

from collections import Counter
from collections.abc import Sequence

from whatwhere.claims.claim import SOURCES, Verdict
from whatwhere.claims.token_table import NumberLine, Quantity, TableRow, TokenTable
from whatwhere.claims.trained import Judgment, Measurement, SchemeVerdict, Unit
from whatwhere.comparison.results import Spread
from whatwhere.escape import cut, visible
from whatwhere.report.section import Paragraph, Part, Section, Table
from whatwhere.report.text import count, decimals, listed, number, percent, spread

ABSENT = "–"
_QUANTITIES: dict[Quantity, str] = {
    "mean": "mean",
    "std": "standard deviation",
    "range": "least and greatest value",
    "range with positions": "the same after adding positions",
    "max_min": "cosine of Max and Min",
    "first_last": "cosine of First and Last",
    "within_digits": "mean cosine within the digits",
    "within_operators": "mean cosine within the operators",
    "within_syntax": "mean cosine within ( ) and comma",
    "number_line": "digits on a line, |r|",
}
_COUNTED: dict[Verdict, tuple[str, str]] = {  # for one claim, for several
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "depends": ("depends on the run", "depend on the run"),
    "not measured": ("was not measured", "were not measured"),
}

VERDICTS = ("id", "claim", "the tutorial writes", "measured here", "verdict", "by scheme", "reason", "precondition")
"""Columns of the table of verdicts."""


def sections(verdicts: Sequence[Judgment], table: TokenTable | None, lines: Sequence[NumberLine]) -> list[Section]:
    """Write the verdicts on the claims as sections of a report.

    Args:
        verdicts: as `whatwhere.claims.verdicts` returns them.
        table: as `whatwhere.claims.token_table` returns it.
        lines: as `whatwhere.claims.number_lines` returns them.
    """
    written = []
    if table is not None:
        parts: list[Part] = [Paragraph(table_sentence(table)), token_table(table)]
        parts += [number_lines(lines)] if lines else []
        written.append(Section("token-table", "What training wrote into the token table", parts))
    if verdicts:
        table_of = Table("Each claim is judged by these runs alone", VERDICTS, [verdict_row(v) for v in verdicts])
        written.append(Section("claims", "What tutorials claim", [Paragraph(verdicts_sentence(verdicts)), table_of]))
    return written


def verdicts_sentence(verdicts: Sequence[Judgment]) -> str:
    """Count in a sentence how many of the claims hold."""
    if not verdicts:
        return "This task belongs to no tutorial, so there are no claims to judge."
    outcomes = Counter(verdict.verdict for verdict in verdicts)
    parts = [f"{outcomes[name]} {texts[outcomes[name] > 1]}" for name, texts in _COUNTED.items() if outcomes[name]]
    titles = [f"{number} is “{title}”" for number, title in enumerate(SOURCES.values()) if _is_of(number, verdicts)]
    return (
        f"Of {count(len(verdicts), 'claim')} on this task, {listed(parts)} in these runs. Ids begin with the number of "
        f"the tutorial: {listed(titles)}."
    )


def _is_of(number: int, verdicts: Sequence[Judgment]) -> bool:
    return any(verdict.id.startswith(f"{number}.") for verdict in verdicts)


def verdict_row(verdict: Judgment) -> list[str]:
    """Return the cells of a verdict, under VERDICTS."""
    return [
        verdict.id,
        verdict.claim,
        verdict.tutorial,
        measurement(verdict.measured) if verdict.runs else ABSENT,
        verdict.verdict,
        by_scheme(verdict),
        reason(verdict),
        verdict.precondition,
    ]


def reason(verdict: Judgment) -> str:
    """Explain a verdict: the measured numbers, or what is lacking."""
    if not verdict.runs:
        return f"{verdict.reason}."
    beside = [f"{each.quantity}: {_number(each)}" for each in verdict.beside if each.spread is not None]
    met = f"{verdict.line} in {verdict.holding} of {count(verdict.runs, 'run')}"
    met += f", {verdict.reason}" if verdict.reason else ""
    return f"{'; '.join([met, *beside])}."


def by_scheme(verdict: Judgment) -> str:
    """Return what decides a verdict for each scheme, where there are several."""
    if len(verdict.schemes) < 2:
        return ""

    def words(each: SchemeVerdict) -> str:
        value = _spread(each.spread, verdict.measured.unit)
        return f"{cut(visible(each.scheme))}: {each.holding} of {count(each.runs, 'run')}, {value}"

    return "; ".join(map(words, verdict.schemes))


def measurement(measured: Measurement) -> str:
    """Return a measured quantity with its name."""
    return f"{measured.quantity}: {_number(measured)}"


def table_sentence(table: TokenTable) -> str:
    """Describe in a sentence what training did to the token table."""
    std, cosine, line = (table[name].low for name in ("std", "max_min", "number_line"))
    parts = []
    if std[0] is not None and std[-1] is not None:
        parts.append(deviation_sentence(std[0].median, std[-1].median))
    if cosine[0] is not None and cosine[-1] is not None:
        start, end = (decimals(each.median, 2) for each in (cosine[0], cosine[-1]))
        parts.append(f"the cosine of Max and Min from {start} to {end}")
    if line[-1] is not None:
        r = spread(line[-1], 2)
        parts.append(f"the digits' order and the direction in which they moved have |r| {r}")
    return f"{'; '.join(parts)}; medians over {count(table.runs, 'run')}."


def deviation_sentence(before: float, after: float) -> str:
    """Describe what training did to the standard deviation of a token table, without its full stop.

    Examples:
        >>> deviation_sentence(0.1511, 0.1512)
        'Training left the standard deviation of the token table at 0.151'
    """
    start, end = decimals(before), decimals(after)
    if start == end:
        return f"Training left the standard deviation of the token table at {start}"
    return f"Training moved the standard deviation of the token table from {start} to {end}"


def token_table(table: TokenTable) -> Table:
    """Return the numbers of the token table, beside those of the tutorial where the training is its own."""
    beside = table.authors
    rows = [[_QUANTITIES[row.quantity], *_cells(row), *([row.tutorial] if beside else [])] for row in table.rows]
    caption = (
        f"The token table after a share of the steps: median over {count(table.runs, 'run')} of all schemes, with "
        "least and greatest."
    )
    if beside:
        caption += " The tutorial's numbers are for 0, 10 and 50 epochs of 50, which is 0, 20 and 100 %."
    percents = [f"at {percent} %" for percent in table.percents]
    return Table(caption, ["quantity", *percents, *(["the tutorial"] if beside else [])], rows)


def number_lines(lines: Sequence[NumberLine]) -> Table:
    """Return the digits along the direction in which training moved them most."""
    rows = [
        [cut(visible(line.scheme)), *(decimals(float(x), 2) for x in line.coordinates), decimals(line.r, 2)]
        for line in lines
    ]
    caption = "The digits along the first principal axis of what training wrote into them, first seed of each scheme"
    return Table(caption, ["scheme", *"0123456789", "|r|"], rows, numeric=range(1, 12))


def _cells(row: TableRow) -> list[str]:
    if row.quantity in ("mean", "std"):
        return [spread(each, absent=ABSENT) for each in row.low]
    if not row.quantity.startswith("range"):
        return [spread(each, 2, absent=ABSENT) for each in row.low]
    return [
        ABSENT if low is None or high is None else f"{decimals(low.median, 2)} to {decimals(high.median, 2)}"
        for low, high in zip(row.low, row.high, strict=True)
    ]


def _number(measured: Measurement) -> str:
    return ABSENT if measured.spread is None else _spread(measured.spread, measured.unit)


def _spread(values: Spread, unit: Unit) -> str:
    write = percent if unit == "share" else _significant
    median, low, high = (write(value) for value in (values.median, values.min, values.max))
    return median if low == high else f"{median} ({low} to {high})"


def _significant(value: float) -> str:
    return number(value, 2)
