"""Submit runs to an executor, show their progress, and keep each as soon as it is finished."""

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from whatwhere.comparison.environment import cores
from whatwhere.comparison.run import STOP, Job, Run, Stopped, run
from whatwhere.errors import ResultsError, SettingError, WhatWhereError

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
        ResultsError: If some runs failed; the others are kept.
        SettingError: If the runs cannot be sent to the requested processes.
        KeyboardInterrupt: When interrupted, after the runs in progress were signaled to stop.
    """
    if not jobs:
        return
    count = min(len(jobs), workers or _default_workers(jobs[0]))
    pooled = executor is None and count > 1
    if pooled:
        _require_not_a_worker()
        pooled = _can_be_sent(jobs, requested=workers)
    with tempfile.TemporaryDirectory(prefix="whatwhere-") as channels, _display(jobs, show) as display:
        if executor is None and not pooled:
            _run_here(jobs, keep, display, Path(channels))
        elif executor is not None:
            _collect(executor, jobs, keep, display, None)
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(count, mp_context=context, initializer=_prepare) as pool:
                _collect(pool, jobs, keep, display, Path(channels))


class _Display:
    """The progress of all runs: steps done, time left, runs finished."""

    def __init__(self, jobs: Sequence[Job], show: bool) -> None:
        self._steps, self._done, self._runs = 0, 0, len(jobs)
        self._console = Console(stderr=True)
        self._live = show and self._console.is_terminal
        self._lines = show and not self._live
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps,"),
            TimeElapsedColumn(),
            TextColumn("passed,"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self.progress = Progress(*columns, console=self._console, disable=not self._live)
        self._bar = self.progress.add_task(self._text(), total=sum(job.settings.steps for job in jobs))

    def _text(self) -> str:
        return f"{self._done} of {self._runs} runs"

    def in_progress(self, steps: int) -> None:
        """Show how many steps the unfinished runs have done."""
        self.progress.update(self._bar, completed=self._steps + steps)

    def finished(self, run: Run) -> None:
        """Count a finished run."""
        self._done += 1
        self._steps += run.result.steps
        self.progress.update(self._bar, description=self._text(), completed=self._steps)
        if self._lines:
            result = run.result
            self._console.print(
                f"{self._text()}: {result.scheme}, seed {result.seed}, {result.seconds:.0f} s", highlight=False
            )


@contextmanager
def _display(jobs: Sequence[Job], show: bool) -> Iterator[_Display]:
    display = _Display(jobs, show)
    with display.progress:
        yield display


def _run_here(jobs: Sequence[Job], keep: Keep, display: _Display, channels: Path) -> None:
    failures: list[str] = []
    finished = threading.Event()
    watcher = threading.Thread(target=_watch, args=(channels, display, finished), daemon=True)
    watcher.start()
    try:
        for number, job in enumerate(jobs):
            channel = channels / str(number)
            try:
                finished_run = run(_with_channel(job, channel))
            except Exception as problem:
                failures.append(_failure(job, problem))
                continue
            channel.unlink(missing_ok=True)
            keep(finished_run)
            display.finished(finished_run)
    finally:
        finished.set()
        watcher.join()
    _raise_failures(failures, len(jobs))


def _watch(channels: Path, display: _Display, finished: threading.Event) -> None:
    while not finished.wait(_POLL_EVERY):
        display.in_progress(_steps_in_progress(channels))


def _collect(executor: Executor, jobs: Sequence[Job], keep: Keep, display: _Display, channels: Path | None) -> None:
    failures: list[str] = []
    waiting: dict[Future[Run], tuple[Job, Path | None]] = {}
    try:
        for number, job in enumerate(jobs):
            channel = None if channels is None else channels / str(number)
            waiting[executor.submit(run, _with_channel(job, channel))] = (job, channel)
        while waiting:
            done, _ = wait(waiting, timeout=_POLL_EVERY, return_when=FIRST_COMPLETED)
            # Finished runs are kept before an exception of another one can end the loop.
            for future in sorted(done, key=_is_bad):
                job, channel = waiting.pop(future)
                if channel is not None:
                    channel.unlink(missing_ok=True)
                try:
                    finished_run = future.result()
                except BrokenProcessPool as problem:
                    raise _broken(job) from problem
                except Exception as problem:
                    failures.append(_failure(job, problem))
                    continue
                keep(finished_run)
                display.finished(finished_run)
            if channels is not None:
                display.in_progress(_steps_in_progress(channels))
    except BaseException:
        # Nobody will read the remaining runs: they are cancelled, or signaled to stop.
        if channels is not None:
            (channels / STOP).touch()
        for future in waiting:
            future.cancel()
        raise
    _raise_failures(failures, len(jobs))


def _is_bad(future: Future[Run]) -> bool:
    return future.cancelled() or future.exception() is not None


def _with_channel(job: Job, channel: Path | None) -> Job:
    return replace(job, channel=channel)


def _steps_in_progress(channels: Path) -> int:
    steps = 0
    for channel in channels.iterdir():
        if channel.name.isdigit():
            try:
                steps += int(channel.read_text() or 0)
            except (OSError, ValueError):
                continue  # the run has just ended
    return steps


def _default_workers(job: Job) -> int:
    return 1 if job.settings.resolved_device == "cuda" else cores()


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


def _prepare() -> None:
    """Prepare a worker process: it ignores Ctrl-C, which its parent handles, and ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        while parent is not None and parent.is_alive():
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _failure(job: Job, problem: Exception) -> str:
    if isinstance(problem, Stopped | CancelledError):
        message = "was stopped"
    else:
        message = str(problem) if isinstance(problem, WhatWhereError) else f"{type(problem).__name__}: {problem}"
    return f"{job.name}, seed {job.seed}: {message}"


def _raise_failures(failures: Sequence[str], runs: int) -> None:
    if failures:
        raise ResultsError(
            f"{len(failures)} of {runs} runs failed; the others are kept.\n"
            + "\n".join(failures)
            + "\nFix the cause and run the same command again to resume."
        )


def _broken(job: Job) -> ResultsError:
    return ResultsError(
        f"a worker process ended unexpectedly ({job.name}, seed {job.seed} was waiting); finished runs are "
        "kept.\n"
        "Causes: too little memory (pass workers=1), or a script that calls compare outside of\n"
        'if __name__ == "__main__":'
    )
