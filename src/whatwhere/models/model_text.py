"""The tokens of a vocabulary: their types, texts and scripts; and a text in a model's own tokens and rows."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from whatwhere.errors import TextError, TokenError, WhatWhereError
from whatwhere.escape import byte_alphabet
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.base import NO_TOKENIZER

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.what.embedding import TokenEmbedding

Marking = Literal["bytes", "sentencepiece", "wordpiece", "plain"]

TOKEN_TYPES = (
    "word start", "continuation", "word", "number", "punctuation", "symbol", "whitespace", "byte", "control",
    "special", "no token",
)  # fmt: skip
NO_LETTERS, MIXED = "no letters", "mixed"

_SHARE = 0.05  # the least share of tokens with a marker: a plain list of words has a few such tokens by chance
_SPECIAL = re.compile(
    r"\[/?[A-Z_]{3,}\]|\[(unused|control_)\d+\]|</?[A-Za-z_][^<>\s]*>|<[|｜].*[|｜]>|>>[A-Z_]+<<", re.DOTALL
)
BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # a byte, as SentencePiece writes it, and we show it
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


# Texts


def reader_of(checkpoint: Checkpoint) -> "Tokenizer | None":
    """Return what encodes texts: the checkpoint's tokenizer, else one of its list of words; None without both."""
    if checkpoint.tokenizer is not None:
        return checkpoint.tokenizer
    words = checkpoint.words or []
    if (
        checkpoint.format in ("folder", "safetensors", "configuration")
        or (checkpoint.format == "gguf" and marking(words) == "bytes")
        or (checkpoint.format in ("results", "run") and checkpoint.why_no_tokenizer != NO_TOKENIZER)
    ):
        return None  # the model's tokenizer, which is not built here, may split what would be looked up whole
    return _of_characters(words) if _are_characters(checkpoint) else _of_words(words)


def no_reader(checkpoint: Checkpoint) -> str:
    """Return why a text cannot be read, where `reader_of` returns None."""
    names = "" if checkpoint.words else "this file names no tokens, and "
    return f"{names}{checkpoint.why_no_tokenizer}, so a text cannot be read"


def looks_up(checkpoint: Checkpoint) -> bool:
    """Return whether whole words are looked up in the vocabulary, for want of a tokenizer."""
    words = checkpoint.words
    known = are_expressions(words or ()) or _are_bytes(words) or _are_characters(checkpoint)
    return bool(words) and checkpoint.tokenizer is None and not known


def encode_text(checkpoint: Checkpoint, reader: "Tokenizer", text: str) -> tuple[list[int], list[str]]:
    """Encode a text: the ids, and the tokens as the vocabulary writes them; TextError where a part has no token."""
    from whatwhere.what.text import encode

    if not looks_up(checkpoint):
        return encode(reader, text)
    words = checkpoint.words or []
    try:
        ids, _ = encode(reader, text)
    except TextError as problem:
        raise TextError(
            f"{str(problem).splitlines()[0]}\nWhole words are looked up in the vocabulary, because "
            f"{checkpoint.why_no_tokenizer}: pass others."
        ) from None
    return ids, [words[n] for n in ids]


def token_factor(checkpoint: Checkpoint) -> float | None:
    """Return the factor by which a model multiplies its token embeddings, or None where that is not known."""
    table = checkpoint.token_table
    try:
        scale = checkpoint.description.embedding_scale
    except WhatWhereError:  # no configuration, or one that is not understood
        return None
    if not checkpoint.describes_table:
        return None
    if scale is None or table is None:
        return 1.0
    dim = checkpoint.entry(table).shape[1]
    if scale != "sqrt_dim_rounded":
        return dim**0.5 if isinstance(scale, str) else float(scale)
    import torch

    from whatwhere.what.embedding import TokenEmbedding

    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}
    stored = half.get(checkpoint.entry(table).dtype, torch.float32)
    return float(TokenEmbedding(1, dim, scale=scale, device="meta", dtype=stored).factor or 1.0)


def token_rows(checkpoint: Checkpoint, tensor: str, ids: Sequence[int], factor: float) -> "TokenEmbedding":
    """Read the rows of some tokens, as a table that multiplies them as the model does, and projected as in OPT 350M."""
    import torch

    from whatwhere.what.embedding import TokenEmbedding

    rows = checkpoint.entry(tensor).shape[0]
    if (largest := max(ids)) >= rows:
        raise TokenError(f"id {largest} lies outside the table, which has {rows:,} rows (0..{rows - 1:,}).")
    weight = np.asarray(checkpoint.array(tensor, rows=list(ids)), np.float32)
    for each in checkpoint.token_tables:
        if each.name == tensor and each.kind == "factorized" and not each.between and "bias" not in each.others:
            weight = weight @ np.asarray(checkpoint.array(each.others["projection"]), np.float32).T
    table = TokenEmbedding(len(weight), weight.shape[1], scale=factor, device="meta")
    table.weight = torch.nn.Parameter(torch.from_numpy(weight.copy()), requires_grad=False)
    return table


def are_expressions(words: Sequence[str]) -> bool:
    """Return whether a vocabulary is that of the first tutorial's expressions."""
    from whatwhere.what.expressions import EXPRESSION_TOKENS

    return tuple(words) == EXPRESSION_TOKENS


def _are_bytes(words: Sequence[str] | None) -> bool:
    return words is not None and len(words) == 256 and words[0] == "0x00"  # those of a comparison on text


def _are_characters(checkpoint: Checkpoint) -> bool:
    """Return whether a comparison's task has a token for each character, as recall has."""
    words = checkpoint.words or []
    return checkpoint.format in ("results", "run") and len(words) > 0 and all(len(word) == 1 for word in words)


def _of_characters(words: Sequence[str]) -> "Tokenizer":
    from tokenizers import Regex, pre_tokenizers

    from whatwhere.what import text as tokenizers

    tokenizer = tokenizers.from_vocabulary({word: n for n, word in enumerate(words)})
    each = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), each])
    return tokenizer


def _of_words(words: Sequence[str]) -> "Tokenizer | None":
    from whatwhere.what import text as tokenizers

    if not words:
        return None
    if are_expressions(words):
        from whatwhere.what.expressions import expression_tokenizer

        return expression_tokenizer()
    if _are_bytes(words):
        return tokenizers.train("byte", "a")
    numbered = {word: n for n, word in reversed(list(enumerate(words))) if word}
    for n, each in reversed(list(enumerate(texts(words, marking(words))))):
        # "▁cat" is how a text begins the word cat; "cat" goes on with another.
        if isinstance(each, str) and each[:1] == " " and each[1:].isalnum() and numbered.get(words[n]) == n:
            numbered[each[1:]] = numbered.pop(words[n])
    lower = all(word == word.lower() for word in list(numbered)[:1000])
    return tokenizers.from_vocabulary(numbered, lowercase=lower and all(word == word.lower() for word in numbered))
