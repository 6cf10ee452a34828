"""Pages in Markdown of the claims of the tutorials and of their questions."""

import re
from collections.abc import Iterable, Mapping, Sequence

from whatwhere.claims.claim import ABOUT, ID, SOURCES, Claim, Measured, Value, Verdict
from whatwhere.claims.first_questions import PREAMBLE
from whatwhere.claims.question import Question
from whatwhere.claims.registry import CLAIMS, QUESTIONS, Finding, claim
from whatwhere.claims.trained import Judgment, TrainedClaim
from whatwhere.report.claims import by_scheme, measurement, reason
from whatwhere.report.text import count, listed, number

_CLAIM = re.compile(rf"\(({ID.pattern})\)")
_ORDER: Sequence[Verdict] = ("holds", "fails", "depends", "not measured")
_COUNTED = {"holds": "hold", "fails": "fail", "depends": "hold in part", "not measured": "are not decided"}
_NUMBERS = ("First", "Second", "Third", "Fourth", "Fifth")


def errata_page(findings: Iterable[Finding], judgments: Mapping[str, Judgment]) -> str:
    """Write the page of all claims: what is measured beside what is claimed, and what is right.

    Args:
        findings: as `measure_claims` returns them, of all claims that it measures.
        judgments: of the committed evidence, by id of the claim that its runs decide.
    """
    by_id = {each.id: each for each in findings}
    parts = [
        "# Errata",
        "What five tutorials on token embeddings and positional encodings claim, measured. This page is written by "
        "`make docs` from the claims in `src/whatwhere/claims`, and a test measures each of them again; from Python, "
        "`whatwhere.claims.registry.measure_claims()` does.",
        _counts(CLAIMS),
        "A claim holds in part where some of its measured quantities agree with it and some do not. Claims on what "
        "training does are decided by runs that have learned their task; the command beside a claim trains them and "
        "judges it. Claims on rows of a trained model are measured on `all-MiniLM-L6-v2`.",
    ]
    for number_of, (source, title) in enumerate(SOURCES.items()):
        of_source = [each for each in CLAIMS if each.source == source and each.verdict != "holds"]
        sections = (_section(each, by_id, judgments) for each in of_source)
        parts += [f"## {_NUMBERS[number_of]} tutorial", f"“{title}”: {ABOUT[source]}.", _contents(source), *sections]
    return "\n\n".join([*parts, "## Claims that hold", _held()]) + "\n"


def answers_page() -> str:
    """Write the page of the twenty questions, each with its answer folded."""
    parts = [
        "# Twenty questions",
        "The questions of the first tutorial in our words, with answers that run. Think first, then unfold the answer; "
        "below it, whether the takeaway, the tutorial's summary, agrees. "
        "This page is written by `make docs` from `src/whatwhere/claims`, and a test runs its code, which begins with:",
        _code(PREAMBLE),
        *(_question(each) for each in QUESTIONS),
    ]
    return "\n\n".join(parts) + "\n"


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


def _link(id: str) -> str:
    return f"[{id}](errata.md#{claim(id).anchor})"


def _question(each: Question) -> str:
    links = [f"{_link(id)} ({_verdict(claim(id))})" for id in each.claims]
    more = [_CLAIM.sub(lambda match: f"({_link(match[1])})", _text(each.takeaway))]
    more += [f"What training decides:\n\n```text\n{each.command}\n```"] if each.command else []
    variant = f"**A variant:** {_text(each.variant)}"
    return "\n\n".join(
        [
            f'<a id="{each.anchor}"></a>',
            f"## Question {each.id.removeprefix('q.')}",
            _text(each.asks),
            f"*Think first:* {_text(each.think)}",
            _folded("Answer", [_text(each.answer), _code(each.code), *more, f"Claims: {', '.join(links)}."]),
            variant,
            _folded("Answer of the variant", [_text(each.variant_answer), _code(each.variant_code)]),
        ]
    )


def _folded(title: str, parts: Sequence[str]) -> str:
    return "\n\n".join([f'<details markdown="1">\n<summary>{title}</summary>', *parts, "</details>"])


def _code(text: str) -> str:
    return f"```pycon\n{text.strip()}\n```"


def _text(text: str) -> str:
    """Escape what Markdown would read as markup."""
    return text.replace("<", "&lt;").replace("|", "\\|").replace("*", "\\*")
