"""Submit runs to an executor, show their progress, and keep each as soon as it is finished."""

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from whatwhere.comparison.executors import Opened, opened
from whatwhere.comparison.progress import Display, display
from whatwhere.comparison.run import STOP, Job, Run, Stopped, run
from whatwhere.comparison.worker_processes import NoWorkers
from whatwhere.errors import ResultsError, WhatWhereError

_POLL_EVERY = 0.25  # seconds
Keep = Callable[[Run], None]


def run_all(jobs: Sequence[Job], keep: Keep, *, executor: Executor | None, workers: int | None, show: bool) -> None:
    """Do all runs; each is kept when it is finished, so that an interruption loses only those in progress.

    Args:
        jobs: the runs.
        keep: called with each finished run, in this process.
        executor: where to run; None makes a process pool of `workers`.
        workers: processes; None is one for each core. 1 runs in this process.
        show: show the progress on standard error.

    Raises:
        ResultsError: If some runs failed, such as one that ended its worker process again and again; the others are
            kept.
        SettingError: If the runs cannot be sent to the requested processes.
        KeyboardInterrupt: When interrupted, after the runs in progress were signaled to stop.
    """
    if not jobs:
        return
    with (
        tempfile.TemporaryDirectory(prefix="whatwhere-") as channels,
        display(jobs, show) as shown,
        opened(executor, jobs, workers, lambda job, reason: shown.note(f"{_name(job)}: {reason}")) as where,
        _watched(Path(channels), shown),
    ):
        _collect(where, jobs, keep, shown, Path(channels))


def _collect(where: Opened, jobs: Sequence[Job], keep: Keep, shown: Display, channels: Path) -> None:
    """Submit runs, as many at once as the executor does, and keep each that is finished."""
    failures: list[str] = []
    missing = deque(enumerate(jobs))
    waiting: dict[Future[Run], tuple[Job, Path]] = {}
    try:
        while missing or waiting:
            while missing and (where.slots is None or len(waiting) < where.slots):
                number, job = missing.popleft()
                channel = channels / str(number)
                waiting[where.executor.submit(run, replace(job, channel=channel))] = (job, channel)
            done, _ = wait(waiting, timeout=_POLL_EVERY, return_when=FIRST_COMPLETED)
            # Finished runs are kept before an exception of another one can end the loop.
            for future in sorted(done, key=_is_bad):
                job, channel = waiting.pop(future)
                channel.unlink(missing_ok=True)
                try:
                    finished_run = future.result()
                except NoWorkers:
                    raise
                except BrokenExecutor as problem:
                    raise _broken(job) from problem
                except Exception as problem:
                    failures.append(_failure(job, problem))
                    continue
                keep(finished_run)
                shown.finished(finished_run.result)
    except BaseException:
        # Nobody will read the remaining runs: they are cancelled, or signaled to stop.
        (channels / STOP).touch()
        for future in waiting:
            future.cancel()
        raise
    _raise_failures(failures, len(jobs))


def _is_bad(future: Future[Run]) -> bool:
    return future.cancelled() or future.exception() is not None


@contextmanager
def _watched(channels: Path, shown: Display) -> Iterator[None]:
    """Show the steps of the runs in progress, from a thread: this one may be running one of them."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(_POLL_EVERY):
            shown.in_progress(_steps_in_progress(channels))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def _steps_in_progress(channels: Path) -> int:
    steps = 0
    for channel in channels.iterdir():
        if channel.name.isdigit():
            try:
                steps += int(channel.read_text() or 0)
            except (OSError, ValueError):
                continue  # the run has just ended
    return steps


def _name(job: Job) -> str:
    return f"{job.name}, seed {job.seed}"


def _failure(job: Job, problem: Exception) -> str:
    if isinstance(problem, Stopped | CancelledError):
        message = "was stopped"
    else:
        message = str(problem) if isinstance(problem, WhatWhereError) else f"{type(problem).__name__}: {problem}"
    return f"{_name(job)}: {message}"


def _raise_failures(failures: Sequence[str], runs: int) -> None:
    if failures:
        raise ResultsError(
            f"{len(failures)} of {runs} runs failed; the others are kept.\n"
            + "\n".join(failures)
            + "\nFix the cause and run the same command again to resume."
        )


def _broken(job: Job) -> ResultsError:
    return ResultsError(
        f"the executor lost a worker, and ended ({_name(job)} was waiting); finished runs are kept.\n"
        "Causes: too little memory, or a script that calls compare outside of\n"
        'if __name__ == "__main__":\n'
        "Run the same again to resume."
    )
