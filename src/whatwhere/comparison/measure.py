"""Measure a trained model: scores by length and group, the shift test, the token table."""

import statistics
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.analysis.pca import principal_components
from whatwhere.analysis.position_similarity import similarity
from whatwhere.comparison import run_positions
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.results import ALL, Scores, Shift, Statistics, TableSnapshot, TokenCosines
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Expressions, Task
from whatwhere.comparison.train import autocast, require_finite, to_device
from whatwhere.errors import PositionError

SHIFTS = (0, 1, 2, 4, 8, 16, 32, 60)
_TEST_TOKENS = 50_000
_CHUNK_TOKENS = 16_384


def evaluation_set(task: Task, length: int, settings: Settings) -> Batch:
    """Return the test set of a length, the same for every run; of long sequences there are fewer."""
    count = max(20, min(settings.test_sequences, _TEST_TOKENS // task.token_count(length)))
    return task.test_set(length, count)


@torch.no_grad()
def scores(model: Transformer, task: Task, length: int, settings: Settings) -> Scores:
    """Return the scores of a model at a length, of all targets and of each group.

    Args:
        model: trained.
        task: which has the test set.
        length: in the task's unit.
        settings: of the comparison.

    Returns:
        By group; all None where the scheme has no row for a position.
    """
    test_set = to_device(evaluation_set(task, length, settings), settings.resolved_device)
    try:
        logits = _logits(model, test_set, 0, settings)
    except PositionError:
        return dict.fromkeys((ALL, *task.groups))
    return _score(logits, test_set, task)


@torch.no_grad()
def shift_test(model: Transformer, task: Task, settings: Settings) -> dict[int, Shift]:
    """Shift all positions of the same sequences by 0, 1, 2, 4, ..., 60, and measure what becomes of the logits.

    A scheme of relative positions keeps its logits, up to rounding; absolute positions reach vectors that training
    never showed.

    Args:
        model: trained.
        task: which has the test set.
        settings: of the comparison.
    """
    test_set = to_device(evaluation_set(task, task.shift_length, settings), settings.resolved_device)
    unshifted = _logits(model, test_set, 0, settings)
    results: dict[int, Shift] = {}
    for shift in SHIFTS:
        try:
            logits = _logits(model, test_set, shift, settings)
        except PositionError:
            results[shift] = Shift(None, None)
            continue
        change = (logits - unshifted).abs().max().item()
        results[shift] = Shift(_score(logits, test_set, task)[ALL], change)
    return results


def in_length(by_length: Mapping[int, Scores], task: Task) -> float:
    """Return the mean score over the trained lengths that can be tested on unseen sequences.

    Raises:
        PositionError: a scheme has no row for one of them.
    """
    return statistics.fmean(_known(by_length[length][ALL]) for length in task.tested_in_length)


@torch.no_grad()
def table_snapshot(
    model: Transformer, task: Task, settings: Settings, percent: int, initial: Float[Tensor, "tokens dim"] | None
) -> TableSnapshot | None:
    """Describe the token table of the expressions task in the terms of the first tutorial.

    Args:
        model: at this step.
        task: of the run.
        settings: of the comparison.
        percent: of the steps that are done.
        initial: the table before training; None at the start.

    Returns:
        The description; None for other tasks.
    """
    if not isinstance(task, Expressions):
        return None
    table = model.input.tokens.weight.detach().float().cpu()
    change = None if initial is None else table - initial
    summed = None
    if model.input.where.input is not None:
        ids = evaluation_set(task, max(task.trained), settings).ids
        summed = _statistics(model.input(ids.to(model.device)).cpu())
    return TableSnapshot(
        percent=percent,
        table=_statistics(table),
        with_positions=summed,
        cosines=_token_cosines(table),
        change_cosines=None if change is None else _token_cosines(change),
        number_line=None if change is None else number_line(change[2:12].double().numpy()),
    )


def number_line(moves: Float[np.ndarray, "digits dim"]) -> float | None:
    """Return |r| between 0, 1, 2, ... and the first principal component of what training wrote into the digits.

    Args:
        moves: rows of E - E0.

    Returns:
        The absolute correlation; None where the component is constant.

    Examples:
        >>> round(number_line(np.outer(np.arange(10.0), [3.0, 4.0])), 6)
        1.0
    """
    component = principal_components(moves, 1).coordinates[:, 0]
    return _correlation(component, np.arange(float(len(moves))))


def _logits(model: Transformer, test_set: Batch, shift: int, settings: Settings) -> Tensor:
    model.eval()
    rows = max(1, _CHUNK_TOKENS // test_set.ids.shape[1])
    generator = run_positions.evaluation_generator(test_set.ids.shape[1])
    with autocast(settings.resolved_device):
        parts = [
            model(ids, test_set.at, run_positions.in_test(settings, ids, generator, shift))
            for ids in test_set.ids.split(rows)
        ]
    logits = torch.cat(parts).float()
    require_finite(logits, "the logits are", settings)
    return logits


def _score(logits: Tensor, test_set: Batch, task: Task) -> Scores:
    if task.measure == "accuracy":
        each = (logits.argmax(-1) == test_set.targets).float()
    else:
        each = torch.nn.functional.cross_entropy(logits.flatten(0, -2), test_set.targets.flatten(), reduction="none")
        each = each.view_as(test_set.targets)
    found: dict[str, float | None] = {ALL: each.mean().item()}
    for number, name in enumerate(task.groups):
        chosen = each[test_set.groups == number]
        found[name] = chosen.mean().item() if chosen.numel() else None
    return found


def _known(value: float | None) -> float:
    if value is None:
        raise PositionError("a scheme has no row for a length that it was trained on: build it for max_length rows.")
    return value


def _statistics(values: Tensor) -> Statistics:
    std = values.std(correction=0).item()
    return Statistics(values.mean().item(), std, values.min().item(), values.max().item())


def _token_cosines(table: Float[Tensor, "tokens dim"]) -> TokenCosines:
    """Return the cosines of the expressions' vocabulary: digits 2-11, operators 12-16, brackets and comma 17-19."""
    return TokenCosines(
        max_min=_finite(similarity(table[15], table[16]).item()),
        first_last=_finite(similarity(table[12], table[14]).item()),
        within_digits=_mean_cosine(table[2:12]),
        within_operators=_mean_cosine(table[12:17]),
        within_syntax=_mean_cosine(table[17:20]),
    )


def _mean_cosine(rows: Tensor) -> float | None:
    cosines = similarity(rows[:, None], rows)
    return _finite(float(cosines[torch.triu(torch.ones_like(cosines, dtype=torch.bool), 1)].mean()))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    if a.std() == 0 or b.std() == 0:
        return None
    return float(abs(np.corrcoef(a, b)[0, 1]))
