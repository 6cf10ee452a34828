"""The page in Markdown of the claims of the tutorials: docs/errata.md."""

from collections.abc import Iterable, Mapping, Sequence

from experiments.tutorials.all_claims import CLAIMS, Finding
from experiments.tutorials.claim import ABOUT, SOURCES, Claim, Measured, Value, Verdict
from experiments.tutorials.trained import Judgment, Measurement, SchemeVerdict, TrainedClaim, Unit
from whatwhere.comparison.results import Spread
from whatwhere.escape import cut, visible
from whatwhere.report.text import count, listed, number, percent

ABSENT = "–"
_ORDER: Sequence[Verdict] = ("holds", "fails", "depends", "not measured")
_COUNTED = {"holds": "hold", "fails": "fail", "depends": "hold in part", "not measured": "are not decided"}
_NUMBERS = ("First", "Second", "Third", "Fourth", "Fifth")


def errata_page(findings: Iterable[Finding], judgments: Mapping[str, Judgment]) -> str:
    """Write the page of all claims: what is measured beside what is claimed, and what is right."""
    by_id = {each.id: each for each in findings}
    parts = [
        "# Errata",
        "What five tutorials on token embeddings and positional encodings claim, measured. This page is written by "
        "`make docs` from the claims in `experiments/tutorials`, and a test measures each of them again, as "
        "`python -m experiments run --only E0` does.",
        _counts(CLAIMS),
        "A claim holds in part where some of its measured quantities agree with it and some do not. Claims on what "
        "training does are decided by runs that have learned their task: the command beside a claim trains them, and "
        "`python -m experiments judge FOLDER` judges it by their results. Claims on rows of a trained model are "
        "measured on `all-MiniLM-L6-v2`.",
    ]
    for number_of, (source, title) in enumerate(SOURCES.items()):
        of_source = [each for each in CLAIMS if each.source == source and each.verdict != "holds"]
        sections = (_section(each, by_id, judgments) for each in of_source)
        parts += [f"## {_NUMBERS[number_of]} tutorial", f"“{title}”: {ABOUT[source]}.", _contents(source), *sections]
    return "\n\n".join([*parts, "## Claims that hold", _held()]) + "\n"


def _counts(claims: Sequence[Claim]) -> str:
    numbers = {verdict: sum(each.verdict == verdict for each in claims) for verdict in _ORDER}
    return f"Of {count(len(claims), 'claim')}, {listed([f'{n} {_COUNTED[v]}' for v, n in numbers.items() if n])}."


def _section(each: Claim, findings: Mapping[str, Finding], judgments: Mapping[str, Judgment]) -> str:
    """Return a claim with its anchor, what was measured and what is right."""
    lines = [f'<a id="{each.anchor}"></a>', f"### {each.id}: {_verdict(each)}", f"**Claim:** {_text(each.says)}"]
    lines += [f"The tutorial writes: `` {each.quote} ``"]
    if isinstance(each, TrainedClaim):
        lines += [_decided(each, judgments.get(each.id))]
    elif (finding := findings.get(each.id)) is not None:
        lines += [finding.reason] if finding.reason else []
        lines += [table] if (table := _table(finding.measured)) else []
    right = _text(each.right)
    return "\n\n".join([*lines, right if isinstance(each, TrainedClaim) else f"**Right:** {right}"])


def _decided(each: TrainedClaim, judgment: Judgment | None) -> str:
    conditions = _text("; ".join(precondition.text for precondition in each.preconditions))
    quantity = _text(each.quantity.replace("{farthest}", "the longest tested length").replace("{shift}", "the most"))
    return (
        f"The claim holds in a run where this is {_text(each.line)}: {quantity}. "
        f"Runs that decide: {conditions}.{_experiment(each)}{_outcome(judgment)}\n\n```text\n{each.command}\n```"
    )


def _outcome(judgment: Judgment | None) -> str:
    """Return what the runs of the evidence gave, by scheme where there are several."""
    if judgment is None:
        return ""
    schemes = by_scheme(judgment)
    more = f" By scheme: {_text(schemes)}." if schemes else ""
    return f"\n\nMeasured: {_text(measurement(judgment.measured))}; {_text(reason(judgment))}{more}"


def _experiment(each: TrainedClaim) -> str:
    return f" Decided by [{each.experiment}](evidence.md#{each.experiment.lower()})." if each.experiment else ""


def _table(measured: Sequence[Measured]) -> str:
    """Return the quantities of which something is claimed, as a table; "" where there are none."""
    rows = [
        f"| {_text(each.quantity)} | {_measured(each)} | {_text(value(each.claimed))} |"
        for each in measured
        if each.claimed is not None
    ]
    return "\n".join(["| quantity | measured | claimed |", "|---|---|---|", *rows]) if rows else ""


def _measured(each: Measured) -> str:
    """Return the value; errors that count as zero are not printed, for they depend on the processor."""
    is_zero = each.agrees and not isinstance(each.claimed, bool) and each.claimed == 0 and each.value != 0
    return f"below {number(each.tolerance)}" if is_zero else _text(value(each.value))


def value(measured: Value | None) -> str:
    """Return a measured or claimed value as text.

    Examples:
        >>> value(True), value(128256), value("rows"), value(None)
        ('yes', '128,256', 'rows', '')
    """
    if measured is None:
        return ""
    if isinstance(measured, bool):
        return "yes" if measured else "no"
    if isinstance(measured, int):
        return f"{measured:,}"
    return number(measured, 5) if isinstance(measured, float) else measured


def _contents(source: str) -> str:
    """Return what a tutorial claims with the verdicts, each a link to where it is measured."""
    rows = [
        f"| [{each.id}](#{each.anchor}) | {_text(each.says)} | {_verdict(each)} |"
        for each in CLAIMS
        if each.source == source
    ]
    return "\n".join(["| id | claim | verdict |", "|---|---|---|", *rows])


def _held() -> str:
    rows = [
        f'| <a id="{each.anchor}"></a>{each.id} | {_text(each.says)} | {_text(each.quote)} | {_text(each.right)} |'
        for each in CLAIMS
        if each.verdict == "holds"
    ]
    return "\n".join(["| id | claim | the tutorial writes | what is right, or decides |", "|---|---|---|---|", *rows])


def _verdict(each: Claim) -> str:
    return {"depends": "holds in part", "not measured": "not decided"}.get(each.verdict, each.verdict)


def _text(text: str) -> str:
    """Escape what Markdown would read as markup."""
    return text.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


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


def _number(measured: Measurement) -> str:
    return ABSENT if measured.spread is None else _spread(measured.spread, measured.unit)


def _spread(values: Spread, unit: Unit) -> str:
    write = percent if unit == "share" else _significant
    median, low, high = (write(value) for value in (values.median, values.min, values.max))
    return median if low == high else f"{median} ({low} to {high})"


def _significant(value: float) -> str:
    return number(value, 2)
