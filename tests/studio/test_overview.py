"""Overview: it shows what inspection finds, live and exported, of a model, of results, and of nothing."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from whatwhere.analysis.inspection import SECTIONS, inspect
from whatwhere.report.inspection import headline
from whatwhere.report.section import Chart, Part, Table
from whatwhere.studio import export
from whatwhere.studio import session as session_module
from whatwhere.studio.api import EXPORTS, JOBS
from whatwhere.studio.api.settings import Findings
from whatwhere.studio.session import Session

from .conftest import csv_rows, quiet


def overview(session: Session, **settings: Any) -> Findings:
    return JOBS["overview.inspected"](session, settings, quiet)


def parts(answer: Findings, name: str) -> Sequence[Part]:
    return next(section.parts for section in answer.sections if section.name == name)


def names(answer: Findings) -> list[str]:
    return [section.name for section in answer.sections]


def chart(answer: Findings, name: str) -> Chart:
    return next(part for part in parts(answer, name) if isinstance(part, Chart))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model with learned positions, some rows of which are faulty."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("overview") / "model"
    folder.mkdir()
    rows = rng.standard_normal((600, 64)).astype(np.float32)
    rows[7] = 0
    rows[9] = rows[8]
    positions = rng.standard_normal((48, 64)).astype(np.float32)
    save_file({"wte.weight": rows, "wpe.weight": positions}, folder / "model.safetensors")
    settings = {"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 2, "vocab_size": 600, "n_positions": 48}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def test_it_shows_what_is_found(model: Path) -> None:
    reports: list[tuple[float, str]] = []
    answer = JOBS["overview.inspected"](Session.open(model), {}, lambda share, said: reports.append((share, said)))
    assert [share for share, _ in reports] == sorted(share for share, _ in reports)
    assert "looking for hubs" in [said for _, said in reports]
    result = inspect(model)
    assert answer.headline == headline(result)
    # What is one sentence, as that a model has no rotary, is told at the end.
    absent = ["tables", "rotary", "biases"]
    shown = [name for name in SECTIONS if name not in [*absent, "sizes"]]
    assert names(answer) == ["warnings", *shown, "sizes", "absent"]
    assert len(parts(answer, "absent")) == len(absent)
    (found,) = parts(answer, "warnings")
    assert [row[:2] for row in found.rows] == [("warning", "near-zero-rows"), ("warning", "diagnostics.duplicates")]
    tables = {part.caption: part for part in parts(answer, "diagnostics") if isinstance(part, Table)}
    assert [row[0] for row in tables["Zero rows"].rows] == ["#7"]
    assert [(row[0], row[-1]) for row in tables["Duplicate rows"].rows] == [("#8", "1"), ("#9", "1")]


def test_views_share_what_was_found(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    diagnose = session_module.token_diagnostics
    monkeypatch.setattr(session_module, "token_diagnostics", lambda subject: calls.append(subject) or diagnose(subject))
    session = Session.open(model)
    overview(session)
    diagnosed = JOBS["diagnostics.examine"](session, {}, quiet)
    assert overview(session).headline
    assert EXPORTS["overview"](session) is not None
    assert len(calls) == 1
    assert "Zero: 1" in [section.title for section in diagnosed.sections]
    # What a command has found is not computed again.
    kept = Session.open(model)
    kept.keep_inspection(inspect(model))
    overview(kept)
    JOBS["diagnostics.examine"](kept, {}, quiet)
    assert len(calls) == 1


def test_of_results_it_shows_one_table(results: Path) -> None:
    session = Session.open(results)
    answer = overview(session, run=session.run)
    # Positions may be another run's than tokens, so they are not compared.
    assert names(answer) == ["warnings", "norms", "spectrum", "diagnostics", "sizes"]
    weight = session.table().weight
    said = (
        f"{len(weight)} tokens × {weight.shape[1]}, {session.run.rpartition('-')[0]} positions; training changed the "
    )
    before = session.of_run("").checkpoint.array("input.tokens.weight@0")
    change = np.linalg.norm(weight - before) / np.linalg.norm(before)
    assert answer.headline == f"{said}table by {100 * change:.0f}\xa0% of its norm"
    norms = chart(answer, "norms")
    assert sum(norms.series[0].values) == len(weight)
    assert len(norms.x) <= 1 + 6, "Rice's rule for 20 rows"
    np.testing.assert_allclose(np.diff(norms.x), norms.x[1] - norms.x[0], rtol=1e-6)


def test_with_nothing_loaded_it_shows_the_fresh_table(fresh: Session) -> None:
    answer = overview(fresh)
    assert answer.headline == "20 tokens × 64"
    assert len(chart(answer, "spectrum").x) == 19, "20 rows less their mean have no other axes"
    assert parts(answer, "warnings") == ["No contradiction and no suspicious row was found."]
    assert "There is no configuration, so the positional encoding of this model is not known." in parts(
        answer, "absent"
    )


def test_a_file_without_a_token_table_says_so(tmp_path: Path) -> None:
    save_file({"some.bias": np.ones(4, np.float32)}, tmp_path / "model.safetensors")
    answer = overview(Session.open(tmp_path / "model.safetensors"))
    assert answer.headline == "No token table was found"
    assert any(str(part).startswith("No tensor was found to be the token table") for part in parts(answer, "absent"))


def test_the_page_shows_it_live_and_exported(look: Callable[..., dict[str, Any]], model: Path, tmp_path: Path) -> None:
    session = Session.open(model)
    file = export.write_page(session, tmp_path / "page.html")
    seen, answer = look(session, "overview.mjs", file=str(file)), overview(session)
    titles = [section.title for section in answer.sections]
    for shown in (seen["live"], seen["exported"]):
        assert shown["answer"] == f"{answer.headline}."
        assert shown["titles"] == titles
        texts = [part for section in answer.sections for part in section.parts if isinstance(part, str)]
        assert [said for said in shown["texts"] if not said.startswith("More: ")] == texts
        sizes = next(part for part in parts(answer, "sizes") if isinstance(part, Table))
        assert shown["sizes"] == sizes.rows
        assert shown["charts"] == 2
    assert (seen["exported"]["view"], seen["exported"]["first"]) == ("Overview", "Overview")
    assert seen["focused"] == "Position embedding"
    assert seen["more"] == {"Diagnostics": "#/diagnostics", "Positions": "#/positions"}
    assert seen["exported"]["wrong"] == []
    assert seen["card"] == "#/tokens?token=%237"
    counts = csv_rows(seen["csv"])
    assert [int(row["rows"]) for row in counts] == chart(answer, "norms").series[0].values
    saved = csv_rows(seen["parts"])
    assert float(saved[0]["parameters"]) == 600 * 64
    assert seen["plain"].index(f"{answer.headline}.") < seen["plain"].index(titles[0])
    assert all(each in seen["plain"] for each in titles)
