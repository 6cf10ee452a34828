"""The model of a run, saved and built again: the same answers, and every misfit refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import whatwhere as ww
from whatwhere.comparison import Comparison, load_model, read_results

from . import made_up
from .conftest import nothing


def test_a_scheme_of_ones_own_needs_its_function(results: Comparison) -> None:
    for build, words in (
        (None, r"built by a function of your own(.|\n)*build="),
        (lambda d, h, m: ww.Where(score=ww.ALiBi(h)), "the scheme has changed"),
    ):
        with pytest.raises(ww.errors.SettingError, match=words):
            load_model(results, results.runs[-1], build=build)
    with pytest.raises(ww.errors.SettingError, match="is whatwhere's: leave build out"):
        load_model(results, results.runs[0], build=nothing)


def test_a_run_is_not_its_name(results: Comparison, our_own_checks: None) -> None:
    name: Any = "rotary-0"
    with pytest.raises(
        ww.errors.SettingError, match=r"run='rotary-0', but needs one of the runs, such as results.runs"
    ):
        load_model(results, name)


def changed(results: Comparison, folder: Path, how: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """Return a folder of the first run, whose tensors were changed."""
    run = results.runs[0]
    tensors = load_file(results.folder / run.file)
    how(tensors)
    (folder / "models").mkdir(parents=True)
    save_file(tensors, folder / run.file)
    (folder / "results.json").write_text((results.folder / "results.json").read_text())
    return folder


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (lambda t: t.pop("norm.weight"), "norm.weight is not the same"),
        (lambda t: t.update(more=torch.ones(1)), "more is not the same"),
        (lambda t: t.update({"norm.weight": torch.ones(3)}), "norm.weight is not the same"),
        (lambda t: t.update({"input.tokens.weight": torch.tensor(1.0)}), "is not the same"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(how: Any, words: str, results: Comparison, tmp_path: Path) -> None:
    again = read_results(changed(results, tmp_path / "b", how))
    with pytest.raises(ww.errors.ResultsError, match=words):
        load_model(again, again.runs[0])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (lambda run: run.update(max_length=2**40), "1099511627776 positions"),
        (lambda run: run.update(varied={"layers": 2**30}), "too few for dim 24, 1073741824 layers"),
        (lambda run: run.pop("base"), r"does not name the scheme that the run 'learned', seed 3"),
    ],
    ids=["absurd positions", "absurd sizes", "no scheme"],
)
def test_a_record_is_refused_before_anything_is_built(
    how: Any, words: str, results: Comparison, tmp_path: Path
) -> None:
    folder = made_up.change(changed(results, tmp_path / "b", lambda tensors: None), lambda data: how(data["runs"][0]))
    with pytest.raises(ww.errors.ResultsError, match=words):
        load_model(folder, read_results(folder).runs[0])


def test_a_missing_or_damaged_file_is_named_with_the_way_out(results: Comparison, tmp_path: Path) -> None:
    folder = changed(results, tmp_path / "b", lambda tensors: None)
    again = read_results(folder)
    (folder / again.runs[0].file).write_bytes(b"damaged")
    with pytest.raises(ww.errors.ResultsError, match=r"cannot be read as safetensors(.|\n)*Delete it"):
        load_model(again, again.runs[0])
    (folder / again.runs[0].file).unlink()
    with pytest.raises(ww.errors.ResultsError, match=r"no trained model of 'learned', seed 3(.|\n)*Run the same"):
        load_model(again, again.runs[0])
