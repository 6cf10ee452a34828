"""Tables in scratch files: the same numbers as in memory, bit for bit, and no copy of the table in memory."""

import json
import os
import subprocess
import sys
import tracemalloc
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from whatwhere import large_arrays
from whatwhere.analysis.checkpoint_difference import difference
from whatwhere.analysis.inspection import examine
from whatwhere.analysis.subject import Subject
from whatwhere.analysis.token_map import make_map
from whatwhere.analysis.token_neighbors import neighbors
from whatwhere.errors import SettingError
from whatwhere.large_arrays import new_array
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import read_table
from whatwhere.surgery import repair_checkpoint

from ..running import json_of


def _in_scratch(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview | mmap)


def _table(path: Path, dtype: torch.dtype, seed: int = 0) -> Path:
    """Write a table with rows of every kind: under-trained, zero, equal, infinite."""
    rows = torch.randn(900, 24, generator=torch.Generator().manual_seed(seed))
    rows[10:30] = 0.1 + 0.01 * rows[10:30]
    rows[50], rows[60:64], rows[70] = 0.0, rows[5], torch.inf
    save_file({"embed_tokens.weight": rows.to(dtype)}, path)
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_command_prints_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    one, other = _table(tmp_path / "a.safetensors", dtype), _table(tmp_path / "b.safetensors", dtype, seed=1)
    picture = str(tmp_path / "map.json")
    commands = (
        ("inspect", str(one)),
        ("neighbors", str(one), "#5", "#80", "--centered"),
        ("diff", str(one), str(other)),
        ("map", str(one), "--out", picture),
        ("repair", str(one), str(tmp_path / "repaired.safetensors"), "--force"),
    )
    expected = [json_of(*command) for command in commands]
    points, repaired = Path(picture).read_text(), (tmp_path / "repaired.safetensors").read_bytes()
    monkeypatch.setattr(large_arrays, "SCRATCH_FROM", 1)
    monkeypatch.setattr(large_arrays, "_NUMBERS", 24 * 7)
    assert _in_scratch(read_table(Checkpoint.open(one)).weight)
    assert [json_of(*command) for command in commands] == expected
    assert Path(picture).read_text() == points
    assert (tmp_path / "repaired.safetensors").read_bytes() == repaired


def test_no_command_copies_the_table_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_arrays, "SCRATCH_FROM", 1 << 22)
    rows = torch.randn(200_000, 128, generator=torch.Generator().manual_seed(0))
    rows[7] = torch.nan  # so that the finite rows are others than those of the file
    path, size = tmp_path / "a.safetensors", rows.numel() * 4
    save_file({"embed_tokens.weight": rows.bfloat16()}, path)
    del rows
    checkpoint = Checkpoint.open(path)
    subject = Subject(checkpoint, 0, lambda _: None)
    work = (
        lambda: examine(subject, ["sizes", "norms", "spectrum"]),
        lambda: neighbors(checkpoint, ["#3"], centered=True),
        lambda: difference(path, path, queries=8),
        lambda: repair_checkpoint(path, tmp_path / "repaired.safetensors"),
        lambda: make_map(read_table(checkpoint).weight, queries=64),
    )
    for each in work:
        tracemalloc.start()
        try:
            each()
            assert tracemalloc.get_traced_memory()[1] < size
        finally:
            tracemalloc.stop()


def test_a_difference_counts_all_tokens_and_lists_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whatwhere.analysis.checkpoint_difference.LISTED", 3)
    rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    rows[4:9] = torch.nan
    for name, count in (("a", 40), ("b", 30)):
        save_file({"embed_tokens.weight": rows[:count].clone()}, tmp_path / f"{name}.safetensors")
    found = difference(tmp_path / "a.safetensors", tmp_path / "b.safetensors", queries=8).tokens
    assert (found.removed_count, found.removed) == (10, ["#30", "#31", "#32"])
    assert (found.tables[0].not_finite_count, found.tables[0].not_finite) == (5, ["#4", "#5", "#6"])


@pytest.fixture
def no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the folder of temporary files, which has no room, as nothing has been said of it."""
    monkeypatch.setattr(large_arrays, "SCRATCH_FROM", 1)
    monkeypatch.setattr(large_arrays, "_in_memory", set())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    return str(tmp_path / "absent")


def test_a_missing_room_for_the_scratch_file_leaves_the_array_in_memory_with_one_warning(no_room: str) -> None:
    with pytest.warns(UserWarning, match=r"A table needs 0\.02 GB in a scratch file") as seen:
        array = new_array((3000, 2000), np.float32)
    assert array.shape == (3000, 2000)
    assert not _in_scratch(array)
    (message,) = (str(each.message) for each in seen)
    assert f"in {no_room}: No such file or directory. It takes memory.\nSet TMPDIR to a folder on a disk" in message
    new_array((5, 2), np.float32)  # another warning would be an error


def test_an_array_with_room_neither_in_a_file_nor_in_memory_is_refused(
    no_room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_arrays, "_available_memory", lambda: 23_999_999)
    with pytest.raises(SettingError, match=r"and 0\.02 GB of memory are available\.\nSet TMPDIR"):
        new_array((3000, 2000), np.float32)
    with pytest.warns(UserWarning, match="It takes memory"):
        new_array((2999, 2000), np.float32)
    monkeypatch.setattr(large_arrays, "_available_memory", lambda: None)  # a system that does not state it
    new_array((3000, 2000), np.float32)


def test_a_command_without_room_prints_one_note(tmp_path: Path) -> None:
    path = _table(tmp_path / "a.safetensors", torch.float32)
    program = "import resource, sys; sys.dont_write_bytecode = True  # Python 3.11 keeps what it wrote the half of\n"
    program += "from whatwhere import large_arrays; large_arrays.SCRATCH_FROM = 1\n"
    program += "from whatwhere.cli import main\n"
    program += "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"  # as little as a full disk has
    program += "main()"
    words = [sys.executable, "-c", program, "neighbors", path, "#5", "--centered", "--json"]
    # Nor has a measurement of coverage room for its file, of which it would print.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    environment["TMPDIR"] = str(tmp_path)
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    assert json.loads(done.stdout)
    first, second = done.stderr.splitlines()
    assert first.startswith("whatwhere: A table needs 0.00 GB in a scratch file, but in ")
    assert first.endswith(f"in {tmp_path}: File too large. It takes memory.")
    assert second.startswith("Set TMPDIR to a folder on a disk with room")
