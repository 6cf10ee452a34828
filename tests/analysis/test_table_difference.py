"""Differences of two tables, against what was done to them."""

import numpy as np
import pytest

from whatwhere.analysis.table_difference import align, movement, overlap, token_keys


@pytest.fixture
def table() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((300, 12)).astype(np.float32)


def test_rows_of_one_key_are_matched_once_and_by_the_first() -> None:
    found = align(["a", "b", "", "c", "b", ""], ["", "c", "d", "b", "d"])
    assert (found.first.tolist(), found.second.tolist()) == ([1, 3], [3, 1])
    assert (found.removed.tolist(), found.new.tolist()) == ([0], [2])


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


def test_movement_is_what_was_done(table: np.ndarray) -> None:
    other = table.copy()
    other[5] *= 3
    other[6] = -table[6]
    other[7] = 0
    result = movement(table, other)
    typical = np.median(np.linalg.norm(table.astype(np.float64), axis=1))
    length = np.linalg.norm(table.astype(np.float64), axis=1)
    assert np.flatnonzero(~result.equal).tolist() == [5, 6, 7]
    assert result.cosine[[4, 5, 6, 7]] == pytest.approx([1, 1, -1, np.nan], nan_ok=True)
    assert result.norm_ratio[[4, 5, 6, 7]] == pytest.approx([1, 3, 1, 0])
    assert result.distance[[4, 5, 6, 7]] == pytest.approx(np.array([0, 2, 2, 1]) * length[[4, 5, 6, 7]] / typical)
    wrong = (table - other).astype(np.float64)
    assert result.relative_error == pytest.approx(np.linalg.norm(wrong) / np.linalg.norm(table), rel=1e-6)


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
