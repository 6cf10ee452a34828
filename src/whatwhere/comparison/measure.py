"""Measure a trained model: scores by length and group, the shift test, the token table, attention by distance."""

import statistics
from collections.abc import Mapping, Sequence
from math import lcm

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.analysis.pca import principal_components
from whatwhere.analysis.position_similarity import similarity
from whatwhere.comparison.model import ComparedModel, Transformer, evaluation_generator, evaluation_positions
from whatwhere.comparison.results import ALL, Scores, Shift, Statistics, TableSnapshot, TokenCosines
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import VALIDATED, Batch, Expressions, Task, Text
from whatwhere.comparison.train import autocast, diverged, loss_every, to_device
from whatwhere.errors import PositionError

SHIFTS = (0, 1, 2, 4, 8, 16, 32, 60)
_TEST_TOKENS = 50_000
_FEWEST = 20  # sequences of a test set
_CHUNK_TOKENS = 16_384

STEPS, TABLES = "steps", "tables"
ATTENTION, UNIFORM = "attention@", "uniform@"
"""Names in the file of a trace: `attention@32` is measured at length 32, `uniform@32` is uniform attention there."""

LARGEST = 1 << 21  # most numbers of all tables of a trace, 8 MB: larger tables are not recorded

_SEQUENCES = 100
_WEIGHTS = 1 << 22


def evaluation_set(task: Task, length: int, settings: Settings) -> Batch:
    """Return the test set of a length, the same for every run.

    Where every token has a target, all lengths have equally many tokens, as long as they can be divided so: else a
    length has less than a sequence fewer. With one target for each sequence there are fewer of long sequences.
    """
    size = task.token_count(length)
    if task.test_set(max(task.trained), 1).at is None:
        return task.test_set(length, max(1, _tested_tokens(task, settings) // size))
    return task.test_set(length, max(_FEWEST, min(settings.test_sequences, _TEST_TOKENS // size)))


def _tested_tokens(task: Task, settings: Settings) -> int:
    """Return how many tokens each length is tested on: whole sequences of all lengths, where they have a multiple."""
    sizes = [task.token_count(length) for length in {*task.tested_in_length, *settings.lengths}]
    most = max(_FEWEST * max(sizes), min(settings.test_sequences * min(sizes), _TEST_TOKENS))
    if isinstance(task, Text):
        most = min(most, task.most_tested(max(sizes)))
    multiple = lcm(*sizes)
    unit = multiple if multiple <= most else max(sizes)
    return most // unit * unit


def validation_sets(task: Task, settings: Settings) -> list[Batch]:
    """Return held-out sequences of the trained lengths that are in no test set; none where the task has no others."""
    sets = []
    for length in task.tested_in_length:
        tested = evaluation_set(task, length, settings)
        known, first = set(map(tuple, tested.ids.tolist())), len(tested.ids) + 1  # tests of other lengths may end there
        count = max(1, VALIDATED // len(task.tested_in_length) // task.token_count(length))
        more = task.test_set(length, first + count)
        new = [n for n, ids in enumerate(more.ids.tolist()) if n >= first and tuple(ids) not in known]
        if new:
            sets.append(Batch(more.ids[new], more.targets[new], more.groups[new], more.at))
    return sets


@torch.no_grad()
def held_out_loss(model: ComparedModel, sets: Sequence[Batch], settings: Settings) -> float:
    """Compute the cross-entropy of validation sets: the mean over the lengths, as batches of training have them."""
    training, losses = model.training, []
    for each in sets:
        batch = to_device(each, settings.resolved_device)
        logits = _logits(model, batch, 0, settings).flatten(0, -2)
        losses.append(torch.nn.functional.cross_entropy(logits, batch.targets.flatten(), ignore_index=-100).item())
    model.train(training)
    return statistics.fmean(losses)


@torch.no_grad()
def scores(model: ComparedModel, task: Task, length: int, settings: Settings) -> Scores:
    """Compute the scores at a length, of all targets and by group; all None where a position has no row."""
    test_set = to_device(evaluation_set(task, length, settings), settings.resolved_device)
    try:
        logits = _logits(model, test_set, 0, settings)
    except PositionError:
        return dict.fromkeys((ALL, *task.groups))
    return _score(logits, test_set, task)


@torch.no_grad()
def shift_test(model: ComparedModel, task: Task, settings: Settings) -> dict[int, Shift]:
    """Shift all positions of the same sequences by 0, 1, 2, 4, ..., 60, and measure what becomes of the logits.

    A scheme of relative positions keeps its logits, up to rounding; absolute positions reach vectors that training
    never showed.
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
    """Compute the mean score over the trained lengths that can be tested on unseen sequences."""
    scores = [by_length[length][ALL] for length in task.tested_in_length]
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        raise PositionError("a scheme has no row for a length that it was trained on: build it for max_length rows.")
    return statistics.fmean(known)


@torch.no_grad()
def table_snapshot(
    model: ComparedModel, task: Task, settings: Settings, percent: int, initial: Float[Tensor, "tokens dim"] | None
) -> TableSnapshot | None:
    """Describe the token table of the expressions in the terms of the first tutorial; None where there is none."""
    if not isinstance(task, Expressions) or (weight := model.token_table) is None:
        return None
    table = weight.detach().float().cpu()
    change = None if initial is None else table - initial
    summed = None
    if isinstance(model, Transformer) and model.input.where.input is not None:
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
    """Return |r| between 0, 1, 2, ... and the first principal component of what training wrote into the digits."""
    component = principal_components(moves, 1).coordinates[:, 0]
    return None if component.std() == 0 else float(abs(np.corrcoef(component, np.arange(len(moves)))[0, 1]))


def recorded_steps(table: Tensor | None, steps: int) -> set[int]:
    """Return after which steps the token table is recorded, 0 too: about 25, at most 52; none of a large table."""
    every = 2 * loss_every(steps)
    at = {0, *range(every, steps, every), steps}
    return at if table is not None and table.numel() * len(at) <= LARGEST else set()


def attention(model: Transformer, task: Task, settings: Settings) -> dict[str, np.ndarray]:
    """Measure attention by distance at the longest trained and tested lengths for which the scheme has rows."""
    tensors: dict[str, np.ndarray] = {}
    for length in sorted({max(task.trained), max((*task.tested_in_length, *settings.lengths))}):
        try:
            curves = attention_by_distance(model, task, length, settings)
        except PositionError:
            continue
        at, causal = evaluation_set(task, length, settings).at, settings.direction == "decoder"
        queries = _queries(settings.layers, task.token_count(length), at)
        uniform = [uniform_attention(task.token_count(length), query, causal) for query in queries]
        tensors |= {
            f"{ATTENTION}{length}": curves.astype(np.float32),
            f"{UNIFORM}{length}": np.stack(uniform).astype(np.float32),
        }
    return tensors


@torch.no_grad()
def attention_by_distance(
    model: Transformer, task: Task, length: int, settings: Settings
) -> Float[np.ndarray, "layers heads distances"]:
    """Compute the mean attention weight of the key d tokens before the query, over queries and 100 sequences.

        weight(h, d) = mean of a(h, i, i - d) over i >= d        d = i - j, counted in tokens

    Distances count tokens, whatever their positions. An encoder's d goes from 1 - tokens to tokens - 1, a decoder's
    from 0. In the last layer only the query of the target counts, where the task has one target for each sequence.
    """
    model.eval()
    test_set = to_device(evaluation_set(task, length, settings), settings.resolved_device)
    count = test_set.ids.shape[1]
    generator = evaluation_generator(count)
    rows = max(1, _WEIGHTS // (settings.heads * count**2))
    sums = [np.zeros(0)] * settings.layers
    batches = test_set.ids[:_SEQUENCES].split(rows)
    for ids in batches:
        p = evaluation_positions(settings, ids, generator)
        model.require_defined(p)
        for layer, weights in enumerate(model.weights(ids, test_set.at, p)):
            sums[layer] = weights.double().sum(0).cpu().numpy() + (sums[layer] if sums[layer].size else 0.0)
    sequences = sum(len(ids) for ids in batches)
    queries, causal = _queries(settings.layers, count, test_set.at), settings.direction == "decoder"
    return np.stack([_by_distance(total / sequences, at, causal) for total, at in zip(sums, queries, strict=True)])


def uniform_attention(tokens: int, at: int | None, causal: bool) -> Float[np.ndarray, " distances"]:
    """Compute the weights by distance of uniform attention."""
    weights = np.tril(np.ones((tokens, tokens))) if causal else np.ones((tokens, tokens))
    weights /= weights.sum(axis=1, keepdims=True)
    uniform: np.ndarray = _by_distance(weights[None] if at is None else weights[None, at : at + 1], at, causal)[0]
    return uniform


def _logits(model: ComparedModel, test_set: Batch, shift: int, settings: Settings) -> Tensor:
    model.eval()
    rows = max(1, _CHUNK_TOKENS // test_set.ids.shape[1])
    generator = evaluation_generator(test_set.ids.shape[1])
    parts = []
    with autocast(settings.resolved_device):
        for ids in test_set.ids.split(rows):
            p = evaluation_positions(settings, ids, generator, shift)
            model.require_defined(p)
            parts.append(model(ids, test_set.at, p))
    logits = torch.cat(parts).float()
    if not logits.isfinite().all():
        raise diverged("the logits are not finite", settings)
    return logits


def _score(logits: Tensor, test_set: Batch, task: Task) -> Scores:
    if task.measure == "accuracy":
        each = (logits.argmax(-1) == test_set.targets).double()  # of float32 means equal counts differ
    else:
        each = torch.nn.functional.cross_entropy(logits.flatten(0, -2), test_set.targets.flatten(), reduction="none")
        each = each.view_as(test_set.targets)
    by_group: dict[str, float | None] = {ALL: each.mean().item()}
    for number, name in enumerate(task.groups):
        chosen = each[test_set.groups == number]
        by_group[name] = chosen.mean().item() if chosen.numel() else None
    return by_group


def _statistics(values: Tensor) -> Statistics:
    std = values.std(correction=0).item()
    return Statistics(values.mean().item(), std, values.min().item(), values.max().item())


def _token_cosines(table: Float[Tensor, "tokens dim"]) -> TokenCosines:
    """Compute the cosines of the expressions' vocabulary: digits 2-11, operators 12-16, brackets and comma 17-19."""
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


def _queries(layers: int, tokens: int, at: int | None) -> list[int | None]:
    """Return the only query of each layer; None is all tokens."""
    return [*[None] * (layers - 1), None if at is None else range(tokens)[at]]


def _by_distance(
    weights: Float[np.ndarray, "heads queries tokens"], at: int | None, causal: bool
) -> Float[np.ndarray, "heads distances"]:
    """Average along the diagonals; NaN at a distance that no query has."""
    heads, _, tokens = weights.shape
    distances = range(0 if causal else 1 - tokens, tokens)
    if at is not None:  # a single query: each distance has one weight
        curves = np.full((heads, len(distances)), np.nan)
        for column, distance in enumerate(distances):
            if 0 <= at - distance < tokens:
                curves[:, column] = weights[:, 0, at - distance]
        return curves
    diagonals = [np.diagonal(weights, -distance, 1, 2).mean(axis=1) for distance in distances]
    return np.stack(diagonals, axis=1)
