"""Analogies in a token table: a is to b as c is to what?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Int64

from whatwhere.analysis.exact_scores import summed
from whatwhere.analysis.nearest_neighbors import Nearest, Search, as_array, row_ids
from whatwhere.errors import SettingError, ShapeError

Rule = Literal["add", "multiply"]
RULES: tuple[Rule, ...] = ("add", "multiply")

_QUERIES = 1024
_PRODUCTS = 1 << 24
"""Cosines at a time, in float64."""
_BLOCK = 8192
_EPSILON = 1e-3
"""Of Levy and Goldberg, against division by zero."""
_CLOSE = 1e-6
"""Above the rounding error of such a quotient: that of the cosines, times a thousand twice."""


@dataclass(frozen=True, eq=False)
class Analogy:
    """The answers to one question, without and with its own words as candidates.

    Args:
        without_inputs: the three words of the question are excluded, as in benchmarks.
        with_inputs: they are candidates, and often the nearest.
    """

    without_inputs: Nearest
    with_inputs: Nearest


def analogy(weight: Any, a: int, b: int, c: int, k: int = 10, *, rule: Rule = "add", centered: bool = False) -> Analogy:
    """Return the k rows that best complete `a is to b as c is to ...`.

        add         argmax_x  cos(x, b/|b| - a/|a| + c/|c|)                    3CosAdd, Mikolov et al. 2013
        multiply    argmax_x  s(x, b) s(x, c) / (s(x, a) + 0.001)              3CosMul, Levy and Goldberg 2014
                              with s = (cos + 1) / 2

    https://aclanthology.org/N13-1090, https://aclanthology.org/W14-1618.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        a, b, c: ids.
        k: how many answers.
        rule: add or multiply.
        centered: subtract the mean row first.

    Raises:
        TokenError: an id is no row of the table.
        SettingError: the rule is unknown.

    Examples:
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
    """Return the answers to many questions (a, b, c).

    Args:
        search: of the table, by cosine.
        questions: ids.
        k: how many answers.
        rule: add or multiply.
        inputs: whether the words of a question are candidates for its answer.

    Raises:
        SettingError: the rule is unknown, or the search is not by cosine.
        ShapeError: the questions are not (questions, 3).
        TokenError: an id is no row of the table.
    """
    if rule not in RULES:
        raise SettingError(f"analogies got rule={rule!r}, but need one of: {', '.join(RULES)}.")
    if search.metric != "cosine":
        raise SettingError(f"analogies need a search by cosine, but this one is by {search.metric}.")
    if questions.ndim != 2 or questions.shape[1] != 3:
        raise ShapeError(f"questions have shape {questions.shape}, but need (questions, 3): the ids of a, b and c.")
    row_ids(questions, len(search.table))
    step = _QUERIES if rule == "add" else max(1, min(_QUERIES, _PRODUCTS // len(search.table)))
    starts = range(0, max(1, len(questions)), step)
    parts = [_answer(search, questions[first : first + step], k, rule, inputs) for first in starts]
    return Nearest(np.concatenate([part.ids for part in parts]), np.concatenate([part.scores for part in parts]))


def _answer(search: Search, questions: np.ndarray, k: int, rule: Rule, inputs: bool) -> Nearest:
    words, inverse = np.unique(questions, return_inverse=True)
    units = search.unit_rows(words)[inverse.reshape(questions.shape)]  # (questions, 3, dim)
    if rule == "add":
        a, b, c = units.swapaxes(0, 1)
        # The search subtracts the mean from its queries: it is added first, for these are centered already.
        return search.nearest(b - a + c + search.mean, k, None if inputs else questions)
    return _by_product(search, units, k, None if inputs else questions.tolist())


def _by_product(search: Search, units: np.ndarray, k: int, without: Sequence[Sequence[int]] | None) -> Nearest:
    """Return the best rows by the quotient of three cosines, in float64.

    Rows whose scores equal the k-th best but for rounding are scored again, with one order of summation for all rows.
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
        rows = search.unit_rows(near)
        exact = _combine(*(summed(rows * word) for word in units[n]))
        best = np.lexsort((near, -exact))[:k]
        ids[n], scores[n] = near[best], exact[best]
    return Nearest(ids, scores)


def _products(search: Search, units: np.ndarray) -> Float64[np.ndarray, "questions rows"]:
    products = np.empty((len(units), len(search.table)))
    for first in range(0, len(search.table), _BLOCK):
        part = np.arange(first, min(first + _BLOCK, len(search.table)))
        rows = search.unit_rows(part)
        products[:, part[0] : part[-1] + 1] = _combine(*(units[:, n] @ rows.T for n in range(3)))
    return products


def _combine(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Float64[np.ndarray, "*shape"]:
    a, b, c = ((1 + cosine) / 2 for cosine in (a, b, c))
    score: np.ndarray = b * c / (a + _EPSILON)
    return score
