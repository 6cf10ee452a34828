"""What runs must meet before they decide a claim."""

from collections.abc import Sequence
from dataclasses import fields

from experiments.tutorials.trained import Precondition
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import RunResult
from whatwhere.comparison.settings import make_settings
from whatwhere.report import answers
from whatwhere.where.catalogue import catalogue

THRESHOLD = answers.LEARNED
"""The share of right answers in length from which on a run has learned its task."""
GAIN = 0.5
"""By how many nats a run must be better than a reader that knows frequencies only, to have learned a text."""

_NOT_LEARNED = "the task was not learned"


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
