"""The page in Markdown of the claims of the tutorials: docs/errata.md."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from experiments.tutorials.all_claims import CLAIMS, Finding
from experiments.tutorials.claim import ABOUT, SOURCES, Claim, Measured, Value
from experiments.tutorials.trained import Judgment, Measurement, SchemeVerdict, TrainedClaim, Unit
from whatwhere.comparison.results import Spread
from whatwhere.escape import cut, visible
from whatwhere.report.text import count, listed, number, percent

ABSENT = "–"
SAID: Mapping[str, str] = {"depends": "holds in part", "not measured": "not decided"}
"""What a page says instead of the verdict on a claim."""
_COUNTED = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "depends": ("holds in part", "hold in part"),
    "not measured": ("is not decided", "are not decided"),
}
_NUMBERS = ("First", "Second", "Third", "Fourth", "Fifth")


def errata_page(findings: Iterable[Finding], judgments: Mapping[str, Judgment]) -> str:
    """Write the page of all claims: a line and a number for each, which opens on the quotation and what is right."""
    by_id = {each.id: each for each in findings}
    parts = [
        "# Errata",
        "What five tutorials on token embeddings and positional encodings claim, measured. Each line is a claim with "
        "its verdict and a number; it opens on the tutorial's own words, all that was measured, and what is right. "
        "Numbers of several runs are their median (least to greatest). This page is written by `make docs` from the "
        "claims in `experiments/tutorials`, and a test measures each of them again, as `python -m experiments run "
        "--only E0` does.",
        f"Of {count(len(CLAIMS), 'claim')}, {counted(each.verdict for each in CLAIMS)}.",
        "A claim holds in part where some of its measured quantities, or runs, agree with it and some do not. Claims "
        "on what training does are decided by runs that have learned their task: the command beside a claim trains "
        "them, and "
        "`python -m experiments judge FOLDER` judges it by their results. Claims on rows of a trained model are "
        "measured on `all-MiniLM-L6-v2`.",
    ]
    for number_of, (source, title) in enumerate(SOURCES.items()):
        claims = [each for each in CLAIMS if each.source == source]
        wrong = listed([f"[{each.id}](#{each.anchor})" for each in claims if each.verdict == "fails"])
        outcomes = counted(each.verdict for each in claims)
        about = f"On {ABOUT[source]}. Of {count(len(claims), 'claim')}, {outcomes}. What fails: {wrong}."
        lines = [_folded(each, by_id.get(each.id), judgments.get(each.id)) for each in claims]
        parts += [f"## {_NUMBERS[number_of]} tutorial: “{title}”", about, *lines]
    return "\n\n".join(parts) + "\n"


def counted(verdicts: Iterable[str]) -> str:
    """Count the verdicts on claims: how many hold, fail, hold in part and are not decided."""
    numbers = Counter(verdicts)
    return listed([f"{numbers[name]} {texts[numbers[name] != 1]}" for name, texts in _COUNTED.items() if numbers[name]])


def _folded(each: Claim, finding: Finding | None, judgment: Judgment | None) -> str:
    """Return a claim as one line with its anchor, the verdict and a number, which opens on all else."""
    verdict = SAID.get(each.verdict, each.verdict).capitalize()
    if isinstance(each, TrainedClaim):
        decided, said = _decided(each, judgment), "" if judgment is None else measurement(judgment.measured)
        if judgment is not None and each.verdict == "depends":
            verdict = f"Holds in {judgment.holding} of {count(judgment.runs, 'run')}"
    elif finding is None:
        decided = said = ""
    else:
        decided, said = finding.reason or _table(finding.measured), _most_telling(finding.measured)
    right = _text(each.right)
    said = said or each.right.partition(".")[0] * (each.verdict == "not measured")
    line = f"<b>{verdict}</b>: {_in_html(each.says)}{f' <i>{_in_html(said)}</i>' if said else ''}"
    parts = [
        f'<a id="{each.anchor}"></a>',
        f'<details markdown="1">\n<summary>{each.id} {line}</summary>',
        f"The tutorial writes: `` {each.quote} ``",
        decided,
        right if isinstance(each, TrainedClaim) else f"**Right:** {right}",
        "</details>",
    ]
    return "\n\n".join(filter(None, parts))


def _most_telling(measured: Sequence[Measured]) -> str:
    """Return the quantity that a claim is most wrong about, as a number where there is one; "" without any."""
    claimed = [each for each in measured if each.claimed is not None]
    claimed.sort(key=lambda each: (bool(each.agrees), isinstance(each.value, bool | str)))
    if not claimed:
        return ""
    first = claimed[0]
    beside = "" if first.agrees else f", claimed {_claimed(first)}"
    return f"{first.quantity}: {_measured(first)}{beside}"


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
    unit = judgment.measured.unit
    rows = [
        f"| {_text(cut(visible(each.scheme)))} | {each.holding} of {each.runs} | {_spread(each.spread, unit)} |"
        for each in judgment.schemes
    ]
    table = "\n".join(["", "", f"| scheme | runs {judgment.line} | measured |", "|---|---|---|", *rows])
    decided = f"Measured: {_text(measurement(judgment.measured))}; {_text(reason(judgment))}"
    return f"\n\n{decided}{table if len(rows) > 1 else ''}"


def _experiment(each: TrainedClaim) -> str:
    by = "Measured" if each.verdict == "not measured" else "Decided"
    return f" {by} by [{each.experiment}](evidence.md#{each.experiment.lower()})." if each.experiment else ""


def _table(measured: Sequence[Measured]) -> str:
    """Return the quantities of which something is claimed, as a table; "" where there are none."""
    rows = [
        f"| {_text(each.quantity)} | {_text(_measured(each))} | {_text(_claimed(each))} |"
        for each in measured
        if each.claimed is not None
    ]
    return "\n".join(["| quantity | measured | claimed |", "|---|---|---|", *rows]) if rows else ""


def _measured(each: Measured) -> str:
    """Return the value; errors that count as zero are not printed, for they depend on the processor."""
    is_zero = each.agrees and not isinstance(each.claimed, bool) and each.claimed == 0 and each.value != 0
    return f"below {number(each.tolerance)}" if is_zero else value(each.value)


def _claimed(each: Measured) -> str:
    """Return what is claimed; where that is 0 and is not met, also what would have counted as 0."""
    missed = not each.agrees and each.tolerance and not isinstance(each.claimed, bool | str) and each.claimed == 0
    return f"0 (up to {number(each.tolerance)} counts)" if missed else value(each.claimed)


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


def _text(text: str) -> str:
    """Escape what Markdown would read as markup."""
    return text.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")


def _in_html(text: str) -> str:
    return html.escape(text, quote=False).replace("*", "&#42;")


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
