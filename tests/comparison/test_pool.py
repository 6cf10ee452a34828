"""The pool of processes and the display: how many, what cannot be sent, what dies, and what is shown meanwhile."""

import io
import multiprocessing
import os
import re
import signal
import sys
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
from rich.console import Console

import whatwhere as ww
from whatwhere.comparison import environment, executors, progress, runner, worker_processes
from whatwhere.comparison import run as running
from whatwhere.comparison.run import Job, Run
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.long_work import part_of

from ..systems import unix

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "device": "cpu"}


def job(scheme: Any = "none", seed: int = 0, steps: int = 2) -> Job:
    task = Expressions(trained=(2, 3))
    return Job(scheme, seed, task, make_settings("expressions", [4], steps=steps, **SMALL))


JOBS = [job("none"), job("rotary"), job("alibi", 1)]


def run_all(jobs: list[Job], workers: int | None, show: bool = False) -> list[Run]:
    kept: list[Run] = []
    runner.run_all(jobs, kept.append, executor=None, workers=workers, show=show)
    return kept


def dies(dim: int, num_heads: int, max_length: int) -> ww.Where:
    """A scheme that takes its process with it."""
    os._exit(3)


def is_killed_once(dim: int, num_heads: int, max_length: int, mark: str) -> ww.Where:
    """A scheme whose process is killed, the first time."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return ww.Where()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@unix
def test_a_killed_worker_costs_its_run_another_attempt_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = ("killed", partial(is_killed_once, mark=str(tmp_path / "mark")))
    kept = run_all([job(killed), job("none"), job("alibi")], workers=2, show=True)
    assert sorted(run.result.scheme for run in kept) == ["alibi", "killed", "none"]
    assert (tmp_path / "mark").exists()
    (again,) = (run for run in kept if run.result.scheme == "killed")
    (whole,) = (run for run in kept if run.result.scheme == "none")
    assert again.result.losses == whole.result.losses  # both have no positions
    assert (
        "killed, seed 0: its worker process was killed by SIGKILL, as the system does where memory runs out; "
        "it is tried again" in capsys.readouterr().err
    )


def test_a_run_that_ends_its_worker_again_and_again_fails_and_the_others_finish() -> None:
    kept: list[Run] = []
    jobs = [job(("dies", dies)), job("none"), job("alibi")]
    with pytest.raises(
        ww.errors.ResultsError,
        match=r"^1 of 3 runs failed; the others are kept\.\n"
        r"dies, seed 0: its worker process ended with status 3, 3 times in 3 attempts\.\nFix the cause",
    ):
        runner.run_all(jobs, kept.append, executor=None, workers=2, show=False)
    assert sorted(run.result.scheme for run in kept) == ["alibi", "none"]


def cannot_start() -> None:
    os._exit(4)


def test_workers_that_end_before_any_run_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "_prepare", cannot_start)
    with pytest.raises(
        ww.errors.ResultsError, match=r"^a worker process ended with status 4 before its first run(.|\n)*__main__"
    ):
        run_all(JOBS, workers=2)


def test_a_system_without_semaphores_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(worker_processes, "ProcessPoolExecutor", refused)
    with pytest.raises(ww.errors.ResultsError, match=r"^this system lets no worker process begin(.|\n)*--workers 1"):
        run_all(JOBS, workers=2)


@pytest.mark.parametrize(("workers", "cores", "expected"), [(None, 2, 2), (None, 8, 3), (2, 8, 2), (5, 1, 3)])
def test_a_pool_has_a_process_for_each_core_and_no_idle_one(
    workers: int | None, cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def pool(count: int, on_retry: Any) -> Executor:
        calls.append(count)
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(executors, "WorkerProcesses", pool)
    monkeypatch.setattr(environment, "cores", lambda: cores)
    assert len(run_all(JOBS, workers)) == 3
    assert calls == [expected]


@pytest.mark.parametrize(("cores", "ranks", "expected"), [(8, "2", 4), (2, "4", 1), (8, None, 8)])
def test_ranks_of_torchrun_share_the_cores(
    cores: int, ranks: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "cores", lambda: cores)
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "LOCAL_WORLD_SIZE": ranks}.items():
        if ranks is not None and value is not None:
            monkeypatch.setenv(name, value)
    assert environment.share_of_cores() == expected
    assert environment.torchrun_rank() == (None if ranks is None else 1)


def shown(monkeypatch: pytest.MonkeyPatch, jobs: list[Job], terminal: bool, show: bool = True) -> str:
    page = io.StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(file=page, force_terminal=terminal, width=120, color_system=None)
    )
    run_all(jobs, 1, show)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", page.getvalue())


def test_a_terminal_shows_all_runs_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # checks would make 120 steps long
    monkeypatch.setattr(runner, "_POLL_EVERY", 0.02)
    monkeypatch.setattr(running, "_REPORT_EVERY", 0.0)
    page = shown(monkeypatch, [job(steps=60), job("alibi", steps=60)], terminal=True)
    assert re.search(r"2 of 2 runs .*120/120 steps, 0:00:\d\d passed, 0:00:00 left", page)
    done = {int(n) for n in re.findall(r"(\d+)/120 steps", page)}
    assert any(0 < n < 60 for n in done), "the steps of a run under way are counted too"
    assert re.search(r"[01] of 2 runs .* 0:\d\d:\d\d left", page)


def test_a_terminal_shows_the_work_of_which_the_runs_are_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    token = part_of.set(lambda: "in all about 1 h 5 min left")
    try:
        page = shown(monkeypatch, [job()], terminal=True)
    finally:
        part_of.reset(token)
    assert "0 of 1 runs (in all about 1 h 5 min left)" in page


def test_where_there_is_no_terminal_each_run_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, [job(), job("alibi", 4)], terminal=False).splitlines()
    assert [re.sub(r"\d+ s$", "n s", line) for line in lines] == [
        "1 of 2 runs: none, seed 0, n s",
        "2 of 2 runs: alibi, seed 4, n s",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_no_progress_is_shown_unless_requested(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, [job()], terminal, show=False) == ""


def test_a_script_without_a_main_guard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ww.errors.SettingError, match=r'if __name__ == "__main__":.*workers=1'):
        run_all(JOBS, workers=2)


def typed(dim: int, num_heads: int, max_length: int) -> ww.Where:
    return ww.Where()


def test_what_was_typed_into_a_session_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(typed, "__module__", "__main__")
    monkeypatch.setattr(executors, "WorkerProcesses", None)
    jobs = [job(("typed", typed)), job("none")]
    assert [result.result.scheme for result in run_all(jobs, None)] == ["typed", "none"]
    with pytest.raises(ww.errors.SettingError, match=r"interactive session(.|\n)*pass workers=1"):
        run_all(jobs, workers=2)
