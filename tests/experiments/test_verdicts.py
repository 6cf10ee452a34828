"""Verdicts: each turns over when its numbers do, names them, and decides nothing where its precondition is not met."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from experiments.errata_page import by_scheme, measurement, reason
from experiments.tutorials import varied_settings
from experiments.tutorials.all_claims import CLAIMS, verdicts
from experiments.tutorials.trained import LEARNED, LEARNED_TEXT, LEARNED_WITHOUT_ORDER, Judgment, TrainedClaim
from whatwhere.comparison import read_results
from whatwhere.comparison.read import AFTER, BEFORE
from whatwhere.comparison.settings import make_settings
from whatwhere.records import to_json

from ..comparison.made_up import change, made_up_folder

Change = Callable[[dict[str, Any]], Any]
ELSEWHERE = {"0.39", *(each.id for each in varied_settings.CLAIMS)}
"""Claims that have tests of their own, for they need runs that vary a setting, or a kept model."""
BY_ID = {each.id: each for each in CLAIMS if isinstance(each, TrainedClaim) and each.id not in ELSEWHERE}
EXTRAPOLATES = {"0.31": "sinusoidal", "2.8": "rotary", "2.12": "alibi"}
WITHOUT_ORDER = {"Max": 1.0, "Min": 1.0}


def at_end(value: float | None, *path: str) -> Change:
    def apply(run: dict[str, Any]) -> None:
        holder = run["token_table"][-1]
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = value

    return apply


def at_start(std: float, with_positions: float) -> Change:
    def apply(run: dict[str, Any]) -> None:
        run["token_table"][0]["table"]["std"] = std
        run["token_table"][0]["with_positions"]["std"] = with_positions

    return apply


def first(by_length: dict[str, float | None]) -> Change:
    return lambda run: [run["scores"][n].update(First=value) for n, value in by_length.items()]


def far(value: float | None) -> Change:
    return lambda run: run["scores"][max(run["scores"], key=int)].update(all=value)


def grown(start: float, end: float) -> Change:
    def apply(run: dict[str, Any]) -> None:
        run["token_table"][0]["table"]["std"], run["token_table"][-1]["table"]["std"] = start, end

    return apply


def shifted(shift: str, **values: float | None) -> Change:
    return lambda run: run["shift"][shift].update(values)


def author(data: dict[str, Any]) -> None:
    recipe = make_settings("expressions", None, "author")
    data["settings"] = to_json(recipe, None)
    data["task"]["trained"] = [3]


def judged(folder: Path, id: str, scheme: str, *changes: Change, whole: Change = lambda data: None) -> Judgment:
    """Judge a claim by runs of one scheme that learned its task, one for each change."""

    def apply(data: dict[str, Any]) -> None:
        for run, edit in zip(data["runs"], changes, strict=True):
            run["scores"] = {n: dict.fromkeys(scores, 0.9) | WITHOUT_ORDER for n, scores in run["scores"].items()}
            run["in_length"] = 1.0
            edit(run)
        data["summary"] = {run["scheme"]: data["summary"][scheme] for run in data["runs"]}
        whole(data)

    path = folder / f"{len(list(folder.iterdir()))}"
    made = made_up_folder(path, BY_ID[id].task, schemes=(scheme,), seeds=len(changes))
    (verdict,) = [each for each in verdicts(read_results(change(made, apply))) if each.id == id]
    return verdict


# The claim, the scheme, what makes it hold, the number that is then shown; what makes it fail, the number.
SIDES: list[tuple[str, str, Change, str, Change, str]] = [
    *(
        (id, "rotary", at_end(0.31, "change_cosines", name), "0.31", at_end(-0.29, "change_cosines", name), "−0.29")
        for id, name in (
            ("0.13", "max_min"), ("0.11", "within_digits"), ("0.11c", "within_operators"), ("0.12", "within_syntax"),
        )
    ),
    ("0.11d", "rotary", at_end(0.81, "number_line"), "0.81", at_end(0.79, "number_line"), "0.79"),
    ("0.14c", "rotary", at_end(-0.04, "table", "mean"), "−0.04", at_end(-0.06, "table", "mean"), "−0.06"),
    ("0.14c", "rotary", at_end(0.04, "table", "mean"), "0.04", at_end(0.06, "table", "mean"), "0.06"),
    ("0.15", "rotary", grown(1.0, 1.3), "1.3", grown(1.0, 1.1), "1.1"),
    ("0.18b", "none", first({"3": 0.69}), "69.0", first({"1": 0.71, "8": 0.1}), "71.0"),
    *((id, scheme, far(0.96), "96.0", far(0.94), "94.0") for id, scheme in EXTRAPOLATES.items()),
    *((f"{id}b", scheme, far(1.09), "0.09", far(1.11), "0.11") for id, scheme in EXTRAPOLATES.items()),
    ("0.32b", "learned", far(None), "100.0", far(0.2), "0.0"),
    ("0.22b", "sinusoidal", at_start(0.15, 0.29), "1.9", at_start(0.15, 0.31), "2.1"),
    ("0.29b", "sinusoidal", shifted("1", score=0.95), "4.0", shifted("1", score=0.93), "6.0"),
    *(
        ("2.6b", scheme, shifted("60", largest_logit_change=0.009), "0.009",
         shifted("60", largest_logit_change=0.011), "0.011")
        for scheme in ("none", "rotary", "alibi")
    ),
]  # fmt: skip
OF_THE_RECIPE: list[tuple[str, Change, Change]] = [
    ("0.14", at_end(0.61, "table", "std"), at_end(0.59, "table", "std")),
    ("0.14b", at_end(-2.1, "table", "min"), at_end(-1.9, "table", "min")),
    ("0.14b", at_end(2.1, "table", "max"), at_end(1.9, "table", "max")),
    ("0.33b", at_end(-2.6, "with_positions", "min"), at_end(-2.4, "with_positions", "min")),
]
OF_TABLES = {"0.6b": "onehot", "0.7b": "rank2"}
BY_THEMSELVES = ("0.11b", *OF_TABLES)


@pytest.mark.parametrize(("id", "scheme", "good", "shown", "bad", "shown_too"), SIDES)
def test_a_verdict_changes_with_its_numbers(
    id: str, scheme: str, good: Change, shown: str, bad: Change, shown_too: str, tmp_path: Path
) -> None:
    holds, fails = judged(tmp_path, id, scheme, good), judged(tmp_path, id, scheme, bad)
    may = id == "0.29b"  # "This allows the model to learn": one run that does shows it
    assert (holds.verdict, fails.verdict) == ("holds", "not measured" if may else "fails")
    assert shown in measurement(holds.measured)
    assert shown_too in measurement(fails.measured)
    mixed = judged(tmp_path, id, scheme, bad, good)
    assert (mixed.verdict, mixed.holding, mixed.runs) == ("holds" if may else "depends", 1, 2)
    assert reason(mixed).startswith(f"{mixed.line} in 1 of 2 runs")


@pytest.mark.parametrize(("id", "good", "bad"), OF_THE_RECIPE)
def test_what_is_claimed_of_50_epochs_is_judged_by_such_a_training_alone(
    id: str, good: Change, bad: Change, tmp_path: Path
) -> None:
    result = [judged(tmp_path, id, "sinusoidal", change, whole=author) for change in (good, bad)]
    assert [verdict.verdict for verdict in result] == ["holds", "fails"]
    other = judged(tmp_path, id, "sinusoidal", good)
    assert (other.verdict, other.measured.spread) == ("not measured", None)
    assert reason(other) == "these runs are another training, of 800 steps of 64: whatwhere compare --recipe author."


@pytest.mark.parametrize(("cosine", "verdict"), [(0.4, "holds"), (0.2, "fails")])
def test_6_and_7_are_judged_by_what_training_wrote(cosine: float, verdict: str, tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    after = table.copy()
    after[8] += [1, 0, 0, 0]
    after[9] += [cosine, (1 - cosine**2) ** 0.5, 0, 0]

    def written(data: dict[str, Any]) -> None:
        data["runs"][0]["file"] = "models/mine.safetensors"
        (folder,) = tmp_path.iterdir()
        save_file({BEFORE: table, AFTER: after}, folder / "models/mine.safetensors")

    result = judged(tmp_path, "0.11b", "rotary", lambda run: None, whole=written)
    assert result.verdict == verdict
    assert result.measured.spread is not None
    assert result.measured.spread.median == pytest.approx(cosine, abs=1e-5)


@pytest.mark.parametrize(("score", "verdict"), [(0.98, "holds"), (1.0, "fails")])
@pytest.mark.parametrize("id", OF_TABLES)
def test_a_table_is_judged_beside_a_learned_one(id: str, score: float, verdict: str, tmp_path: Path) -> None:
    def other(run: dict[str, Any]) -> None:
        run.update(base="rotary", scheme=f"rotary@table={OF_TABLES[id]}", varied={"table": OF_TABLES[id]})
        run["in_length"] = score

    def unlearned(run: dict[str, Any]) -> None:
        run["in_length"] = 0.5

    result = judged(tmp_path, id, "rotary", lambda run: None, other)
    assert (result.verdict, result.runs) == (verdict, 1)
    without = judged(tmp_path, id, "rotary", unlearned, other)
    assert without.verdict == "not measured"
    assert reason(without).startswith("the task was not learned with a learned table")
    assert "another token table" in reason(judged(tmp_path, id, "rotary", lambda run: None))


@pytest.mark.parametrize("id", ["0.13", "0.14c", "0.11d"])
def test_tables_that_are_not_learned_say_nothing_of_what_training_writes(id: str, tmp_path: Path) -> None:
    result = judged(tmp_path, id, "rotary", lambda run: run.update(varied={"table": "frozen"}))
    assert (result.verdict, result.runs) == ("not measured", 0)
    assert "not learned: whatwhere compare --set table=learned" in reason(result)


def test_a_variant_of_a_scheme_is_judged_as_that_scheme(tmp_path: Path) -> None:
    def variant(run: dict[str, Any]) -> None:
        run.update(base="alibi", scheme="alibi@dim=32", varied={"dim": 32})
        far(0.96)(run)

    result = judged(tmp_path, "2.12", "alibi", variant, far(0.94))
    assert [(each.scheme, each.verdict) for each in result.schemes] == [("alibi@dim=32", "holds"), ("alibi", "fails")]


def needs_learning(claim: TrainedClaim) -> bool:
    return bool({LEARNED, LEARNED_TEXT, LEARNED_WITHOUT_ORDER} & set(claim.preconditions))


@pytest.mark.parametrize("id", [id for id, each in BY_ID.items() if needs_learning(each)])
def test_runs_that_did_not_learn_the_task_decide_nothing(id: str, tmp_path: Path) -> None:
    """Three steps of training never make a claim hold."""
    text = BY_ID[id].task == "text"

    def unlearned(run: dict[str, Any]) -> None:
        run["in_length"] = 1.2 if text else 0.98
        run["scores"] = {n: dict.fromkeys(scores, 0.98) for n, scores in run["scores"].items()}
        if run["token_table"]:
            grown(1.0, 1.0)(run)

    whole = author if id in {each for each, *_ in OF_THE_RECIPE} else (lambda data: None)
    scheme = {each: name for each, name, *_ in SIDES}.get(id, "sinusoidal")
    result = judged(tmp_path, id, scheme, unlearned, unlearned, whole=whole)
    assert (result.verdict, result.runs) == ("not measured", 0)
    assert reason(result).startswith("the task was not learned")
    assert ("a loss of 1.20 in length at best, 1.10 needed" if text else "98.0 %") in reason(result)


def test_each_scheme_is_judged_by_itself(tmp_path: Path) -> None:
    def apply(data: dict[str, Any]) -> None:
        for run in data["runs"]:
            run["in_length"] = 1.0
            cosine = 0.5 + 0.1 * run["seed"] if run["scheme"] == "rotary" else -0.5
            run["token_table"][-1]["change_cosines"]["max_min"] = cosine

    results = read_results(change(made_up_folder(tmp_path, schemes=("none", "rotary"), seeds=2), apply))
    result = next(each for each in verdicts(results) if each.id == "0.13")
    assert result.verdict == "depends"
    assert by_scheme(result) == "none: 0 of 2 runs, −0.5; rotary: 2 of 2 runs, 0.55 (0.5 to 0.6)"


def test_every_claim_has_been_tested_both_ways() -> None:
    assert {id for id, *_ in [*SIDES, *OF_THE_RECIPE]} | set(BY_THEMSELVES) == set(BY_ID)


def untouched(run: dict[str, Any]) -> None:
    """Leave a run as it is."""


def at_sampled_positions(data: dict[str, Any]) -> None:
    data["settings"]["positions"] = "randomized"
    for run in data["runs"]:
        run["max_length"] = 132


def only_tested_in_length(data: dict[str, Any]) -> None:
    for part in [*data["runs"], *data["summary"].values()]:
        part["scores"] = {n: result for n, result in part["scores"].items() if int(n) <= 6}


OF_LENGTH = {**EXTRAPOLATES, "0.32b": "learned"}
OF_SCHEMES = {**OF_LENGTH, "0.18b": "none", "0.22b": "sinusoidal", "0.29b": "sinusoidal", "2.6b": "a relative"}
FAR_FROM_RELATIVE = shifted("60", largest_logit_change=5.0)


# The claim, the scheme, what is changed in its run and in the whole file, and what the reason says.
@pytest.mark.parametrize(
    ("id", "scheme", "edit", "whole", "words"),
    [
        *((id, "mine", untouched, untouched, "in this comparison") for id in OF_SCHEMES),
        *(
            (id, scheme, untouched, at_sampled_positions, "training sampled its positions.")
            for id, scheme in {**OF_LENGTH, "0.29b": "sinusoidal"}.items()
        ),
        *((id, scheme, untouched, only_tested_in_length, "beyond") for id, scheme in OF_LENGTH.items()),
        # Mixtures, and what follows the length, are not relative.
        *(
            ("2.6b", scheme, FAR_FROM_RELATIVE, untouched, "")
            for scheme in ("rotary+alibi", "rotary-dynamic-ntk", "rotary-longrope")
        ),
        ("0.15", "rotary", grown(0.15, 0.3), untouched, "init=1"),
        ("0.29b", "sinusoidal", shifted("1", score=None), untouched, ""),
        ("0.22b", "sinusoidal", lambda run: run["token_table"][0].update(with_positions=None), untouched, ""),
        ("0.18b", "none", first(dict.fromkeys(map(str, range(1, 7)))), untouched, ""),
        ("0.11d", "rotary", at_end(None, "number_line"), untouched, ""),
    ],
)
def test_what_was_not_measured_is_not_judged(
    id: str, scheme: str, edit: Change, whole: Change, words: str, tmp_path: Path
) -> None:
    result = judged(tmp_path, id, scheme, edit, whole=whole)
    assert result.verdict == "not measured"
    assert words in reason(result)
    if scheme == "mine":
        assert result.measured.spread is None
        assert OF_SCHEMES[id] in result.precondition


def test_claims_on_text_are_not_those_on_expressions(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, "text"))
    assert {each.id for each in verdicts(results)} == {"0.31b", "2.8b", "2.12b"}
