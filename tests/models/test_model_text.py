"""Kinds and scripts: on vocabularies of each marking, against other people's tables."""

import json
from pathlib import Path

import pytest
from transformers.models.gpt2 import tokenization_gpt2

from whatwhere.models.model_text import MIXED, NO_LETTERS, TOKEN_TYPES, marking, scripts, token_types
from whatwhere.what.text import byte_alphabet


def gpt2_bytes() -> dict[int, str]:
    """Return transformers' table of byte characters, wherever this version keeps it."""
    from transformers import convert_slow_tokenizer

    for module in (tokenization_gpt2, convert_slow_tokenizer):
        if hasattr(module, "bytes_to_unicode"):
            return dict(module.bytes_to_unicode())
    pytest.skip("this version of transformers has no such table")


def test_the_byte_alphabet_is_gpt2s() -> None:
    assert {byte: char for char, byte in byte_alphabet().items()} == gpt2_bytes()


WORDS = {
    "bytes": {
        "Ġthe": ("word start", "Latin"), "the": ("continuation", "Latin"), "Ġ12": ("number", NO_LETTERS),
        "ĠÐ´Ð¾Ð¼": ("word start", "Cyrillic"), "æĹ¥": ("continuation", "Han"), "æ": ("byte", NO_LETTERS),
        "ĊĊ": ("whitespace", NO_LETTERS), "Ġ(": ("punctuation", NO_LETTERS), "Ā": ("control", NO_LETTERS),
        "<|endoftext|>": ("special", NO_LETTERS), "": ("no token", NO_LETTERS), "âĤ¬": ("symbol", NO_LETTERS),
    },
    "sentencepiece": {
        "▁the": ("word start", "Latin"), "ing": ("continuation", "Latin"), "<0x0A>": ("byte", NO_LETTERS),
        "▁▁": ("whitespace", NO_LETTERS), "</s>": ("special", NO_LETTERS), "▁2": ("number", NO_LETTERS),
        "日": ("continuation", "Han"), "<extra_id_0>": ("special", NO_LETTERS), "▁ελ": ("word start", "Greek"),
    },
    "wordpiece": {
        "play": ("word start", "Latin"), "##ing": ("continuation", "Latin"), "##1": ("number", NO_LETTERS),
        "[CLS]": ("special", NO_LETTERS), "[unused7]": ("special", NO_LETTERS), "##。": ("punctuation", NO_LETTERS),
        "##": ("punctuation", NO_LETTERS), "ا": ("word start", "Arabic"), "##ლ": ("continuation", "Georgian"),
        "~": ("punctuation", NO_LETTERS), "∂": ("symbol", NO_LETTERS),
    },
    "plain": {
        "the": ("word", "Latin"), "New York": ("word", "Latin"), "1,000": ("number", NO_LETTERS),
        "don't": ("word", "Latin"), "...": ("punctuation", NO_LETTERS), "Ｋ": ("word", "Latin"),
        "Tシャツ": ("word", MIXED), "हिन्दी": ("word", "Devanagari"), "한국": ("word", "Hangul"),
    },
}  # fmt: skip


@pytest.mark.parametrize("marked", WORDS)
def test_kinds_and_scripts(marked: str) -> None:
    words = list(WORDS[marked])
    assert marking(words) == marked
    assert dict(zip(words, zip(token_types(words), scripts(words), strict=True), strict=True)) == WORDS[marked]
    assert set(token_types(words)) <= set(TOKEN_TYPES)


def test_a_word_list_that_looks_marked_is_unmarked() -> None:
    words = [f"word{n}" for n in range(200)] + ["##", "Ġorn", "▁"]
    assert marking(words) == "plain"


def test_hostile_words_are_only_words() -> None:
    words = ["\ud800", "\u202eabc", "a" * 10_000, "\x1b[31m", "<script>alert(1)</script>", "é" * 3, "\u0301"]
    assert len(token_types(words)) == len(scripts(words)) == len(words)
    assert scripts(words)[1:3] == ["Latin", "Latin"]


def test_a_real_vocabulary(minilm: Path) -> None:
    """Of BERT's vocabulary people know that 994 + 5 are special, and what continues a word begins with ##."""
    words = list(json.loads((minilm / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"])
    named = token_types(words)
    assert named.count("special") == 994 + 5
    continued = [word for word, kind in zip(words, named, strict=True) if kind == "continuation"]
    assert continued
    assert all(word.startswith("##") for word in continued)
    assert {word for word in words if word.startswith("##") and word[2:].isalpha()} <= set(continued)
