"""kill -9 at random moments: after a restart nothing half written is read, and results are those without a kill.

*The same bytes* leaves out what differs from run to run: dates, durations, the command line, and checksums of files
that hold these; the order of metadata in checkpoints of PyTorch; and of a page with results the digits of the text,
whose numbers are compared where the page keeps its answers.
"""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from reliability.commands import Command, commands, contents, ended, hub, import_all, printed, started, unfinished
from reliability.findings import Trial


def run(times: int) -> tuple[Trial, ...]:
    """Kill each command so many times, and one with worker processes a tenth as often.

    Args:
        times: for each command.
    """
    torch.set_num_threads(1)  # forks have no threads of their parent
    with tempfile.TemporaryDirectory() as name:
        folder, inputs = Path(name), Path(name) / "inputs"
        inputs.mkdir()
        every = commands(inputs)
        with hub(inputs / "model"):
            trials = [_Killed(command, inputs, folder).trial(times) for command in every]
            workers = replace(every[0], words=every[0].words.replace("--workers 1", "--workers 2"))
            whole = _Killed(workers, inputs, folder, again=every[0])
            return (*trials, whole.trial(max(1, times // 10), os.killpg, "compare with two worker processes", 6.0))


class _Killed:
    """A command that is killed at random moments, and run again to its end each time.

    Args:
        command: to kill.
        inputs: folder of the inputs.
        folder: for the outputs.
        again: is run after each kill, to the same results; None is the same command.
    """

    def __init__(self, command: Command, inputs: Path, folder: Path, again: Command | None = None) -> None:
        self.command, self.again, self.inputs, self.out = command, again or command, inputs, folder / "out"
        self.draws = random.Random(command.name)
        start = time.monotonic()
        if message := ended(started(self.again, inputs, self.out), self.out):
            raise RuntimeError(f"{command.name} fails without a kill: {message}")
        self.seconds = (time.monotonic() - start) / 2  # with imports, which later runs have
        import_all(self.out)
        self.wanted = contents(self.again, self.out)
        shutil.rmtree(self.out)
        self.reached, self.finished, self.left, self.failures = 0, 0, 0, list[str]()

    def trial(
        self,
        times: int,
        kill: Callable[[int, int], None] = os.kill,
        name: str = "",
        seconds: float | None = None,
    ) -> Trial:
        """Kill it so many times.

        Args:
            times: kills.
            kill: ends a process, or a group of processes.
            name: of the command, in the table.
            seconds: that it takes; None measures them.
        """
        if times > 1 and seconds is None:
            start = time.monotonic()
            ended(started(self.command, self.inputs, self.out), self.out)
            self.seconds = time.monotonic() - start
            shutil.rmtree(self.out)
        for number in range(times):
            old = self._old() if number % 2 else {}
            process = started(self.command, self.inputs, self.out, group=kill is os.killpg)
            time.sleep(self.draws.uniform(0, seconds or self.seconds))
            kill(process, signal.SIGKILL)
            killed = os.waitpid(process, 0)[1] == signal.SIGKILL
            if problem := self._half(old) or self._not_resumed(killed):
                self.failures.append(f"{self.command.name}, kill {number}: {problem}")
            shutil.rmtree(self.out)
        seen = f"{self.reached} ended before they were done, then run again: the same bytes"
        seen += f"; {self.finished} finished files were found again" if self.finished else ""
        seen += f"; unfinished files of {self.left} were removed" if self.left else ""
        tried = f"kill -9 during `{name or self.command.name}`"
        return Trial(tried, times, len(self.failures), seen, tuple(self.failures[:3]))

    def _old(self) -> Mapping[str, str]:
        """Put an older output in the place of the new one, and return what is there then."""
        if self.command.replaces == "nothing":
            return {}
        for name in self.wanted:
            path = self.out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("old", encoding="utf-8")
        return contents(self.command, self.out)

    def _half(self, old: Mapping[str, str]) -> str:
        """Return what is half written, or "": each file is the old one or the new one, and so is a folder."""
        if self.command.prints or self.command.replaces == "nothing":
            return ""
        found = contents(self.command, self.out)
        if self.command.replaces == "folder" and found not in (old, self.wanted):
            return f"a mixture of two folders: {', '.join(found)}"
        half = [name for name, digest in found.items() if digest not in (old.get(name), self.wanted.get(name))]
        return f"half written: {', '.join(half)}" if half else ""

    def _not_resumed(self, killed: bool) -> str:
        """Run the command again where it was killed; return how that is not as it would have been, or ""."""
        if killed and contents(self.command, self.out) != self.wanted:
            self.reached += 1
            self.left += bool(unfinished(self.out))
        elif self.command.once:
            return ""
        finished = {path: path.read_bytes() for path in self.out.rglob("runs/*.json")}
        self.finished += len(finished)
        trained = list(self.out.glob("results/checkpoints/step-*"))
        if message := ended(started(self.again, self.inputs, self.out), self.out):
            return f"run again: {message}"
        found = contents(self.again, self.out)
        if other := [name for name in found.keys() | self.wanted if found.get(name) != self.wanted.get(name)]:
            return f"run again: other files than without a kill: {', '.join(other)}"
        if any(path.read_bytes() != content for path, content in finished.items()):
            return "run again: what was finished was done again"
        if trained and not finished and "resumed from" not in printed(self.out):
            return "run again: it did not go on from its checkpoint"
        return f"run again: {', '.join(left)} is left" if (left := unfinished(self.out)) else ""
