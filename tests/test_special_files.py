"""Pipes, devices, sockets, folders and links where a file is expected: refused in one message, at once."""

import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import whatwhere as ww

from .models.checkpoint.samples import CONFIG, WORDS, tokenizer
from .running import whatwhere


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(path.name)  # the whole path may be too long


pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no such files")

KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a socket": _socket,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a pipe": lambda path: (os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe")),
}
INPUTS = [
    "inspect X", "check X", "inspect M --text X", "diff X M", "diff M X", "convert X OUT --dtype bfloat16",
    "map X --out OUT.svg", "extend X OUT --to 99",
    "resize X OUT --add-token a", "trim X OUT --corpus T", "neighbors X cat",
    "encode --file X", "encode cat --tokenizer X", "ask X Max(1)", "golden X --out OUT", "verify X M",
    "tables X --out OUT", "compare none --task text --file X --out OUT",
    "compare none --task text --file T --tokenizer X --out OUT",
    "studio X --export OUT", "studio M --corpus X --export OUT",
]  # fmt: skip
OUTPUTS = [
    "convert M X --format safetensors --force",
    "map M --out X",
    "studio M --export X",
    "golden C --out X --force",
]
NAMES = {"M": "M.safetensors", "C": "config.json"}


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    def end(*_: object) -> None:
        raise AssertionError("it waits for what never comes")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a model, a text and a tokenizer, which is the current one."""
    save_file({"wte.weight": np.arange(28, dtype=np.float32).reshape(7, 4)}, tmp_path / "M.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "T").write_text("cat " * 500)
    (tmp_path / "tokenizer.json").write_bytes(tokenizer(WORDS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_refused_in_one_message(kind: str, folder: Path) -> None:
    KINDS[kind](folder / "X")
    before = set(folder.iterdir())
    for command in INPUTS:
        status, out, err = whatwhere(*(NAMES.get(word, word) for word in command.split()))
        assert (status, out) == (1, ""), command
        assert err.startswith("whatwhere: "), command
        assert "Traceback" not in err, command
        assert set(folder.iterdir()) == before, command


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "a socket", "a full device"])
def test_outputs_are_refused_in_one_message(kind: str, folder: Path) -> None:
    make = KINDS.get(kind, lambda path: path.symlink_to("/dev/full"))
    make(folder / "X.svg")
    if kind == "a folder":
        (folder / "X.svg" / "thesis.txt").touch()
    before = {path.name for path in folder.rglob("*")}
    for command in OUTPUTS:
        status, out, err = whatwhere(*({**NAMES, "X": "X.svg"}.get(word, word) for word in command.split()))
        assert (status, out) == (1, ""), command
        assert err.startswith("whatwhere: "), command
        assert "Traceback" not in err, command
        assert {path.name for path in folder.rglob("*")} == before, command


def test_a_pipe_that_somebody_reads_is_written(folder: Path) -> None:
    os.mkfifo(folder / "X.svg")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((folder / "X.svg").read_bytes()), daemon=True)
    reader.start()
    while whatwhere("map", "M.safetensors", "--out", "X.svg").status:  # until the thread has opened it
        pass
    reader.join(10)
    assert read[0].startswith(b"<svg")


@pytest.mark.parametrize(
    "planted", ["results.json", "comparison.json", "runs/none-0.json", "models/none-0.safetensors"]
)
def test_links_among_the_files_of_a_comparison_are_replaced_not_followed(planted: str, folder: Path) -> None:
    given = {"dim": 8, "heads": 2, "feedforward": 8, "batch": 4, "test_sequences": 4, "steps": 1, "workers": 1}
    ww.compare(["none"], lengths=[4], seeds=1, out=folder / "r", progress=False, **given)
    outside, link = folder / "outside", folder / "r" / planted
    wanted = link.read_bytes()
    outside.write_bytes(wanted if planted == "comparison.json" else b"mine")
    link.unlink()
    link.symlink_to(outside)
    kept = outside.read_bytes()
    try:
        ww.compare(["none"], lengths=[4], seeds=1, out=folder / "r", progress=False, **given)
    except ww.errors.ResultsError:
        assert planted == "runs/none-0.json"  # a run that is damaged is not written over
    assert outside.read_bytes() == kept


def test_nothing_is_written_through_a_folder_that_is_a_link(folder: Path) -> None:
    (folder / "outside").mkdir()
    (folder / "r").mkdir()
    ww.compare(["none"], lengths=[4], seeds=1, out=folder / "r", progress=False, steps=1, dim=8, heads=2, workers=1)
    shutil.rmtree(folder / "r" / "models")
    (folder / "r" / "models").symlink_to(folder / "outside")
    with pytest.raises(ww.errors.ResultsError, match=r"models is a link, which nothing is written through\.\n"):
        ww.compare(["none"], lengths=[4], seeds=1, out=folder / "r", progress=False, steps=1, dim=8, heads=2, workers=1)
    assert not list((folder / "outside").iterdir())
