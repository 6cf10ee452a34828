"""Processes that share the runs of a folder: one trains a run, a dead one's is taken over, the results are the same."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import whatwhere as ww
from whatwhere.comparison import claim_files, runner
from whatwhere.comparison.claim_files import LEASE, Claims
from whatwhere.comparison.results import RunResult
from whatwhere.comparison.run import Job, Run
from whatwhere.comparison.runner import Shared
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions

from ..systems import unix
from .six_runs import WORDS, require_same

SMALL: dict[str, Any] = {"dim": 16, "heads": 2, "feedforward": 16, "batch": 8, "test_sequences": 20, "device": "cpu"}
TAKE = """
import sys, time, pathlib
from whatwhere.comparison.claim_files import Claims
print(Claims(pathlib.Path(sys.argv[1])).take("none-0"), flush=True)
time.sleep(600)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that lets the time pass for which a claim is watched that looks dead by the clock."""
    clock, passed = time.monotonic, [0.0]
    monkeypatch.setattr(claim_files.time, "monotonic", lambda: clock() + passed[0])

    def wait() -> None:
        passed[0] += 2 * claim_files._RENEW_EVERY

    return wait


@pytest.fixture(autouse=True)
def runs(tmp_path: Path) -> None:
    """Make the folder of runs."""
    (tmp_path / "runs").mkdir()


def test_one_of_two_has_a_claim_until_it_is_released(tmp_path: Path) -> None:
    first, second = Claims(tmp_path), Claims(tmp_path)
    assert [first.take("none-0"), second.take("none-0"), second.take("none-1")] == [True, False, True]
    assert names(tmp_path / "runs") == ["none-0.claim", "none-1.claim"]
    second.release("none-0")  # not its own
    assert not second.take("none-0")
    first.release("none-0")
    assert second.take("none-0")
    with second.renewed():
        pass
    assert names(tmp_path / "runs") == []


def test_the_claim_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", TAKE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "True\n"
    other = Claims(tmp_path)
    assert not other.take("none-0")
    owner.kill()
    time.sleep(0.2)
    assert other.take("none-0")  # its parent has not yet waited for it
    owner.communicate()
    assert names(tmp_path / "runs") == ["none-0.claim", "none-0.claim-2"]
    assert not Claims(tmp_path).take("none-0")
    other.release("none-0")
    assert names(tmp_path / "runs") == []


@pytest.mark.parametrize("content", ["[]", '{"process": ["another machine", "", "1", "2"]}', "\udcff"])
def test_the_claim_of_another_machine_is_kept_until_its_lease_ends(
    content: str, watch: Callable[[], None], tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "none-0.claim"
    path.write_bytes(content.encode(errors="surrogateescape"))
    claims = Claims(tmp_path)
    os.utime(path, (time.time() - LEASE + 30,) * 2)
    assert not claims.take("none-0")
    os.utime(path, (time.time() - LEASE - 30,) * 2)
    assert not claims.take("none-0")  # the clock may have been set
    watch()
    assert claims.take("none-0")


def test_a_claim_whose_owner_was_killed_before_it_wrote_its_name_is_taken_over_soon(
    watch: Callable[[], None], tmp_path: Path
) -> None:
    claims, path = Claims(tmp_path), tmp_path / "runs" / "none-0.claim"
    path.touch()
    assert not claims.take("none-0")  # its owner may be about to
    os.utime(path, (time.time() - 6,) * 2)
    assert not claims.take("none-0")
    watch()
    assert claims.take("none-0")


def test_a_clock_that_is_set_forward_makes_no_owner_dead(watch: Callable[[], None], tmp_path: Path) -> None:
    claims, path = Claims(tmp_path), tmp_path / "runs" / "none-0.claim"
    path.write_text('{"process": ["another machine", "", "1", "2"]}')
    os.utime(path, (time.time() - 86_400,) * 2)  # it was renewed just before
    assert not claims.take("none-0")
    os.utime(path)  # and after
    watch()
    assert not claims.take("none-0")


def test_a_clock_that_is_set_back_makes_no_owner_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, utime, jump = Claims(tmp_path), os.utime, 0.0

    def set_back(path: Any) -> None:
        utime(path, (time.time() - jump,) * 2)

    monkeypatch.setattr(claim_files.os, "utime", set_back)
    monkeypatch.setattr(claim_files.os, "supports_fd", {set_back})
    path = tmp_path / "runs" / "none-0.claim"
    path.write_text('{"process": ["another machine", "", "1", "2"]}')
    set_back(path)
    assert not other.take("none-0")
    jump = 3600.0
    set_back(path)
    assert not other.take("none-0")


def test_a_claim_with_a_time_in_the_future_is_taken_over_once_it_has_not_changed_for_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs" / "none-0.claim"
    path.write_text('{"process": ["another machine", "", "1", "2"]}')
    claims, clock, began = Claims(tmp_path), time.monotonic, time.time() + 1e6
    os.utime(path, (began,) * 2)
    assert not claims.take("none-0")
    monkeypatch.setattr(claim_files.time, "monotonic", lambda: clock() + LEASE - 1)
    assert not claims.take("none-0")
    os.utime(path, (began + 5,) * 2)  # its owner lives, by the same clock
    monkeypatch.setattr(claim_files.time, "monotonic", lambda: clock() + LEASE + 1)
    assert not claims.take("none-0")
    monkeypatch.setattr(claim_files.time, "monotonic", lambda: clock() + 2 * LEASE + 2)
    assert claims.take("none-0")


@pytest.mark.parametrize("kind", ["folder", "full folder", "link to nothing", "pipe"])
@unix
def test_what_has_the_name_of_a_claim_and_is_no_file_ends_with_its_lease_and_stays(
    kind: str, watch: Callable[[], None], tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "none-0.claim"
    if kind == "link to nothing":
        path.symlink_to(tmp_path / "absent")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        (path / "inside").mkdir(parents=True) if kind == "full folder" else path.mkdir()
    claims, old = Claims(tmp_path), time.time() - LEASE - 30
    assert not claims.take("none-0")
    os.utime(path, (old, old), follow_symlinks=False)
    assert not claims.take("none-0")
    watch()
    assert claims.take("none-0")
    (tmp_path / "runs" / "none-0.json").touch()
    claims.release("none-0")
    assert names(tmp_path / "runs") == (["none-0.claim"] if "folder" in kind else []) + ["none-0.json"]


def test_the_owner_renews_its_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_files, "_RENEW_EVERY", 0.02)
    claims = Claims(tmp_path)
    with claims.renewed():
        assert claims.take("none-0")
        os.utime(tmp_path / "runs" / "none-0.claim", (0, 0))
        deadline = time.monotonic() + 30
        while (tmp_path / "runs" / "none-0.claim").stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not Claims(tmp_path).take("none-0")


def test_of_many_that_see_a_dead_owner_one_takes_over(watch: Callable[[], None], tmp_path: Path) -> None:
    for number in range(20):
        dead = tmp_path / "runs" / f"none-{number}.claim"
        dead.touch()
        os.utime(dead, (0, 0))
    ready, seen, won = threading.Barrier(8), threading.Barrier(8, watch), list[int]()

    def race() -> None:
        claims = Claims(tmp_path)
        ready.wait()
        assert not any(claims.take(f"none-{number}") for number in range(20))
        seen.wait()
        won.extend(number for number in range(20) if claims.take(f"none-{number}"))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))


def test_an_owner_that_was_taken_for_dead_leaves_the_claim_of_its_heir(
    watch: Callable[[], None], tmp_path: Path
) -> None:
    slow, heir = Claims(tmp_path), Claims(tmp_path)
    assert slow.take("none-0")
    os.utime(tmp_path / "runs" / "none-0.claim", (0, 0))
    assert not heir.take("none-0")
    watch()
    assert heir.take("none-0")
    slow.release("none-0")
    assert names(tmp_path / "runs") == ["none-0.claim-2"]
    assert not slow.take("none-0")


def test_the_claims_that_dead_owners_left_of_finished_runs_are_removed(tmp_path: Path) -> None:
    runs, other = tmp_path / "runs", Claims(tmp_path)
    for name in ("none-0", "none-1", "none-2"):
        assert other.take(name)
    (runs / "none-0.json").touch()
    (runs / "none-1.json").touch()
    os.utime(runs / "none-0.claim", (0, 0))
    os.utime(runs / "none-2.claim", (0, 0))
    with Claims(tmp_path).renewed():
        pass
    assert names(runs) == ["none-0.json", "none-1.claim", "none-1.json", "none-2.claim"]


def job(scheme: Any = "none", seed: int = 0) -> Job:
    return Job(scheme, seed, Expressions(trained=(2, 3)), make_settings("expressions", [4], steps=2, **SMALL))


def test_runs_of_others_are_waited_for_and_their_failures_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process finishes one run, fails in another, and gives a third one up: only that is trained here."""
    monkeypatch.setattr(runner, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(runner, "_LOOK_AT_EACH", 0.0)
    other, jobs = Claims(tmp_path), [job("none"), job("rotary"), job("alibi"), job("learned")]
    for name in ("rotary-0", "alibi-0", "learned-0"):
        assert other.take(name)
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "none-0.txt").write_text("in an earlier call")
    done: dict[str, RunResult] = {}
    kept: list[Run] = []

    def keep(run: Run) -> None:
        kept.append(run)
        if len(kept) == 1:
            done["rotary"] = replace(run.result, scheme="rotary")
            other.fail("alibi-0", "alibi, seed 0: a loss is not finite")
            for name in ("rotary-0", "alibi-0", "learned-0"):
                other.release(name)

    shared = Shared(Claims(tmp_path), lambda job: done.get(job.name))
    with pytest.raises(ww.errors.ResultsError, match=r"^1 of 4 runs failed.*\nalibi, seed 0: a loss is not finite\n"):
        runner.run_all(jobs, keep, executor=None, workers=1, show=True, shared=shared)
    assert [run.result.scheme for run in kept] == ["none", "learned"]
    assert "2 of 4 runs: rotary, seed 0, in another process" in capsys.readouterr().err
    assert (names(tmp_path / "runs"), names(tmp_path / "failed")) == ([], ["alibi-0.txt"])


def own_runs(output: str) -> list[str]:
    return re.findall(r"^\d of 6 runs: (\w+, seed \d), \d+ s$", output, re.MULTILINE)


@unix
def test_two_processes_share_the_runs_and_one_goes_on_when_the_other_is_killed(
    alone: Path, tmp_path: Path, our_own_checks: None
) -> None:
    out = tmp_path / "shared"
    command = [sys.executable, "-m", "whatwhere", *WORDS, "--workers", "1", "--json", "--out", str(out)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first, second = (subprocess.Popen(command, **pipes) for _ in range(2))
    deadline = time.monotonic() + 600
    while len(list(out.glob("runs/*.json"))) < 2 and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    killed = first.communicate()[1]
    finished = {path: path.stat().st_mtime_ns for path in out.glob("runs/*.json")}
    printed, told = second.communicate(timeout=600)
    assert second.returncode == 0, told
    assert json.loads(printed)["seeds"] == [0, 1, 2]
    trained = own_runs(told)
    assert not set(trained) & set(own_runs(killed)), "no run is trained by both"
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    require_same(alone, out)


def test_ranks_of_torchrun_share_the_runs_and_one_prints(alone: Path, tmp_path: Path, our_own_checks: None) -> None:
    out = tmp_path / "shared"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "whatwhere", *WORDS, "--workers", "1", "--json", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert len(json.loads(line)["runs"]) == 6
    require_same(alone, out)
