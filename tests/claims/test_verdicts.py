"""Verdicts: each turns over when its numbers do, names them, and is not judged where its precondition is not met."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whatwhere.claims import Verdict, number_lines, token_table, verdicts
from whatwhere.comparison import read_results
from whatwhere.comparison.settings import make_settings
from whatwhere.records import to_json
from whatwhere.report.claims import reason, verdict_row, verdicts_sentence

from ..comparison.made_up import change, made_up_folder

Change = Callable[[dict[str, Any]], Any]


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
    return lambda run: run["scores"]["32"].update(all=value)


def shifted(shift: str, **values: float | None) -> Change:
    return lambda run: run["shift"][shift].update(values)


def author(data: dict[str, Any]) -> None:
    recipe = make_settings("expressions", None, "author")
    data["settings"] = to_json(recipe, None)
    data["task"]["trained"] = [3]


def judged(folder: Path, claim: str, scheme: str, *changes: Change, whole: Change = lambda data: None) -> Verdict:
    """Judge a claim by runs of one scheme, one for each change."""

    def apply(data: dict[str, Any]) -> None:
        for run, edit in zip(data["runs"], changes, strict=True):
            run["scores"] = {n: dict.fromkeys(scores, 0.9) for n, scores in run["scores"].items()}
            run["in_length"] = 1.0
            edit(run)
        whole(data)

    path = folder / f"{len(list(folder.iterdir()))}"
    result = verdicts(read_results(change(made_up_folder(path, schemes=(scheme,), seeds=len(changes)), apply)))
    (verdict,) = [each for each in result if claim in each.claim]
    return verdict


# A part of the claim, the scheme, what makes it hold, the number that is then shown; what makes it fail, the number.
SIDES: list[tuple[str, str, Change, str, Change, str]] = [
    *(
        (claim, "rotary", at_end(0.31, "cosines", name), "0.31", at_end(-0.29, "cosines", name), "−0.29")
        for claim, name in {
            "Max and Min": "max_min",
            "digits form": "within_digits",
            "operators form": "within_operators",
            "brackets": "within_syntax",
        }.items()
    ),
    ("number line", "rotary", at_end(0.81, "number_line"), "0.81", at_end(0.79, "number_line"), "0.79"),
    ("mean of", "rotary", at_end(-0.04, "table", "mean"), "−0.04", at_end(-0.06, "table", "mean"), "−0.06"),
    ("mean of", "rotary", at_end(0.04, "table", "mean"), "0.04", at_end(0.06, "table", "mean"), "0.06"),
    ("Without positions", "none", first({"3": 0.69}), "69.0", first({"1": 0.71, "8": 0.1}), "71.0"),
    ("Sinusoidal positions", "sinusoidal", far(0.96), "96.0", far(0.94), "94.0"),
    ("Learned positions", "learned", far(None), "100.0", far(0.2), "0.0"),
    ("dominate", "sinusoidal", at_start(0.15, 0.29), "1.9", at_start(0.15, 0.31), "2.1"),
    ("wherever", "sinusoidal", shifted("1", score=0.95), "4.0", shifted("1", score=0.93), "6.0"),
    *(
        ("Relative schemes", scheme, shifted("60", largest_logit_change=0.009), "0.009",
         shifted("60", largest_logit_change=0.011), "0.011")
        for scheme in ("none", "rotary", "alibi")
    ),
]  # fmt: skip
OF_THE_RECIPE: list[tuple[str, Change, Change]] = [
    ("spread of", at_end(0.61, "table", "std"), at_end(0.59, "table", "std")),
    ("values of", at_end(-2.1, "table", "min"), at_end(-1.9, "table", "min")),
    ("values of", at_end(2.1, "table", "max"), at_end(1.9, "table", "max")),
]


@pytest.mark.parametrize(("claim", "scheme", "good", "shown", "bad", "shown_too"), SIDES)
def test_a_verdict_changes_with_its_numbers(
    claim: str, scheme: str, good: Change, shown: str, bad: Change, shown_too: str, tmp_path: Path
) -> None:
    holds, fails = judged(tmp_path, claim, scheme, good), judged(tmp_path, claim, scheme, bad)
    assert (holds.outcome, fails.outcome) == ("holds", "fails")
    assert shown in verdict_row(holds)[2]
    assert shown_too in verdict_row(fails)[2]
    mixed = judged(tmp_path, claim, scheme, bad, good)
    assert (mixed.outcome, mixed.holding, mixed.runs) == ("depends", 1, 2)
    assert reason(mixed).startswith(f"{mixed.line} in 1 of 2 runs")


@pytest.mark.parametrize(("claim", "good", "bad"), OF_THE_RECIPE)
def test_what_is_claimed_of_50_epochs_is_judged_by_such_a_training_alone(
    claim: str, good: Change, bad: Change, tmp_path: Path
) -> None:
    result = [judged(tmp_path, claim, "rotary", change, whole=author) for change in (good, bad)]
    assert [verdict.outcome for verdict in result] == ["holds", "fails"]
    other = judged(tmp_path, claim, "rotary", good)
    assert (other.outcome, other.measured.spread) == ("not judged", None)
    assert reason(other) == "these runs are another training, of 800 steps of 64: whatwhere compare --recipe author."


@pytest.mark.parametrize(
    "claim", ["Max and Min", "digits form", "operators form", "brackets", "number line", "mean of"]
)
def test_runs_that_did_not_learn_the_task_are_not_judged(claim: str, tmp_path: Path) -> None:
    def unlearned(run: dict[str, Any]) -> None:
        run["in_length"] = 0.98

    result = judged(tmp_path, claim, "rotary", unlearned, unlearned)
    assert (result.outcome, result.runs) == ("not judged", 0)
    assert "98.0 % right in length at best, 99 % needed" in reason(result)
    assert judged(tmp_path, claim, "rotary", unlearned, lambda run: None).runs == 1


def test_the_reason_is_what_was_measured(tmp_path: Path) -> None:
    """Of the cosine at the end, what the random start had of it, and what training wrote."""
    result = judged(tmp_path, "Max and Min", "rotary", at_end(-0.5, "change_cosines", "max_min"))
    assert reason(result) == "above 0.3 in 0 of 1 run; before training: 0; of what training wrote, E − E0: −0.5."


def test_every_claim_has_been_tested_both_ways(tmp_path: Path) -> None:
    claims = [verdict.claim for verdict in verdicts(read_results(made_up_folder(tmp_path)))]
    assert len(claims) == len(set(claims))
    words = {word for word, *_ in [*SIDES, *OF_THE_RECIPE]}
    assert all(sum(word in claim for claim in claims) == 1 for word in words)
    assert all(any(word in claim for word in words) for claim in claims)


@pytest.mark.parametrize(
    ("claim", "scheme"),
    [
        ("Without positions", "none"),
        ("Sinusoidal positions", "sinusoidal"),
        ("Learned positions", "learned"),
        ("dominate", "sinusoidal"),
        ("wherever", "sinusoidal"),
        ("Relative schemes", "a relative"),
    ],
)
def test_a_scheme_that_did_not_run_is_not_judged(claim: str, scheme: str, tmp_path: Path) -> None:
    result = judged(tmp_path, claim, "mine", lambda run: None)
    assert (result.outcome, verdict_row(result)[2]) == ("not judged", "–")
    assert scheme in result.precondition
    assert "in this comparison" in reason(result)


@pytest.mark.parametrize("scheme", ["rotary+alibi", "rotary-dynamic-ntk", "rotary-longrope"])
def test_mixtures_and_what_follows_the_length_are_not_judged_as_relative(scheme: str, tmp_path: Path) -> None:
    result = judged(tmp_path, "Relative schemes", scheme, shifted("60", largest_logit_change=5.0))
    assert result.outcome == "not judged"


@pytest.mark.parametrize(
    ("claim", "scheme"), [("Sinusoidal positions", "sinusoidal"), ("Learned positions", "learned")]
)
def test_what_was_not_tested_beyond_is_not_judged(claim: str, scheme: str, tmp_path: Path) -> None:
    def cut(data: dict[str, Any]) -> None:
        for part in [*data["runs"], *data["summary"].values()]:
            part["scores"] = {n: result for n, result in part["scores"].items() if int(n) <= 6}

    result = judged(tmp_path, claim, scheme, lambda run: None, whole=cut)
    assert result.outcome == "not judged"
    assert "beyond" in reason(result)


def test_missing_numbers_are_omitted(tmp_path: Path) -> None:
    """A shift without a row, an operator without a target, digits that did not move."""
    assert judged(tmp_path, "wherever", "sinusoidal", shifted("1", score=None)).outcome == "not judged"
    without = judged(tmp_path, "dominate", "sinusoidal", lambda run: run["token_table"][0].update(with_positions=None))
    assert without.outcome == "not judged"
    missing = {str(n): None for n in range(1, 7)}
    assert judged(tmp_path, "Without positions", "none", first(missing | {"2": 0.6})).outcome == "holds"
    assert judged(tmp_path, "Without positions", "none", first(missing)).outcome == "not judged"
    assert judged(tmp_path, "number line", "rotary", at_end(None, "number_line")).outcome == "not judged"


@pytest.mark.parametrize("name", ["recall", "text"])
def test_other_tasks_have_no_claims(name: str, tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, name))
    assert verdicts(results) == number_lines(results) == []
    assert token_table(results) is None
    assert "no claims to judge" in verdicts_sentence([])


def test_verdicts_are_json(tmp_path: Path) -> None:
    result = json.loads(json.dumps(to_json(verdicts(read_results(made_up_folder(tmp_path)))), allow_nan=False))
    assert {"claim", "precondition", "measured", "outcome", "reason"} <= result[0].keys()
