"""Nearest rows: exact against a full sort in float64, whatever the metric and the table."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from whatwhere.analysis import neighbors as module
from whatwhere.analysis.neighbors import METRICS, Search, neighbors
from whatwhere.errors import SettingError, ShapeError, TokenError


def sorted_scores(table: np.ndarray, queries: np.ndarray, metric: str, centered: bool) -> np.ndarray:
    """Score all rows in float64, by the definition."""
    rows, asked = table.astype(np.float64), queries.astype(np.float64)
    if centered:
        rows, asked = rows - table.astype(np.float64).mean(0), asked - table.astype(np.float64).mean(0)
    if metric == "euclidean":
        return -np.sqrt(((asked[:, None] - rows[None]) ** 2).sum(-1))
    inner = asked @ rows.T
    if metric == "dot":
        return inner
    sizes = np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(rows, axis=1)
    return np.divide(inner, sizes, out=np.zeros_like(inner), where=sizes > 0)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_the_nearest_are_those_of_a_full_sort(
    metric: module.Metric, centered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 64)
    monkeypatch.setattr(module, "_PRODUCTS", 1)
    monkeypatch.setattr(module, "_QUERIES", 7)
    g = np.random.default_rng(0)
    table = (g.standard_normal((700, 12)) + 0.5).astype(np.float32)
    table[3] = 0
    queries = table[:20] + 0.3 * g.standard_normal((20, 12)).astype(np.float32)
    expected = sorted_scores(table, queries, metric, centered)
    found = Search(table, metric, centered).nearest(queries, k=9)
    assert np.array_equal(found.ids, np.argsort(-expected, axis=1, kind="stable")[:, :9])
    assert np.allclose(found.scores, -np.sort(-expected, axis=1)[:, :9], rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_what_float32_cannot_tell_apart_is_told_in_float64(metric: module.Metric) -> None:
    g = np.random.default_rng(1)
    base = g.standard_normal(64)
    table = base + 1e-9 * g.standard_normal((500, 64))  # all one row, in float32
    expected = sorted_scores(table, base[None], metric, False)
    found = Search(table, metric).nearest(base[None], k=5)
    assert np.allclose(found.scores, -np.sort(-expected)[:, :5], rtol=0, atol=1e-15 * 64**2)


def test_rows_that_grow_nearer_all_the_way_down_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 50)
    monkeypatch.setattr(module, "_PRODUCTS", 1)
    table = np.arange(1, 1001, dtype=np.float32)[:, None]
    assert Search(table, "dot").nearest(np.ones((2, 1), np.float32), k=3).ids.tolist() == [[999, 998, 997]] * 2


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 50), st.sampled_from(METRICS), st.integers(0, 2**32 - 1))
def test_equal_scores_stand_in_the_order_of_their_ids(
    rows: int, dim: int, k: int, metric: module.Metric, seed: int
) -> None:
    g = np.random.default_rng(seed)
    table = g.integers(-1, 2, (rows, dim)).astype(np.float32)
    query = g.integers(-1, 2, (1, dim)).astype(np.float32)
    expected = sorted_scores(table, query, metric, False)[0]
    found = Search(table, metric).nearest(query, k)
    assert found.ids.shape == (1, min(k, rows))
    assert sorted(found.ids[0]) == sorted(set(found.ids[0]))
    assert np.allclose(found.scores[0], -np.sort(-expected)[:k], atol=1e-12)
    pairs = list(zip(-found.scores[0].round(9), found.ids[0], strict=True))
    assert pairs == sorted(pairs)


def test_what_is_left_out_is_no_answer() -> None:
    table = np.eye(4, dtype=np.float32)
    search = Search(table)
    found = search.nearest(table[:2], k=4, without=[[0, 1], [3]])
    assert found.ids.shape == (2, 2)  # as many as every query has
    assert not {0, 1} & set(found.ids[0].tolist())
    assert 3 not in found.ids[1]
    assert search.nearest(table[:1], 3, without=[[0, 1, 2, 3]]).ids.shape == (1, 0)


def test_neighbors_take_tensors_and_leave_the_row_itself_out() -> None:
    table = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    for weight in (table, table.bfloat16(), torch.nn.Parameter(table), table.numpy()):
        assert neighbors(weight, torch.tensor([0, 2]), k=1).ids.tolist() == [[1], [1]]


def test_zero_rows_are_near_to_nothing() -> None:
    table = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]], np.float32)
    assert Search(table).nearest(table[:1], 3).scores.tolist() == [[1.0, 0.0, -1.0]]


@pytest.mark.usefixtures("our_own_checks")
def test_wrong_input_is_refused() -> None:
    table = np.eye(3, dtype=np.float32)
    with pytest.raises(TokenError, match="id 3 is outside the table, which has 3 rows"):
        neighbors(table, 3)
    with pytest.raises(TokenError, match="whole numbers"):
        neighbors(table, 0.5)
    with pytest.raises(SettingError, match="k=0"):
        neighbors(table, 0, k=0)
    with pytest.raises(SettingError, match="knows only: cosine, dot, euclidean"):
        Search(table, "manhattan")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"queries have shape \(3,\)"):
        Search(table).nearest(table[0])
    with pytest.raises(ShapeError, match=r"shape \(rows, dim\)"):
        Search(table[0])
    broken = table.copy()
    broken[1, 1] = np.nan
    with pytest.raises(SettingError, match="row 1 of the table holds numbers that are not finite"):
        Search(broken)
    with pytest.raises(SettingError, match="a query holds numbers that are not finite"):
        Search(table).nearest(broken)
