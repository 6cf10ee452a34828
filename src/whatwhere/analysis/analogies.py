"""Analogies in a token table: a is to b as c is to what?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64, Int64

from whatwhere.analysis.neighbors import Nearest, Search, as_array, row_ids
from whatwhere.errors import SettingError, ShapeError
from whatwhere.kernels.exact import ratio, summed, widened

Rule = Literal["add", "multiply"]
RULES: tuple[Rule, ...] = ("add", "multiply")

_QUERIES = 1024
_PRODUCTS = 1 << 24
"""Held at a time, in float64."""
_BLOCK = 8192
_EPSILON = 1e-3
"""Levy and Goldberg's, against division by zero."""
_CLOSE = 1e-6
"""More than rounding makes of such a product: the cosines' errors, times a thousand twice."""


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
    step = _QUERIES if rule == "add" else max(1, min(_QUERIES, _PRODUCTS // len(search.table)))
    starts = range(0, max(1, len(questions)), step)
    parts = [_answered(search, questions[first : first + step], k, rule, inputs) for first in starts]
    return Nearest(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))


def _answered(search: Search, questions: np.ndarray, k: int, rule: Rule, inputs: bool) -> Nearest:
    words, places = np.unique(questions, return_inverse=True)
    units = _units(search, words)[places.reshape(questions.shape)]  # (questions, 3, dim)
    if rule == "add":
        a, b, c = units.swapaxes(0, 1)
        # The search takes the mean away from what it is asked: it is put back, for these are centered already.
        return search.nearest(b - a + c + search.mean, k, None if inputs else questions)
    return _by_product(search, units, k, None if inputs else questions.tolist())


def _units(search: Search, ids: Int64[np.ndarray, " some"]) -> Float[np.ndarray, "some dim"]:
    return ratio(widened(search.table[ids], search.mean), search.lengths[ids][:, None])


def _by_product(search: Search, units: np.ndarray, k: int, without: Sequence[Sequence[int]] | None) -> Nearest:
    """Score every row in float64, for a product of three cosines has no bound that would save most of the work.

    What is as good as the best, but for rounding, is scored again, in an order of sums that is the same for all rows.
    """
    k = min(k, len(search.table) - max((len(set(ids)) for ids in without or ()), default=0))
    ids, scores = np.empty((len(units), k), np.int64), np.empty((len(units), k))
    if not k:
        return Nearest(ids, scores)
    product = _products(search, units)
    for n, row in enumerate(product):
        if without is not None:
            row[list(without[n])] = -np.inf
        near = np.flatnonzero(row >= np.partition(row, -k)[-k] - _CLOSE)
        rows = _units(search, near)
        found = _joined(*(summed(rows * word) for word in units[n]))
        best = np.lexsort((near, -found))[:k]
        ids[n], scores[n] = near[best], found[best]
    return Nearest(ids, scores)


def _products(search: Search, units: np.ndarray) -> Float64[np.ndarray, "questions rows"]:
    found = np.empty((len(units), len(search.table)))
    for first in range(0, len(search.table), _BLOCK):
        part = np.arange(first, min(first + _BLOCK, len(search.table)))
        rows = _units(search, part)
        found[:, part[0] : part[-1] + 1] = _joined(*(units[:, n] @ rows.T for n in range(3)))
    return found


def _joined(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Float64[np.ndarray, "*shape"]:
    a, b, c = ((1 + cosine) / 2 for cosine in (a, b, c))
    joined: np.ndarray = b * c / (a + _EPSILON)
    return joined
