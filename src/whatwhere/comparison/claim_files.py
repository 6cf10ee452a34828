"""Runs shared among processes by files in a folder: who has created the claim of a run trains it.

    runs/NAME.claim      the claim of a run; its time is renewed while its owner lives
    runs/NAME.claim-2    that of the process that took the run over from an owner who died, and so on
    failed/NAME.txt      why the run failed, for the processes that are waiting for it; the next call removes it

A claim is created by O_EXCL, which one process succeeds in, also on a network file system; the last one counts. Times
are compared with that of a file that the reader has just renewed, so that clocks of machines need not agree. Clocks may
be set meanwhile: of a time that is too old or in the future, a reader watches whether it changes. What has the name of
a claim and is no file counts as a claim that nobody renews; it is left where it is.
"""

import json
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from whatwhere.atomic import write_atomic
from whatwhere.errors import ResultsError
from whatwhere.records import Schema

LEASE = 60.0
"""Seconds without a sign of life after which the owner of a claim counts as dead."""
_SCHEMA = Schema("whatwhere-claim", 1, "Wait until it is no longer renewed.")
_RENEW_EVERY = 5.0  # seconds
_RETRY_EVERY = 0.25
_LARGEST = 1 << 16  # bytes of a file that is read here


class Claims:
    """The claims of one process in a folder.

    Args:
        folder: of the results, which all processes share; it has a folder of runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._failed = folder / "runs", folder / "failed"
        self._held: dict[str, Path] = {}
        self._lock = threading.Lock()
        self._clock: float | None = None
        self._watched: dict[Path, tuple[float, float]] = {}
        self._owner = json.dumps(_SCHEMA.sealed({"process": _process(os.getpid()), "key": secrets.token_hex(8)}))

    def take(self, name: str) -> bool:
        """Claim a run, unless a living process has claimed it.

        Args:
            name: of the run's file, without suffix.

        Returns:
            Whether this process has the claim now.

        Raises:
            ResultsError: If the folder cannot be written.
        """
        last = self._last(name)
        if last is not None and not self._is_dead(self._path(name, last)):
            return False
        mine = (last or 0) + 1
        path = self._path(name, mine)
        try:
            opened = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        except FileExistsError:
            return False
        except OSError as problem:
            raise ResultsError(
                f"{path} cannot be written: {problem.strerror}.\nMake room, then run it again."
            ) from None
        with open(opened, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(self._owner)
        # What was listed above may be old: another process may have taken the run over meanwhile.
        if self._last(name) != mine:
            path.unlink(missing_ok=True)
            return False
        with self._lock:
            self._held[name] = path
        return True

    def release(self, name: str) -> None:
        """Release a claim; those of dead owners from whom it was taken over are removed first.

        Args:
            name: of the run's file, without suffix.
        """
        with self._lock:
            path = self._held.pop(name, None)
        if path is None or not self._is_mine(path):
            return
        for number in sorted(self._numbers(name)):
            if self._path(name, number) == path:
                path.unlink(missing_ok=True)
                return  # a later one belongs to a process that took this one for dead
            _remove(self._path(name, number))

    def fail(self, name: str, message: str) -> None:
        """Write for other processes that a run has failed, so that they do not train it in vain.

        Args:
            name: of the run's file, without suffix.
            message: why.
        """
        with suppress(OSError):  # then they train it, and see for themselves
            self._failed.mkdir(exist_ok=True)
            write_atomic(self._failure(name), message[:_LARGEST], follow=False)

    def failure(self, name: str) -> str | None:
        """Return why a run failed in another process, or None.

        Args:
            name: of the run's file, without suffix.
        """
        try:
            with self._failure(name).open(encoding="utf-8", errors="replace") as file:
                return file.read(_LARGEST)
        except OSError:
            return None

    def forget_failure(self, name: str) -> None:
        """Remove what an earlier call left of a run that failed.

        Args:
            name: of the run's file, without suffix.
        """
        with suppress(OSError):
            self._failure(name).unlink()
            self._failed.rmdir()  # unless it holds others

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Wait until no other process has a claim, and hold it in a `with` block, inside one of `renewed`.

        Args:
            name: of the claim's file, without suffix.
        """
        while not self.take(name):
            time.sleep(_RETRY_EVERY)
        try:
            yield
        finally:
            self.release(name)

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the claims in a `with` block, at whose end those that are left are released."""
        finished = threading.Event()

        def renew() -> None:
            while not finished.wait(_RENEW_EVERY):
                with self._lock:
                    held = list(self._held.values())
                for path in held:
                    with suppress(OSError):
                        os.utime(path)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()
            for name in list(self._held):
                self.release(name)
            with suppress(OSError):
                self._remove_left()

    def _remove_left(self) -> None:
        """Remove the claims of owners who died between writing a run and releasing its claim."""
        for path in list(self._folder.glob("*.claim*")):
            run = self._folder / f"{path.name.partition('.claim')[0]}.json"
            if run.exists() and self._is_dead(path, watched=False):
                _remove(path)

    def _is_dead(self, path: Path, watched: bool = True) -> bool:
        """Return whether the owner of a claim has ended, or has shown no sign of life for the time of a lease.

        Args:
            path: of the claim.
            watched: the clock alone is not believed.
        """
        try:
            status = path.lstat()
            owner = _owner_of(path, status)
        except FileNotFoundError:
            return False  # it has just been released
        if _has_ended(owner):
            return True
        # A claim without a name is that of a process that was killed before it wrote one.
        lease = LEASE if owner else _RENEW_EVERY
        age = self._now() - status.st_mtime
        if 0 <= age <= lease:
            return False
        if age > lease and not watched:
            return True
        time_seen, since = self._watched.get(path, (None, 0.0))
        if time_seen != status.st_mtime:
            self._watched[path] = status.st_mtime, time.monotonic()
            return False
        return time.monotonic() - since > (lease if age < 0 else min(lease, 2 * _RENEW_EVERY))

    def _now(self) -> float:
        """Return the time of the file system, by a file without a name."""
        if self._clock is None:
            with tempfile.TemporaryFile(dir=self._folder) as probe:
                if os.utime in os.supports_fd:
                    os.utime(probe.fileno())
                self._clock = os.fstat(probe.fileno()).st_mtime - time.monotonic()
        return self._clock + time.monotonic()

    def _is_mine(self, path: Path) -> bool:
        with suppress(OSError):
            return path.read_text(encoding="utf-8") == self._owner
        return False

    def _numbers(self, name: str) -> list[int]:
        """Return the numbers of the claims of a run, of which there are several after an owner died."""
        first = f"{name}.claim"
        names = [path.name for path in self._folder.iterdir() if path.name.startswith(first)]
        suffixes = [each.removeprefix(first) or "-1" for each in names]
        return [int(suffix[1:]) for suffix in suffixes if suffix[0] == "-" and suffix[1:].isdecimal()]

    def _last(self, name: str) -> int | None:
        return max(self._numbers(name), default=None)

    def _path(self, name: str, number: int) -> Path:
        return self._folder / (f"{name}.claim" if number == 1 else f"{name}.claim-{number}")

    def _failure(self, name: str) -> Path:
        return self._failed / f"{name}.txt"


def _owner_of(path: Path, status: os.stat_result) -> bytes:
    """Return the name of the owner of a claim; of what cannot be read, one that nobody has."""
    if not stat.S_ISREG(status.st_mode):
        return b"no file"  # opening a pipe would wait for somebody to write to it
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except FileNotFoundError:
        raise
    except OSError:
        return b"unreadable"


def _remove(path: Path) -> None:
    """Remove the claim of a dead owner; a folder, or what another user owns, stays."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _process(number: int) -> list[str] | None:
    """Return what names a process among all of all machines, or None where the system does not tell.

    Numbers of processes are used again, and each container has its own: the time of its start, the container and the
    start of the machine belong to the name.
    """
    try:
        status = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
        state, *_, started = status.rpartition(")")[2].split()[:20]
        if state in ("Z", "X"):
            return None  # it has ended, and its parent has not asked how
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return [machine, str(Path("/proc/self/ns/pid").readlink()), str(number), started]
    except (OSError, ValueError):
        return None


def _has_ended(owner: bytes) -> bool:
    """Return whether the owner of a claim was a process of this machine that has ended."""
    try:
        machine, container, number, started = _SCHEMA.opened(dict(json.loads(owner)), "a claim")["process"]
        here = _process(os.getpid())
        if here is None or [machine, container] != here[:2]:
            return False
        return _process(int(number)) != [machine, container, number, started]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False  # it is being written, is damaged, or comes from elsewhere
