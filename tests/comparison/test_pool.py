"""The pool of processes and the display: how many, what cannot be sent, what dies, and what is shown meanwhile."""

import io
import multiprocessing
import os
import re
import sys
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import jaxtyping
import pytest
from rich.console import Console

import whatwhere as ww
from whatwhere.comparison import run as running
from whatwhere.comparison import runner
from whatwhere.comparison.run import Job, Run
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions

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


def test_a_process_that_dies_is_reported_not_waited_for() -> None:
    with pytest.raises(
        ww.errors.ResultsError, match=r"(dies|none), seed 0 was waiting\); finished runs are kept(.|\n)*workers=1"
    ):
        run_all([job(("dies", dies)), job("none")], workers=2)


@pytest.mark.parametrize(("workers", "cores", "expected"), [(None, 2, 2), (None, 8, 3), (2, 8, 2), (5, 1, 3)])
def test_a_pool_has_a_process_for_each_core_and_no_idle_one(
    workers: int | None, cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def pool(count: int, **options: Any) -> Executor:
        calls.append(count)
        assert options["mp_context"].get_start_method() == "spawn"
        return ThreadPoolExecutor(1)

    monkeypatch.setattr(runner, "ProcessPoolExecutor", pool)
    monkeypatch.setattr(runner, "cores", lambda: cores)
    assert len(run_all(JOBS, workers)) == 3
    assert calls == [expected]


def shown(monkeypatch: pytest.MonkeyPatch, jobs: list[Job], terminal: bool, show: bool = True) -> str:
    page = io.StringIO()
    monkeypatch.setattr(
        runner, "Console", lambda stderr: Console(file=page, force_terminal=terminal, width=120, color_system=None)
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
    monkeypatch.setattr(runner, "ProcessPoolExecutor", None)
    jobs = [job(("typed", typed)), job("none")]
    assert [result.result.scheme for result in run_all(jobs, None)] == ["typed", "none"]
    with pytest.raises(ww.errors.SettingError, match=r"interactive session(.|\n)*pass workers=1"):
        run_all(jobs, workers=2)
