"""The campaigns by name, with how often each trial of them is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reliability import kills
from reliability.findings import Trial


@dataclass(frozen=True)
class Runnable:
    """A campaign that can be run.

    Args:
        run: makes its trials, each so many times.
        times: by default; what docs/reliability.md shows.
        few: times in the tests.
    """

    run: Callable[[int], tuple[Trial, ...]]
    times: int
    few: int


CAMPAIGNS: Mapping[str, Runnable] = {
    "kills": Runnable(kills.run, times=300, few=20),
}
