"""Experiments: each statement is judged by the runs it names, under its precondition; and the exact ones by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.base_bound import fit, similarity_bound
from experiments.bench import Bench, paired, score
from experiments.expressions import length, randomized, robustness, table_contents
from experiments.text import context_extension, text, under_trained
from whatwhere.comparison import read_results
from whatwhere.comparison.model import with_max_length
from whatwhere.comparison.plan import make_plans, make_task, rehearse
from whatwhere.comparison.settings import make_settings

from ..comparison.made_up import change, made_up_folder


class MadeUp(Bench):
    """A bench whose comparisons are made-up folders, changed before they are read."""

    def __init__(self, folder: Path, change: Any, scope: str = "full") -> None:
        super().__init__(folder, scope, "python -m experiments run")
        self.change = change

    def compare(self, name, schemes, seeds, **settings):
        def learned(data):
            for run in data["runs"]:
                run["in_length"] = 1.0
                self.change(run)

        return read_results(
            change(made_up_folder(self.folder / name, settings["task"], tuple(schemes), seeds), learned)
        )


def set_score(at: int, scores: dict[str, float]):
    def change(run):
        if run["scheme"] in scores and str(at) in run["scores"]:
            run["scores"][str(at)]["all"] = scores[run["scheme"]]

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


def test_a_loss_is_better_where_it_is_lower(tmp_path):
    results = by_id(text(MadeUp(tmp_path, set_score(256, {"alibi": 1.5, "rotary": 3.0}))))
    assert results["E3.3"].verdict == "holds"
    assert results["E3.3"].measured.median == pytest.approx(1.5)


def test_pairs_are_of_one_seed(tmp_path):
    def change(run):
        run["scores"]["12"]["all"] = 0.8 if run["scheme"] == "alibi" else run["seed"] / 4

    results = MadeUp(tmp_path, change).compare("x", ("none", "alibi"), 3, task="expressions")
    assert paired(results, "alibi", "none", score(12)) == pytest.approx([0.8, 0.55, 0.3])
    assert paired(results, "alibi", "absent", score(12)) == [None] * 3


def test_the_bound_is_the_least_sum_of_cosines():
    least = min(sum(np.cos(m * 1e4 ** (-2 * i / 128)) for i in range(64)) for m in range(301))
    assert similarity_bound(np.array([1e4]), 300)[0] == pytest.approx(least, abs=1e-9)
    assert fit(1024) == pytest.approx(3374, rel=1e-3)


class Rehearsal(Bench):
    """A bench that builds every model of a comparison and trains none."""

    def compare(self, name, schemes, seeds, **settings):
        lengths, task = settings.pop("lengths", None), settings.pop("task")
        start = settings.pop("start", None)
        chosen = make_settings(task, lengths, device="cpu", **settings)
        subject = make_task(task, chosen.direction, chosen.trained, [])
        plans = make_plans(schemes, None, subject, with_max_length(chosen, subject))
        assert len({plan.name for plan in plans}) == len(schemes)
        assert start is None or (self.folder / "trained") == Path(start.rpartition(":")[0])
        for plan in plans:
            rehearse(plan)
        names = tuple(plan.name for plan in plans)
        self.comparisons[name] = read_results(made_up_folder(self.folder / name, task, names, seeds))
        return self.comparisons[name]


# Numbers in names are whole where they can be, which a checker that tells int from float would refuse.
@pytest.mark.usefixtures("our_own_checks")
@pytest.mark.parametrize(
    "experiment",
    [length, randomized, text, table_contents, context_extension, under_trained, robustness],
    ids=lambda experiment: experiment.__name__,
)
def test_every_scheme_of_an_experiment_can_be_built_and_is_judged(experiment, tmp_path):
    bench = Rehearsal(tmp_path, "full", "python -m experiments run")
    results = experiment(bench)
    assert len({result.id for result in results}) == len(results)
    named = {name for comparison in bench.comparisons.values() for name in comparison.schemes}
    assert named
    for result in results:
        # Made-up texts end at 256 bytes, and made-up runs of the expressions are not all learned.
        if "minus" not in result.quantity or "512" in result.quantity or experiment is length:
            continue
        assert result.runs > 0, f"{result.id} compares schemes that were not trained: {result.reason}"
