"""A text in a model's own tokens, rows and positions: of a checkpoint, or of a run of a comparison."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from whatwhere.errors import TextError, TokenError, WhatWhereError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.token_types import marking, texts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.what.embedding import TokenEmbedding


def reader_of(checkpoint: Checkpoint) -> "Tokenizer | None":
    """Return what encodes texts: the checkpoint's tokenizer, else, of a list of words, one of these; None without both.

    The tokenizer neither truncates nor pads.
    """
    if checkpoint.tokenizer is not None:
        return checkpoint.tokenizer
    words = checkpoint.words or []
    if checkpoint.format in ("folder", "safetensors", "configuration") or (
        checkpoint.format == "gguf" and marking(words) == "bytes"
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
    """Read the rows of some tokens, as a table that multiplies them as the model does."""
    import torch

    from whatwhere.what.embedding import TokenEmbedding

    rows, dim = checkpoint.entry(tensor).shape
    if (largest := max(ids)) >= rows:
        raise TokenError(f"id {largest} lies outside the table, which has {rows:,} rows (0..{rows - 1:,}).")
    weight = np.asarray(checkpoint.array(tensor, rows=list(ids)), np.float32)
    table = TokenEmbedding(len(weight), dim, scale=factor, device="meta")
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
