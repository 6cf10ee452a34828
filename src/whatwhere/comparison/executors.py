"""Where runs take place: in this process, in processes or threads of this machine, or on one of the engines."""

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from whatwhere.comparison.engines import ENGINES
from whatwhere.comparison.environment import share_of_cores, torchrun_rank
from whatwhere.comparison.run import Job
from whatwhere.comparison.worker_processes import WorkerProcesses
from whatwhere.errors import SettingError

P = ParamSpec("P")
R = TypeVar("R")

LOCAL = ("processes", "threads")
"""Executors of this machine, by name."""


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


def is_local(executor: Executor | str | None) -> bool:
    """Return whether runs take place on this machine, as far as the name of the executor tells.

    Args:
        executor: a name, with an address after a colon; None is `processes`; or an executor of the caller's own.

    Raises:
        SettingError: If there is no executor of this name.

    Examples:
        >>> is_local("threads"), is_local("dask:tcp://10.0.0.1:8786")
        (True, False)
    """
    if executor is None or isinstance(executor, Executor):
        return executor is None
    name, colon, _ = executor.partition(":")
    if name not in (*LOCAL, *ENGINES) or (name in LOCAL and colon):
        known = name.strip().lower()
        raise SettingError(
            f"compare got executor={executor!r}, but knows processes, threads, dask:ADDRESS, submitit:PARTITION, ray "
            "and ray:ADDRESS."
            + (f"\nWrite {known!r}." if known != name and known in (*LOCAL, *ENGINES) else "")
            + ("\nTheir number is another option: workers, or --workers." if name in LOCAL else "")
        )
    return name in LOCAL


def require_executor(executor: Executor | str | None, workers: int | None) -> None:
    """Raise SettingError if there is no executor of this name, or no worker.

    Args:
        executor, workers: as for `opened`.
    """
    is_local(executor)
    if workers is not None and workers < 1:
        raise SettingError(f"compare got workers={workers}, but needs at least 1: None is one for each core.")


@contextmanager
def connected(executor: Executor | str | None, folder: Path) -> Iterator[Executor | str | None]:
    """Connect to an engine in a `with` block where the folder of results is not there yet.

    So a scheduler that does not answer leaves no folder; with one, there may be no run left that needs an engine.

    Args:
        executor: as for `opened`.
        folder: of the results.

    Yields:
        The engine, or what was given.

    Raises:
        SettingError: If there is no such executor, or it cannot be reached.
        MissingExtra: If its package is not installed.
    """
    if is_local(executor) or isinstance(executor, Executor) or folder.exists():
        yield executor
        return
    with _engine(executor, folder.resolve()) as engine:
        yield engine


def _engine(executor: object, folder: Path) -> AbstractContextManager[Executor]:
    name, _, address = str(executor).partition(":")
    return ENGINES[name](address, folder)


@contextmanager
def opened(
    executor: Executor | str | None,
    jobs: Sequence[Job],
    workers: int | None,
    on_retry: Callable[[Job, str], None],
    folder: Path,
) -> Iterator[Opened]:
    """Open what runs are submitted to in a `with` block.

    Args:
        executor: a name, as of `is_local`; None is `processes`. One of the caller's own stays open.
        jobs: the runs.
        workers: processes or threads; None is one for each core, which ranks of torchrun share. 1 runs in this process.
        on_retry: called with a run that is tried again, and why.
        folder: on a disk that workers share, where an engine that needs one keeps files.

    Yields:
        The executor.

    Raises:
        SettingError: If there is no such executor, or it cannot be reached, or the runs cannot be sent to processes.
        MissingExtra: If its package is not installed.
    """
    if isinstance(executor, Executor):
        yield Opened(executor, None)
        return
    if not is_local(executor):
        with _engine(executor, folder) as engine:
            yield Opened(engine, None)
        return
    count = min(len(jobs), workers or _default_workers(jobs[0]))
    if executor == "threads" and count > 1:
        with ThreadPoolExecutor(count) as threads:
            yield Opened(threads, count)
        return
    if count > 1:
        _require_not_a_worker()
    if count == 1 or not _can_be_sent(jobs, requested=workers):
        choose_gpu(jobs[0])
        yield Opened(InThisProcess(), 1)
        return
    with WorkerProcesses(count, on_retry) as pool:
        yield Opened(pool, count)


def choose_gpu(job: Job) -> None:
    """Use another GPU in each process that torchrun has started on this machine."""
    rank = os.environ.get("LOCAL_RANK", "") if torchrun_rank() is not None else ""
    if job.settings.resolved_device == "cuda" and rank.isdecimal():
        import torch

        torch.cuda.set_device(int(rank) % torch.cuda.device_count())


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
