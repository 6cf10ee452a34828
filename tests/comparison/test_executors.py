"""Executors by name: the same results on each, killed workers included, and steps shown where a disk is shared."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.comparison import engines, executors
from whatwhere.comparison import run as running
from whatwhere.comparison.engines import RayExecutor, SubmititExecutor
from whatwhere.comparison.run import Job, Run, run
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions

from ..running import error_of
from . import six_runs

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20}
NO_ADDRESS = "executor 'dask' needs the address of a scheduler, dask:tcp://HOST:PORT"
CLUSTER = """
import sys
import threading
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        print(cluster.scheduler_address, *(worker.pid for worker in cluster.workers.values()), flush=True)
        sys.stdin.read()
"""


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


def test_threads_have_the_same_results(alone: Path, tmp_path: Path) -> None:
    six_runs.compare(tmp_path / "a", executor="threads", workers=2, progress=False)
    six_runs.require_same(alone, tmp_path / "a")


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[int]]]:
    """Start a Dask scheduler with two worker processes; return its address and theirs."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = subprocess.Popen([sys.executable, "-c", CLUSTER], **pipes)
    assert started.stdout is not None
    address, *workers = started.stdout.readline().split()
    yield address, [int(worker) for worker in workers]
    started.communicate(timeout=600)


@pytest.mark.slow  # processes that load Dask, and wait for one another
@needs("distributed")
def test_dask_with_a_killed_worker_has_the_same_results(
    alone: Path, tmp_path: Path, cluster: tuple[str, list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, workers = cluster
    out, steps = tmp_path / "dask", list[Path]()

    def kill() -> None:
        deadline = time.monotonic() + 600
        while not steps and time.monotonic() < deadline:
            steps.extend(out.glob(".whatwhere-*.part/[0-9]*"))  # a run has begun, and reports its steps
            time.sleep(0.01)
        os.kill(workers[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    six_runs.compare(out, executor=f"dask:{address}")
    killer.join()
    assert steps
    lines = re.findall(r"^\d of 6 runs: \w+, seed \d, \d+ s$", capsys.readouterr().err, re.MULTILINE)
    assert len(lines) == 6
    assert not list(out.glob(".*"))
    six_runs.require_same(alone, out)


@pytest.mark.slow  # six processes, each of which loads PyTorch
@needs("submitit")
def test_submitit_has_the_same_results(alone: Path, tmp_path: Path, our_own_checks: None) -> None:
    """Its jobs are processes of this machine, which SLURM would start on others."""
    six_runs.compare(tmp_path / "a", executor="submitit:local", progress=False)
    six_runs.require_same(alone, tmp_path / "a")


@needs("ray")
def test_ray_has_the_same_results(alone: Path, tmp_path: Path, our_own_checks: None) -> None:
    out = tmp_path / "ray"
    words = [*six_runs.WORDS, "--executor", "ray", "--out", str(out)]
    done = subprocess.run([sys.executable, "-m", "whatwhere", *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    six_runs.require_same(alone, out)


class Lost(Exception):
    """A job ended without a result."""


class Jobs:
    """What submitit documents of its executors and jobs; some jobs are lost."""

    def __init__(self, lost: int = 0) -> None:
        self.lost, self.submitted, self.cancelled = lost, 0, 0

    def submit(self, function: Callable[..., Any], *args: Any) -> "Jobs.OneJob":
        self.submitted += 1
        return Jobs.OneJob(self, function, args, self.submitted <= self.lost)

    class OneJob:
        def __init__(self, jobs: "Jobs", function: Callable[..., Any], args: Any, lost: bool) -> None:
            self.jobs, self.function, self.args, self.lost, self.asked = jobs, function, args, lost, 0

        def done(self) -> bool:
            self.asked += 1
            return self.asked > 1

        def result(self) -> Any:
            if self.lost:
                raise Lost("no output\nat all")
            return self.function(*self.args)

        def cancel(self) -> None:
            self.jobs.cancelled += 1


def fails() -> None:
    raise ww.errors.SettingError("a loss is not finite")


def test_jobs_of_submitit_become_futures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_POLL_EVERY", 0.01)
    with SubmititExecutor(jobs := Jobs(lost=2), Lost) as executor:
        assert executor.submit(abs, -3).result(30) == 3
        assert jobs.submitted == 3, "a lost job is submitted again"
        with pytest.raises(ww.errors.SettingError, match="a loss is not finite"):
            executor.submit(fails).result(30)
    with (
        SubmititExecutor(Jobs(lost=9), Lost) as executor,
        pytest.raises(ww.errors.ResultsError, match=r"^its job ended without a result, 3 times: no output$"),
    ):
        executor.submit(abs, -3).result(30)


def test_jobs_that_nobody_waits_for_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_POLL_EVERY", 30.0)
    with SubmititExecutor(jobs := Jobs(), Lost) as executor:
        executor.submit(abs, -3)
    assert jobs.cancelled == 1


class FakeRay:
    """What Ray documents of `remote`: a decorator, whose functions return references with futures."""

    def __init__(self, threads: Executor) -> None:
        self.threads, self.options = threads, dict[str, Any]()

    def remote(self, **options: Any) -> Any:
        self.options = options
        threads = self.threads

        def decorate(function: Callable[..., Any]) -> Any:
            class Task:
                @staticmethod
                def remote(*args: Any) -> Any:
                    class Reference:
                        @staticmethod
                        def future() -> Future[Any]:
                            return threads.submit(function, *args)

                    return Reference

            return Task

        return decorate


def test_tasks_of_ray_become_futures() -> None:
    with ThreadPoolExecutor(1) as threads:
        executor = RayExecutor(ray := FakeRay(threads))
        assert ray.options == {"num_cpus": 1, "max_retries": 2}
        assert executor.submit(abs, -3).result(30) == 3
        with pytest.raises(ww.errors.SettingError, match="a loss is not finite"):
            executor.submit(fails).result(30)


@pytest.mark.parametrize(
    ("executor", "words"),
    [
        ("slurm", "knows processes, threads, dask:ADDRESS, submitit:PARTITION"),
        ("threads:4", "another option: workers, or --workers"),
        ("Processes", "Write 'processes'."),
        ("DASK:tcp://127.0.0.1:8786", "Write 'dask'."),
        ("dask", NO_ADDRESS),
        ("submitit:", "needs a partition"),
        pytest.param("submitit:local,foo=1", "'foo'", marks=needs("submitit")),
    ],
)
def test_wrong_executors_are_refused(executor: str, words: str, tmp_path: Path) -> None:
    message = error_of(
        "compare", "none", "--steps", "2", "--lengths", "8", "--executor", executor, "--out", tmp_path / "a"
    )
    assert words in message
    assert message.count("\n") <= 2
    assert len(message) < 400
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("executor", [None, "processes", "threads"])
@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_refused(executor: str | None, workers: int, tmp_path: Path) -> None:
    with pytest.raises(ww.errors.SettingError, match=f"workers={workers}, but needs at least 1"):
        ww.compare(["none"], lengths=[4], steps=2, executor=executor, workers=workers, out=tmp_path / "a", **SMALL)
    assert not (tmp_path / "a").exists()


@pytest.fixture
def other_server() -> Iterator[str]:
    """Listen at a port, and answer everybody with what is no message of Dask."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@needs("distributed")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9: "),
        ("127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9: "),
        ("tls://OTHER", "Dask has no certificates for TLS"),
        ("OTHER", "no Dask scheduler answers at tcp://OTHER: "),
        ("foo", NO_ADDRESS),
        ("http://127.0.0.1:9", NO_ADDRESS),
        ("tcp://", NO_ADDRESS),
        ("tcp://127.0.0.1", NO_ADDRESS),
        ("tcp://127.0.0.1:99999", NO_ADDRESS),
        ("tcp://127.0.0.1:9/path", NO_ADDRESS),
        ("/etc/passwd", NO_ADDRESS),
        ("inproc://x", NO_ADDRESS),
    ],
)
def test_a_scheduler_that_does_not_answer(
    address: str, words: str, other_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named in few lines, and there is no folder of results."""
    monkeypatch.setattr(engines, "_CONNECT_IN", 1)
    given = f"dask:{address.replace('OTHER', other_server)}"
    message = error_of(
        "compare", "none", "--steps", "2", "--lengths", "8", "--executor", given, "--out", tmp_path / "a"
    )
    assert words.replace("OTHER", other_server) in message
    assert message.count("\n") <= 2
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9"])
def test_a_cluster_of_ray_that_does_not_answer(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try again for minutes."""
    module = ModuleType("ray")
    module.is_initialized = lambda: False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", module)
    words = ["compare", "none", "--steps", "2", "--lengths", "8", "--executor", f"ray:{address}"]
    message = error_of(*words, "--out", tmp_path / "a")
    assert f"Ray cannot be reached at '{address}': " in message
    assert "refused" in message
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("package", ["distributed", "submitit", "ray"])
def test_a_package_that_is_missing_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    name = {"distributed": "dask"}.get(package, package)
    words = [
        "compare",
        "none",
        "--steps",
        "2",
        "--lengths",
        "8",
        "--executor",
        f"{name}:127.0.0.1:9",
        "--out",
        tmp_path / "a",
    ]
    assert f"pip install 'whatwhere[{name}]'" in error_of(*words)


def job(seed: int = 0, **given: Any) -> Job:
    settings = make_settings("expressions", [4], steps=2, device="cpu", **SMALL)
    return Job("none", seed, Expressions(trained=(2, 3)), settings, **given)


def test_a_worker_with_other_versions_refuses_a_run() -> None:
    expected = running.versions() | {"torch": "1.0"}
    with pytest.raises(ww.errors.SettingError, match=r"this worker has torch \S+, but the comparison began with 1\.0"):
        run(job(versions=expected))


def test_runs_know_the_versions_and_the_device_of_the_comparison(tmp_path: Path) -> None:
    jobs: list[Job] = []

    class Remembers(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Run]:
            jobs.append(args[0])
            future: Future[Run] = Future()
            future.set_result(fn(*args))
            return future

    given: dict[str, Any] = {"lengths": [4], "seeds": 1, "steps": 1, "trained": (2, 3), "progress": False, **SMALL}
    ww.compare(["none"], out=tmp_path / "a", executor=Remembers(), **given)
    assert jobs[0].versions == running.versions()
    assert jobs[0].settings.device == ("cuda" if torch.cuda.is_available() else "cpu")
    assert jobs[0].channel is not None
    assert jobs[0].channel.is_relative_to(tmp_path / "a"), "a disk that other machines may share"


def test_a_rank_of_torchrun_uses_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    on_gpu = job()
    object.__setattr__(on_gpu.settings, "device", "cuda")
    executors.choose_gpu(on_gpu)
    for name, value in {"TORCHELASTIC_RUN_ID": "none", "RANK": "6", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    executors.choose_gpu(on_gpu)
    executors.choose_gpu(job())
    assert chosen == [2]
