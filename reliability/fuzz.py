"""Fuzzing, led by the lines of the readers that are reached: damaged files are refused or read, in bounded memory.

Each format has a process of its own, libFuzzer by atheris, which works for so many seconds (reliability/fuzz_process).
Files of ours have checksums, which are made right again after each damage: so it reaches what is behind them.
"""

import os
import re
import subprocess
import sys
import tempfile
from base64 import b85encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reliability.findings import Trial

_ROOT = Path(__file__).resolve().parents[1]
_SHORT = 30
"""Seconds below which all formats share a process, whose start takes some itself."""
_AT_ONCE = 300
"""Seconds of a process, after which another goes on with its corpus: the memory of atheris grows with what it tries."""
_ALLOWED = 64 << 20
"""Bytes that reading may take beyond four times the size of the files."""


def run(seconds: int) -> tuple[Trial, ...]:
    """Fuzz each format for so many seconds, as many at a time as there are cores.

    Args:
        seconds: for each format; below 30, for all of them together.
    """
    from reliability.fuzz_targets import groups  # imports what systems other than Linux lack

    every = groups()
    if seconds < _SHORT:
        every = {"every format": [name for names in every.values() for name in names]}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(pool.map(lambda name: fuzzed(name, every[name], seconds), every))


def fuzzed(name: str, samples: Sequence[str], seconds: int) -> Trial:
    """Fuzz a format.

    Args:
        name: of the format.
        samples: names for `targets`, of which files are damaged.
        seconds: how long.

    Returns:
        What ended the process, of which there is at most one thing: libFuzzer stops there.
    """
    title = f"{name}: damaged files, led by coverage"
    tried = elapsed = reached = 0
    peaks: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        for begin in range(0, seconds, _AT_ONCE):
            part = min(_AT_ONCE, seconds - begin)
            command = [sys.executable, "-m", "reliability.fuzz_process", ",".join(samples), str(part), folder]
            done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=part + 300)
            counts = re.search(r"Done (\d+) runs in (\d+) second", done.stderr)
            if done.returncode or counts is None:
                return Trial(title, tried + 1, 1, "the process ended early", (_failure(done, Path(folder)),))
            tried, elapsed = tried + int(counts[1]), elapsed + int(counts[2])
            reached = max(reached, *map(int, re.findall(r"cov: (\d+)", done.stderr)))
            size, peak = map(int, (Path(folder) / "peak").read_text(encoding="utf-8").split())
            peaks.append((size, peak))
    size, peak = max(peaks, key=lambda each: each[1] - 4 * each[0])
    seen = (
        f"{elapsed / 60:.1f} minutes, {reached:,} branches reached; at most {peak / 1e6:.2f} MB allocated at once, for "
        f"files of {size / 1e3:.1f} kB"
    )
    return Trial(title, tried, int(peak > 4 * size + _ALLOWED), seen)


def _failure(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    """Return what ended a process, with the damaged file, which is in a folder that is removed."""
    output = done.stdout + done.stderr
    began = output.find("Uncaught Python exception")  # which libFuzzer's own words follow
    shown = output[-2000:] if began < 0 else output[began : began + 4000]
    files = [f"{file.name}: {b85encode(file.read_bytes()).decode()}" for file in folder.glob("*-*") if file.is_file()]
    return "\n".join([f"status {done.returncode}", shown, *files])
