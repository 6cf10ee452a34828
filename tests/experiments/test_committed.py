"""The committed evidence: it can be read, its pages are current, and claims have the verdicts that its runs give."""

from pathlib import Path

import pytest

from experiments.record import Evidence
from experiments.suite import EXPERIMENTS, decided, first_verdicts, read_evidence
from experiments.tutorials.all_claims import CLAIMS
from experiments.tutorials.trained import TrainedClaim
from whatwhere.comparison import Comparison

FOLDER = Path(__file__).parents[2] / "evidence"


TRAINED = {each.id: each for each in CLAIMS if isinstance(each, TrainedClaim)}


@pytest.fixture(scope="module")
def measured() -> list[Evidence]:
    """Return the committed evidence."""
    return read_evidence(FOLDER)


def test_claims_have_the_verdicts_of_the_committed_runs(measured: list[Evidence]) -> None:
    first = {
        each.id: (each.verdict, evidence.id) for evidence in reversed(measured) for each in evidence.verdicts
    }  # of several experiments the first, which is written last
    assert {id: verdict for id, (verdict, _) in first.items()} == {
        id: each.verdict for id, each in first_verdicts(measured).items()
    }
    written = {id: (each.verdict, each.experiment) for id, each in TRAINED.items() if each.verdict != "not measured"}
    assert written == first


def test_the_committed_runs_are_judged_so_again(measured: list[Evidence]) -> None:
    """Those claims that take a kept model or table, which the light record has not, are "not measured" here."""
    again = 0
    for evidence in measured:
        comparisons = [Comparison(FOLDER, record) for record in evidence.comparisons.values()]
        committed = {each.id: each for each in evidence.verdicts}
        for each in decided(comparisons):
            other = committed[each.id]
            assert (each.verdict, each.holding, each.runs) == (other.verdict, other.holding, other.runs), each.id
            again += 1
    assert again > 0.9 * sum(len(evidence.verdicts) for evidence in measured)


def test_every_file_is_that_of_an_experiment() -> None:
    ids = {each.id for each in EXPERIMENTS if each.measure is not None}
    assert {file.stem for file in FOLDER.glob("*.json")} <= ids
    assert [each.id for each in read_evidence(FOLDER)][:2] == ["E0", "E1"]
