"""Safetensors: every type, only what is asked for, and every lie of a header."""

import json
import re
import struct
import tracemalloc
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import STORED_TYPES

from ...systems import unix
from .damage import refused
from .samples import safetensors, write_folder

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex64,
]  # fmt: skip


def table(dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(40).reshape(8, 5) % 7 + 1).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {"x": table(dtype), "one": table(dtype)[0, 0].clone(), "none": table(dtype)[:0].clone()}
    try:
        save_file(tensors, path, {"format": "pt"})
    except KeyError:
        pytest.skip(f"the installed safetensors does not write {dtype}")
    checkpoint = Checkpoint.open(path)
    assert checkpoint.metadata == {"format": "pt"}
    assert checkpoint.array("none").shape == (0, 5)
    entry = checkpoint.tensors["x"]
    assert (entry.shape, entry.dtype) == ((8, 5), str(dtype).removeprefix("torch."))
    assert entry.bytes == 40 * dtype.itemsize
    assert (entry.name, entry.file) == ("x", path)
    stored = checkpoint.tensor("x")
    assert stored.dtype == dtype
    assert torch.equal(stored.contiguous().view(torch.uint8), table(dtype).view(torch.uint8))
    array = checkpoint.array("x")
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    right = table(dtype).to(wide).numpy()
    assert array.dtype == right.dtype
    assert np.array_equal(array, right)
    for rows in ([7, 0, 0, 3], slice(2, 6), slice(None, None, 3), np.array([1], dtype=np.uint8), [], slice(5, 5)):
        index = np.array(rows, int) if isinstance(rows, list) else rows
        assert np.array_equal(checkpoint.array("x", rows), right[index])
        assert checkpoint.tensor("x", rows).dtype == dtype
    assert checkpoint.array("one").shape == ()
    assert checkpoint.array("one") == right[0, 0]
    assert checkpoint.tensor("one").shape == ()


def test_the_name_of_a_file_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "table.weights").write_bytes(safetensors({"x": np.zeros((2, 3))}))
    checkpoint = Checkpoint.open(tmp_path / "table.weights")
    assert (checkpoint.format, checkpoint.array("x").shape) == ("safetensors", (2, 3))


def test_packed_numbers_are_listed_and_not_read(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_folder(tmp_path, {"x": ("F4", (3, 4), bytes(6))}))
    assert checkpoint.tensors["x"].bytes == 6
    with pytest.raises(ww.errors.CheckpointError, match=r"'x' is stored as float4_e2m1: its values are packed"):
        checkpoint.array("x")


def test_rows_and_names_that_are_not_there(tmp_path: Path, our_own_checks: None) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"wte.weight": table(torch.float32), "one": torch.tensor(3.0)}, path)
    checkpoint = Checkpoint.open(path)
    for name, rows, message in (
        ("wte.weight", [0, 8], r"row 8 lies outside 'wte\.weight', which has the rows 0\.\.7"),
        ("wte.weight", [-1], "row -1 lies outside"),
        ("wte.weight", [0.5], "have the type float64"),
        ("wte.weight", 3, r"For one row pass \[row\]"),
        ("one", [0], "'one' is a single number"),
    ):
        with pytest.raises(ww.errors.TokenError, match=message):
            checkpoint.array(name, rows)  # type: ignore[arg-type]
    with pytest.raises(ww.errors.CheckpointError, match=r"no tensor 'wte\.weigth'.\nDid you mean 'wte\.weight'"):
        checkpoint.array("wte.weigth")


@pytest.mark.parametrize("name", [name for name in STORED_TYPES if re.match(r"b?float(8|16)", name)])
def test_all_numbers_of_eight_and_sixteen_bits(name: str) -> None:
    """Widened by torch, to float64, each is exact; of a signaling NaN a quiet one is made."""
    kind, dtype = STORED_TYPES[name], getattr(torch, name)
    assert kind.widen is not None
    bits = np.arange(256, dtype=np.uint8) if kind.bytes == 1 else np.arange(65536, dtype=np.uint16).view(np.int16)
    right = torch.from_numpy(bits).view(dtype).to(torch.float64).numpy()
    result = kind.widen(bits.view(kind.stored))
    assert result.dtype == np.float32
    with np.errstate(invalid="ignore"):
        assert np.array_equal(result.astype(np.float64), right, equal_nan=True)
    assert np.array_equal(np.signbit(result) | np.isnan(right), np.signbit(right) | np.isnan(right))


# What a header may claim


def header(said: Any, behind: bytes = bytes(24), length: int | None = None) -> bytes:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + behind


def tensor(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (tensor(shape=[2, 4]), "needs 32 bytes, but its data_offsets are 0 to 24"),
        (tensor(offsets=[0, 2**62]), "data_offsets are 0 to"),
        (tensor(offsets=[24, 0]), "data_offsets are 24 to 0"),
        (tensor(offsets=[-24, 0]), "not whole numbers"),
        (tensor(shape=[True, 6]), "not whole numbers"),
        (tensor(shape=[2**40, 2**40]), "more than any memory holds"),
        (tensor(dtype="F33"), "the type 'F33', which is not known"),
        (tensor(dtype=["F32"]), "no string"),
        (tensor(dtype="F4", shape=[7], offsets=[0, 3]), "in blocks of 2 values"),
        ({"x": {"dtype": "F32", "shape": [6]}}, "lacks dtype, shape or data_offsets"),
        (tensor() | {"y": tensor(offsets=[4, 24], shape=[5])["x"]}, "'y' is at byte 4 of the data"),
        (tensor(shape=[5], offsets=[4, 24]), "at byte 4 of the data, but the tensors before it end at byte 0"),
        ({"__metadata__": 3, **tensor()}, "__metadata__ in its header is not an object"),
        ([1], "holds a list, but an object is needed"),
        (b'{"x": 1, "x": 2}', "the key 'x' occurs twice"),
        (b"{", "is not JSON"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"x": ' + b"9" * 10_000 + b"}", "is not JSON"),
        *((header(tensor(), length=length), f"its header claims {length:,} bytes, of a file of")
          for length in (2**64 - 1, 100_000_001, 1000)),
        *((b"1234567"[:n], f"it has {n} bytes, but safetensors begin with a length of 8") for n in (0, 7)),
        (header(tensor(), bytes(23)), "the tensor 'x' ends at byte"),
        (header(tensor(), bytes(25)), "1 bytes follow the tensors of its header"),
        (tensor(shape=[2**31, 2**20], offsets=[0, 2**53]), "the tensor 'x' ends at byte 9,007,199,254,741"),
    ],
)  # fmt: skip
def test_claims(said: Any, message: str, tmp_path: Path) -> None:
    whole = isinstance(said, bytes) and not said.startswith(b"{")
    (path := tmp_path / "model.safetensors").write_bytes(said if whole else header(said))
    refused(path, message)
    path.write_bytes(header(tensor()))
    assert Checkpoint.open(path).array("x").shape == (2, 3)


def test_a_file_that_shrinks_after_it_was_opened(tmp_path: Path) -> None:
    path = write_folder(tmp_path, {"x": np.zeros((2, 3))}) / "model.safetensors"
    checkpoint = Checkpoint.open(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ww.errors.CheckpointError, match="became shorter"):
        checkpoint.array("x")
    path.unlink()
    with pytest.raises(ww.errors.CheckpointError, match="cannot be read: No such file"):
        checkpoint.array("x")


@unix
def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ww.errors.CheckpointError, match="cannot be read: No such file"):
        Checkpoint.open(tmp_path / "model.safetensors")
    null = r"cannot be read: (embedded null byte|stat: embedded null character in path)\."
    with pytest.raises(ww.errors.CheckpointError, match=null):
        Checkpoint.open("a\0b")
    with pytest.raises(ww.errors.CheckpointError, match="not a regular file"):
        Checkpoint.open("/dev/zero")


def test_a_row_of_a_large_checkpoint_costs_its_own_size(tmp_path: Path) -> None:
    """16 GiB of layers stand before the table; the file is sparse, so that the disk need not have them."""
    layer, size = 2**34, 4 * 32_000 * 512
    tensors = {
        "layers.0": {"dtype": "BF16", "shape": [2**16, 2**17], "data_offsets": [0, layer]},
        "model.embed_tokens.weight": {"dtype": "F32", "shape": [32_000, 512], "data_offsets": [layer, layer + size]},
    }
    with (path := tmp_path / "model.safetensors").open("wb") as file:
        file.write(header(tensors, b""))
        file.seek(layer + size - 4, 1)
        file.write(struct.pack("<f", 1.5))
    tracemalloc.start()
    checkpoint = Checkpoint.open(path)
    assert checkpoint.array(checkpoint.token_table, rows=[31_999, 5])[:, -1].tolist() == [1.5, 0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20


def test_more_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(write_folder(tmp_path, {"x": np.zeros((2, 3))}))
    monkeypatch.setattr("whatwhere.models.checkpoint.base.np.empty", Mock(side_effect=MemoryError))
    message = r"'x' needs 24 bytes, more than is free.\nRead some of its rows"
    with pytest.raises(ww.errors.CheckpointError, match=message):
        checkpoint.array("x")


def test_widening_costs_little_beyond_the_array(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_folder(tmp_path, {"x": ("BF16", (4096, 1024), bytes(2**23))}))
    tracemalloc.start()
    result = checkpoint.array("x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.nbytes == 2**24
    assert peak < 2**24 + 2**23
