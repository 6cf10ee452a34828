"""Claims about trained rows, on a real model: MiniLM, which a package of the dev extra brings."""

import re
from pathlib import Path

import pytest

import whatwhere as ww
from experiments.tutorials import all_claims
from experiments.tutorials.all_claims import Finding, claim, measure, measure_claims
from experiments.tutorials.claim import MeasuredClaim
from experiments.tutorials.rows_of_minilm import CLAIMS

REAL = [each for each in CLAIMS if isinstance(each, MeasuredClaim)]


@pytest.fixture(scope="session")
def findings(minilm: Path) -> dict[str, Finding]:
    checkpoint = ww.read(minilm)
    return {each.id: measure(each, checkpoint) for each in REAL}


@pytest.mark.parametrize("each", REAL, ids=lambda each: each.id)
def test_the_measurement_confirms_the_verdict(each: MeasuredClaim, findings: dict[str, Finding]) -> None:
    finding = findings[each.id]
    assert finding.verdict == each.verdict, finding.measured
    assert finding.confirmed
    assert not finding.reason


@pytest.mark.parametrize("each", REAL, ids=lambda each: each.id)
def test_numbers_of_the_text_are_measured(each: MeasuredClaim, findings: dict[str, Finding]) -> None:
    numbers = {f"{each.value:.2f}" for each in findings[each.id].measured if isinstance(each.value, float)}
    text = each.right.partition("A task of 20 tokens")[0]
    assert set(re.findall(r"\b0\.\d\d\b", text)) <= numbers


def test_without_a_checkpoint_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = (measure(each) for each in REAL if each.id == "4.14")
    assert (finding.verdict, finding.confirmed) == ("not measured", False)
    assert "checkpoint" in finding.reason
    monkeypatch.setattr(all_claims, "CLAIMS", [claim("0.1"), claim("4.14")])
    assert [each.id for each in measure_claims()] == ["0.1"]


def test_a_vocabulary_without_the_words_is_named(tmp_path: Path) -> None:
    file = tmp_path / "few.vec"
    file.write_text("2 3\nking 1 0 0\nqueen 1 1 0\n", encoding="utf-8")
    chosen = claim("3.11")
    assert isinstance(chosen, MeasuredClaim)
    finding = measure(chosen, ww.read(file))
    assert finding.verdict == "not measured"
    assert "cat" in finding.reason
