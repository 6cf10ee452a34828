"""Differences of two tables, against what was done to them."""

import numpy as np
import pytest

from whatwhere.analysis.table_difference import movement, overlap, token_keys


@pytest.fixture
def table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((300, 12)).astype(np.float32)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["[CLS]", "the", "##ing", "!"], ["[CLS]", "▁the", "ing", "▁!"]),
        (["Ġthe", "ing", "<|endoftext|>"], ["▁the", "ing", "<|endoftext|>"]),
        (["the", "play"], ["▁the", "▁play"]),
    ],
)
def test_tokens_match_across_word_markers(first: list[str], second: list[str]) -> None:
    one, other = token_keys(first, second)
    assert list(one) == list(other)
    assert len(set(one)) == len(first)


def test_tokens_of_the_same_marker_are_matched_literally() -> None:
    first = ["Ġthe", "the"]
    assert token_keys(first, ["Ġthe"])[0] is first


def test_rows_of_zeros_that_stay_have_not_moved() -> None:
    result = movement(np.zeros((3, 2)), np.zeros((3, 2)))
    assert result.cosine.tolist() == [1, 1, 1]
    assert np.isnan(result.norm_ratio).all()
    assert np.isnan(result.relative_error)


def test_overlap_by_brute_force(table: np.ndarray) -> None:
    other = table[:, :7] + np.float32(0.1)
    result = overlap(table, other, k=5, queries=40, seed=3)
    assert (result.k, len(result.rows)) == (5, 40)

    def nearest(rows: np.ndarray, row: int) -> set[int]:
        unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
        scores = unit @ unit[row]
        scores[row] = -2
        return set(np.argsort(-scores)[:5].tolist())

    right = [len(nearest(table, row) & nearest(other, row)) / 5 for row in result.rows.tolist()]
    assert result.kept.tolist() == right
    assert 0 < np.mean(right) < 1


def test_overlap_of_few_rows_and_by_distance(table: np.ndarray) -> None:
    assert overlap(table[:3], table[:3], k=50).k == 2
    line = np.array([[1.0, 0], [1, 0.1], [1, 0.2], [1, 5]])
    assert overlap(line, np.array([[0.0], [1.0], [1.9], [9.0]]), k=1, metric="euclidean").kept.tolist() == [1, 1, 1, 1]
