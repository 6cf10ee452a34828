"""GGUF: what its own package writes, in every type that it can quantize, and every lie of a header."""

import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import GGUF_TYPES
from whatwhere.models.checkpoint.gguf import TYPES

from .damage import refused
from .samples import GGUF_TOKENS, write_gguf

Kind = gguf.GGMLQuantizationType
RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((9, 512)).astype(np.float32)


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
def test_every_type(kind: Kind, tmp_path: Path) -> None:
    """The numbers are those of the package, whole and by rows; what it cannot widen is refused."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    try:
        raw = gguf.quants.quantize(TABLE, kind)
    except NotImplementedError:  # bytes at random are numbers as good as any
        raw = RNG.integers(0, 256, (9, 512 // block * size)).astype(np.uint8)
    path = write_gguf(tmp_path / "a.gguf", "llama", {}, {"token_embd.weight": (raw, kind), "other": TABLE[:2]})
    checkpoint = Checkpoint.open(path)
    entry = checkpoint.tensors["token_embd.weight"]
    assert entry.shape == (9, 512)
    assert entry.bytes == raw.nbytes
    try:
        with np.errstate(all="ignore"):  # bytes at random are scales of infinity, too
            right = gguf.quants.dequantize(raw, kind) if block > 1 or kind.name == "BF16" else raw
    except NotImplementedError:
        if block > 1:
            with pytest.raises(ww.errors.CheckpointError, match=f"quantized as {kind.name} cannot be read"):
                checkpoint.array("token_embd.weight")
            return
        right = raw
    right = right.astype(np.float32) if kind == Kind.F16 else right.reshape(9, -1)
    if block == 1 and kind.name not in ("F32", "F16", "BF16"):
        right = raw.view(checkpoint.array("token_embd.weight").dtype)
    assert np.array_equal(checkpoint.array("token_embd.weight"), right, equal_nan=True)
    assert np.array_equal(checkpoint.array("token_embd.weight", [8, 1, 2]), right[[8, 1, 2]], equal_nan=True)
    assert np.array_equal(checkpoint.array("other"), TABLE[:2])


def test_types_have_the_numbers_of_the_package() -> None:
    theirs = {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: one for number, one in theirs.items() if one[1] > 1} == GGUF_TYPES
    assert theirs.keys() == TYPES.keys()


def test_torch_gets_what_is_stored(tmp_path: Path) -> None:
    raw = gguf.quants.quantize(TABLE, Kind.BF16)
    q8 = gguf.quants.quantize(TABLE, Kind.Q8_0)
    path = write_gguf(tmp_path / "a.gguf", "llama", {}, {"half": (raw, Kind.BF16), "q": (q8, Kind.Q8_0)})
    checkpoint = Checkpoint.open(path)
    assert checkpoint.tensor("half").dtype == torch.bfloat16
    assert torch.equal(checkpoint.tensor("half"), torch.from_numpy(TABLE).bfloat16())
    assert checkpoint.tensor("q").dtype == torch.float32
    assert torch.allclose(checkpoint.tensor("q", [3]), torch.from_numpy(TABLE[[3]]), atol=0.05)


def test_the_package_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    q8 = (gguf.quants.quantize(TABLE, Kind.Q8_0), Kind.Q8_0)
    tables = {"plain": TABLE, "token_embd.weight": q8, "output.weight": q8}
    path = write_gguf(tmp_path / "a.gguf", "llama", {}, tables)
    assert Checkpoint.open(path).tied is True
    monkeypatch.setitem(sys.modules, "gguf", None)
    checkpoint = Checkpoint.open(path)
    assert np.array_equal(checkpoint.array("plain"), TABLE)
    assert checkpoint.tied is None  # they cannot be compared
    with pytest.raises(ww.errors.MissingExtra, match=r"pip install 'whatwhere\[gguf\]'"):
        checkpoint.array("output.weight")


def test_tokens_that_are_no_text(tmp_path: Path) -> None:
    keys = {GGUF_TOKENS: [b"a", b"\xff\xfe", b" ", b""]}
    checkpoint = Checkpoint.open(write_gguf(tmp_path / "a.gguf", "llama", keys, {"token_embd.weight": TABLE}))
    assert checkpoint.words == ["a", "\ufffd\ufffd", " ", ""]
    assert (checkpoint.token_table, checkpoint.tied) == ("token_embd.weight", True)


def test_a_header_of_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lists are passed over, and what stands behind them is found."""
    monkeypatch.setattr("whatwhere.models.checkpoint.gguf._CHUNK", 1000)
    words = [f"{n}" * (n % 50) for n in range(1000)]
    keys = {"numbers": list(range(4000)), GGUF_TOKENS: words, "long": "x" * 3000, "few": [1.5, 2.5]}
    checkpoint = Checkpoint.open(write_gguf(tmp_path / "a.gguf", "llama", keys, {"token_embd.weight": TABLE}))
    assert checkpoint.words == words
    assert checkpoint.metadata["llama.numbers"].count == 4000
    assert checkpoint.metadata["llama.few"] == [1.5, 2.5]
    assert len(checkpoint.metadata["llama.long"]) == 3000
    assert np.array_equal(checkpoint.array("token_embd.weight"), TABLE)


def test_a_model_in_parts(tmp_path: Path) -> None:
    tables = {"token_embd.weight": TABLE, "output.weight": TABLE + 1}
    write_gguf(tmp_path / "m.gguf", "llama", {}, tables, split=1)
    first = tmp_path / "m-00001-of-00002.gguf"
    checkpoint = Checkpoint.open(first)
    assert np.array_equal(checkpoint.array("output.weight"), TABLE + 1)
    assert checkpoint.tensors["output.weight"].file.name == "m-00002-of-00002.gguf"
    assert checkpoint.tied is False
    assert Checkpoint.open(tmp_path).tensors.keys() == checkpoint.tensors.keys()
    write_gguf(tmp_path / "mmproj-of-images.gguf", "llama", {}, {"x": TABLE})
    assert Checkpoint.open(tmp_path).token_table == "token_embd.weight"
    write_gguf(tmp_path / "another.gguf", "llama", {}, {"x": TABLE})
    refused(tmp_path, "holds 2 models: 'another.gguf', 'm-00001-of-00002.gguf'")
    refused(first.rename(other := tmp_path / "other.gguf"), "it is one of 2 parts")
    second = tmp_path / "m-00002-of-00002.gguf"
    second.write_bytes(other.rename(first).read_bytes())
    with pytest.raises(ww.errors.CheckpointError, match=r"'token_embd\.weight' is in an earlier part too"):
        Checkpoint.open(first)
    second.unlink()
    with pytest.raises(ww.errors.CheckpointError, match=r"m-00002-of-00002\.gguf cannot be read: No such file"):
        Checkpoint.open(first)


# What a header may claim


def made(keys: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] | None = None, version: int = 3) -> bytes:
    count = (int(bool(tensors)), int(bool(keys))) if counts is None else counts
    text = b"GGUF" + struct.pack("<IQQ", version, *count) + keys + tensors
    return text + bytes(-len(text) % 32 + 64)


def string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def described(name: bytes = b"x", shape: tuple[int, ...] = (4, 4), kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HUGE = 2**62


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (made(tensors=described(), version=1), "its version is 1, but 2 and 3 are read"),
        (made(tensors=described(), version=3 << 24), "most significant byte first"),
        (made(counts=(HUGE, 0)), f"claims 0 keys and {HUGE:,} tensors"),
        (made(counts=(0, 2)), "the key '' occurs twice"),
        (made(string(b"k", HUGE)), f"a key at byte 32 has {HUGE:,} bytes"),
        (made(string(b"k") + struct.pack("<I", 99)), "the value of 'k' has the type 99, which is not known"),
        (made(string(b"k") + struct.pack("<IQ", 8, HUGE)), f"has {HUGE:,} bytes, but"),
        (made(string(b"k") + struct.pack("<IIQ", 9, 8, HUGE)), f"claims {HUGE:,} strings"),
        (made(string(b"k") + struct.pack("<IIQ", 9, 4, HUGE)), f"has {HUGE * 4:,} bytes"),
        (made(string(b"k") + struct.pack("<IIQ", 9, 9, 1)), "a list of the type 9"),
        (made((string(b"k") + struct.pack("<IB", 0, 1)) * 2, counts=(0, 2)), "the key 'k' occurs twice"),
        (made(string(b"general.alignment") + struct.pack("<II", 4, 0)), "general.alignment is 0"),
        (made(tensors=described() * 2, counts=(2, 0)), "the tensor 'x' occurs twice"),
        (made(tensors=described() + described(b"y"), counts=(2, 0)), "the tensors before it end at byte 64"),
        (made(tensors=described(), counts=(0, 0)), "bytes follow the tensors of its header"),
        (made(tensors=described(kind=5)), "the type 5, which is not known"),
        (made(tensors=described(shape=(4, 40))), "ends at byte"),
        (made(tensors=described(shape=(2**40, 2**40))), "more than any memory holds"),
        (made(tensors=described(shape=(1,) * 9)), "claims 9 dimensions"),
        (made(tensors=described(shape=(4, 4), kind=8)), "in blocks of 32 values"),
        (b"GGUF" + struct.pack("<I", 3), "the count of tensors at byte 8 has 8 bytes, but 0 are left"),
        (b"GGUG" + bytes(100), "does not begin with the letters GGUF"),
    ],
)
def test_claims(content: bytes, message: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.gguf").write_bytes(content)
    refused(path, message)
    path.write_bytes(made(tensors=described()))
    assert Checkpoint.open(path).array("x").shape == (4, 4)
