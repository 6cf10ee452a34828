"""Hugging Face folders: shards, links, tokenizers, and what an index may claim."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.report.inspection import sizes
from whatwhere.what.text import load

from .damage import refused
from .samples import CONFIG, WEIGHT, WORDS, safetensors, sentencepiece, tokenizer, write_folder

INDEX = "model.safetensors.index.json"
TABLE, OTHER = safetensors({"wte.weight": WEIGHT}), safetensors({"wpe.weight": WEIGHT + 1})
SHARDS = {"wte.weight": "a.safetensors", "wpe.weight": "b.safetensors"}


def folder(path: Path, weight_map: Any = SHARDS, **files: bytes) -> Path:
    """Write shards a and b with their index, and further files."""
    index = {"metadata": {"total_size": 224}, "weight_map": weight_map}
    shards = {"a__safetensors": TABLE, "b__safetensors": OTHER, INDEX: index}
    return write_folder(path, None, **shards, **files)


def test_shards(tmp_path: Path) -> None:
    folder(tmp_path)
    for path in (tmp_path, tmp_path / INDEX):
        checkpoint = Checkpoint.open(path)
        assert list(checkpoint.tensors) == ["wte.weight", "wpe.weight"]
        assert [entry.file.name for entry in checkpoint.tensors.values()] == ["a.safetensors", "b.safetensors"]
        assert np.array_equal(checkpoint.array("wpe.weight", [3]), WEIGHT[[3]] + 1)
        assert checkpoint.metadata == {"total_size": 224}
    (tmp_path / INDEX).unlink()
    assert list(Checkpoint.open(tmp_path).tensors) == ["wte.weight", "wpe.weight"]
    assert list(Checkpoint.open(tmp_path / "a.safetensors").tensors) == ["wte.weight"]
    (tmp_path / "c.safetensors").write_bytes(TABLE)
    refused(tmp_path, "the tensor 'wte.weight' is also in a.safetensors")


def test_the_cache_of_hugging_face_is_made_of_links(tmp_path: Path) -> None:
    """snapshots/<revision>/<name> points to blobs/<digest>: names stay in their folder, links need not."""
    kept = folder(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "1234"
    snapshot.mkdir(parents=True)
    for path in list(kept.iterdir()):
        blob = path.rename(path.with_name(f"{abs(hash(path.name)):x}"))
        (snapshot / path.name).symlink_to(Path("../../blobs") / blob.name)
    checkpoint = Checkpoint.open(snapshot)
    assert np.array_equal(checkpoint.array("wte.weight"), WEIGHT)
    assert np.array_equal(checkpoint.array("wpe.weight"), WEIGHT + 1)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"x": "../secret.safetensors"}, "refers to the file '../secret.safetensors', but only a plain name"),
        *(
            ({"x": name}, "only a plain name")
            for name in ("/a.safetensors", "C:\\a.safetensors", "sub/a.safetensors", "a\0", "..", "", 3, ["a"])
        ),
        ({"wte.weight": "gone.safetensors"}, "names 'gone.safetensors', which is not beside it"),
        ({"wte.weight": "b.safetensors"}, "places the tensor 'wte.weight' in 'b.safetensors', which does not"),
        *((claimed, "has no weight_map") for claimed in ({}, [], "a.safetensors")),
        ({"wte.weight": "a.bin"}, "is an index of pickles"),
    ],
)
def test_what_an_index_may_claim(weight_map: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes(TABLE)
    path = folder(tmp_path / "f", weight_map)
    refused(path, message)


def test_shards_of_pickles(tmp_path: Path) -> None:
    files = {"wte.weight": "a.bin", "wpe.weight": "b.bin"}
    for name, file in files.items():
        torch.save({name: torch.from_numpy(WEIGHT)}, tmp_path / file)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    refused(tmp_path, "is an index of pickles", "a.bin', 'cpu', weights_only=True")
    checkpoint = Checkpoint.open(tmp_path, allow_pickle=True)
    assert np.array_equal(checkpoint.array("wpe.weight"), WEIGHT)
    assert checkpoint.tensors["wpe.weight"].file.name == "b.bin"
    (tmp_path / "a.bin").rename(tmp_path / "pytorch_model.bin")
    (tmp_path / "pytorch_model.bin.index.json").unlink()
    refused(tmp_path, "is a pickle")
    assert Checkpoint.open(tmp_path, allow_pickle=True).token_table == "wte.weight"


def test_folders_without_weights(tmp_path: Path) -> None:
    refused(tmp_path, "holds no weights that are read")
    (tmp_path / "0_Transformer").mkdir()
    (tmp_path / "0_Transformer" / "model.safetensors").write_bytes(TABLE)
    refused(tmp_path, "There are some in '0_Transformer': pass that folder")
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "0_Transformer").rename(tmp_path / "snapshots" / "abc")
    refused(tmp_path, "There are some in 'snapshots/abc': pass that folder")


def test_folders_of_other_formats(tmp_path: Path) -> None:
    for name in ("tf_model.h5", "optimizer.pt"):
        (tmp_path / name).write_bytes(b"numbers")
    refused(tmp_path, "It holds 'optimizer.pt', 'tf_model.h5': pass a file of PyTorch by its name")


@pytest.mark.parametrize("name", ["model.pth", "consolidated.00.pth"])
def test_folders_of_one_pickle(tmp_path: Path, name: str) -> None:
    torch.save({"wte.weight": torch.ones(3, 2)}, tmp_path / name)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "vocab_size": 3}')
    refused(tmp_path, f"{name} is a pickle")
    checkpoint = Checkpoint.open(tmp_path, allow_pickle=True)
    assert (checkpoint.format, checkpoint.token_table) == ("folder", "wte.weight")
    torch.save({"wte.weight": torch.ones(3, 1)}, tmp_path / "consolidated.01.pth")
    if name != "model.pth":
        refused(tmp_path, "It holds 'consolidated.00.pth', 'consolidated.01.pth'", allow_pickle=True)


def test_folders_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    folder(tmp_path)
    monkeypatch.setattr(Path, "is_file", denied)
    for read in (Checkpoint.open, ww.read):
        with pytest.raises(ww.errors.CheckpointError, match="cannot be read: Permission denied"):
            read(tmp_path)


def test_a_model_may_have_results_besides(tmp_path: Path) -> None:
    folder(tmp_path, results__json=b'{"accuracy": 1}', vectors__tsv=b"1\t2\n")
    assert Checkpoint.open(tmp_path).token_table == "wte.weight"


# Tokens


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", tokenizer(WORDS)),
        ("vocab.txt", "\n".join([*WORDS, ""]).encode()),
        ("vocab.txt", "\r\n".join(WORDS).encode()),
        ("vocab.json", json.dumps({word: id for id, word in reversed(list(enumerate(WORDS)))}).encode()),
        ("spiece.model", sentencepiece(WORDS)),
        ("tokenizer.model", sentencepiece(WORDS)),
    ],
)
def test_words(name: str, content: bytes, tmp_path: Path) -> None:
    (folder(tmp_path) / name).write_bytes(content)
    assert Checkpoint.open(tmp_path).words == WORDS
    assert (Checkpoint.open(tmp_path).tokenizer is None) is (name != "tokenizer.json")


@pytest.mark.parametrize("kind", ["BPE", "Unigram", "WordPiece", "WordLevel"])
def test_words_of_every_model_are_those_of_the_library(kind: str, tmp_path: Path) -> None:
    made = Tokenizer(getattr(models, kind)())
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = getattr(trainers, f"{kind.replace('BPE', 'Bpe')}Trainer")
    texts = ["the cat sat on the mat", "a dog ate the cat's mat"] * 3
    made.train_from_iterator(texts, trainer(vocab_size=60, special_tokens=["[UNK]"], show_progress=False))
    made.add_tokens(["new one", "\u6771"])
    made.save(str(folder(tmp_path) / "tokenizer.json"))
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.words == [made.id_to_token(id) for id in range(made.get_vocab_size())]
    assert checkpoint.tokenizer is not None
    assert checkpoint.tokenizer.encode("the cat").ids == made.encode("the cat").ids


def test_added_tokens_in_a_file_of_their_own(tmp_path: Path) -> None:
    folder(tmp_path, vocab__json=b'{"a": 0, "b": 1}', added_tokens__json=b'{"<pad>": 4}')
    assert Checkpoint.open(tmp_path).words == ["a", "b", "", "", "<pad>"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"[]", "holds a list"),
        ("config.json", b"", "config.json is empty"),
        ("config.json", b'{"a": 1, "a": 1}', "the key 'a' occurs twice"),
        ("config.json", b" " * 10_000_001, "such a file has at most 10,000,000"),
        ("tokenizer.json", b"{}", "no vocabulary where model.vocab should be"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": "b"}}}', "the token 'a' has the number 'b'"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": -1}}}', "the token 'a' has the number '-1'"),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 1000000000000}}}', "numbers 1 tokens up to 1,000,000,000,000"),
        ("tokenizer.json", b'{"model": {"vocab": {}}, "added_tokens": [3]}', "added_tokens is not a list of objects"),
        ("tokenizer.json", b'{"a":' * 100_000, "nested too deeply"),
        ("tokenizer.model", b"\x0a\xff\xff\xff\xff\x0f", "is truncated"),
        ("tokenizer.model", b"\x0a" + b"\xff" * 20, "is truncated"),
        ("tokenizer.model", b"IQ== 0\nIg== 1\n", "it is not a SentencePiece model"),
    ],
)
def test_files_beside_weights_that_are_damaged(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (folder(tmp_path) / name).write_bytes(content)
    if name != "config.json":  # tables can be read without their words
        assert np.array_equal(Checkpoint.open(tmp_path).array("wte.weight"), WEIGHT)
    refused(tmp_path, name, message, read=lambda path: Checkpoint.open(path).words)


def test_a_tokenizer_that_the_library_refuses(tmp_path: Path) -> None:
    folder(tmp_path, tokenizer__json=b'{"model": {"vocab": {"a": 0}}}')
    assert Checkpoint.open(tmp_path).words == ["a"]
    refused(tmp_path, "the tokenizers library cannot read it", read=lambda path: Checkpoint.open(path).tokenizer)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model"])
def test_tokenizers_that_are_too_large(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whatwhere.models.checkpoint.tokenizer_files.MAX_TOKENIZER_BYTES", 1000)
    (folder(tmp_path) / name).write_bytes(b" " * 1001)
    refused(tmp_path, "it has 1,001 bytes, but", read=lambda path: Checkpoint.open(path).words)
    if name == "tokenizer.json":
        refused(tmp_path, "a vocabulary has at most 1,000", read=lambda path: Checkpoint.open(path).tokenizer)


def test_words_that_cannot_be_printed(tmp_path: Path) -> None:
    """JSON can say half of a surrogate pair, which no output takes."""
    assert Checkpoint.open(folder(tmp_path / "a", vocab__txt=b"a\n\xff\n\n")).words == ["a", "\ufffd", ""]
    assert Checkpoint.open(folder(tmp_path / "b", vocab__json=b'{"\\ud800": 0}')).words == ["?"]


# The tables of the input layer


def test_a_padded_vocabulary(tmp_path: Path) -> None:
    """The table has more rows than there are tokens; an unknown name is found by them, and it is said so."""
    tables = {name: np.zeros((rows, 4)) for name, rows in (("up.weight", 64), ("strange.table", 8), ("less", 6))}
    checkpoint = Checkpoint.open(write_folder(tmp_path / "a", tables, vocab__txt="\n".join(WORDS).encode()))
    assert (checkpoint.token_table, checkpoint.names.guessed, len(checkpoint.words or [])) == ("strange.table", True, 7)
    assert Checkpoint.open(write_folder(tmp_path / "b", tables)).token_table is None
    assert Checkpoint.open(write_folder(tmp_path / "c", tables, config__json={"vocab_size": 5})).token_table == "less"


GPT2 = {name: value for name, value in CONFIG.items() if name != "tie_word_embeddings"}  # whose type ties
TIED, UNTIED = GPT2 | {"tie_word_embeddings": True}, GPT2 | {"tie_word_embeddings": False}


@pytest.mark.parametrize(
    ("config", "head", "tied", "contradicts"),
    [
        (None, None, None, False),
        ({"tie_word_embeddings": True}, None, True, False),
        ({"tie_word_embeddings": False}, None, None, False),  # a body without its head
        ({"text_config": {"tie_word_embeddings": True}}, None, True, False),
        ({"architectures": ["GPT2LMHeadModel"]}, None, True, False),
        (None, WEIGHT, True, False),  # two copies of one table
        (None, np.where(np.arange(7)[:, None] == 6, 0, WEIGHT), False, False),
        (None, WEIGHT[:5], False, False),  # the last two tokens are read and never written
        (None, np.concatenate([WEIGHT, WEIGHT]), None, False),  # no output projection of these tokens
        (None, np.full_like(WEIGHT, np.nan), False, False),
        (TIED, WEIGHT + 1, False, True),
        (TIED, None, True, False),
        (UNTIED, WEIGHT, True, True),
        (UNTIED, WEIGHT + 1, False, False),
        (UNTIED, None, None, True),
        (GPT2, WEIGHT + 1, False, True),
    ],
)
def test_tied_and_untied(
    config: Any, head: np.ndarray | None, tied: bool | None, contradicts: bool, tmp_path: Path
) -> None:
    tensors = {"wte.weight": WEIGHT} | ({} if head is None else {"lm_head.weight": head})
    checkpoint = Checkpoint.open(
        write_folder(tmp_path, tensors, **({} if config is None else {"config__json": config}))
    )
    assert (checkpoint.tied, checkpoint.contradicts_tie) == (tied, contradicts)
    assert ("But" in " ".join(map(str, sizes(ww.inspect(tmp_path).sizes)))) is contradicts


def test_tied_in_all_rows_and_types(tmp_path: Path) -> None:
    """Of 3,000 rows, three differ; equal numbers in two types are the same table."""
    table = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float16)
    other = table.copy()
    other[[100, 1000, 2999], 3] += 1
    for head, equal in ((table, True), (other, False)):
        parts = {"wte.weight": ("F16", table.shape, table.tobytes()), "lm_head.weight": head}
        assert Checkpoint.open(write_folder(tmp_path, parts)).tied is equal


def test_a_folder_has_the_wheres_of_its_configuration(tmp_path: Path) -> None:
    write_folder(tmp_path, {"wte.weight": WEIGHT}, config__json=CONFIG)
    wheres = ww.read(tmp_path).wheres(dtype=torch.float64)
    alone = ww.read(tmp_path / "config.json").wheres(dtype=torch.float64)
    assert [str(one) for one in wheres] == [str(one) for one in alone]
    assert wheres[0].input.weight.dtype == torch.float64


# Pointers of Git LFS, in place of any file

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 2669283096\n".encode()
FOLDERS = ("model.safetensors", INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json", "a.gguf")


@pytest.mark.parametrize(
    "name", [*FOLDERS, "a.npy", "a.npz", "glove.txt", "words.bin", "words.kv", "tensors.tsv", "config.json", "a.pt"]
)
def test_pointers_of_git_lfs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(POINTER)
    for path in (tmp_path / name, tmp_path) if name in FOLDERS else (tmp_path / name,):
        with pytest.raises(ww.errors.CheckpointError, match="git lfs pull"):
            ww.inspect(path)


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "b.safetensors"])
def test_pointers_beside_weights(tmp_path: Path, name: str) -> None:
    (folder(tmp_path) / name).write_bytes(POINTER)
    with pytest.raises(ww.errors.CheckpointError, match="git lfs pull"):
        ww.neighbors(tmp_path, "cat")
    with pytest.raises(ww.errors.TextError, match="git lfs pull"):
        load(tmp_path / name)
