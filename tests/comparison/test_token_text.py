"""Texts in tokens: pieces give the ids of the whole, ids are made once, and models train on them by windows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import whatwhere as ww
from whatwhere.comparison import token_text
from whatwhere.comparison.byte_text import in_memory, open_files
from whatwhere.comparison.tasks import Text, TextPrompts, python_documentation
from whatwhere.comparison.token_text import encoded, pieces, tokenized
from whatwhere.models.checkpoint.tokenizer_files import tokenizer_of_task
from whatwhere.report.comparison import sections, summary
from whatwhere.report.comparison_sentences import scope_sentence
from whatwhere.studio.api import QUERIES
from whatwhere.studio.api import ask as ask_view
from whatwhere.studio.session import Session
from whatwhere.what import text as texts

from ..running import error_of, json_of
from .conftest import SMALL

LINES = "The cat  sat.\nOn the mat,\n\n  é 猫 🙂 it\tsat!\n\nIt\r\nsat   \n\n\nOn and on.\n" * 60
"""Runs of line ends and spaces, which tokenizers join in different ways."""


@pytest.fixture
def bpe(tmp_path: Path) -> Path:
    """Train a byte-level BPE, which has tokens of two line ends."""
    file = tmp_path / "tokenizer.json"
    texts.train("bpe", LINES, vocab_size=330).save(str(file))
    return file


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep tokenized texts here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "whatwhere" / "tokens"


def ids_of(text: token_text.TokenText) -> list[int]:
    """Return all ids."""
    return text.windows([0], len(text))[0].tolist()


def bytes_of(file: Path, token: int) -> bytes:
    """Return the bytes that a token of a byte-level tokenizer stands for."""
    return bytes(texts.byte_alphabet()[char] for char in texts.load(file).id_to_token(token))


@pytest.mark.parametrize("which", ["bpe", "minilm"])
def test_pieces_have_the_ids_of_the_whole_text(
    which: str, bpe: Path, minilm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a piece ends after every few characters, at the first border that is one."""
    monkeypatch.setattr(token_text, "_PIECE", 5)
    monkeypatch.setattr(token_text, "_NEXT", 1)
    tokenizer = texts.load(bpe if which == "bpe" else minilm / "tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for text in (LINES, python_documentation().decode()[:60_000]):
        parts = [text[start : start + 700] for start in range(0, len(text), 700)]
        cut = list(pieces(tokenizer, parts))
        assert "".join(cut) == text
        assert len(cut) > len(text) / 400
        ids = np.concatenate(list(encoded(tokenizer, cut)))
        assert ids.tolist() == tokenizer.encode(text, add_special_tokens=False).ids


def test_a_long_text_of_a_tokenizer_that_joins_lines_is_refused() -> None:
    """Llama 2 begins each text, and so each piece, with a space."""
    tokenizer = Tokenizer(models.BPE({"▁": 0, "a": 1, "\n": 2}, []))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    text = "a\n" * 60_000
    assert list(pieces(tokenizer, [text])) == [text]  # in one piece it is right
    with pytest.raises(ww.errors.TextError, match="other tokens of lines by themselves"):
        list(pieces(tokenizer, [text[:80_000], text[80_000:]], longest=100_000))


def test_a_text_is_tokenized_once(bpe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("a.txt", "b.txt")]
    for file in files:
        file.write_text(LINES, encoding="utf-8", newline="")
    text = open_files(files)
    expected = texts.load(bpe).encode(f"{LINES}\n{LINES}").ids
    first = tokenized(text, bpe, tmp_path / "cache")
    assert ids_of(first) == expected
    assert first.windows([7, 0], 3).tolist() == [expected[7:10], expected[:3]]
    assert first.dtype.itemsize == 2
    assert first.about.bytes_per_token == len(text) / len(expected)
    calls: list[object] = []
    make = token_text._make
    monkeypatch.setattr(token_text, "_make", lambda *given: calls.append(given) or make(*given))
    assert tokenized(text, bpe, tmp_path / "cache") == first
    assert not calls
    # What was changed, or never finished, is made again; another tokenizer or text has ids of its own.
    (ids,) = (tmp_path / "cache" / "tokens").glob("*.ids")
    ids.write_bytes(ids.read_bytes()[:-2])
    assert ids_of(tokenized(text, bpe, tmp_path / "cache")) == expected
    ids.with_suffix(".json").unlink()
    (ids.parent / f".{ids.name}.0badcafe.part").write_bytes(b"half")
    assert ids_of(tokenized(text, bpe, tmp_path / "cache")) == expected
    assert len(calls) == 2
    assert sorted(path.suffix for path in ids.parent.iterdir()) == [".ids", ".json", ".lock"]
    other = tmp_path / "other.json"
    texts.train("bpe", LINES, vocab_size=270).save(str(other))
    assert tokenized(text, other, tmp_path / "cache").identity != first.identity
    assert len(calls) == 3


def test_many_tokens_take_four_bytes(tmp_path: Path) -> None:
    words = {f"w{n}": n for n in range((1 << 16) + 1)}
    texts.from_vocabulary(words).save(str(tmp_path / "tokenizer.json"))
    text = tokenized(in_memory(b"w65536 w3\nw65535"), tmp_path, tmp_path)
    assert (text.dtype.itemsize, ids_of(text)) == (4, [65536, 3, 65535])


def test_ids_beyond_the_vocabulary_are_refused(bpe: Path, tmp_path: Path) -> None:
    text = tokenized(in_memory(LINES.encode()), bpe, tmp_path)
    fewer = token_text.TokenText(text.stored, text.about, 100, text.text_sha256)
    with pytest.raises(ww.errors.TextError, match="the vocabulary has 100 tokens"):
        fewer.windows([0], len(text))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"the cat\n\xff", "not UTF-8: the byte at offset 8 does"),
        (b"the cat\n\xc3", "not UTF-8: the byte at offset 8 does"),
        (b" \n ", "makes no token"),
    ],
)
def test_texts_without_tokens_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    texts.words("the cat").save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ww.errors.TextError, match=words):
        tokenized(in_memory(content), tmp_path, tmp_path)
    if "UTF-8" in words:
        (tmp_path / "a.txt").write_bytes(b"the cat")
        (tmp_path / "b.txt").write_bytes(content)
        with pytest.raises(ww.errors.TextError, match=r"a\.txt, .*b\.txt is not UTF-8: the byte at offset 16 does"):
            tokenized(open_files([tmp_path / "a.txt", tmp_path / "b.txt"]), tmp_path, tmp_path)
    assert not [path for path in (tmp_path / "tokens").iterdir() if path.suffix != ".lock"]


def test_what_a_tokenizer_would_drop_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.Fuse()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert ids_of(tokenized(in_memory(b"a b"), tmp_path, tmp_path)) == [0, 1]
    with pytest.raises(ww.errors.TextError, match="no token for 'c' at character 2"):
        tokenized(in_memory(b"a c"), tmp_path, tmp_path)


def test_tokens_are_held_out_and_counted_as_bytes_are(bpe: Path, tmp_path: Path) -> None:
    text = tokenized(in_memory(LINES.encode()), bpe, tmp_path)
    task, ids = Text(text, trained=(16,)), torch.tensor(ids_of(text))
    cut = len(ids) * 9 // 10
    assert torch.equal(task.test_set(32, 3).ids.flatten(), ids[cut : cut + 3 * 32])
    assert task.sample(200, torch.Generator().manual_seed(0)).targets.shape == (200, 16)
    assert torch.equal(task.training_counts(), torch.bincount(ids[:cut], minlength=task.vocab_size))
    assert task.baselines(32, task.test_set(32, 3))["all tokens alike"] == pytest.approx(np.log(task.vocab_size))
    assert (task.measure, len(task.tokens)) == ("nats per token", task.vocab_size)


@pytest.mark.parametrize(("length", "count"), [(16, 3), (301, 10_000)])
def test_bits_per_byte_are_of_the_tested_part(
    bpe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, count: int
) -> None:
    """A text whose end has other bytes per token than the rest, in one piece, in many, in memory and in a file."""
    content = (LINES * 3 + "qzx 狗🐈 \n" * 400).encode()
    for piece in (5, 1000, 1 << 16):
        monkeypatch.setattr(token_text, "_PIECE", piece)
        (tmp_path / "notes.txt").write_bytes(content)
        for text in (in_memory(content), open_files([tmp_path / "notes.txt"])):
            task = Text(tokenized(text, bpe, tmp_path / f"cache {piece}"), trained=(16,))
            tested = task.test_set(length, count).targets.flatten().tolist()
            expected = sum(len(bytes_of(bpe, n)) for n in tested) / len(tested)
            # A window may begin within a character of up to four bytes.
            assert task.bytes_per_token(length, count) == pytest.approx(expected, abs=3 / len(tested))
            assert abs(expected - task.tokenized.bytes_per_token) > 0.1  # of the whole text
    kept = task.in_file(tmp_path / "kept")
    assert kept.bytes_per_token(length, count) is None, "without the text nobody knows"
    assert Text(content, trained=(16,)).bytes_per_token(length, count) == 1


def test_bytes_between_tokens_count(minilm: Path, tmp_path: Path) -> None:
    """WordPiece drops white space, lowercases, removes accents and makes one token of what it does not know."""
    content = "Élan  vital, 猫🙂.\n" * 500
    task = Text(tokenized(in_memory(content.encode()), minilm, tmp_path), trained=(16,))
    assert task.tokenized is not None
    per_line = task.tokenized.tokens // 500
    assert task.bytes_per_token(per_line, 40) == pytest.approx(len(content.encode()) / 500 / per_line)
    opened = tokenizer_of_task({"tokenized": vars(task.tokenized)})
    assert opened.encode("a cat").ids == TextPrompts(task.tokenized).encode("a cat")[0], "without [CLS] and [SEP]"


def test_a_comparison_in_tokens(bpe: Path, cache: Path, tmp_path: Path) -> None:
    notes, out = tmp_path / "notes.txt", tmp_path / "results"
    notes.write_text(LINES, encoding="utf-8", newline="")
    given: dict[str, Any] = {"lengths": [24], "trained": (16,), "steps": 2, "files": [notes], "progress": False}
    results = ww.compare(["none"], "text", seeds=1, out=out, workers=1, tokenizer=bpe.parent, **given, **SMALL)
    task = results.task
    assert task.tokenized is not None
    count = len(texts.load(bpe).encode(LINES).ids)
    assert (task.tokenized.tokens, task.tokenized.tokenizer) == (count, str(bpe.resolve()))
    assert json.loads((out / "results.json").read_text())["task"]["tokenized"]["tokens"] == count
    request = results.record.request
    assert request is not None
    assert (request.files, request.tokenizer) == ((str(notes),), str(bpe.parent))
    assert len(list(cache.glob("*.ids"))) == 1
    assert f"{count:,} tokens of {bpe.parent.name}/tokenizer.json, of" in scope_sentence(results)
    with pytest.raises(ww.errors.ResultsError, match="another comparison: there task_identity is"):
        ww.compare(["none"], "text", seeds=1, out=out, workers=1, **given, **SMALL)
    answers = ww.comparison.ask(results, "the cat")
    assert list(answers.ids) == texts.load(bpe).encode("the cat").ids
    assert sum(one.probability for one in answers.answers[0].top) <= 1
    # It is a text: the page asks its models too, and shows no other text beside it.
    session = Session.open(out)
    shown = ask_view.answers(session, {"text": "the cat", "seeds": "0", "positions": ""})
    assert len(shown.answers.tokens) == len(answers.ids)
    assert "text" not in [part.name for part in sections(results)]
    said = str([part.parts for part in sections(results) if part.name == "scores"])
    assert "frequency of tokens: every token by its share" in said
    table = summary(results)
    score = results.score("none", None)
    assert score is not None
    ids = texts.load(bpe).encode(LINES).ids
    tested = ids[count * 9 // 10 + 1 :][:96]  # as many as windows of 16 and of 24 fill
    size = sum(len(bytes_of(bpe, n)) for n in tested) / len(tested)
    assert task.bytes_per_token[16] == pytest.approx(size)
    printed = float(table.rows[0][-1].replace("\u2212", "-"))
    assert printed == pytest.approx(score.median / np.log(2) / size, abs=0.005)
    assert "".join(ww.comparison.ask(results, "the cat").tokens) == "the cat", "not as the vocabulary spells them"
    for text in ("The cat  sat.", "import os"):  # the tokenizer splits what is no token of the vocabulary
        ids, run = list(ww.comparison.ask(results, text).ids), session.of_run("none-0")
        assert ids == texts.load(bpe).encode(text).ids
        assert json_of("encode", text, "--from", out)["ids"] == ids
        assert QUERIES["pipeline.read"](run, {"text": text, "tokens": "loaded"}).ids.tolist() == ids
        assert texts.encode(run.subject.tokenizer, text)[0] == ids, "of the views of tokens and of the map"
    assert "The tokenizer splits it into 6: 'i' (#" in error_of("neighbors", out, "import")
    bpe.write_text(bpe.read_text() + " ")
    with pytest.raises(ww.errors.TextError, match="has changed since the text was tokenized"):
        ww.comparison.ask(results, "the cat")
    assert "has changed since the text was tokenized, so a text cannot be read" in error_of(
        "encode", "a", "--from", out
    )


def test_a_folder_that_cannot_be_written_is_said(bpe: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ww.errors.ResultsError, match="XDG_CACHE_HOME"):
        tokenized(in_memory(LINES.encode()), bpe, tmp_path / "file" / "below")
