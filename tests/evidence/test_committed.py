"""The committed evidence: it can be read, its pages are current, and claims have the verdicts that its runs give."""

from pathlib import Path

import pytest

from whatwhere.claims.registry import CLAIMS
from whatwhere.claims.trained import TrainedClaim
from whatwhere.comparison import Comparison
from whatwhere.evidence.suite import EXPERIMENTS, read_evidence

FOLDER = Path(__file__).parents[2] / "evidence"


@pytest.fixture(scope="module")
def judged() -> dict[str, tuple[str, str]]:
    """Judge every trained claim by the first committed comparison that decides it."""
    verdicts: dict[str, tuple[str, str]] = {}
    for evidence in read_evidence(FOLDER):
        for record in evidence.comparisons.values():
            results = Comparison(FOLDER, record)
            for each in CLAIMS:
                if isinstance(each, TrainedClaim) and each.id not in verdicts:
                    verdict = each.judge(results).verdict
                    verdicts |= {each.id: (verdict, evidence.id)} if verdict != "not measured" else {}
    return verdicts


def test_claims_have_the_verdicts_of_the_committed_runs(judged: dict[str, tuple[str, str]]) -> None:
    trained = [each for each in CLAIMS if isinstance(each, TrainedClaim)]
    written = {each.id: (each.verdict, each.experiment) for each in trained if each.verdict != "not measured"}
    assert written == judged


def test_every_file_is_that_of_an_experiment() -> None:
    ids = {each.id for each in EXPERIMENTS if each.measure is not None}
    assert {file.stem for file in FOLDER.glob("*.json")} <= ids
    assert [each.id for each in read_evidence(FOLDER)][:2] == ["E0", "E1"]
