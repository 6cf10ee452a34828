"""Work that takes longer than a reader waits: in the background, with progress, and with an end on demand."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

from whatwhere.errors import SettingError, WhatWhereError

State = Literal["running", "done", "failed", "stopped"]
Report = Callable[[float, str], None]
"""What work calls now and then: the share that is done, and a word on it. It raises Stopped where nobody waits."""

RUNNING, KEPT = 2, 16
"""Jobs at a time, and jobs whose answers are kept."""


class Stopped(Exception):
    """Nobody waits for this work any more."""


@dataclass(eq=False)
class Job:
    """The state of one job.

    Args:
        id: by which the page asks for it.
        share: of the work that is done, 0 to 1.
        said: a word on it; of a failure, the reason.
        answer: what the work gave, once it is done.
        changes: how often anything of this has changed.
        stopping: whether it was asked to end.
    """

    id: int
    state: State = "running"
    share: float = 0.0
    said: str = ""
    answer: Any = None
    changes: int = 0
    stopping: bool = False

    def told(self) -> dict[str, Any]:
        """Return what a reader is told."""
        return {"id": self.id, "state": self.state, "share": self.share, "said": self.said}

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

    def start(self, work: Callable[[Report], Any]) -> Job:
        """Start work, or raise SettingError where enough is at work."""
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
        threading.Thread(target=_run, args=(job, work), daemon=True).start()
        return job

    def find(self, number: int) -> Job:
        """Return a job, or raise SettingError."""
        with self._door:
            if (job := self._jobs.get(number)) is None:
                raise SettingError(f"there is no job {number}: it was never started, or is forgotten.")
            return job

    def stop(self, number: int) -> Job:
        """Query a job to end; it does where it next reports."""
        job = self.find(number)
        job.stopping = True
        return job

    def stop_all(self) -> None:
        """Query all jobs to end."""
        with self._door:
            for job in self._jobs.values():
                job.stopping = True


def _run(job: Job, work: Callable[[Report], Any]) -> None:
    def report(share: float, said: str = "") -> None:
        if job.stopping:
            raise Stopped
        job.change(share=min(max(share, 0.0), 1.0), said=said)

    try:
        answer = work(report)
    except Stopped:
        job.change(state="stopped")
    except WhatWhereError as problem:
        job.change(state="failed", said=str(problem))
    except MemoryError:
        job.change(state="failed", said="There is too little memory for this.")
    except BaseException:
        job.change(state="failed", said="This went wrong; the terminal that runs the studio says how.")
        raise  # the thread's own report goes to the terminal
    else:
        job.change(state="done", share=1.0, answer=answer)
