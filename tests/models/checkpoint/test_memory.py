"""Files of many tiny entries, which would take many times their size in memory, are refused with the way out.

How much memory reading takes is what `python -m reliability memory` measures.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from whatwhere.errors import CheckpointError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.files import parse_json

from .samples import safetensors, single


def scalars(count: int) -> bytes:
    return safetensors({f"t{n}": ("U8", (0,), b"") for n in range(count)})


def text(count: int) -> bytes:
    return b"word 1.5 2\n" * 9 + b"a 1 2\n" * count


def binary(count: int) -> bytes:
    return f"{count} 1\n".encode() + (b"a " + struct.pack("<f", 1e-30)) * count


def gguf(count: int) -> bytes:
    """Write the header of a GGUF file with a list of words, and its end."""
    key, word = b"tokenizer.ggml.tokens", struct.pack("<Q", 2) + b"ab"
    begin = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key + struct.pack("<IIQ", 9, 8, count)
    content = begin + word * count
    return content + bytes(-len(content) % 32)


def members(count: int) -> bytes:
    """Write the end of a zip that claims a list of so many members, each of 46 bytes."""
    listed = bytes(46 * count)
    return b"PK\3\4" + listed + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0, 0, len(listed), 4, 0)


@pytest.mark.parametrize(
    ("name", "write", "few", "many"),
    [
        ("a.safetensors", scalars, 1000, 60_000),
        ("a.txt", text, 1000, 900_000),
        ("a.bin", binary, 1000, 900_000),
        ("a.gguf", gguf, 1000, 2_500_000),
        ("a.npz", members, 0, 80_000),
    ],
)
def test_many_tiny_entries_are_refused(
    name: str, write: Callable[[int], bytes], few: int, many: int, tmp_path: Path
) -> None:
    """The same entries are read where they are fewer, and where they are as many in a file that is large enough."""
    if few:
        assert Checkpoint.open(single(name, write(few)).write(tmp_path)) is not None
    path = single(name, write(many)).write(tmp_path)
    with pytest.raises(CheckpointError, match=r"(?s)MB of memory, but for its size at most [\d,]+ MB.*so many entries"):
        Checkpoint.open(path)


def test_what_tensors_hold_counts_too(tmp_path: Path) -> None:
    """A model of as many tensors as are refused above, each with some hundred bytes, is read."""
    sample = single("a.safetensors", safetensors({f"t{n}": ("U8", (400,), bytes(400)) for n in range(60_000)}))
    checkpoint = Checkpoint.open(sample.write(tmp_path))
    assert len(checkpoint.tensors) == 60_000
    assert checkpoint.array("t59999").shape == (400,)


def test_json_is_measured_before_it_is_parsed() -> None:
    """What looks like entries inside of a string counts as entries: the bound is an upper one."""
    with pytest.raises(CheckpointError, match="its JSON would take up to"):
        parse_json(json.dumps({"a": [[]] * 1_000_000}).encode(), "a.json", 10_000_000)
    assert parse_json(json.dumps({"a": [[]] * 1000}).encode(), "a.json", 10_000_000) == {"a": [[]] * 1000}


def test_rows_of_a_compressed_array_do_not_keep_the_others(tmp_path: Path) -> None:
    """An array of half precision is widened while it is decompressed, and rows of it are a copy."""
    table = np.arange(600, dtype=np.float16).reshape(100, 6)
    np.savez_compressed(tmp_path / "a.npz", table=table, turned=np.asfortranarray(table))
    checkpoint = Checkpoint.open(tmp_path / "a.npz")
    for name in ("table", "turned"):
        rows = checkpoint.array(name, slice(3, 5))
        assert rows.dtype == np.float32
        assert np.array_equal(rows, table[3:5])
        assert rows.base is None or rows.base.nbytes == rows.nbytes
        assert np.array_equal(checkpoint.array(name), table)
