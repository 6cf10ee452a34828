"""The evidence as sections: a table of statements for each experiment, with what was measured and the verdict."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from packaging.version import Version

from experiments.bench import Experiment
from experiments.errata_page import SAID, counted, measurement, reason, value
from experiments.record import Evidence, FaultRow, Result, Unit
from experiments.tutorials.all_claims import Finding, claim
from experiments.tutorials.trained import Judgment
from whatwhere.comparison.results import Spread
from whatwhere.escape import cut, visible
from whatwhere.report.paper import markdown
from whatwhere.report.section import Chart, Part, Section, Table
from whatwhere.report.text import count, decimals, listed, number, percent, spread

ABSENT = "–"
COLUMNS = ("id", "statement", "source", "measured", "cases", "verdict", "why")
CLAIM_COLUMNS = ("id", "claim", "measured", "verdict")
JUDGMENT_COLUMNS = (*CLAIM_COLUMNS, "in most runs of", "why")
FAULT_COLUMNS = ("fault", "scheme", "accuracy in length", "beyond", "largest change of a logit", "detected by")
NO_EFFECT = 0.01
"""A fault that changes every logit of every model by less has no effect on the scheme, as E1.2 judges a shift."""
_LAST_UNEQUAL = Version("0.2.0")
"""The last whatwhere whose test sets of text had other numbers of tokens at each length."""
_ABOUT = (
    "What tutorials and papers say of token embeddings and positional encodings, measured in one code base on models "
    "of about 100,000 parameters: two layers, windows of 14 to 64 tokens, one learning rate. Nothing here is about "
    "large models. `python -m experiments run` repeats it; the raw runs are in the folder `evidence/`. A statement "
    "*holds* where its condition is met in every case; of two schemes one is better where an exact sign-flip test over "
    "paired seeds, corrected by Holm's method over the experiment, shows it (p at most 0.05). What was published at "
    "another scale and is not seen here is *not reproduced*."
)
_VERDICTS: Mapping[str, tuple[str, str]] = {  # for one statement, for several
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "depends": ("depends on the case", "depend on the case"),
    "not reproduced": ("is not reproduced", "are not reproduced"),
    "not measured": ("is not measured", "are not measured"),
}
_PLACES: Mapping[Unit, tuple[int, float]] = {
    "share": (1, 100.0),
    "nats": (3, 1.0),
    "number": (3, 1.0),
    "count": (0, 1.0),
}


def sections(evidence: Sequence[Evidence]) -> list[Section]:
    """Return one section for each experiment, and a last one on versions and machine."""
    written = [Section(each.id, f"{each.id}  {each.title}", _parts(each)) for each in evidence]
    return [*written, Section("machine", "Versions and machine", [_machines(evidence)])] if evidence else []


def page(evidence: Sequence[Evidence], experiments: Sequence[Experiment]) -> str:
    """Write the evidence as a page in Markdown, with an anchor for each experiment and statement."""
    questions = {each.id: each.question for each in experiments}
    outcomes = {each.id: _counted(result.verdict for result in each.results) for each in evidence}
    contents = [f"- [{id}](#{id.lower()}) {questions[id]} *{outcome}*" for id, outcome in outcomes.items()]
    parts = ["# Evidence", _ABOUT, headline(evidence), "\n".join(contents)]
    for each in evidence:
        parts += [f'<a id="{each.id.lower()}"></a>', f"## {each.id}: {each.title}", questions[each.id]]
        parts += [part if isinstance(part, str) else _markdown(part) for part in _parts(each, "errata.md")]
    measured = {each.id for each in evidence}
    left = [
        [each.id, each.title, each.deferred or f"python -m experiments run --full --only {each.id}"]
        for each in experiments
        if each.id not in measured
    ]
    if left:
        parts += ["## Not measured yet", _markdown(Table("", ("id", "experiment", "reason, or the command"), left))]
    return "\n\n".join([*parts, "## Versions and machine", _markdown(_machines(evidence))]) + "\n"


def headline(evidence: Sequence[Evidence]) -> str:
    """Count the verdicts of all experiments in a sentence."""
    verdicts = [result.verdict for each in evidence for result in each.results]
    return f"Of {count(len(verdicts), 'statement')} in {count(len(evidence), 'experiment')}, {_counted(verdicts)}."


def row(result: Result) -> list[str]:
    """Return the cells of a result, under COLUMNS."""
    return [
        result.id,
        result.says,
        result.source,
        _measured(result),
        str(result.runs),
        result.verdict,
        why(result),
    ]


def why(result: Result) -> str:
    """Return the reason of a verdict: the condition and in how many runs it is met, or what is lacking."""
    if result.measured is None:
        return f"{result.reason}."
    met = f"{result.line} in {result.holding} of {result.runs}"
    test = "" if result.p is None else f"; p = {number(result.p, 2)}"
    return f"{met}{test}{f'; {result.reason}' if result.reason else ''}."


def fault_row(fault: FaultRow) -> list[str]:
    """Return the cells of a silent fault, under FAULT_COLUMNS."""
    cells = [_before_and_after(fault, place) for place in ("in length", _beyond(fault))]
    change = ABSENT if fault.logit_change is None else number(fault.logit_change.median, 2)
    return [fault.fault, fault.scheme, *cells, change, _detected_by(fault)]


def finding_row(finding: Finding) -> list[str]:
    """Return the cells of a claim that was measured at once, under CLAIM_COLUMNS."""
    claimed = [f"{each.quantity}: {value(each.value)}" for each in finding.measured if each.claimed is not None]
    return [
        finding.id,
        claim(finding.id).says,
        "; ".join(claimed) or f"{finding.reason or ABSENT}",
        SAID.get(finding.verdict, finding.verdict),
    ]


def judgment_row(judgment: Judgment) -> list[str]:
    """Return the cells of a claim that runs decide, under JUDGMENT_COLUMNS."""
    most = [each.scheme for each in judgment.schemes if 2 * each.holding > each.runs]
    schemes = f"{len(most)} of {count(len(judgment.schemes), 'scheme')}"
    schemes += f": {listed([cut(visible(name)) for name in most])}" if 0 < len(most) < len(judgment.schemes) else ""
    verdict = SAID.get(judgment.verdict, judgment.verdict)
    beside = schemes if len(judgment.schemes) > 1 else ""
    return [judgment.id, judgment.claim, measurement(judgment.measured), verdict, beside, reason(judgment)]


def unequal_test_sets(evidence: Evidence) -> str | None:
    """Return the sentence on test sets of text, where an earlier version had other numbers of tokens at each length."""
    version = evidence.versions["whatwhere"]
    texts = any(record.task.name.startswith("text") for record in evidence.comparisons.values())
    if not texts or Version(version) > _LAST_UNEQUAL:
        return None
    return f"Measured by whatwhere {version}, whose test sets of text have other numbers of tokens at each length."


def _parts(evidence: Evidence, claims: str = "") -> list[Part]:
    """Return the parts of an experiment; of claims that no training decides a link to a page, if one has them."""
    parts: list[Part] = [f"To repeat it: {evidence.command}"]
    if (sentence := unequal_test_sets(evidence)) is not None:
        parts.append(sentence)
    parts.append(Table("", COLUMNS, [row(result) for result in evidence.results], numeric=[4], shorten="never"))
    if evidence.faults:
        caption = "Accuracy without and with each fault, median over the models, and what detects it"
        parts.append(Table(caption, FAULT_COLUMNS, [fault_row(each) for each in evidence.faults], shorten="never"))
    if evidence.claims:
        outcomes = counted(finding.verdict for finding in evidence.claims)
        number = f"Of {count(len(evidence.claims), 'claim')} that no training decides, {outcomes}"
        table = Table("", CLAIM_COLUMNS, [finding_row(each) for each in evidence.claims], shorten="never")
        parts += [f"{number}: [the errata]({claims}) have each."] if claims else [f"{number}.", table]
    if evidence.verdicts:
        caption = "Claims of the tutorials that these runs decide"
        rows = [judgment_row(each) for each in evidence.verdicts]
        parts.append(Table(caption, JUDGMENT_COLUMNS, rows, shorten="never"))
    return parts


def _counted(verdicts: Iterable[str]) -> str:
    numbers = Counter(verdicts)
    return listed([f"{numbers[name]} {texts[numbers[name] > 1]}" for name, texts in _VERDICTS.items() if numbers[name]])


def _markdown(part: Table | Chart) -> str:
    return markdown(part.table if isinstance(part, Chart) else part).strip()


def _machines(evidence: Sequence[Evidence]) -> Table:
    rows = []
    for each in evidence:
        versions = ", ".join(f"{name} {version}" for name, version in each.versions.items())
        machine = f"{each.machine.processor}, {count(each.machine.cores, 'core')}"
        rows.append([each.id, each.created[:10], f"{decimals(each.took, 0)} s", each.scope, machine, versions])
    columns = ("experiment", "date", "took", "scope", "machine", "versions")
    return Table("", columns, rows, numeric=[2], shorten="never")


def _measured(result: Result) -> str:
    if result.measured is None:
        return ABSENT
    places, factor = _PLACES[result.unit]
    small = result.unit == "number" and 0 < abs(result.measured.median) < 0.01
    value = _powers(result.measured) if small else spread(result.measured, places, factor)
    return f"{result.quantity}: {value}{' %' if result.unit == 'share' else ' nats' if result.unit == 'nats' else ''}"


def _powers(values: Spread) -> str:
    return f"{number(values.median, 2)} ({number(values.min, 2)} to {number(values.max, 2)})"


def _beyond(fault: FaultRow) -> str:
    return next((place for place in fault.right if place != "in length"), "")


def _before_and_after(fault: FaultRow, place: str) -> str:
    right, faulty = fault.right.get(place), fault.faulty.get(place)
    if right is None or faulty is None:
        return ABSENT
    return f"{percent(right.median)} → {percent(faulty.median)}"


def _detected_by(fault: FaultRow) -> str:
    if fault.logit_change is not None and fault.logit_change.max < NO_EFFECT:
        return f"no effect: no logit changes by {NO_EFFECT}"
    if fault.kind == "positions":
        return "comparing with the sequence alone"
    if not fault.laws:
        return "nothing"
    blind = "; cached decoding agrees with the full pass" if fault.decoding else ""
    return f"{'laws' if len(fault.laws) > 1 else 'law'} {listed(fault.laws)}{blind}"
