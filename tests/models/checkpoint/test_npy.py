"""NumPy's files: what NumPy writes, objects and bombs refused, and every lie of a header."""

import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import find_token

from .damage import refused
from .samples import WEIGHT, saved

TYPES = [">f4", "<f8", ">f2", "i1", ">i4", "<u2", "?", "<c8"]


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("zipped", [None, np.savez, np.savez_compressed])
def test_arrays(dtype: str, order: Any, zipped: Any, tmp_path: Path) -> None:
    array = np.array(np.arange(24).reshape(4, 3, 2) % 5, dtype=dtype, order=order)
    path = tmp_path / ("x.npy" if zipped is None else "x.npz")
    if zipped is None:
        np.save(path, array)
    else:
        zipped(path, x=array, one=array[0, 0, 0], none=array[:0])
    checkpoint = Checkpoint.open(path)
    right = array.astype(np.float32) if array.dtype.kind == "f" and array.itemsize == 2 else array
    result = checkpoint.array("x")
    assert result.dtype == right.dtype.newbyteorder("=")
    assert result.dtype.isnative
    assert np.array_equal(result, right)
    assert np.array_equal(checkpoint.array("x", [3, 1]), right[[3, 1]])
    assert np.array_equal(checkpoint.array("x", slice(1, 3)), right[1:3])
    assert checkpoint.tensors["x"].bytes == array.nbytes
    if zipped is not None:
        assert checkpoint.array("one") == right[0, 0, 0]
        assert checkpoint.array("none").shape == (0, 3, 2)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0), "Python 2"])
def test_versions(version: Any, tmp_path: Path) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        if version == "Python 2":
            file.write(header(dictionary("(7L, 4L)"), 0) + WEIGHT.tobytes())
        else:
            np.lib.format.write_array(file, WEIGHT, version)
    assert np.array_equal(Checkpoint.open(tmp_path / "x.npy").array("x"), WEIGHT)


CUT = """
import os, sys
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import find_token
path = sys.argv[1]
checkpoint = Checkpoint.open(path)
def cut(_, event, called):
    if event == "c_call" and called.__name__ in ("readinto", "astype"):
        os.truncate(path, 200)
sys.setprofile(cut)
checkpoint.array("x")
"""


def test_a_file_that_is_cut_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """In a process of its own, which reading a mapped file would end."""
    np.save(tmp_path / "x.npy", np.ones((500, 100), dtype=np.float32, order="F"))
    command = [sys.executable, "-c", CUT, tmp_path / "x.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.returncode
    assert "became shorter while it was read" in done.stderr


def header(said: str, size: int = 112, length: int | None = None, magic: bytes = b"\x93NUMPY\1\0") -> bytes:
    text = said.encode("latin-1")
    return magic + struct.pack("<H", len(text) if length is None else length) + text + bytes(size)


def dictionary(shape: str = "(7, 4)", descr: str = "'<f4'", fortran_order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (saved(np.array([{}], dtype=object)), r"the type 'object'; objects are pickles, which can run code"),
        (saved(np.zeros(3, dtype=[("a", "f4")])), "but plain numbers are read"),
        (saved(np.array(["2020-01-01"], dtype="M8[D]")), "but plain numbers are read"),
        (header(dictionary(descr="'<f3'")), "no header that NumPy reads: 'descr is not a valid dtype descriptor"),
        (header(dictionary("(7, 5)")), "needs 140 bytes, but 112 follow"),
        (header(dictionary("(4611686018427387904, 4)")), "more than any memory holds"),
        (header(dictionary("(-7, -4)")), "has the shape"),
        (header(dictionary("(7.0, 4)")), "no header that NumPy reads: 'shape is not valid"),
        (header(dictionary(f"({'9' * 500},)")), "has the shape"),
        (header(dictionary("(,)")), "no header that NumPy reads: 'Cannot parse header"),
        (header("__import__('os').system('true')"), "no header that NumPy reads"),
        (header("(" * 5000), "no header that NumPy reads"),
        (header(dictionary(), length=60_000), "EOF: reading array header, expected 60000 bytes"),
        (header(dictionary(), magic=b"\x93NUMPY\7\0"), "no header that NumPy reads"),
        (b"\x93NUMPY", "no header that NumPy reads: 'EOF: reading magic string"),
    ],
)  # fmt: skip
def test_claims(content: bytes, message: str, tmp_path: Path) -> None:
    (path := tmp_path / "x.npy").write_bytes(content)
    refused(path, message)


# Zips


def archive(path: Path, *members: tuple[str, bytes], pressed: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members:
            file.writestr(name, content, pressed)
    return path


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A hundred million zeros fit into a hundred thousand bytes."""
    np.savez_compressed(path := tmp_path / "x.npz", x=np.zeros((25_000, 1000), dtype=np.float32))
    refused(path, "claims 100,000,128 bytes, compressed to 9")


def test_a_member_that_is_longer_than_its_directory_entry(tmp_path: Path) -> None:
    """What the directory claims is compared with the header of the array."""
    path = archive(tmp_path / "x.npz", ("x.npy", saved(np.zeros((300, 300), dtype=np.float32))))
    path.write_bytes(path.read_bytes().replace(struct.pack("<I", 360_128), struct.pack("<I", 320_128)))
    refused(path, "needs 360,000 bytes, but 320,000 follow")


@pytest.mark.parametrize(
    ("name", "content", "pressed", "message"),
    [
        ("x.npy", saved(WEIGHT), zipfile.ZIP_BZIP2, "compressed in a way that NumPy does not use"),
        ("readme.txt", b"hello", zipfile.ZIP_DEFLATED, "it holds 'readme.txt', which is not an array"),
        ("x.npy", saved(np.array([{}], dtype=object)), zipfile.ZIP_DEFLATED, "objects are pickles"),
    ],
)
def test_members(name: str, content: bytes, pressed: int, message: str, tmp_path: Path) -> None:
    refused(archive(tmp_path / "x.npz", (name, content), pressed=pressed), message)
    assert Checkpoint.open(archive(tmp_path / "z.zip", ("x.npy", saved(WEIGHT)))).format == "npz"


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_words_beside_vectors(write: Any, tmp_path: Path) -> None:
    words = np.array(["the", "New York", "ł"], dtype=">U9")
    write(tmp_path / "x.npz", words=words, vectors=WEIGHT[:3])
    checkpoint = Checkpoint.open(tmp_path / "x.npz")
    assert (list(checkpoint.tensors), checkpoint.words) == (["vectors"], words.tolist())
    assert find_token(checkpoint, "New York", 3) == 1
    np.save(tmp_path / "x.npy", words)
    refused(tmp_path / "x.npy", "has the type '>U9', but plain numbers are read")


def text_array(shape: str, descr: str, content: bytes) -> bytes:
    return header(dictionary(shape, descr), 0) + content


def test_words_that_are_no_text(tmp_path: Path) -> None:
    for shape, descr, content in (("(4,)", "'<U2'", bytes(24)), ("(1, 3)", "'<U2'", bytes(24)),
                                  ("(99,)", "'<U0'", b"")):  # fmt: skip
        refused(archive(tmp_path / "x.npz", ("words.npy", text_array(shape, descr, content))), "the array 'words'")
    codes = b"\xff\xff\xff\x7f\x00\xd8\x00\x00a\x00\x00\x00"
    text, table = ("words.npy", text_array("(3,)", "'<U1'", codes)), ("table.npy", saved(WEIGHT[:3]))
    assert Checkpoint.open(archive(tmp_path / "x.npz", text, table)).words == ["\ufffd", "\ufffd", "a"]
    few = archive(tmp_path / "x.npz", text, table, ("source.npy", text_array("(1,)", "'<U1'", codes[:4])))
    assert Checkpoint.open(few).words == ["\ufffd", "\ufffd", "a"]
    assert Checkpoint.open(archive(tmp_path / "x.npz", text, table, ("tags.npy", text[1]))).words is None


def test_lists_of_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One name twice; a longer comment of the first, which takes the entry of the second as its own; too many."""
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(tmp_path / "x.npz", ("x.npy", saved(WEIGHT)), ("x.npy", saved(WEIGHT)))
    refused(path, "it holds the array 'x' twice")
    np.savez(path, x=np.ones(3), y=np.ones(3))
    content = bytearray(whole := path.read_bytes())
    content[content.index(b"PK\1\2") + 33] ^= 8
    path.write_bytes(content)
    refused(path, "1 arrays are found in it, but it says that it has 2")
    path.write_bytes(whole)
    monkeypatch.setattr("whatwhere.models.checkpoint.archives._MAX_MEMBERS", 1)
    refused(path, "it holds 2 arrays, but at most 1 are read")


def test_a_compressed_array_that_is_shorter_than_the_zip_states(tmp_path: Path) -> None:
    whole = saved(np.ones((500, 100), np.float32))
    with zipfile.ZipFile(path := tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", whole[:-4000])
    stated, right = (struct.pack("<I", size) for size in (len(whole) - 4000, len(whole)))
    path.write_bytes(path.read_bytes().replace(stated, right))
    refused(path, "ends before its last number", read=lambda path: Checkpoint.open(path).array("x"))


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_damage_of_a_zip(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path := tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((100, 100)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    refused(path, "it cannot be read")
    path.write_bytes(whole[:40_000] + bytes([whole[40_000] ^ 1]) + whole[40_001:])
    refused(path, "it cannot be read: ", read=lambda path: Checkpoint.open(path).array("x", [0]))
    path.write_bytes(whole)
    monkeypatch.setattr(np, "frombuffer", Mock(side_effect=MemoryError))
    refused(path, "needs more memory than is free", read=lambda path: Checkpoint.open(path).array("x", [0]))
