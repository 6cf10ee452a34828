"""What tutorials claim of longer and of shifted sequences, judged by the runs of a comparison."""

from experiments.tutorials.claim import Claim, text
from experiments.tutorials.preconditions import BEYOND, LEARNED, LEARNED_TEXT, PLAIN, RELATIVE, scheme
from experiments.tutorials.trained import Precondition, TrainedClaim
from experiments.tutorials.trained_tables import DEMO
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, RunResult

TEXT = "whatwhere compare none sinusoidal rotary alibi --task text --seeds 3"


def _far(results: Comparison, run: RunResult) -> float | None:
    return run.scores[results.beyond[-1]].get(ALL)


def _no_row(results: Comparison, run: RunResult) -> float | None:
    return float(_far(results, run) is None)


def _more_loss(results: Comparison, run: RunResult) -> float | None:
    far = _far(results, run)
    return None if far is None else far - run.in_length


def _drop(results: Comparison, run: RunResult) -> float | None:
    scores = [run.shift[shift].score if shift in run.shift else None for shift in (0, 1)]
    return None if scores[0] is None or scores[1] is None else scores[0] - scores[1]


def _largest_change(results: Comparison, run: RunResult) -> float | None:
    return run.shift[max(run.shift)].largest_logit_change if run.shift else None


def _outweighs(results: Comparison, run: RunResult) -> bool:
    start = run.token_table[0] if run.token_table else None
    return start is not None and start.with_positions is not None and start.with_positions.std > 2 * start.table.std


# A causal decoder can learn without positions: where tokens drown them, a shift changes nothing, and shows nothing.
_OUTWEIGHS = Precondition(
    "positions that outweigh the tokens at the start",
    _outweighs,
    lambda results, runs: "tokens outweigh positions in these runs: leave init as it is",
)


def _extrapolates(id: str, name: str) -> tuple[Claim, Claim]:
    """Return the claims that a scheme extrapolates to longer expressions, and to longer text."""
    on_expressions = TrainedClaim(
        **text(id),
        command=DEMO,
        preconditions=(scheme(name), PLAIN, LEARNED, BEYOND),
        quantity="share of right answers at {farthest}",
        read=_far,
        holds=lambda value: value > 0.95,
        line="above 95 %",
        unit="share",
        beside=(("in length", lambda results, run: run.in_length),),
    )
    on_text = TrainedClaim(
        **text(f"{id}b"),
        command=TEXT,
        task="text",
        preconditions=(scheme(name), PLAIN, LEARNED_TEXT, BEYOND),
        quantity="loss at {farthest} less that in length, in nats per byte",
        read=_more_loss,
        holds=lambda value: value < 0.1,
        line="below 0.1",
        beside=(("in length", lambda results, run: run.in_length),),
    )
    return on_expressions, on_text


CLAIMS: tuple[Claim, ...] = (
    *_extrapolates("0.31", "sinusoidal"),
    *_extrapolates("2.8", "rotary"),
    *_extrapolates("2.12", "alibi"),
    TrainedClaim(
        **text("0.29b"),
        command=DEMO,
        preconditions=(scheme("sinusoidal"), PLAIN, LEARNED, _OUTWEIGHS),
        quantity="share of right answers lost when every position is shifted by 1",
        read=_drop,
        may=True,
        holds=lambda value: value < 0.05,
        line="below 5 %",
        unit="share",
    ),
    TrainedClaim(
        **text("0.32b"),
        command=DEMO,
        preconditions=(scheme("learned"), PLAIN, BEYOND),
        quantity="share of runs without a row at {farthest}",
        read=_no_row,
        holds=lambda value: value == 1.0,
        line="no row",
        unit="share",
    ),
    TrainedClaim(
        **text("2.6b"),
        command=DEMO,
        preconditions=(RELATIVE, LEARNED),
        quantity="largest change of a logit when every position is shifted by {shift}",
        read=_largest_change,
        holds=lambda value: value < 1e-2,
        line="below 0.01",
    ),
)
