"""compare: same numbers again, nothing lost, wrong input refused before any training."""

import functools
import importlib
import linecache
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import whatwhere as ww
from whatwhere import errors
from whatwhere.comparison import DEMO_SCHEMES, compare, demo, read_results
from whatwhere.comparison.tasks import Expressions
from whatwhere.report.comparison_sentences import headline
from whatwhere.where.catalogue import source_of

from ..running import whatwhere
from ..systems import unix
from . import six_runs

QUICK: dict[str, Any] = {"lengths": [8], "steps": 3, "test_sequences": 40, "workers": 1, "progress": False}


def slow_decay(dim: int, num_heads: int, max_length: int) -> ww.Where:
    """Build a scheme of one's own."""
    return ww.Where(score=ww.ALiBi(num_heads), query_key=ww.Rotary(dim // num_heads))


def test_processes_threads_and_this_process_have_the_same_results(tmp_path: Path) -> None:
    schemes = ["learned", ("mine", slow_decay)]
    torch.manual_seed(5)
    expected, count = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    compare(schemes, out=tmp_path / "a", seeds=1, **QUICK)
    assert torch.equal(torch.rand(3), expected), "the caller's random state stays"
    compare(schemes, out=tmp_path / "b", seeds=1, **QUICK | {"workers": 2})
    with ThreadPoolExecutor(2) as threads:
        compare(schemes, out=tmp_path / "c", seeds=1, executor=threads, **QUICK | {"workers": None})
    assert torch.get_num_threads() == count
    for other in ("b", "c"):
        six_runs.require_same(tmp_path / "a", tmp_path / other)


def test_results_hold_on_how_many_sequences_each_length_was_tested(tmp_path: Path) -> None:
    """At least 20 are, so that 5 are not what a score is a share of."""
    results = compare(["none"], seeds=1, out=tmp_path, **QUICK | {"lengths": [8, 600], "test_sequences": 5})
    assert dict(read_results(tmp_path).task.sequences) == dict.fromkeys([2, 3, 4, 5, 6, 8, 600], 20)
    right = [20 * (scores["all"] or 0.0) for scores in results.runs[0].scores.values()]
    assert right == pytest.approx([round(each) for each in right])


@pytest.mark.parametrize("task", ["recall", "text"])
def test_other_tasks(task: str, tmp_path: Path) -> None:
    given = QUICK | {"lengths": [72] if task == "text" else [9], "steps": 2}
    report = compare(["alibi", "learned"], task, seeds=1, out=tmp_path / "a", **given)
    assert report.task.name == task
    assert report.runs[0].token_table == ()
    assert headline(report).startswith("Of 2 schemes, not one learned the task")


@unix
def test_ctrl_c_on_the_command_line(tmp_path: Path, our_own_checks: None) -> None:
    out = tmp_path / "a"
    small = ["--steps", "80", "--lengths", "8", "--layers", "1", "--set", "batch=8", "--set", "test_sequences=40"]
    words = ["compare", "none", "--seeds", "4", *small, "--out", str(out)]
    command = [sys.executable, "-m", "whatwhere", *words, "--workers", "2"]
    # A process group of its own: a terminal sends Ctrl-C to the workers too. Where the tests run in the background of a
    # shell, Ctrl-C is ignored, and children would inherit that.
    heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    started = subprocess.Popen(command, stderr=pipe, stdout=pipe, text=True, start_new_session=True, preexec_fn=heeding)
    deadline = time.monotonic() + 120
    while not list(out.glob("runs/*.json")) and time.monotonic() < deadline and started.poll() is None:
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    _, message = started.communicate(timeout=60)
    assert started.returncode == 130, message
    assert "run the same command again to resume" in message
    assert "Traceback" not in message
    kept = {path: path.stat().st_mtime_ns for path in out.glob("runs/*.json")}
    assert 1 <= len(kept) < 4
    assert whatwhere(*words, "--workers", "1").status == 0
    assert len(list(out.glob("runs/*.json"))) == 4
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (out / "results.json").is_file()


def test_a_changed_scheme_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    compare([("mine", slow_decay)], out=tmp_path / "a", seeds=1, **QUICK)
    with pytest.raises(errors.ResultsError, match="the scheme 'mine', or the model, has changed"):
        compare([("mine", lambda d, h, m: ww.Where())], out=tmp_path / "a", seeds=1, **QUICK)


OWN = """
from functools import partial
import numbers_of_a_test as numbers
from numbers_of_a_test import scaled

CONFIG = {"slope": [1.0, 2.0]}
twice = partial(scaled, factor=2.0, by=len)
MEMO = {}
CALLS = 1

def counted():
    '''Count the calls of a
    global CONFIG, which no line changes.'''
    global CALLS
    CALLS += 1

def steep(dim, heads, rows):
    MEMO[rows] = rows
    numbers.SEEN += CALLS
    numbers.CONFIG[rows] = rows
    counted()
    return numbers.K * twice(CONFIG["slope"][0])
"""
NUMBERS = "K = 3.0\nSEEN = 0\nCONFIG = {}\n\n\ndef scaled(x, factor, by):\n    return factor * x\n"


@pytest.mark.parametrize(
    ("old", "new"), [("1.0, 2.0", "9.0, 2.0"), ("K = 3.0", "K = 4.0"), ("factor=2.0", "factor=5.0"), ("* x", "* x * x")]
)
def test_what_a_scheme_reads_from_containers_and_modules_is_its_source(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for change in (old, old, new):
        (tmp_path / "numbers_of_a_test.py").write_text(NUMBERS.replace(old, change))
        (tmp_path / "scheme_of_a_test.py").write_text(OWN.replace(old, change))
        linecache.clearcache()
        importlib.invalidate_caches()
        for name in ("numbers_of_a_test", "scheme_of_a_test"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        module = importlib.import_module("scheme_of_a_test")
        found.append(source_of(module.steep))
        module.steep(8, 2, len(found))
        assert source_of(module.steep) == found[-1]
    assert found[0] == found[1] != found[2]
    assert " at 0x" not in found[0]


def test_a_foreign_folder_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(errors.ResultsError, match="is not empty and holds no comparison"):
        compare(["none"], out=tmp_path, seeds=1, **QUICK)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(errors.ResultsError, match="is a file"):
        compare(["none"], out=tmp_path / "thesis.txt", seeds=1, **QUICK)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"schemes": []}, errors.SettingError, "got no scheme"),
        ({"schemes": ["none", "none"]}, errors.SettingError, "two schemes with the name 'none'"),
        ({"schemes": ["rotery"]}, errors.UnknownScheme, "Did you mean rotary"),
        ({"schemes": [("mine", lambda d, h, m: "oops")]}, errors.SettingError, "built str, but must build a Where"),
        ({"schemes": ["none/learned"]}, errors.SettingError, "put it into the first part"),
        ({"schemes": [("short", lambda d, h, m: ww.Where(input=ww.Learned(d, 3)))]}, errors.PositionError, "beyond"),
        ({"seeds": []}, errors.SettingError, "needs at least one"),
        ({"seeds": [1, 1]}, errors.SettingError, "given once"),
        ({"seeds": 0}, errors.SettingError, "seeds=0, but needs at least one"),
        ({"task": "poems"}, errors.SettingError, "expressions, recall, text"),
        ({"task": "recall", "lengths": [27]}, errors.SettingError, "got the length 27"),
        ({"steps": 0}, errors.SettingError, "steps=0 trains nothing"),
        ({"dim": 12, "schemes": ["rotary"]}, errors.ShapeError, "even number"),
        ({"direction": "encoder", "schemes": ["none", "fox"]}, errors.SettingError, "'fox' supports causal attention"),
        ({"workers": 0}, errors.SettingError, "workers=0, but needs at least 1"),
        ({"seeds": [2**64]}, errors.SettingError, "each 0"),
        ({"task": Expressions(), "trained": [2]}, errors.SettingError, "has its own lengths and texts"),
        ({"task": Expressions(), "files": ["a.txt"]}, errors.SettingError, "has its own lengths and texts"),
        ({"task": Expressions(direction="encoder")}, errors.SettingError, "pass direction='encoder'"),
        ({"files": ["a.txt"]}, errors.SettingError, "task='text' only"),
        ({"files": ["no-such-file.txt"], "task": "text"}, errors.TextError, "cannot be read"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(change, error, words, tmp_path) -> None:  # type: ignore[no-untyped-def]
    options = {"schemes": ["none"], "out": tmp_path / "a", "seeds": 1, **QUICK} | change
    with pytest.raises(error, match=words):
        compare(**options)
    assert not (tmp_path / "a").exists()


def test_what_cannot_be_pickled_is_reported(tmp_path: Path) -> None:
    schemes = [("mine", lambda d, h, m: ww.Where()), "none"]
    with pytest.raises(errors.SettingError, match=r"cannot be sent to other processes(.|\n)*pass workers=1"):
        compare(schemes, out=tmp_path / "a", seeds=1, **QUICK | {"workers": 2})
    report = compare(schemes, out=tmp_path / "b", seeds=1, **QUICK | {"workers": None})
    assert list(report.summary) == ["mine", "none"]


@pytest.mark.slow
def test_the_demo_solves_its_task_within_the_trained_length(tmp_path: Path) -> None:
    report = demo(tmp_path / "demo", progress=False)
    assert [run.scheme for run in report.runs] == [name for _ in range(3) for name in DEMO_SCHEMES]
    assert all(run.in_length >= 0.99 for run in report.runs)
