"""Runs that start from kept models: the same scores where nothing changes, the rest named, everything else refused."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.comparison import Comparison, compare, load_model
from whatwhere.report.comparison_sentences import start_sentence

from .conftest import QUICK


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(["rotary", "learned"], seeds=2, steps=3, out=tmp_path_factory.mktemp("start") / "a", **QUICK)


def test_no_steps_measure_the_kept_model(kept: Comparison, tmp_path: Path) -> None:
    again = compare(["learned", "rotary"], seeds=2, steps=0, start=kept.folder, out=tmp_path / "a", **QUICK)
    by_run = {(run.scheme, run.seed): run for run in kept.runs}
    for run in again.runs:
        before = by_run[run.scheme, run.seed]
        assert (run.scores, run.shift, run.in_length) == (before.scores, before.shift, before.in_length)
        assert (run.steps, run.losses) == (0, ())
        assert run.start is not None
        assert (run.start.scheme, run.start.seed, run.start.fresh, run.start.unused) == (run.scheme, run.seed, (), ())
    assert again.record.request is not None
    assert again.record.request.start == str(kept.folder)
    assert again.record.settings.steps == 0


def test_another_scheme_takes_the_weights_that_fit(kept: Comparison, tmp_path: Path) -> None:
    schemes = ["rotary-linear@factor=2.5", "none", "learned"]
    start = f"{kept.folder}:rotary"
    results = compare(schemes, seeds=1, steps=0, start=start, out=tmp_path / "a", **QUICK)
    linear, none, learned = results.runs
    source = load_model(kept, kept.runs[0])
    for run in (linear, none, learned):
        model = load_model(results, run)
        assert torch.equal(model.input.tokens.weight, source.input.tokens.weight)
        assert torch.equal(model.blocks[1].qkv.weight, source.blocks[1].qkv.weight)
    starts = [run.start for run in results.runs if run.start is not None]
    assert [start.fresh for start in starts] == [(), (), ("input.where.input.weight",)]
    assert len({start.sha256 for start in starts}) == 1
    told = start_sentence(results)
    assert "learned from “rotary”" in told or "learned from rotary" in told
    assert "began anew: input.where.input.weight" in told
    assert told.count("nothing began anew") == 2
    assert start_sentence(kept) == ""
    # Interpolated positions are others, so logits are.
    ids = torch.tensor([[12, 17, 8, 19, 3, 18]])
    with torch.no_grad():
        assert not torch.equal(load_model(results, linear)(ids), source(ids))


def test_training_goes_on_from_there(kept: Comparison, tmp_path: Path) -> None:
    fresh = compare(["rotary"], seeds=1, steps=2, out=tmp_path / "a", **QUICK).runs[0]
    further = compare(["rotary"], seeds=1, steps=2, start=kept.folder, out=tmp_path / "b", **QUICK)
    assert further.runs[0].losses != fresh.losses
    tables = further.tables(further.runs[0])
    assert (tables["input.tokens.weight@0"] == kept.tables(kept.runs[0])["input.tokens.weight"]).all()
    assert (tables["input.tokens.weight"] != tables["input.tokens.weight@0"]).any()


def test_tables_that_are_fixed_stay_what_they_are(kept: Comparison, tmp_path: Path) -> None:
    start = f"{kept.folder}:rotary"
    runs = compare(["none@ids", "none@frozen"], seeds=1, steps=0, start=start, out=tmp_path / "a", **QUICK).runs
    assert [run.start.fresh for run in runs if run.start is not None] == [("input.tokens.weight",), ()]


def test_an_interrupted_comparison_resumes_and_another_start_is_refused(kept: Comparison, tmp_path: Path) -> None:
    call: dict[str, Any] = {"seeds": 1, "steps": 0, "out": tmp_path / "a", **QUICK}
    first = compare(["none"], start=f"{kept.folder}:rotary", **call)
    assert compare(["none"], start=f"{kept.folder}:rotary", **call).runs == first.runs
    with pytest.raises(ww.errors.ResultsError, match=r"started from another model: 'rotary', seed 0(.|\n)*'learned'"):
        compare(["none"], start=f"{kept.folder}:learned", **call)


def test_what_cannot_start_is_refused_before_anything_is_written(kept: Comparison, tmp_path: Path) -> None:
    out = tmp_path / "a"
    for schemes, changed, words in (
        (["none"], {"start": kept.folder}, r"no scheme 'none' to start from(.|\n)*:rotary\. It has: 'rotary'"),
        (["rotary"], {"start": f"{kept.folder}:alibi"}, "has no scheme 'alibi'"),
        (["rotary"], {"start": kept.folder, "seeds": [7]}, r"no seed 7 of 'rotary' to start from\. It has 0, 1"),
        (["rotary"], {"start": kept.folder, "dim": 8, "feedforward": 8, "layers": 1}, r"trained with other sizes"),
        (["rotary"], {"start": kept.folder, "dim": 8, "steps": 1}, r"sizes: .* has \(\d+, 16\), this model \(\d+, 8\)"),
        (["rotary"], {}, r"steps=0 trains nothing: pass start=RESULTS \(--start\)"),
        (["rotary"], {"start": tmp_path / "gone"}, "there is no folder "),
    ):
        call: dict[str, Any] = {"seeds": 1, "steps": 0, "out": out, **QUICK} | changed
        with pytest.raises(ww.errors.WhatWhereError, match=words):
            compare(schemes, **call)
    with pytest.raises(ww.errors.SettingError, match="know other tokens"):
        compare(["rotary"], "recall", seeds=1, steps=0, start=kept.folder, out=out, **QUICK | {"trained": [2]})
    copy = shutil.copytree(kept.folder, tmp_path / "copy")
    shutil.rmtree(copy / "models")
    with pytest.raises(ww.errors.ResultsError, match="holds no trained model"):
        compare(["rotary"], seeds=1, steps=0, start=copy, out=out, **QUICK)
    assert not out.exists()
