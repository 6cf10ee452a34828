"""Jobs: bounded, followed, stopped, and never in the way of the rest."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from whatwhere.errors import SettingError
from whatwhere.studio.jobs import Job, Jobs, Report


def ended(job: Job) -> str:
    """Wait for the end of a job."""
    for _ in range(1000):
        if job.state != "running":
            return job.state
        time.sleep(0.005)
    raise AssertionError("the job did not end")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Hold jobs back until the test is over."""
    gate = threading.Event()
    yield gate
    gate.set()


def waiting(gate: threading.Event) -> Callable[[Report], dict[str, Any]]:
    """Return a job that waits, and reports meanwhile."""

    def job(report: Report) -> dict[str, Any]:
        while not gate.wait(0.005):
            report(0.5, "half")
        return {"found": 3}

    return job


def test_a_job_reports_and_ends_with_its_answer(gate: threading.Event) -> None:
    job = Jobs().start(waiting(gate))
    while job.message != "half":
        time.sleep(0.002)
    assert job.progress() == {"id": job.id, "state": "running", "fraction": 0.5, "message": "half"}
    gate.set()
    assert (ended(job), job.answer, job.fraction) == ("done", {"found": 3}, 1.0)


def test_a_job_that_is_stopped_ends_where_it_next_reports(gate: threading.Event) -> None:
    jobs = Jobs()
    job = jobs.start(waiting(gate))
    jobs.stop(job.id)
    assert (ended(job), job.answer) == ("stopped", None)


def test_a_bounded_number_of_jobs_runs_at_a_time(gate: threading.Event) -> None:
    jobs = Jobs(running=2)
    first, second = jobs.start(waiting(gate)), jobs.start(waiting(gate))
    with pytest.raises(SettingError, match="2 jobs are at work"):
        jobs.start(waiting(gate))
    jobs.stop(first.id)
    ended(first)
    assert jobs.start(waiting(gate)).id not in (first.id, second.id)


def test_old_answers_are_forgotten_and_running_jobs_never(gate: threading.Event) -> None:
    jobs = Jobs(running=2, kept=3)
    running = jobs.start(waiting(gate))
    done = []
    for _ in range(6):
        done.append(jobs.start(lambda report: {}))
        ended(done[-1])
    assert jobs.find(running.id) is running
    assert jobs.find(done[-1].id) is done[-1]
    with pytest.raises(SettingError, match="is forgotten"):
        jobs.find(done[0].id)


def test_errors_of_the_library_are_shown_and_others_go_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(report: Report) -> dict[str, Any]:
        raise SettingError("too many rows.")

    job = Jobs().start(refuse)
    assert (ended(job), job.message) == ("failed", "too many rows.")
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def fall(report: Report) -> dict[str, Any]:
        raise ZeroDivisionError("a secret path")

    job = Jobs().start(fall)
    assert ended(job) == "failed"
    assert "secret" not in job.message
    for _ in range(200):
        if seen:
            break
        time.sleep(0.005)
    assert seen[0].exc_type is ZeroDivisionError
