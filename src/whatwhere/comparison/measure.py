"""Measure a trained model: scores by length and group, the shift test, the token table."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.analysis.projection import principal_components
from whatwhere.analysis.similarity import similarity
from whatwhere.comparison import stands
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Expressions, Task
from whatwhere.comparison.train import autocast, moved, require_finite
from whatwhere.errors import PositionError

SHIFTS = (0, 1, 2, 4, 8, 16, 32, 60)
_EXAM_TOKENS = 50_000
_CHUNK_TOKENS = 16_384

Scores = dict[str, float | None]


def exam_of(task: Task, length: int, settings: Settings) -> Batch:
    """Give the test of a length, the same for every run; of long sequences there are fewer."""
    return task.exam(length, max(20, min(settings.exam, _EXAM_TOKENS // task.token_count(length))))


@torch.no_grad()
def scores(model: Transformer, task: Task, length: int, settings: Settings) -> Scores:
    """Score a model at a length, in all and for each group; None where a scheme has no row for it."""
    exam = moved(exam_of(task, length, settings), settings.place)
    try:
        logits = _logits(model, exam, 0, settings)
    except PositionError:
        return dict.fromkeys(("all", *task.groups))
    return _score(logits, exam, task)


@torch.no_grad()
def shift_test(model: Transformer, task: Task, settings: Settings) -> dict[str, dict[str, float | None]]:
    """Move all positions of the same sequences by 1, 2, 4, ..., 60, and see what becomes of the answers.

    A scheme that sees distances only gives the same logits; one that sees places has never trained at these.
    """
    exam = moved(exam_of(task, task.shift_length, settings), settings.place)
    still = _logits(model, exam, 0, settings)
    found: dict[str, dict[str, float | None]] = {}
    for shift in SHIFTS:
        try:
            logits = _logits(model, exam, shift, settings)
        except PositionError:
            found[str(shift)] = {"score": None, "largest_logit_change": None}
            continue
        change = (logits - still).abs().max().item()
        found[str(shift)] = {"score": _score(logits, exam, task)["all"], "largest_logit_change": change}
    return found


def in_length(by_length: Mapping[str, Scores], task: Task) -> float:
    """Average over the trained lengths that can be tested on unseen sequences, each weighted alike."""
    return statistics.fmean(_known(by_length[str(length)]["all"]) for length in task.tested_in_length)


@torch.no_grad()
def table_story(
    model: Transformer, task: Task, settings: Settings, first: Float[Tensor, "tokens dim"] | None
) -> dict[str, Any] | None:
    """Describe the token table of the expressions task as the first tutorial does; None for other tasks.

    Args:
        first: the table before training; None at the start.

    number_line: of the digits' rows of E - E0.
    """
    if not isinstance(task, Expressions):
        return None
    table = model.input.tokens.weight.detach().float().cpu()
    digits, operators, syntax = table[2:12], table[12:17], table[17:20]
    story: dict[str, Any] = {
        "table": _numbers(table),
        "with_position": None,
        "cosine": {
            "Max-Min": similarity(table[15], table[16]).item(),
            "First-Last": similarity(table[12], table[14]).item(),
            "within digits": _mean_cosine(digits),
            "within operators": _mean_cosine(operators),
            "within syntax": _mean_cosine(syntax),
        },
        "number_line": None,
    }
    if model.input.where.input is not None:
        story["with_position"] = _numbers(
            model.input(exam_of(task, max(task.trained), settings).ids.to(model.place)).cpu()
        )
    if first is not None:
        story["number_line"] = number_line((table - first)[2:12].double().numpy())
    return story


def number_line(moves: Float[np.ndarray, "digits dim"]) -> float | None:
    """Give |r| between 0, 1, 2, ... and the first principal component of what training wrote into the digits."""
    along = principal_components(moves, 1).coordinates[:, 0]
    return _correlation(along, np.arange(float(len(moves))))


def spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """Give median, min and max; None where a value is missing.

    >>> spread([3.0, 1.0, 2.0]), spread([1.0, None])
    ({'median': 2.0, 'min': 1.0, 'max': 3.0}, None)
    """
    seen = list(values)
    known = [value for value in seen if value is not None]
    if not known or len(known) < len(seen):
        return None
    return {"median": statistics.median(known), "min": min(known), "max": max(known)}


def summarize(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize the runs of one scheme over its seeds."""
    first = runs[0]
    return {
        "scores": {
            length: {group: spread(run["scores"][length][group] for run in runs) for group in groups}
            for length, groups in first["scores"].items()
        },
        "in_length": spread(run["in_length"] for run in runs),
        "shift": {
            shift: {name: spread(run["shift"][shift][name] for run in runs) for name in found}
            for shift, found in first["shift"].items()
        },
        "parameters": first["parameters"],
        "seconds_per_step": spread(run["seconds_per_step"] for run in runs),
    }


def _logits(model: Transformer, exam: Batch, shift: int, settings: Settings) -> Tensor:
    model.eval()
    rows = max(1, _CHUNK_TOKENS // exam.ids.shape[1])
    placing = stands.exam_generator(exam.ids.shape[1])
    with autocast(settings.place):
        parts = [model(part, exam.at, stands.in_exam(settings, part, placing, shift)) for part in exam.ids.split(rows)]
    logits = torch.cat(parts).float()
    require_finite(logits, "the logits are", settings)
    return logits


def _score(logits: Tensor, exam: Batch, task: Task) -> Scores:
    if task.measure == "accuracy":
        each = (logits.argmax(-1) == exam.targets).float()
    else:
        each = torch.nn.functional.cross_entropy(logits.flatten(0, -2), exam.targets.flatten(), reduction="none")
        each = each.view_as(exam.targets)
    found: Scores = {"all": each.mean().item()}
    for number, name in enumerate(task.groups):
        chosen = each[exam.groups == number]
        found[name] = chosen.mean().item() if chosen.numel() else None
    return found


def _known(value: float | None) -> float:
    if value is None:
        raise PositionError("a scheme has no row for a length that it was trained on: build it for max_length rows.")
    return value


def _numbers(values: Tensor) -> dict[str, float]:
    return {
        "mean": values.mean().item(),
        "std": values.std(correction=0).item(),
        "min": values.min().item(),
        "max": values.max().item(),
    }


def _mean_cosine(rows: Tensor) -> float:
    cosines = similarity(rows[:, None], rows)
    return float(cosines[torch.triu(torch.ones_like(cosines, dtype=torch.bool), 1)].mean())


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    if a.std() == 0 or b.std() == 0:
        return None
    return float(abs(np.corrcoef(a, b)[0, 1]))
