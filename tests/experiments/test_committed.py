"""The committed evidence: it can be read, its pages are current, and claims have the verdicts that its runs give."""

from pathlib import Path

import pytest

from experiments.errata_page import errata_page, measurement
from experiments.record import Evidence
from experiments.suite import EXPERIMENTS, decided, first_verdicts, read_evidence, undecided
from experiments.tutorials.all_claims import CLAIMS
from experiments.tutorials.trained import TrainedClaim
from whatwhere.comparison import Comparison
from whatwhere.comparison.settings import make_settings

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


def test_claims_that_no_run_decides_have_the_numbers_of_their_experiment(measured: list[Evidence]) -> None:
    numbers = undecided(measured)
    assert set(numbers) == {id for id, each in TRAINED.items() if each.verdict == "not measured"}
    page = errata_page([], numbers)
    for id, each in numbers.items():
        assert (each.verdict, each.holding) == ("not measured", 0)
        assert each.runs >= 3
        folded = page.split(f'<a id="{TRAINED[id].anchor}"></a>')[1].split("</details>")[0]
        assert f"<i>{measurement(each.measured)}</i></summary>" in folded
        assert f"Measured by [{TRAINED[id].experiment}](evidence.md#" in folded
        assert f"in 0 of {each.runs} runs, which does not refute that it may be so" in folded


@pytest.mark.parametrize("id", ["0.14", "0.14b", "0.33b"])
def test_claims_that_a_recipe_of_ours_decides_say_where_its_table_starts(id: str) -> None:
    recipe = make_settings("expressions", None, "author")
    assert f"batches of {recipe.batch} " in TRAINED[id].right
    assert f"Adam at {recipe.learning_rate} and a table that starts at N(0, {recipe.init}²)" in TRAINED[id].right


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
