"""Types (word start, continuation, number, ...), texts and scripts of the tokens of a vocabulary."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal

from whatwhere.escape import byte_alphabet

Marking = Literal["bytes", "sentencepiece", "wordpiece", "plain"]

TOKEN_TYPES = (
    "word start", "continuation", "word", "number", "punctuation", "symbol", "whitespace", "byte", "control",
    "special", "no token",
)  # fmt: skip
NO_LETTERS, MIXED = "no letters", "mixed"

_SHARE = 0.05
"""The least share of tokens with a marker: a plain list of words has a few such tokens by chance."""
_SPECIAL = re.compile(
    r"\[/?[A-Z_]{3,}\]|\[(unused|control_)\d+\]|</?[A-Za-z_][^<>\s]*>|<[|｜].*[|｜]>|>>[A-Z_]+<<", re.DOTALL
)
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
"""A byte, as SentencePiece writes it, and we show it."""
_SCRIPTS = {
    "CJK": "Han", "IDEOGRAPHIC": "Han", "KATAKANA-HIRAGANA": "Katakana", "HENTAIGANA": "Hiragana", "COMBINING": "",
    "VARIATION": "", "MODIFIER": "", "ZERO": "",
}  # fmt: skip
"""First words of Unicode names that are not the name of a script -> the script; "" for characters of any script."""


def marking(words: Sequence[str]) -> Marking:
    """Return how a vocabulary marks where words begin.

    bytes           "Ġthe": each character encodes a byte, a space is Ġ (GPT-2, Llama 3, Qwen)
    sentencepiece   "▁the": a space is U+2581, and "<0x0A>" is a byte (Llama 2, T5, Gemma; BERT in GGUF)
    wordpiece       "##ing": continuations are marked (BERT)
    plain           no marker: a list of words
    """
    known = {word for word in words if word}
    if byte_alphabet().keys() <= known:
        return "bytes"
    least = max(1, _SHARE * len(known))
    marks: list[tuple[Marking, str]] = [("bytes", "Ġ"), ("sentencepiece", "▁"), ("wordpiece", "##")]
    most = max(marks, key=lambda mark: sum(word.startswith(mark[1]) for word in known))
    if sum(word.startswith(most[1]) for word in known) >= least:
        return most[0]
    return "sentencepiece" if any(BYTE.fullmatch(word) for word in known) else "plain"


def texts(words: Sequence[str], marked: Marking | None = None) -> list[str | bytes]:
    """Return the text of each token, with its leading space; bytes if they are not complete UTF-8."""
    how = marking(words) if marked is None else marked
    return [_text(word, how) for word in words]


def shown_texts(tokens: Sequence[str], vocabulary: Iterable[str]) -> list[str | None]:
    """Return the text of each token, with its leading space; None where its bytes are not UTF-8."""
    return [text if isinstance(text, str) and text else None for text in texts(tokens, marking(list(vocabulary)))]


def token_types(words: Sequence[str], marked: Marking | None = None) -> list[str]:
    """Return the type of each token, one of TOKEN_TYPES.

    word start, continuation   has a letter, in a vocabulary that marks one or the other
    word                       has a letter, in a vocabulary that marks neither
    number                     has a digit and no letter
    byte                       part of a UTF-8 character
    control                    invisible characters
    special                    looks like [CLS], </s> or <|endoftext|>
    no token                   the empty string
    """
    how = marking(words) if marked is None else marked
    return [_token_type(word, _text(word, how), how) for word in words]


def scripts(words: Sequence[str], marked: Marking | None = None) -> list[str]:
    """Return the script of each token, such as Latin, Han or Cyrillic; or NO_LETTERS or MIXED.

    The script is the first word of the Unicode name of each letter, after compatibility normalization (NFKC).
    """
    how = marking(words) if marked is None else marked
    return [_script(word, _text(word, how)) for word in words]


def _text(word: str, how: Marking) -> str | bytes:
    if _SPECIAL.fullmatch(word):
        return word
    if how == "sentencepiece":
        byte = BYTE.fullmatch(word)
        return bytes([int(byte[1], 16)]) if byte else word.replace("▁", " ")
    if how == "wordpiece":
        return word[2:] if word.startswith("##") and len(word) > 2 else word
    alphabet = byte_alphabet()
    if how == "plain" or any(char not in alphabet for char in word):  # such as added tokens, which are plain text
        return word
    raw = bytes(alphabet[char] for char in word)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


def _token_type(word: str, text: str | bytes, how: Marking) -> str:
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
        return _position_in_word(word, text, how)
    if "N" in classes:
        return "number"
    if classes <= {"C", "Z"}:
        return "control"
    if "P" in classes or text.isascii():
        return "punctuation"
    return "symbol" if "S" in classes else _position_in_word(word, text, how)  # combining marks alone


def _position_in_word(word: str, text: str, how: Marking) -> str:
    if how == "plain":
        return "word"
    starts = not word.startswith("##") if how == "wordpiece" else text[0].isspace()
    return "word start" if starts else "continuation"


def _script(word: str, text: str | bytes) -> str:
    if isinstance(text, bytes) or _SPECIAL.fullmatch(word):
        return NO_LETTERS
    distinct = {script for char in unicodedata.normalize("NFKC", text) if (script := _script_of(char))}
    return distinct.pop() if len(distinct) == 1 else MIXED if distinct else NO_LETTERS


@cache
def _script_of(char: str) -> str:
    if unicodedata.category(char)[0] not in "LM":
        return ""
    first = unicodedata.name(char, "").split(" ")[0]
    return _SCRIPTS.get(first, first.capitalize())
