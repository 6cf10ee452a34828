"""The training replay and attention by distance: beside the files of a run, beside NumPy, and on the page."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from whatwhere.studio.api import replay as api
from whatwhere.studio.session import Session

from ..comparison.made_up import change


@pytest.fixture
def copy(results: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(results, tmp_path / "a"))


def tables(results: Path, run: str) -> np.ndarray:
    return load_file(results / f"traces/{run}.safetensors")["tables"].astype(np.float64)


def test_the_frames_are_those_of_the_run(session: Session, results: Path) -> None:
    result = api.frames(session, {"run": "learned-1"})
    frames = result.frames
    assert frames.steps.tolist() == [0, 2, 4, 6, 7]
    np.testing.assert_allclose(frames.tables, tables(results, "learned-1"), rtol=1e-6)
    np.testing.assert_allclose(frames.norms, np.sqrt((tables(results, "learned-1") ** 2).sum(axis=2)), rtol=1e-6)
    record = json.loads((results / "runs/learned-1.json").read_text(encoding="utf-8"))["result"]
    assert list(zip(result.loss_steps.tolist(), result.losses.tolist(), strict=True)) == [
        tuple(pair) for pair in record["losses"]
    ]
    measured = dict(record["held_out"])  # as it was last measured
    assert result.held_out.tolist() == [measured[max(at for at in measured if at <= n)] for n in result.loss_steps]
    assert result.words[:4] == session.words[:4]


@pytest.mark.parametrize("of", ["table", "change"])
def test_the_plane_is_that_of_the_end_for_all_steps(session: Session, results: Path, of: str) -> None:
    frames = api.frames(session, {"run": "learned-0"}).frames
    moved = tables(results, "learned-0")
    if of == "change":
        moved = moved - moved[0]
    middle = moved[-1].mean(axis=0)
    values, axes = np.linalg.eigh(np.cov((moved[-1] - middle).T))
    plane, shares = axes[:, ::-1][:, :2], values[::-1][:2] / values.sum()
    result = frames.planes[of]
    np.testing.assert_allclose(result.variance_explained, shares, rtol=1e-6)
    right = (moved - middle) @ plane
    signs = np.sign((right[-1] * result.points[-1]).sum(axis=0))
    np.testing.assert_allclose(result.points, right * signs, atol=1e-5)


def test_the_number_line_ends_as_the_run_measured(session: Session, results: Path) -> None:
    line = api.frames(session, {"run": "learned-0"}).frames.line
    record = json.loads((results / "runs/learned-0.json").read_text(encoding="utf-8"))["result"]
    assert line.r[-1] == pytest.approx(record["token_table"][-1]["number_line"], rel=1e-4)
    assert np.isnan(line.r[0]), "nothing is written yet"
    assert not line.along[0].any()
    straight = np.corrcoef(line.along[-1], np.arange(10))[0, 1]
    assert straight == pytest.approx(line.r[-1]), "greater digits to the right"
    np.testing.assert_allclose(line.along.sum(axis=1), 0, atol=1e-12)


def test_attention_is_that_of_the_trace(session: Session, results: Path) -> None:
    name = next(run for run in session.runs if run.startswith("rotary"))
    trace = load_file(results / f"traces/{name}.safetensors")
    found = api.attention(session, {"run": name})
    sections = found.sections
    assert [section.name for section in sections] == ["length-3", "length-6"]
    for section, length in zip(sections, (3, 6), strict=True):
        for layer, chart in enumerate(section.parts):
            *heads, uniform = chart.series
            np.testing.assert_array_equal([head.values for head in heads], trace[f"attention@{length}"][layer])
            np.testing.assert_array_equal(uniform.values, trace[f"uniform@{length}"][layer])
            assert chart.x == list(range(2 * length + 2))
        layer, head, at = np.unravel_index(np.argmax(trace[f"attention@{length}"]), (2, 2, 2 * length + 2))
        said = rf"[Aa]t {length} arguments [^;]*\b{at} tokens? back, by head {head} of layer {layer}\b"
        assert re.search(said, found.headline)


def test_what_is_averaged_is_said_of_each_length_where_they_differ(copy: Path) -> None:
    name = next(run for run in Session.open(copy).runs if run.startswith("rotary"))
    path = copy / f"traces/{name}.safetensors"
    trace = load_file(path)
    for length, one in ((3, True), (6, False)):
        weights = np.full_like(trace[f"uniform@{length}"], 0.25)
        weights[..., 0] = 0.25 if one else 0.5
        trace[f"uniform@{length}"] = weights
    save_file(trace, path)
    found = api.attention(Session.open(copy), {"run": name})
    assert "Averaged" not in found.headline
    assert [section.parts[0].note.split()[0] for section in found.sections] == ["Only", "Averaged"]


def test_runs_without_a_trace_have_their_first_table_and_their_last(copy: Path) -> None:
    change(copy, lambda data: [run.update(trace="") for run in data["runs"]])
    session = Session.open(copy)
    result = api.frames(session, {"run": "learned-0"})
    layer = load_file(copy / "models/learned-0.safetensors")
    assert result.frames.steps.tolist() == [0, 7]
    ends = np.stack([layer["input.tokens.weight@0"], layer["input.tokens.weight"]])
    np.testing.assert_allclose(result.frames.norms, np.linalg.norm(ends, axis=2), rtol=1e-6)
    assert len(result.losses) == 7
    shutil.rmtree(copy / "models")
    result = api.frames(Session.open(copy), {"run": "learned-0"})
    assert (result.frames, len(result.losses)) == (None, 7)
    assert "not in its folder" in (result.missing or "")
    assert "No attention was recorded" in api.attention(session, {"run": "learned-0"}).headline


def test_trainings_that_diverged_and_large_tables_have_no_film(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copy / "traces/learned-0.safetensors"
    trace = load_file(path)
    trace["tables"][2, 3, 4] = np.inf
    save_file(trace, path)
    for words in ("diverged", "at most 100 can be replayed"):
        result = api.frames(Session.open(copy), {"run": "learned-0"})
        assert (result.frames, len(result.losses)) == (None, 7)
        assert words in (result.missing or "")
        monkeypatch.setattr(api, "MOST_NUMBERS", 100)


def test_an_encoder_looks_both_ways(copy: Path) -> None:
    change(copy, lambda data: data["settings"].update(direction="encoder"))
    path = copy / "traces/learned-0.safetensors"
    save_file({"attention@3": np.zeros((2, 2, 15), np.float32)}, path)
    (section,) = api.attention(Session.open(copy), {"run": "learned-0"}).sections
    assert section.parts[0].x == list(range(-7, 8))
    assert [series.name for series in section.parts[0].series] == ["head 0", "head 1"]


def test_the_page_replays_a_run(look: Callable[..., dict[str, Any]], session: Session) -> None:
    result = look(session, "replay.mjs")
    frames = api.frames(session, {"run": "learned-0"})
    assert result["titles"] == [
        "The change on a plane", "Loss", "The digits on a line", "The change after step 7"
    ]  # fmt: skip
    assert result["play"] == 0, "who asked for less motion gets none"
    assert result["first"] == "step 0 of 7"
    last = frames.losses[-1]
    assert result["last"].startswith("step 7 of 7, loss ")
    assert result["opened"] == result["last"]
    assert float(result["last"].split("loss ")[1]) == pytest.approx(last, rel=1e-3)
    assert result["address"].startswith("#/replay?at=4")
    assert f"{frames.frames.line.r[-1]:.2f}" in result["line"]
    assert result["moved"] is True
    points = frames.frames.planes["change"].points
    rows = [line.split(",") for line in result["csv"].removeprefix("\ufeff").splitlines()[3:12]]
    np.testing.assert_allclose([float(row[1]) for row in rows], points[-1, 2:11, 0], rtol=1e-6)
    assert result["played"] == "step 7 of 7"
    chart = api.attention(session, {"run": "learned-0"}).sections[0].parts[0]
    shown = [float(row.split(",")[1]) for row in result["weights"].splitlines()[1:]]
    np.testing.assert_allclose(shown, chart.series[0].values, rtol=1e-6)
    assert result["layers"] == ["Layer 0, 3 arguments", "Layer 1, 3 arguments"]
