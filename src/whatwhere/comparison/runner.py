"""Submit runs to an executor, keep each when it is finished, show the progress, and leave to others what they train.

Processes share a folder by locks of its files, which the system releases when a process ends, however it does.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from whatwhere.atomic import temporary_folder
from whatwhere.comparison.folder import CHANNELS, run_name
from whatwhere.comparison.model import own_builds
from whatwhere.comparison.results import LossesSoFar, RunResult, share_of_cores, torchrun_rank
from whatwhere.comparison.run import STOP, Job, Run, Stopped, run, write_losses
from whatwhere.errors import ResultsError, SettingError, WhatWhereError
from whatwhere.long_work import part_of

_SHOWN_FROM = 1 << 28  # bytes of a text that takes a second to read
_LEFT = (TimeRemainingColumn(), TextColumn("left"))


class Display:
    """The progress of all runs, on standard error if `show`: steps done, time left, runs finished, held-out losses."""

    def __init__(self, jobs: Sequence[Job], show: bool) -> None:
        self._steps, self._done, self._elsewhere, self._runs = 0, 0, 0, len(jobs)
        self._console = Console(stderr=True)
        self.live = show and self._console.is_terminal
        self._lines = show and not self.live
        self._whole = part_of.get()  # here, for the steps are shown from another thread
        done = (MofNCompleteColumn(), TextColumn("steps,"), TimeElapsedColumn(), TextColumn("passed,"))
        self.progress = Progress(TextColumn("{task.description}"), BarColumn(), *done, *_LEFT, console=self._console)
        self._bar = self.progress.add_task(self._text(), total=sum(job.settings.steps for job in jobs))

    def _text(self) -> str:
        elsewhere = f", {self._elsewhere} in other processes" if self._elsewhere else ""
        whole = "" if self._whole is None else f" ({self._whole()})"
        return f"{self._done} of {self._runs} runs{elsewhere}{whole}"

    def in_progress(self, runs: Sequence[tuple[int, float | None]]) -> None:
        """Show how many steps the unfinished runs have done, and their held-out losses."""
        losses = [f"{loss:.3g}" for _, loss in runs if loss is not None]
        text = f"{self._text()}, held-out loss {', '.join(losses)}" if losses else self._text()
        self.progress.update(self._bar, description=text, completed=self._steps + sum(steps for steps, _ in runs))

    def finished(self, result: RunResult, elsewhere: bool = False) -> None:
        """Count a finished run, of this process or elsewhere."""
        self._done += 1
        self._steps += result.steps
        self.progress.update(self._bar, description=self._text(), completed=self._steps)
        if self._lines:
            how = "in another process" if elsewhere else f"{result.seconds:.0f} s"
            how += f", held-out loss {result.held_out[-1][1]:.3g}" if result.held_out else ""
            self._print(f"{self._done} of {self._runs} runs: {result.scheme}, seed {result.seed}, {how}")

    def waiting(self, runs: int) -> None:
        """Show that all that is left are runs that other processes are training."""
        if runs == self._elsewhere:
            return
        self._elsewhere = runs
        self.progress.update(self._bar, description=self._text())
        if self._lines and runs:
            self._print(f"waiting for {runs} run{'s' * (runs > 1)} of other processes")

    def _print(self, message: str) -> None:
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def bytes_read(what: str, total: int, show: bool, shown_from: int = _SHOWN_FROM) -> Iterator[Callable[[int], None]]:
    """Show how many bytes have been read, of as many as take seconds, in a `with` block."""
    console = Console(stderr=True)
    show = show and total >= shown_from
    if show and not console.is_terminal:
        console.print(f"{what}: {total / 1e9:.1f} GB", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), *_LEFT)
    progress = Progress(*columns, console=console, transient=True)
    with progress if show and console.is_terminal else nullcontext():
        bar = progress.add_task(what, total=total)
        yield lambda count: progress.advance(bar, count)


_POLL_EVERY = 0.25  # seconds
_LOOK_EVERY = 1.0  # seconds between looks at runs that other processes train
_MOST_AT_ONCE = 256  # runs that an executor of the caller's own gets: each keeps a file open, its lock

P = ParamSpec("P")
R = TypeVar("R")


def run_all(
    jobs: Sequence[Job],
    folder: Path,
    keep: Callable[[Run], None],
    read: Callable[[Job], RunResult | None],
    *,
    executor: Executor | None,
    workers: int | None,
    show: bool,
) -> None:
    """Do all runs; each is kept when it is finished, so that an interruption loses only those in progress."""
    if not jobs:
        return
    shown = Display(jobs, show)
    with (
        # The name is that of an unfinished file: what a killed process leaves of it is not a result.
        temporary_folder(folder.resolve() / CHANNELS) as channels,
        shown.progress if shown.live else nullcontext(),  # rich before 14.3 ends one that is disabled by a line
        _opened(executor, jobs, workers) as (opened, slots),
        _watched(channels, shown),
    ):
        write_losses(channels / "0", *(LossesSoFar(job.name, job.seed, job.settings.steps) for job in jobs))
        _collect(opened, slots, jobs, folder / "runs", keep, read, shown, channels)


def _collect(
    executor: Executor,
    slots: int,
    jobs: Sequence[Job],
    runs: Path,
    keep: Callable[[Run], None],
    read: Callable[[Job], RunResult | None],
    shown: Display,
    channels: Path,
) -> None:
    failures: list[str] = []
    missing, waiting = list(jobs), dict[Future[Run], tuple[Job, Path, FileLock]]()
    look_at = 0.0
    try:
        while missing or waiting:
            if time.monotonic() >= look_at:
                for job in list(missing):
                    if len(waiting) >= slots:
                        break
                    if (lock := _lock(runs, job)) is None:  # another process trains it
                        continue
                    missing.remove(job)
                    if (result := read(job)) is not None:  # another process has trained it
                        shown.finished(result, elsewhere=True)
                        _unlock(lock, remove=True)
                        continue
                    channel = channels / str(len(jobs) - len(missing))
                    waiting[executor.submit(run, replace(job, channel=channel))] = job, channel, lock
                look_at = time.monotonic() + (_LOOK_EVERY if len(waiting) < slots else 0)
            shown.waiting(0 if waiting else len(missing))
            if not waiting:
                time.sleep(_POLL_EVERY if missing else 0)
                continue
            done, _ = wait(waiting, timeout=_POLL_EVERY, return_when=FIRST_COMPLETED)
            # Finished runs are kept before an exception of another one can end the loop.
            for future in sorted(done, key=lambda each: each.cancelled() or each.exception() is not None):
                job, channel, lock = waiting.pop(future)
                channel.unlink(missing_ok=True)
                try:
                    finished_run = future.result()
                except BrokenExecutor:
                    raise
                except Exception as problem:
                    failures.append(_failure(job, problem))
                    _unlock(lock, remove=False)
                    continue
                keep(finished_run)
                _unlock(lock, remove=True)
                shown.finished(finished_run.result)
                look_at = 0.0
    except BaseException as problem:
        # Nobody will read the remaining runs: they are cancelled, or signaled to stop.
        (channels / STOP).touch()
        for future, (_, _, lock) in waiting.items():
            future.cancel()
            _unlock(lock, remove=False)
        if isinstance(problem, BrokenExecutor):
            raise ResultsError(
                "a worker process ended; finished runs are kept.\n"
                "Causes: too little memory (pass fewer workers), or a script that calls compare outside of\n"
                'if __name__ == "__main__":\n'
                "Run the same again to resume."
            ) from problem
        raise
    if failures:
        raise ResultsError(
            f"{len(failures)} of {len(jobs)} runs failed; the others are kept.\n"
            + "\n".join(failures)
            + "\nFix the cause and run the same command again to resume."
        )


def _lock(runs: Path, job: Job) -> FileLock | None:
    """Return the lock of a run, or None where another process has it."""
    runs.mkdir(exist_ok=True)
    lock = FileLock(runs / f"{run_name(job.name, job.seed)}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    except (OSError, NotImplementedError) as problem:
        raise ResultsError(
            f"{runs} cannot be shared among processes, for its disk locks no files: {problem}.\nChoose another folder."
        ) from problem
    return lock


def _unlock(lock: FileLock, remove: bool) -> None:
    if remove:  # whoever has the file open will find the run finished
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


class InThisProcess(Executor):
    """Run each call at once, in the thread that submits it; an interrupt passes."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call a function, and return a future that is done."""
        future: Future[R] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future


def require_executor(executor: object, workers: int | None) -> None:
    """Raise SettingError if runs cannot be submitted to an object, or there is no worker."""
    if executor is not None and not isinstance(executor, Executor):
        raise SettingError(
            f"compare got executor={executor!r}, but needs a concurrent.futures.Executor: a ThreadPoolExecutor, "
            "Dask's client.get_executor(), ....\nOf an engine without one, let each job make the same call: they share "
            "the runs of the folder."
        )
    if workers is not None and workers < 1:
        raise SettingError(f"compare got workers={workers}, but needs at least 1: None is one for each core.")


@contextmanager
def _opened(executor: Executor | None, jobs: Sequence[Job], workers: int | None) -> Iterator[tuple[Executor, int]]:
    """Yield what runs are submitted to, and how many at once."""
    if executor is not None:
        yield executor, _MOST_AT_ONCE
        return
    on_gpu = jobs[0].settings.resolved_device == "cuda"
    count = min(len(jobs), workers or (1 if on_gpu else share_of_cores()))
    if count > 1 and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SettingError(
            "compare starts processes, and each of them imports your script, which calls compare again.\n"
            'Put the call under `if __name__ == "__main__":`, or pass workers=1.'
        )
    if count == 1 or not _can_be_sent(jobs, requested=workers is not None):
        choose_gpu(on_gpu)
        yield InThisProcess(), 1
        return
    try:
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _prepare)
    except OSError as problem:  # where /dev/shm cannot be written, as in some containers
        raise ResultsError(
            f"this system lets no worker process begin, for it gives no semaphores: {problem}\n"
            "Pass workers=1 (--workers 1), which trains in this process, or make /dev/shm writable."
        ) from problem
    with pool:
        yield pool, count


def choose_gpu(on_gpu: bool) -> None:
    """Use another GPU in each process that torchrun has started on this machine."""
    rank = os.environ.get("LOCAL_RANK", "") if torchrun_rank() is not None else ""
    if on_gpu and rank.isdecimal():
        import torch

        torch.cuda.set_device(int(rank) % torch.cuda.device_count())


def _prepare() -> None:
    """Prepare a worker process: it ignores Ctrl-C, which its parent handles, and ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        while parent is not None and parent.is_alive():
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _can_be_sent(jobs: Sequence[Job], requested: bool) -> bool:
    """Return whether the runs can be sent to other processes; raise SettingError if that was requested."""
    interactive = getattr(sys.modules.get("__main__"), "__file__", None) is None
    builders: list[object] = [build for job in jobs for build in own_builds(job.scheme).values()]
    builders += [job.model for job in jobs if job.model is not None]
    if interactive and any(getattr(build, "__module__", "") == "__main__" for build in builders):
        reason = "it was typed into an interactive session, which other processes cannot import"
    else:
        try:
            for job in {job.name: job for job in jobs}.values():
                pickle.dumps(job)
            return True
        except Exception as problem:
            reason = str(problem)
    if not requested:
        return False
    raise SettingError(
        f"a scheme, task or model cannot be sent to other processes: {reason}.\n"
        "Define it at the top of a module with def (not lambda), or pass workers=1."
    )


@contextmanager
def _watched(channels: Path, shown: Display) -> Iterator[None]:
    """Show the steps of the runs in progress, from a thread: this one may be running one of them."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(_POLL_EVERY):
            shown.in_progress([found for channel in channels.iterdir() if (found := _progress(channel)) is not None])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def _progress(channel: Path) -> tuple[int, float | None] | None:
    """Return the steps done and the held-out loss of a run, None where it has just ended or is another file."""
    try:
        steps, _, loss = channel.read_text().partition(" ")
        return int(steps), float(loss) if loss else None
    except (OSError, ValueError):
        return None


def _failure(job: Job, problem: Exception) -> str:
    message = str(problem) if isinstance(problem, WhatWhereError) else f"{type(problem).__name__}: {problem}"
    stopped = isinstance(problem, Stopped | CancelledError)
    return f"{job.name}, seed {job.seed}: {'was stopped' if stopped else message}"
