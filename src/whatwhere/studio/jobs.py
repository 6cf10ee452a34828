"""Jobs in the background: functions that take seconds or minutes, with progress, and stopped on request."""

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeVar, final

from whatwhere.errors import SettingError, WhatWhereError

Result = TypeVar("Result")
State = Literal["running", "done", "failed", "stopped"]
Report = Callable[[float, str], None]
"""Called by a job with its progress: the fraction that is done, and a message. It raises Stopped to end the job."""

RUNNING, KEPT = 4, 16
"""Jobs at a time, of which a token map begins by itself; and jobs whose answers are kept."""
_NICENESS = 10
"""Of a subprocess, which runs where the page leaves the processor idle."""
_EVERY = 0.1
"""Seconds between two checks of whether a subprocess shall end."""


class Stopped(Exception):
    """Raised inside a job that was stopped."""


@dataclass(eq=False)
class Job:
    """The state of one job; `message` is what it does, or why it failed, `changes` how often any of this changed."""

    id: int
    state: State = "running"
    fraction: float = 0.0
    message: str = ""
    answer: Any = None
    changes: int = 0
    stopping: bool = False

    def progress(self) -> dict[str, int | float | str]:
        """Return its progress, as the page reads it."""
        return {"id": self.id, "state": self.state, "fraction": self.fraction, "message": self.message}

    def change(self, **fields: Any) -> None:
        """Set fields, then count the change: a reader who sees the new count sees the new fields."""
        for name, value in fields.items():
            setattr(self, name, value)
        self.changes += 1


@final
class Jobs:
    """Run a bounded number of jobs, one thread each, and keep the answers of the last ones."""

    def __init__(self, running: int = RUNNING, kept: int = KEPT) -> None:
        self._running, self._kept = running, kept
        self._jobs: dict[int, Job] = {}
        self._door = threading.Lock()
        self._next = 0

    def start(self, function: Callable[[Report], Any]) -> Job:
        """Run a function as a job, or raise SettingError where as many are running as may run at a time."""
        with self._door:
            if sum(job.state == "running" for job in self._jobs.values()) >= self._running:
                raise SettingError(
                    f"{self._running} jobs are at work, and no more are taken at a time.\nWait for one, or stop it."
                )
            job = self._jobs[self._next] = Job(self._next)
            self._next += 1
            finished = [number for number, old in self._jobs.items() if old.state != "running"]
            for number in finished[: max(len(self._jobs) - self._kept, 0)]:
                del self._jobs[number]
        threading.Thread(target=_run, args=(job, function), daemon=True).start()
        return job

    def find(self, number: int) -> Job:
        """Return the job of a number, or raise SettingError."""
        with self._door:
            if (job := self._jobs.get(number)) is None:
                raise SettingError(f"there is no job {number}: it was never started, or is forgotten.")
            return job

    def stop(self, number: int) -> Job:
        """Request a job to stop, which it does at its next report."""
        job = self.find(number)
        job.stopping = True
        return job


def _run(job: Job, function: Callable[[Report], Any]) -> None:
    def report(fraction: float, message: str = "") -> None:
        if job.stopping:
            raise Stopped
        job.change(fraction=min(max(fraction, 0.0), 1.0), message=message)

    try:
        answer = function(report)
    except Stopped:
        job.change(state="stopped")
    except WhatWhereError as problem:
        job.change(state="failed", message=str(problem))
    except MemoryError:
        job.change(state="failed", message="There is too little memory for this.")
    except BaseException:
        job.change(state="failed", message="This failed; the terminal that runs the studio has the error.")
        raise  # the thread's own report goes to the terminal
    else:
        job.change(state="done", fraction=1.0, answer=answer)


def run_in_subprocess(function: Callable[..., Result], report: Report, **settings: Any) -> Result:
    """Call function(progress=..., **settings) in a process of its own, which imports it by name; return its result.

    What it reports is reported; what `report` raises, such as Stopped, ends the process.
    """
    # A fork would copy locks that other threads hold, and PyTorch's threads not at all.
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(other, function, settings), daemon=True)
    process.start()
    other.close()
    fraction, message = 0.0, "starting"
    try:
        while True:
            report(fraction, message)
            if not mine.poll(_EVERY):
                continue
            kind, value = mine.recv()
            if kind == "progress":
                fraction, message = value
            elif kind == "result":
                result: Result = value
                return result
            elif isinstance(value, WhatWhereError):
                raise value
            else:
                raise RuntimeError(f"the other process failed:\n{value}")
    except EOFError:
        raise SettingError(
            "the process that was at work has ended without a word: most likely memory ran out.\nTake fewer rows."
        ) from None
    finally:
        process.kill()
        process.join()
        process.close()
        mine.close()


def _serve(pipe: Connection, function: Callable[..., Any], settings: dict[str, Any]) -> None:
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    try:
        pipe.send(("result", function(progress=lambda *report: pipe.send(("progress", report)), **settings)))
    except WhatWhereError as problem:
        pipe.send(("failed", problem))
    except BrokenPipeError:  # the studio is gone
        return
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
