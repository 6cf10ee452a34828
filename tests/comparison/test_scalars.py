"""Scalars for TensorBoard and Weights & Biases: what is written is what the runs hold."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from whatwhere.comparison import compare, read_results
from whatwhere.comparison.folder import open_log, scalars
from whatwhere.comparison.results import RunResult
from whatwhere.errors import MissingExtra, SettingError

from .made_up import made_up_folder

QUICK: dict[str, Any] = {"lengths": [8], "steps": 2, "test_sequences": 20, "workers": 1, "progress": False}


def some_run(tmp_path: Path, scheme: str = "learned") -> RunResult:
    return read_results(made_up_folder(tmp_path, schemes=(scheme,), seeds=1)).runs[0]


def test_scalars_are_those_of_the_run(tmp_path: Path) -> None:
    run = some_run(tmp_path)
    written = {(name, step): value for name, step, value in scalars(run)}
    assert written["loss", 0] == 2.3
    assert written["loss", 800] == 0.01
    assert written["score/in length", 800] == run.in_length
    assert written["score/6", 800] == run.scores[6]["all"]
    assert written["score/6/Max", 800] == run.scores[6]["Max"]
    assert written["shift/0", 800] == 0.99
    assert ("score/8", 800) not in written, "learned positions have no row there"
    assert len(written) == 2 + 1 + 6 * 6 + 1


def test_each_run_is_logged_once_and_in_this_process(tmp_path: Path) -> None:
    logged: list[RunResult] = []
    first = compare(["none", "alibi"], seeds=1, out=tmp_path / "a", on_run=logged.append, **QUICK)
    assert sorted(run.scheme for run in logged) == ["alibi", "none"]
    assert {(run.scheme, run.seed): run for run in logged} == {(run.scheme, run.seed): run for run in first.runs}
    logged.clear()
    compare(["none", "alibi"], seeds=2, out=tmp_path / "a", on_run=logged.append, **QUICK)
    assert {(run.scheme, run.seed) for run in logged} == {("none", 1), ("alibi", 1)}, "finished runs were logged before"


class Recorder:
    """Stand for SummaryWriter of TensorBoard and for a run of Weights & Biases, each with what it was called with."""

    made: list["Recorder"]

    def __init__(self, *given: Any, **settings: Any) -> None:
        self.given, self.settings, self.written = given, settings, dict[tuple[str, int], float]()
        self.made.append(self)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.written[name, step] = value

    def log(self, values: dict[str, float], step: int) -> None:
        self.written |= {(name, step): value for name, value in values.items()}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """Put recorders in place of both packages."""
    for package, name in (("torch.utils.tensorboard", "SummaryWriter"), ("wandb", "init")):
        module = ModuleType(package)
        setattr(module, name, Recorder)
        monkeypatch.setitem(sys.modules, package, module)
    Recorder.made = []
    return Recorder.made


def test_tensorboard_gets_a_folder_for_each_run(made: list[Recorder], tmp_path: Path) -> None:
    log = open_log(f"tensorboard:{tmp_path / 'logs'}")
    for scheme in ("alibi", "rotary/none", "../../etc"):
        log(run := some_run(tmp_path / "results", scheme))
    folders = [Path(each.given[0]) for each in made]
    assert folders[0] == tmp_path / "logs/alibi-0"
    assert {folder.parent for folder in folders} == {tmp_path / "logs"}, "a name does not leave the folder"
    assert len(set(folders)) == 3
    assert made[-1].written == {(name, step): value for name, step, value in scalars(run)}


def test_weights_and_biases_gets_the_scalars_by_step(made: list[Recorder], tmp_path: Path) -> None:
    run = some_run(tmp_path, "alibi")
    open_log("wandb:lengths")(run)
    (one,) = made
    assert (one.settings["project"], one.settings["name"]) == ("lengths", "alibi, seed 0")
    assert one.written == {(name, step): value for name, step, value in scalars(run)}


def test_a_package_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match="pip install tensorboard"):
        open_log("tensorboard:logs")
    with pytest.raises(MissingExtra, match="pip install wandb"):
        open_log("wandb:lengths")
    for target in ("", "tensorboard:", "csv:logs"):
        with pytest.raises(SettingError, match="needs tensorboard:FOLDER or wandb:PROJECT"):
            open_log(target)
