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
from whatwhere.records import with_checksum
from whatwhere.report.section import Chart, Section
from whatwhere.report.text import number
from whatwhere.studio.api import about
from whatwhere.studio.api import findings as api
from whatwhere.studio.session import Session

from .conftest import csv_rows, quiet

WORDS = ["a", "b", "c", "d", "e", "f"]


def paragraphs(section: Section) -> list[str]:
    return [part for part in section.parts if isinstance(part, str)]


@pytest.fixture(scope="module")
def written(results: Path) -> dict[str, Any]:
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


def charts(session: Session) -> dict[str, Chart]:
    parts = [part for section in api.results(session, {}).sections for part in section.parts]
    return {part.title: part for part in parts if isinstance(part, Chart)}


def test_charts_have_the_scores_of_the_file(session: Session, written: dict[str, Any]) -> None:
    found, schemes = charts(session), ["learned", "rotary+alibi"]
    scores = {name: written["summary"][name]["scores"] for name in schemes}
    shifts = {name: written["summary"][name]["shift"] for name in schemes}
    drawn = {"The same inputs, every position shifted": lambda name, x: shifts[name][x]["score"]}
    for group in ("all", *written["task"]["groups"]):
        title = f"Accuracy by length{'' if group == 'all' else f', {group} alone'}"
        drawn[title] = lambda name, x, group=group: scores[name][x][group]
    assert set(drawn) <= set(found)
    for title, right in drawn.items():
        chart = found[title]
        for name, series in zip(schemes, chart.series, strict=False):
            spreads = [right(name, f"{x:.0f}") for x in chart.x]
            for values, which in ((series.values, "median"), (series.low, "min"), (series.high, "max")):
                np.testing.assert_array_equal(values, [np.nan if s is None else 100 * s[which] for s in spreads])
    assert found["Accuracy by length"].x == [2, 3, 4, 6]
    baselines = [each.values for each in found["Accuracy by length"].series if each.reference]
    np.testing.assert_allclose(
        baselines, [[100 * line[str(n)] for n in (2, 3, 4, 6)] for line in written["task"]["baselines"].values()]
    )
    for name, scheme in written["schemes"].items():
        picture = found[f"Fingerprint of {name}"]
        np.testing.assert_allclose([row.values for row in picture.series], scheme["fingerprint"]["values"])


def test_damaged_results_are_refused(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "a")
    content = json.loads((tmp_path / "a/results.json").read_text(encoding="utf-8"))
    content["summary"]["learned"]["in_length"] = {"median": "high"}
    (tmp_path / "a/results.json").write_text(json.dumps(with_checksum(content)), encoding="utf-8")
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
    cosine, norms = (f"{exact[name]:.4f}".replace("-", "−") for name in ("cosine", "norm B / A"))
    assert moved.table.rows == [["c", "2", "2", number(exact["distance"]), cosine, norms]]
    assert [fraction for fraction, _ in reports] == sorted(fraction for fraction, _ in reports)
    reports.clear()
    api.difference(session, {"k": 2}, lambda *report: reports.append(report))
    assert reports == [], "the second time nothing is computed"
    assert about(session, {}).other == str(pair[1])


def test_the_command_takes_a_second_file(pair: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(app, ["studio", str(pair[0]), str(pair[1] / "gone")])
    assert done.exit_code == 1
    assert "gone" in done.output


def test_the_page_shows_what_was_measured(look: Callable[..., dict[str, Any]], session: Session) -> None:
    shown = look(session, "compare.mjs", ready="figure .lines > svg")
    assert shown["answer"] == f"{api.results(session, {}).headline}."
    found = charts(session)
    assert shown["titles"] == [*found]
    series = found["Accuracy by length"].series
    rows = csv_rows(shown["csv"])
    assert [int(row["arguments"]) for row in rows] == [2, 3, 4, 6]
    for each in series:
        np.testing.assert_allclose([float(row[each.name] or "nan") for row in rows], each.values, rtol=1e-12)
        if each.low:
            np.testing.assert_allclose([float(row[f"{each.name}, least"] or "nan") for row in rows], each.low)
    # A table of positions ends at the trained length, under the curves of the others.
    names = [each.name for each in series]
    ends = f"{names[0]} (ends at 3)"
    assert {ends, "trained up to 3"} <= set(shown["texts"])
    assert shown["legend"] == [ends, *names[1:]]
    assert shown["bands"] == 2
    before, hidden = shown["hidden"]
    # A hidden scheme takes its band with it; a baseline has none.
    assert before == [2 if each.low else 1 for each in series]
    assert hidden == before[1:]
    assert {line.split("\t")[0] for line in shown["tip"].split("\n")} >= set(names)
    assert shown["read"].startswith("arguments 6: ")
    assert shown["overprinted"] == []
    first, second = shown["first"]
    assert first == 0 > second, "the names of the rows stay, the numbers are scrolled"


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


def test_views_with_data_are_listed_by_group_and_the_first_is_opened(
    fresh: Session, real: Session, session: Session, minilm: Path
) -> None:
    names = {each.kind: " ".join(about(each, {}).views) for each in (fresh, real, session)}
    assert names["fresh"] == "pipeline overview tokens map diagnostics positions rotary biases"
    assert names["checkpoint"] == "overview pipeline tokens map diagnostics positions"
    assert names["results"] == f"compare ask {names['checkpoint']} rotary biases replay attention"
    assert [*about(Session.open(minilm, minilm), {}).views][:2] == ["compare", "overview"]
    groups = list(dict.fromkeys(view.group for view in about(session, {}).views.values()))
    assert groups == ["Models", "Tokens", "Positions", "Training"]
