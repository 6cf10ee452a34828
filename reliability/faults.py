"""What the system does to commands: they end with a message of ours, leave nothing half written, and can be run again.

Full disks and read-only folders are file systems in memory, mounted where only the process that tries them sees them;
without the right to mount, a limit on the size of files and a folder without the right to write take their place.
"""

import ctypes
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from reliability.commands import (
    Command,
    commands,
    contents,
    ended,
    hub,
    import_all,
    printed,
    started,
    status_of,
    unfinished,
    wait_until_ready,
)
from reliability.findings import Trial
from reliability.whole_files import incomplete

T = TypeVar("T")
Outcome = tuple[int, str]
"""The status of a command, and what is wrong with how it ended, or ""."""

_NEW_MOUNTS, _PRIVATE, _READ_ONLY, _REMOUNT = 0x20000, 0x44000, 1, 32
"""Of Linux: CLONE_NEWNS, MS_REC | MS_PRIVATE, MS_RDONLY, MS_REMOUNT."""
_JUMP = 86_400.0
"""Seconds by which the clock jumps, forward and back."""


_WHILE_IT_RUNS = re.compile(r"\.claim|^results/(failed|checkpoints)/|^evidence/X1/two/failed/")
"""Files that a command which fails may leave beside its finished ones."""


@dataclass(frozen=True)
class _Case:
    """A command with its output and duration where nothing befalls it.

    Args:
        command: to run.
        inputs: folder of the inputs.
        out: folder of the outputs.
        wanted: contents of its output.
        seconds: that it takes.
    """

    command: Command
    inputs: Path
    out: Path
    wanted: Mapping[str, str]
    seconds: float

    def start(self, *before: Callable[[], object]) -> int:
        """Start the command."""
        return started(self.command, self.inputs, self.out, before)

    def outcome(self, process: int, statuses: tuple[int, ...] = (0, 1), *, left: bool = False) -> Outcome:
        """Wait for the command that something befell.

        Args:
            process: of the command.
            statuses: with which it may end; all but 0 with one message.
            left: unfinished files may be left.
        """
        status, log = status_of(process), printed(self.out)
        own = [line for line in log.splitlines() if line.startswith("whatwhere: ")]
        if "Traceback" in log or status not in statuses or (status and len(own) != 1):
            return status, f"status {status}: {' / '.join(log.strip().splitlines()[-2:])[-300:] or 'no message'}"
        if self.command.prints:
            return status, ""
        found = contents(self.command, self.out)
        other = [name for name, digest in found.items() if digest != self.wanted.get(name)]
        if other := [name for name in other if not _WHILE_IT_RUNS.search(name)]:
            return status, f"status {status}, other files than undisturbed: {', '.join(other)}"
        if not status and (lack := self.wanted.keys() - found.keys()):
            return status, f"status 0, but {', '.join(sorted(lack))} is not there"
        remain = [] if left else unfinished(self.out)
        return status, f"status {status}, and {', '.join(remain)} is left" if remain else ""

    def incomplete(self) -> str:
        """Return which file of the output is not whole, and why, or ""."""
        if self.command.prints:
            lack = incomplete(self.out.with_suffix(".printed"), ".json")
            return f"status 0, and what it printed is not whole: {lack}" if lack else ""
        names = [name for name in contents(self.command, self.out) if not name.startswith(("home/", "cache/"))]
        lacks = {name: lack for name in names if (lack := incomplete(self.out / name))}
        return f"status 0, and not whole: {lacks}" if lacks else ""

    def again(self) -> str:
        """Run the command again; return how that is not as if nothing had befallen it, or ""."""
        if self.command.once and contents(self.command, self.out) == self.wanted:
            return ""
        if message := ended(self.start(), self.out):
            return f"run again: {message}"
        found = contents(self.command, self.out)
        if other := [name for name in found.keys() | self.wanted if found.get(name) != self.wanted.get(name)]:
            return f"run again: other files than undisturbed: {', '.join(other)}"
        return f"run again: {', '.join(left)} is left" if (left := unfinished(self.out)) else ""


Attempt = Callable[[_Case, random.Random], Outcome]
"""Try a command once."""


def run(times: int) -> tuple[Trial, ...]:
    """Try each fault with each command so many times.

    Args:
        times: of each; 1 tries a few commands.
    """
    torch.set_num_threads(1)  # forks have no threads of their parent
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells ignore for what runs in the background
    with tempfile.TemporaryDirectory() as name:
        folder, inputs = Path(name), Path(name) / "inputs"
        inputs.mkdir()
        every = commands(inputs)
        with hub(inputs / "model"):
            chosen = every if times > 1 else every[4::5]
            cases = [_undisturbed(command, inputs, folder / "out") for command in chosen]
            trials = [_tried(fault, attempt, cases, times) for fault, attempt in FAULTS.items()]
            if times == 1:
                return tuple(trials)
            words = every[0].words.replace("--workers 1", "--workers 2")
            workers = [replace(cases[0], command=replace(every[0], words=words), seconds=6.0)]
            clock = _tried("the clock jumps by a day: two processes of `compare`", _clock, cases[:1], times * 3)
            return (*trials, clock, _tried("a worker process of `compare` is killed", _worker, workers, times))


def _undisturbed(command: Command, inputs: Path, out: Path) -> _Case:
    start = time.monotonic()
    if message := ended(started(command, inputs, out), out):
        raise RuntimeError(f"{command.name} fails: {message}")
    import_all(out)
    case = _Case(command, inputs, out, contents(command, out), (time.monotonic() - start) / 2)
    shutil.rmtree(out)
    return case


def _tried(fault: str, attempt: Attempt, cases: list[_Case], times: int) -> Trial:
    statuses, failures = Counter[int](), list[str]()
    for case in cases:
        for number in range(times):
            draws = random.Random(f"{fault} {case.command.name} {number}")
            status, problem = _apart(partial(attempt, case, draws))
            statuses[status] += 1
            if problem:
                failures.append(f"{case.command.name}, attempt {number}: {problem}")
            shutil.rmtree(case.out, ignore_errors=True)
    seen = "; ".join(f"{count} ended with status {status}" for status, count in sorted(statuses.items()))
    of = f", during each of {len(cases)} commands" if len(cases) > 1 else ""
    return Trial(f"{fault}{of}", len(cases) * times, len(failures), seen, tuple(failures[:3]))


def _apart(do: Callable[[], T]) -> T:
    """Call a function in a fork, which may have mounts of its own, and return its result."""
    read, write = os.pipe()
    if not (process := os.fork()):
        try:
            os.write(write, pickle.dumps(do()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(process, 0)
    result: T = pickle.loads(content)
    return result


# Disks


def _mount(folder: Path, kind: bytes | None, flags: int, options: bytes | None = None) -> bool:
    return bool(ctypes.CDLL(None).mount(b"none", os.fsencode(folder), kind, flags, options) == 0)


def _own_disk(out: Path, size: int) -> bool:
    """Mount a disk of so many KB in memory for the outputs; return False where the system does not let."""
    out.mkdir(exist_ok=True)
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) or not _mount(Path("/"), None, _PRIVATE):
        return False
    return _mount(out, b"tmpfs", 0, b"size=%dk" % size)


def _full_disk(case: _Case, draws: random.Random) -> Outcome:
    import resource  # of Unix: the pages of docs/ are written elsewhere too

    room = 4 * int(2 ** draws.uniform(0, 10))  # up to 4 MB, which is more than any output
    if _own_disk(case.out, room):
        status, problem = case.outcome(case.start())
        _mount(case.out, b"tmpfs", _REMOUNT, b"size=64m")
    else:

        def limit() -> None:
            sys.dont_write_bytecode = True  # Python 3.11 would keep the half of a module
            resource.setrlimit(resource.RLIMIT_FSIZE, (room << 10, resource.RLIM_INFINITY))

        status, problem = case.outcome(case.start(limit))
    return status, problem or case.again()


def _read_only(case: _Case, draws: random.Random) -> Outcome:
    mounted, at_once = _own_disk(case.out, 1 << 16), draws.random() < 0.5
    process = 0
    if not at_once:
        process = case.start()
        wait_until_ready(case.out)
        time.sleep(draws.uniform(0, case.seconds))
    # A disk on which a file is open for writing cannot become read-only: it is tried until none is.
    while mounted and not _mount(case.out, b"tmpfs", _REMOUNT | _READ_ONLY) and not _is_over(process):
        time.sleep(0.0005)
    case.out.chmod(0o555) if not mounted else None
    status, problem = case.outcome(process or case.start(), left=True)
    _mount(case.out, b"tmpfs", _REMOUNT) if mounted else case.out.chmod(0o755)
    return status, problem or case.again()


def _is_over(process: int) -> bool:
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


# Inputs


def _vanish(path: Path) -> None:
    path.unlink()


def _truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _grow(path: Path) -> None:
    with path.open("ab") as opened:
        opened.write(bytes(5000))


def _input(change: Callable[[Path], None]) -> Attempt:
    """Return an attempt in which one of the files that a command reads changes while it runs."""

    def attempt(case: _Case, draws: random.Random) -> Outcome:
        kept = case.inputs.with_name("kept")
        shutil.copytree(case.inputs, kept)
        try:
            names = re.findall(r"IN/(\S+)", case.command.words)
            files = [each for name in names for each in (case.inputs / name, *(case.inputs / name).rglob("*"))]
            victim = draws.choice([each for each in files if each.is_file()] or [case.inputs / "ids.txt"])
            process = case.start()
            wait_until_ready(case.out)
            time.sleep(draws.uniform(0, case.seconds))
            change(victim)
            status, problem = case.outcome(process)
            optional = victim.suffix != ".safetensors" or "traces" in victim.parts
            # Without a configuration, a tokenizer or a trace, or with another text, it is another output, but whole.
            return status, case.incomplete() if not status and optional else problem
        finally:
            shutil.rmtree(case.inputs)
            kept.rename(case.inputs)

    return attempt


# Signals, memory, the clock


def _signal(number: signal.Signals) -> Attempt:
    def attempt(case: _Case, draws: random.Random) -> Outcome:
        process = case.start()
        while not _handles(process, signal.SIGTERM):
            time.sleep(0.001)
        time.sleep(draws.uniform(0, case.seconds))
        os.kill(process, number)
        # `train` ends by itself after its step, always with the status of SIGINT; the next run removes what is left.
        status, problem = case.outcome(process, (0, 128 + number, 128 + signal.SIGINT), left=True)
        after = status == -number or printed(case.out).endswith("KeyboardInterrupt\n")
        if after and contents(case.command, case.out) == case.wanted:
            problem = ""  # the command had ended; the signal met the end of its process
        return status, problem or case.again()

    return attempt


def _handles(process: int, number: signal.Signals) -> bool:
    """Return whether a process has begun to handle a signal, or has ended."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    caught = re.search(r"SigCgt:\s*(\w+)", status)
    return caught is None or "\nState:\tZ" in status or bool(int(caught[1], 16) >> (number - 1) & 1)


def _memory(case: _Case, draws: random.Random) -> Outcome:
    import resource

    def limit() -> None:
        used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + int(2 ** draws.uniform(20, 27)), resource.RLIM_INFINITY))

    status, problem = case.outcome(case.start(limit))
    return status, problem or case.again()


def _clock(case: _Case, draws: random.Random) -> Outcome:
    moment, by = draws.uniform(0, case.seconds), draws.choice([_JUMP, -_JUMP])
    words = case.command.words.replace("OUT/", f"{case.out}/")
    second = replace(case, command=replace(case.command, words=words), out=case.out.with_name("second"))
    other = second.start(lambda: _jump(moment, by))
    status, problem = case.outcome(case.start(lambda: _jump(moment, by)), left=True)
    problem = problem or ended(other, second.out)
    trained = re.findall(r"^\d of 2 runs: .*, \d+ s$", printed(case.out) + printed(second.out), re.MULTILINE)
    shutil.rmtree(second.out)
    return status, problem or ("" if len(trained) == 2 else f"{len(trained)} runs were trained instead of 2")


def _jump(moment: float, by: float) -> None:
    """Let the clock of this process, and that by which it renews files, jump after some seconds."""
    now, utime, begin = time.time, os.utime, time.monotonic()

    def jumped() -> float:
        return now() + (by if time.monotonic() - begin > moment else 0.0)

    def renew(path: Any, times: tuple[float, float] | None = None, **options: Any) -> None:
        utime(path, times or (jumped(), jumped()), **options)

    time.time, os.utime = jumped, renew
    os.supports_fd.add(renew)


def _worker(case: _Case, draws: random.Random) -> Outcome:
    process = case.start()
    wait_until_ready(case.out)
    deadline = time.monotonic() + draws.uniform(0.5, case.seconds)
    while not _is_over(process):
        children = Path(f"/proc/{process}/task/{process}/children")
        found = [n for n in children.read_text(encoding="utf-8").split() if _is_worker(n)] if children.exists() else []
        if found and time.monotonic() > deadline:
            os.kill(int(draws.choice(found)), signal.SIGKILL)
            break
        time.sleep(0.01)
    status, problem = case.outcome(process)
    return status, problem or (case.again() if status else "")


def _is_worker(process: str) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


FAULTS: Mapping[str, Attempt] = {
    "a full disk": _full_disk,
    "a folder that is read-only, or becomes so": _read_only,
    "an input vanishes": _input(_vanish),
    "an input is cut in half": _input(_truncate),
    "an input grows": _input(_grow),
    "SIGINT": _signal(signal.SIGINT),
    "SIGTERM": _signal(signal.SIGTERM),
    "memory limited to 1 to 128 MB more than at the start": _memory,
}
"""By what befalls a command."""
