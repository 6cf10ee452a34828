"""Comparisons in the studio against results.json, two checkpoints against NumPy, and both on the page."""

import json
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from whatwhere.cli import app
from whatwhere.errors import ResultsError
from whatwhere.records import sealed
from whatwhere.report.section import Chart, Section
from whatwhere.studio.api import comparison as api
from whatwhere.studio.api.about import about
from whatwhere.studio.jobs import Stopped
from whatwhere.studio.session import Session

from .conftest import csv_rows

WORDS = ["a", "b", "c", "d", "e", "f"]


def paragraphs(section: Section) -> list[str]:
    """Return the sentences of a section."""
    return [part for part in section.parts if isinstance(part, str)]


def quiet(fraction: float, message: str) -> None:
    """Ignore progress."""


@pytest.fixture(scope="module")
def written(results: Path) -> dict[str, Any]:
    """Read what the comparison wrote."""
    content: dict[str, Any] = json.loads((results / "results.json").read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write two models of six and five tokens, four of which they share; one row is moved, and theta is another."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("pair")
    table = rng.standard_normal((6, 4)).astype(np.float32)
    moved = table[[1, 0, 2, 3, 4]].copy()
    moved[2] += 1
    other_words = ["b", "a", "c", "d", "z"]
    for name, rows, words, theta in (("one", table, WORDS, 1e4), ("other", moved, other_words, 1e6)):
        (folder / name).mkdir()
        save_file({"embed_tokens.weight": rows}, folder / name / "model.safetensors")
        vocab = {word: n for n, word in enumerate(words)}
        (folder / name / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
        config = {
            "model_type": "llama", "vocab_size": len(words), "hidden_size": 4, "num_attention_heads": 1,
            "num_hidden_layers": 2, "rope_theta": theta, "max_position_embeddings": 64,
        }  # fmt: skip
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder / "one", folder / "other"


def test_scores_are_those_of_the_file(session: Session, written: dict[str, Any]) -> None:
    measured = api.results(session, {})
    assert measured.schemes == ["learned", "rotary+alibi"]
    assert (measured.lengths.tolist(), measured.trained, measured.seeds) == ([2, 3, 4, 6], 2, (0, 1))
    assert list(measured.scores) == measured.task.groups == ["all", "First", "Second", "Last", "Max", "Min"]
    for scheme, name in enumerate(measured.schemes):
        for n, length in enumerate(measured.lengths.tolist()):
            for group, spreads in measured.scores.items():
                spread = written["summary"][name]["scores"][str(length)][group]
                right = [np.nan] * 3 if spread is None else [spread[which] for which in ("median", "min", "max")]
                np.testing.assert_array_equal(spreads[scheme, n], right)
    assert np.isnan(measured.scores["all"][0, 2:]).all(), "learned positions have no row beyond 3 arguments"
    for run in written["runs"]:
        row = measured.each[measured.schemes.index(run["scheme"]), run["seed"]]
        right = [run["scores"][str(length)]["all"] for length in measured.lengths.tolist()]
        np.testing.assert_array_equal(row, [np.nan if value is None else value for value in right])
    assert [each.values.tolist() for each in measured.baselines] == [
        [values[str(length)] for length in measured.lengths.tolist()]
        for values in written["task"]["baselines"].values()
    ]


def test_shifts_and_costs_are_those_of_the_file(session: Session, written: dict[str, Any]) -> None:
    measured = api.results(session, {})
    for scheme, each in enumerate(measured.schemes):
        for n, shift in enumerate(measured.shifts.tolist()):
            spread = written["summary"][each]["shift"][str(shift)]["score"]
            median = np.nan if spread is None else spread["median"]
            assert measured.shift[scheme, n, 0] == pytest.approx(median, nan_ok=True)
    assert measured.command == written["command"]
    assert ["steps", "7"] in measured.settings.rows
    assert [row[2] for row in measured.summary[1].rows] == ["128", "0"]
    assert "learned" in measured.sentences.answer
    assert "<" not in measured.sentences.answer


def test_damaged_results_are_refused(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "a")
    content = json.loads((tmp_path / "a/results.json").read_text(encoding="utf-8"))
    content["summary"]["learned"]["in_length"] = {"median": "high"}
    (tmp_path / "a/results.json").write_text(json.dumps(sealed(content)), encoding="utf-8")
    with pytest.raises(ResultsError, match="Expected `float`, got `str`"):
        api.results(Session.open(tmp_path / "a"), {})


def test_two_checkpoints_are_matched_by_the_text_of_tokens(pair: tuple[Path, Path]) -> None:
    session = Session.open(*pair)
    reports: list[tuple[float, str]] = []
    answer = api.difference(session, {"k": 2}, lambda *report: reports.append(report))
    assert answer.headline.startswith("4 tokens in both, 3 rows equal, ")
    texts = paragraphs(answer.sections[0])
    assert texts[:3] == [
        "4 tokens in both, matched by text.",
        "2 tokens in A alone: 'e', 'f'.",
        "1 token in B alone: 'z'.",
    ]
    moved = next(part for part in answer.sections[0].parts if isinstance(part, Chart))
    table = session.table().weight[:4].astype(np.float64)
    row = table[2]
    exact = {
        "distance": 2 / np.median(np.linalg.norm(table, axis=1)),
        "cosine": row @ (row + 1) / np.linalg.norm(row) / np.linalg.norm(row + 1),
        "norm B / A": np.linalg.norm(row + 1) / np.linalg.norm(row),
    }
    assert {each.name: each.values for each in moved.series} == {
        name: [pytest.approx(value, rel=1e-5)] for name, value in exact.items()
    }
    assert moved.table.columns == ("row", "id in A", "id in B", *exact)
    assert moved.table.rows == [["c", "2", "2", *(f"{value:.4f}".replace("-", "−") for value in exact.values())]]
    assert [fraction for fraction, _ in reports] == sorted(fraction for fraction, _ in reports)
    reports.clear()
    api.difference(session, {"k": 2}, lambda *report: reports.append(report))
    assert reports == [], "the second time nothing is computed"
    assert about(session, {}).other == str(pair[1])


def test_a_comparison_can_be_stopped(pair: tuple[Path, Path]) -> None:
    def stop(fraction: float, message: str) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        api.difference(Session.open(*pair), {}, stop)


def test_the_command_takes_a_second_file(pair: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(app, ["studio", str(pair[0]), str(pair[1] / "gone")])
    assert done.exit_code == 1
    assert "gone" in done.output


def test_the_page_shows_what_was_measured(look: Callable[..., dict[str, Any]], session: Session) -> None:
    shown = look(session, "compare.mjs", ready="figure .lines > svg")
    measured = api.results(session, {})
    assert shown["answer"] == measured.sentences.answer
    assert shown["titles"][:2] == [
        "Accuracy by length",
        "The same inputs, every position shifted",
    ]
    rows = csv_rows(shown["csv"])
    baselines = [each.name for each in measured.baselines]
    assert [(row["scheme"], int(row["arguments"])) for row in rows] == [
        (name, length) for name in [*measured.schemes, *baselines] for length in measured.lengths.tolist()
    ]
    scores = [*measured.scores["all"][:, :, 0], *(each.values for each in measured.baselines)]
    medians = 100 * np.concatenate(scores)
    np.testing.assert_allclose([float(row["median"] or "nan") for row in rows], medians, rtol=1e-12)
    # A table of positions ends at the trained length, under the curves of the others.
    assert {"learned (ends at 3)", "rotary+alibi", "trained up to 3"} <= set(shown["texts"])
    assert shown["bands"] == len(measured.schemes)
    assert "learned (ends at 3)" in shown["legend"]
    names = [name.removesuffix(" (ends at 3)") for name in shown["legend"]]
    assert names == [*measured.schemes, *(each.name for each in measured.baselines if each.in_chart)]
    before, hidden = shown["hidden"]
    # A hidden scheme takes its band with it; a baseline has none.
    assert before == [2] * len(measured.schemes) + [1] * (len(before) - len(measured.schemes))
    assert hidden == before[1:]
    assert {line.split("\t")[0] for line in shown["tip"].split("\n")} >= set(names)
    assert shown["read"].startswith("arguments 6: ")
    assert shown["overprinted"] == []
    assert shown["group"] == "#/compare?group=Max"


def test_the_page_compares_two_checkpoints(look: Callable[..., dict[str, Any]], pair: tuple[Path, Path]) -> None:
    session = Session.open(*pair)
    shown = look(session, "compare.mjs", ready=".difference")
    answer = api.difference(session, {"k": 10}, quiet)
    assert shown["paragraphs"] == [f"{answer.headline}.", *chain.from_iterable(map(paragraphs, answer.sections))]
    moved, rotated = (part for section in answer.sections for part in section.parts if isinstance(part, Chart))
    assert shown["titles"] == [moved.title, rotated.title]
    assert [bar.split() for bar in shown["bars"]] == [["c", moved.table.rows[0][3]]]
    assert {"c", moved.table.rows[0][3]} <= set(shown["texts"])
    (row,) = csv_rows(shown["csv"])
    assert [float(row[each.name]) for each in moved.series] == [each.values[0] for each in moved.series]
    rows = csv_rows(shown["rotated"])
    assert [float(row["distance"]) for row in rows] == [*rotated.x]
    assert [float(row["cosine"]) for row in rows] == [*rotated.series[0].values]
    assert rotated.series[0].values == pytest.approx([np.cos(d * (1e4**-0.5 - 1e6**-0.5)) / 2 + 0.5 for d in rotated.x])


def test_views_without_data_are_not_listed(fresh: Session, real: Session, results: Path, minilm: Path) -> None:
    any_table = ["pipeline", "overview", "tokens", "map", "diagnostics"]
    assert [*about(fresh, {}).views] == [*any_table, "positions", "rotary", "biases"]
    assert [*about(real, {}).views] == [*any_table, "positions"]
    assert [*about(Session.open(minilm, minilm), {}).views] == [*any_table, "positions", "compare"]
    assert [*about(Session.open(results), {}).views] == [
        "compare", *any_table, "positions", "biases", "replay", "attention", "ask",
    ]  # fmt: skip
