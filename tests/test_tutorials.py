"""The list of what five tutorials describe: each row is numbered, and what it names runs or is there."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from experiments.tutorials.all_claims import claim

from .running import whatwhere

DOCS = Path(__file__).parents[1] / "docs"
TEXT = (DOCS / "tutorials.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \|$", TEXT, re.MULTILINE)
SHOWN = [shown for _, _, shown, _ in ROWS]
COMMANDS = sorted({each for shown in SHOWN for each in re.findall(r"`whatwhere (.+?)`", shown)})
CALLS = sorted({each for shown in SHOWN for each in re.findall(r"`(ww\..+?)`", shown)})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train two schemes for two steps: what commands print is tested elsewhere."""
    folder = tmp_path_factory.mktemp("results")
    ww.compare(["none", "sinusoidal"], lengths=[8], seeds=1, out=folder, steps=2, workers=1, progress=False)
    return folder


def test_every_item_has_a_number_and_something_that_shows_it() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 94))
    for number, _, shown, where in ROWS:
        assert re.search(r"`(whatwhere |ww\.)|\]\(", f"{shown} {where}"), number


def test_claims_and_questions_are_there() -> None:
    claims = re.findall(r"\[claim (\S+)\]\(errata\.md#(claim-[\w-]+)\)", TEXT)
    assert len(claims) == len(re.findall(r"errata\.md#", TEXT)) > 80
    assert all(claim(id).anchor == anchor for id, anchor in claims)
    questions = re.findall(r"\[question (\d+)\]\(answers\.md#question-(\d+)\)", TEXT)
    assert all(one == other and 1 <= int(one) <= 20 for one, other in questions)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_runs(
    command: str, results: Path, minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"whatwhere-demo": str(results), "path/to/minilm": str(minilm)}
    done = whatwhere(*(places.get(word, word) for word in shlex.split(command)))
    assert done.status == 0, done.err


@pytest.mark.parametrize("call", CALLS)
def test_each_call_runs(call: str) -> None:
    assert eval(call, {"ww": ww, "torch": torch, "np": np}) is not None
