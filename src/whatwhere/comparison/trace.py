"""The trace of a run: its token table at a few dozen steps, and how far its heads looked once it was trained."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from whatwhere.comparison import stands
from whatwhere.comparison.measure import exam_of
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Task
from whatwhere.comparison.train import loss_every, moved
from whatwhere.errors import PositionError

STEPS, TABLES = "steps", "tables"
ATTENTION, EVEN = "attention@", "even@"
"""Names in the file of a trace; `attention@32` was measured at length 32, `even@32` is what even attention gives."""

LARGEST = 1 << 21
"""Numbers of all tables of a trace, 8 MB: of larger tables none is kept."""

_SEQUENCES = 100
_WEIGHTS = 1 << 22


class Recorder:
    """Keep the token table before training, and after every second step whose loss is kept.

    About 25 tables, at most 52, which take a thousandth of the time of the steps between them.

    Args:
        table: the token table, not trained yet.
        steps: of the training.
    """

    def __init__(self, table: Tensor, steps: int) -> None:
        every = 2 * loss_every(steps)
        self._at = [0, *range(every, steps, every), steps]
        self._kept = table.numel() * len(self._at) <= LARGEST
        self._tables: list[np.ndarray] = []
        self.see(0, table)

    def see(self, step: int, table: Tensor) -> None:
        """Keep the table, if this is a step for it."""
        if self._kept and step == self._at[len(self._tables)]:
            self._tables.append(table.detach().float().cpu().numpy().copy())

    def tensors(self) -> dict[str, np.ndarray]:
        """Give the steps and the tables after them; nothing where the table is too large."""
        if not self._kept:
            return {}
        return {STEPS: np.array(self._at[: len(self._tables)], np.int64), TABLES: np.stack(self._tables)}


def attention(model: Transformer, task: Task, settings: Settings) -> dict[str, np.ndarray]:
    """Measure how far heads look at the longest trained length, and at the longest tested one that has rows."""
    found: dict[str, np.ndarray] = {}
    for length in sorted({max(task.trained), max((*task.tested_in_length, *settings.lengths))}):
        try:
            curves = attention_by_distance(model, task, length, settings)
        except PositionError:
            continue
        at, causal = exam_of(task, length, settings).at, settings.direction == "decoder"
        asked = _asked(settings.layers, task.token_count(length), at)
        even = [even_attention(task.token_count(length), place, causal) for place in asked]
        found |= {
            f"{ATTENTION}{length}": curves.astype(np.float32),
            f"{EVEN}{length}": np.stack(even).astype(np.float32),
        }
    return found


@torch.no_grad()
def attention_by_distance(
    model: Transformer, task: Task, length: int, settings: Settings
) -> Float[np.ndarray, "layers heads distances"]:
    """Average the weight that a token d places back is given, over the queries that have one, and 100 sequences.

        weight(h, d) = mean of a(h, i, i - d) over i >= d        d = i - j, counted in tokens

    Places are counted, wherever the tokens stand. An encoder's d goes from 1 - tokens to tokens - 1, a decoder's from
    0. In the last layer those ask that the task asks: of one query, every distance has one weight.
    """
    model.eval()
    exam = moved(exam_of(task, length, settings), settings.place)
    count = exam.ids.shape[1]
    placing = stands.exam_generator(count)
    rows = max(1, _WEIGHTS // (settings.heads * count**2))
    sums = [np.zeros(0)] * settings.layers
    batches = exam.ids[:_SEQUENCES].split(rows)
    for ids in batches:
        for layer, weights in enumerate(model.weights(ids, exam.at, stands.in_exam(settings, ids, placing))):
            sums[layer] = weights.double().sum(0).cpu().numpy() + (sums[layer] if sums[layer].size else 0.0)
    seen = sum(len(ids) for ids in batches)
    asked, causal = _asked(settings.layers, count, exam.at), settings.direction == "decoder"
    return np.stack([_by_distance(total / seen, at, causal) for total, at in zip(sums, asked, strict=True)])


def even_attention(tokens: int, at: int | None, causal: bool) -> Float[np.ndarray, " distances"]:
    """Give what attention to all tokens alike would give.

    >>> even_attention(3, None, causal=True)
    array([0.61111111, 0.41666667, 0.33333333])
    """
    weights = np.tril(np.ones((tokens, tokens))) if causal else np.ones((tokens, tokens))
    weights /= weights.sum(axis=1, keepdims=True)
    found: np.ndarray = _by_distance(weights[None] if at is None else weights[None, at : at + 1], at, causal)[0]
    return found


def _asked(layers: int, tokens: int, at: int | None) -> list[int | None]:
    """Give the one place that each layer is asked at; None is all."""
    return [*[None] * (layers - 1), None if at is None else range(tokens)[at]]


def _by_distance(
    weights: Float[np.ndarray, "heads asked tokens"], at: int | None, causal: bool
) -> Float[np.ndarray, "heads distances"]:
    """Average along the diagonals; NaN at a distance that no query has."""
    heads, _, tokens = weights.shape
    distances = range(0 if causal else 1 - tokens, tokens)
    if at is not None:  # one query, at this place
        found = np.full((heads, len(distances)), np.nan)
        for column, distance in enumerate(distances):
            if 0 <= at - distance < tokens:
                found[:, column] = weights[:, 0, at - distance]
        return found
    diagonals = [np.diagonal(weights, -distance, 1, 2).mean(axis=1) for distance in distances]
    return np.stack(diagonals, axis=1)
