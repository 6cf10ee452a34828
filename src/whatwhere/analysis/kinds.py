"""What kind of token each of a vocabulary is, and in which script it is written."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Literal

Marking = Literal["bytes", "sentencepiece", "wordpiece", "plain"]

KINDS = (
    "word start", "continuation", "word", "number", "punctuation", "symbol", "whitespace", "byte", "control",
    "special", "no token",
)  # fmt: skip
NO_LETTERS, MIXED = "no letters", "mixed"

_SHARE = 0.05
"""Of the words that bear a mark, from where on it is one: a list of words has a few that only look marked."""
_SPECIAL = re.compile(
    r"\[/?[A-Z_]{3,}\]|\[(unused|control_)\d+\]|</?[A-Za-z_][^<>\s]*>|<[|｜].*[|｜]>|>>[A-Z_]+<<", re.DOTALL
)
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SCRIPTS = {
    "CJK": "Han", "IDEOGRAPHIC": "Han", "KATAKANA-HIRAGANA": "Katakana", "HENTAIGANA": "Hiragana", "COMBINING": "",
    "VARIATION": "", "MODIFIER": "", "ZERO": "",
}  # fmt: skip
"""First words of the names of characters that are not the script's own; "" belongs to any."""


@cache
def byte_alphabet() -> dict[str, int]:
    """Give the character that stands for each byte in the vocabularies of GPT-2, Llama 3 and Qwen.

    Bytes that print stand for themselves; the other 68 take the characters from U+0100 on, in order, so that the blank
    is Ġ. This is GPT-2's own table, https://github.com/openai/gpt-2.

    >>> byte_alphabet()["Ġ"], byte_alphabet()["a"], len(byte_alphabet())
    (32, 97, 256)
    """
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + n): byte for n, byte in enumerate(others)}


def marking(words: Sequence[str]) -> Marking:
    """Tell how a vocabulary says where words begin.

    bytes           "Ġthe": each character stands for a byte, that of the blank is Ġ (GPT-2, Llama 3, Qwen)
    sentencepiece   "▁the": the blank is U+2581, and "<0x0A>" is a byte (Llama 2, T5, Gemma; BERT in GGUF)
    wordpiece       "##ing": what continues a word is marked (BERT)
    plain           nothing is marked: a list of words

    >>> marking(["the", "play", "##ing"])
    'wordpiece'
    """
    known = {word for word in words if word}
    if byte_alphabet().keys() <= known:
        return "bytes"
    least = max(1, _SHARE * len(known))
    marks: list[tuple[Marking, str]] = [("bytes", "Ġ"), ("sentencepiece", "▁"), ("wordpiece", "##")]
    most = max(marks, key=lambda mark: sum(word.startswith(mark[1]) for word in known))
    if sum(word.startswith(most[1]) for word in known) >= least:
        return most[0]
    return "sentencepiece" if any(_BYTE.fullmatch(word) for word in known) else "plain"


def texts(words: Sequence[str], marked: Marking | None = None) -> list[str | bytes]:
    """Give the text that each token stands for, with its leading blank; bytes where they are no whole characters.

    Args:
        words: the vocabulary, by id.
        marked: how; None is what `marking` finds.

    >>> texts(["Ġthe", "ing", "<|endoftext|>", "Ã"], "bytes")
    [' the', 'ing', '<|endoftext|>', b'\\xc3']
    """
    how = marking(words) if marked is None else marked
    return [_text(word, how) for word in words]


def kinds(words: Sequence[str], marked: Marking | None = None) -> list[str]:
    """Give the kind of each token, one of KINDS.

    "word start" and "continuation" have a letter, in vocabularies that mark one or the other; "word" has one in those
    that mark neither. "number" has a digit and no letter; "byte" is a byte that is no character of its own, "control"
    an invisible character; "special" looks like [CLS], </s> or <|endoftext|>; "no token" is "".

    >>> kinds(["Ġthe", "ing", "Ġ1999", "!", "Ċ", "Ã", "<|endoftext|>"])
    ['word start', 'continuation', 'number', 'punctuation', 'whitespace', 'byte', 'special']
    """
    how = marking(words) if marked is None else marked
    return [_kind(word, _text(word, how), how) for word in words]


def scripts(words: Sequence[str], marked: Marking | None = None) -> list[str]:
    """Give the script that each token is written in: Latin, Han, Cyrillic, ...; NO_LETTERS, or MIXED.

    The script is read off the Unicode name of each letter, compatibility forms (fullwidth, mathematical) taken for
    what they stand for.

    >>> scripts(["##東", "дом", "king", "##1", "µm"])
    ['Han', 'Cyrillic', 'Latin', 'no letters', 'mixed']
    """
    how = marking(words) if marked is None else marked
    return [_script(word, _text(word, how)) for word in words]


def _text(word: str, how: Marking) -> str | bytes:
    if _SPECIAL.fullmatch(word):
        return word
    if how == "sentencepiece":
        byte = _BYTE.fullmatch(word)
        return bytes([int(byte[1], 16)]) if byte else word.replace("▁", " ")
    if how == "wordpiece":
        return word[2:] if word.startswith("##") and len(word) > 2 else word
    alphabet = byte_alphabet()
    if how == "plain" or any(char not in alphabet for char in word):  # such as added tokens, which are text
        return word
    raw = bytes(alphabet[char] for char in word)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _kind(word: str, text: str | bytes, how: Marking) -> str:
    if not word:
        return "no token"
    if _SPECIAL.fullmatch(word):
        return "special"
    if isinstance(text, bytes):
        return "byte"
    if text.isspace():
        return "whitespace"
    classes = {unicodedata.category(char)[0] for char in text.strip()}
    if "L" in classes:
        return _place(word, text, how)
    if "N" in classes:
        return "number"
    if classes <= {"C", "Z"}:
        return "control"
    if "P" in classes or text.isascii():
        return "punctuation"
    return "symbol" if "S" in classes else _place(word, text, how)  # combining marks alone


def _place(word: str, text: str, how: Marking) -> str:
    if how == "plain":
        return "word"
    starts = not word.startswith("##") if how == "wordpiece" else text[0].isspace()
    return "word start" if starts else "continuation"


def _script(word: str, text: str | bytes) -> str:
    if isinstance(text, bytes) or _SPECIAL.fullmatch(word):
        return NO_LETTERS
    found = {script for char in unicodedata.normalize("NFKC", text) if (script := _script_of(char))}
    return found.pop() if len(found) == 1 else MIXED if found else NO_LETTERS


@cache
def _script_of(char: str) -> str:
    if unicodedata.category(char)[0] not in "LM":
        return ""
    first = unicodedata.name(char, "").split(" ")[0]
    return _SCRIPTS.get(first, first.capitalize())
