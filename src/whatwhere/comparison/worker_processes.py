"""An executor of worker processes, of which a dead one costs its call another attempt, and no other call anything.

A ProcessPoolExecutor of several processes ends as a whole when one of them is killed. Here each worker is a
ProcessPoolExecutor of one process, which a new one replaces.
"""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, ParamSpec, TypeVar

from whatwhere.errors import ResultsError

ATTEMPTS = 3
"""How often a call is tried whose worker process dies."""

P = ParamSpec("P")
R = TypeVar("R")


class NoWorkers(ResultsError):
    """No worker process can be started."""


class WorkerProcesses(Executor):
    """Run each call in one of several processes, one at a time in each.

    Args:
        count: of processes; each is started with its first call.
        on_retry: called with the first argument of a call that is tried again, and why.

    Examples:
        >>> with WorkerProcesses(2) as workers:
        ...     workers.submit(abs, -3).result()
        3
    """

    def __init__(self, count: int, on_retry: Callable[[Any, str], None] = lambda argument, reason: None) -> None:
        self._on_retry = on_retry
        self._closed = False
        self._workers = [_Worker() for _ in range(count)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Schedule a call; its function, arguments and result are pickled."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, after the calls in progress."""
        self._closed = True
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for worker in self._workers:
            worker.end(wait)

    def _call(self, fn: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        worker = self._idle.get()
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    return worker.call(fn, args, kwargs)
                except BrokenProcessPool:
                    reason = worker.end()
                    if self._closed or attempt == ATTEMPTS:
                        break
                    self._on_retry(args[0], f"its worker process {reason}; it is tried again")
            raise ResultsError(f"its worker process {reason}, {attempt} times in {attempt} attempts.")
        finally:
            self._idle.put(worker)


class _Worker:
    """One process, replaced after its death."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._context = _Context()

    def call(self, fn: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Return the result of a call; raise BrokenProcessPool where the process dies meanwhile."""
        if self._pool is None:
            self._start()
        assert self._pool is not None
        return self._pool.submit(fn, *args, **kwargs).result()

    def end(self, wait: bool = True) -> str:
        """End the process, and return how it ended."""
        if self._pool is not None:
            self._pool.shutdown(wait)
            self._pool = None
        return _how_it_ended(self._context.process)

    def _start(self) -> None:
        try:
            self._pool = ProcessPoolExecutor(1, mp_context=self._context, initializer=_prepare)
        except OSError as problem:  # where /dev/shm cannot be written, as in some containers
            raise NoWorkers(
                f"this system lets no worker process begin, for it gives no semaphores: {problem}\n"
                "Pass workers=1 (--workers 1), which trains in this process, or make /dev/shm writable."
            ) from problem
        try:
            self._pool.submit(os.getpid).result()
        except BrokenProcessPool as problem:
            raise NoWorkers(
                f"a worker process {self.end()} before its first run; finished runs are kept.\n"
                "Causes: too little memory (pass workers=1), or a script that calls compare outside of\n"
                'if __name__ == "__main__":'
            ) from problem


class _Context(SpawnContext):
    """Start fresh processes, without the threads and locks of this one, and remember the last: how did it end?"""

    process: SpawnProcess | None = None

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]
        """Return a process to start."""
        self.process = SpawnProcess(*args, **kwargs)
        return self.process


def _how_it_ended(process: SpawnProcess | None) -> str:
    status = None if process is None else process.exitcode
    if status is None:
        return "ended unexpectedly"
    if status >= 0:
        return f"ended with status {status}"
    name = signal.Signals(-status).name
    cause = ", as the system does where memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{cause}"


def _prepare() -> None:
    """Prepare a worker process: it ignores Ctrl-C, which its parent handles, and ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        while parent is not None and parent.is_alive():
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
