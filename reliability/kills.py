"""kill -9 at random moments: after a restart nothing half written is read, and results are those without a kill."""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import save_file

from reliability.findings import Trial
from whatwhere import cli
from whatwhere.atomic import is_unfinished


def run(times: int) -> tuple[Trial, ...]:
    """Kill each command so many times.

    Args:
        times: for each command.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder)
        save_file({f"layer.{n}": torch.randn(512, 512) for n in range(8)}, inputs / "model.safetensors")
        model = str(inputs / "model.safetensors")
        return (killed("convert", ["convert", model, "OUT/copy.safetensors", "--dtype", "bfloat16"], inputs, times),)


def killed(name: str, words: Sequence[str], folder: Path, times: int) -> Trial:
    """Kill a command at random moments, and run it again to its end each time.

    Args:
        name: of the command.
        words: of its command line, in which OUT is a folder that exists.
        folder: for the outputs.
        times: kills.

    Returns:
        What was lost: an end with an error, or files other than those of a run without a kill.
    """
    draws = random.Random(0)
    whole = folder / "whole"
    start = time.monotonic()
    if message := _ended(_started(words, whole)):
        raise RuntimeError(f"{name} fails without a kill: {message}")
    seconds, wanted = time.monotonic() - start, _digests(whole)
    reached, failures = 0, []
    for _ in range(times):
        out = folder / "out"
        process = _started(words, out)
        time.sleep(draws.uniform(0, seconds))
        os.kill(process, signal.SIGKILL)
        if ended := os.waitpid(process, 0)[1] == signal.SIGKILL and not _digests(out):
            reached += 1
        if ended and (message := _ended(_started(words, out))):
            failures.append(f"{name}, run again: {message}")
        elif _digests(out) != wanted:
            failures.append(f"{name}, run again: other files than without a kill")
        shutil.rmtree(out)
    shutil.rmtree(whole)
    seen = f"{reached} ended before they were done, each then run again: the same bytes"
    return Trial(f"kill -9 during `{name}`", times, len(failures), seen, tuple(failures[:3]))


def _started(words: Sequence[str], out: Path) -> int:
    """Start a command in a fork, which has all imports already; its output is in OUT.log."""
    out.mkdir(exist_ok=True)
    if process := os.fork():
        return process
    with out.with_suffix(".log").open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    torch.set_num_threads(1)  # a fork has none of the threads of its parent
    sys.argv = ["whatwhere", *(word.replace("OUT", str(out)) for word in words)]
    status = 1
    try:
        cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _ended(process: int) -> str:
    """Wait for a command, and return how it failed: nothing if it did not."""
    status = os.waitpid(process, 0)[1]
    return f"status {os.waitstatus_to_exitcode(status)}" if status else ""


def _digests(folder: Path) -> Mapping[str, str]:
    """Return the digest of each file in a folder that has its final name."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not is_unfinished(path))
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in files}
