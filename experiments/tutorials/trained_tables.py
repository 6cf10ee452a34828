"""What training does to token tables, attention and longer sequences, judged by the runs of a comparison."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from experiments.tutorials.claim import Claim, text
from experiments.tutorials.trained import (
    AUTHORS_RECIPE,
    BEYOND,
    CONTROL,
    LEARNED,
    LEARNED_TABLE,
    LEARNED_TEXT,
    LEARNED_WITHOUT_ORDER,
    PLAIN,
    RELATIVE,
    THRESHOLD,
    UNIT_TABLE,
    Precondition,
    Read,
    TrainedClaim,
    in_length,
    scheme,
    table,
)
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.read import AFTER, BEFORE, Comparison
from whatwhere.comparison.results import ALL, RunResult, TableSnapshot
from whatwhere.comparison.saved_model import load_model
from whatwhere.errors import ResultsError, SettingError
from whatwhere.what.expressions import EXPRESSION_TOKENS, expression_tokenizer

DEMO = "whatwhere compare none sinusoidal learned rotary alibi --seeds 3"
AUTHOR = "whatwhere compare sinusoidal --recipe author --seeds 3"
TEXT = "whatwhere compare none sinusoidal rotary alibi --task text --seeds 3"

_SIX, _SEVEN = EXPRESSION_TOKENS.index("6"), EXPRESSION_TOKENS.index("7")


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
        line="above 0.3",
        beside=(
            ("of the table, before training", _at_start(partial(_cosine, name))),
            ("of the table, after it", _at_end(partial(_cosine, name))),
            *more,
        ),
    )


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
        line="above 95 %",
        unit="share",
        beside=(("in length", in_length),),
    )
    on_text = TrainedClaim(
        **text(f"{id}b"),
        command=TEXT,
        task="text",
        preconditions=(scheme(name), PLAIN, LEARNED_TEXT, BEYOND),
        quantity="loss at {farthest} less that in length, in nats per byte",
        read=_more_loss,
        line="below 0.1",
        beside=(("in length", in_length),),
    )
    return on_expressions, on_text


MAX, DIGITS = 0, (2, 4, 6)
"""Positions of the tokens in Max(a,b,c)."""
EQUAL_SHARE = 1 / 8
"""Of eight tokens."""

_ENCODER = Precondition(
    "an encoder: in a decoder no token attends to later ones, and Max is the first",
    lambda results, run: results.settings(run).direction == "encoder",
    lambda results, runs: "these models are decoders: whatwhere compare --recipe author",
)


def _why_unknown(results: Comparison, run: RunResult) -> str:
    """Return why the attention of a run cannot be computed, or ""."""
    try:
        load_model(results, run)
    except (ResultsError, SettingError) as error:
        return str(error).partition("\n")[0]
    return ""


_KEPT = Precondition(
    "its model is kept",
    lambda results, run: not _why_unknown(results, run),
    lambda results, runs: _why_unknown(results, runs[0]),
)


@torch.no_grad()
def attention_of_max(results: Comparison, run: RunResult) -> Float[Tensor, "heads digits expressions"]:
    """Return the weights with which Max attends to the three digits of each Max(a,b,c), in all heads of all layers."""
    tokenizer = expression_tokenizer()
    ids = torch.tensor([tokenizer.encode(f"Max({a},{b},{c})").ids for a, b, c in product(range(10), repeat=3)])
    model = cast("Transformer", load_model(results, run))
    weights = [layer[:, :, MAX, list(DIGITS)] for layer in model.weights(ids)]
    return torch.cat(weights, dim=1).permute(1, 2, 0)


def _least_on_average(results: Comparison, run: RunResult) -> float:
    """Return the mean weight of the digit that gets least over all expressions, in the head where that is most."""
    return float(attention_of_max(results, run).mean(-1).amin(1).max())


def _least_in_each(results: Comparison, run: RunResult) -> float:
    """Return the weight of the digit that gets least in an expression, its mean in the head where that is most."""
    return float(attention_of_max(results, run).amin(1).mean(-1).max())


def _all_digits(results: Comparison, run: RunResult) -> float:
    """Return the mean weight of all three digits together, in the head where that is most."""
    return float(attention_of_max(results, run).sum(1).mean(-1).max())


CLAIMS: tuple[Claim, ...] = (
    *(
        TrainedClaim(
            **text(id),
            command=f"whatwhere compare rotary --vary table=learned,{kind} --steps 2000 --seeds 3",
            preconditions=(table(kind), CONTROL),
            quantity="share of right answers in length",
            read=in_length,
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
        line="above 0.3",
    ),
    _alike("0.11c", "within_operators", "mean cosine within the operators"),
    TrainedClaim(
        **text("0.11d"),
        command=DEMO,
        preconditions=(LEARNED_TABLE, LEARNED),
        quantity="|r| between 0..9 and the main direction in which the digits moved",
        read=_at_end(lambda table: table.number_line),
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
        line="above 0.6",
        beside=(("before training", _at_start(lambda table: table.table.std)),),
    ),
    TrainedClaim(
        **text("0.14b"),
        command=AUTHOR,
        preconditions=(AUTHORS_RECIPE, LEARNED),
        quantity="largest absolute value",
        read=_at_end(lambda table: max(-table.table.min, table.table.max)),
        line="above 2",
    ),
    TrainedClaim(
        **text("0.14c"),
        command=DEMO,
        preconditions=(LEARNED_TABLE, LEARNED),
        quantity="mean of the table",
        read=_at_end(lambda table: table.table.mean),
        line="between −0.05 and 0.05",
    ),
    TrainedClaim(
        **text("0.15"),
        command="whatwhere compare sinusoidal --set init=1 --seeds 3",
        preconditions=(LEARNED_TABLE, UNIT_TABLE, LEARNED),
        quantity="standard deviation after training, as a multiple of that before",
        read=_growth,
        line="above 1.2",
    ),
    TrainedClaim(
        **text("0.18b"),
        command="whatwhere compare none --seeds 3",
        preconditions=(scheme("none"), LEARNED_WITHOUT_ORDER),
        quantity="share of right answers to First, at the worst trained length",
        read=_first,
        line="below 70 %",
        unit="share",
    ),
    TrainedClaim(
        **text("0.22b"),
        command=DEMO,
        preconditions=(scheme("sinusoidal"),),
        quantity="spread with positions before training, as a multiple of the spread without",
        read=_at_start(_ratio),
        line="below 2",
    ),
    TrainedClaim(
        **text("0.33b"),
        command=AUTHOR,
        preconditions=(scheme("sinusoidal"), AUTHORS_RECIPE, LEARNED),
        quantity="largest absolute value of token plus position",
        read=_at_end(_largest_with_positions),
        line="above 2.5",
    ),
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
        line="below 5 %",
        unit="share",
    ),
    TrainedClaim(
        **text("0.32b"),
        command=DEMO,
        preconditions=(scheme("learned"), PLAIN, BEYOND),
        quantity="share of runs without a row at {farthest}",
        read=_no_row,
        line="100 %",
        unit="share",
    ),
    TrainedClaim(
        **text("2.6b"),
        command=DEMO,
        preconditions=(RELATIVE, LEARNED),
        quantity="largest change of a logit when every position is shifted by {shift}",
        read=_largest_change,
        line="below 0.01",
    ),
    TrainedClaim(
        **text("0.39"),
        command=AUTHOR,
        preconditions=(_ENCODER, PLAIN, LEARNED, _KEPT),
        quantity="weight from Max to the place of a digit that gets least over 1,000 expressions, in the best head",
        read=_least_on_average,
        line="above 0.125",
        beside=(
            ("to the digit that gets least in each expression, on average", _least_in_each),
            ("to all three digits together", _all_digits),
        ),
    ),
)
