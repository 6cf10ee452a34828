"""The targets: each names rows that exist, and its number is the one that its words say."""

import re
from typing import Any

import pytest

from benchmarks import table
from benchmarks.case import Scale
from benchmarks.cases import CASES
from benchmarks.targets import KINDS, TARGETS, Target, verdicts


def row(name: str, pooled: list[float], fresh: list[float], error: float = 0.0, peak: int = 0) -> dict[str, Any]:
    spread = {"median": 1.0, "low": 1.0, "high": 1.0}
    regimes = {
        regime: {"rounds": rounds, "seconds": spread, "ratio": spread}
        for regime, rounds in (("fresh", fresh), ("pooled", pooled))
    }
    facts = {"ours": "whatwhere" in name, "note": "", "error": error, "peak": peak}
    return {"candidate": name, **facts, "regimes": regimes}


ON_GPU_ALONE = {"liger-kernel", "whatwhere, CUDA graph", "plain torch, CUDA graph"}

ROWS = [
    row("limit", [1.0, 2.0, 4.0], [1.0, 1.0, 1.0], peak=1000),
    row("whatwhere", [2.0, 4.0, 4.0], [3.0, 3.0, 3.0], error=1e-3, peak=1500),
    row("peer", [8.0, 8.0, 8.0], [30.0, 30.0, 30.0], peak=11_000),
]


def results(quick: bool = False) -> dict[str, Any]:
    variant = {"variant": "one", "limit": "limit", "error": "absolute", "unit": 100, "rows": ROWS}
    return {"settings": {"quick": quick, "device": "cpu"}, "cases": {"trial": {"variants": [variant]}}}


@pytest.mark.parametrize(
    ("kind", "against", "regime", "value"),
    [
        ("slower", "", "pooled", 2.0),  # the median of 2, 2 and 1, not the ratio of medians, which is 2 too
        ("slower", "", "fresh", 3.0),
        ("slower than", "peer", "pooled", 0.5),
        ("faster", "peer", "pooled", 2.0),
        ("faster", "peer", "fresh", 10.0),
        ("over", "limit", "pooled", 1.0),
        ("seconds", "", "pooled", 4.0),
        ("error", "", "pooled", 1e-3),
        ("peak", "", "pooled", 15.0),
        ("extra", "", "pooled", 5.0),
        ("share", "peer", "pooled", 0.05),
        ("peak than", "peer", "pooled", 1500 / 11_000),
    ],
)
def test_the_number_is_that_of_the_text(
    kind: str, against: str, regime: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = KINDS[kind].least
    for bound, met in ((value, True), (value * (1.01 if least else 0.99), False)):
        target = Target("trial", "o.e", "whatwhere", kind, bound, against, regime)
        monkeypatch.setattr("benchmarks.targets.TARGETS", (target,))
        (verdict,) = verdicts(results())
        assert verdict.value == pytest.approx(value)
        assert verdict.met is met
        assert ("met" in verdict.words) is met
        assert ("missed by" in verdict.words) is not met
        assert (verdict.strain > 1) is not met
        assert [shown.verdicts for shown in table.rows(results()) if shown.candidate == "whatwhere"] == [
            (f"{target.words}: {verdict.words}",)
        ]


def test_nothing_is_judged_that_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(verdicts(results(quick=True))) == []
    monkeypatch.setattr(
        "benchmarks.targets.TARGETS",
        (
            Target("another", ".*", "whatwhere", "slower", 1.0),
            Target("trial", "two", "whatwhere", "slower", 1.0),
            Target("trial", "one", "whatwhere", "faster", 1.0, "not there"),
        ),
    )
    assert list(verdicts(results())) == []
    result = results()
    monkeypatch.setattr("benchmarks.targets.TARGETS", (Target("trial", "one", "whatwhere", "slower", 1.0),))
    result["cases"]["trial"]["variants"][0]["rows"] = [{**ROWS[0]}, {**ROWS[1], "regimes": {}, "peak": None}]
    (verdict,) = verdicts(result)
    assert (verdict.value, verdict.met, verdict.words) == (None, None, "not measured")


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.case}: {t.candidate}: {t.words}")
def test_every_target_names_variants_and_candidates_that_exist(target: Target) -> None:
    quick = CASES[target.case].variants(Scale(quick=True, threads=2))
    full = CASES[target.case].variants(Scale(threads=2, device=target.device))
    judged = [number for number, variant in enumerate(full) if re.fullmatch(target.variant, variant.name)]
    assert judged
    # Small inputs have the same candidates; the variant as far from the end is of the same kind.
    names = {candidate.name for variant in quick for candidate in variant.prepare()}
    names |= ON_GPU_ALONE if target.device == "cuda" else set()
    if target.candidate.endswith("--help") or target.case != "start":
        assert target.candidate in names
        assert target.against in names | {""}
    assert KINDS[target.kind].words.count("{against}") == bool(target.against)
