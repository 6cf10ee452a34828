"""Asking the trained models of a comparison: their answers to one sequence, and the attention behind these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from whatwhere.comparison.model import ComparedModel, Transformer, evaluation_generator, evaluation_positions
from whatwhere.comparison.own_model import BuildModel
from whatwhere.comparison.read import Comparison, read_results
from whatwhere.comparison.results import ALL, RunResult, TokenProbability
from whatwhere.comparison.saved_model import load_model
from whatwhere.comparison.tasks import Expressions, Recall, Text, TextPrompts, answered_at
from whatwhere.comparison.token_text import BYTES
from whatwhere.comparison.train import one_thread
from whatwhere.errors import PositionError, SettingError, TextError, WhatWhereError
from whatwhere.position.positions import positions
from whatwhere.where.catalogue import Build

Chosen = Literal["median", "all", "given"]
AskableTask = Expressions | Recall | TextPrompts
TOP = 3  # how many of the most probable tokens an answer lists
LONGEST, FARTHEST = 1024, 1_000_000
"""Tokens of a sequence, whose attention weights grow with their square; and the greatest position."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer of one trained model.

    Args:
        attention: of each layer, the weight that each head gives to each key (last axis) at each query. The model's
            own: softmax of the scores, with the mask; each row sums to 1. Empty where the model is the caller's own.
    """

    scheme: str  # of the run
    seed: int  # of the run
    positions: tuple[int, ...]  # of the tokens, as the model got them
    top: tuple[TokenProbability, ...]  # the most probable tokens, first the answer
    correct: bool | None  # whether the answer is the correct one; None where the task knows none
    correct_probability: float | None  # of the correct answer, or None
    at: int  # the slot of the token at whose output the model answers
    in_length: float | None  # the run's share of right answers in length; None where scores are losses
    attention: tuple[Float[np.ndarray, "heads queries keys"], ...]


@dataclass(frozen=True)
class NoAnswer:
    """A run that cannot answer, and why: such as a learned table that has no row for a position."""

    scheme: str
    seed: int
    reason: str


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of several runs to one sequence.

    Args:
        chosen: which run of each scheme answers: "median" is that of the median score (at the longest tested length,
            then within the trained ones), "all" all seeds, "given" the requested seed.
    """

    tokens: tuple[str, ...]  # of the sequence
    ids: tuple[int, ...]  # of the sequence
    correct: str | None  # the correct answer; None where the task knows none, as of what is not an expression
    chosen: Chosen
    trained: tuple[int, ...]  # the lengths of training, in tokens
    answers: tuple[Answer, ...]  # in the order of the comparison
    without: tuple[NoAnswer, ...]  # runs that cannot answer


def ask(
    results: Comparison | str | Path,
    text: str,
    *,
    schemes: Sequence[str] | None = None,
    seed: int | Literal["all"] | None = None,
    positions: Sequence[int] | None = None,
    builds: Mapping[str, Build] | None = None,
    model: BuildModel | None = None,
) -> Answers:
    """Return the answers of the trained models of a comparison to one sequence.

    Args:
        results: a comparison, or its folder.
        text: a sequence of the task, such as "First(6,2,1)" of the expressions or "aKcR?c" of recall; of the task text,
            any text, whose next byte or token is predicted.
        schemes: which are asked; None is all.
        seed: of the run; None is the run of the median score, "all" every one.
        positions: the position of each token; None counts them as the tests of the comparison do.
        builds: by name, the functions that built schemes of the caller's own.
        model: what built the models, where that was the caller's own: as was passed to `compare(model=...)`.

    Raises:
        SettingError: If the task is not one of whatwhere's, or a scheme or seed is not in the comparison.
        TextError: If the text has a token that the task lacks, or more than 1,024 tokens.
        PositionError: If positions do not fit the tokens, or no scheme has a row for one of them.
        ResultsError: If a file of the folder is absent or damaged.

    Examples:
        >>> import tempfile
        >>> from whatwhere.comparison import compare
        >>> with tempfile.TemporaryDirectory() as out:
        ...     results = compare(["none"], lengths=[8], seeds=1, out=out, steps=2, workers=1, progress=False)
        ...     answers = ask(results, "First(6,2,1)")
        >>> answers.correct, answers.answers[0].attention[0].shape
        ('6', (4, 8, 8))
    """
    comparison = results if isinstance(results, Comparison) else read_results(results)
    task = task_of(comparison)
    ids, tokens = task.encode(text)
    if len(ids) > LONGEST:
        raise TextError(f"the text has {len(ids):,} tokens, but at most {LONGEST:,} are taken: pass a part of it.")
    runs = _runs(comparison, schemes, seed)
    if positions is not None:
        _require_positions(positions, len(ids))
    correct = task.answer(ids)
    answers: list[Answer] = []
    without: list[NoAnswer] = []
    for run in runs:
        try:
            trained_model = load_model(comparison, run, builds or {}, model=model)
            answers.append(_answer(trained_model, comparison, run, task, ids, correct, positions))
        except (PositionError, SettingError) as problem:
            without.append(NoAnswer(run.scheme, run.seed, str(problem)))
            reason: WhatWhereError = problem
    if not answers:
        raise reason
    chosen: Chosen = "median" if seed is None else "all" if seed == "all" else "given"
    trained = tuple(sorted({task.token_count(length) for length in comparison.task.trained}))
    right = None if correct is None else task.tokens[correct]
    return Answers(tuple(tokens), tuple(ids), right, chosen, trained, tuple(answers), tuple(without))


def median_run(comparison: Comparison, scheme: str) -> RunResult:
    """Return the run of a scheme whose score is the median: at the longest tested length, then in length.

    Of an even number of runs it is the lower one of the two in the middle.
    """
    longest = max(comparison.trained + comparison.beyond)

    def score(run: RunResult) -> tuple[float, float, int]:
        value = run.scores.get(longest, {}).get(ALL)
        return (float("-inf") if value is None else value, run.in_length, run.seed)

    runs = sorted((run for run in comparison.runs if run.scheme == scheme), key=score)
    return runs[(len(runs) - 1) // 2]


def task_of(comparison: Comparison) -> AskableTask:
    """Return the task of a comparison, which reads sequences and knows their correct answers."""
    described = comparison.task
    for task in (Expressions, Recall):
        if described.name == task.name and described.tokens == task.tokens:
            return task(described.trained)
    if described.tokenized is not None or (described.name == Text.name and described.tokens == BYTES):
        return TextPrompts(described.tokenized)
    raise SettingError(
        f"the task {described.name!r} is not in whatwhere, so nobody knows how its sequences are written. Models of "
        "expressions, recall and text can be asked; for yours:\n"
        "model = ww.comparison.load_model(results, run); model(ids)."
    )


def _require_positions(positions: Sequence[int], count: int) -> None:
    if len(positions) == count and min(positions) >= 0 and max(positions) <= FARTHEST:
        return
    outside = next((p for p in positions if not 0 <= p <= FARTHEST), None)
    raise PositionError(
        f"{count} tokens need as many positions from 0 to {FARTHEST:,}, but got "
        f"{len(positions) if len(positions) != count else outside}.\n"
        f"Without any they count on: {','.join(map(str, range(count)))}."
    )


def _runs(comparison: Comparison, schemes: Sequence[str] | None, seed: int | str | None) -> list[RunResult]:
    names = comparison.schemes if schemes is None else [*map(comparison.find_scheme, schemes)]
    if seed is None:
        return [median_run(comparison, name) for name in names]
    runs = [run for name in names for run in comparison.runs if run.scheme == name and seed in ("all", run.seed)]
    if not runs:
        raise SettingError(
            f"the comparison has no seed {seed!r}. It has {', '.join(map(str, comparison.seeds))}, or all."
        )
    return runs


@torch.no_grad()
def _answer(
    model: ComparedModel,
    comparison: Comparison,
    run: RunResult,
    task: AskableTask,
    ids: Sequence[int],
    correct: int | None,
    requested: Sequence[int] | None,
) -> Answer:
    settings = comparison.settings(run)
    sequence = torch.tensor([list(ids)])
    if requested is None:
        p = evaluation_positions(settings, sequence, evaluation_generator(len(ids)))
    else:  # the mask follows the order of the tokens, whatever their positions
        p = replace(positions(len(ids)), index=torch.tensor([[list(requested)]]), max_length=max(requested) + 1)
    at = answered_at(settings.direction) % len(ids)
    with one_thread():
        probabilities = model(sequence, at, p)[0].double().softmax(-1)
        weights = model.weights(sequence, p=p) if isinstance(model, Transformer) else []
    if not probabilities.isfinite().all():
        raise SettingError("its probabilities are not finite: the model diverged, or its file was changed.")
    top = [
        TokenProbability(task.tokens[n], n, probabilities[n].item())
        for n in probabilities.argsort(descending=True, stable=True)[:TOP].tolist()
    ]
    return Answer(
        scheme=run.scheme,
        seed=run.seed,
        positions=tuple(p.index[0, 0].tolist()),
        top=tuple(top),
        correct=None if correct is None else top[0].id == correct,
        correct_probability=None if correct is None else probabilities[correct].item(),
        at=at,
        in_length=run.in_length if comparison.percent else None,
        attention=tuple(layer[0].numpy() for layer in weights),
    )
