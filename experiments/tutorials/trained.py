"""Claims that the runs of a comparison decide.

Each has preconditions, a quantity of a run, and the line beyond which the claim holds in that run. Its verdict says in
how many runs that is so, and nothing else. Where no run meets the preconditions, it is not measured, and the reason is
what is lacking.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from experiments.tutorials.claim import Claim, Kind, Verdict, meets
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import RunResult, Spread, spread
from whatwhere.comparison.settings import make_settings
from whatwhere.report import comparison as report
from whatwhere.where.catalogue import catalogue

Unit = Literal["number", "share"]
Read = Callable[[Comparison, RunResult], float | None]
"""`read(results, run)` -> a quantity of a run; None where it has none."""


@dataclass(frozen=True)
class Measurement:
    """A quantity over the runs that were judged."""

    quantity: str  # such as "cosine of Max and Min"
    spread: Spread | None  # None where no run has it
    unit: Unit = "number"


@dataclass(frozen=True)
class SchemeVerdict:
    """A claim, judged by the runs of one scheme."""

    scheme: str
    verdict: Verdict
    holding: int  # in how many runs the claim holds
    runs: int  # how many were judged
    spread: Spread  # of the quantity that decides


@dataclass(frozen=True)
class Judgment:
    """A claim beside what a comparison measured."""

    id: str
    claim: str
    tutorial: str  # what it writes, word for word
    precondition: str  # what a run must meet to be judged
    measured: Measurement  # the quantity that decides
    line: str  # the condition under which the claim holds in a run, such as "above 0.3"
    holding: int  # in how many runs it holds
    runs: int  # how many were judged
    verdict: Verdict  # "depends" where it holds in some of the runs alone
    reason: str  # why no run was judged, or those that were do not decide, or ""
    schemes: Sequence[SchemeVerdict] = ()  # each that was judged
    beside: Sequence[Measurement] = ()  # what explains the verdict


@dataclass(frozen=True)
class Precondition:
    """What a run must meet, and what is lacking where none does."""

    text: str
    met: Callable[[Comparison, RunResult], bool]
    lacking: Callable[[Comparison, Sequence[RunResult]], str]  # of runs that meet the preconditions before this one


@dataclass(frozen=True, kw_only=True)
class TrainedClaim(Claim):
    """A claim that the runs of a comparison decide.

    Args:
        command: that trains such runs.
        task: of the comparison.
        preconditions: in the order in which they are checked.
        quantity: what decides; "{farthest}" and "{shift}" become those of the comparison.
        read: reads it from a run.
        line: the condition under which the claim holds in a run, such as "above 0.3".
        unit: how the quantity and those beside it are shown.
        may: the tutorial writes that it can be so: one run in which it is so shows that, and others refute nothing.
        beside: other quantities of the same runs, by what they are.
        experiment: of the committed evidence, whose runs gave the verdict, or were measured and decide nothing.
    """

    kind: Kind = "trained"
    verdict: Verdict = "not measured"
    command: str
    task: str = "expressions"
    preconditions: tuple[Precondition, ...] = ()
    quantity: str
    read: Read
    line: str
    unit: Unit = "number"
    may: bool = False
    beside: tuple[tuple[str, Read], ...] = ()
    experiment: str = ""

    def holds(self, value: float) -> bool:
        """Return whether the claim holds in a run of that value."""
        return meets(self.line, value)

    def judge(self, results: Comparison, runs: Sequence[RunResult] | None = None) -> Judgment:
        """Judge the claim by the runs of a comparison that meet its preconditions."""
        admitted, reason = self._admitted(results, list(results.runs if runs is None else runs))
        judged = [(run, value) for run in admitted if (value := self.read(results, run)) is not None]
        values = [value for _, value in judged]
        return Judgment(
            id=self.id,
            claim=self.says,
            tutorial=self.quote,
            precondition="; ".join(each.text for each in self.preconditions),
            measured=Measurement(_filled(self.quantity, results), spread(values), self.unit),
            line=self.line,
            holding=sum(map(self.holds, values)),
            runs=len(values),
            verdict=self._verdict(values),
            reason=self._reason(values, reason),
            schemes=self._by_scheme(judged),
            beside=tuple(
                Measurement(name, spread(read(results, run) for run, _ in judged), self.unit)
                for name, read in self.beside
            ),
        )

    def _admitted(self, results: Comparison, runs: list[RunResult]) -> tuple[list[RunResult], str]:
        """Return the runs that meet every precondition, or what is lacking."""
        if results.task.name != self.task:
            return [], f"the claim is on the task {self.task}: {self.command}"
        for each in self.preconditions:
            met = [run for run in runs if each.met(results, run)]
            if not met:
                return [], each.lacking(results, runs)
            runs = met
        return runs, ""

    def _reason(self, values: Sequence[float], lacking: str) -> str:
        if self.may and values and not any(map(self.holds, values)):
            return "which does not refute that it may be so"
        return "" if values else lacking or "no run has such a number"

    def _verdict(self, values: Sequence[float]) -> Verdict:
        holding = sum(map(self.holds, values))
        if not values or (self.may and not holding):
            return "not measured"
        if self.may:
            return "holds"
        return "holds" if holding == len(values) else "depends" if holding else "fails"

    def _by_scheme(self, judged: Sequence[tuple[RunResult, float]]) -> tuple[SchemeVerdict, ...]:
        by_scheme: dict[str, list[float]] = {}
        for run, value in judged:
            by_scheme.setdefault(run.scheme, []).append(value)
        return tuple(
            SchemeVerdict(scheme, self._verdict(values), sum(map(self.holds, values)), len(values), over)
            for scheme, values in by_scheme.items()
            if (over := spread(values)) is not None
        )


def _filled(quantity: str, results: Comparison) -> str:
    unit = results.task.unit
    farthest = f"{results.beyond[-1]} {unit}" if results.beyond else "the longest tested length"
    return quantity.replace("{farthest}", farthest).replace("{shift}", str(max(results.shifts, default=0)))


# What runs must meet before they decide a claim

THRESHOLD = report.LEARNED
"""The share of right answers in length from which on a run has learned its task."""
GAIN = 0.5
"""By how many nats a run must be better than a reader that knows frequencies only, to have learned a text."""

_NOT_LEARNED = "the task was not learned"


def in_length(results: Comparison, run: RunResult) -> float:
    """Return the score at the trained lengths."""
    return run.in_length


def has_learned(results: Comparison, run: RunResult) -> bool:
    """Return whether a run has learned its task."""
    if results.task.higher_is_better:
        return run.in_length >= THRESHOLD
    baseline = _best_baseline(results)
    return baseline is not None and run.in_length <= baseline - GAIN


def _best_baseline(results: Comparison) -> float | None:
    values = [by_length.get(n) for by_length in results.task.baselines.values() for n in results.task.trained]
    return min((value for value in values if value is not None), default=None)


def _did_not_learn(results: Comparison, runs: Sequence[RunResult]) -> str:
    scores = [run.in_length for run in runs]
    if results.task.higher_is_better:
        return f"{_NOT_LEARNED}: {100 * max(scores):.1f} % right in length at best, {100 * THRESHOLD:.0f} % needed"
    baseline = _best_baseline(results)
    if baseline is None:
        return "there is no baseline at the trained length, so whether the task was learned is unknown"
    return (
        f"{_NOT_LEARNED}: a loss of {min(scores):.2f} in length at best, {baseline - GAIN:.2f} needed, which is "
        f"{GAIN} below the best baseline"
    )


LEARNED = Precondition("the task is learned: 99 % right in length", has_learned, _did_not_learn)
LEARNED_TEXT = Precondition(
    f"the text is learned: {GAIN} nats below the frequency of bytes in length", has_learned, _did_not_learn
)


LEARNED_TABLE = Precondition(
    "a learned token table",
    lambda results, run: results.settings(run).table == "learned",
    lambda results, runs: "these tables are not learned: whatwhere compare --set table=learned",
)


def _order_free(results: Comparison, run: RunResult) -> float:
    """Return the worst score of Max and Min, which need no order, in length."""
    scores = [
        score
        for length, groups in run.scores.items()
        if length in results.task.trained
        for score in (groups.get("Max"), groups.get("Min"))
        if score is not None
    ]
    return min(scores, default=0.0)


LEARNED_WITHOUT_ORDER = Precondition(
    "what needs no order is learned: 99 % of Max and Min right in length",
    lambda results, run: _order_free(results, run) >= THRESHOLD,
    lambda results, runs: (
        f"{_NOT_LEARNED}: {100 * max(_order_free(results, run) for run in runs):.1f} % of Max and Min right in length "
        f"at best, {100 * THRESHOLD:.0f} % needed"
    ),
)

BEYOND = Precondition(
    "a tested length beyond the trained ones",
    lambda results, run: bool(results.beyond) and results.beyond[-1] in run.scores,
    lambda results, runs: "no length beyond the trained ones was tested",
)

PLAIN = Precondition(
    "positions 0, 1, 2, ... in training",
    lambda results, run: results.settings(run).positions == "plain",
    lambda results, runs: "training sampled its positions",
)

_RELATIVE = frozenset(name for name, row in catalogue.items() if row.relative and not row.follows_length)
RELATIVE = Precondition(
    "a relative scheme of the catalogue, alone",
    lambda results, run: scheme_of(run) in _RELATIVE,
    lambda results, runs: "no such scheme is in this comparison",
)

UNIT_TABLE = Precondition(
    "a table that starts with a standard deviation of 1 or more",
    lambda results, run: bool(run.token_table) and run.token_table[0].table.std > 0.9,
    lambda results, runs: "these tables start narrower: whatwhere compare --set init=1",
)

_RECIPE = make_settings("expressions", None, "author")
_FREE = {"lengths", "test_sequences", "device"}  # they do not change the training


def _is_recipe(results: Comparison, run: RunResult) -> bool:
    settings = results.settings(run)
    names = [field.name for field in fields(_RECIPE) if field.name not in _FREE]
    return all(getattr(settings, name) == getattr(_RECIPE, name) for name in names)


def _other_training(results: Comparison, runs: Sequence[RunResult]) -> str:
    settings = results.settings(runs[0])
    return (
        f"these runs are another training, of {settings.steps:,} steps of {settings.batch}: whatwhere compare "
        "--recipe author"
    )


AUTHORS_RECIPE = Precondition("50 epochs by a recipe of ours: --recipe author", _is_recipe, _other_training)


def table(name: str) -> Precondition:
    """Return the precondition that a run has one token table."""
    return Precondition(
        f'the token table "{name}"',
        lambda results, run: results.settings(run).table == name,
        lambda results, runs: f"these runs have another token table: whatwhere compare --vary table=learned,{name}",
    )


def scheme(name: str) -> Precondition:
    """Return the precondition that a run is of one scheme."""
    return Precondition(
        f"the scheme {name}",
        lambda results, run: scheme_of(run) == name,
        lambda results, runs: f"the scheme {name} is not in this comparison",
    )


CONTROL = Precondition(
    "beside it a learned table with which the task is learned: 99 % right in length",
    lambda results, run: any(
        results.settings(other).table == "learned" and has_learned(results, other)
        for other in results.runs
        if scheme_of(other) == scheme_of(run)
    ),
    lambda results, runs: f"{_NOT_LEARNED} with a learned table beside it: whatwhere compare --vary table=learned,...",
)


def scheme_of(run: RunResult) -> str:
    """Return the name of a run's scheme, without the settings that vary."""
    return run.base or run.scheme
