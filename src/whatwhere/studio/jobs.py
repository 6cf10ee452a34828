"""Jobs in the background: functions that take seconds or minutes, with progress, and stopped on request."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

from whatwhere.errors import SettingError, WhatWhereError

State = Literal["running", "done", "failed", "stopped"]
Report = Callable[[float, str], None]
"""Called by a job with its progress: the fraction that is done, and a message. It raises Stopped to end the job."""

RUNNING, KEPT = 2, 16
"""Jobs at a time, and jobs whose answers are kept."""


class Stopped(Exception):
    """Raised inside a job that was stopped."""


@dataclass(eq=False)
class Job:
    """The state of one job.

    Args:
        id: its number in the address.
        fraction: of the job that is done, 0 to 1.
        message: what it is doing; of a failure, the reason.
        answer: its result, once it is done.
        changes: how often anything of this has changed.
        stopping: whether it was requested to stop.
    """

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
        """Set fields; `changes` is counted last, so that who sees it grown sees them."""
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

    def stop_all(self) -> None:
        """Request all jobs to stop."""
        with self._door:
            for job in self._jobs.values():
                job.stopping = True


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
        job.change(state="failed", message="This went wrong; the terminal that runs the studio says how.")
        raise  # the thread's own report goes to the terminal
    else:
        job.change(state="done", fraction=1.0, answer=answer)
