"""Nearest rows: exact against a full sort in float64, whatever the metric and the table."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from whatwhere.analysis import nearest_neighbors as module
from whatwhere.analysis.nearest_neighbors import (
    METRICS,
    RULES,
    Metric,
    Nearest,
    Rule,
    Search,
    analogy,
    neighbors,
    pair_scores,
    units,
    widened,
)


@cache
def tables() -> dict[str, np.ndarray]:
    g = np.random.default_rng(0)
    plain = g.standard_normal((300, 37)).astype(np.float32)
    spread = plain * 10.0 ** g.integers(-30, 30, (300, 1))
    twice = np.repeat(plain[:3], 100, axis=0)
    zeros = np.where(g.random((300, 1)) < 0.3, 0, plain)
    return {
        "drawn": plain,
        "far from 0": plain + np.float32(30),
        "small whole numbers": g.integers(-1, 2, (300, 5)).astype(np.float32),
        "each row a hundred times": twice,
        "all rows alike": np.ones((300, 33), np.float32),
        "zero rows": zeros.astype(np.float32),
        "only zero rows": np.zeros((300, 3), np.float32),
        "lengths of all sizes": spread.astype(np.float32),
        "huge": (plain * 1e37).astype(np.float32),
        "below the normal numbers": (plain * 1e-40).astype(np.float32),
        "one number a row": plain[:, :1].copy(),
        "one number stands out": np.concatenate([plain, np.full((300, 1), 500, np.float32)], axis=1),
        "two rows": plain[:2],
        "float64": plain.astype(np.float64) + 1e-9 * g.standard_normal((300, 37)),
        "float64, all one row in float32": plain[0] + 1e-9 * g.standard_normal((300, 37)),
        "float64, beyond float32": plain.astype(np.float64) * 1e140,
        "float64, below float32": plain.astype(np.float64) * 1e-140,
        "float64, with squares below float64": plain.astype(np.float64) * 1e-200,
        "float64, below the normal numbers": plain.astype(np.float64) * 1e-310,
        "one row far longer": np.concatenate([plain, plain[:1] * np.float32(1e6)]),
        "later rows always nearer": np.arange(1, 1001, dtype=np.float32)[:, None],
        "rows apart": np.concatenate([plain, plain], axis=1)[::-2, :37],
        "many numbers a row": g.standard_normal((130, 700)).astype(np.float32),
    }


def queries_of(table: np.ndarray) -> np.ndarray:
    """Return rows of the table, some between them, opposite, zero, and of very large and small norm."""
    g = np.random.default_rng(1)
    rows = table[g.integers(0, len(table), 9)].astype(np.float64)
    noise = g.standard_normal((4, table.shape[1])) * np.abs(rows).max()
    return np.concatenate([rows, (rows + rows[::-1])[:3], -rows[:2], noise, 1e-25 * noise, 1e8 * noise, 0 * rows[:1]])


@cache
def ranking(name: str, metric: Metric, centered: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Score every row in float64 for each query; return ids and scores, the best first, of equal ones the lowest id."""
    table = tables()[name]
    mean = Search(table, metric, True).mean if centered else None
    wide, queries = widened(table, mean), widened(queries_of(table), mean)
    rows, ranked = np.arange(len(table)), []
    for query in units(queries)[0] if metric == "cosine" else queries:
        exact = pair_scores(metric, np.broadcast_to(query, wide.shape), wide)
        order = np.lexsort((rows, -exact))
        ranked.append((order, exact[order]))
    return ranked


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("block", [192, pytest.param(4096, marks=pytest.mark.slow)])
@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", tables())
def test_answers_are_those_of_scoring_every_row(
    name: str, metric: Metric, centered: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_PRODUCTS", 1)
    table, g = tables()[name], np.random.default_rng(2)
    queries, ranked = queries_of(table), ranking(name, metric, centered)
    nothing: list[list[int]] = [[]] * len(queries)
    some = [g.integers(0, len(table), n % 7).tolist() for n in range(len(queries))]
    search = Search(table, metric, centered)
    require_first(search.nearest(queries, 5, some), ranked, some)
    monkeypatch.setattr(module, "_CANDIDATES", 40)  # so that blocks of queries are halved
    require_first(search.nearest(queries, 5, some), ranked, some)
    require_first(search.nearest(queries, len(table) + 1), ranked, nothing)


def require_first(result: Nearest, ranked: list[tuple[np.ndarray, np.ndarray]], without: list[list[int]]) -> None:
    for n, (ids, exact) in enumerate(ranked):
        allowed = ~np.isin(ids, without[n])
        assert result.ids[n].tolist() == ids[allowed][: result.ids.shape[1]].tolist()
        assert result.scores[n].tolist() == exact[allowed][: result.ids.shape[1]].tolist()  # to the bit


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", tables())
def test_no_float32_score_is_off_by_more_than_its_bound(name: str, metric: Metric, centered: bool) -> None:
    """Against the float64 scores, brought to the form that the bounds are of."""
    table = tables()[name]
    search = Search(table, metric, centered)
    mean = search.mean if centered else None
    rows, queries = widened(table, mean), widened(queries_of(table), mean)
    directions, norms = units(queries)
    middle, errors = search._bounds(directions.astype(np.float32), norms, slice(None))
    longest = units(rows)[1].max()
    for n, query in enumerate(directions if metric == "cosine" else queries):
        result = pair_scores(metric, np.broadcast_to(query, rows.shape), rows)
        with np.errstate(all="ignore"):
            if metric == "dot":
                result = result / norms[n] / longest
            if metric == "euclidean":
                largest = max(norms[n], longest)
                result = ((norms[n] / largest) * norms[n] / longest - (result / largest) * (result / longest)) / 2
        known = np.isfinite(result) & np.isfinite(errors[n])
        assert (np.abs(middle[n] - result)[known] <= np.broadcast_to(errors[n], result.shape)[known]).all()
    if name in ("drawn", "many numbers a row"):  # else the bounds would hold, and exclude nothing
        assert (errors[:-1] < 2e-3).all() or metric == "euclidean"


def test_scores_are_those_of_their_definitions() -> None:
    g = np.random.default_rng(3)
    table, query = g.standard_normal((50, 19)).astype(np.float32), g.standard_normal(19)
    inner = [math.fsum(float(a) * b for a, b in zip(row, query, strict=True)) for row in table]
    size = [math.sqrt(math.fsum(float(a) ** 2 for a in row)) for row in table]
    apart = [math.sqrt(math.fsum((float(a) - b) ** 2 for a, b in zip(row, query, strict=True))) for row in table]
    length = math.sqrt(math.fsum(query**2))
    wanted = {"cosine": [x / s / length for x, s in zip(inner, size, strict=True)], "dot": inner}
    wanted["euclidean"] = [-x for x in apart]
    for metric in METRICS:
        result = Search(table, metric).nearest(query[None], 50)
        assert np.allclose(result.scores[0], np.array(wanted[metric])[result.ids[0]], rtol=1e-14, atol=1e-15)
        assert (np.diff(result.scores[0]) <= 0).all()


@pytest.mark.usefixtures("our_own_checks")
def test_answers_do_not_depend_on_how_a_table_is_stored() -> None:
    table = tables()["small whole numbers"]
    wanted = Search(table).nearest(table[:5], 9)
    for other in (table.astype(np.int64), table.astype(np.float16), table.astype(">f4"), np.asfortranarray(table)):
        result = Search(other).nearest(table[:5], 9)
        assert np.array_equal(result.ids, wanted.ids)
        assert np.array_equal(result.scores, wanted.scores)


def test_excluded_rows_are_no_answer() -> None:
    table = np.eye(4, dtype=np.float32)
    search = Search(table)
    result = search.nearest(table[:2], k=4, without=[[0, 1], [3]])
    assert result.ids.shape == (2, 2)  # as many as every query has
    assert not {0, 1} & set(result.ids[0].tolist())
    assert 3 not in result.ids[1]
    assert search.nearest(table[:1], 3, without=[[0, 1, 2, 3]]).ids.shape == (1, 0)


def test_neighbors_accepts_tensors_and_excludes_the_row_itself() -> None:
    table = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    for weight in (table, table.bfloat16(), torch.nn.Parameter(table), table.numpy()):
        assert neighbors(weight, torch.tensor([0, 2]), k=1).ids.tolist() == [[1], [1]]


# Analogies, by both rules, with and without the words of the question


def brute(table: np.ndarray, a: int, b: int, c: int, rule: Rule) -> np.ndarray:
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
