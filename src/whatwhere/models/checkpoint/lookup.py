"""Look up tokens by text or id, and read tables by role or name, without their non-finite rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from math import prod

import numpy as np
from jaxtyping import Int64

from whatwhere import large_arrays
from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.escape import byte_alphabet, quoted, readable_token, shown_token
from whatwhere.large_arrays import finite_rows, new_array, row_blocks, rows_at_a_time, selected_rows
from whatwhere.models.checkpoint.checkpoint import Checkpoint
from whatwhere.models.checkpoint.folder import TABLE
from whatwhere.models.model_text import BYTE, Marking, marking, texts
from whatwhere.what.text import ids_of_each, single_token

TABLES = ("input", "output")  # the token table, and the output projection (`lm_head`)
CHANGE, BEFORE = "change", "@0"
"""What training changed of the token table, E - E0; and the end of the name under which runs keep E0."""

_BY_ROWS = ("safetensors", "folder", "gguf")  # formats of which some rows are read without the others
_PRINTED = re.compile("[␣↵⇥␍◌⟨]|<0x")  # what is only in tokens as they are printed; see `escape`
_MAX_SIMILAR = 5000
_MAX_LENGTH_DIFFERENCE = 2  # maximum difference in length of a similar token: a wider search takes seconds


@dataclass(frozen=True, eq=False)
class Table:
    """The finite rows of a table, their ids and their tokens."""

    name: str
    dtype: str
    weight: np.ndarray
    ids: Int64[np.ndarray, " rows"]
    broken: Int64[np.ndarray, " broken"]  # of rows with NaN or infinity, which have no distance to any
    words: Sequence[str]  # by id, as the vocabulary writes them; may be fewer than rows

    def word(self, row: int) -> str:
        """Return the name of a row: its token, or #id if no token has this id."""
        return word_of(self.words, int(self.ids[row]))

    def readable(self, row: int) -> str:
        """Return the token of a row as people read it: its text, with a leading space; see `shown_token`."""
        word = self.word(row)
        (meant,) = texts([word], self.marking)
        return readable_token(word, meant if isinstance(meant, str) else None)

    @cached_property
    def marking(self) -> Marking:
        """How the vocabulary marks the beginnings of words."""
        return marking(self.words)

    def row(self, number: int) -> int:
        """Return the row of `weight` for an id; raise TokenError if it has none."""
        row = int(np.searchsorted(self.ids, number))
        if row < len(self.ids) and self.ids[row] == number:
            return row
        if number in self.broken:
            raise TokenError(
                f"the row of {quoted(word_of(self.words, number))} (#{number}) holds numbers that are not finite, "
                "so it cannot be compared.\nChoose another token."
            )
        raise TokenError(f"id {number} lies outside {quoted(self.name)}, which has {self.rows:,} rows.")

    @property
    def rows(self) -> int:
        """The number of rows of the table, including those that are not finite."""
        return len(self.ids) + len(self.broken)


def word_of(words: Sequence[str], number: int) -> str:
    """Return the name of an id: its token, or #id if no token has it."""
    return words[number] if number < len(words) and words[number] else f"#{number}"


def spellings(word: str) -> tuple[str, ...]:
    """Return the tokens by which vocabularies spell a word that follows a space."""
    return f"Ġ{word}", f"▁{word}", word


def find_token(checkpoint: Checkpoint, text: str, rows: int | None = None) -> int:
    """Return the id of a token, by its text or its number.

    `#123` is always the id 123. Any other text is the token that the tokenizer encodes it to, if that is a single one;
    else the one that it encodes the text after a space to. So "king" is the token "king", or else "Ġking" or "▁king".
    Last, and alone without a tokenizer, the text is looked up as the vocabulary would write it, with and without that
    space, as it is, and as tokens are printed: "Ġking", "##ing", "<0x0A>" and "␣king" are found too, and " #5" is the
    token "#5". But a letter by which a vocabulary of bytes writes one is not text: "é" is the byte 0xE9 there, which is
    "<0xE9>". None of `rows` is those of the token table.

    Raises:
        TokenError: If there is no such token, several rows have it as their word, or the table has no row for it.
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
        way_out = "put the tokenizer's files beside the weights"
        if ".vectors" in checkpoint.path.name and checkpoint.format == "npy":  # of gensim
            way_out = (
                "write words too: KeyedVectors.load(FILE_BESIDE_IT).save_word2vec_format('vectors.bin', binary=True)"
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
    """Return the name of a table: "input" is the token table, "output" the output projection; any other is its own."""
    if which in TABLES and len(names := checkpoint.runs) > 1:
        raise SettingError(
            f"{checkpoint.path} has {len(names)} runs, each with tables of its own.\nPass the file of one, as in "
            f"models/{names[0]}.safetensors, or the name of a table: {quoted(f'{names[0]}/{TABLE}')}."
        )
    table = checkpoint.model(None).token_table if which in TABLES else None
    if which == "input":
        if table is None:
            tables = [name for name, entry in checkpoint.tensors.items() if len(entry.shape) == 2]
            more = f" and {len(tables) - 6:,} more" if len(tables) > 6 else ""
            named = ", ".join(map(quoted, tables[:6])) or "none"
            raise checkpoint.without_table(f"Pass its name: --table NAME, of {named}{more}.")
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
    if len((entry := checkpoint.entry(which)).shape) != 2:
        raise SettingError(
            f"{quoted(which)} has the shape {entry.shape}, but a table has (rows, dim).\n"
            "Pass --table input, output, or the name of a tensor of two dimensions."
        )
    return which


def read_table(checkpoint: Checkpoint, which: str = "input") -> Table:
    """Read a table without the rows that hold NaN or infinity; "change" is the token table less that before training.

    Raises:
        CheckpointError: If there is no such table, it cannot be read, or the one before training was not kept.
    """
    if which == CHANGE and which not in checkpoint.tensors:
        return _change(checkpoint)
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


def _change(checkpoint: Checkpoint) -> Table:
    after = read_table(checkpoint)
    if (start := f"{after.name}{BEFORE}") not in checkpoint.tensors:
        raise CheckpointError(
            f"{checkpoint.path} has no token table from before training, so nothing says what training changed: runs "
            "of whatwhere compare keep it.\nPass --table input."
        )
    before = checkpoint.array(start)[after.ids]
    return replace(after, name=f"{after.name} - {start}", weight=after.weight - before)


def read_rows(checkpoint: Checkpoint, name: str) -> np.ndarray:
    """Read a tensor as `Checkpoint.array` does, but one that is large when widened into a scratch file, by blocks."""
    shape = checkpoint.entry(name).shape
    if len(shape) != 2 or prod(shape) * 8 < large_arrays.SCRATCH_FROM or checkpoint.format not in _BY_ROWS:
        return checkpoint.array(name)
    table = new_array(shape, checkpoint.array(name, slice(0, 1)).dtype)
    for part in row_blocks(shape[0], rows_at_a_time(shape[1])):
        table[part] = checkpoint.array(name, part)
    return table


def _id_of(checkpoint: Checkpoint, words: Sequence[str], text: str) -> int | None:
    if not text:
        return None
    tokenizer = checkpoint.tokenizer
    for variant in (text, f" {text}"):
        number = None if tokenizer is None else single_token(tokenizer, variant)
        if number is not None and number < len(words):
            return number
    forms = _written_forms(text, marked := _marking(checkpoint, words))
    forms += [text[1:]] if text.startswith(" #") else []
    found = next((form for form in forms if form in words), None)
    same = [number for number, word in enumerate(words) if word == found]
    if found is None and _PRINTED.search(text):
        same = [n for n, meant in enumerate(texts(words, marked)) if words[n] and _shown(words[n], meant) == text]
    if len(same) > 1:
        ids = ", ".join(f"#{number}" for number in same[:6])
        raise TokenError(f"{quoted(text)} is the word of {len(same)} rows, first {ids}.\nPass one of these ids.")
    return next(iter(same), None)


def _shown(word: str, meant: str | bytes) -> str:
    return shown_token(word, meant if isinstance(meant, str) else None)


def _marking(checkpoint: Checkpoint, words: Sequence[str]) -> Marking:
    """Return how words are marked; what turns bytes into text tells it of a vocabulary with few marks."""
    decoder = None if checkpoint.tokenizer is None else checkpoint.tokenizer.decoder
    return "bytes" if type(decoder).__name__ == "ByteLevel" else marking(words)


def _written_forms(text: str, marked: Marking) -> list[str]:
    """Return how a vocabulary may write a text, with and without a marker for a space before it, and the text."""
    if marked == "bytes":
        letters = {byte: letter for letter, byte in byte_alphabet().items()}
        forms = ["".join(letters[byte] for byte in one.encode(errors="surrogatepass")) for one in (text, f" {text}")]
        if byte := BYTE.fullmatch(text):
            forms.append(letters[int(byte[1], 16)])
        (meant,) = texts([text], marked)
        # "Ġthe" can only be meant as it is written; without the marker, letters of bytes may be those of the text.
        spelled = text[0] == "Ġ" and isinstance(meant, str) and not meant.isspace()
        return [*forms, text] if spelled or meant == text else forms
    if marked == "sentencepiece":
        return [text, text.replace(" ", "▁"), f"▁{text.replace(' ', '▁')}"]
    return [text, text.strip()]


def _unknown(checkpoint: Checkpoint, words: Sequence[str], text: str) -> str:
    if not text:
        return "a token is looked up by its text or id, but the text is empty.\nPass a text such as king, or '#123'."
    message, marked = f"no token of {checkpoint.path} is {quoted(text)}.", _marking(checkpoint, words)

    def shown(number: int) -> str:
        word = word_of(words, number)
        return f"'{_shown(word, *texts([word], marked))}' (#{number})"

    pieces = [] if checkpoint.tokenizer is None else ids_of_each(checkpoint.tokenizer, [text])[0]
    if len(pieces) > 1:
        more = f" and {len(pieces) - 6:,} more" if len(pieces) > 6 else ""
        message += f"\nThe tokenizer splits it into {len(pieces)}: {', '.join(map(shown, pieces[:6]))}{more}."
    if text in words:
        return f"{message}\nThe vocabulary writes {shown(words.index(text))} so: pass that id if you mean it."
    similar = _similar(words, text, marked)
    hint = f"Similar are {', '.join(map(quoted, similar))}." if similar else "Pass an id, as in '#123'."
    return f"{message}\n{hint}"


def _similar(words: Sequence[str], text: str, marked: Marking) -> list[str]:
    """Return up to three similar tokens of about the same length; of a large vocabulary, with the same first letter."""
    plain, few = text.strip().lower(), len(words) <= _MAX_SIMILAR
    candidates: dict[str, str] = {}
    for word, meant in zip(words, texts(words, marked), strict=True):
        bare = meant.strip() if isinstance(meant, str) else ""
        if bare and (few or bare[:1].lower() == plain[:1]) and abs(len(bare) - len(plain)) <= _MAX_LENGTH_DIFFERENCE:
            candidates.setdefault(bare.lower(), word if marked == "wordpiece" else bare)
            if len(candidates) == _MAX_SIMILAR:
                break
    return [candidates[bare] for bare in get_close_matches(plain, candidates, n=3, cutoff=0.6)]
