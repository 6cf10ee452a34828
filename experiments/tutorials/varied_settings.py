"""What tutorials claim of token tables, widths and formulas, judged by runs that vary one setting.

Such a run is judged beside its partner: the run of the same scheme and seed with a learned table of 64 features and all
other settings equal, which must have learned the task.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from experiments.tutorials.claim import Claim, text
from experiments.tutorials.trained import (
    CONTROL,
    LEARNED,
    THRESHOLD,
    Precondition,
    Read,
    TrainedClaim,
    has_learned,
    in_length,
    scheme,
    scheme_of,
    table,
)
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import RunResult

TABLES = "whatwhere compare sinusoidal --vary table=learned,frozen,ids --seeds 5"
WIDTHS = "whatwhere compare sinusoidal --vary dim=16,64,256 --seeds 5"
SMALL_DATA = "whatwhere compare sinusoidal --vary dim=64,256 --recipe author --seeds 3"

MISPRINTED = "misprinted sinusoid"
"""The name of a scheme with the formula that claim 3.3 is about."""

LOW_LOSS = 0.1
"""The training loss, in nats, whose first step is compared."""
LESS = 0.01
"""By how much a share of right answers must be lower, to be called lower."""


def partner(results: Comparison, run: RunResult) -> RunResult | None:
    """Return the run of the same scheme and seed with a learned table of 64 features, and all other settings equal."""
    usual = replace(results.settings(run), table="learned", dim=64)
    for other in results.runs:
        same = (scheme_of(other), other.seed) == (scheme_of(run), run.seed)
        if same and other is not run and results.settings(other) == usual:
            return other
    return None


def _has_dim(dim: int) -> Precondition:
    return Precondition(
        f"a learned table of {dim} features",
        lambda results, run: results.settings(run).dim == dim and results.settings(run).table == "learned",
        lambda results, runs: f"no run has dim={dim}",
    )


_PARTNER_LEARNED = Precondition(
    "the same scheme and seed with a learned table of 64 features learned the task: 99 % right in length",
    lambda results, run: (other := partner(results, run)) is not None and has_learned(results, other),
    lambda results, runs: _lacking_partner(results, runs),
)


def _lacking_partner(results: Comparison, runs: Sequence[RunResult]) -> str:
    scores = [other.in_length for run in runs if (other := partner(results, run)) is not None]
    if not scores:
        return "no run of the same scheme and seed has a learned table of 64 features"
    return (
        f"the task was not learned with a learned table of 64 features: {100 * max(scores):.1f} % right in length at "
        f"best, {100 * THRESHOLD:.0f} % needed"
    )


_FEW_EXPRESSIONS = Precondition(
    "training on expressions of three arguments alone, of which there are 5,000",
    lambda results, run: tuple(results.task.trained) == (3,),
    lambda results, runs: "these runs are trained on other lengths: whatwhere compare --recipe author",
)


def _beside_partner(read: Callable[[RunResult], float | None], combine: Callable[[float, float], float]) -> Read:
    """Return a reader of a quantity of a run, combined with that of its partner."""

    def beside(results: Comparison, run: RunResult) -> float | None:
        other = partner(results, run)
        values = (read(run), None if other is None else read(other))
        return None if values[0] is None or not values[1] else combine(values[0], values[1])

    return beside


def _multiple(own: float, other: float) -> float:
    return own / other


_MORE_RIGHT = _beside_partner(lambda run: run.in_length, lambda own, other: own - other)
_PARAMETERS = _beside_partner(lambda run: float(run.parameters.total), _multiple)
_SECONDS = _beside_partner(lambda run: run.seconds_per_step, _multiple)


def _steps_to_low_loss(run: RunResult) -> float | None:
    """Return the first recorded step with a low training loss."""
    return next((float(step) for step, loss in run.losses if step > 0 and loss < LOW_LOSS), None)


def _fixed_table(id: str, name: str) -> Claim:
    """Return a claim that the task cannot be learned with a table that training leaves as it is."""
    return TrainedClaim(
        **text(id),
        command=TABLES,
        preconditions=(table(name), CONTROL),
        quantity="share of right answers in length",
        read=in_length,
        line="below 99 %",
        unit="share",
        beside=(("the same less that with a learned table", _MORE_RIGHT),),
    )


def _width(id: str, dim: int, command: str, *more: Precondition) -> Claim:
    """Return a claim that a width answers less than its partner's; a larger one may, by the tutorials' words."""
    return TrainedClaim(
        **text(id),
        command=command,
        preconditions=(*more, _has_dim(dim), _PARTNER_LEARNED),
        quantity="share of right answers in length, less that with 64 dimensions",
        read=_MORE_RIGHT,
        line="below −1 %",
        unit="share",
        may=dim > 64,
        beside=(
            ("share of right answers in length", in_length),
            ("parameters, relative to 64 dimensions", _PARAMETERS),
            ("seconds for a step, likewise", _SECONDS),
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    _fixed_table("0.38", "frozen"),
    _fixed_table("4.13", "ids"),
    _width("0.35", 16, WIDTHS),
    _width("0.36", 256, WIDTHS),
    _width("4.16", 256, SMALL_DATA, _FEW_EXPRESSIONS),
    TrainedClaim(
        **text("2.13"),
        command=TABLES,
        preconditions=(table("frozen"), LEARNED, _PARTNER_LEARNED),
        quantity=f"steps to a loss below {LOW_LOSS} with a learned table, as a multiple of those with rows that stay",
        read=_beside_partner(_steps_to_low_loss, lambda own, other: other / own),
        line="below 0.9",
    ),
    TrainedClaim(
        **text("3.10"),
        command="python -m experiments run --full --only E13",
        preconditions=(scheme(MISPRINTED),),
        quantity="share of right answers in length",
        read=in_length,
        line="at least 99 %",
        unit="share",
    ),
)
