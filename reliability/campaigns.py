"""The campaigns by name, with how often each trial of them is made."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reliability import access, faults, flips, fuzz, kills, memory, soak, studio, threads
from reliability.findings import Trial


@dataclass(frozen=True)
class Runnable:
    """A campaign that can be run.

    Args:
        run: makes its trials, each so many times, or for so many seconds.
        times: by default.
        few: times in the tests.
        system: the only one, as sys.platform names it, that has what it needs; empty where any does.
    """

    run: Callable[[int], tuple[Trial, ...]]
    times: int
    few: int
    system: str = ""

    def runs_here(self) -> bool:
        """Return whether this system has what the campaign needs."""
        return self.system in ("", sys.platform)


CAMPAIGNS: Mapping[str, Runnable] = {
    "access": Runnable(access.run, times=access.VIEWS, few=1, system="linux"),
    "faults": Runnable(faults.run, times=10, few=1, system="linux"),
    "flips": Runnable(flips.run, times=10_000, few=40, system="linux"),
    "fuzz": Runnable(fuzz.run, times=3600, few=3, system="linux"),
    "kills": Runnable(kills.run, times=300, few=1, system="linux"),
    "memory": Runnable(memory.run, times=20, few=1, system="linux"),
    "soak": Runnable(soak.run, times=10_000, few=200),
    "studio": Runnable(studio.run, times=120, few=2, system="linux"),
    "threads": Runnable(threads.run, times=10, few=1),
}
