"""Pickles are read only where the caller says so, and even then run nothing."""

import argparse
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
from whatwhere.report.inspection import sizes

from .damage import refused

WEIGHT = torch.arange(20.0).reshape(5, 4)


def test_refused_by_default(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"wte.weight": WEIGHT}, path)
    words = ("is a pickle", "a program that runs when it is read", "allow_pickle=True", "safetensors.torch.save_file")
    refused(path, *words)
    assert np.array_equal(ww.read(path, allow_pickle=True).array("wte.weight"), WEIGHT.numpy())


def convert_as_advised(path: Path, **options: bool) -> Checkpoint:
    """Run the program that the error of a pickle prints, and open what it has written."""
    with pytest.raises(ww.errors.CheckpointError) as caught:
        Checkpoint.open(path, **options)
    program = "\n".join(line.strip() for line in str(caught.value).splitlines()[-4:])
    subprocess.run([sys.executable, "-c", f"import torch, safetensors.torch\n{program}"], check=True, timeout=120)
    return Checkpoint.open(path.with_suffix(".safetensors"))


def test_the_way_out_works(tmp_path: Path) -> None:
    """Also of tied tensors inside a checkpoint of training, and of one with a class that torch refuses."""
    path = tmp_path / ("long" * 50) / "model.pt"
    path.parent.mkdir()
    torch.save({"model": {"wte.weight": WEIGHT.T, "lm_head.weight": WEIGHT.T}, "iter_num": 3}, path)
    assert np.array_equal(convert_as_advised(path).array("wte.weight"), WEIGHT.T.numpy())
    lightning = {"state_dict": {"wte.weight": WEIGHT}, "hyper_parameters": argparse.Namespace(lr=1), "epoch": 2}
    torch.save(lightning, path := tmp_path / "a.ckpt")
    refused(path, "also holds 'argparse.Namespace'", "weights_only=False", allow_pickle=True)
    assert np.array_equal(convert_as_advised(path, allow_pickle=True).array("wte.weight"), WEIGHT.numpy())


def save_as_before(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Save as torch did before 1.6."""
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


def test_files_from_before_torch_1_6(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    save_as_before({"wte.weight": WEIGHT, "lm_head.weight": WEIGHT, "half": WEIGHT[1:].half().T}, path)
    refused(path, "is a pickle")
    checkpoint = Checkpoint.open(path, allow_pickle=True)
    assert np.array_equal(checkpoint.array("wte.weight", [3, 1]), WEIGHT.numpy()[[3, 1]])
    assert np.array_equal(checkpoint.array("half"), WEIGHT[1:].T.numpy())
    assert checkpoint.tied
    assert checkpoint.tensors["lm_head.weight"].bytes == 0


@pytest.mark.parametrize("claim", ["storage", "tensor"])
def test_files_from_before_torch_1_6_claim_no_more_than_they_have(claim: str, tmp_path: Path) -> None:
    """torch reserves what a storage claims, and makes one larger for a tensor that claims more than its storage has."""
    save_as_before({"x": WEIGHT}, path := tmp_path / "a.bin")
    content, many = path.read_bytes(), b"J" + struct.pack("<i", 2**28)
    old, new = (b"K\x14N", many + b"N") if claim == "storage" else (b"K\x05K\x04", many + b"K\x04")
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    refused(path, "claim more bytes" if claim == "storage" else "storage has wrong byte size", allow_pickle=True)
    # Without the list of storages, behind which their values are, torch reads none.
    end = content.index(b"]q", content.index(b"K\x05K\x04"))
    path.write_bytes(content[:end].replace(old, new) + b"].")
    refused(path, "claim", "bytes", "the file has", allow_pickle=True)


def test_what_is_no_parameter_of_the_model(tmp_path: Path) -> None:
    """States of an optimizer, by the names of parameters or their numbers, and losses beside the model."""
    state = {"wte.weight": {"exp_avg": WEIGHT, "exp_avg_sq": WEIGHT.clone(), "step": torch.tensor(3.0)}}
    model = {"wte.weight": WEIGHT.clone(), "logit_scale": torch.tensor(1.0)}
    optimizer = {"state": state, "param_groups": []}
    torch.save({"model": model, "optimizer": optimizer, "best_val_loss": torch.tensor(1.0)}, tmp_path / "a.pt")
    checkpoint = Checkpoint.open(tmp_path / "a.pt", allow_pickle=True)
    assert {name: count for name in checkpoint.tensors if (count := checkpoint.parameters(name))} == {
        "model.wte.weight": 20, "model.logit_scale": 1
    }  # fmt: skip


def test_tensors_that_share_their_values_are_stored_once(tmp_path: Path) -> None:
    torch.save({"embed_tokens.weight": WEIGHT, "lm_head.weight": WEIGHT}, tmp_path / "a.pt")
    found = ww.inspect(tmp_path / "a.pt", sections=["sizes"], allow_pickle=True)
    assert (found.sizes.tied, found.sizes.bytes) == (True, WEIGHT.nbytes)
    assert "Tied: the output projection is the token table." in list(sizes(found.sizes))


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
