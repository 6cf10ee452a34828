"""What the trained models of a comparison answer to one sequence, and what one of them attends to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from whatwhere.errors import PositionError, SettingError, TextError, WhatWhereError
from whatwhere.report.section import Section
from whatwhere.studio.api.settings import ExportedView, query
from whatwhere.studio.schemes import run_name
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.answers import Answer, Answers, NoAnswer

MAX_TOKENS = 80  # more would be too small to read: an expression of 32 arguments has 66
EXAMPLES: Mapping[str, Sequence[str]] = {
    "expressions": ("First(6,2,1)", "Last(6,2,1)", "Max(1,6,2)", "Last(3,1,4,1,5,9,2,6,5,3,5,8)"),
    "recall": ("aKcR?c", "aKcR?a", "aKcReTgMiPkB?c"),
    "text": ("The cat sat on the ", "the cat"),
    "text in tokens": ("The cat sat on the", "the cat"),
}
"""By task, sequences to ask, the first to begin with; of expressions, also of twice the trained length."""
MEDIAN, ALL_SEEDS = "median", "all"
_DIGITS = frozenset("0123456789")


@dataclass(frozen=True, eq=False)
class Asked:
    """The answers of several runs to one sequence, and what they attend to."""

    answers: "Answers"
    runs: Sequence[str]  # the names of those that answer, then of those that cannot
    usual: "Answers | None"  # where no position is changed; None where none is
    seeds: Sequence[int]
    causal: bool
    digits: Sequence[int] | None  # the slots of an expression's digits; None of other tasks
    examples: Sequence[str]  # other sequences of the task


def begin(session: Session) -> dict[str, str]:
    """Return the settings that the view begins with."""
    return {"text": EXAMPLES.get(_task(session), ("",))[0], "seeds": MEDIAN}


def cannot_ask(session: Session) -> str | None:
    """Return why there are no models that answer, or None where there are, by the headers of the files alone."""
    if session.kind != "results":
        return "What is open holds no models that were trained here: open the folder of a comparison."
    if not session.runs:
        return "This folder keeps no trained models: run the same command again, and its runs are done again."
    if _task(session) not in EXAMPLES:
        return "Its task is not one of whatwhere's, so nobody knows how its sequences are written."
    return None


def _task(session: Session) -> str:
    task = session.checkpoint.metadata.get("task") if session.kind == "results" else None
    return str(task.get("name")) if isinstance(task, dict) else ""


@query("ask.answers")
def answers(session: Session, *, text: str, positions: str = "", seeds: str = MEDIAN) -> Asked:
    """Return the answers of the models to one sequence, and how they change with the positions of its tokens.

    Args:
        positions: of each token as in "0,1,2", or "" for those of the tests.
        seeds: "median" is of each scheme the run of the median score, "all", or one seed.
    """
    if (reason := cannot_ask(session)) is not None:
        raise SettingError(reason)
    from whatwhere.comparison.answers import ask, task_of

    results, seed, moved = session.results, _seed(seeds), _positions(positions)
    count = len(task_of(results).encode(text)[0])
    if count > MAX_TOKENS:
        raise TextError(f"the text has {count:,} tokens, but at most {MAX_TOKENS} can be shown: write less.")
    builds, own = session.checkpoint.builds, results.record.model
    given: Any = {"seed": seed, "builds": builds, "model": None if own is None else builds.get(own.name)}
    usual = ask(results, text, **given)
    shown = usual if moved is None else ask(results, text, positions=moved, **given)
    names = {(run.scheme, run.seed): run_name(run) for run in results.runs}
    asked: list[Answer | NoAnswer] = [*shown.answers, *shown.without]
    slots = [n for n, token in enumerate(shown.tokens) if token in _DIGITS]
    return Asked(
        answers=shown,
        runs=[names[one.scheme, one.seed] for one in asked],
        usual=None if moved is None else usual,
        seeds=results.seeds,
        causal=results.record.settings.direction == "decoder",
        digits=slots if results.task.name == "expressions" else None,
        examples=EXAMPLES[results.task.name],
    )


def exported(session: Session) -> ExportedView | None:
    """Return the answers to the examples, at their usual positions and with all of them shifted by 1."""
    from whatwhere.report.comparison import answers as parts

    queries: list[tuple[str, Mapping[str, str]]] = []
    sections: list[Section] = []
    for text in EXAMPLES[_task(session)]:
        positions, title = "", text
        while title:
            question = {"text": text, "positions": positions, "seeds": MEDIAN}
            try:
                asked = answers(session, question).answers
            except WhatWhereError:  # such as a text that is not a sequence of these tokens
                break
            queries.append(("ask.answers", question))
            sections.append(Section(f"ask-{len(queries)}", title, [*parts(asked)]))
            title = "" if positions else f"{text}, every position shifted by 1"
            positions = ",".join(str(position + 1) for position in asked.answers[0].positions)
    return ExportedView(queries, begin=dict(queries[0][1]), sections=sections) if queries else None


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
