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


def torchrun_rank() -> int | None:
    """Return the rank of this process among those that torchrun has started, or None without torchrun."""
    rank = os.environ.get("RANK", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return int(rank) if rank.isdecimal() else None


def share_of_cores() -> int:
    """Count the cores for each of the processes that torchrun has started on this machine, at least one."""
    processes = os.environ.get("LOCAL_WORLD_SIZE", "") if torchrun_rank() is not None else ""
    return max(1, cores() // int(processes)) if processes.isdecimal() and int(processes) else cores()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
