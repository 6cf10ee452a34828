"""Scalars for TensorBoard and Weights & Biases: what is written is what the runs hold."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from whatwhere.comparison import compare, read_results
from whatwhere.comparison.folder import open_log, scalars
from whatwhere.comparison.results import RunResult
from whatwhere.errors import MissingExtra, SettingError

from ..running import whatwhere
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
    """Stands for SummaryWriter of TensorBoard."""

    folders: dict[str, dict[tuple[str, int], float]]

    def __init__(self, folder: str) -> None:
        self.own = self.folders.setdefault(folder, {})

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.own[name, step] = value


def test_tensorboard_gets_a_folder_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Recorder.folders = {}
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Recorder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    log = open_log(f"tensorboard:{tmp_path / 'logs'}")
    for scheme in ("alibi", "rotary/none", "../../etc"):
        log(run := some_run(tmp_path / "results", scheme))
    folders = [Path(folder) for folder in Recorder.folders]
    assert folders[0] == tmp_path / "logs/alibi-0"
    assert {folder.parent for folder in folders} == {tmp_path / "logs"}, "a name does not leave the folder"
    assert len(set(folders)) == 3
    assert [*Recorder.folders.values()][-1] == {(name, step): value for name, step, value in scalars(run)}


def test_weights_and_biases_gets_the_scalars_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Logged(SimpleNamespace):
        def __enter__(self) -> "Logged":
            return self

        def __exit__(self, *problem: object) -> None:
            calls.append("finished")

        def log(self, values: dict[str, float], step: int) -> None:
            calls.append((step, values))

    def init(**settings: Any) -> Logged:
        calls.append(settings)
        return Logged()

    module = ModuleType("wandb")
    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    run = some_run(tmp_path, "alibi")
    open_log("wandb:lengths")(run)
    assert calls[0]["project"] == "lengths"
    assert calls[0]["name"] == "alibi, seed 0"
    assert calls[1] == (0, {"loss": 2.3})
    assert calls[2][0] == 800
    assert calls[2][1]["score/32"] == run.scores[32]["all"]
    assert calls[3:] == ["finished"]


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


def test_the_command_refuses_before_it_trains(tmp_path: Path) -> None:
    done = whatwhere("compare", "none", "--seeds", "1", "--steps", "1", "--log", "csv:x", "--out", tmp_path / "out")
    assert done.status == 1
    assert "log got 'csv:x'" in done.err
    assert not (tmp_path / "out").exists()
