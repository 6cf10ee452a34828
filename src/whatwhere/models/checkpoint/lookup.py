"""Look up tokens by text or id, and read tables by role or name, without their non-finite rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from whatwhere.analysis.token_types import marking, texts, token_types
from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Entry
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.what import matrix_file
from whatwhere.what.matrix_file import finite_rows, new_array, row_blocks, rows_at_a_time, selected_rows
from whatwhere.what.text import byte_alphabet, encodings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TABLES = ("input", "output")
"""The token table, and the output projection (`lm_head`)."""

_BY_ROWS = ("safetensors", "folder", "gguf")
"""Formats of which some rows are read without the others."""
_MAX_SIMILAR = 5000
_MAX_LENGTH_DIFFERENCE = 2
"""Maximum difference in length of a similar token: a wider search takes seconds."""


@dataclass(frozen=True, eq=False)
class Table:
    """The finite rows of a table, and their tokens.

    Args:
        name: of the tensor.
        dtype: the stored type.
        weight: the finite rows, in the order of ids.
        ids: of these rows.
        broken: ids of rows with NaN or infinity, which have no distance to any row and are excluded.
        words: the tokens by id, as the vocabulary writes them; there may be fewer than rows.
    """

    name: str
    dtype: str
    weight: np.ndarray
    ids: Int64[np.ndarray, " rows"]
    broken: Int64[np.ndarray, " broken"]
    words: Sequence[str]

    def word(self, row: int) -> str:
        """Return the name of a row: its token, or #id if no token has this id.

        Args:
            row: of `weight`.
        """
        return word_of(self.words, int(self.ids[row]))

    def row(self, number: int) -> int:
        """Return the row of `weight` for an id.

        Args:
            number: the id.

        Raises:
            TokenError: If the id is out of range, or its row is not finite.
        """
        row = int(np.searchsorted(self.ids, number))
        if row < len(self.ids) and self.ids[row] == number:
            return row
        if number in self.broken:
            raise TokenError(
                f"the row of {quoted(word_of(self.words, number))} (#{number}) holds numbers that are not finite, "
                "so it has no neighbors.\nChoose another token."
            )
        raise TokenError(f"id {number} lies outside {quoted(self.name)}, which has {self.rows:,} rows.")

    @property
    def rows(self) -> int:
        """The number of rows of the table, including those that are not finite."""
        return len(self.ids) + len(self.broken)

    def plain_words(self) -> dict[str, int]:
        """Return word -> row, for words without markers: "king" has the row of "Ġking" if there is this token.

        If two tokens have the same text, the one that begins a word is used.
        """
        convention = marking(self.words)
        texts_of = texts(self.words, convention) if convention in ("bytes", "sentencepiece") else self.words
        initial: dict[str, int] = {}
        others: dict[str, int] = {}
        for row, number in enumerate(self.ids.tolist()):
            text = texts_of[number] if number < len(texts_of) else ""
            if isinstance(text, str) and text:
                (initial if text.startswith(" ") else others).setdefault(text.removeprefix(" "), row)
        return others | initial


def word_of(words: Sequence[str], number: int) -> str:
    """Return the name of an id: its token, or #id if no token has it.

    Args:
        words: the tokens by id.
        number: the id.

    Examples:
        >>> word_of(["the", ""], 0), word_of(["the", ""], 1)
        ('the', '#1')
    """
    return words[number] if number < len(words) and words[number] else f"#{number}"


def spellings(word: str) -> tuple[str, ...]:
    """Return the tokens by which vocabularies spell a word that follows a space.

    Args:
        word: in plain letters.

    Examples:
        >>> spellings("king")
        ('Ġking', '▁king', 'king')
    """
    return f"Ġ{word}", f"▁{word}", word


def find_token(checkpoint: Checkpoint, text: str, rows: int | None = None) -> int:
    """Return the id of a token, by its text or its number.

    `#123` is always the id 123. Any other text is looked up in the vocabulary as it is; then encoded by the tokenizer,
    if the result is a single token; then looked up as the vocabulary would write it, with and without a leading space.
    So "king" is the token "king", or else "Ġking" or "▁king".

    Args:
        checkpoint: to search.
        text: of the token, or # and its id.
        rows: number of rows of the table, to which the id must belong; None is that of the token table.

    Returns:
        The id.

    Raises:
        TokenError: If there is no such token, or it has no row.
        CheckpointError: If there is no token table.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp(), "two.vec")
        >>> _ = path.write_text("2 1\\n▁king 1\\n▁queen 2\\n")
        >>> checkpoint = Checkpoint.open(path)
        >>> find_token(checkpoint, "queen"), find_token(checkpoint, "#0")
        (1, 0)
    """
    if rows is None:
        rows = checkpoint.entry(table_name(checkpoint, "input")).shape[0]
    if re.fullmatch(r"#[0-9]{1,18}", text):
        number = int(text[1:])
        if number >= rows:
            raise TokenError(f"id {number} lies outside the table, which has {rows:,} rows (0..{rows - 1:,}).")
        return number
    words = checkpoint.words
    if words is None:
        gensim = ".vectors" in checkpoint.path.name and checkpoint.format == "npy"
        way_out = (
            "write the vectors with their words: KeyedVectors.load(FILE_BESIDE_IT).save_word2vec_format('vectors.bin', "
            "binary=True)"
            if gensim
            else "put the tokenizer's files beside the weights"
        )
        raise TokenError(
            f"{checkpoint.path} has no tokens as text, so {quoted(text)} cannot be looked up.\n"
            f"Pass an id, as in '#123', or {way_out}."
        )
    token_id = _id_of(checkpoint, words, text)
    if token_id is None:
        raise TokenError(_unknown(checkpoint, words, text))
    if token_id >= rows:
        raise TokenError(
            f"{quoted(text)} is token {token_id}, but the table has {rows:,} rows (0..{rows - 1:,}).\n"
            "The tokenizer and the weights do not belong together."
        )
    return token_id


def table_name(checkpoint: Checkpoint, which: str) -> str:
    """Return the name of a table with one row for each token.

    Args:
        checkpoint: that contains it.
        which: "input" is the token table; "output" the output projection, which is the same tensor if the two are
            tied; or the name of a matrix.

    Raises:
        CheckpointError: If there is no such tensor.
        SettingError: If it does not have two dimensions.
    """
    table = checkpoint.token_table
    if which == "input":
        if table is None:
            tables = [name for name, entry in checkpoint.tensors.items() if _is_table(entry)]
            raise checkpoint.without_table(f"Pass its name: --table NAME, of {_first_names(tables)}.")
        return table
    if which == "output":
        output = checkpoint.output_projection or (table if checkpoint.tied else None)
        if output is None and checkpoint.adapter:
            raise checkpoint.without_table("")
        if output is None:
            raise CheckpointError(
                f"{checkpoint.path} has no output projection: no tensor in it maps to logits.\nPass --table input."
            )
        return output
    if which not in checkpoint.tensors:
        checkpoint.entry(which)
    if not _is_table(checkpoint.tensors[which]):
        raise SettingError(
            f"{quoted(which)} has the shape {checkpoint.tensors[which].shape}, but a table has (rows, dim).\n"
            "Pass --table input, output, or the name of a tensor of two dimensions."
        )
    return which


def read_table(checkpoint: Checkpoint, which: str = "input") -> Table:
    """Read a table without the rows that hold NaN or infinity.

    Args:
        checkpoint: that contains it.
        which: as in `table_name`.

    Returns:
        The finite rows, and their tokens.

    Raises:
        CheckpointError: If there is no such table, it does not hold real numbers, or no row is finite.
        SettingError: If it does not have two dimensions.
    """
    name = table_name(checkpoint, which)
    entry = checkpoint.entry(name)
    if 0 in entry.shape:
        raise CheckpointError(f"{quoted(name)} of {checkpoint.path} is empty: its shape is {entry.shape}.")
    if (why := checkpoint.why_unread(name)) is not None:
        checkpoint.require_stored([name])
        raise CheckpointError(f"{quoted(name)} of {checkpoint.path} {why}.\nPass a table in a floating-point type.")
    weight = read_rows(checkpoint, name)
    if weight.dtype.kind not in "fiu":
        raise CheckpointError(f"{quoted(name)} holds {entry.dtype}, but a table of vectors holds real numbers.")
    if weight.dtype.kind in "iu":
        weight = weight.astype(np.float64)
    finite = finite_rows(weight)
    if not finite.any():
        raise CheckpointError(f"every row of {quoted(name)} in {checkpoint.path} holds NaN or infinity.")
    ids = np.flatnonzero(finite)
    return Table(name, entry.dtype, selected_rows(weight, ids), ids, np.flatnonzero(~finite), checkpoint.words or [])


def read_rows(checkpoint: Checkpoint, name: str) -> np.ndarray:
    """Read a tensor as `Checkpoint.array` does, but one that is large when widened into a scratch file, by blocks.

    Args:
        checkpoint: that contains it.
        name: of the tensor.
    """
    shape = checkpoint.entry(name).shape
    if len(shape) != 2 or prod(shape) * 8 < matrix_file.SCRATCH_FROM or checkpoint.format not in _BY_ROWS:
        return checkpoint.array(name)
    table = new_array(shape, checkpoint.array(name, slice(0, 1)).dtype)
    for part in row_blocks(shape[0], rows_at_a_time(shape[1])):
        table[part] = checkpoint.array(name, part)
    return table


def _is_table(entry: Entry) -> bool:
    return len(entry.shape) == 2


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names[:6])) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "") or "none"


def _id_of(checkpoint: Checkpoint, words: Sequence[str], text: str) -> int | None:
    if not text:
        return None
    if text in words:
        return words.index(text)
    tokenizer = checkpoint.tokenizer
    number = None if tokenizer is None else _encoded(tokenizer, words, text)
    if number is not None:
        return number
    return next((words.index(form) for form in _written_forms(words, text) if form in words), None)


def _encoded(tokenizer: "Tokenizer", words: Sequence[str], text: str) -> int | None:
    """Return the id of a text that is encoded as a single known token, otherwise None."""
    for variant in (text, f" {text}"):
        ids = _ids(tokenizer, variant)
        if len(ids) != 1 or not ids[0] < len(words):
            continue
        word = words[ids[0]]
        if word != getattr(tokenizer.model, "unk_token", None) and token_types([word]) != ["special"]:
            return ids[0]
    return None


def _ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Encode a text, without the padding that many tokenizers are configured to add."""
    (encoding,) = encodings(tokenizer, [text])
    return [number for number, mask in zip(encoding.ids, encoding.attention_mask, strict=True) if mask]


def _written_forms(words: Sequence[str], text: str) -> list[str]:
    """Return how a vocabulary may write a text, with and without its marker for a leading space."""
    convention = marking(words)
    if convention == "bytes":
        letters = {byte: letter for letter, byte in byte_alphabet().items()}
        return ["".join(letters[byte] for byte in variant.encode()) for variant in (text, f" {text}")]
    if convention == "sentencepiece":
        return [text.replace(" ", "▁"), f"▁{text.replace(' ', '▁')}"]
    return [text.strip()]


def _unknown(checkpoint: Checkpoint, words: Sequence[str], text: str) -> str:
    if not text:
        return "a token is looked up by its text or id, but the text is empty.\nPass a text such as king, or '#123'."
    message = f"no token of {checkpoint.path} is {quoted(text)}."
    pieces = [] if checkpoint.tokenizer is None else _ids(checkpoint.tokenizer, text)
    if len(pieces) > 1:
        message += f"\nThe tokenizer splits it into {len(pieces)}: {_first_names([word_of(words, n) for n in pieces])}."
    similar = _similar(words, text)
    hint = f"Similar are {', '.join(map(quoted, similar))}." if similar else "Pass an id, as in '#123'."
    return f"{message}\n{hint}"


def _similar(words: Sequence[str], text: str) -> list[str]:
    """Return up to three similar tokens of about the same length; of a large vocabulary, with the same first letter."""
    plain, few = text.strip().lower(), len(words) <= _MAX_SIMILAR
    candidates: dict[str, str] = {}
    for word in words:
        bare = word.lstrip("Ġ▁ ").lower()
        if (few or bare[:1] == plain[:1]) and abs(len(bare) - len(plain)) <= _MAX_LENGTH_DIFFERENCE:
            candidates.setdefault(bare, word)
            if len(candidates) == _MAX_SIMILAR:
                break
    return [candidates[bare] for bare in get_close_matches(plain, candidates, n=3, cutoff=0.6)]
