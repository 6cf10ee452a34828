"""Analogies, by both rules, with and without the words of the question."""

import numpy as np
import pytest

from whatwhere.analysis.analogies import RULES, Rule, analogy


def brute(table: np.ndarray, a: int, b: int, c: int, rule: Rule) -> np.ndarray:
    """Score every row by the definition of Levy and Goldberg, word by word."""
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    if rule == "add":
        target = units[b] - units[a] + units[c]
        return units @ target / np.linalg.norm(target)
    shifted = (1 + units @ units.T) / 2
    return np.array([shifted[x, b] * shifted[x, c] / (shifted[x, a] + 0.001) for x in range(len(table))])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("centered", [False, True])
def test_answers_are_those_of_the_definition(rule: Rule, centered: bool) -> None:
    g = np.random.default_rng(0)
    table = g.standard_normal((300, 16)) + 0.4
    seen = table - table.mean(0) if centered else table
    for question in g.integers(0, 300, (10, 3)).tolist():
        result = analogy(table, *question, k=4, rule=rule, centered=centered)
        expected = brute(seen, *question, rule)
        assert result.with_inputs.ids[0].tolist() == np.argsort(-expected)[:4].tolist()
        assert np.allclose(result.with_inputs.scores[0], -np.sort(-expected)[:4], atol=1e-9)
        expected[question] = -np.inf
        assert result.without_inputs.ids[0].tolist() == np.argsort(-expected)[:4].tolist()


def test_the_nearest_row_is_often_a_word_of_the_question() -> None:
    man, woman, king, queen = [1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.0, 0.0, 1.0], [0.0, 0.3, 1.0]
    result = analogy(np.array([man, woman, king, queen]), 0, 1, 2, k=1)
    assert result.with_inputs.ids.tolist() == [[2]]
    assert result.without_inputs.ids.tolist() == [[3]]
