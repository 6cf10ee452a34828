"""The trace of a run: its token table at a few dozen steps, and attention by distance once it is trained."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.comparison import run_positions
from whatwhere.comparison.measure import evaluation_set
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Task
from whatwhere.comparison.train import loss_every, to_device
from whatwhere.errors import PositionError

STEPS, TABLES = "steps", "tables"
ATTENTION, UNIFORM = "attention@", "uniform@"
"""Names in the file of a trace: `attention@32` is measured at length 32, `uniform@32` is uniform attention there."""

LARGEST = 1 << 21
"""Most numbers of all tables of a trace, 8 MB: larger tables are not recorded."""

_SEQUENCES = 100
_WEIGHTS = 1 << 22


class Recorder:
    """Record the token table before training, and after every second step whose loss is recorded.

    About 25 tables, at most 52, which take a thousandth of the time of the steps between them.

    Args:
        table: the token table before training.
        steps: of the training.
    """

    def __init__(self, table: Tensor, steps: int) -> None:
        every = 2 * loss_every(steps)
        self._at = [0, *range(every, steps, every), steps]
        self._records = table.numel() * len(self._at) <= LARGEST
        self._tables: list[np.ndarray] = []
        self.record(0, table)

    def record(self, step: int, table: Tensor) -> None:
        """Record the table, if this is one of the steps to record."""
        if self._records and step == self._at[len(self._tables)]:
            self._tables.append(table.detach().float().cpu().numpy().copy())

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the steps and the tables after them; nothing where the table is too large."""
        if not self._records:
            return {}
        return {STEPS: np.array(self._at[: len(self._tables)], np.int64), TABLES: np.stack(self._tables)}


def attention(model: Transformer, task: Task, settings: Settings) -> dict[str, np.ndarray]:
    """Measure attention by distance at the longest trained length, and at the longest tested one.

    Args:
        model: trained.
        task: which has the test sets.
        settings: of the comparison.

    Returns:
        Tensors by name; a length for which the scheme has no rows is left out.
    """
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
    """Return the mean attention weight of the key d tokens before the query, over queries and 100 sequences.

        weight(h, d) = mean of a(h, i, i - d) over i >= d        d = i - j, counted in tokens

    Distances count tokens, whatever their positions. An encoder's d goes from 1 - tokens to tokens - 1, a decoder's
    from 0. In the last layer only the query of the target counts, where the task has one target for each sequence.

    Args:
        model: trained.
        task: which has the test set.
        length: in the task's unit.
        settings: of the comparison.

    Raises:
        PositionError: the scheme has no row for a position.
    """
    model.eval()
    test_set = to_device(evaluation_set(task, length, settings), settings.resolved_device)
    count = test_set.ids.shape[1]
    generator = run_positions.evaluation_generator(count)
    rows = max(1, _WEIGHTS // (settings.heads * count**2))
    sums = [np.zeros(0)] * settings.layers
    batches = test_set.ids[:_SEQUENCES].split(rows)
    for ids in batches:
        p = run_positions.in_test(settings, ids, generator)
        for layer, weights in enumerate(model.weights(ids, test_set.at, p)):
            sums[layer] = weights.double().sum(0).cpu().numpy() + (sums[layer] if sums[layer].size else 0.0)
    sequences = sum(len(ids) for ids in batches)
    queries, causal = _queries(settings.layers, count, test_set.at), settings.direction == "decoder"
    return np.stack([_by_distance(total / sequences, at, causal) for total, at in zip(sums, queries, strict=True)])


def uniform_attention(tokens: int, at: int | None, causal: bool) -> Float[np.ndarray, " distances"]:
    """Return the weights by distance of uniform attention.

    Args:
        tokens: of a sequence.
        at: the only query; None averages over all.
        causal: no token attends to later ones.

    Examples:
        >>> uniform_attention(3, None, causal=True)
        array([0.61111111, 0.41666667, 0.33333333])
    """
    weights = np.tril(np.ones((tokens, tokens))) if causal else np.ones((tokens, tokens))
    weights /= weights.sum(axis=1, keepdims=True)
    uniform: np.ndarray = _by_distance(weights[None] if at is None else weights[None, at : at + 1], at, causal)[0]
    return uniform


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
