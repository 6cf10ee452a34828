"""The results folder: its files, the layers in it, the command that repeats it, and every kind of damage."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

import whatwhere as ww
from whatwhere.comparison.folder import Folder
from whatwhere.comparison.read import read_results
from whatwhere.comparison.run import Job, Run, run
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.errors import SettingError
from whatwhere.records import with_checksum

from ..running import error_of, whatwhere
from . import made_up
from .conftest import SMALL

TASK = Expressions(trained=(2, 3))
TOLD = make_settings("expressions", [4], steps=3, **SMALL)


LIGHT = """
import sys
from whatwhere import comparison
results = comparison.read_results(sys.argv[1])
print(len(results.tables(results.runs[0])), len(str(results).splitlines()), "torch" in sys.modules)
"""


def test_reading_results_needs_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIGHT, str(made_up.made_up_folder(tmp_path, schemes=("none", "alibi"), seeds=1))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("3 4 False\n", "")


@pytest.fixture(scope="module")
def learned_run() -> Run:
    """Return one run: learned positions, seed 2."""
    return run(Job("learned", 2, TASK, TOLD))


def folder(path: Path, *schemes: Any) -> Folder:
    return Folder(path, TASK, TOLD, [Job(scheme, 0, TASK, TOLD) for scheme in schemes or ["learned"]])


@pytest.fixture
def kept(tmp_path: Path, learned_run: Run) -> Path:
    """Return a folder with that run in it."""
    folder(tmp_path / "a").keep(learned_run)
    return tmp_path / "a"


def test_a_run_that_is_kept_is_read_again_as_it_was(kept: Path, learned_run: Run) -> None:
    again = folder(kept).finished("learned", 2)
    assert again is not None
    files = {"file": "models/learned-2.safetensors", "trace": "traces/learned-2.safetensors"}
    assert again.result == replace(learned_run.result, **files), "every number to the last bit"
    assert again.view == learned_run.view
    assert folder(kept).finished("learned", 3) is None
    assert not list(kept.rglob("*.part"))


def test_a_model_names_its_run_and_is_read_by_whoever_reads_the_runs(kept: Path) -> None:
    modes = {(kept / file).stat().st_mode for file in ("models/learned-2.safetensors", "runs/learned-2.json")}
    assert len(modes) == 1
    with safe_open(kept / "models/learned-2.safetensors", "pt") as opened:
        metadata = opened.metadata()
    assert [metadata[name] for name in ("scheme", "seed", "task")] == ["learned", "2", "expressions"]
    assert {field.name for field in fields(Settings)} <= json.loads(metadata["settings"]).keys()


def test_a_run_without_its_model_is_done_again(kept: Path) -> None:
    (kept / "models/learned-2.safetensors").unlink()
    assert folder(kept).finished("learned", 2) is None


DAMAGED = {
    "empty": "",
    "truncated": '{"format": "whatwhere-run", "rec',
    "binary": "\x00\xff\xfe",
    "a list": "[]",
    "null": "null",
    "deep": "[" * 100_000,
    "foreign": '{"name": "a notebook", "cells": []}',
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("file", ["comparison.json", "runs/learned-2.json"])
def test_a_damaged_file_is_named_with_the_way_out(file: str, text: str, kept: Path) -> None:
    (kept / file).write_bytes(text.encode("latin-1"))
    with pytest.raises(ww.errors.ResultsError) as caught:
        folder(kept).finished("learned", 2)
    said = str(caught.value)
    assert Path(file).name in said or "holds another comparison" in said
    assert "hoose another folder" in said


def change(path: Path, *changes: Callable[[Any], Any]) -> None:
    content = json.loads(path.read_text())
    for part in changes:
        part(content)
    path.write_text(json.dumps(with_checksum(content)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda c: c.pop("result"),
        lambda c: c["result"]["scores"]["4"].update(all="high"),
        lambda c: c.update(format="something else"),
        lambda c: c["result"].pop("file"),
        lambda c: c["result"].update(seed=3),
        lambda c: c["result"].update(scheme="rotary"),
    ],
)
def test_a_run_that_lacks_a_part_or_is_another_is_refused(damage: Any, kept: Path) -> None:
    change(kept / "runs/learned-2.json", damage)
    with pytest.raises(
        ww.errors.ResultsError, match=r"learned-2\.json is not a run(.|\n)*Move it away, or choose another folder"
    ):
        folder(kept).finished("learned", 2)


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (lambda c: c.update(version=1), "has version 1, but this whatwhere reads version 5"),
        (lambda c: c.update(format="x"), "has the format 'x', but 'whatwhere-comparison' is needed"),
        (lambda c: c["versions"].update(torch="1.0"), "there torch is '1.0', here '.*'"),
        (lambda c: c["settings"].update(steps=4), "there steps is 4, here 3"),
        (lambda c: c["settings"].update(trained=[2]), r"there trained is \[2\], here \[2, 3\]"),
        (lambda c: c.update(task_identity="encoder"), "there task_identity is 'encoder', here 'decoder'"),
        (lambda c: c["settings"].update(new=1), "there new is 1, here None"),
    ],
)
def test_another_comparison_is_refused_with_what_differs(difference: Any, words: str, kept: Path) -> None:
    change(kept / "comparison.json", difference)
    with pytest.raises(ww.errors.ResultsError, match=words + r"\.\nChoose another folder"):
        folder(kept)


def test_names_that_are_no_file_names_do_not_collide(tmp_path: Path, learned_run: Run) -> None:
    names = ["a/b", "a:b", "a_b", "A_b", "../b", "a b", "ä"]
    opened = folder(tmp_path / "a", *((name, lambda d, h, m: ww.Where()) for name in names))
    for name in names:
        opened.keep(replace(learned_run, result=replace(learned_run.result, scheme=name)))
    for part in ("runs", "models"):  # on any disk, also on one that does not know a from A
        assert len({path.name.lower() for path in (tmp_path / "a" / part).iterdir()}) == len(names)
    assert [opened.finished(name, 2).result.scheme for name in names] == names  # type: ignore[union-attr]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ww.errors.ResultsError, match=r"cannot be written: Not a directory\.\nChoose another folder"):
        folder(tmp_path / "file" / "a")


@pytest.mark.parametrize(
    "given",
    [
        {"seeds": 1, "vary": {"dim": [16, 32]}, "trained": [3], "tied": True, "betas": (0.5, 0.6)},
        {"seeds": [7, 3], "positions": "randomized", "lengths": [], "against": "nope"},
    ],
)
def test_a_comparison_is_repeated_from_its_folder(given: Any, tmp_path: Path) -> None:
    ww.compare(
        ["alibi", "none"], out=tmp_path / "a", steps=2, workers=1, progress=False, **{"lengths": [4], **SMALL, **given}
    )
    first = read_results(tmp_path / "a")
    assert first.record.command == f"whatwhere compare --repeat {tmp_path / 'a'}"
    done = whatwhere(*shlex.split(first.record.command)[1:], "--out", tmp_path / "b", "--workers", "1")
    assert done.status == 0, done.err
    again = read_results(tmp_path / "b")
    assert (again.schemes, again.record.seeds) == (first.schemes, first.record.seeds)
    assert again.record.settings == first.record.settings
    assert again.against == first.against == ("none" if "against" in given else None)
    assert again.record.choices == first.record.choices
    assert len(first.record.choices) == (2 if "vary" in given else 0)
    assert [run.losses for run in again.runs] == [run.losses for run in first.runs]
    assert "leave their names out" in error_of("compare", "none", "--repeat", tmp_path / "a")
    with pytest.raises(SettingError, match=r"against='xpos' is not a scheme of this comparison\. Pass one of: alibi"):
        ww.compare(["alibi", "none"], against="xpos", out=tmp_path / "c", progress=False)


def test_objects_that_no_file_names_are_repeated_in_python(tmp_path: Path) -> None:
    own = ("mine", lambda d, h, m: ww.Where())
    results = ww.compare([own], lengths=[4], seeds=1, steps=2, out=tmp_path / "a", workers=1, progress=False)
    assert results.record.command is None
    assert "in no file: repeat it in Python" in error_of("compare", "--repeat", tmp_path / "a")
    old = made_up.made_up_folder(tmp_path / "old", seeds=1)
    assert "by an earlier whatwhere. It was made by: whatwhere compare" in error_of("compare", "--repeat", old)


def test_a_comparison_prints_medians_ranges_and_what_has_no_row(tmp_path: Path) -> None:
    folder = made_up.scored_folder(tmp_path, 8, {"rotary": [0.5, 0.625, 0.75], "learned": [None] * 3})
    made_up.set_scores(folder, None, {"rotary": [1.0] * 3, "learned": [1.0] * 3})
    learned_run = read_results(folder)
    lines = str(learned_run).splitlines()
    assert lines[1].split("  ")[0] == "scheme"
    assert lines[2].startswith("rotary   1.000      0.625 (0.500 to 0.750)  ")
    assert lines[3].startswith("learned  1.000      no row  ")
    assert len(repr(learned_run)) < 200, "the last line of a notebook's cell"


def test_names_of_a_comparison_are_shown_and_not_interpreted(tmp_path: Path) -> None:
    learned_run = read_results(made_up.hostile_folder(tmp_path))
    for text in (str(learned_run), repr(learned_run)):
        assert "\u202e" not in text
        assert "⟨U+202E⟩" in text


def test_a_scheme_is_found_by_its_other_names(tmp_path: Path) -> None:
    results = read_results(made_up.made_up_folder(tmp_path, schemes=("none", "rotary"), seeds=1) / "results.json")
    assert results.folder == tmp_path
    assert [results.find_scheme(name) for name in ("rotary", "rope", "NoPE")] == ["rotary", "rotary", "none"]
    with pytest.raises(ww.errors.SettingError, match=r"no scheme 'alibi'\. It has: 'none', 'rotary'"):
        results.find_scheme("alibi")
