"""The model of a run, saved and built again: the same answers, and every misfit refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import whatwhere as ww
from whatwhere.comparison import Comparison, compare, load_model, measure, read_results
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.train import one_thread

from . import made_up

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "steps": 4}
CALL: dict[str, Any] = {"lengths": [4], "trained": [2, 3], "workers": 1, "progress": False}


def slow(dim: int, num_heads: int, max_length: int) -> list[ww.Where]:
    return [ww.Where(ww.Rotary(dim // num_heads, theta=100.0)), ww.Where(score=ww.KERPLE(num_heads))]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    schemes = ["learned", "rotary+t5/none", "fope", "fox", ("own", slow)]
    return compare(schemes, seeds=[3], out=tmp_path_factory.mktemp("saved") / "a", **SMALL, **CALL)


def test_a_reloaded_model_scores_what_the_run_did(results: Comparison) -> None:
    """Of learned tables, mixtures, gates and functions of one's own, to the last bit."""
    task, settings = Expressions((2, 3)), results.record.settings
    for run in results.runs:
        model = load_model(results, run, build=slow if run.own else None)
        assert not model.training
        with one_thread():
            again = {length: measure.scores(model, task, length, settings) for length in run.scores}
            shift = measure.shift_test(model, task, settings)
        assert (again, shift) == (run.scores, run.shift), run.scheme


def test_a_scheme_of_ones_own_needs_its_function(results: Comparison) -> None:
    for build, words in (
        (None, r"built by a function of your own(.|\n)*build="),
        (lambda d, h, m: ww.Where(), "the scheme has changed"),
    ):
        with pytest.raises(ww.errors.SettingError, match=words):
            load_model(results, results.runs[-1], build=build)
    with pytest.raises(ww.errors.SettingError, match="is whatwhere's: leave build out"):
        load_model(results, results.runs[0], build=slow)


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
        (lambda run: run.update(varied={"layers": 2**30}), "too few for dim 16, 1073741824 layers"),
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
