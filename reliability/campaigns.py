"""The campaigns by name, with how often each trial of them is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reliability import faults, flips, fuzz, kills, soak, studio, threads
from reliability.findings import Trial


@dataclass(frozen=True)
class Runnable:
    """A campaign that can be run.

    Args:
        run: makes its trials, each so many times, or for so many seconds.
        times: by default.
        few: times in the tests.
    """

    run: Callable[[int], tuple[Trial, ...]]
    times: int
    few: int


CAMPAIGNS: Mapping[str, Runnable] = {
    "faults": Runnable(faults.run, times=10, few=1),
    "flips": Runnable(flips.run, times=10_000, few=40),
    "fuzz": Runnable(fuzz.run, times=3600, few=3),
    "kills": Runnable(kills.run, times=300, few=1),
    "soak": Runnable(soak.run, times=10_000, few=200),
    "studio": Runnable(studio.run, times=120, few=2),
    "threads": Runnable(threads.run, times=10, few=1),
}
