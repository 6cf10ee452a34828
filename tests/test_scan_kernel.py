"""The kernels of a search for nearest rows: answers to the bit those of the plain twin, and of scoring every row."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.analysis import neighbors as module
from whatwhere.analysis.neighbors import METRICS, Metric, Nearest, Search
from whatwhere.kernels import bounds, exact, library, scan, selection

compiled = pytest.mark.skipif(library.library() is None, reason="no kernels were compiled, or plain ones are asked for")


@pytest.fixture(params=["plain", *library.LEVELS])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The plain twin, and every level that this processor can do, in turn."""
    if request.param == "plain":
        with ww.plain_kernels():
            yield request.param
        return
    if library.library() is None:
        pytest.skip("no kernels were compiled, or plain ones are asked for")
    loaded = library.Library(library.FILE, request.param)
    if loaded.level != request.param:
        pytest.skip(f"this processor cannot do {request.param}")
    monkeypatch.setattr(library, "library", lambda: loaded)
    scan.kernel.cache_clear()
    yield request.param
    scan.kernel.cache_clear()


@cache
def tables() -> dict[str, np.ndarray]:
    """Tables that searches have gone wrong on, or might."""
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
        "rows apart": np.concatenate([plain, plain], axis=1)[::-2, :37],
        "many numbers a row": g.standard_normal((130, 700)).astype(np.float32),
    }


def asked(table: np.ndarray) -> np.ndarray:
    """Give rows of the table, between them, opposite, none, and very long and short ones."""
    g = np.random.default_rng(1)
    rows = table[g.integers(0, len(table), 9)].astype(np.float64)
    drawn = g.standard_normal((4, table.shape[1])) * np.abs(rows).max()
    return np.concatenate([rows, (rows + rows[::-1])[:3], -rows[:2], drawn, 1e-25 * drawn, 1e8 * drawn, 0 * rows[:1]])


@cache
def ranking(name: str, metric: Metric, centered: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """Give for each query the ids of all rows and their exact scores, the best first, of equal ones the lowest id."""
    numbers = tables()[name]
    mean = Search(numbers, metric, True).mean if centered else None
    table = exact.Table(numbers, mean, metric, exact.lengths(numbers, mean))
    wide = exact.widened(asked(numbers), mean)
    rows, ranked = np.arange(len(numbers)), []
    for query in exact.units(wide)[0] if metric == "cosine" else wide:
        scores = table.scores(query, rows)
        order = np.lexsort((rows, -scores))
        ranked.append((order, scores[order]))
    return ranked


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", tables())
def test_answers_are_those_of_scoring_every_row(
    name: str, metric: Metric, centered: bool, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 192)
    monkeypatch.setattr(module, "_PRODUCTS", 1)
    monkeypatch.setattr(scan, "_PRODUCTS", 1)
    monkeypatch.setattr(scan, "_ROUGH", np.inf)
    table, g = tables()[name], np.random.default_rng(2)
    queries, ranked = asked(table), ranking(name, metric, centered)
    search = Search(table, metric, centered)
    assert (search._copy is None) == (level == "plain")
    nothing: list[list[int]] = [[]] * len(queries)
    some = [g.integers(0, len(table), n % 7).tolist() for n in range(len(queries))]
    ways = (
        ("sixteen", 2048, some),
        ("eight", 4, nothing),
        ("float32", 4, some),
        ("sixteen", 4, nothing),
        ("eight", 2048, some),
    )
    for way, room, without in ways[: 1 if level == "plain" else None]:
        monkeypatch.setattr(scan, "_FEW", 0 if way == "eight" else 99)
        monkeypatch.setattr(scan.Copy, "suits", lambda self, queries, way=way: way != "float32")
        monkeypatch.setattr(selection, "_ROOM", room)
        require_first(search.nearest(queries, 5, without), ranked, without)
    require_first(search.nearest(queries, len(table) + 1), ranked, nothing)


def require_first(found: Nearest, ranked: list[tuple[np.ndarray, np.ndarray]], without: list[list[int]]) -> None:
    for n, (ids, scores) in enumerate(ranked):
        allowed = ~np.isin(ids, without[n])
        assert found.ids[n].tolist() == ids[allowed][: found.ids.shape[1]].tolist()
        assert found.scores[n].tolist() == scores[allowed][: found.ids.shape[1]].tolist()  # to the bit


def test_scores_are_those_of_their_definitions(level: str) -> None:
    """One row at a time, by sums that are rounded once."""
    g = np.random.default_rng(3)
    table, query = g.standard_normal((50, 19)).astype(np.float32), g.standard_normal(19)
    inner = [math.fsum(float(a) * b for a, b in zip(row, query, strict=True)) for row in table]
    size = [math.sqrt(math.fsum(float(a) ** 2 for a in row)) for row in table]
    apart = [math.sqrt(math.fsum((float(a) - b) ** 2 for a, b in zip(row, query, strict=True))) for row in table]
    length = math.sqrt(math.fsum(query**2))
    wanted = {"cosine": [x / s / length for x, s in zip(inner, size, strict=True)], "dot": inner}
    wanted["euclidean"] = [-x for x in apart]
    for metric in METRICS:
        found = Search(table, metric).nearest(query[None], 50)
        assert np.allclose(found.scores[0], np.array(wanted[metric])[found.ids[0]], rtol=1e-14, atol=1e-15)
        assert (np.diff(found.scores[0]) <= 0).all()


@compiled
@pytest.mark.parametrize("name", tables())
def test_no_product_is_off_by_more_than_is_told(name: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if level == "plain":
        pytest.skip("the plain twin makes no copy")
    table = tables()[name]
    monkeypatch.setattr(scan, "_ROUGH", np.inf)
    for mean, few in product((None, table.mean(0, dtype=np.float64)), (0, 99)):  # in eight bits, and in sixteen
        monkeypatch.setattr(scan, "_FEW", few)
        copy = scan.Copy(table, mean)
        assert np.array_equal(copy.lengths, exact.lengths(table, mean))
        rows = exact.ratio(exact.widened(table, mean), copy.lengths[:, None])
        units, _ = exact.units(asked(table))
        errors, products = copy.products(units)
        found = np.concatenate([some.copy() for _, some in products], axis=1)
        assert (np.abs(found - units @ rows.T) <= errors + 16 * 2.0**-24).all()  # and roundings
        if name in ("drawn", "many numbers a row"):
            assert errors.max() < 0.03  # else the bounds would hold, and throw nothing out


def test_no_product_of_float32_is_off_by_more_than_is_told() -> None:
    for table in tables().values():
        mean = table.mean(0, dtype=np.float64)
        lengths, far = exact.lengths(table, mean), float(np.linalg.norm(mean))
        scale = bounds.scale_for(float(lengths.max()) + far)
        units, _ = exact.units(asked(table))
        products = units.astype(np.float32) @ (table.astype(np.float64) * scale).astype(np.float32).T
        found = products.astype(np.float64) - (units @ mean * scale)[:, None]
        true = units @ exact.widened(table, mean).T * scale
        told = bounds.rounding(lengths, far, table.shape[1], scale)
        known = np.isfinite(told)
        assert (np.abs(found - true)[:, known] <= (told[known] * lengths[known] * scale)).all()


@compiled
def test_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(4).standard_normal((5000, 64)).astype(np.float32)
    with ww.plain_kernels():
        wanted = Search(table).nearest(table[:100], 10)
    for threads in (1, 2, 5):
        monkeypatch.setattr(library, "threads", lambda threads=threads: threads)
        search = Search(table)
        for queries in (1, 3, 100):
            found = search.nearest(table[:queries], 10)
            assert np.array_equal(found.ids, wanted.ids[:queries])
            assert np.array_equal(found.scores, wanted.scores[:queries])


@pytest.mark.usefixtures("our_own_checks")
def test_tables_that_no_kernel_reads_go_the_plain_way() -> None:
    table = tables()["small whole numbers"]
    wanted = Search(table).nearest(table[:5], 9)
    for other in (table.astype(np.int64), table.astype(np.float16), table.astype(">f4"), np.asfortranarray(table)):
        assert not scan.serves(other)
        found = Search(other).nearest(table[:5], 9)
        assert np.array_equal(found.ids, wanted.ids)
        assert np.array_equal(found.scores, wanted.scores)


def test_neither_a_search_nor_its_kernels_load_torch() -> None:
    code = (
        "import sys, numpy as np\n"
        "from whatwhere.analysis.neighbors import Search\n"
        "from whatwhere.kernels import library\n"
        "table = np.random.default_rng(0).standard_normal((9000, 40)).astype(np.float32)\n"
        "print(Search(table).nearest(table[:2], 1).ids.tolist(), library.threads())\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "torch.set_num_threads(3)\n"
        "print(Search(table).nearest(table[:2], 1).ids.tolist(), library.threads())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    assert (done.stdout.splitlines(), done.stderr) == (["[[0], [1]] 2", "[[0], [1]] 3"], "")
