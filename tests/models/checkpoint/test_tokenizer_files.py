"""Tokenizers of files older than tokenizer.json: the ids of transformers' own, and reasons where none is built."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from whatwhere.analysis.lint import check
from whatwhere.analysis.walkthrough import walk_model
from whatwhere.errors import CheckpointError, TextError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import NO_TOKENIZER
from whatwhere.models.checkpoint.tokenizer_files import tokenizer_in
from whatwhere.surgery import resize_checkpoint, trim_checkpoint

from . import samples

CORPUS = ["The cat sat on the mat. Déjà vu! 東京 is 42 km away, don't you know? naïve ÀÉÎ <x> ſ ﬁ"] * 20
ODD = [
    " The  Cat\tsat\non\r\nthe mat. ", "don't I'LL we've 1234 ½ x²", "東京東 km naïve\u00a0caf\u00e9 a\u0300\u0301",
    "\u200b\ufeff\x00\x07 a\ufffd 🙂👍🏽 ok", "<x> [UNK] [MASK]a <mask> b", "[CLS] a [SEP]", "<s>a</s> <pad> <unk>",
    "<|endoftext|>a<|startoftext|> B", "a</w> b", "",
]  # fmt: skip
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|endoftext|>", "<|startoftext|>",
           "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]  # fmt: skip


def trained(folder: Path, tokenizer: Tokenizer, splitter: Any, trainer: Any, texts: list[str] = CORPUS) -> int:
    """Train a vocabulary, save its files, and return its size."""
    tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.model.save(str(folder))
    return int(tokenizer.get_vocab_size())


def byte_pairs(folder: Path) -> int:
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=letters, show_progress=False, special_tokens=SPECIAL)
    return trained(folder, Tokenizer(models.BPE()), pre_tokenizers.ByteLevel(add_prefix_space=False), trainer)


def wordpiece(folder: Path) -> int:
    trainer = trainers.WordPieceTrainer(vocab_size=300, show_progress=False, special_tokens=SPECIAL)
    pieces, texts = models.WordPiece(unk_token="[UNK]"), [*CORPUS, *map(str.lower, CORPUS), "deja vu naive aei"]
    return trained(folder, Tokenizer(pieces), pre_tokenizers.BertPreTokenizer(), trainer, texts)


def saved(folder: Path, rows: int, model_type: str | None, **files: Any) -> Checkpoint:
    """Save a table with a configuration and more small files."""
    config = {"vocab_size": rows} | ({} if model_type is None else {"model_type": model_type})
    beside = {f"{name}__json": value for name, value in {"config": config, **files}.items()}
    return Checkpoint.open(samples.write_folder(folder, {"wte.weight": np.zeros((rows, 1))}, **beside))


def agree(checkpoint: Checkpoint) -> None:
    """Compare with transformers, over odd texts, alone and in pairs."""
    auto = AutoTokenizer.from_pretrained(checkpoint.path)
    built = checkpoint.tokenizer
    assert built is not None, checkpoint.why_no_tokenizer
    for text in ODD:
        assert built.encode(text).ids == auto(text)["input_ids"], text
        pair = auto(text, "the cat")
        assert built.encode(text, "the cat").ids == pair["input_ids"]
    added = {token.content: n for n, token in built.get_added_tokens_decoder().items()}
    assert added.items() <= auto.get_vocab().items()
    words = checkpoint.words or []
    assert all(words[n] == token for token, n in built.get_vocab().items() if n < len(words))


ADDED = {"content": "<x>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": False}


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [
        ("gpt2", {}), ("gpt2", {"add_prefix_space": True}),
        ("opt", {"add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>",
                 "tokenizer_class": "GPT2Tokenizer"}),
        ("roberta", {"add_prefix_space": True, "trim_offsets": False}), ("deberta", {}),
        ("whisper", {}), ("bert", {}), ("bert", {"do_lower_case": False, "strip_accents": True}), ("mpnet", {}),
        ("bert", {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}),
    ],
)  # fmt: skip
def test_they_encode_as_in_transformers(model_type: str, settings: dict[str, Any], tmp_path: Path) -> None:
    rows = (wordpiece if model_type in ("bert", "mpnet") else byte_pairs)(tmp_path)
    agree(saved(tmp_path, rows, model_type, **({"tokenizer_config": settings} if settings else {})))


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_added_and_special_tokens_of_older_files(kind: str, tmp_path: Path) -> None:
    """They are in files of their own, or in tokenizer_config.json."""
    rows = (byte_pairs if kind == "gpt2" else wordpiece)(tmp_path)
    files: dict[str, Any] = {"tokenizer_config": {"added_tokens_decoder": {
        str(rows): ADDED, str(rows + 1): ADDED | {"content": "<b>"},
        str(rows + 2): ADDED | {"content": "[tool]", "special": True}}}}  # fmt: skip
    if kind == "gpt2":
        special = {"additional_special_tokens": ["[tool]"], "pad_token": "<pad>", "eos_token": ADDED}
        files = {"added_tokens": {"<b>": rows + 1, "<x>": rows, "[tool]": rows + 2}, "special_tokens_map": special}
    checkpoint = saved(tmp_path, rows + 3, kind, **files)
    agree(checkpoint)
    assert (checkpoint.words or [])[rows:] == ["<x>", "<b>", "[tool]"]


@pytest.mark.parametrize(
    ("model_type", "files", "why"),
    [
        ("ctrl", {}, "transformers builds none of vocab.json"),
        ("gpt2", {"tokenizer_config": {"auto_map": {"AutoTokenizer": ["a.B", None]}}}, "has code of its own"),
        (None, {}, "transformers builds none of vocab.json"),
        ("bert", {}, "has other tokens than vocab.json"),
        ("gpt2", {"added_tokens": {"<x>": 2000}}, "has other tokens than vocab.json"),
    ],
)
def test_what_is_not_built_says_why(model_type: str | None, files: dict[str, Any], why: str, tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, byte_pairs(tmp_path), model_type, **files)
    assert checkpoint.tokenizer is None
    assert why in str(checkpoint.why_no_tokenizer)
    with pytest.raises(TextError, match="so a text cannot be read"):
        walk_model(checkpoint, "the cat")


def test_empty_files_are_called_so(tmp_path: Path) -> None:
    """Without merges every text would be letters."""
    for files in ({"vocab.json": '{"a": 0}', "merges.txt": ""}, {"vocab.txt": ""}, {"tokenizer.json": ""}):
        folder = tmp_path / min(files)
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "%s"}' % ("bert" if "vocab.txt" in files else "gpt2"))
        for name, content in files.items():
            (folder / name).write_text(content)
        with pytest.raises(CheckpointError, match=r"(merges\.txt: it|vocab\.txt: it|tokenizer\.json: it) is empty"):
            tokenizer_in(folder)


def test_of_equal_lines_the_last_is_the_token(tmp_path: Path) -> None:
    """And blanks at the end of a line do not belong to it."""
    rows = wordpiece(tmp_path)
    lines = (tmp_path / "vocab.txt").read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*lines[:-1], lines[-1] + " ", lines[20], ""]))
    tokenizer = saved(tmp_path, rows + 1, "bert").tokenizer
    assert (tokenizer.token_to_id(lines[20]), tokenizer.token_to_id(lines[-1])) == (rows, rows - 1)


def test_without_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    why = saved(tmp_path, byte_pairs(tmp_path), "gpt2").why_no_tokenizer
    assert why == f"{NO_TOKENIZER}, and transformers, which builds that of vocab.json, is not installed"


@pytest.mark.parametrize("kind", ["gpt2", "bert", "roberta"])
def test_surgery_of_older_files_is_what_transformers_reads(kind: str, tmp_path: Path) -> None:
    """The folder that is written encodes as before, the new token too, by its tokenizer.json and by transformers."""
    (folder := tmp_path / "in").mkdir()
    rows = (wordpiece if kind == "bert" else byte_pairs)(folder)
    before = saved(folder, rows, kind).tokenizer
    assert before is not None
    resize_checkpoint(folder, tmp_path / "resized", add_tokens=["<new>", "zebra crossing"])
    resized, auto = Checkpoint.open(tmp_path / "resized"), AutoTokenizer.from_pretrained
    reader = auto(tmp_path / "resized")
    for text in ODD:
        assert resized.tokenizer.encode(text).ids == reader(text)["input_ids"] == before.encode(text).ids, text
    assert reader.convert_tokens_to_ids(["<new>", "zebra crossing"]) == [rows, rows + 1]
    assert resized.tokenizer.encode("a <new>b", add_special_tokens=False).ids.count(rows) == 1
    (tmp_path / "corpus.txt").write_text("the cat sat on a mat\n")
    report = trim_checkpoint(folder, tmp_path / "trimmed", corpus=[tmp_path / "corpus.txt"])
    assert report.measured.corpus.encoded_as_before
    assert not [name for name in ("vocab.json", "merges.txt", "vocab.txt") if (tmp_path / "trimmed" / name).exists()]
    old_ids = json.loads((tmp_path / "trimmed" / "id_map.json").read_text())["old_ids"]
    smaller = auto(tmp_path / "trimmed")("the cat sat on a mat")["input_ids"]
    assert [old_ids[n] for n in smaller] == before.encode("the cat sat on a mat").ids


def test_a_tokenizer_beside_a_gguf_file_is_its_own_if_the_tokens_agree(tmp_path: Path) -> None:
    Tokenizer(models.WordLevel({"the": 0, "cat": 1})).save(str(tmp_path / "tokenizer.json"))
    table = {"token_embd.weight": np.zeros((3, 32), np.float32)}
    for name, words in (("same", ["the", "cat", "[PAD2]"]), ("other", ["the", "dog", "[PAD2]"])):
        samples.write_gguf(tmp_path / f"{name}.gguf", "llama", {samples.GGUF_TOKENS: words}, table)
    assert Checkpoint.open(tmp_path / "same.gguf").tokenizer is not None
    assert "has other tokens than its header" in str(Checkpoint.open(tmp_path / "other.gguf").why_no_tokenizer)


NEW = ADDED | {"content": "<|new|>", "lstrip": False}
BESIDE: list[dict[str, Any]] = [
    {"added_tokens": {"<b>": 6, "<|new|>": 5}},
    {"added_tokens": {"<|new|>": 5, "b": 1}, "special_tokens_map": {"pad_token": "[PAD]", "eos_token": "<|new|>"}},
    {"tokenizer_config": {"added_tokens_decoder": {"5": NEW, "4": ADDED, "6": ADDED | {"content": "<b>"}}}},
    {"tokenizer_config": {"added_tokens_decoder": {"5": {"content": "<|new|>"}}, "pad_token": "[PAD]"}},
    {"tokenizer_config": {"added_tokens_decoder": {"5": NEW}, "pad_token": "[PAD]"}, "added_tokens": {"<b>": 7}},
    {"tokenizer_config": {"pad_token": "<|new|>", "additional_special_tokens": ["<b>", "the"]}},
]


def of_words(folder: Path, rows: int, **files: Any) -> Checkpoint:
    """Save a model with a tokenizer.json of five tokens, the last an added one, and files beside it."""
    words = Tokenizer(models.WordLevel({"the": 0, "b": 1, "cat": 2, "?": 3}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens(["<x>"])
    words.save(str(folder / "tokenizer.json"))
    files["tokenizer_config"] = {"tokenizer_class": "PreTrainedTokenizerFast", **files.get("tokenizer_config", {})}
    return saved(folder, rows, "gpt2", **files)


@pytest.mark.parametrize("files", BESIDE)
def test_tokens_that_tokenizer_json_lacks_are_those_of_the_files_beside_it(
    files: dict[str, Any], tmp_path: Path
) -> None:
    """Their rows are kept by resize and trim, and texts with them are encoded as transformers does."""
    (folder := tmp_path / "in").mkdir()
    checkpoint, auto = of_words(folder, 8, **files), AutoTokenizer.from_pretrained(folder)
    agree(checkpoint)
    assert {n: word for n, word in enumerate(checkpoint.words or []) if word} == {
        n: word for word, n in auto.get_vocab().items()
    }
    text = "<|new|>cat<b> bthe <x>b [PAD]"
    ids = auto(text)["input_ids"]
    assert 5 in ids
    assert checkpoint.tokenizer.encode(text).ids == ids
    report = resize_checkpoint(folder, tmp_path / "resized", add_tokens=["<tool>"])
    assert report.measured.new_ids == (len(auto),)
    assert AutoTokenizer.from_pretrained(tmp_path / "resized")(text + "<tool>")["input_ids"] == [*ids, len(auto)]
    (tmp_path / "corpus.txt").write_text("cat\n")
    trim_checkpoint(folder, tmp_path / "trimmed", corpus=[tmp_path / "corpus.txt"])
    old_ids = json.loads((tmp_path / "trimmed" / "id_map.json").read_text())["old_ids"]
    smaller = AutoTokenizer.from_pretrained(tmp_path / "trimmed")("<|new|>cat <x>")["input_ids"]
    assert [old_ids[n] for n in smaller] == [5, 2, 4]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"added_tokens": {"<|new|>": 7}}, r"added_tokens\.json states the id 7 for '<|new|>', .* has 5"),
        ({"added_tokens": {"cat": 7}}, r"added_tokens\.json states the id 7 for 'cat', .* has 2"),
        ({"tokenizer_config": {"added_tokens_decoder": {"4": NEW}}}, r"tokenizer_config\.json states the id 4"),
        ({"added_tokens": {"<|new|>": "5"}}, "has the number '5'"),
    ],
)
def test_files_that_contradict_are_refused(files: dict[str, Any], why: str, tmp_path: Path) -> None:
    """The id that transformers gives is another than the file says, so the row of the token is not known."""
    (folder := tmp_path / "in").mkdir()
    checkpoint = of_words(folder, 8, **files)
    for read in (
        lambda: checkpoint.words,
        lambda: checkpoint.tokenizer,
        lambda: resize_checkpoint(folder, tmp_path / "out", add_tokens=["<tool>"]),
    ):
        with pytest.raises(CheckpointError, match=why):
            read()


def test_an_added_token_behind_gaps_is_refused(tmp_path: Path) -> None:
    """The library numbers added tokens from the size of the vocabulary on: here <new> would have the row of w3."""
    (folder := tmp_path / "in").mkdir()
    saved(folder, 8, "gpt2")
    words = {"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "w3": 3}, "unk_token": "a"}}
    (folder / "tokenizer.json").write_text(
        json.dumps(words | {"added_tokens": [{**ADDED, "id": 4, "content": "<new>"}]})
    )
    assert AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("<new>") == 3
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.words == ["a", "b", "", "w3", "<new>"]
    assert checkpoint.tokenizer is None
    assert "gives '<new>' the id 3, but tokenizer.json, where ids have no token, 4" in str(checkpoint.why_no_tokenizer)
    with pytest.raises(CheckpointError, match="each id has a token"):
        trim_checkpoint(folder, tmp_path / "out", scripts=["latin"])
    assert [found.rule for found in check(folder).findings if found.severity == "error"] == ["tokenizer"]
    words["model"]["vocab"]["c"] = 2
    (folder / "tokenizer.json").write_text(json.dumps(words | {"added_tokens": [{**ADDED, "id": 4, "content": ""}]}))
    assert Checkpoint.open(folder).tokenizer is not None, "no text selects an empty token"
