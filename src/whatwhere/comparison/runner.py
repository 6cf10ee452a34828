"""Submit runs to an executor, show their progress, and keep each as soon as it is finished."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from whatwhere.atomic import temporary_folder
from whatwhere.comparison.claim_files import Claims
from whatwhere.comparison.executors import Opened, is_local, opened
from whatwhere.comparison.folder import run_name
from whatwhere.comparison.progress import Display, display
from whatwhere.comparison.results import RunResult
from whatwhere.comparison.run import STOP, Job, Run, Stopped, run
from whatwhere.comparison.worker_processes import NoWorkers
from whatwhere.errors import ResultsError, WhatWhereError

_POLL_EVERY = 0.25  # seconds
_LOOK_EVERY = 1.0  # seconds between looks at runs that are all claimed by other processes, at least
_LOOK_AT_EACH = 0.02  # seconds more for each of them: a network file system answers thousands of times a second
_STOPPED = (Stopped, CancelledError)
Keep = Callable[[Run], None]


@dataclass(frozen=True)
class Shared:
    """What processes that share the runs of a folder see of each other.

    Args:
        claims: of the runs.
        read: returns the result of a run that another process has finished, or None.
    """

    claims: Claims
    read: Callable[[Job], RunResult | None]


def run_all(
    jobs: Sequence[Job],
    keep: Keep,
    *,
    executor: Executor | str | None,
    workers: int | None,
    show: bool,
    folder: Path | None = None,
    shared: Shared | None = None,
) -> None:
    """Do all runs; each is kept when it is finished, so that an interruption loses only those in progress.

    Args:
        jobs: the runs.
        keep: called with each finished run, in this process.
        executor: where to run, as `executors.opened` takes it; None makes a process pool of `workers`.
        workers: processes; None is one for each core. 1 runs in this process.
        show: show the progress on standard error.
        folder: of the results, by which workers on other machines report their steps where they share that disk.
        shared: runs that other processes claim are left to them, and waited for; None where there are no others.

    Raises:
        ResultsError: If some runs failed, such as one that ended its worker process again and again; the others are
            kept.
        SettingError: If there is no such executor, or the runs cannot be sent to it.
        MissingExtra: If the executor's package is not installed.
        KeyboardInterrupt: When interrupted, after the runs in progress were signaled to stop.
    """
    if not jobs:
        return
    home = None if folder is None or is_local(executor) else folder.resolve()
    with (
        # The name is that of an unfinished file: what a killed process leaves of it is no result.
        temporary_folder((home or Path(tempfile.gettempdir())) / "whatwhere-runs") as channels,
        display(jobs, show) as shown,
        opened(
            executor, jobs, workers, lambda job, reason: shown.note(f"{_name(job)}: {reason}"), home or channels
        ) as where,
        _watched(channels, shown),
    ):
        _collect(where, jobs, keep, shown, channels, shared)


def _collect(
    where: Opened, jobs: Sequence[Job], keep: Keep, shown: Display, channels: Path, shared: Shared | None
) -> None:
    """Submit runs, as many at once as the executor does, and keep each that is finished."""
    failures: list[str] = []
    missing = _Missing(jobs, shared, shown, failures)
    waiting: dict[Future[Run], tuple[Job, Path]] = {}
    try:
        while missing or waiting:
            while (where.slots is None or len(waiting) < where.slots) and (job := missing.take()) is not None:
                channel = channels / str(len(jobs) - len(missing))
                waiting[where.executor.submit(run, replace(job, channel=channel))] = (job, channel)
            shown.waiting(0 if waiting else len(missing))
            if not waiting:
                time.sleep(_POLL_EVERY if missing else 0)
                continue
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
                    missing.failed(job, problem)
                    continue
                keep(finished_run)
                missing.release(job)
                shown.finished(finished_run.result)
    except BaseException:
        # Nobody will read the remaining runs: they are cancelled, or signaled to stop.
        (channels / STOP).touch()
        for future in waiting:
            future.cancel()
        raise
    _raise_failures(failures, len(jobs))


class _Missing:
    """The runs that this process has not begun; those of other processes are watched until they end."""

    def __init__(self, jobs: Sequence[Job], shared: Shared | None, shown: Display, failures: list[str]) -> None:
        self._jobs, self._shared, self._shown, self._failures = list(jobs), shared, shown, failures
        self._look_at = 0.0
        if shared is not None:
            for job in jobs:
                shared.claims.forget_failure(_file(job))

    def __len__(self) -> int:
        return len(self._jobs)

    def take(self) -> Job | None:
        """Return a run that is to be done here, or None where there is none at the moment."""
        if self._shared is None or not self._jobs:
            return self._jobs.pop(0) if self._jobs else None
        if time.monotonic() < self._look_at:
            return None
        for job in list(self._jobs):
            if self._has_ended(job):
                continue
            if self._shared.claims.take(_file(job)):
                # Its last owner may have finished it since the line before.
                if self._has_ended(job):
                    self._shared.claims.release(_file(job))
                    continue
                self._jobs.remove(job)
                return job
        # All are claimed by others.
        self._look_at = time.monotonic() + max(_LOOK_EVERY, _LOOK_AT_EACH * len(self._jobs))
        return None

    def release(self, job: Job) -> None:
        """Release the claim of a run that was kept."""
        if self._shared is not None:
            self._shared.claims.release(_file(job))

    def failed(self, job: Job, problem: Exception) -> None:
        """Release the claim of a run that failed; others do not train it in vain, unless it was only stopped."""
        if self._shared is not None and not isinstance(problem, _STOPPED):
            self._shared.claims.fail(_file(job), _failure(job, problem))
        self.release(job)

    def _has_ended(self, job: Job) -> bool:
        """Count a run that another process has finished, or failed to finish."""
        assert self._shared is not None
        result = self._shared.read(job)
        failure = None if result is not None else self._shared.claims.failure(_file(job))
        if result is not None:
            self._shown.finished(result, elsewhere=True)
        elif failure is not None:
            self._failures.append(failure)
        else:
            return False
        self._jobs.remove(job)
        return True


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


def _file(job: Job) -> str:
    return run_name(job.name, job.seed)


def _name(job: Job) -> str:
    return f"{job.name}, seed {job.seed}"


def _failure(job: Job, problem: Exception) -> str:
    if isinstance(problem, _STOPPED):
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
