"""Names, numbers and scores in words, and results.json as it is read."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatwhere.comparison.reading import Results, number, optional, spread
from whatwhere.comparison.telling.wording import (
    listed,
    measure,
    named,
    plain,
    run_of,
    score_cell,
    score_text,
    small,
    small_cell,
    spread_cell,
    spread_of,
)
from whatwhere.page.wording import count


def results(**task: Any) -> Results:
    described = {"name": "expressions", "unit": "arguments", "trained": [1, 2, 3], "measure": "accuracy"}
    described |= {"better": "higher", **task}
    scores = {str(length): {"all": {"median": 0.5, "min": 0.4, "max": 0.6}} for length in (1, 3, 16, 8)}
    summary = {"scores": scores | {"32": {"all": None}}, "in_length": {"median": 1.0, "min": 1.0, "max": 1.0}}
    shift = {"10": {"score": None}, "2": {"score": {"median": 0.5, "min": 0.4, "max": 0.6}}}
    found = {"b": summary | {"shift": shift}, "a": summary | {"shift": {}}}
    return Results(Path(), {"task": described, "summary": found, "settings": {"schemes": ["a", "gone"]}, "runs": []})


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (0.5, 3, "0.500"), (-0.5, 1, "−0.5"), (-0.0004, 3, "0.000"), (-0.0, 2, "0.00"), (1234.5, 0, "1234"),
        (math.nan, 3, "not finite"), (-math.inf, 3, "not finite"),
    ],
)  # fmt: skip
def test_plain(value: float, digits: int, written: str) -> None:
    assert plain(value, digits) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"), (12.0, "12"), (250.0, "250"), (0.012, "0.012"), (7.04e-6, "7.0e−6"),
        (2.5e7, "2.5e7"), (math.inf, "not finite"),
    ],
)  # fmt: skip
def test_small(value: float, written: str) -> None:
    assert small(value) == written


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [4.0, 1.0, 3.0], [0.1, 0.2, 0.7, 0.4]])
def test_the_spread_is_that_of_numpy(values: list[float]) -> None:
    expected = float(np.median(values)), min(values), max(values)
    assert spread_of(values) == pytest.approx(expected)
    assert spread_of([None, *values, None]) == spread_of(values)


def test_a_spread_of_nothing_is_nothing() -> None:
    assert spread_of([]) is None
    assert spread_of([None]) is None


def test_spread_cells() -> None:
    assert spread_cell(None) == small_cell(None) == "no row"
    assert spread_cell((0.25, 0.25, 0.25), 100.0, 1) == "25.0"
    assert spread_cell((0.5, -0.25, 1.0), 1.0, 2) == "0.50 (−0.25 to 1.00)"


def test_a_spread_that_rounding_hides_is_left_out() -> None:
    assert spread_cell((0.5, 0.49996, 0.50004), 1.0, 3) == "0.500"


@pytest.mark.parametrize(
    ("lengths", "written"),
    [([1], "1"), ([1, 2], "1 and 2"), ([1, 2, 3], "1 to 3"), ([2, 4, 6], "2, 4 and 6"), ([3, 2, 1], "3, 2 and 1")],
)
def test_lengths(lengths: list[int], written: str) -> None:
    assert run_of(lengths) == written


def test_lists_and_counts() -> None:
    assert [listed(list(names)) for names in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert (count(1, "seed"), count(0, "seed"), count(1200, "run")) == ("1 seed", "0 seeds", "1,200 runs")


def test_names_are_shown_and_not_obeyed() -> None:
    assert named("a" * 48) == "a" * 48
    shown = named("start" + "x" * 200 + "the end")
    assert shown.startswith("start")
    assert shown.endswith("the end")
    assert len(shown) == 48
    assert "…" in shown
    assert named("a\x00b\u202ec\ud800") == "a\ufffdb\ufffdc\ufffd"


def test_scores_in_the_unit_of_the_task() -> None:
    assert score_text(results(), 0.9912) == "99.1\u00a0%"
    assert score_text(results(measure="nats per byte"), 1.2345) == "1.234"
    assert score_text(results(measure="nats per byte"), 1.2345, unit=True) == "1.234\u00a0nats per byte"
    assert score_text(results(), math.nan) == "not finite"
    assert score_cell(results(), (0.5, 0.25, 0.75)) == "50.0 (25.0 to 75.0)"
    assert score_cell(results(measure="nats per byte"), (0.5, 0.5, 0.5)) == "0.500"
    assert measure(results()) == "accuracy in %; higher is better"
    assert measure(results(measure="nats per byte", better="lower")) == "nats per byte; lower is better"


def test_schemes_stand_as_they_were_asked_for() -> None:
    assert results().schemes == ["a", "b"]


def test_lengths_are_sorted_as_numbers() -> None:
    assert results().trained == [1, 3]
    assert results().beyond == [8, 16, 32]
    assert results().shifts == [2, 10]


def test_scores() -> None:
    assert results().score("a", 16) == (0.5, 0.4, 0.6)
    assert results().score("a", None) == (1.0, 1.0, 1.0)
    assert results().score("a", 32) is None
    assert results().score("a", 16, "Max") is None
    assert results().shift("b", 2, "score") == (0.5, 0.4, 0.6)
    assert results().shift("b", 10, "score") is None


def test_numbers_that_are_missing() -> None:
    assert math.isnan(number(None))
    assert optional(None) is None
    assert spread(None) is None
    assert optional(1) == number(1) == 1.0
