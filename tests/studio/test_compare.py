"""Comparisons in the studio: beside results.json, beside NumPy for two checkpoints, and both on the page."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from whatwhere.claims import verdicts
from whatwhere.cli import app
from whatwhere.errors import ResultsError, SettingError
from whatwhere.studio.api import compare as api
from whatwhere.studio.api.about import about
from whatwhere.studio.jobs import Stopped
from whatwhere.studio.session import Session

WORDS = ["a", "b", "c", "d", "e", "f"]


def quiet(share: float, said: str) -> None:
    """Report to nobody."""


@pytest.fixture(scope="module")
def session(results: Path) -> Session:
    """Open a small comparison."""
    return Session.open(results)


@pytest.fixture(scope="module")
def written(results: Path) -> dict[str, Any]:
    """Read what the comparison wrote."""
    found: dict[str, Any] = json.loads((results / "results.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write two models of six and five tokens, five of which are the same words; one row is moved."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("pair")
    table = rng.standard_normal((6, 4)).astype(np.float32)
    moved = table[[1, 0, 2, 3, 4]].copy()
    moved[2] += 1
    for name, rows, words in (("one", table, WORDS), ("other", moved, ["b", "a", "c", "d", "z"])):
        (folder / name).mkdir()
        save_file({"embed_tokens.weight": rows}, folder / name / "model.safetensors")
        vocab = {word: n for n, word in enumerate(words)}
        (folder / name / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
        config = {"model_type": "llama", "vocab_size": len(words), "hidden_size": 4}
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder / "one", folder / "other"


def test_scores_are_those_of_the_file(session: Session, written: dict[str, Any]) -> None:
    found = api.results(session, {})
    assert found.schemes == ["learned", "rotary+alibi"]
    assert (found.lengths.tolist(), found.trained, found.seeds) == ([2, 3, 4, 6], 2, [0, 1])
    assert list(found.scores) == found.task.groups == ["all", "First", "Second", "Last", "Max", "Min"]
    for scheme, name in enumerate(found.schemes):
        for place, length in enumerate(found.lengths.tolist()):
            for group, spreads in found.scores.items():
                said = written["summary"][name]["scores"][str(length)][group]
                right = [np.nan] * 3 if said is None else [said[which] for which in ("median", "min", "max")]
                np.testing.assert_array_equal(spreads[scheme, place], right)
    assert np.isnan(found.scores["all"][0, 2:]).all(), "learned positions have no row beyond 3 arguments"
    for run in written["runs"]:
        row = found.each[found.schemes.index(run["scheme"]), run["seed"]]
        right = [run["scores"][str(length)]["all"] for length in found.lengths.tolist()]
        np.testing.assert_array_equal(row, [np.nan if value is None else value for value in right])
    assert [each.values.tolist() for each in found.baselines] == [
        [values[str(length)] for length in found.lengths.tolist()] for values in written["task"]["baselines"].values()
    ]


def test_the_rest_is_that_of_the_file_too(session: Session, written: dict[str, Any]) -> None:
    found = api.results(session, {})
    for name, values in vars(found.shift).items():
        for scheme, each in enumerate(found.schemes):
            for place, shift in enumerate(found.shifts.tolist()):
                said = written["summary"][each]["shift"][str(shift)][name]
                assert values[scheme, place, 0] == pytest.approx(
                    np.nan if said is None else said["median"], nan_ok=True
                )
    assert [each.claim for each in found.verdicts] == [each.claim for each in verdicts(session.results)]
    assert found.reproduction.command == written["command"]
    assert ["steps", "7"] in found.reproduction.settings.rows
    assert [cost.positions for cost in found.costs] == [8 * 16, 0]
    assert "learned" in found.sentences.answer
    assert "<" not in found.sentences.answer


def test_a_part_that_cannot_be_read_is_said(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "a")
    content = json.loads((tmp_path / "a/results.json").read_text(encoding="utf-8"))
    content["summary"]["learned"]["in_length"] = {"median": "high"}
    (tmp_path / "a/results.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ResultsError, match="Expected `float`, got `str`"):
        api.results(Session.open(tmp_path / "a"), {})


def test_what_is_no_comparison_says_the_way_out(fresh: Session, pair: tuple[Path, Path]) -> None:
    with pytest.raises(SettingError, match="no folder of a comparison"):
        api.results(fresh, {})
    with pytest.raises(SettingError, match="whatwhere studio A B"):
        api.difference(Session.open(pair[0]), {}, quiet)
    for settings, said in (
        ({"k": 0}, "from 1 to 100"),
        ({"table": "x"}, "input, readout"),
        ({"path": "x"}, "no setting"),
    ):
        with pytest.raises(SettingError, match=said):
            api.difference(Session.open(*pair), settings, quiet)


def test_two_checkpoints_are_compared_by_their_words(pair: tuple[Path, Path]) -> None:
    session, told = Session.open(*pair), []
    found = api.difference(session, {"k": 2}, lambda share, said: told.append((share, said))).tokens
    assert (found.matched_by, found.shared) == ("text", 4)
    assert (found.removed, found.new, found.removed_count, found.new_count) == (["e", "f"], ["z"], 2, 1)
    assert found.rows.equal == 3
    (moved,) = found.rows.moved_most
    table = session.table().weight[:4].astype(np.float64)
    assert (moved.token, moved.ids) == ("c", (2, 2))
    assert moved.distance == pytest.approx(2 / np.median(np.linalg.norm(table, axis=1)), rel=1e-5)
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    told.clear()
    api.difference(session, {"k": 2}, lambda share, said: told.append((share, said)))
    assert told == [], "the second time it is only read"
    assert about(session, {}).other == str(pair[1])


def test_a_comparison_can_be_stopped(pair: tuple[Path, Path]) -> None:
    def stop(share: float, said: str) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        api.difference(Session.open(*pair), {}, stop)


def test_the_command_takes_a_second_file(pair: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(app, ["studio", str(pair[0]), str(pair[1] / "gone")])
    assert done.exit_code == 1
    assert "gone" in done.output


def test_the_page_shows_what_the_api_answers(look: Callable[..., dict[str, Any]], session: Session) -> None:
    found = look(session, "compare.mjs", ready="figure .chart canvas")
    right = api.results(session, {})
    assert found["answer"] == right.sentences.answer
    assert found["titles"][:3] == [
        "Accuracy by length",
        "The same inputs, every position shifted",
        "Largest change of any logit",
    ]
    rows = list(csv.DictReader(io.StringIO(found["csv"].removeprefix("\ufeff"))))
    guesses = [each.name for each in right.baselines]
    assert [(row["scheme"], int(row["arguments"])) for row in rows] == [
        (name, length) for name in [*right.schemes, *guesses] for length in right.lengths.tolist()
    ]
    scores = [*right.scores["all"][:, :, 0], *(each.values for each in right.baselines)]
    medians = 100 * np.concatenate(scores)
    np.testing.assert_allclose([float(row["median"] or "nan") for row in rows], medians, rtol=1e-12)
    assert {"learned", "rotary+alibi", "trained up to 3"} <= set(found["texts"])
    assert found["bands"] == sum(2 if name == "learned" else 4 for name in right.schemes) // 2 - 1
    assert found["group"] == "#/compare?group=Max"
    assert len(found["verdicts"]) == len(right.verdicts)
    assert found["wrong"] == found["dark"] == found["complaints"] == []
    _fits(found)


def test_the_page_compares_two_checkpoints(look: Callable[..., dict[str, Any]], pair: tuple[Path, Path]) -> None:
    found = look(Session.open(*pair), "compare.mjs", ready=".difference")
    assert found["titles"][0] == "Tokens whose rows moved most"
    assert "4, matched by text" in found["facts"]
    assert found["wrong"] == found["dark"] == found["complaints"] == []
    _fits(found)


def test_with_one_file_the_page_says_how_to_compare(look: Callable[..., dict[str, Any]], fresh: Session) -> None:
    found = look(fresh, "compare.mjs", ready="main pre")
    assert "whatwhere studio A B" in found["main"]
    assert found["titles"] == found["wrong"] == found["dark"] == found["complaints"] == []
    _fits(found)


def _fits(found: dict[str, Any]) -> None:
    """The page is no wider than a telephone's screen, and nothing was asked of others."""
    assert (found["small"]["violations"], found["small"]["complaints"]) == ([], [])
    assert found["small"]["overflow"] <= 0
    hosts = {urlsplit(url).hostname for url in found["requests"] if not url.startswith(("data:", "blob:"))}
    assert hosts == {"127.0.0.1"}
