"""Claims of the first tutorial, each judged by the runs of a comparison that meet its precondition.

A verdict states what was measured and in how many runs the claim's line was crossed, and nothing else. A claim whose
precondition no run meets is not judged, and its verdict states what is lacking.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, ComparisonRecord, RunResult, Spread, TableSnapshot, TokenCosines, spread
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.statistics import PairedDifferences
from whatwhere.records import Missing
from whatwhere.where.catalogue import catalogue

Outcome = Literal["holds", "fails", "depends", "not judged"]
Unit = Literal["number", "share"]

LEARNED = 0.99
"""The score in length from which on a run counts as having learned the task."""


@dataclass(frozen=True)
class Measurement:
    """A quantity over the runs that were judged.

    Args:
        quantity: what it is, such as "cosine of Max and Min".
        spread: over the runs; None where none has it.
        unit: how it is shown.
    """

    quantity: str
    spread: Spread | None
    unit: Unit = "number"


@dataclass(frozen=True)
class Verdict:
    """A claim beside what was measured.

    Args:
        claim: in a sentence.
        tutorial: the tutorial's number or words.
        precondition: what a run must meet to be judged.
        measured: the quantity that decides.
        line: the condition under which the claim holds in a run, such as "above 0.3".
        holding: in how many runs it holds.
        runs: how many runs were judged.
        outcome: "depends" where it holds in some of the runs alone.
        reason: why no run was judged, or "".
        beside: other measured quantities that explain the outcome.
    """

    claim: str
    tutorial: str
    precondition: str
    measured: Measurement
    line: str
    holding: int
    runs: int
    outcome: Outcome
    reason: str
    beside: Sequence[Measurement] = ()


@dataclass(frozen=True)
class JudgedRecord(ComparisonRecord):
    """What `compare --json` prints: the content of results.json, and what follows from it.

    Args:
        verdicts: on the tutorial's claims.
        differences: between schemes at the longest length; the reason why there are none where SciPy is not installed.
    """

    verdicts: Sequence[Verdict]
    differences: PairedDifferences | Missing


def verdicts(results: Comparison) -> list[Verdict]:
    """Judge the first tutorial's claims by the runs of the expressions task.

    Args:
        results: of a comparison.

    Returns:
        One verdict for each claim; none for another task.
    """
    if results.task.name != "expressions":
        return []
    return [*_cosine_verdicts(results), *_size_verdicts(results), *_position_verdicts(results)]


@dataclass(frozen=True)
class _Precondition:
    """What a run must meet, and what is lacking where none does."""

    text: str
    met: Callable[[RunResult], bool]
    otherwise: str


def _cosine_verdicts(results: Comparison) -> list[Verdict]:
    learned = _learned(results)
    claims = {
        "max_min": ("Max and Min end up alike, for both choose by size", "cosine of Max and Min"),
        "within_digits": ("The digits form a cluster", "mean cosine within the digits"),
        "within_operators": ("The operators form a cluster", "mean cosine within the operators"),
        "within_syntax": ("The brackets and the comma form a cluster", "mean cosine within ( ) and comma"),
    }

    def verdict(name: str, claim: str, quantity: str) -> Verdict:
        def changed(run: RunResult) -> float | None:
            return _at_end(run, lambda end: _cosine(end.change_cosines, name))

        def started(run: RunResult) -> float | None:
            return _cosine(run.token_table[0].cosines, name) if run.token_table else None

        return _judge(
            results,
            (claim, "similar vectors"),
            learned,
            Measurement(quantity, None),
            lambda run: _at_end(run, lambda end: _cosine(end.cosines, name)),
            (lambda value: value > 0.3, "above 0.3"),
            beside=(("before training", started), ("of what training wrote, E − E0", changed)),
        )

    clusters = [verdict(name, *texts) for name, texts in claims.items()]
    line = _judge(
        results,
        ("The digits come to lie on a number line", "not claimed by the tutorial"),
        learned,
        Measurement("|r| between 0..9 and the main direction in which the digits moved", None),
        lambda run: _at_end(run, lambda end: end.number_line),
        (lambda value: value > 0.8, "above 0.8"),
    )
    return [*clusters, line]


def _size_verdicts(results: Comparison) -> list[Verdict]:
    recipe = _authors_recipe(results)

    def start(run: RunResult) -> float | None:
        return run.token_table[0].table.std if run.token_table else None

    return [
        _judge(
            results,
            ("The spread of the table grows from 0.15 to 0.8", "0.8 after 50 epochs"),
            recipe,
            Measurement("standard deviation of the table", None),
            lambda run: _at_end(run, lambda end: end.table.std),
            (lambda value: value > 0.6, "above 0.6"),
            beside=(("before training", start),),
        ),
        _judge(
            results,
            ("The values of the table reach ±2.5", "±2.5 after 50 epochs"),
            recipe,
            Measurement("largest absolute value", None),
            lambda run: _at_end(run, lambda end: max(-end.table.min, end.table.max)),
            (lambda value: value > 2.0, "above 2"),
        ),
        _judge(
            results,
            ("The mean of the table stays near 0", "0"),
            _learned(results),
            Measurement("mean of the table", None),
            lambda run: _at_end(run, lambda end: end.table.mean),
            (lambda value: abs(value) < 0.05, "between −0.05 and 0.05"),
        ),
    ]


def _position_verdicts(results: Comparison) -> list[Verdict]:
    far = results.beyond[-1] if results.beyond else None
    return [
        _order_verdict(results),
        *_length_verdicts(results, far),
        _start_verdict(results),
        *_shift_verdicts(results),
    ]


def _order_verdict(results: Comparison) -> Verdict:
    settings = results.record.settings
    kind = f"a {settings.layers}-layer {'encoder' if settings.direction == 'encoder' else 'causal decoder'}"

    def first(run: RunResult) -> float | None:
        scores = [run.scores[length].get("First") for length in run.scores if length in results.task.trained]
        known = [score for score in scores if score is not None]
        return min(known) if known else None

    return _judge(
        results,
        ("Without positions, First(1,6,2) and First(6,2,1) cannot be told apart", "impossible"),
        _scheme(results, "none", f"; here {kind}"),
        Measurement("share of right answers to First, at the worst trained length", None, "share"),
        first,
        (lambda value: value < 0.7, "below 70 %"),
    )


def _length_verdicts(results: Comparison, far: int | None) -> list[Verdict]:
    at = "the longest tested length" if far is None else f"{far} arguments"
    tested = "a tested length beyond the trained ones"

    def score(run: RunResult) -> float | None:
        return run.scores.get(far, {}).get(ALL) if far is not None else None

    def without_row(run: RunResult) -> float | None:
        return None if far is None or far not in run.scores else float(run.scores[far].get(ALL) is None)

    return [
        _judge(
            results,
            ("Sinusoidal positions generalize to longer sequences", "arbitrary lengths"),
            _scheme(results, "sinusoidal", f", {tested}", learned=True),
            Measurement(f"share of right answers at {at}", None, "share"),
            score,
            (lambda value: value > 0.95, "above 95 %"),
            lacking=f"{tested} is lacking" if far is None else "",
        ),
        _judge(
            results,
            ("Learned positions end with their table", "no longer sequences"),
            _scheme(results, "learned", f", {tested}"),
            Measurement(f"share of runs without a row at {at}", None, "share"),
            without_row,
            (lambda value: value == 1.0, "no row"),
            lacking=f"{tested} is lacking" if far is None else "",
        ),
    ]


def _start_verdict(results: Comparison) -> Verdict:
    def ratio(run: RunResult) -> float | None:
        start = run.token_table[0] if run.token_table else None
        if start is None or start.with_positions is None or start.table.std == 0:
            return None
        return start.with_positions.std / start.table.std

    return _judge(
        results,
        ("Position does not dominate the token", "significant, but not dominating"),
        _scheme(results, "sinusoidal", ", before training"),
        Measurement("spread with positions, as a multiple of the spread without", None),
        ratio,
        (lambda value: value < 2.0, "below 2"),
    )


def _shift_verdicts(results: Comparison) -> list[Verdict]:
    relative = {name for name, row in catalogue.items() if row.relative and not row.follows_length}

    def drop(run: RunResult) -> float | None:
        scores = [run.shift[shift].score if shift in run.shift else None for shift in (0, 1)]
        return None if scores[0] is None or scores[1] is None else scores[0] - scores[1]

    def change(run: RunResult) -> float | None:
        return run.shift[max(run.shift)].largest_logit_change if run.shift else None

    largest = max(results.shifts, default=0)
    return [
        _judge(
            results,
            ("Absolute positions serve wherever a sequence starts", "implied by: one encoding for all lengths"),
            _scheme(results, "sinusoidal", learned=True),
            Measurement("share of right answers lost when every position is shifted by 1", None, "share"),
            drop,
            (lambda value: value < 0.05, "below 5 %"),
        ),
        _judge(
            results,
            ("Relative schemes do not notice where a sequence starts", "no change"),
            _Precondition(
                "a relative scheme of the catalogue, alone",
                lambda run: run.scheme in relative,
                "no such scheme is in this comparison",
            ),
            Measurement(f"largest change of a logit when every position is shifted by {largest}", None),
            change,
            (lambda value: value < 1e-2, "below 0.01"),
        ),
    ]


def _learned(results: Comparison) -> _Precondition:
    best = max((run.in_length for run in results.runs), default=0.0)
    return _Precondition(
        "the task is learned: 99 % right in length",
        lambda run: run.in_length >= LEARNED,
        f"no run learned the task: {100 * best:.1f} % right in length at best, 99 % needed",
    )


def _scheme(results: Comparison, name: str, more: str = "", *, learned: bool = False) -> _Precondition:
    present = any(run.scheme == name for run in results.runs)
    return _Precondition(
        f"the scheme {name}{', which has learned the task (99 % right in length)' if learned else ''}{more}",
        lambda run: run.scheme == name and (not learned or run.in_length >= LEARNED),
        f"no run of {name} learned the task" if present else f"the scheme {name} is not in this comparison",
    )


def _authors_recipe(results: Comparison) -> _Precondition:
    settings = results.record.settings
    recipe = make_settings("expressions", None, "author")
    # What is tested, and where, does not change the training.
    free = {"lengths", "test_sequences", "device"}
    names = [field.name for field in fields(recipe) if field.name not in free]
    equal = all(getattr(settings, name) == getattr(recipe, name) for name in names)
    return _Precondition(
        "the tutorial's own training: --recipe author, 50 epochs",
        lambda run: equal,
        f"these runs are another training, of {settings.steps:,} steps of {settings.batch}: whatwhere compare "
        "--recipe author",
    )


def _judge(
    results: Comparison,
    claim: tuple[str, str],
    precondition: _Precondition,
    measured: Measurement,
    read: Callable[[RunResult], float | None],
    line: tuple[Callable[[float], bool], str],
    *,
    beside: Sequence[tuple[str, Callable[[RunResult], float | None]]] = (),
    lacking: str = "",
) -> Verdict:
    """Judge a claim; the quantities beside it are measured on the same runs."""
    admitted = [run for run in results.runs if precondition.met(run)]
    judged = [run for run in admitted if read(run) is not None]
    values = [value for run in judged if (value := read(run)) is not None]
    holding = sum(line[0](value) for value in values)
    outcome: Outcome = "not judged"
    if values:
        outcome = "holds" if holding == len(values) else "depends" if holding else "fails"
    reason = "" if values else lacking or ("no run has such a number" if admitted else precondition.otherwise)
    return Verdict(
        claim=claim[0],
        tutorial=claim[1],
        precondition=precondition.text,
        measured=Measurement(measured.quantity, spread(values), measured.unit),
        line=line[1],
        holding=holding,
        runs=len(values),
        outcome=outcome,
        reason=reason,
        beside=tuple(Measurement(name, spread(map(reader, judged))) for name, reader in beside),
    )


def _at_end(run: RunResult, read: Callable[[TableSnapshot], float | None]) -> float | None:
    return read(run.token_table[-1]) if run.token_table else None


def _cosine(cosines: TokenCosines | None, name: str) -> float | None:
    value: float | None = None if cosines is None else getattr(cosines, name)
    return value
