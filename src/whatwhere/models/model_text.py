"""A text in a model's own tokens, rows and positions: of a checkpoint, or of a run of a comparison."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whatwhere.analysis.token_types import marking, shown_texts, texts
from whatwhere.errors import SettingError, TextError, TokenError, WhatWhereError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import table_name, word_of
from whatwhere.models.load_where import TOKENS, chosen_run, default_heads, load_where

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.analysis.walkthrough import Walkthrough
    from whatwhere.models.load_where import LoadedWhere
    from whatwhere.what.embedding import TokenEmbedding

_PASS_IDS = "Pass ids, as in --ids 105,6587, or put tokenizer.json beside the weights."


def walk_model(
    source: Checkpoint | str | Path,
    text: str | None = None,
    *,
    ids: Sequence[int] | None = None,
    run: str | None = None,
    scheme: str | None = None,
    seed: int = 0,
) -> "Walkthrough":
    """Compute the input vectors of a text with a model's own tokenizer, token rows, their factor, and positions.

    Only the rows of the text's tokens are read. What a model adds behind that sum, such as a norm, is not built, and
    noted.

    Args:
        source: a checkpoint, or its path: a model, a file of vectors, or a folder of `whatwhere compare`.
        text: the input; pass either this or `ids`.
        ids: token ids, which need no vocabulary.
        run: of a comparison, such as "rotary-0"; it may be None where there is only one.
        scheme: another positional encoding, of the catalogue; None is the model's own.
        seed: of the parameters of such a scheme.

    Returns:
        The vectors after each step.

    Raises:
        TextError: If both text and ids are passed, or neither; or the text cannot be encoded.
        TokenError: If an id lies outside the table.
        SettingError: If a comparison has several runs and none is named, or no such run.
        CheckpointError: If the files cannot be read, or have no token table.

    Examples:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp(), "two.vec")
        >>> _ = path.write_text("2 3\\nking 1 2 3\\nqueen 4 5 6\\n")
        >>> steps = walk_model(path, "queen king")
        >>> steps.ids, steps.vectors.tolist()
        ([1, 0], [[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]])
    """
    from whatwhere.analysis.walkthrough import follow

    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint.open(source)
    if (text is None) == (ids is None):
        raise TextError('walk_model needs either a text or ids: "The cat sat on the mat." or ids=[105, 6587].')
    name = chosen_run(checkpoint, run)
    tensor = table_name(checkpoint, "input") if name is None else name + TOKENS
    numbers, tokens, tokenizer = _read(checkpoint, text, ids)
    where, notes = _positions(checkpoint, name, tensor, scheme, len(numbers), seed)
    factor = 1.0 if name is not None else token_factor(checkpoint)
    if factor is None and checkpoint.config is not None:
        notes.append("the factor of the token embeddings is not known, and taken as 1")
    table = token_rows(checkpoint, tensor, numbers, factor or 1.0)
    return follow(
        table,
        where.where,
        range(len(numbers)),
        numbers,
        tokens=tokens,
        scheme=where.title,
        tokenizer=tokenizer,
        table_name=tensor,
        notes=notes,
        texts=None if tokens is None else shown_texts(tokens, checkpoint.words or ()),
    )


def reader_of(checkpoint: Checkpoint) -> "Tokenizer | None":
    """Return what encodes texts: the checkpoint's tokenizer, else, of a list of words, one of these; None without both.

    Args:
        checkpoint: of the model.

    Returns:
        A tokenizer that neither truncates nor pads.
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
    """Return whether whole words are looked up in the vocabulary, for want of a tokenizer.

    Args:
        checkpoint: of the model.
    """
    words = checkpoint.words
    known = are_expressions(words or ()) or _are_bytes(words) or _are_characters(checkpoint)
    return bool(words) and checkpoint.tokenizer is None and not known


def encode_text(checkpoint: Checkpoint, reader: "Tokenizer", text: str) -> tuple[list[int], list[str]]:
    """Encode a text for a checkpoint.

    Args:
        checkpoint: of the model.
        reader: of `reader_of`.
        text: to encode.

    Returns:
        The ids, and the tokens as the vocabulary writes them.

    Raises:
        TextError: If the text is empty, or has a part for which there is no token.
    """
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
    """Return the factor by which a model multiplies its token embeddings, or None where that is not known.

    Args:
        checkpoint: of the model.
    """
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
    """Read the rows of some tokens, as a table that multiplies them as the model does.

    Args:
        checkpoint: of the model.
        tensor: name of the token table.
        ids: of the tokens.
        factor: of the model's token embeddings.

    Raises:
        TokenError: If an id lies outside the table.
    """
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
    """Return whether a vocabulary is that of the first tutorial's expressions.

    Args:
        words: the tokens by id.
    """
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


def _read(
    checkpoint: Checkpoint, text: str | None, ids: Sequence[int] | None
) -> tuple[list[int], list[str] | None, str]:
    """Return ids, tokens, and what made them."""
    words = checkpoint.words or []
    if text is None:
        numbers = list(ids or ())
        if not numbers or min(numbers) < 0:
            raise TokenError(f"ids are whole numbers from 0, at least one, but got {numbers}.")
        return numbers, [word_of(words, n) for n in numbers] if words else None, "none: ids were given"
    reader = reader_of(checkpoint)
    if reader is None:
        raise TextError(f"{no_reader(checkpoint)}.\n{_PASS_IDS}")
    numbers, tokens = encode_text(checkpoint, reader, text)
    if checkpoint.tokenizer is not None:
        return numbers, tokens, "the model's own"
    if not looks_up(checkpoint):
        return numbers, tokens, "that of the comparison's task"
    return numbers, tokens, f"{checkpoint.why_no_tokenizer}: each word is looked up whole in its vocabulary"


def _positions(
    checkpoint: Checkpoint, run: str | None, tensor: str, scheme: str | None, length: int, seed: int
) -> "tuple[LoadedWhere, list[str]]":
    """Return the positional encoding, and sentences on what it is not."""
    from whatwhere.analysis.walkthrough import random_scheme
    from whatwhere.models.load_where import LoadedWhere
    from whatwhere.where.binding import Where
    from whatwhere.where.catalogue import canonical_name

    dim = checkpoint.entry(tensor).shape[1]
    heads = default_heads(checkpoint, dim)
    if scheme is not None:
        scheme = canonical_name(scheme)
        where = random_scheme(scheme, dim, heads, length, seed)
        random = (
            [f"the parameters of {scheme} are random, seed {seed}"] if any(True for _ in where.parameters()) else []
        )
        return LoadedWhere(scheme, where, dim, heads, dim // heads), random
    try:
        loaded = load_where(checkpoint, run)
    except SettingError as problem:
        if checkpoint.config is not None or run is not None:
            raise
        return LoadedWhere("not known", Where(), dim, heads, dim // heads), [" ".join(str(problem).splitlines()[:1])]
    return loaded, list(loaded.notes)
