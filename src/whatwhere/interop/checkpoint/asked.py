"""What a person asks a checkpoint for: a token by its text or number, a table, and the rows of it that can be used."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from whatwhere.analysis.kinds import byte_alphabet, kinds, marking, texts
from whatwhere.errors import CheckpointError, SettingError, TokenError
from whatwhere.interop.checkpoint.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.contents import Entry
from whatwhere.interop.checkpoint.files import shown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TABLES = ("input", "readout")

_BLOCK = 8192
_NEAR = 5000
_LETTERS = 2
"""By how many characters a near name may be longer or shorter: a wider search takes seconds."""


@dataclass(frozen=True, eq=False)
class Table:
    """Hold the rows of a table that are made of finite numbers, and the tokens that they are of.

    Args:
        name: of the tensor.
        dtype: the stored type.
        weight: the finite rows, in the order of ids.
        ids: of these rows.
        broken: ids of the rows with NaN or infinity, which are near to nothing and left out.
        words: the tokens by id, as the vocabulary writes them; there may be fewer than rows.
    """

    name: str
    dtype: str
    weight: np.ndarray
    ids: Int64[np.ndarray, " rows"]
    broken: Int64[np.ndarray, " broken"]
    words: Sequence[str]

    def word(self, row: int) -> str:
        """Name a row of `weight`: its token, or #id where no token has this id."""
        return word_of(self.words, int(self.ids[row]))

    def row(self, number: int) -> int:
        """Give the row of `weight` that an id has, or raise TokenError where it was left out."""
        row = int(np.searchsorted(self.ids, number))
        if row < len(self.ids) and self.ids[row] == number:
            return row
        if number in self.broken:
            raise TokenError(
                f"the row of {shown(word_of(self.words, number))} (#{number}) holds numbers that are not finite: "
                "it is near to nothing.\nAsk for another token."
            )
        raise TokenError(f"id {number} lies outside {shown(self.name)}, which has {self.rows:,} rows.")

    @property
    def rows(self) -> int:
        """How many rows the table has, those left out included."""
        return len(self.ids) + len(self.broken)

    def plain_words(self) -> dict[str, int]:
        """Give the rows of words as a person writes them: "king" is the row of "Ġking" where such tokens begin words.

        Of two tokens with one text, the one that begins a word stands for it.
        """
        how = marking(self.words)
        texts_of = texts(self.words, how) if how in ("bytes", "sentencepiece") else self.words
        begins: dict[str, int] = {}
        others: dict[str, int] = {}
        for row, number in enumerate(self.ids.tolist()):
            text = texts_of[number] if number < len(texts_of) else ""
            if isinstance(text, str) and text:
                (begins if text.startswith(" ") else others).setdefault(text.removeprefix(" "), row)
        return others | begins


def word_of(words: Sequence[str], number: int) -> str:
    """Name an id: its token, or #id where no token has it.

    >>> word_of(["the", ""], 0), word_of(["the", ""], 1)
    ('the', '#1')
    """
    return words[number] if number < len(words) and words[number] else f"#{number}"


def find_token(checkpoint: Checkpoint, text: str, rows: int | None = None) -> int:
    """Give the id of the token that a person means.

    `#123` is always the id 123. Other texts are looked for as they stand in the vocabulary; then as what the tokenizer
    makes of them, if that is one token; then as the vocabulary would write them, with its sign for a blank before them
    and without. So "king" finds "king", else "Ġking" or "▁king", and " king" finds the latter first.

    Args:
        text: of the token, or its number.
        rows: of the table that the id shall be a row of; None is the token table.

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
        raise TokenError(
            f"{checkpoint.path} says no tokens, so {shown(text)} cannot be found by its text.\n"
            "Ask by number, as in '#123', or put the tokenizer's files beside the weights."
        )
    found = _found(checkpoint, words, text)
    if found is None:
        raise TokenError(_unknown(checkpoint, words, text))
    if found >= rows:
        raise TokenError(
            f"{shown(text)} is token {found}, but the table has {rows:,} rows (0..{rows - 1:,}).\n"
            "The tokenizer and the weights do not belong together."
        )
    return found


def table_name(checkpoint: Checkpoint, which: str) -> str:
    """Give the tensor that holds one row for each token.

    Args:
        which: "input", what tokens are looked up in; "readout", what logits are read out with, the same if the two are
            tied; or the name of a tensor of two dimensions.
    """
    table = checkpoint.token_table
    if which == "input":
        if table is None:
            raise CheckpointError(
                f"{checkpoint.path} has no tensor that is known as a token table.\n"
                f"Name it: --table NAME, of {_some([name for name, e in checkpoint.tensors.items() if _is_table(e)])}."
            )
        return table
    if which == "readout":
        found = checkpoint.readout or (table if checkpoint.tied else None)
        if found is None:
            raise CheckpointError(
                f"{checkpoint.path} has no readout: nothing in it reads logits out.\nAsk for --table input."
            )
        return found
    if which not in checkpoint.tensors:
        checkpoint.entry(which)
    if not _is_table(checkpoint.tensors[which]):
        raise SettingError(
            f"{shown(which)} has the shape {checkpoint.tensors[which].shape}, but a table has (rows, dim).\n"
            "Ask for --table input, readout, or a tensor of two dimensions."
        )
    return which


def read_table(checkpoint: Checkpoint, which: str = "input") -> Table:
    """Read a table, less its rows that hold NaN or infinity.

    Args:
        which: as in `table_name`.
    """
    name = table_name(checkpoint, which)
    entry = checkpoint.entry(name)
    if 0 in entry.shape:
        raise CheckpointError(f"{shown(name)} of {checkpoint.path} is empty: its shape is {entry.shape}.")
    weight = checkpoint.array(name)
    if weight.dtype.kind not in "fiu":
        raise CheckpointError(f"{shown(name)} holds {entry.dtype}, but a table of vectors holds real numbers.")
    if weight.dtype.kind in "iu":
        weight = weight.astype(np.float64)
    sound = finite_rows(weight)
    if not sound.any():
        raise CheckpointError(f"every row of {shown(name)} in {checkpoint.path} holds NaN or infinity.")
    ids = np.flatnonzero(sound)
    kept = weight if len(ids) == len(weight) else weight[ids]
    return Table(name, entry.dtype, kept, ids, np.flatnonzero(~sound), checkpoint.words or [])


def finite_rows(weight: np.ndarray) -> np.ndarray:
    """Tell of each row whether all its numbers are finite, by blocks."""
    blocks = [np.isfinite(weight[n : n + _BLOCK]).all(axis=1) for n in range(0, len(weight), _BLOCK)]
    return np.concatenate(blocks) if blocks else np.zeros(0, bool)


def _is_table(entry: Entry) -> bool:
    return len(entry.shape) == 2


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:6])) + (f" and {len(names) - 6:,} more" if len(names) > 6 else "") or "none"


def _found(checkpoint: Checkpoint, words: Sequence[str], text: str) -> int | None:
    if not text:
        return None
    if text in words:
        return words.index(text)
    tokenizer = checkpoint.tokenizer
    number = None if tokenizer is None else _encoded(tokenizer, words, text)
    if number is not None:
        return number
    return next((words.index(other) for other in _written(words, text) if other in words), None)


def _encoded(tokenizer: "Tokenizer", words: Sequence[str], text: str) -> int | None:
    """Give the one id that a text becomes; the tokenizer's word for what it does not know is no answer."""
    for asked in (text, f" {text}"):
        ids = _ids(tokenizer, asked)
        if len(ids) != 1 or not ids[0] < len(words):
            continue
        word = words[ids[0]]
        if word != getattr(tokenizer.model, "unk_token", None) and kinds([word]) != ["special"]:
            return ids[0]
    return None


def _ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Encode a text; many tokenizers are saved so that they pad what is short."""
    found = tokenizer.encode(text, add_special_tokens=False)
    return [number for number, real in zip(found.ids, found.attention_mask, strict=True) if real]


def _written(words: Sequence[str], text: str) -> list[str]:
    """Give the ways in which a vocabulary may write a text, with its sign for a blank and without."""
    how = marking(words)
    if how == "bytes":
        signs = {byte: sign for sign, byte in byte_alphabet().items()}
        return ["".join(signs[byte] for byte in other.encode()) for other in (text, f" {text}")]
    if how == "sentencepiece":
        return [text.replace(" ", "▁"), f"▁{text.replace(' ', '▁')}"]
    return [text.strip()]


def _unknown(checkpoint: Checkpoint, words: Sequence[str], text: str) -> str:
    if not text:
        return "a token is asked for by its text or number, but the text is empty.\nAsk as in king, or '#123'."
    message = f"no token of {checkpoint.path} is {shown(text)}."
    pieces = [] if checkpoint.tokenizer is None else _ids(checkpoint.tokenizer, text)
    if len(pieces) > 1:
        message += f"\nThe tokenizer writes it as {len(pieces)}: {_some([word_of(words, n) for n in pieces])}."
    near = _near(words, text)
    hint = f"Near it are {', '.join(map(shown, near))}." if near else "Ask by number, as in '#123'."
    return f"{message}\n{hint}"


def _near(words: Sequence[str], text: str) -> list[str]:
    """Give near names, among words that begin alike and are about as long."""
    plain = text.strip().lower()
    alike: dict[str, str] = {}
    for word in words:
        bare = word.lstrip("Ġ▁ ").lower()
        if bare[:1] == plain[:1] and abs(len(bare) - len(plain)) <= _LETTERS:
            alike.setdefault(bare, word)
            if len(alike) == _NEAR:
                break
    return [alike[bare] for bare in get_close_matches(plain, alike, n=3, cutoff=0.6)]
