"""Analogies in a token table: a is to b as c is to what?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.neighbors import Nearest, Search, as_array, row_ids
from whatwhere.errors import SettingError, ShapeError

Rule = Literal["add", "multiply"]
RULES: tuple[Rule, ...] = ("add", "multiply")

_QUERIES = 512
_BLOCK = 8192
_EPSILON = 1e-3
"""Levy and Goldberg's, against division by zero."""


@dataclass(frozen=True, eq=False)
class Analogy:
    """Hold the answers to one question, twice: from all other rows, and from all rows.

    Args:
        without_inputs: the three words of the question are no answers; this is what benchmarks score.
        with_inputs: they are, and often win: the answer is then one of the words of the question.
    """

    without_inputs: Nearest
    with_inputs: Nearest


def analogy(weight: Any, a: int, b: int, c: int, k: int = 10, *, rule: Rule = "add", centered: bool = False) -> Analogy:
    """Complete `a is to b as c is to ...` with the k nearest rows.

        add         argmax_x  cos(x, b/|b| - a/|a| + c/|c|)                    3CosAdd, Mikolov et al. 2013
        multiply    argmax_x  s(x, b) s(x, c) / (s(x, a) + 0.001)              3CosMul, Levy and Goldberg 2014
                              with s = (cos + 1) / 2

    https://aclanthology.org/N13-1090, https://aclanthology.org/W14-1618.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        a, b, c: ids.
        centered: take the mean row away first.

    >>> table = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    >>> analogy(table, 0, 1, 2, k=1).without_inputs.ids
    array([[3]])
    """
    table = as_array(weight)
    question = row_ids([a, b, c], len(table))[None]
    search = Search(table, "cosine", centered)
    return Analogy(answers(search, question, k, rule), answers(search, question, k, rule, inputs=True))


def answers(
    search: Search,
    questions: Int64[np.ndarray, "questions 3"],
    k: int = 1,
    rule: Rule = "add",
    inputs: bool = False,
) -> Nearest:
    """Answer many questions (a, b, c) at once.

    Args:
        search: of the table, by cosine.
        inputs: let the words of a question be answers to it.
    """
    if rule not in RULES:
        raise SettingError(f"analogies got rule={rule!r}, but know only: {', '.join(RULES)}.")
    if search.metric != "cosine":
        raise SettingError(f"analogies are found by cosine, but this search goes by {search.metric}.")
    if questions.ndim != 2 or questions.shape[1] != 3:
        raise ShapeError(f"questions have shape {questions.shape}, but need (questions, 3): the ids of a, b and c.")
    row_ids(questions, len(search.table))
    units = _units(search, questions)  # (questions, 3, dim)
    without = None if inputs else questions.tolist()
    if rule == "add":
        a, b, c = units.swapaxes(0, 1)
        # The search takes the mean away from what it is asked: it is put back, for these are centered already.
        return search.nearest(b - a + c + search.mean, k, without)
    return _by_product(search, units, k, without)


def _units(search: Search, questions: np.ndarray) -> Float[np.ndarray, "questions 3 dim"]:
    rows = search.table[questions].astype(np.float64) - search.mean
    lengths = search.lengths[questions][..., None]
    return np.where(lengths > 0, rows / np.where(lengths > 0, lengths, 1.0), 0.0)


def _by_product(search: Search, units: np.ndarray, k: int, without: Sequence[Sequence[int]] | None) -> Nearest:
    """Score every row in float64: a product of three cosines has no bound that would save most of the work."""
    table, lengths = search.table, search.lengths
    k = min(k, len(table) - (3 if without is not None else 0))
    ids, scores = np.empty((len(units), k), np.int64), np.empty((len(units), k))
    for first in range(0, len(units), _QUERIES):
        part = units[first : first + _QUERIES]
        product = np.empty((len(part), len(table)))
        for top in range(0, len(table), _BLOCK):
            rows = table[top : top + _BLOCK].astype(np.float64) - search.mean
            size = lengths[top : top + _BLOCK]
            rows = np.where(size[:, None] > 0, rows / np.where(size > 0, size, 1.0)[:, None], 0.0)
            a, b, c = ((1 + part[:, n] @ rows.T) / 2 for n in range(3))
            product[:, top : top + _BLOCK] = b * c / (a + _EPSILON)
        if without is not None:
            for row, left_out in enumerate(without[first : first + _QUERIES]):
                product[row, list(left_out)] = -np.inf
        best = np.argpartition(-product, min(k, product.shape[1] - 1), axis=1)[:, :k]
        found = np.take_along_axis(product, best, axis=1)
        order = np.lexsort((best, -found), axis=1)
        ids[first : first + _QUERIES] = np.take_along_axis(best, order, axis=1)
        scores[first : first + _QUERIES] = np.take_along_axis(found, order, axis=1)
    return Nearest(ids, scores)
