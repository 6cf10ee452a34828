"""Word analogies, by 3CosAdd and 3CosMul."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64

from whatwhere.analysis.nearest_neighbors import Nearest, Search, as_array, row_ids, summed
from whatwhere.errors import SettingError

Rule = Literal["add", "multiply"]
RULES: tuple[Rule, ...] = ("add", "multiply")

_BLOCK = 8192
_EPSILON = 1e-3
"""Levy and Goldberg's, which prevents a division by zero."""
_TOLERANCE = 1e-6
"""Above the rounding error of the score, which is up to a million times that of a cosine."""


@dataclass(frozen=True, eq=False)
class Analogy:
    """The answers to one question, without its own three words as candidates, and with them."""

    without_inputs: Nearest
    with_inputs: Nearest


def analogy(weight: Any, a: int, b: int, c: int, k: int = 10, *, rule: Rule = "add", centered: bool = False) -> Analogy:
    """Return the k rows that best complete `a is to b as c is to ...`, with and without a, b and c.

        add         argmax_x  cos(x, b/|b| - a/|a| + c/|c|)                    3CosAdd, Mikolov et al. 2013
        multiply    argmax_x  s(x, b) s(x, c) / (s(x, a) + 0.001)              3CosMul, Levy and Goldberg 2014
                              with s = (cos + 1) / 2

    https://aclanthology.org/N13-1090, https://aclanthology.org/W14-1618.

    Args:
        weight: the table, (rows, dim), a tensor or an array.
        a, b, c: ids.
        k: number of answers.
        rule: `add` or `multiply`, see above.
        centered: subtract the mean row first.

    Raises:
        TokenError: If an id is not a row of the table.
        SettingError: If the rule is unknown.

    Examples:
        >>> table = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
        >>> analogy(table, 0, 1, 2, k=1).without_inputs.ids
        array([[3]])
    """
    search = Search(as_array(weight), "cosine", centered)
    return Analogy(answers(search, [a, b, c], k, rule), answers(search, [a, b, c], k, rule, inputs=True))


def answers(search: Search, question: Sequence[int], k: int, rule: Rule, inputs: bool = False) -> Nearest:
    """Return the k rows that best answer a question, as in `analogy`.

    Raises:
        SettingError: If the rule is unknown, or the search is not by cosine.
        TokenError: If an id is not a row of the table.
    """
    if rule not in RULES:
        raise SettingError(f"analogies got rule={rule!r}, but need one of: {', '.join(RULES)}.")
    if search.metric != "cosine":
        raise SettingError(f"analogies need a search by cosine, but this one is by {search.metric}.")
    units = search.unit_rows(row_ids(question, len(search.table)))  # (3, dim)
    if rule == "add":
        a, b, c = units
        # The search subtracts the mean from its queries, but these are centered already: add it first.
        return search.nearest((b - a + c)[None] + search.mean, k, None if inputs else [question])
    return _by_product(search, units, k, [] if inputs else question)


def _by_product(search: Search, units: np.ndarray, k: int, without: Sequence[int]) -> Nearest:
    """Return the best rows by 3CosMul, in float64.

    Rows whose scores equal the k-th best up to rounding are scored again, with one fixed order of summation.
    """
    k = min(k, len(search.table) - len(set(without)))
    if not k:
        return Nearest(np.empty((1, 0), np.int64), np.empty((1, 0)))
    product = np.empty(len(search.table))
    for first in range(0, len(product), _BLOCK):
        rows = search.unit_rows(np.arange(first, min(first + _BLOCK, len(product))))
        product[first : first + _BLOCK] = _combine(*(rows @ word for word in units))
    product[list(without)] = -np.inf
    near = np.flatnonzero(product >= np.partition(product, -k)[-k] - _TOLERANCE)
    rows = search.unit_rows(near)
    exact = _combine(*(summed(rows * word) for word in units))
    best = np.lexsort((near, -exact))[:k]
    return Nearest(near[best][None], exact[best][None])


def _combine(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Float64[np.ndarray, "*shape"]:
    a, b, c = ((1 + cosine) / 2 for cosine in (a, b, c))
    score: np.ndarray = b * c / (a + _EPSILON)
    return score
