"""Text in files of any size: read by windows, checked, copied once, and sent to other processes by its path."""

import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.comparison import byte_text
from whatwhere.comparison.byte_text import in_memory, keep_in_file, open_files
from whatwhere.comparison.run import Job
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Text
from whatwhere.report.comparison_sentences import setup_sentence

from ..running import whatwhere
from ..systems import unix
from .conftest import SMALL


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Write three files, of which one has a single byte."""
    contents = [bytes(range(256)) * 8, b"x", np.random.default_rng(0).bytes(3000)]
    paths = [tmp_path / f"{n}.txt" for n in range(3)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave as another process, which has checked no file."""
    monkeypatch.setattr(byte_text, "_digests", {})


def test_windows_of_files_are_those_of_their_joined_bytes(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"\n".join(path.read_bytes() for path in files)
    text, memory = open_files(files), in_memory(whole)
    assert (len(text), text.sha256) == (len(whole), memory.sha256)
    for count in (1, 2, 5, 700):
        starts = [0, 1, 2047, 2048, 2049, 2050, len(whole) - count]
        starts = [start for start in starts if start + count <= len(whole)]
        expected = [whole[start : start + count] for start in starts]
        assert [bytes(row) for row in text.windows(starts, count)] == expected
        assert [bytes(row) for row in memory.windows(starts, count)] == expected
    monkeypatch.setattr(byte_text, "_CHUNK", 100)
    for end in (0, 1, 100, 2048, 2049, len(whole)):
        assert b"".join(text.chunks(end)) == b"".join(memory.chunks(end)) == whole[:end]


def test_batches_are_the_windows_that_the_generator_samples(files: list[Path]) -> None:
    """The same that were sampled when the whole text was one tensor."""
    whole = torch.tensor(list(b"\n".join(path.read_bytes() for path in files)))
    cut = len(whole) * 9 // 10
    for text in (open_files(files), bytes(whole.tolist())):
        task = Text(text, trained=(16,))
        batch = task.sample(12, torch.Generator().manual_seed(5))
        starts = torch.randint(0, cut - 16, (12, 1), generator=torch.Generator().manual_seed(5))
        windows = whole[starts + torch.arange(17)]
        assert torch.equal(batch.ids, windows[:, :-1])
        assert torch.equal(batch.targets, windows[:, 1:])
        held_out = task.test_set(32, 4)
        assert torch.equal(held_out.ids.flatten(), whole[cut : cut + 4 * 32])
        assert torch.equal(held_out.targets.flatten(), whole[cut + 1 : cut + 4 * 32 + 1])
        assert torch.equal(held_out.groups == 0, torch.arange(32).expand(4, -1) >= 24), "the last quarter"
        assert torch.equal(task.training_counts(), torch.bincount(whole[:cut], minlength=256))


def test_a_job_carries_the_path_of_its_text(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Text(None, trained=(16,))  # 700 kB
    kept = task.in_file(tmp_path / "tokens")
    sent = pickle.dumps(Job("none", 0, kept, make_settings("text", [32], steps=2, **SMALL)))
    assert len(sent) < 4000
    forgotten(monkeypatch)
    job = pickle.loads(sent)
    assert job.task.identity == task.identity
    first, again = (each.sample(4, torch.Generator().manual_seed(1)) for each in (task, job.task))
    assert torch.equal(first.ids, again.ids)


def test_a_text_is_copied_once(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, folder = open_files(files), tmp_path / "tokens"
    kept = keep_in_file(text, folder)
    assert [path.name for path in folder.iterdir()] == [f"{text.sha256}.bytes"]
    assert kept.files[0].read_bytes() == b"\n".join(path.read_bytes() for path in files)
    before = kept.files[0].stat().st_mtime_ns
    forgotten(monkeypatch)
    assert keep_in_file(open_files(files), folder) == kept
    assert kept.files[0].stat().st_mtime_ns == before
    kept.files[0].write_bytes(b"damaged")
    kept = keep_in_file(open_files(files), folder)
    assert bytes(kept.windows([2048], 3)[0]) == b"\nx\n"


@pytest.mark.parametrize("other_process", [False, True])
@pytest.mark.parametrize("change", ["content", "shorter", "longer", "gone"])
def test_a_text_that_changed_is_refused(
    change: str, other_process: bool, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = open_files(files)
    task = Text(text, trained=(16,))
    content = files[0].read_bytes()
    if change == "gone":
        files[0].unlink()
    else:
        files[0].write_bytes({"content": content[::-1], "shorter": content[:-5], "longer": content + b"new"}[change])
        os.utime(files[0], ns=(1, 1))  # as another time shows
    if other_process:
        forgotten(monkeypatch)
    words = "cannot be read" if change == "gone" else "has changed since the comparison began"
    with pytest.raises(ww.errors.TextError, match=words):
        task.sample(2, torch.Generator())
    with pytest.raises(ww.errors.TextError, match=words):
        keep_in_file(text, tmp_path / "tokens")
    assert not list(tmp_path.glob("tokens/*"))


def test_a_text_that_grows_while_its_checksum_is_computed_is_refused(files: list[Path]) -> None:
    def grow(count: int) -> None:
        with files[0].open("ab") as opened:
            opened.write(b"a line of a log\n")

    with pytest.raises(ww.errors.TextError, match=r"0\.txt, .*2\.txt changed while it was read\.\nRun the same again"):
        open_files(files, grow)
    text = open_files(files)  # where it has stopped
    assert text.sha256 == in_memory(b"\n".join(path.read_bytes() for path in files)).sha256


def test_a_long_text_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    with path.open("wb") as opened:
        for _ in range(48):
            opened.write(bytes(range(256)) * 4096)
    tracemalloc.start()
    try:
        task = Text(open_files([path]), trained=(64,)).in_file(tmp_path / "tokens")
        task.baselines(64, task.test_set(64, 100))
        task.sample(64, torch.Generator().manual_seed(0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert task.size == 48 << 20
    assert peak < 14 << 20  # a megabyte is read at a time, and its counts are eight


def test_a_comparison_reads_its_copy_of_the_text(tmp_path: Path) -> None:
    path, out = tmp_path / "notes.txt", tmp_path / "results"
    path.write_bytes(bytes(range(256)) * 20)
    given: dict[str, Any] = {"lengths": [16], "trained": (8,), "steps": 2, "files": [path], "progress": False, **SMALL}
    first = ww.compare(["none"], "text", seeds=1, out=out, workers=1, **given)
    (copy,) = (out / "tokens").iterdir()
    assert first.task.identity == f"sha256 {copy.stem}"
    assert copy.read_bytes() == path.read_bytes()
    assert len(ww.compare(["none"], "text", seeds=2, out=out, workers=1, **given).runs) == 2
    path.unlink()
    done = whatwhere("compare", "--repeat", out, "--out", tmp_path / "again", "--workers", "1")
    assert done.status == 0, done.err
    again = ww.comparison.read_results(tmp_path / "again")
    assert again.record.request is not None
    assert again.record.request.files == (str(copy),)
    assert setup_sentence(again).startswith(f"Task: text on a text (sha256 {copy.stem};")
    assert again.runs[0].losses == first.runs[0].losses
    path.write_bytes(bytes(range(256)) * 21)
    with pytest.raises(ww.errors.ResultsError, match=r"another comparison: there task_identity is 'sha256"):
        ww.compare(["none"], "text", seeds=2, out=out, workers=1, **given)


@unix
def test_a_text_may_come_through_a_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    content = bytes(range(256)) * 20
    os.write(write, content)
    os.close(write)
    given: dict[str, Any] = {"lengths": [16], "trained": (8,), "steps": 1, "workers": 1, "progress": False, **SMALL}
    result = ww.compare(["none"], "text", files=[f"/dev/fd/{read}"], seeds=1, out=tmp_path / "a", **given)
    os.close(read)
    assert result.task.identity == f"sha256 {in_memory(content).sha256}"
