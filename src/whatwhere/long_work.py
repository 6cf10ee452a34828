"""Long work reports how far it is to whoever shows it: what is done, of how much, and the time that the rest takes."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import final

_EVERY, _RECENT = 0.5, 40
"""Seconds between two points by which the speed is known, and how many are kept: the speed of the last 20 seconds."""


@dataclass(frozen=True)
class WorkDone:
    """How far a piece of work is."""

    step: str  # what is being done, in words; "" where that was said before
    amount: str  # what is done, in words, such as "3 of 4 rows"
    share: float  # of the work that is done, 0 to 1
    seconds: float  # since it began
    left: float | None  # seconds that the rest takes at the recent speed; None where no speed is known yet


Report = Callable[[WorkDone], None]

reports_to: ContextVar[Report | None] = ContextVar("reports_to", default=None)
"""Called by work that takes long, with how far it is; None where nobody shows it."""

downloads: ContextVar[Callable[[int, int], None] | None] = ContextVar("downloads", default=None)
"""Called after each download with the bytes that it brought, and those that the same reading still needs."""

part_of: ContextVar[Callable[[], str] | None] = ContextVar("part_of", default=None)
"""Returns in words how far the work is of which trainings are a part; None where there is no other work."""


@final
class Pace:
    """How long the rest of some work takes, by the speed of the last seconds; by that of all of it where they had none.

    Work has parts of different speed, such as a table that is computed before files that are copied.
    """

    def __init__(self) -> None:
        self.begin = perf_counter()
        self._recent: deque[tuple[float, float]] = deque([(self.begin, 0.0)], _RECENT)

    def left(self, share: float) -> float | None:
        """Return the seconds that the rest takes after a share of the work, or None where no speed is known yet."""
        now = perf_counter()
        for time, before in (self._recent[0], (self.begin, 0.0)):
            if share > before and now > time:
                break
        else:
            return None
        if now - self._recent[-1][0] >= _EVERY:
            self._recent.append((now, share))
        return (1 - share) * (now - time) / (share - before)


def begin_step(step: str) -> None:
    """Report what is being done now, of work whose length is not known."""
    if (report := reports_to.get()) is not None:
        report(WorkDone(step, "", 0.0, 0.0, None))


@contextmanager
def counted(step: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Report how much of some work is done, in a `with` block; yield a function to call with each part that is done.

    `step` says what is being done, "" where that was said before; `unit` is in plural, and "bytes" are shown in MB.
    """
    report, done, pace = reports_to.get(), 0, Pace()

    def advance(size: int) -> None:
        nonlocal done
        done += size
        if report is not None:
            report(_done(step, done, total, unit, pace))

    advance(0)
    yield advance


@contextmanager
def by_share(step: str = "") -> Iterator[Callable[[float, str], None]]:
    """Report the share of work, in a `with` block that reports nothing else; yield a function of share and message."""
    report, pace = reports_to.get(), Pace()

    def show(share: float, message: str) -> None:
        if report is not None:
            left = pace.left(share)
            report(WorkDone(step, message, share, perf_counter() - pace.begin, left))

    token = reports_to.set(None)
    try:
        yield show
    finally:
        reports_to.reset(token)


def report_rows(done: int, rows: int, pace: Pace) -> None:
    """Report how many rows of a loop are done."""
    if (report := reports_to.get()) is not None:
        report(_done("", done, rows, "rows", pace))


def _done(step: str, done: int, total: int, unit: str, pace: Pace) -> WorkDone:
    share = min(done / total, 1.0) if total else 1.0
    million, unit = (1e6, "MB") if unit == "bytes" else (1, unit)
    amount = f"{done / million:,.0f} of {total / million:,.0f} {unit}"
    return WorkDone(step, amount, share, perf_counter() - pace.begin, pace.left(share))
