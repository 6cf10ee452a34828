"""Verdicts: each of them turns over when its numbers do, and says which numbers they were."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from whatwhere.comparison.measure import SHIFTS
from whatwhere.comparison.verdicts import verdicts

TASK: dict[str, Any] = {"name": "expressions", "trained": [1, 2, 3]}
SETTINGS: dict[str, Any] = {"lengths": [8, 16], "direction": "decoder", "layers": 2}
COSINES = ("Max-Min", "First-Last", "within digits", "within operators", "within syntax")


def run(scheme: str, *changes: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Make up the record of a run, then change it."""
    table = {"mean": 0.0, "std": 0.2, "min": -0.5, "max": 0.6}
    snapshot = {
        "table": table,
        "with_position": {"std": 0.5} if scheme in ("sinusoidal", "learned") else None,
        "cosine": dict.fromkeys(COSINES, 0.0),
        "number_line": 0.9,
    }
    record = {
        "scheme": scheme,
        "scores": {n: {"all": 0.9, "First": 0.9} for n in ("1", "2", "3", "8", "16")},
        "shift": {str(shift): {"score": 0.9 if shift < 2 else 0.5, "largest_logit_change": 0.0} for shift in SHIFTS},
        "story": {"snapshots": [copy.deepcopy(snapshot), copy.deepcopy(snapshot)]},
    }
    for change in changes:
        change(record)
    return record


def at_end(part: str, value: float, *path: str) -> Callable[[dict[str, Any]], Any]:
    def change(record: dict[str, Any]) -> None:
        holder = record["story"]["snapshots"][-1]
        for name in path:
            holder = holder[name]
        holder[part] = value

    return change


def first(by_length: dict[str, float | None]) -> Callable[[dict[str, Any]], Any]:
    return lambda record: [record["scores"][n].update(First=value) for n, value in by_length.items()]


def far(value: float | None) -> Callable[[dict[str, Any]], Any]:
    return lambda record: record["scores"]["16"].update(all=value)


def moved(shift: str, **values: float | None) -> Callable[[dict[str, Any]], Any]:
    return lambda record: record["shift"][shift].update(values)


def at_start(std: float, with_position: float) -> Callable[[dict[str, Any]], Any]:
    def change(record: dict[str, Any]) -> None:
        record["story"]["snapshots"][0]["table"]["std"] = std
        record["story"]["snapshots"][0]["with_position"] = {"std": with_position}

    return change


# A word of the claim, the scheme, what makes it hold, what makes it fail, and the number that is then shown.
SIDES: list[tuple[str, str, Any, str, Any, str]] = [
    *(
        (claim, "rotary", at_end(name, 0.31, "cosine"), "cosine 0.31", at_end(name, -0.29, "cosine"), "cosine −0.29")
        for claim, name in {
            "Max and Min": "Max-Min",
            "digits form": "within digits",
            "operators form": "within operators",
            "brackets": "within syntax",
        }.items()
    ),
    ("number line", "rotary", at_end("number_line", 0.81), "0.81", at_end("number_line", 0.79), "0.79"),
    ("spread of", "rotary", at_end("std", 0.61, "table"), "0.61", at_end("std", 0.59, "table"), "0.59"),
    ("values of", "rotary", at_end("min", -2.1, "table"), "2.10", at_end("min", -1.9, "table"), "1.90"),
    ("values of", "rotary", at_end("max", 2.1, "table"), "2.10", at_end("max", 1.9, "table"), "1.90"),
    ("mean of", "rotary", at_end("mean", -0.04, "table"), "−0.04", at_end("mean", -0.06, "table"), "−0.06"),
    ("mean of", "rotary", at_end("mean", 0.04, "table"), "0.04", at_end("mean", 0.06, "table"), "0.06"),
    ("Without positions", "none", first({"3": 0.69}), "69.0 %", first({"1": 0.71, "8": 0.1}), "71.0 %"),
    ("Sinusoidal positions", "sinusoidal", far(0.96), "96.0 % right at 16", far(0.94), "94.0 % right at 16"),
    ("Learned positions", "learned", far(None), "100.0 % of the runs", far(0.2), "0.0 % of the runs"),
    ("dominate", "sinusoidal", at_start(0.15, 0.29), "1.93", at_start(0.15, 0.31), "2.07"),
    ("wherever", "sinusoidal", moved("1", score=0.86), "4.0 %", moved("1", score=0.84), "6.0 %"),
    *(
        ("Relative schemes", scheme, moved("60", largest_logit_change=0.009), "0.009",
         moved("60", largest_logit_change=0.011), "0.011")
        for scheme in ("none", "rotary", "alibi")
    ),
]  # fmt: skip


def judged(claim: str, runs: list[dict[str, Any]], **settings: Any) -> dict[str, str]:
    (found,) = [v for v in verdicts(runs, TASK, SETTINGS | settings) if claim in v["claim"]]
    return found


@pytest.mark.parametrize(("claim", "scheme", "good", "shown", "bad", "shown_too"), SIDES)
def test_a_verdict_turns_over_with_its_numbers(
    claim: str, scheme: str, good: Any, shown: str, bad: Any, shown_too: str
) -> None:
    holds, fails = judged(claim, [run(scheme, good)]), judged(claim, [run(scheme, bad)])
    assert (holds["verdict"], fails["verdict"]) == ("holds", "fails")
    assert shown in holds["measured"]
    assert shown_too in fails["measured"]
    assert judged(claim, [run(scheme, good), run(scheme, good)])["verdict"] == "holds"
    assert judged(claim, [run(scheme, bad), run(scheme, good)])["verdict"] == "depends"


def test_every_claim_has_been_turned_over() -> None:
    runs = [run(scheme) for scheme in ("none", "sinusoidal", "learned", "rotary", "alibi")]
    claims = [v["claim"] for v in verdicts(runs, TASK, SETTINGS)]
    assert len(claims) == len(set(claims))
    assert all(sum(word in claim for claim in claims) == 1 for word, *_ in SIDES)
    assert all(any(word in claim for word, *_ in SIDES) for claim in claims)


def test_seeds_are_shown_as_median_and_range() -> None:
    runs = [run("rotary", at_end("Max-Min", value, "cosine")) for value in (-0.5, -0.021, 0.25)]
    assert judged("Max and Min", runs)["measured"] == "cosine −0.021 (−0.50 to 0.25)"
    runs = [run("sinusoidal", far(value)) for value in (0.1, 0.2, 0.4, 0.5)]
    assert judged("Sinusoidal positions", runs)["measured"] == "30.0 % (10.0 % to 50.0 %) right at 16 arguments"


def test_the_spread_is_shown_from_start_to_end() -> None:
    runs = [run("rotary", at_end("std", 0.7, "table"))]
    assert judged("spread of", runs)["measured"] == "from 0.20 to 0.70"


@pytest.mark.parametrize(
    ("claim", "scheme"),
    [
        ("Without positions", "none"),
        ("Sinusoidal positions", "sinusoidal"),
        ("Learned positions", "learned"),
        ("dominate", "sinusoidal"),
        ("wherever", "sinusoidal"),
    ],
)
def test_a_scheme_that_did_not_run_is_not_measured(claim: str, scheme: str) -> None:
    others = [run(name) for name in ("none", "sinusoidal", "learned", "rotary", "mine") if name != scheme]
    found = judged(claim, others)
    assert (found["verdict"], found["measured"], found["why"]) == ("not measured", "not in this comparison", "")


def test_schemes_of_ones_own_and_mixtures_are_not_judged_as_those_of_the_catalogue() -> None:
    runs = [run(name, moved("60", largest_logit_change=5.0)) for name in ("mine", "rotary+alibi", "sinusoidal")]
    assert judged("Relative schemes", runs)["verdict"] == "not measured"


def test_what_follows_the_length_is_not_judged_by_moving_it() -> None:
    runs = [run(name, moved("60", largest_logit_change=5.0)) for name in ("rotary-dynamic-ntk", "rotary-longrope")]
    assert judged("Relative schemes", runs)["verdict"] == "not measured"


def test_what_was_not_tested_beyond_is_not_measured() -> None:
    for lengths in ([], [2, 3]):
        for claim, scheme in (("Sinusoidal positions", "sinusoidal"), ("Learned positions", "learned")):
            assert judged(claim, [run(scheme)], lengths=lengths)["verdict"] == "not measured"


def test_the_farthest_length_decides() -> None:
    near = run("sinusoidal", lambda record: record["scores"]["8"].update(all=0.1), far(1.0))
    assert judged("Sinusoidal positions", [near])["verdict"] == "holds"


def test_numbers_that_are_missing_are_left_out() -> None:
    """A shift without a row, an operator that no exam asked for, a scheme of one's own under a name of ours."""
    no_row = run("sinusoidal", moved("1", score=None), lambda r: r["story"]["snapshots"][0].update(with_position=None))
    assert judged("wherever", [no_row])["verdict"] == "not measured"
    assert judged("dominate", [no_row])["verdict"] == "not measured"
    unasked = run("none", first({"1": None, "2": 0.6}))
    assert judged("Without positions", [unasked])["verdict"] == "holds"
    never = run("none", first(dict.fromkeys(("1", "2", "3"))))
    assert judged("Without positions", [never])["verdict"] == "not measured"
    still = run("rotary", at_end("number_line", None))  # type: ignore[arg-type]
    assert judged("number line", [still])["verdict"] == "not measured"


def test_a_reason_is_given_for_the_outcome_that_it_explains_alone() -> None:
    apart, alike = (judged("Max and Min", [run("rotary", at_end("Max-Min", v, "cosine"))]) for v in (-0.5, 0.9))
    assert "opposite" in apart["why"]
    assert "opposite" not in alike["why"]
    assert alike["why"]


@pytest.mark.parametrize(
    ("direction", "layers", "expected"), [("decoder", 2, "fails"), ("decoder", 1, "holds"), ("encoder", 2, "holds")]
)
def test_two_causal_layers_know_places_without_being_told(direction: str, layers: int, expected: str) -> None:
    """The reason fits the model: what is known to happen is explained, the contrary is not."""
    good, bad = run("none", first({"2": 0.5})), run("none")
    told = {
        verdict["verdict"]: verdict["why"]
        for verdict in (judged("Without positions", [r], direction=direction, layers=layers) for r in (good, bad))
    }
    contrary = "holds" if expected == "fails" else "fails"
    assert "causal" in told[expected]
    assert "causal" not in told[contrary]


@pytest.mark.parametrize("name", ["recall", "text", "mine"])
def test_other_tasks_have_no_verdicts(name: str) -> None:
    assert verdicts([run("none")], TASK | {"name": name}, SETTINGS) == []
