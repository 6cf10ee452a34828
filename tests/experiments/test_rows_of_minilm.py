"""Claims about trained rows, on a real model: MiniLM, which a package of the dev extra brings."""

import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import whatwhere as ww
from experiments.tutorials import all_claims
from experiments.tutorials.all_claims import Finding, claim, measure, measure_claims
from experiments.tutorials.claim import MeasuredClaim
from experiments.tutorials.rows_of_minilm import CLAIMS, PICTURE, SYNONYMS
from whatwhere.analysis.token_map import FOUR_GROUPS

REAL = [each for each in CLAIMS if isinstance(each, MeasuredClaim)]


@pytest.fixture(scope="session")
def findings(minilm: Path) -> dict[str, Finding]:
    checkpoint = ww.read(minilm)
    return {each.id: measure(each, checkpoint) for each in REAL}


@pytest.fixture(scope="session")
def rows(minilm: Path) -> dict[str, np.ndarray]:
    """Return rows of norm 1 by word, read without this library."""
    table = load_file(minilm / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)
    words = (minilm / "vocab.txt").read_text(encoding="utf-8").splitlines()
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    return {words[n]: row for n, row in enumerate(table)}


def value(finding: Finding, quantity: str) -> float:
    (found,) = [each.value for each in finding.measured if each.quantity == quantity]
    return float(found)


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


def test_cosines(findings: dict[str, Finding], rows: dict[str, np.ndarray]) -> None:
    for one, other in SYNONYMS:
        expected = float(rows[one] @ rows[other])
        assert value(findings["0.40"], f"cosine of {one} and {other}") == pytest.approx(expected, abs=1e-6)
    assert value(findings["1.2"], "cosine of king and queen") == pytest.approx(rows["king"] @ rows["queen"], abs=1e-6)
    assert value(findings["3.11"], "cosine of cat and dog") == pytest.approx(rows["cat"] @ rows["dog"], abs=1e-6)
    assert value(findings["3.11"], "cosine of cat and car") == pytest.approx(rows["cat"] @ rows["car"], abs=1e-6)


def test_nearest_in_the_group(findings: dict[str, Finding], rows: dict[str, np.ndarray]) -> None:
    for id, groups in (("4.14", FOUR_GROUPS), ("4.12", PICTURE)):
        group = {word: name for name, words in groups.items() for word in words}
        nearest = {
            word: max((each for each in group if each != word), key=lambda each: rows[word] @ rows[each])
            for word in group
        }
        kept = sum(group[word] == group[nearest[word]] for word in group)
        assert findings[id].measured[0].value == kept == len(group)


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
