"""How far work is: shares that rise to all of it, the time that the rest takes, and what a terminal shows of both."""

from collections.abc import Iterator
from io import StringIO

import pytest

from whatwhere import long_work
from whatwhere.large_arrays import row_blocks
from whatwhere.long_work import Pace, WorkDone, by_share, counted, reports_to
from whatwhere.report import terminal
from whatwhere.report.terminal import Steps


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(long_work, "perf_counter", made)
    return made


@pytest.fixture
def seen() -> Iterator[list[WorkDone]]:
    """Collect all reports."""
    reports: list[WorkDone] = []
    token = reports_to.set(reports.append)
    yield reports
    reports_to.reset(token)


def test_the_time_left_is_that_of_the_same_speed(clock: Clock, seen: list[WorkDone]) -> None:
    with counted("reading", 4_000_000, "bytes") as advance:
        for _ in range(4):
            clock.now += 3
            advance(1_000_000)
    assert [work.share for work in seen] == [0, 0.25, 0.5, 0.75, 1]
    assert [work.left for work in seen] == [None, 9, 6, 3, 0]
    assert [work.seconds for work in seen] == [0, 3, 6, 9, 12]
    assert {(work.step, work.amount) for work in seen[1:2]} == {("reading", "1 of 4 MB")}


def test_a_slow_beginning_is_forgotten(clock: Clock) -> None:
    pace = Pace()
    clock.now += 1000
    assert pace.left(0.1) == pytest.approx(9000)
    for percent in range(11, 80):
        clock.now += 1
        left = pace.left(percent / 100)
    assert left == pytest.approx(21), "one percent a second, by the last seconds"


def test_nothing_to_do_is_done(seen: list[WorkDone]) -> None:
    with counted("reading", 0, "rows"):
        pass
    assert [work.share for work in seen] == [1]


def test_the_share_of_a_whole_hides_its_loops(clock: Clock, seen: list[WorkDone]) -> None:
    with by_share("map") as report:
        for share in (0.25, 0.5):
            clock.now += 5
            report(share, "step")
            list(row_blocks(10, 5))
    assert [(work.share, work.left) for work in seen] == [(0.25, 15), (0.5, 10)]
    assert len(list(row_blocks(10, 5))) == 2
    assert [work.amount for work in seen[2:]] == ["5 of 10 rows", "10 of 10 rows"], "and after it they are seen again"


def test_a_line_of_text_has_the_step_the_amount_and_the_time_left(clock: Clock) -> None:
    lines: list[str] = []
    steps = Steps(lines.append)
    token = reports_to.set(steps.show_work)
    try:
        steps.show("map\x1b[2J")
        with by_share() as report:
            report(0.0, "searching")
            clock.now += 100
            report(0.5, "step 1 of 2")
        with counted("writing", 8_000_000, "bytes") as advance:
            clock.now += 0.1
            advance(4_000_000)
            clock.now += 7200
            advance(2_000_000)
    finally:
        reports_to.reset(token)
    assert lines == [
        "map⟨U+001B⟩[2J",
        "map⟨U+001B⟩[2J (searching)",
        "map⟨U+001B⟩[2J (step 1 of 2, about 1 min 40 s left)",
        "writing",
        "writing (0 of 8 MB)",
        "writing",  # what takes less than a second shows no time
        "writing",
        "writing (6 of 8 MB, about 40 min 0 s left)",
    ]


class Screen(StringIO):
    """A terminal, or a file."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_a_terminal_is_shown_anything(is_terminal: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_terminal)
    monkeypatch.setattr(terminal.sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.progress() as show:
        show("opening a file")
        with counted("reading", 4, "rows") as advance:
            clock.now += 60
            advance(1)
            assert (reports_to.get() is not None) == is_terminal
    assert reports_to.get() is None
    assert (screen.getvalue() != "") == is_terminal
