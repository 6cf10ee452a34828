"""Pickles are read only where the caller says so, and even then run nothing."""

import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint

from .damage import refused

WEIGHT = torch.arange(20.0).reshape(5, 4)


def test_refused_by_default(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"wte.weight": WEIGHT}, path)
    words = ("is a pickle", "a program that runs when it is read", "allow_pickle=True", "safetensors.torch.save_file")
    refused(path, *words)
    assert np.array_equal(ww.read(path, allow_pickle=True).array("wte.weight"), WEIGHT.numpy())


def test_the_way_out_works(tmp_path: Path) -> None:
    path = tmp_path / ("long" * 50) / "model.pt"
    path.parent.mkdir()
    torch.save({"wte.weight": WEIGHT.T}, path)
    with pytest.raises(ww.errors.CheckpointError) as caught:
        Checkpoint.open(path)
    program = "\n".join(line.strip() for line in str(caught.value).splitlines()[-2:])
    subprocess.run([sys.executable, "-c", f"import torch, safetensors.torch\n{program}"], check=True, timeout=120)
    assert np.array_equal(Checkpoint.open(path.with_suffix(".safetensors")).array("wte.weight"), WEIGHT.T.numpy())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool,
                                   torch.float8_e4m3fn, torch.float8_e5m2], ids=str)  # fmt: skip
def test_types(dtype: torch.dtype, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    torch.save(OrderedDict(x=WEIGHT.to(dtype), turned=WEIGHT.to(dtype).T, one=WEIGHT[0, 1].to(dtype)), path)
    checkpoint = Checkpoint.open(path, allow_pickle=True)
    assert checkpoint.format == "pickle"
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    right = WEIGHT.to(dtype).to(wide).numpy()
    assert np.array_equal(checkpoint.array("x"), right)
    assert np.array_equal(checkpoint.array("turned", [3, 1]), right.T[[3, 1]])
    assert np.array_equal(checkpoint.array("turned", slice(1, 3)), right.T[1:3])
    assert checkpoint.array("one") == right[0, 1]
    assert checkpoint.tensor("x").dtype == dtype
    assert checkpoint.tensors["x"].bytes == 20 * dtype.itemsize


def test_dictionaries_in_dictionaries(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"w": WEIGHT}
    for _ in range(60):  # as many ways to the tensor as 2 ** 60
        shared = {"a": shared, "b": shared}
    torch.save({"model": {"wte.weight": WEIGHT}, "step": 3, 7: WEIGHT, "deep": shared}, tmp_path / "a.pt")
    checkpoint = Checkpoint.open(tmp_path / "a.pt", allow_pickle=True)
    assert list(checkpoint.tensors) == ["model.wte.weight", "deep." + "a." * 60 + "w"]
    assert checkpoint.token_table == "model.wte.weight"


def test_a_number_that_looks_like_many(tmp_path: Path) -> None:
    torch.save({"x": torch.zeros(1).expand(2**40), "y": WEIGHT}, tmp_path / "a.pt")
    checkpoint = Checkpoint.open(tmp_path / "a.pt", allow_pickle=True)
    assert np.array_equal(checkpoint.array("y"), WEIGHT.numpy())
    with pytest.raises(ww.errors.CheckpointError, match="claims more bytes than the file has"):
        checkpoint.array("x", [0])


def test_numbers_that_go_on_beyond_their_part(tmp_path: Path) -> None:
    """torch reads as many bytes as the pickle claims, whatever the zip has."""
    path = tmp_path / "a.pt"
    torch.save({"x": WEIGHT}, path)
    with zipfile.ZipFile(path) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            longer = content.replace(b"K\x14", b"J" + struct.pack("<i", 2**30), 1)  # the count, 20
            assert not name.endswith("data.pkl") or longer != content
            archive.writestr(name, longer if name.endswith("data.pkl") else content)
    words = "the values of the tensor 'x' claim", "which no part of the file has"
    refused(path, *words, allow_pickle=True)


class Program:
    """A pickle that would make a folder."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        """Return what unpickling would run."""
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_program_does_not_run(zipped: bool, tmp_path: Path) -> None:
    path, made = tmp_path / "model.bin", tmp_path / "made"
    if zipped:
        torch.save({"x": Program(str(made))}, path)
    else:
        path.write_bytes(pickle.dumps({"x": Program(str(made))}))
    refused(path, "is a pickle")
    refused(path, "torch cannot unpickle tensors from it", allow_pickle=True)
    assert not made.exists()


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")  # of PyTorch since 2.15, while it loads one
def test_nothing_in_it(tmp_path: Path) -> None:
    torch.save([WEIGHT], tmp_path / "a.pt")
    torch.save({"x": WEIGHT.to_sparse(), "y": torch.empty(3, device="meta")}, tmp_path / "b.pt")
    for name in ("a.pt", "b.pt"):
        refused(tmp_path / name, "holds no named tensors", allow_pickle=True)


@pytest.mark.parametrize("checksums", [True, False])
def test_a_flipped_number_has_another_checksum(checksums: bool, tmp_path: Path) -> None:
    """torch compares no checksum; where it has written none, there is none to compare."""
    path = tmp_path / "model.pt"
    torch.serialization.set_crc32_options(checksums)
    try:
        torch.save({"wte.weight": WEIGHT, "same": WEIGHT[1:], "other": torch.ones(3)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    content = bytearray(path.read_bytes())
    content[content.index(WEIGHT.numpy().tobytes()) + 40] ^= 1
    path.write_bytes(content)
    checkpoint = Checkpoint.open(path, allow_pickle=True)
    assert checkpoint.array("other").tolist() == [1, 1, 1]
    if not checksums:
        assert checkpoint.array("same").shape == (4, 4)
        return
    with pytest.raises(ww.errors.CheckpointError, match="the checksum of the tensor 'same' is another"):
        checkpoint.array("same", [3])
