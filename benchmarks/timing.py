"""How a time is measured.

Machines are never quiet: other programs take memory bandwidth, and clocks rise and fall. So all candidates of a variant
run in every round, beside the limit, and what counts is the ratio to the limit of the same round:

    ratio = median over rounds of  t(candidate, round) / t(limit, round)

The order rotates from round to round and is reversed every other round, so that no candidate always finds the caches as
the same neighbor left them. What a candidate returns is freed within its time. A short run is repeated until it
lasts 2 ms. Rounds go on until the seconds are spent, but are never fewer than `Budget.least`.
"""

import gc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

import torch

from benchmarks.case import Run
from benchmarks.records import Spread

_MIN_SECONDS = 2e-3


@dataclass(frozen=True)
class Budget:
    """How long a variant may take.

    Args:
        seconds: no round begins after these.
        least: rounds at least, whatever the seconds.
        most: rounds at most.
    """

    seconds: float
    least: int = 5
    most: int = 101


def time_rounds(runs: Mapping[str, Run], budget: Budget, device: str = "cpu") -> dict[str, list[float]]:
    """Return the seconds of every candidate in every round.

    Inside `memory.settled` the garbage collections between rounds are quick.

    Args:
        runs: candidates by name.
        budget: seconds and rounds.
        device: `cpu` or `cuda`.

    Returns:
        Seconds by name, one number a round.

    Examples:
        >>> took = time_rounds({"limit": lambda: None, "other": lambda: sum(range(9))}, Budget(0.0, least=3))
        >>> len(took["limit"]), len(took["other"])
        (3, 3)
    """
    repeats = {name: _warm(run, device) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    collecting = gc.isenabled()
    gc.disable()  # a collection during a run would count as that candidate's time
    try:
        began = perf_counter()
        for number in range(budget.most):
            for name in order(list(runs), number):
                times[name].append(seconds(runs[name], repeats[name], device))
            gc.collect()
            if number + 1 >= budget.least and perf_counter() - began > budget.seconds:
                break
    finally:
        if collecting:
            gc.enable()
    return times


def order(names: Sequence[str], number: int) -> list[str]:
    """Return the order of the candidates in a round.

    Args:
        names: of the candidates.
        number: of the round, from 0.

    Returns:
        The names, rotated by the number, and reversed where it is odd.

    Examples:
        >>> order("abc", 0), order("abc", 1), order("abc", 2)
        (['a', 'b', 'c'], ['a', 'c', 'b'], ['c', 'a', 'b'])
    """
    first = number % len(names)
    rotated = [*names[first:], *names[:first]]
    return rotated[::-1] if number % 2 else rotated


def seconds(run: Run, repeats: int, device: str) -> float:
    """Measure the time of repeated runs, divided by their number.

    Args:
        run: what is timed.
        repeats: how often it runs.
        device: `cpu`, by the clock, or `cuda`, by events.

    Returns:
        Seconds of one run.
    """
    if device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeats
    began = perf_counter()
    for _ in range(repeats):
        run()
    return (perf_counter() - began) / repeats


def _warm(run: Run, device: str) -> int:
    """Run until pages, caches and compiled code are there; return how often a run is repeated."""
    fastest = seconds(run, 1, device)
    for _ in range(1 if fastest > 0.1 else 4):
        fastest = min(fastest, seconds(run, 1, device))
    return max(1, math.ceil(_MIN_SECONDS / max(fastest, 1e-7)))


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles.

    Args:
        values: at least one.

    Returns:
        Numbers of four digits.

    Examples:
        >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
        {'median': 3.0, 'low': 2.0, 'high': 4.0}
    """
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": _short(median(values)), "low": _short(low), "high": _short(high)}


def ratios(times: Sequence[float], beside: Sequence[float]) -> list[float]:
    """Divide the times of one candidate by those of another, round by round.

    Args:
        times: seconds of the one.
        beside: seconds of the other.

    Returns:
        A ratio for each round.

    Raises:
        ValueError: If the rounds are not as many.

    Examples:
        >>> ratios([2.0, 9.0], [1.0, 3.0])
        [2.0, 3.0]
    """
    return [mine / theirs for mine, theirs in zip(times, beside, strict=True)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")
