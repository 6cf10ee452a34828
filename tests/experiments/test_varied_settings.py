"""Claims that runs with another table, width or formula decide: each beside its partner of the same seed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.errata_page import measurement, reason
from experiments.tutorials.trained import Judgment, TrainedClaim
from experiments.tutorials.varied_settings import CLAIMS, MISPRINTED
from whatwhere.comparison import read_results
from whatwhere.comparison.settings import make_settings
from whatwhere.records import to_json

from ..comparison.made_up import change, made_up_folder

Change = Callable[[dict[str, Any]], Any]
BY_ID = {each.id: each for each in CLAIMS if isinstance(each, TrainedClaim)}
VARIED: Mapping[str, Mapping[str, str | int]] = {
    "0.38": {"table": "frozen"}, "4.13": {"table": "ids"}, "2.13": {"table": "frozen"},
    "0.35": {"dim": 16}, "0.36": {"dim": 256}, "4.16": {"dim": 256},
}  # fmt: skip
TABLES = ("0.38", "4.13")
PAIRED = tuple(id for id in VARIED if id not in TABLES)


def in_length(share: float) -> Change:
    return lambda run: run.update(in_length=share)


def low_from(step: int) -> Change:
    """Let the training loss be low from a step on."""
    return lambda run: run.update(losses=[[n, 2.0 if n < step else 0.05] for n in range(0, 801, 20)])


def judged(
    folder: Path, id: str, *pairs: tuple[Change, Change], varied: Mapping[str, str | int] | None = None
) -> Judgment:
    """Judge a claim by pairs of runs of one seed: what becomes of the usual one, and of the one that varies."""

    def apply(data: dict[str, Any]) -> None:
        of = VARIED[id] if varied is None else varied
        if id == "4.16":
            data["settings"], data["task"]["trained"] = to_json(make_settings("expressions", None, "author"), None), [3]
        for run in data["runs"]:
            run |= {"in_length": 1.0, "base": "sinusoidal", "varied": of if "@" in run["scheme"] else {}}
            pairs[run["seed"]]["@" in run["scheme"]](run)

    path = folder / f"{len(list(folder.iterdir()))}"
    made = made_up_folder(path, schemes=("sinusoidal", "sinusoidal@varied"), seeds=len(pairs))
    return BY_ID[id].judge(read_results(change(made, apply)))


def same(run: dict[str, Any]) -> None:
    """Leave a run as it is."""


@pytest.mark.parametrize("id", TABLES)
def test_a_table_is_judged_by_whether_the_task_is_learned_with_it(id: str, tmp_path: Path) -> None:
    holds, fails = judged(tmp_path, id, (same, in_length(0.98))), judged(tmp_path, id, (same, in_length(0.995)))
    assert (holds.verdict, fails.verdict) == ("holds", "fails")
    assert "98.0" in measurement(holds.measured)
    assert "99.5" in measurement(fails.measured)
    mixed = judged(tmp_path, id, (same, in_length(0.5)), (same, same))
    assert (mixed.verdict, mixed.holding, mixed.runs) == ("depends", 1, 2)
    assert reason(mixed).startswith("below 99 % in 1 of 2 runs; the same less that with a learned table: ")


@pytest.mark.parametrize("id", ["0.35", "0.36", "4.16"])
def test_a_width_is_judged_beside_64_features_of_the_same_seed(id: str, tmp_path: Path) -> None:
    holds = judged(tmp_path, id, (same, in_length(0.98)))
    fails = judged(tmp_path, id, (in_length(0.992), in_length(0.985)))
    # Larger widths may overfit, the tutorials write: runs that do not refute nothing.
    assert (holds.verdict, fails.verdict) == ("holds", "fails" if id == "0.35" else "not measured")
    assert (fails.runs > 0, "does not refute" in reason(fails)) == (True, id != "0.35")
    assert holds.measured.spread is not None
    assert holds.measured.spread.median == pytest.approx(-0.02)
    larger = judged(
        tmp_path, id, (same, lambda run: run.update(parameters={"total": 417_280, "tokens": 5120, "positions": 0}))
    )
    assert "parameters, relative to 64 dimensions: 4" in reason(larger)


def test_convergence_is_judged_by_the_steps_to_a_low_loss(tmp_path: Path) -> None:
    holds = judged(tmp_path, "2.13", (low_from(100), low_from(200)))
    fails = judged(tmp_path, "2.13", (low_from(200), low_from(200)), (low_from(200), low_from(100)))
    assert (holds.verdict, fails.verdict) == ("holds", "fails")
    assert holds.measured.spread is not None
    assert holds.measured.spread.median == 0.5
    never = judged(tmp_path, "2.13", (low_from(100), low_from(900)))
    assert (never.verdict, reason(never)) == ("not measured", "no run has such a number.")


@pytest.mark.parametrize("id", VARIED)
def test_a_partner_that_did_not_learn_the_task_decides_nothing(id: str, tmp_path: Path) -> None:
    result = judged(tmp_path, id, (in_length(0.98), in_length(0.5) if id in TABLES else same))
    assert (result.verdict, result.runs) == ("not measured", 0)
    assert reason(result).startswith("the task was not learned with a learned table ")
    slow = (low_from(300), low_from(200))
    assert id in TABLES or judged(tmp_path, id, (in_length(0.5), same), slow).runs == 1


@pytest.mark.parametrize("id", VARIED)
def test_what_did_not_vary_is_not_measured(id: str, tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path / "usual", schemes=("sinusoidal",)))
    (name, value), *_ = VARIED[id].items()
    lacking = {"table": f"these runs have another token table: whatwhere compare --vary table=learned,{value}"}
    expected = (
        "these runs are trained on other lengths" if id == "4.16" else lacking.get(name, f"no run has dim={value}")
    )
    assert reason(BY_ID[id].judge(results)).startswith(expected)


@pytest.mark.parametrize("id", PAIRED)
def test_a_run_in_which_more_varies_has_no_partner(id: str, tmp_path: Path) -> None:
    both = judged(tmp_path, id, (same, same), varied={**VARIED[id], "steps": 100})
    assert reason(both) == "no run of the same scheme and seed has a learned table of 64 features."


@pytest.mark.parametrize(("share", "verdict"), [(0.995, "holds"), (0.98, "fails")])
def test_the_misprinted_formula_is_judged_by_whether_it_is_learned(share: float, verdict: str, tmp_path: Path) -> None:
    def apply(data: dict[str, Any]) -> None:
        for run in data["runs"]:
            run |= {"in_length": share, "own": True}

    results = read_results(change(made_up_folder(tmp_path, schemes=(MISPRINTED,)), apply))
    assert BY_ID["3.10"].judge(results).verdict == verdict
    other = read_results(made_up_folder(tmp_path / "other"))
    assert reason(BY_ID["3.10"].judge(other)) == f"the scheme {MISPRINTED} is not in this comparison."


def test_every_claim_is_tested() -> None:
    assert {*VARIED, "3.10"} == BY_ID.keys()
