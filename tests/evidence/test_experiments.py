"""Experiments: each statement is judged by the runs it names, under its precondition; and the exact ones by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whatwhere.comparison import read_results
from whatwhere.evidence.base_bound import fit, similarity_bound
from whatwhere.evidence.bench import Bench, has_learned, paired, score
from whatwhere.evidence.length import length

from ..comparison.made_up import made_up_folder


class MadeUp(Bench):
    """A bench whose comparisons are made-up folders, changed before they are read."""

    def __init__(self, folder: Path, change: Any, scope: str = "full") -> None:
        super().__init__(folder, scope, "whatwhere evidence")
        self.change = change

    def compare(self, name, schemes, seeds, **settings):
        path = made_up_folder(self.folder / name, settings["task"], tuple(schemes), seeds)
        data = json.loads((path / "results.json").read_text())
        for run in data["runs"]:
            run["in_length"] = 1.0
            self.change(run)
        (path / "results.json").write_text(json.dumps(data))
        return read_results(path)


def set_score(at: int, scores: dict[str, float], spread: float = 0.0, group: str = "all"):
    def change(run):
        if run["scheme"] in scores and str(at) in run["scores"]:
            run["scores"][str(at)][group] = scores[run["scheme"]] + spread * (run["seed"] % 2)

    return change


def by_id(results):
    return {result.id: result for result in results}


def test_a_better_scheme_is_found_and_a_worse_one_is_not(tmp_path):
    better = by_id(length(MadeUp(tmp_path / "a", set_score(12, {"alibi": 0.9, "sinusoidal": 0.7}))))["E1.5"]
    assert (better.verdict, better.runs) == ("holds", 10)
    assert better.measured is not None
    assert better.measured.median == pytest.approx(0.2)
    worse = by_id(length(MadeUp(tmp_path / "b", set_score(12, {"alibi": 0.7, "sinusoidal": 0.9}))))["E1.5"]
    assert (worse.verdict, worse.reason) == ("not reproduced", "the difference has the opposite sign")


def test_runs_that_did_not_learn_are_not_compared(tmp_path):
    def unlearned(run):
        run["in_length"] = 0.5

    results = by_id(length(MadeUp(tmp_path, unlearned)))
    assert results["E1.1"].verdict == "fails"
    others = [results[id] for id in ("E1.2", "E1.3", "E1.4", "E1.5")]
    assert {each.verdict for each in others} == {"not measured"}
    assert all("learned the task" in each.reason for each in others)


def test_the_quick_scope_judges_the_schemes_that_it_has(tmp_path):
    results = by_id(length(MadeUp(tmp_path, lambda run: None, "quick")))
    assert {"E1.5", "E1.6", "E1.7"} <= results.keys()
    assert "E1.9" not in results


def test_pairs_are_of_one_seed(tmp_path):
    bench = MadeUp(tmp_path, set_score(12, {"alibi": 0.8, "none": 0.7}, spread=0.1))
    results = bench.compare("x", ("none", "alibi"), 3, task="expressions")
    assert paired(results, "alibi", "none", score(12)) == pytest.approx([0.1] * 3)
    assert paired(results, "alibi", "absent", score(12)) == [None] * 3
    assert has_learned(results, results.runs[0])


def test_the_bound_is_the_least_sum_of_cosines():
    least = min(sum(np.cos(m * 1e4 ** (-2 * i / 128)) for i in range(64)) for m in range(301))
    assert similarity_bound(np.array([1e4]), 300)[0] == pytest.approx(least, abs=1e-9)
    assert fit(1024) == pytest.approx(3374, rel=1e-3)
