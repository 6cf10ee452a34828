"""Jobs: followed, stopped, and never in the way of the rest."""

import threading
import time

import pytest

from whatwhere.errors import SettingError
from whatwhere.studio.jobs import Job, Report


def ended(job: Job) -> str:
    """Wait for the end of a job."""
    for _ in range(1000):
        if job.state != "running":
            return job.state
        time.sleep(0.005)
    raise AssertionError("the job did not end")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_job_reports_until_it_ends_or_is_stopped(stopped: bool) -> None:
    gate = threading.Event()

    def waiting(report: Report) -> dict[str, int]:
        while not gate.wait(0.005):
            report(0.5, "half")
        return {"found": 3}

    job = Job(waiting)
    while job.message != "half":
        time.sleep(0.002)
    assert job.progress() == {"state": "running", "fraction": 0.5, "message": "half"}
    job.stopping = stopped
    if not stopped:
        gate.set()
    assert (ended(job), job.answer) == (("stopped", None) if stopped else ("done", {"found": 3}))
    assert job.fraction == (0.5 if stopped else 1)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (SettingError("seven is too many."), "seven is too many."),
        (MemoryError(), "There is too little memory for this."),
        (ZeroDivisionError("/home/somebody"), "This failed; the terminal that runs the studio has the error."),
    ],
)
def test_errors_of_the_library_are_shown_and_others_go_to_the_terminal(
    problem: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))

    def fail(report: Report) -> None:
        raise problem

    job = Job(fail)
    assert (ended(job), job.message) == ("failed", message)
    unexpected = isinstance(problem, ZeroDivisionError)
    for _ in range(200 * unexpected):
        if raised:
            break
        time.sleep(0.005)
    assert raised == [problem] * unexpected
