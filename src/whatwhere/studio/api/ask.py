"""What the trained models of a comparison answer to one sequence, and what one of them attends to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from whatwhere.comparison.results import TokenProbability
from whatwhere.errors import PositionError, SettingError, TextError, WhatWhereError
from whatwhere.report.section import Section, Table
from whatwhere.report.text import decimals
from whatwhere.studio.api.settings import ExportedView, columns, query
from whatwhere.studio.schemes import find_run, first_names, run_name
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.answers import Answer, Answers

MAX_TOKENS = 80
"""More would be too small to read: an expression of 32 arguments has 66."""
FIRST: Mapping[str, str] = {
    "expressions": "Max(1,6,2)",
    "recall": "aKcR?c",
    "text": "The cat sat on the ",
    "text in tokens": "The cat sat on the",
}
"""By task, a sequence to begin with."""
MEDIAN, ALL_SEEDS = "median", "all"
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True)
class AskedRun:
    """The answer of one run.

    Args:
        top: the most probable tokens, first the answer; none where it cannot answer.
        correct: whether the answer is the correct one; None where the task knows none.
        usual: its answer where no position was changed; None where none was, or it has none.
    """

    run: str
    scheme: str
    seed: int
    top: Sequence[TokenProbability]
    correct: bool | None
    correct_probability: float | None
    usual: TokenProbability | None
    usual_correct_probability: float | None
    missing: str | None


@dataclass(frozen=True)
class AskedRuns:
    """The answers of several runs to one sequence.

    Args:
        usual: the position of each token in the tests of the first of the runs.
        positions: the position that each had.
        at: the slot of the token at whose output the models answer; None where that differs among the runs.
        correct: the correct answer; None where the task knows none.
        trained: the lengths of training, in tokens.
    """

    tokens: Sequence[str]
    usual: Sequence[int]
    positions: Sequence[int]
    at: int | None
    correct: str | None
    trained: Sequence[int]
    seeds: Sequence[int]
    runs: Sequence[AskedRun]


@dataclass(frozen=True, eq=False)
class AskedAttention:
    """The attention weights of one run on one sequence.

    Args:
        at: the slot of the token at whose output the model answers.
        layers: the weight of each key at each query; the weights of a query sum to 1.
        digits: the slots of an expression's digits; None of other tasks.
    """

    run: str
    scheme: str
    seed: int
    tokens: Sequence[str]
    positions: Sequence[int]
    at: int
    causal: bool
    layers: Float[np.ndarray, "layers heads queries keys"]
    digits: Int[np.ndarray, " digits"] | None


def begin(session: Session) -> dict[str, str]:
    """Return the settings that the view begins with."""
    return {"text": FIRST.get(_task(session), ""), "seeds": MEDIAN}


def cannot_ask(session: Session) -> str | None:
    """Return why there are no models that answer, or None where there are, by the headers of the files alone."""
    if session.kind != "results":
        return "What is open holds no models that were trained here: open the folder of a comparison."
    if not session.runs:
        return "This folder keeps no trained models: run the same command again, and its runs are done again."
    if _task(session) not in FIRST:
        return "Its task is not one of whatwhere's, so nobody knows how its sequences are written."
    return None


def _task(session: Session) -> str:
    task = session.checkpoint.metadata.get("task") if session.kind == "results" else None
    return str(task.get("name")) if isinstance(task, dict) else ""


@query
def answers(session: Session, *, text: str, positions: str = "", seeds: str = MEDIAN) -> AskedRuns:
    """Return the answers of the models to one sequence, and how they change with the positions of its tokens.

    Args:
        positions: of each token as in "0,1,2", or "" for those of the tests.
        seeds: "median" is of each scheme the run of the median score, "all", or one seed.
    """
    seed, moved = _seed(seeds), _positions(positions)
    usual = _ask(session, text, seed=seed)
    shown = usual if moved is None else _ask(session, text, seed=seed, positions=moved)
    before = {} if moved is None else {(one.scheme, one.seed): one for one in usual.answers}
    at = {one.at for one in shown.answers}
    runs = [_answered(session, one, before.get((one.scheme, one.seed))) for one in shown.answers]
    for one in shown.without:
        reason = one.reason.partition("\n")[0]
        runs.append(AskedRun(*_name(session, one.scheme, one.seed), [], None, None, None, None, reason))
    return AskedRuns(
        tokens=shown.tokens,
        usual=usual.answers[0].positions,
        positions=shown.answers[0].positions,
        at=at.pop() if len(at) == 1 else None,
        correct=shown.correct,
        trained=shown.trained,
        seeds=session.results.seeds,
        runs=runs,
    )


@query
def attention(session: Session, *, text: str, positions: str = "", run: str) -> AskedAttention:
    """Return the attention weights of one run on one sequence, of every layer and head."""
    moved, found, results = _positions(positions), find_run(session, run), session.results
    asked = _ask(session, text, schemes=[found.scheme], seed=found.seed, positions=moved)
    answer = asked.answers[0]
    slots = [n for n, token in enumerate(asked.tokens) if token in _DIGITS]
    return AskedAttention(
        run=run,
        scheme=found.scheme,
        seed=found.seed,
        tokens=asked.tokens,
        positions=answer.positions,
        at=answer.at,
        causal=results.settings(found).direction == "decoder",
        layers=np.stack(answer.attention),
        digits=np.array(slots, np.int64) if results.task.name == "expressions" else None,
    )


def exported(session: Session) -> ExportedView | None:
    """Return the first question with the answers and attention of the first run of each scheme."""
    first = begin(session) | {"seeds": str(find_run(session, first_names(session)[0]).seed)}
    question = {"text": first["text"], "positions": ""}
    try:
        asked = answers(session, question | {"seeds": first["seeds"]})
        heads = [attention(session, question | {"run": one.run}) for one in asked.runs if one.missing is None]
    except WhatWhereError:
        return None
    queries = [
        ("ask.answers", question | {"seeds": first["seeds"]}),
        *(("ask.attention", question | {"run": each.run}) for each in heads),
    ]
    section = Section("ask", "Answers, and what the models attend to", [_table(asked), *map(_heads_table, heads)])
    return ExportedView(queries, begin=first, sections=[section])


def _positions(written: str) -> list[int] | None:
    if written == "":
        return None
    parts = written.split(",")
    if len(parts) > MAX_TOKENS or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise PositionError(
            "positions are whole numbers from 0, one for each token, separated by commas, as in 0,1,2,3; but got "
            f"{written[:60]!r}."
        )
    return [int(part) for part in parts]


def _seed(written: str) -> int | Literal["all"] | None:
    if written in (MEDIAN, ALL_SEEDS):
        return "all" if written == ALL_SEEDS else None
    if not (written.isascii() and written.isdecimal() and len(written) < 20):
        raise SettingError(f"seeds must be {MEDIAN}, {ALL_SEEDS} or a seed of the comparison, but is {written[:40]!r}.")
    return int(written)


def _ask(session: Session, text: str, **settings: Any) -> "Answers":
    if (reason := cannot_ask(session)) is not None:
        raise SettingError(reason)
    from whatwhere.comparison.answers import ask, task_of

    count = len(task_of(session.results).encode(text)[0])
    if count > MAX_TOKENS:
        raise TextError(f"the text has {count:,} tokens, but at most {MAX_TOKENS} can be shown: write less.")
    return ask(session.results, text, **settings)


def _answered(session: Session, answer: "Answer", before: "Answer | None") -> AskedRun:
    return AskedRun(
        *_name(session, answer.scheme, answer.seed),
        top=answer.top,
        correct=answer.correct,
        correct_probability=answer.correct_probability,
        usual=None if before is None else before.top[0],
        usual_correct_probability=None if before is None else before.correct_probability,
        missing=None,
    )


def _name(session: Session, scheme: str, seed: int) -> tuple[str, str, int]:
    from whatwhere.report.comparison_sentences import name_text

    run = next(run for run in session.results.runs if (run.scheme, run.seed) == (scheme, seed))
    return run_name(run), name_text(scheme), seed


def _table(asked: AskedRuns) -> Table:
    tokens = [", ".join(f"{each.token} {decimals(each.probability, 4)}" for each in one.top) for one in asked.runs]
    values = {
        "run": [one.run for one in asked.runs],
        "most probable tokens": [said or str(one.missing) for said, one in zip(tokens, asked.runs, strict=True)],
        "correct": ["–" if one.correct is None else "yes" if one.correct else "no" for one in asked.runs],
    }
    known_answer = "" if asked.correct is None else f"; correct is {asked.correct}"
    return columns(f"{' '.join(asked.tokens)}{known_answer}", values, shorten="never")


def _heads_table(view: AskedAttention) -> Table:
    """Return the weights of the keys at the query whose output is the answer, by layer and head."""
    caption = f"{view.run}: attention weights at {view.tokens[view.at]}, token {view.at}, whose output is the answer"
    keys = [f"{n} {token}" for n, token in enumerate(view.tokens)]
    return columns(caption, {"key": keys, **by_head(view.layers[:, :, view.at])})


def by_head(weights: Float[np.ndarray, "layers heads n"]) -> dict[str, Float[np.ndarray, " n"]]:
    """Return the weights of each head, by its name."""
    layers, heads, _ = weights.shape
    return {f"layer {n}, head {m}": weights[n, m] for n in range(layers) for m in range(heads)}
