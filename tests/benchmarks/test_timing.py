"""How times are taken: who comes when, what is divided by what. No test asserts a time."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from benchmarks.memory import settled
from benchmarks.timing import Budget, order, ratios, spread, time_rounds


@pytest.fixture(autouse=True, scope="module")
def quick_collections() -> Iterator[None]:
    """Time as a case does: a collection after each round looks at new objects only."""
    with settled():
        yield


def test_every_round_measures_all_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that one second passes on at every reading: every turn takes a second, whatever else runs here.
    seconds = iter(range(10_000))
    monkeypatch.setattr("benchmarks.timing.perf_counter", lambda: float(next(seconds)))
    turns: list[str] = []
    runs = {name: lambda name=name: turns.append(name) for name in "abc"}
    took = time_rounds(runs, Budget(seconds=0.0, least=4))
    assert took == {name: [1.0] * 4 for name in "abc"}
    rounds = ["".join(turns[-12:][first : first + 3]) for first in range(0, 12, 3)]
    assert rounds == ["abc", "acb", "cab", "cba"]


def test_every_candidate_is_at_every_position_and_after_every_other() -> None:
    names = "abcde"
    rounds = [order(names, number) for number in range(2 * len(names))]
    for slot in range(len(names)):
        assert Counter(result[slot] for result in rounds) == dict.fromkeys(names, 2)
    assert {(a, b) for result in rounds for a, b in pairwise(result)} >= {("a", "b"), ("b", "a")}


def test_rounds_go_on_until_the_seconds_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def run() -> None:
        nonlocal now
        now += 1.0

    monkeypatch.setattr("benchmarks.timing.perf_counter", lambda: now)
    assert len(time_rounds({"a": run}, Budget(seconds=10.0, least=2))["a"]) == 11
    assert len(time_rounds({"a": run}, Budget(seconds=0.0, least=5))["a"]) == 5
    assert len(time_rounds({"a": run}, Budget(seconds=10.0, least=2, most=3))["a"]) == 3


def test_ratios_are_of_one_round() -> None:
    # A machine twice as slow in the second round changes no ratio.
    assert ratios([3.0, 6.0, 3.0], [2.0, 4.0, 2.0]) == [1.5, 1.5, 1.5]
    assert spread([7.0]) == {"median": 7.0, "low": 7.0, "high": 7.0}
    assert spread([1.0, 2.0, 4.0, 100.0]) == {"median": 3.0, "low": 1.75, "high": 28.0}
