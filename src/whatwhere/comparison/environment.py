"""What numbers depend on besides settings: the machine, and the versions of packages."""

import os
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from whatwhere import __version__


@dataclass(frozen=True)
class Machine:
    """The machine that the runs took place on."""

    processor: str
    cores: int
    system: str


def versions() -> dict[str, str]:
    """Return the versions of what numbers depend on."""
    return {
        "whatwhere": __version__,
        "torch": version("torch"),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def machine() -> Machine:
    """Describe this machine."""
    return Machine(_processor(), cores(), f"{platform.system()} {platform.machine()}")


def cores() -> int:
    """Count the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
