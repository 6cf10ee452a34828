"""Fuzzing, led by the lines of the readers that are reached: damaged files are refused or read, in bounded memory.

Each format has a process of its own, libFuzzer by atheris, which works for so many seconds (tests/models/checkpoint).
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from reliability.findings import Trial
from tests.models.checkpoint.samples import FORMATS

_ROOT = Path(__file__).resolve().parents[1]
_SHORT = 30
"""Seconds below which all formats share a process, whose start takes some itself."""
_ALLOWED = 64 << 20
"""Bytes that reading may take beyond four times the size of the files."""


def run(seconds: int) -> tuple[Trial, ...]:
    """Fuzz each format for so many seconds, as many at a time as there are cores.

    Args:
        seconds: for each format; below 30, for all of them together.
    """
    groups = FORMATS if seconds >= _SHORT else {"every format": [name for names in FORMATS.values() for name in names]}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(pool.map(lambda name: fuzzed(name, groups[name], seconds), groups))


def fuzzed(name: str, samples: Sequence[str], seconds: int) -> Trial:
    """Fuzz a format.

    Args:
        name: of the format.
        samples: names of valid files, which are damaged.
        seconds: how long.

    Returns:
        What ended the process, of which there is at most one thing: libFuzzer stops there.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.models.checkpoint.fuzz", ",".join(samples), str(seconds), folder]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=seconds + 300)
        tried = Trial(f"{name}: damaged files, led by coverage", *_counts(done.stderr, Path(folder)))
        if done.returncode:
            return replace(tried, lost=1, failures=((done.stdout + done.stderr)[-2000:],))
    return tried


def _counts(log: str, folder: Path) -> tuple[int, int, str]:
    """Return how many files were tried, how many took too much memory, and what was seen."""
    tried, elapsed = re.search(r"Done (\d+) runs in (\d+) second", log), re.findall(r"cov: (\d+)", log)
    if tried is None or not elapsed:
        return 1, 1, "the process ended early"
    size, peak = map(int, (folder / "peak").read_text(encoding="utf-8").split())
    seen = (
        f"{int(tried[2]) / 60:.1f} minutes, {int(elapsed[-1]):,} branches reached; at most {peak / 1e6:.1f} MB "
        f"allocated at once, for files of {size / 1e3:.1f} kB"
    )
    return int(tried[1]), int(peak > 4 * size + _ALLOWED), seen
