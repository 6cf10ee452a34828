"""Runs on executors and in processes that share a folder: kept, interrupted, failed, shown, and the same again."""

import io
import json
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
from rich.console import Console

import whatwhere as ww
from whatwhere.comparison import results, runner
from whatwhere.comparison import run as running
from whatwhere.comparison.folder import losses_so_far
from whatwhere.comparison.results import LossesSoFar, RunResult
from whatwhere.comparison.run import Job, Run, run
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions

from ..running import error_of
from ..systems import unix
from . import six_runs
from .conftest import SMALL


def job(scheme: Any = "none", seed: int = 0, steps: int = 2) -> Job:
    task = Expressions(trained=(2, 3))
    return Job(scheme, seed, task, make_settings("expressions", [4], steps=steps, **SMALL))


JOBS = [job("none"), job("rotary"), job("alibi", 1)]


class Kept(list[Run]):
    """What was handed over, in order."""

    @property
    def names(self) -> list[tuple[str, int]]:
        return [(each.result.scheme, each.result.seed) for each in self]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def on(executor: Executor | None, jobs: list[Job], keep: Callable[[Run], None] | None = None, **given: Any) -> Kept:
    """Do runs whose results are in this folder, and return them."""
    kept, read = Kept(), given.get("read", lambda job: None)
    workers, show = given.get("workers"), given.get("show", False)
    runner.run_all(jobs, Path.cwd(), keep or kept.append, read, executor=executor, workers=workers, show=show)
    return kept


class ByHand(Executor):
    """An executor whose futures are set by the test; what is submitted is remembered."""

    def __init__(self) -> None:
        self.work: list[tuple[Any, Job]] = []
        self.futures: list[Future[Run]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Run]:
        assert not kwargs
        (given,) = args
        self.work.append((fn, given))
        self.futures.append(Future())
        self.submitted()
        return self.futures[-1]

    def submitted(self) -> None:
        """Nothing more."""

    def finish(self, number: int) -> None:
        fn, given = self.work[number]
        self.futures[number].set_result(fn(given))


class AtOnce(ByHand):
    def submitted(self) -> None:
        self.finish(len(self.futures) - 1)


def test_runs_use_the_given_executor() -> None:
    executor = AtOnce()
    assert sorted(on(executor, JOBS).names) == [("alibi", 1), ("none", 0), ("rotary", 0)]
    # Whatever it is, on this machine or another one, it gets a function and a job that can be sent.
    assert [fn for fn, _ in executor.work] == [run] * 3
    assert len({given.channel for _, given in executor.work}) == 3
    assert [pickle.loads(pickle.dumps(given)).scheme for _, given in executor.work] == ["none", "rotary", "alibi"]


def test_a_run_is_kept_as_soon_as_it_is_done_in_whatever_order() -> None:
    executor, kept = ByHand(), Kept()

    def keep(result: Run) -> None:
        kept.append(result)
        if len(kept) < 3:
            executor.finish([1, 0][len(kept) - 1])  # only now: who waits for all, waits for ever

    executor.submitted = lambda: executor.finish(2) if len(executor.futures) == 3 else None  # type: ignore[method-assign]
    late = threading.Timer(30, lambda: [future.cancel() for future in executor.futures])
    late.start()
    on(executor, JOBS, keep)
    late.cancel()
    assert kept.names == [("alibi", 1), ("rotary", 0), ("none", 0)]


def test_a_run_that_raises_is_named_and_loses_no_other() -> None:
    class Partly(ByHand):
        def submitted(self) -> None:
            number = len(self.futures) - 1
            if number == 0:
                self.futures[0].set_exception(ValueError("boom"))
            elif number == 1:
                self.futures[1].set_exception(ww.errors.SettingError("a loss is not finite"))
            elif number == 2:
                self.futures[2].cancel()
                self.futures[2].set_running_or_notify_cancel()
            else:
                self.finish(number)

    kept = Kept()
    with pytest.raises(ww.errors.ResultsError) as caught:
        on(Partly(), [*JOBS, job("learned", 5)], kept.append)
    assert kept.names == [("learned", 5)]
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 of 4 runs failed; the others are kept."
    assert sorted(lines[1:4]) == [
        "alibi, seed 1: was stopped",
        "none, seed 0: ValueError: boom",
        "rotary, seed 0: a loss is not finite",
    ]
    assert "run the same command again" in lines[4]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ww.errors.ResultsError("the disk is full")])
def test_where_keeping_fails_nothing_else_is_waited_for(error: BaseException) -> None:
    executor = ByHand()
    executor.submitted = lambda: executor.finish(0) if len(executor.futures) == 3 else None  # type: ignore[method-assign]

    def keep(result: Run) -> None:
        raise error

    with pytest.raises(type(error)):
        on(executor, JOBS, keep)
    assert [future.cancelled() for future in executor.futures] == [False, True, True]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BrokenProcessPool()])
def test_what_was_finished_at_the_same_time_is_kept(error: BaseException) -> None:
    class Together(ByHand):
        def submitted(self) -> None:
            if len(self.futures) == 6:
                for number in (0, 1, 3, 4, 5):
                    self.finish(number)
                self.futures[2].set_exception(error)

    kept = Kept()
    with pytest.raises((KeyboardInterrupt, ww.errors.ResultsError)):
        on(Together(), [job("none", seed) for seed in range(6)], kept.append)
    assert sorted(kept.names) == [("none", seed) for seed in (0, 1, 3, 4, 5)]


def test_an_interrupt_during_a_run_keeps_finished_runs_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run is cut off at its third step; the same call then does it, and only it, anew."""
    steps: list[int] = []
    teller = running._channel_writer

    def pressed(channel: Path | None) -> running.OnStep:
        tick = teller(channel)

        def counted(step: int, loss: float | None) -> None:
            steps.append(step)
            if len(steps) == 4 + 3:
                raise KeyboardInterrupt
            tick(step, loss)

        return counted

    monkeypatch.setattr(running, "_channel_writer", pressed)
    given: dict[str, Any] = {"lengths": [7], "seeds": 1, "steps": 4, "workers": 1, "progress": False, **SMALL}
    with pytest.raises(KeyboardInterrupt):
        ww.compare(["none", "alibi"], out=tmp_path / "a", **given)
    assert [path.name for path in (tmp_path / "a/runs").glob("*.json")] == ["none-0.json"]
    assert [path.name for path in (tmp_path / "a/models").iterdir()] == ["none-0.safetensors"]
    steps.clear()
    report = ww.compare(["none", "alibi"], out=tmp_path / "a", **given)
    assert steps == [1, 2, 3, 4]
    assert list(report.summary) == ["none", "alibi"]


# Processes of this machine


def dies(dim: int, num_heads: int, max_length: int) -> ww.Where:
    """A scheme that takes its process with it."""
    os._exit(3)


def test_a_worker_that_ends_is_reported_and_finished_runs_are_kept() -> None:
    with pytest.raises(ww.errors.ResultsError, match=r"^a worker process ended(.|\n)*too little memory(.|\n)*resume"):
        on(None, [job(("dies", dies)), job("none"), job("alibi")], workers=2)


def test_a_system_without_semaphores_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(runner, "ProcessPoolExecutor", refused)
    with pytest.raises(ww.errors.ResultsError, match=r"^this system lets no worker process begin(.|\n)*--workers 1"):
        on(None, JOBS, workers=2)


@pytest.mark.parametrize(("cores", "ranks", "expected"), [(8, "2", 4), (2, "4", 1), (8, None, 8)])
def test_ranks_of_torchrun_share_the_cores(
    cores: int, ranks: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "cores", lambda: cores)
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "LOCAL_WORLD_SIZE": ranks}.items():
        if ranks is not None and value is not None:
            monkeypatch.setenv(name, value)
    assert results.share_of_cores() == expected
    assert results.torchrun_rank() == (None if ranks is None else 1)


def shown(monkeypatch: pytest.MonkeyPatch, jobs: list[Job], terminal: bool, show: bool = True) -> str:
    page = io.StringIO()
    monkeypatch.setattr(
        runner, "Console", lambda stderr: Console(file=page, force_terminal=terminal, width=120, color_system=None)
    )
    on(None, jobs, workers=1, show=show)
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
    assert re.search(r"[01] of 2 runs, held-out loss \d\.\d+", page)


def test_where_there_is_no_terminal_each_run_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, [job(), job("alibi", 4)], terminal=False).splitlines()
    assert [re.sub(r"[\d.]+( s,|$)", r"n\1", line) for line in lines] == [
        "1 of 2 runs: none, seed 0, n s, held-out loss n",
        "2 of 2 runs: alibi, seed 4, n s, held-out loss n",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_no_progress_is_shown_unless_requested(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, [job()], terminal, show=False) == ""


def test_a_script_without_a_main_guard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(ww.errors.SettingError, match=r'if __name__ == "__main__":.*workers=1'):
        on(None, JOBS, workers=2)


def typed(dim: int, num_heads: int, max_length: int) -> ww.Where:
    return ww.Where()


def test_what_was_typed_into_a_session_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(typed, "__module__", "__main__")
    monkeypatch.setattr(runner, "ProcessPoolExecutor", None)
    jobs = [job(("typed", typed)), job("none")]
    assert on(None, jobs).names == [("typed", 0), ("none", 0)]
    with pytest.raises(ww.errors.SettingError, match=r"interactive session(.|\n)*pass workers=1"):
        on(None, jobs, workers=2)


@pytest.mark.parametrize("executor", ["slurm", "threads", "threads:0", "dask:tcp://127.0.0.1:9"])
def test_wrong_executors_are_refused(executor: str, tmp_path: Path, our_own_checks: None) -> None:
    words = ["compare", "none", "--steps", "2", "--lengths", "8", "--executor", executor, "--out", tmp_path / "a"]
    assert "needs processes:NUMBER or threads:NUMBER" in error_of(*words)
    with pytest.raises(ww.errors.SettingError, match=r"needs a concurrent\.futures\.Executor(.|\n)*make the same call"):
        ww.compare(["none"], executor=executor, out=tmp_path / "a")  # type: ignore[arg-type]
    assert not (tmp_path / "a").exists()


def test_a_worker_with_other_versions_refuses_a_run() -> None:
    expected = running.versions() | {"torch": "1.0"}
    with pytest.raises(ww.errors.SettingError, match=r"this worker has torch \S+, but the comparison began with 1\.0"):
        run(replace(job(), versions=expected))


def test_runs_know_the_versions_and_the_device_of_the_comparison(tmp_path: Path) -> None:
    given: dict[str, Any] = {"lengths": [4], "seeds": 1, "steps": 1, "trained": (2, 3), "progress": False, **SMALL}
    executor = AtOnce()
    ww.compare(["none"], out=tmp_path / "a", executor=executor, **given)
    [(_, job)] = executor.work
    assert job.versions == running.versions()
    assert job.settings.device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert job.channel is not None
    assert job.channel.is_relative_to(tmp_path / "a"), "a disk that other machines may share"


def test_who_looks_while_it_trains_sees_all_runs_in_their_order() -> None:
    seen: list[list[LossesSoFar]] = []
    on(AtOnce(), JOBS, lambda _: seen.append(losses_so_far(Path.cwd())))
    named = [[(each.scheme, each.seed, each.steps) for each in runs] for runs in seen]
    assert named == [[("none", 0, 2), ("rotary", 0, 2), ("alibi", 1, 2)]] * 3
    assert [[len(each.losses) for each in runs] for runs in seen][-1] == [2, 2, 2]
    assert losses_so_far(Path.cwd()) == []


def test_a_rank_of_torchrun_uses_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    runner.choose_gpu(True)
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "RANK": "6", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    runner.choose_gpu(True)
    runner.choose_gpu(False)
    assert chosen == [2]


# Processes that share a folder


@pytest.mark.slow  # processes that load Dask
def test_an_executor_of_dask_has_the_same_results(alone: Path, tmp_path: Path, our_own_checks: None) -> None:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        six_runs.compare(tmp_path / "a", executor=client.get_executor(), progress=False)
    six_runs.require_same(alone, tmp_path / "a")


def test_runs_that_others_train_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process finishes one run, and gives another one up: only that is trained here."""
    monkeypatch.setattr(runner, "_LOOK_EVERY", 0.01)
    jobs = [job("none"), job("rotary"), job("learned")]
    (tmp_path / "runs").mkdir()
    locks = [runner._lock(tmp_path / "runs", each) for each in jobs[1:]]
    assert runner._lock(tmp_path / "runs", jobs[1]) is None
    done: dict[str, RunResult] = {}
    kept = Kept()

    def keep(run: Run) -> None:
        kept.append(run)
        if len(kept) == 1:
            done["rotary"] = replace(run.result, scheme="rotary")
            for lock in locks:
                assert lock is not None
                lock.release()

    on(None, jobs, keep, workers=1, show=True, read=lambda job: done.get(job.name))
    assert kept.names == [("none", 0), ("learned", 0)]
    assert re.search(r"\d of 3 runs: rotary, seed 0, in another process", capsys.readouterr().err)
    assert list((tmp_path / "runs").iterdir()) == []


def own_runs(output: str) -> list[str]:
    return re.findall(r"^\d of 6 runs: (\w+, seed \d), \d+ s, ", output, re.MULTILINE)


@unix
def test_two_processes_share_the_runs_and_one_goes_on_when_the_other_is_killed(
    alone: Path, tmp_path: Path, our_own_checks: None
) -> None:
    out = tmp_path / "shared"
    command = [sys.executable, "-m", "whatwhere", *six_runs.WORDS, "--workers", "1", "--json", "--out", str(out)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first, second = (subprocess.Popen(command, **pipes) for _ in range(2))
    deadline = time.monotonic() + 600
    while len(list(out.glob("runs/*.json"))) < 2 and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    killed = first.communicate()[1]
    finished = {path: path.stat().st_mtime_ns for path in out.glob("runs/*.json")}
    printed, told = second.communicate(timeout=600)
    assert second.returncode == 0, told
    assert json.loads(printed)["seeds"] == [0, 1, 2]
    trained = own_runs(told)
    assert not set(trained) & set(own_runs(killed)), "no run is trained by both"
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    six_runs.require_same(alone, out)


@pytest.mark.slow
def test_ranks_of_torchrun_share_the_runs_and_one_prints(alone: Path, tmp_path: Path, our_own_checks: None) -> None:
    out = tmp_path / "shared"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "whatwhere", *six_runs.WORDS, "--workers", "1", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert len(json.loads(line)["runs"]) == 6
    six_runs.require_same(alone, out)
