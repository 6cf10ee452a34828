"""Analogies, by both rules, with and without the words of the question; files of them, scored."""

from pathlib import Path

import numpy as np
import pytest

from whatwhere.analysis.nearest_neighbors import Search
from whatwhere.analysis.word_benchmarks import (
    RULES,
    Rule,
    analogy,
    answers,
    is_analogies,
    score_analogies,
    score_similarity,
)
from whatwhere.errors import SettingError, ShapeError, TextError, TokenError


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


def test_files_of_analogies_are_scored(tmp_path: Path) -> None:
    table = np.array([[1.0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]])
    ids = {"man": 0, "woman": 1, "king": 2, "queen": 3, "odd": 4}
    file = tmp_path / "questions.txt"
    file.write_text(
        ": family\nman woman king queen\nMan Woman King Queen\nman woman king odd\n: rest\nman woman king tsar\n"
    )
    assert is_analogies(file)
    score = score_analogies(Search(table), ids, file)
    assert (score.total.questions, score.total.scored, score.total.correct) == (4, 3, 2)
    assert [(part.name, part.scored, part.accuracy) for part in score.sections] == [
        ("family", 3, 2 / 3),
        ("rest", 0, None),
    ]


def test_files_of_judgments_are_scored(tmp_path: Path) -> None:
    table = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.2]])
    ids = {"a": 0, "b": 1, "c": 2, "d": 3}
    cosines = {
        pair: float(np.dot(u, v) / np.linalg.norm(u) / np.linalg.norm(v))
        for pair, (u, v) in {"a b": table[[0, 1]], "a c": table[[0, 2]], "a d": table[[0, 3]]}.items()
    }
    in_order = [cosines["a b"], cosines["a c"], cosines["a d"]]
    assert in_order == sorted(in_order, reverse=True)
    for separator in ("\t", ",", " "):
        file = tmp_path / "pairs.txt"
        lines = [
            ("word1", "word2", "score") if separator == " " else ("Word 1", "Word 2", "Human (mean) of 13"),
            ("a", "b", "9.5"),
            ("A", "C", "4"),
            ("a", "d", "1"),
            ("a", "unknown", "3"),
        ]
        file.write_text("# judged\n" + "\n".join(separator.join(line) for line in lines) + "\n")
        assert not is_analogies(file)
        score = score_similarity(Search(table), ids, file)
        assert (score.pairs, score.scored) == (4, 3)
        assert score.spearman == pytest.approx(1.0)
        assert score.pearson == pytest.approx(np.corrcoef(in_order, [9.5, 4, 1])[0, 1])


def test_equal_judgments_share_their_rank(tmp_path: Path) -> None:
    scipy = pytest.importorskip("scipy.stats")
    g = np.random.default_rng(0)
    table, file = g.standard_normal((40, 5)), tmp_path / "pairs.txt"
    pairs, given = g.integers(0, 40, (60, 2)), g.integers(0, 5, 60)
    file.write_text("".join(f"{a} {b} {v}\n" for (a, b), v in zip(pairs, given, strict=True)))
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    expected = scipy.spearmanr((units[pairs[:, 0]] * units[pairs[:, 1]]).sum(1), given).statistic
    score = score_similarity(Search(table), {str(n): n for n in range(40)}, file)
    assert score.spearman == pytest.approx(expected)


def test_too_few_pairs_have_no_correlation(tmp_path: Path) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text("a b 1\na unknown 2\n")
    score = score_similarity(Search(np.eye(2)), {"a": 0, "b": 1}, file)
    assert (score.scored, score.spearman, score.pearson) == (1, None, None)


@pytest.mark.usefixtures("our_own_checks")
def test_wrong_input_is_refused(tmp_path: Path) -> None:
    table = np.eye(4)
    with pytest.raises(TokenError, match="id 9 is outside"):
        analogy(table, 0, 1, 9)
    with pytest.raises(SettingError, match="need one of: add, multiply"):
        analogy(table, 0, 1, 2, rule="divide")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="the ids of a, b and c"):
        answers(Search(table), np.zeros((2, 2), np.int64))
    with pytest.raises(SettingError, match="search by cosine"):
        answers(Search(table, "dot"), np.zeros((1, 3), np.int64))
    file = tmp_path / "questions.txt"
    file.write_text(": family\na b c\n")
    with pytest.raises(TextError, match=r"line 2 of questions\.txt has 3 words"):
        score_analogies(Search(table), {}, file)
    file.write_text("")
    with pytest.raises(TextError, match="holds no analogies"):
        score_analogies(Search(table), {}, file)
    with pytest.raises(TextError, match="holds no judged pairs"):
        score_similarity(Search(table), {}, file)
    file.write_text("a b 1\na b nothing\n")
    with pytest.raises(TextError, match=r"line 2 of questions\.txt has no number"):
        score_similarity(Search(table), {}, file)
    file.write_bytes(b"\xff\xfe a b 1")
    with pytest.raises(TextError, match="is not UTF-8"):
        score_similarity(Search(table), {}, file)
