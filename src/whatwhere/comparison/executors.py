"""Where runs take place: in this process, in processes or threads of this machine, or on an engine for many machines.

Every engine is a `concurrent.futures.Executor`: Dask has one, submitit and Ray are adapted to it here.
"""

import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from whatwhere.comparison.environment import share_of_cores, torchrun_rank
from whatwhere.comparison.run import Job
from whatwhere.comparison.worker_processes import ATTEMPTS, WorkerProcesses
from whatwhere.errors import MissingExtra, ResultsError, SettingError

P = ParamSpec("P")
R = TypeVar("R")

LOCAL = ("processes", "threads")
"""Executors of this machine, by name."""
_CONNECT_IN = 15  # seconds
_POLL_EVERY = 0.5  # seconds
_JOB_MINUTES = 240
"""The time limit of a job of SLURM; submitit's own five minutes would end longer runs."""


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


class SubmititExecutor(Executor):
    """Submit each call as a job of submitit, whose own executors are none of `concurrent.futures`.

    Args:
        executor: an AutoExecutor, or whatever has its `submit(function, *args)`, which returns jobs with `done()`,
            `result()` and `cancel()`.
        lost: the errors of a job that ended without a result, such as one that was killed; it is submitted again.
    """

    def __init__(self, executor: Any, lost: type[Exception]) -> None:
        self._executor, self._lost = executor, lost
        self._jobs: dict[Future[Any], tuple[Any, tuple[Any, ...], int]] = {}
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a call as a job."""
        future: Future[R] = Future()
        call = (fn, args, kwargs)
        self._jobs[future] = (self._executor.submit(_outcome, *call), call, 1)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel the jobs that have not ended."""
        self._closed.set()
        self._watcher.join()
        for job, *_ in self._jobs.values():
            job.cancel()

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_EVERY):
            for future, (job, call, attempt) in list(self._jobs.items()):
                if future.cancelled():
                    job.cancel()
                elif not job.done():
                    continue
                elif (outcome := self._read(job, attempt)) is None:
                    self._jobs[future] = (self._executor.submit(_outcome, *call), call, attempt + 1)
                    continue
                else:
                    _settle(future, outcome)
                del self._jobs[future]

    def _read(self, job: Any, attempt: int) -> "tuple[bool, Any] | None":
        """Return the outcome of a job that is done, or None where it is to be submitted again."""
        try:
            outcome: tuple[bool, Any] = job.result()
        except self._lost as problem:
            if attempt < ATTEMPTS:
                return None
            return False, ResultsError(
                f"its job ended without a result, {attempt} times: {str(problem).splitlines()[0]}"
            )
        except Exception as problem:
            return False, problem
        return outcome


class RayExecutor(Executor):
    """Submit each call as a task of Ray, which starts it again where its worker died.

    Args:
        ray: the module, connected; or whatever has its `remote`.
    """

    def __init__(self, ray: Any) -> None:
        self._task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(_outcome)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Submit a call as a task."""
        future: Future[R] = Future()

        def settle(done: "Future[tuple[bool, Any]]") -> None:
            problem = done.exception()
            _settle(future, done.result() if problem is None else (False, problem))

        self._task.remote(fn, args, kwargs).future().add_done_callback(settle)
        return future


def _outcome(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Return whether a call succeeded, and its result or its error: engines wrap what is raised in errors of theirs."""
    try:
        return True, fn(*args, **kwargs)
    except Exception as problem:
        return False, problem


def _settle(future: Future[Any], outcome: tuple[bool, Any]) -> None:
    succeeded, value = outcome
    if not future.set_running_or_notify_cancel():
        return
    if succeeded:
        future.set_result(value)
    else:
        future.set_exception(value)


@contextmanager
def _dask(address: str, folder: Path) -> Iterator[Executor]:
    if not address:
        raise SettingError("executor 'dask' needs the address of a scheduler: dask:tcp://HOST:8786.")
    try:
        from distributed import Client
    except ImportError:
        raise _missing("Dask", "dask") from None
    try:
        client: Any = Client(address, timeout=_CONNECT_IN, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as problem:
        raise SettingError(
            f"no Dask scheduler answers at {address}: {problem}.\nStart one: dask scheduler; then workers: dask worker "
            "ADDRESS."
        ) from None
    with client:
        yield client.get_executor(pure=False, retries=ATTEMPTS - 1)


@contextmanager
def _submitit(given: str, folder: Path) -> Iterator[Executor]:
    partition, *options = given.split(",")
    if not partition:
        raise SettingError("executor 'submitit' needs a partition: submitit:gpu, or submitit:gpu,timeout_min=600.")
    try:
        import submitit
    except ImportError:
        raise _missing("submitit", "submitit") from None
    parameters: dict[str, Any] = {"timeout_min": _JOB_MINUTES, "cpus_per_task": 1, "name": "whatwhere"}
    parameters |= {} if partition == "local" else {"slurm_partition": partition}
    for option in options:
        name, _, value = option.partition("=")
        parameters[name.strip()] = int(value) if value.strip().isdecimal() else value.strip()
    try:
        cluster = "local" if partition == "local" else "slurm"
        executor = submitit.AutoExecutor(folder=folder / "submitit" / "%j", cluster=cluster)
        executor.update_parameters(**parameters)
    except Exception as problem:  # it raises RuntimeError, NameError, TypeError and others
        raise SettingError(f"submitit cannot use {given!r}: {problem}\nPass a partition, or submitit:local.") from None
    with SubmititExecutor(executor, submitit.core.utils.UncompletedJobError) as adapted:
        yield adapted


@contextmanager
def _ray(address: str, folder: Path) -> Iterator[Executor]:
    try:
        import ray
    except ImportError:
        raise _missing("Ray", "ray") from None
    if ray.is_initialized():
        yield RayExecutor(ray)
        return
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as problem:
        raise SettingError(f"Ray cannot be reached at {address!r}: {problem}.\nStart it: ray start --head.") from None
    try:
        yield RayExecutor(ray)
    finally:
        ray.shutdown()


def _missing(package: str, extra: str) -> MissingExtra:
    return MissingExtra(f"{package} is not installed: pip install 'whatwhere[{extra}]'.")


_ENGINES: dict[str, Callable[[str, Path], AbstractContextManager[Executor]]] = {
    "dask": _dask,
    "submitit": _submitit,
    "ray": _ray,
}


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
    if name not in (*LOCAL, *_ENGINES) or (name in LOCAL and colon):
        raise SettingError(
            f"compare got executor={executor!r}, but knows processes, threads, dask:ADDRESS, submitit:PARTITION, ray "
            "and ray:ADDRESS."
        )
    return name in LOCAL


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
        name, _, address = str(executor).partition(":")
        with _ENGINES[name](address, folder) as engine:
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
