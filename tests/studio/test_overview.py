"""Overview: what it tells is what inspection finds, live and frozen, of a model, of results, and of nothing."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from whatwhere.errors import SettingError
from whatwhere.inspection import inspect
from whatwhere.studio import examined, freezing
from whatwhere.studio.api import FROZEN, WORKS
from whatwhere.studio.bundle import PAGE
from whatwhere.studio.sources import Source


def asked(source: Source, **settings: Any) -> dict[str, Any]:
    """Run the job at once."""
    return WORKS["overview.inspected"](source, settings, lambda share, said: None)


def passage(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Give the parts of a section."""
    return next(each["parts"] for each in answer["passages"] if each["name"] == name)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a model with learned positions, some rows of which are not well."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("overview") / "model"
    folder.mkdir()
    rows = rng.standard_normal((600, 64)).astype(np.float32)
    rows[7] = 0
    rows[9] = rows[8]
    places = rng.standard_normal((48, 64)).astype(np.float32)
    save_file({"wte.weight": rows, "wpe.weight": places}, folder / "model.safetensors")
    settings = {"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 2, "vocab_size": 600, "n_positions": 48}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def test_it_tells_what_is_found(model: Path) -> None:
    reports: list[tuple[float, str]] = []
    answer = WORKS["overview.inspected"](Source.open(model), {}, lambda share, said: reports.append((share, said)))
    assert [share for share, _ in reports] == sorted(share for share, _ in reports)
    assert "looking for hubs" in [said for _, said in reports]
    found = inspect(model)
    assert answer["answer"] == found.answer
    assert [each["name"] for each in answer["passages"]] == list(found.data["sections"])
    rows = found.checkpoint.array("wte.weight").astype(np.float64)  # type: ignore[union-attr]
    norms = np.linalg.norm(rows, axis=1)
    counts, edges = np.histogram(norms, len(answer["lengths"]["counts"]))
    np.testing.assert_array_equal(answer["lengths"]["counts"], counts)
    np.testing.assert_allclose(answer["lengths"]["edges"], edges, rtol=1e-5)
    sound = rows[norms > 0]
    spread = np.linalg.svd(sound - sound.mean(axis=0), compute_uv=False) ** 2
    names = [each["name"] for each in answer["spectra"]]
    assert names == ["token rows", "positions"]
    np.testing.assert_allclose(answer["spectra"][0]["shares"], spread / spread.sum(), rtol=1e-4)
    tables = {part["caption"]: part for part in passage(answer, "unhealthy") if "caption" in part}
    assert tables["Rows that are all zeros"]["rows"] == [["#7", ""]]
    assert tables["Rows that are equal"]["rows"] == [["#8", "#8  #9"]]


def test_views_share_what_was_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    rows = examined.rows
    monkeypatch.setattr(examined, "rows", lambda subject: calls.append(subject) or rows(subject))
    source = Source.open(model)
    asked(source)
    examined_health = WORKS["health.examine"](source, {}, lambda share, said: None)
    assert asked(source)["answer"]
    assert FROZEN["overview"](source) is not None
    assert len(calls) == 1
    assert examined_health["lists"]["zero"]["ids"].tolist() == [7]
    # Nor is looked again for what a command has found.
    kept = Source.open(model)
    examined.keep(kept, inspect(model).data)
    asked(kept)
    WORKS["health.examine"](kept, {}, lambda share, said: None)
    assert len(calls) == 1


def test_of_results_it_tells_of_the_table_that_is_shown(results: Path) -> None:
    source = Source.open(results)
    answer = asked(source)
    # Positions are another run's than tokens, so nothing is said of both.
    assert [each["name"] for each in answer["passages"]] == ["norms", "spectrum", "unhealthy"]
    weight = source.table().weight
    assert answer["answer"] == f"{len(weight)} tokens x {weight.shape[1]}"
    assert answer["lengths"]["counts"].sum() == len(weight)


def test_with_nothing_loaded_it_tells_of_the_fresh_table(fresh: Source) -> None:
    answer = asked(fresh)
    assert answer["answer"] == "20 tokens x 64"
    assert passage(answer, "rotary") == [
        {"said": "There is no configuration, so nothing says where the tokens of this model stand."}
    ]
    with pytest.raises(SettingError, match="no setting"):
        asked(fresh, section="norms")


def test_a_file_without_a_token_table_says_so(tmp_path: Path) -> None:
    save_file({"some.bias": np.ones(4, np.float32)}, tmp_path / "model.safetensors")
    answer = asked(Source.open(tmp_path / "model.safetensors"))
    assert answer["answer"] == "No token table was found"
    assert (answer["lengths"], answer["spectra"]) == (None, [])
    assert passage(answer, "norms")[0]["said"].startswith("No tensor was found to be the token table")


def test_the_page_tells_it_live_and_frozen(look: Callable[..., dict[str, Any]], model: Path, tmp_path: Path) -> None:
    source = Source.open(model)
    bundle = Path(os.environ.get("STUDIO_PAGE", PAGE))
    file = freezing.write_page(source, tmp_path / "page.html", bundle)
    seen, answer = look(source, "overview.mjs", file=str(file)), asked(source)
    titles = [each["title"] for each in answer["passages"]]
    for shown in (seen["live"], seen["frozen"]):
        assert shown["answer"] == f"{answer['answer']}."
        assert shown["titles"] == titles
        told = [part["said"] for each in answer["passages"] for part in each["parts"] if "said" in part]
        assert [said for said in shown["told"] if not said.startswith("More: ")] == told
        sizes = next(part for part in passage(answer, "sizes") if "rows" in part)
        assert shown["sizes"] == sizes["rows"]
        assert shown["charts"] == 2
    assert (seen["frozen"]["view"], seen["frozen"]["first"]) == ("Overview", "Overview")
    assert seen["focused"] == "Positions"
    assert seen["more"] == {"Unhealthy tokens": "#/health", "Positions": "#/positions", "Rotary lab": "#/rotary"}
    assert seen["card"] == "#/tokens?token=%237"
    lengths = list(csv.DictReader(io.StringIO(seen["csv"].removeprefix("\ufeff"))))
    assert [int(row["rows"]) for row in lengths] == answer["lengths"]["counts"].tolist()
    parts = list(csv.DictReader(io.StringIO(seen["parts"].removeprefix("\ufeff"))))
    assert float(parts[0]["parameters"]) == 600 * 64
    assert seen["plain"].index(f"{answer['answer']}.") < seen["plain"].index(titles[0])
    for each in titles:
        assert each in seen["plain"]
    assert seen["light"] == seen["dark"] == seen["small"]["violations"] == []
    assert seen["small"]["overflow"] <= 0
    assert seen["complaints"] == seen["small"]["complaints"] == []
    assert {url.partition(":")[0] for url in seen["frozen"]["requests"]} <= {"file", "data", "blob"}
