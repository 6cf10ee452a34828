"""The server: jobs over HTTP, and the real program over a socket."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from whatwhere.errors import SettingError
from whatwhere.studio.export import MEDIA_TYPE, unpack
from whatwhere.studio.jobs import Job, Report
from whatwhere.studio.server import AT_ONCE, JOBS_AT_ONCE, PAGE, Key, create_app, served
from whatwhere.studio.session import Session

from ..running import fitting
from .conftest import ADDRESS

built = pytest.mark.skipif(
    not (PAGE / "index.html").is_file(), reason="the page is not bundled: make page, which needs Node.js"
)


def work(session: Session, settings: Any, report: Report) -> dict[str, Any]:
    for n in range(settings["times"]):
        report(n / settings["times"], f"at {n}")
        time.sleep(0.02)
    return {"rows": session.table().rows}


def test_a_job_is_followed_to_its_answer(fresh: Session, key: Key, page: Path) -> None:
    with TestClient(create_app(fresh, key, page, {}, {"work": work}), base_url=ADDRESS) as client:
        client.get("/", params={"token": key.token})
        rest, reports = client.post("/jobs/work", json={"times": 20}).content, []
        while not reports or reports[-1]["state"] == "running":
            line, _, rest = rest.partition(b"\n")
            reports.append(json.loads(line))
    assert reports[-1] == {"state": "done", "fraction": 1.0, "message": "at 19"}
    assert 3 < len(reports) < 20
    assert unpack(rest) == {"rows": 20}


def test_some_jobs_are_at_work_at_a_time_and_stop_when_their_readers_leave(fresh: Session, page: Path) -> None:
    with served(fresh, page, {}, {"work": work}) as url, httpx2.Client(trust_env=False) as client, ExitStack() as left:
        client.get(url)
        base = url.partition("/?")[0]

        def start(times: int) -> httpx2.Response:
            return left.enter_context(client.stream("POST", f"{base}/jobs/work", json={"times": times}))

        def refused() -> bool:
            answer = client.post(f"{base}/jobs/work", json={"times": 0})
            return answer.status_code == 400 and f"{JOBS_AT_ONCE} jobs are at work" in answer.json()["message"]

        started = [start(1_000_000) for _ in range(JOBS_AT_ONCE)]
        assert refused()
        started[0].close()
        for _ in range(100):
            if not refused():
                return
            time.sleep(0.05)
        raise AssertionError("the job whose reader left did not stop")


def test_a_few_queries_are_answered_at_a_time(fresh: Session, key: Key, page: Path) -> None:
    """As many threads as clients share the processors so badly that each query takes longer than in turn."""
    running: list[int] = []
    counts: list[int] = []

    def work(session: Session, settings: Any) -> dict[str, Any]:
        running.append(settings["number"])
        counts.append(len(running))
        time.sleep(0.02)
        running.remove(settings["number"])
        return {"number": settings["number"]}

    with TestClient(create_app(fresh, key, page, {"work": work}, {}), base_url=ADDRESS) as client:
        client.get("/", params={"token": key.token})

        def query(number: int) -> int:
            return unpack(client.post("/query/work", json={"number": number}).content)["number"]  # type: ignore[no-any-return]

        with ThreadPoolExecutor(30) as clients:
            assert list(clients.map(query, range(60))) == list(range(60))
    assert max(counts) == AT_ONCE


@pytest.fixture(scope="module")
def program() -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-m", "whatwhere", "studio", "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, fitting("studio", process.stdout.readline())
        finally:
            process.kill()


@built
def test_the_program_serves_every_file_of_the_page(program: tuple[Any, dict[str, Any]]) -> None:
    with httpx2.Client(trust_env=False) as client:
        assert client.get(program[1]["url"]).status_code == 200
        base = f"http://127.0.0.1:{program[1]['port']}"
        kinds = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
        for file in PAGE.iterdir():
            answer = client.get(f"{base}/{file.name}")
            assert (answer.status_code, answer.content) == (200, file.read_bytes())
            assert answer.headers["content-type"].startswith(kinds[file.suffix])
        answer = client.post(f"{base}/query/about", json={})
        assert (answer.headers["content-type"], unpack(answer.content)["kind"]) == (MEDIA_TYPE, "fresh")
        assert client.post(f"{base}/query/about", headers={"host": "evil.example"}).status_code == 400


@built
def test_the_program_listens_on_this_machine_alone(program: tuple[Any, dict[str, Any]]) -> None:
    own = socket.gethostbyname(socket.gethostname())
    if own.startswith("127."):
        pytest.skip("this machine has no other address")
    with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
        socket.create_connection((own, program[1]["port"]), timeout=2)


@built
@pytest.mark.skipif(sys.platform == "win32", reason="signals are other there")
def test_an_interrupt_ends_the_program_quietly_even_while_somebody_listens() -> None:
    command = [sys.executable, "-m", "whatwhere", "studio", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with httpx2.Client(trust_env=False) as client:
            assert client.get(process.stdout.readline().strip()).status_code == 200
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            _, complaints = process.communicate(timeout=30)
        assert process.returncode == 0
        assert time.monotonic() - began < 10
        assert complaints.splitlines() == [
            "whatwhere: a fresh table (no model loaded) is open at the address above. Ctrl-C ends it."
        ]


def test_asking_for_tokens_imports_no_torch(minilm: Path) -> None:
    code = (
        "import sys; from whatwhere.studio.session import Session; from whatwhere.studio.api import QUERIES; import "
        "whatwhere.studio.server; s = Session.open(sys.argv[1]); QUERIES['about'](s, {}); "
        "QUERIES['tokens.neighbors'](s, {'token': 'king'}); "
        "QUERIES['pipeline.read'](s, {'text': 'a', 'tokens': 'loaded'}); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, minilm], check=True, timeout=120)


def ended(job: Job) -> str:
    for _ in range(1000):
        if job.state != "running":
            return job.state
        time.sleep(0.005)
    raise AssertionError("the job did not end")


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
