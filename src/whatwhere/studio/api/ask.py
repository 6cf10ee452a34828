"""What the trained models of a comparison answer to one sequence, and what one of them attends to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from whatwhere.comparison.results import TokenProbability
from whatwhere.errors import PositionError, SettingError, TextError, WhatWhereError
from whatwhere.report.section import Part, Section, Table
from whatwhere.report.text import decimals
from whatwhere.studio.api.settings import ExportedView, known, text
from whatwhere.studio.schemes import find_run, first_names, run_name
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.answers import Answer, Answers
    from whatwhere.comparison.read import Comparison

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
        run: its name, such as "rotary-0".
        scheme: its name, made visible.
        seed: of the run.
        top: the most probable tokens, first the answer; none where it cannot answer.
        correct: whether the answer is the correct one; None where the task knows none.
        correct_probability: of the correct answer, or None.
        usual: its answer where no position was changed; None where none was, or it has none.
        usual_correct_probability: the probability of the correct answer there, or None.
        missing: why it cannot answer, or None.
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
        tokens: of the sequence.
        ids: of the tokens.
        usual: the position of each token in the tests of the first of the runs.
        positions: the position that each had.
        at: the slot of the token at whose output the models answer; None where that differs among the runs.
        correct: the correct answer; None where the task knows none.
        trained: the lengths of training, in tokens.
        seeds: of the comparison.
        runs: the answers.
    """

    tokens: Sequence[str]
    ids: Sequence[int]
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
        run: its name.
        scheme: its name in the comparison.
        seed: of the run.
        tokens: of the sequence.
        positions: of the tokens.
        at: the slot of the token at whose output the model answers.
        causal: whether no token attends to later ones.
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


def answers(session: Session, settings: Mapping[str, Any]) -> AskedRuns:
    """Return the answers of the models to one sequence, and how they change with the positions of its tokens.

    Args:
        settings: text; positions, of each token as in "0,1,2", or "" for those of the tests; seeds ("median" is of each
            scheme the run of the median score, "all", or one seed).

    Raises:
        SettingError: If what is open has no models that answer.
        TextError: If the text has a token that the task lacks, or too many.
        PositionError: If positions do not fit the tokens, or no run has a row for one of them.
    """
    known(settings, "text", "positions", "seeds")
    results, written, moved = _readable(session, settings)
    seed = _seed(text(settings, "seeds", MEDIAN))
    usual = _ask(results, written, seed=seed)
    shown = usual if moved is None else _ask(results, written, seed=seed, positions=moved)
    before = {} if moved is None else {(one.scheme, one.seed): one for one in usual.answers}
    at = {one.at for one in shown.answers}
    return AskedRuns(
        tokens=shown.tokens,
        ids=shown.ids,
        usual=usual.answers[0].positions,
        positions=shown.answers[0].positions,
        at=at.pop() if len(at) == 1 else None,
        correct=shown.correct,
        trained=shown.trained,
        seeds=sorted({run.seed for run in results.runs}),
        runs=[
            *(_answered(results, one, before.get((one.scheme, one.seed))) for one in shown.answers),
            *(_unanswered(results, one.scheme, one.seed, one.reason) for one in shown.without),
        ],
    )


def attention(session: Session, settings: Mapping[str, Any]) -> AskedAttention:
    """Return the attention weights of one run on one sequence, of every layer and head.

    Args:
        session: a comparison.
        settings: text; positions, as of `answers`; run.

    Raises:
        SettingError: If what is open has no models that answer, or no such run.
        TextError: If the text has a token that the task lacks, or too many.
        PositionError: If positions do not fit the tokens, or the run has no row for one of them.
    """
    known(settings, "text", "positions", "run")
    results, written, moved = _readable(session, settings)
    run = find_run(session, text(settings, "run"))
    asked = _ask(results, written, schemes=[run.scheme], seed=run.seed, positions=moved)
    answer, task = asked.answers[0], results.task.name
    slots = [n for n, token in enumerate(asked.tokens) if token in _DIGITS]
    return AskedAttention(
        run=run_name(run),
        scheme=run.scheme,
        seed=run.seed,
        tokens=asked.tokens,
        positions=answer.positions,
        at=answer.at,
        causal=results.settings(run).direction == "decoder",
        layers=np.stack(answer.attention),
        digits=np.array(slots, np.int64) if task == "expressions" else None,
    )


def exported(session: Session) -> ExportedView | None:
    """Return the first question with the answers and attention of the first run of each scheme."""
    if cannot_ask(session) is not None:
        return None
    names = first_names(session)
    first = begin(session) | {"seeds": str(find_run(session, names[0]).seed)}
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
    return ExportedView("Ask", queries, begin=first, sections=[section])


def _readable(session: Session, settings: Mapping[str, Any]) -> "tuple[Comparison, str, list[int] | None]":
    """Return the comparison, the text, and the changed positions."""
    if (reason := cannot_ask(session)) is not None:
        raise SettingError(reason)
    from whatwhere.comparison.answers import task_of

    written, results = text(settings, "text"), session.results
    count = len(task_of(results).encode(written)[0])
    if count > MAX_TOKENS:
        raise TextError(f"the text has {count:,} tokens, but at most {MAX_TOKENS} can be shown: write less.")
    return results, written, _positions(text(settings, "positions", ""))


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


def _ask(results: "Comparison", written: str, **settings: Any) -> "Answers":
    from whatwhere.comparison.answers import ask

    return ask(results, written, **settings)


def _answered(results: "Comparison", answer: "Answer", before: "Answer | None") -> AskedRun:
    first = None if before is None else before.top[0]
    return AskedRun(
        *_name(results, answer.scheme, answer.seed),
        top=answer.top,
        correct=answer.correct,
        correct_probability=answer.correct_probability,
        usual=first,
        usual_correct_probability=None if before is None else before.correct_probability,
        missing=None,
    )


def _unanswered(results: "Comparison", scheme: str, seed: int, reason: str) -> AskedRun:
    named = _name(results, scheme, seed)
    return AskedRun(*named, [], None, None, None, None, reason.partition("\n")[0])


def _name(results: "Comparison", scheme: str, seed: int) -> tuple[str, str, int]:
    from whatwhere.report.comparison_sentences import name_text

    run = next(run for run in results.runs if (run.scheme, run.seed) == (scheme, seed))
    return run_name(run), name_text(scheme), seed


def _table(asked: AskedRuns) -> Table:
    rows = []
    for one in asked.runs:
        tokens = ", ".join(f"{each.token} {decimals(each.probability, 4)}" for each in one.top)
        right = "–" if one.correct is None else "yes" if one.correct else "no"
        rows.append((one.run, tokens or str(one.missing), right))
    known_answer = "" if asked.correct is None else f"; correct is {asked.correct}"
    columns = ("run", "most probable tokens", "correct")
    return Table(f"{' '.join(asked.tokens)}{known_answer}", columns, rows, shorten="never")


def _heads_table(view: AskedAttention) -> Part:
    """Return the weights of the keys at the query whose output is the answer, by layer and head."""
    layers, heads, _, _ = view.layers.shape
    columns = ["key", *(f"layer {n // heads}, head {n % heads}" for n in range(layers * heads))]
    weights = view.layers[:, :, view.at].reshape(layers * heads, -1).T
    rows = [
        [f"{n} {token}", *(decimals(float(weight), 3) for weight in weights[n])] for n, token in enumerate(view.tokens)
    ]
    caption = f"{view.run}: attention weights at {view.tokens[view.at]}, token {view.at}, whose output is the answer"
    return Table(caption, columns, rows, numeric=range(1, len(columns)))
