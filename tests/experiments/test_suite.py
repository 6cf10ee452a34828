"""The suite: which experiments run, what is kept, what is done again, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import __main__ as command
from experiments import suite
from experiments.bench import Experiment
from experiments.evidence_page import fault_row, page, unequal_test_sets
from experiments.record import FaultRow, Statement
from whatwhere.comparison.results import Spread
from whatwhere.errors import ResultsError
from whatwhere.records import with_checksum

from ..comparison.made_up import made_up_folder

ONE = Statement("X1.1", "one is one", "arithmetic", "one", "1", "number")


@pytest.fixture
def calls(monkeypatch):
    """Replace the experiments by one that counts its calls, and one that is not measured."""
    made = []

    def measure(bench):
        made.append(bench.folder)
        return [bench.judge(ONE, [1.0, 1.0])]

    experiments = (
        Experiment("X1", "One", "Is one one?", measure),
        Experiment("X2", "Many", "Are there many?", None, (), "needs a larger machine"),
    )
    monkeypatch.setattr(suite, "EXPERIMENTS", experiments)
    return made


def test_what_is_finished_is_not_done_again(calls, tmp_path):
    first = suite.run_evidence(tmp_path, "quick")
    again = suite.run_evidence(tmp_path, "quick")
    assert len(calls) == 1
    assert again[0].results == first[0].results == suite.read_evidence(tmp_path)[0].results
    path = tmp_path / "X1.json"
    content = json.loads(path.read_text())
    content["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(with_checksum(content)))
    suite.run_evidence(tmp_path, "quick")
    assert len(calls) == 2, "another version is measured again"


def test_scopes_are_not_mixed_in_a_folder(calls, tmp_path):
    suite.run_evidence(tmp_path, "quick")
    with pytest.raises(ResultsError, match="quick scope, but full was requested"):
        suite.run_evidence(tmp_path, "full")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(("X1", content, "X1") for content in ("{}", "[]", "{", '{"format": "whatwhere evidence", "version": 1}')),
        ("results", "{}", "holds the results of a comparison"),
    ],
)
def test_a_damaged_file_and_the_folder_of_a_comparison_are_refused(calls, tmp_path, name, content, message):
    (tmp_path / f"{name}.json").write_text(content)
    with pytest.raises(ResultsError, match=message):
        suite.run_evidence(tmp_path, "quick")
    assert not calls


def test_a_fault_without_an_effect_is_not_said_to_be_detected():
    right = {"in length": Spread(1.0, 1.0, 1.0)}
    cells = {}
    for change in (5e-6, 0.12):
        fault = FaultRow("packs", "alibi", "positions", right, right, Spread(0.0, 0.0, change), (), None)
        cells[change] = fault_row(fault)[-1]
    assert cells == {5e-6: "no effect: no logit changes by 0.01", 0.12: "comparing with the sequence alone"}


def test_the_commands_print_and_keep(calls, tmp_path):
    def printed(*words):
        done = CliRunner().invoke(command.app, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "one is one" in printed("run", "--quick", "--out", str(tmp_path / "out"))
    assert (tmp_path / "out" / "X1.json").is_file()
    [record] = json.loads(printed("run", "--out", str(tmp_path / "out"), "--json"))
    assert record["results"][0]["verdict"] == "holds"
    assert "needs a larger machine" in printed("list")
    scopes = [each["scope"] for each in json.loads(printed("list", "--json"))]
    assert scopes == ["quick and full", "not measured: needs a larger machine"]
    results = str(made_up_folder(tmp_path / "results"))
    assert "Max and Min" in printed("judge", results)
    assert {each["verdict"] for each in json.loads(printed("judge", results, "--json"))} >= {"holds", "not measured"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--quick", "--full"], "pass one of them"),
        (["run", "--only", "E99"], "there is no experiment 'E99'"),
        (["run", "--only", "X2"], "needs a larger machine"),
        (["judge", "gone"], "gone"),
    ],
)
def test_wrong_input_is_refused_in_a_line(calls, words, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["experiments", *words])
    with pytest.raises(SystemExit, match="1"):
        command.main()
    assert message in capsys.readouterr().err


def test_experiments_on_texts_say_that_an_earlier_version_tested_unequal_numbers_of_tokens():
    evidence = {each.id: each for each in suite.read_evidence(Path(__file__).parents[2] / "evidence")}
    said = {name: unequal_test_sets(each) for name, each in evidence.items()}
    older = {name for name, each in evidence.items() if each.versions["whatwhere"] in ("0.1.0", "0.2.0")}
    assert {name for name, sentence in said.items() if sentence} == older & {"E3", "E8", "E10", "E17"}
    assert said["E1"] is None
    text = evidence["E3"]
    older, newer = (replace(text, versions={**text.versions, "whatwhere": name}) for name in ("0.1.0", "0.2.1.dev3"))
    assert unequal_test_sets(newer) is None
    sentence = str(unequal_test_sets(older))
    assert sentence.startswith("Measured by whatwhere 0.1.0, ")
    assert sentence in page([older], suite.EXPERIMENTS)
    assert sentence not in page([newer], suite.EXPERIMENTS)


def test_the_page_has_each_statement_and_what_is_not_measured(calls, tmp_path):
    text = page(suite.run_evidence(tmp_path, "quick"), suite.EXPERIMENTS)
    assert '<a id="x1"></a>' in text
    assert "| X1.1 | one is one | arithmetic | one: 1.000 | 2 | holds | 1 in 2 of 2. |" in text
    assert "| X2 | Many | needs a larger machine |" in text
