"""The cases: every variant runs, every candidate does the same work, and its error is measured."""

import math

import pytest

from benchmarks import peers
from benchmarks.case import Absent, Scale
from benchmarks.cases import CASES
from benchmarks.measure import QUICK, measure
from benchmarks.peers import load
from benchmarks.records import Measured

SCALE = Scale(quick=True, threads=1, compiled=False)
ABSENT = ("not installed", "does not import", "not measured")
VARIANTS = [
    (case.name, number, variant.name) for case in CASES.values() for number, variant in enumerate(case.variants(SCALE))
]
FAR = {
    # float32 has 24 bits and a million takes 20 of them: the fastest angle is off by up to 2 ** -5.
    ("position-table", "plain torch, float32 angles"): (1e-3, 0.1),
    ("position-table", "transformers (each number twice)"): (1e-3, 0.1),
    # It ignores the rows that are not in the batch.
    ("token-step", "torch SparseAdam (computes something else)"): (0.1, 2.0),
}
"""Errors that are no rounding, and are here to be shown: at least and at most."""


def measured(case: str, number: int, scale: Scale = SCALE) -> dict[str, Measured]:
    return measure(CASES[case].variants(scale)[number], scale, QUICK, once=True)["rows"]


@pytest.mark.every_nth(3)
@pytest.mark.parametrize(("case", "number", "name"), VARIANTS, ids=[f"{case}: {name}" for case, _, name in VARIANTS])
def test_every_candidate_of_every_variant_does_the_same_work(case: str, number: int, name: str) -> None:
    rows = measured(case, number)
    ours = {candidate: row for candidate, row in rows.items() if row["ours"]}
    assert ours
    for candidate, row in rows.items():
        if row["note"]:
            assert candidate not in ours or "compile" in candidate, row["note"]
            assert row["note"].startswith(ABSENT), (candidate, row["note"])
            assert row["times"] is None
            continue
        assert len(row["times"]["rounds"]) == QUICK.least
        assert min(row["times"]["rounds"]) > 0
        if row["error"] is not None:
            least, most = FAR.get((case, candidate), (0.0, 0.04 if "bfloat16" in name else 1e-5))
            assert least <= row["error"] < most, candidate
    limit = next(iter(rows))
    assert rows[limit]["times"]["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}


@pytest.mark.compile
@pytest.mark.parametrize(("case", "number"), [("rotary", 0), ("lookup", 1), ("attention", 0), ("window", 0)])
def test_what_needs_torch_compile_runs_too(case: str, number: int) -> None:
    rows = measured(case, number, Scale(quick=True, threads=1))
    compiled = {candidate: row for candidate, row in rows.items() if "compile" in candidate}
    assert compiled
    for candidate, row in compiled.items():
        assert row["note"] == "", candidate
        assert row["error"] < 1e-5


def test_a_peer_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: str) -> None:
        raise ImportError("no such thing")

    monkeypatch.setattr("importlib.import_module", fail)
    monkeypatch.setattr(peers, "_FAILED", {})  # else the failure would outlive this test
    with pytest.raises(Absent, match="does not import: no such thing"):
        load("transformers.models.llama")
    rows = measured("decoding", 0)
    assert [name for name, row in rows.items() if row["note"].startswith("does not import")] == ["transformers"]
    assert all(math.isfinite(row["error"]) for row in rows.values() if not row["note"])
