"""Where runs take place: in this process, in a pool of processes, or on an executor of the caller's own."""

import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from whatwhere.comparison.environment import share_of_cores
from whatwhere.comparison.run import Job
from whatwhere.comparison.worker_processes import WorkerProcesses
from whatwhere.errors import SettingError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Opened:
    """An executor that is open.

    Args:
        executor: that runs are submitted to.
        slots: how many runs it does at once; None where it is not known, and all are submitted.
    """

    executor: Executor
    slots: int | None


class InThisProcess(Executor):
    """Run each call at once, in the thread that submits it; an interrupt passes.

    Examples:
        >>> InThisProcess().submit(abs, -3).result()
        3
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call a function, and return a future that is done."""
        future: Future[R] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future


@contextmanager
def opened(
    executor: Executor | None, jobs: Sequence[Job], workers: int | None, on_retry: Callable[[Job, str], None]
) -> Iterator[Opened]:
    """Open what runs are submitted to in a `with` block.

    Args:
        executor: of the caller's own, which stays open; None makes a pool of `workers`.
        jobs: the runs.
        workers: processes; None is one for each core, shared with other ranks of torchrun. 1 runs in this process.
        on_retry: called with a run that is tried again, and why.

    Yields:
        The executor.

    Raises:
        SettingError: If the runs cannot be sent to the requested processes.
    """
    if executor is not None:
        yield Opened(executor, None)
        return
    count = min(len(jobs), workers or _default_workers(jobs[0]))
    if count > 1:
        _require_not_a_worker()
    if count == 1 or not _can_be_sent(jobs, requested=workers):
        yield Opened(InThisProcess(), 1)
        return
    with WorkerProcesses(count, on_retry) as pool:
        yield Opened(pool, count)


def _default_workers(job: Job) -> int:
    return 1 if job.settings.resolved_device == "cuda" else share_of_cores()


def _require_not_a_worker() -> None:
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SettingError(
            "compare starts processes, and each of them imports your script, which calls compare again.\n"
            'Put the call under `if __name__ == "__main__":`, or pass workers=1.'
        )


def _can_be_sent(jobs: Sequence[Job], requested: int | None) -> bool:
    """Return whether the runs can be sent to other processes; raise SettingError if that was requested."""
    main = sys.modules.get("__main__")
    interactive = getattr(main, "__file__", None) is None
    builders: list[object] = [job.scheme[1] for job in jobs if not isinstance(job.scheme, str)]
    builders += [job.model for job in jobs if job.model is not None]
    reason = (
        ""
        if not (interactive and any(getattr(build, "__module__", "") == "__main__" for build in builders))
        else ("it was typed into an interactive session, which other processes cannot import")
    )
    if not reason:
        try:
            for job in {job.name: job for job in jobs}.values():
                pickle.dumps(job)
            return True
        except Exception as problem:
            reason = str(problem)
    if requested is None:
        return False
    raise SettingError(
        f"a scheme, task or model cannot be sent to other processes: {reason}.\n"
        "Define it at the top of a module with def (not lambda), or pass workers=1."
    )
