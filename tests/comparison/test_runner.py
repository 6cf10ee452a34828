"""Runs on executors: kept one by one, interrupted, failed, shown, and the same again."""

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere.comparison import run as running
from whatwhere.comparison import runner
from whatwhere.comparison.run import Job, Run, run
from whatwhere.comparison.runner import run_all
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "device": "cpu"}


def job(scheme: Any = "none", seed: int = 0, steps: int = 2) -> Job:
    task = Expressions(trained=(2, 3))
    return Job(scheme, seed, task, make_settings("expressions", [4], steps=steps, **SMALL))


JOBS = [job("none"), job("rotary"), job("alibi", 1)]


def identity(result: Run) -> tuple[str, int]:
    return result.result.scheme, result.result.seed


class Kept(list[Run]):
    """What was handed over, in order."""

    @property
    def names(self) -> list[tuple[str, int]]:
        return [identity(result) for result in self]


def on(executor: Executor | None, jobs: list[Job], keep: Callable[[Run], None], **given: Any) -> None:
    run_all(jobs, keep, executor=executor, workers=given.get("workers"), show=given.get("show", False))


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
    executor, kept = AtOnce(), Kept()
    on(executor, JOBS, kept.append)
    assert sorted(kept.names) == [("alibi", 1), ("none", 0), ("rotary", 0)]
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


def test_the_same_seed_has_the_same_results_here_and_on_threads() -> None:
    jobs, here, there = [job("learned", 3, steps=5), job("rotary", 3, steps=5)], Kept(), Kept()
    on(None, jobs, here.append, workers=1)
    torch.manual_seed(123)
    before = torch.get_num_threads()
    with ThreadPoolExecutor(2) as threads:
        on(threads, jobs, there.append)
    assert torch.get_num_threads() == before
    for first, again in zip(sorted(here, key=identity), sorted(there, key=identity), strict=True):
        times = {"seconds": 0.0, "seconds_per_step": 0.0}
        assert replace(first.result, **times) == replace(again.result, **times)
        assert all((first.tensors[name] == again.tensors[name]).all() for name in first.tensors)
        assert first.view == again.view


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


class Fails(ww.InputEncoding):
    """A scheme that cannot be bound."""

    dim = 16

    def forward(self, positions: Any) -> torch.Tensor:
        raise RuntimeError("the disk is on fire")


def test_a_run_that_raises_in_this_process_is_named_too() -> None:
    kept, bad = Kept(), ("bad", lambda d, h, m: ww.Where(input=Fails()))
    with pytest.raises(
        ww.errors.ResultsError, match=r"^1 of 3 runs failed.*\nbad, seed 6: RuntimeError: the disk is on fire\n"
    ):
        on(None, [job("none"), job(bad, 6), job("rotary")], kept.append, workers=1)
    assert kept.names == [("none", 0), ("rotary", 0)]


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


def test_runs_remove_what_a_killed_process_left_in_the_folder_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[Path] = []
    monkeypatch.setattr(runner, "run", lambda job: seen.extend(tmp_path.glob(".whatwhere*")) or run(job))
    on(None, JOBS[:1], lambda run: None, workers=1)
    (folder,) = seen
    (folder / "1").mkdir(parents=True)  # nobody has its lock
    on(None, JOBS[:1], lambda run: None, workers=1)
    assert folder not in seen[1:]
    assert not list(tmp_path.glob(".*"))


def test_an_interrupt_during_submission_cancels_runs() -> None:
    class Pressed(ByHand):
        def submitted(self) -> None:
            if len(self.futures) == 3:
                raise KeyboardInterrupt

    executor = Pressed()
    with pytest.raises(KeyboardInterrupt):
        on(executor, JOBS, Kept().append)
    assert [future.cancelled() for future in executor.futures[:2]] == [True, True]


def test_an_interrupt_during_a_run_keeps_finished_runs_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run is cut off at its third step; the same call then does it, and only it, anew."""
    steps: list[int] = []
    teller = running._channel_writer

    def pressed(channel: Path | None) -> Callable[[int], None]:
        tick = teller(channel)

        def counted(step: int) -> None:
            steps.append(step)
            if len(steps) == 4 + 3:
                raise KeyboardInterrupt
            tick(step)

        return counted

    monkeypatch.setattr(running, "_channel_writer", pressed)
    given: dict[str, Any] = {"lengths": [7], "seeds": 1, "steps": 4, "workers": 1, "progress": False, **SMALL}
    with pytest.raises(KeyboardInterrupt):
        ww.compare(["none", "alibi"], out=tmp_path / "a", **given)
    assert [path.name for path in (tmp_path / "a/runs").iterdir()] == ["none-0.json"]
    assert [path.name for path in (tmp_path / "a/models").iterdir()] == ["none-0.safetensors"]
    steps.clear()
    report = ww.compare(["none", "alibi"], out=tmp_path / "a", **given)
    assert steps == [1, 2, 3, 4]
    assert list(report.summary) == ["none", "alibi"]
