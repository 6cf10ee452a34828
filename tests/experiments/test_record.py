"""Verdicts on statements: each turns over when its numbers do, and is not given where too little was measured."""

import pytest

from experiments.record import Statement, judge, judge_differences

GAIN = Statement("E1.1", "one is better", "a paper", "one minus the other", "above 0")


@pytest.mark.parametrize(
    ("values", "verdict", "holding"),
    [([0.1, 0.2], "holds", 2), ([0.1, -0.2], "depends", 1), ([-0.1, -0.2], "fails", 0), ([0.1, None], "holds", 1)],
)
def test_a_condition_is_counted_over_the_runs(values, verdict, holding):
    result = judge(GAIN, values, "python -m experiments run")
    assert (result.verdict, result.holding, result.reason) == (verdict, holding, "")
    assert result.measured is not None
    assert result.measured.max == max(value for value in values if value is not None)


def test_nothing_measured_has_its_reason():
    result = judge(GAIN, [None, None], "python -m experiments run", "no run learned the task")
    assert (result.verdict, result.measured, result.runs) == ("not measured", None, 0)
    assert result.reason == "no run learned the task"


@pytest.mark.parametrize(
    ("values", "verdict", "reason"),
    [
        ([0.1, 0.2, 0.1, 0.3, 0.2, 0.1], "holds", ""),
        ([-0.1, -0.2, -0.1, -0.3, -0.2, -0.1], "not reproduced", "the difference has the opposite sign"),
        ([0.1, -0.2, 0.1, 0.3, -0.2, 0.1], "not reproduced", "the seeds do not separate the two"),
        ([0.1, 0.2, 0.1, 0.3, 0.2], "not measured", "5 pairs of runs; 6 are needed"),
        ([None, None], "not measured", "no pair learned"),
    ],
)
def test_a_difference_holds_where_the_seeds_show_it(values, verdict, reason):
    [result] = judge_differences([(GAIN, values)], "python -m experiments run", "no pair learned")
    assert (result.verdict, result.reason) == (verdict, reason)
    assert (result.p is None) == (verdict == "not measured")
    if verdict == "holds":
        assert result.p == pytest.approx(2 / 2**6)  # the one sign pattern of six, and its opposite


def test_statements_of_one_experiment_are_one_family():
    values = [0.1, 0.2, 0.1, 0.3, 0.2, 0.1, 0.2, 0.3]
    pair = [(GAIN, values), (GAIN, values)]
    assert [each.p for each in judge_differences(pair, "", "")] == pytest.approx([2 * 2 / 2**8] * 2)
