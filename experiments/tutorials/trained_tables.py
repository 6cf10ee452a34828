"""The first tutorial on what training does to the token table, judged by the runs of a comparison."""

from collections.abc import Callable
from functools import partial

import numpy as np

from experiments.tutorials.claim import Claim, text
from experiments.tutorials.preconditions import (
    AUTHORS_RECIPE,
    CONTROL,
    LEARNED,
    LEARNED_TABLE,
    LEARNED_WITHOUT_ORDER,
    THRESHOLD,
    UNIT_TABLE,
    scheme,
    table,
)
from experiments.tutorials.trained import Read, TrainedClaim
from whatwhere.comparison.read import AFTER, BEFORE, Comparison
from whatwhere.comparison.results import RunResult, TableSnapshot
from whatwhere.what.expressions import EXPRESSION_TOKENS

DEMO = "whatwhere compare none sinusoidal learned rotary alibi --seeds 3"
AUTHOR = "whatwhere compare sinusoidal --recipe author --seeds 3"

_SIX, _SEVEN = EXPRESSION_TOKENS.index("6"), EXPRESSION_TOKENS.index("7")


def _in_length(results: Comparison, run: RunResult) -> float | None:
    return run.in_length


def _at_end(read: Callable[[TableSnapshot], float | None]) -> Read:
    return lambda results, run: read(run.token_table[-1]) if run.token_table else None


def _at_start(read: Callable[[TableSnapshot], float | None]) -> Read:
    return lambda results, run: read(run.token_table[0]) if run.token_table else None


def _cosine(name: str, table: TableSnapshot) -> float | None:
    value: float | None = getattr(table.cosines, name)
    return value


def _change_cosine(name: str, table: TableSnapshot) -> float | None:
    value: float | None = None if table.change_cosines is None else getattr(table.change_cosines, name)
    return value


def _digits_6_and_7(results: Comparison, run: RunResult) -> float | None:
    tables = results.tables(run)
    if not {BEFORE, AFTER} <= tables.keys() or len(tables[AFTER]) <= _SEVEN:
        return None
    six, seven = (tables[AFTER] - tables[BEFORE])[[_SIX, _SEVEN]]
    norms = float(np.linalg.norm(six) * np.linalg.norm(seven))
    return float(six @ seven) / norms if norms else None


def _first(results: Comparison, run: RunResult) -> float | None:
    """Return the score of First at the trained length where it is worst."""
    scores = [run.scores[length].get("First") for length in run.scores if length in results.task.trained]
    return min((score for score in scores if score is not None), default=None)


def _ratio(table: TableSnapshot) -> float | None:
    """Return the spread with positions as a multiple of the spread without."""
    return None if table.with_positions is None or table.table.std == 0 else table.with_positions.std / table.table.std


def _growth(results: Comparison, run: RunResult) -> float | None:
    if not run.token_table or run.token_table[0].table.std == 0:
        return None
    return run.token_table[-1].table.std / run.token_table[0].table.std


def _largest_with_positions(table: TableSnapshot) -> float | None:
    numbers = table.with_positions
    return None if numbers is None else max(-numbers.min, numbers.max)


def _alike(id: str, name: str, words: str, more: tuple[tuple[str, Read], ...] = ()) -> Claim:
    """Return a claim that rows end up alike, which the cosine of what training wrote decides."""
    return TrainedClaim(
        **text(id),
        command=DEMO,
        preconditions=(LEARNED_TABLE, LEARNED),
        quantity=f"{words} of what training wrote, E − E0",
        read=_at_end(partial(_change_cosine, name)),
        holds=lambda value: value > 0.3,
        line="above 0.3",
        beside=(
            ("of the table, before training", _at_start(partial(_cosine, name))),
            ("of the table, after it", _at_end(partial(_cosine, name))),
            *more,
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    *(
        TrainedClaim(
            **text(id),
            command=f"whatwhere compare rotary --vary table=learned,{kind} --steps 2000 --seeds 3",
            preconditions=(table(kind), CONTROL),
            quantity="share of right answers in length",
            read=_in_length,
            holds=lambda value: value < THRESHOLD,
            line=f"below {100 * THRESHOLD:.0f} %",
            unit="share",
        )
        for id, kind in (("0.6b", "onehot"), ("0.7b", "rank2"))
    ),
    _alike("0.11", "within_digits", "mean cosine within the digits"),
    TrainedClaim(
        **text("0.11b"),
        command=DEMO,
        preconditions=(LEARNED_TABLE, LEARNED),
        quantity="cosine of 6 and 7 in what training wrote, E − E0",
        read=_digits_6_and_7,
        holds=lambda value: value > 0.3,
        line="above 0.3",
    ),
    _alike("0.11c", "within_operators", "mean cosine within the operators"),
    TrainedClaim(
        **text("0.11d"),
        command=DEMO,
        preconditions=(LEARNED_TABLE, LEARNED),
        quantity="|r| between 0..9 and the main direction in which the digits moved",
        read=_at_end(lambda table: table.number_line),
        holds=lambda value: value > 0.8,
        line="above 0.8",
    ),
    _alike("0.12", "within_syntax", "mean cosine within ( ) and comma"),
    _alike(
        "0.13",
        "max_min",
        "cosine of Max and Min",
        (("First and Last, E − E0", _at_end(partial(_change_cosine, "first_last"))),),
    ),
    TrainedClaim(
        **text("0.14"),
        command=AUTHOR,
        preconditions=(AUTHORS_RECIPE, LEARNED),
        quantity="standard deviation of the table",
        read=_at_end(lambda table: table.table.std),
        holds=lambda value: value > 0.6,
        line="above 0.6",
        beside=(("before training", _at_start(lambda table: table.table.std)),),
    ),
    TrainedClaim(
        **text("0.14b"),
        command=AUTHOR,
        preconditions=(AUTHORS_RECIPE, LEARNED),
        quantity="largest absolute value",
        read=_at_end(lambda table: max(-table.table.min, table.table.max)),
        holds=lambda value: value > 2.0,
        line="above 2",
    ),
    TrainedClaim(
        **text("0.14c"),
        command=DEMO,
        preconditions=(LEARNED_TABLE, LEARNED),
        quantity="mean of the table",
        read=_at_end(lambda table: table.table.mean),
        holds=lambda value: abs(value) < 0.05,
        line="between −0.05 and 0.05",
    ),
    TrainedClaim(
        **text("0.15"),
        command="whatwhere compare sinusoidal --set init=1 --seeds 3",
        preconditions=(LEARNED_TABLE, UNIT_TABLE, LEARNED),
        quantity="standard deviation after training, as a multiple of that before",
        read=_growth,
        holds=lambda value: value > 1.2,
        line="above 1.2",
    ),
    TrainedClaim(
        **text("0.18b"),
        command="whatwhere compare none --seeds 3",
        preconditions=(scheme("none"), LEARNED_WITHOUT_ORDER),
        quantity="share of right answers to First, at the worst trained length",
        read=_first,
        holds=lambda value: value < 0.7,
        line="below 70 %",
        unit="share",
    ),
    TrainedClaim(
        **text("0.22b"),
        command=DEMO,
        preconditions=(scheme("sinusoidal"),),
        quantity="spread with positions before training, as a multiple of the spread without",
        read=_at_start(_ratio),
        holds=lambda value: value < 2.0,
        line="below 2",
    ),
    TrainedClaim(
        **text("0.33b"),
        command=AUTHOR,
        preconditions=(scheme("sinusoidal"), AUTHORS_RECIPE, LEARNED),
        quantity="largest absolute value of token plus position",
        read=_at_end(_largest_with_positions),
        holds=lambda value: value > 2.5,
        line="above 2.5",
    ),
)
