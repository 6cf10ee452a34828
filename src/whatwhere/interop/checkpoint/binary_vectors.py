"""Word vectors of word2vec in binary: a header of two numbers, then each word, a blank, and its float32."""

from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float32, Int64

from whatwhere.interop.checkpoint.contents import Chosen, Contents, Entry, Reader, runs
from whatwhere.interop.checkpoint.files import File
from whatwhere.interop.checkpoint.text_vectors import NAME, check_header, first_lines, header, parsed, separated

_CHUNK = 1 << 20
_LONGEST_WORD = 10_000
_ANEW = "It is cut off or damaged: make or download it anew."


@final
class BinaryVectors(Reader):
    """Read vectors that words stand between.

    Args:
        file: of word2vec.
        rows, dim: as its header says.
        begin: where the header ends.
    """

    def __init__(self, file: File, rows: int, dim: int, begin: int) -> None:
        self.file, self.rows, self.dim, self._begin = file, rows, dim, begin
        self._found: list[str] = []

    @cached_property
    def _starts(self) -> Int64[np.ndarray, " rows"]:
        """Where the numbers of each row begin; the words are noted on the way."""
        starts = np.empty(self.rows, dtype=np.int64)
        words: list[str] = []
        offset, numbers = self._begin, 4 * self.dim
        chunk, chunk_begin = b"", offset
        with self.file.opened() as stream:
            for row in range(self.rows):
                at = offset - chunk_begin
                end = chunk.find(b" ", at, at + _LONGEST_WORD) if at <= len(chunk) else -1
                if end < 0:
                    chunk_begin, at = offset, 0
                    chunk = stream.read(offset, min(_CHUNK, self.file.size - offset))
                    end = chunk.find(b" ", 0, _LONGEST_WORD)
                starts[row] = chunk_begin + end + 1
                offset = int(starts[row]) + numbers
                if end < 0 or offset > self.file.size:
                    raise self.file.wrong(f"no word and {self.dim:,} numbers are left for row {row:,}", _ANEW)
                # The authors' program ends each row with a line break, others do not.
                words.append(chunk[at:end].lstrip(b"\r\n").decode("utf-8", "replace"))
            left = self.file.size - offset
            if left > _CHUNK or stream.read(offset, left).strip():
                raise self.file.wrong(f"{left:,} bytes follow the {self.rows:,} vectors that its header claims", _ANEW)
        self._found = words
        return starts

    def array(self, name: str, rows: Chosen | None) -> Float32[np.ndarray, "rows dim"]:
        """Read the vectors that are asked for; to find one, the words before it are passed once."""
        rows = range(self.rows) if rows is None else rows
        starts, numbers = self._starts, 4 * self.dim
        out = np.empty((len(rows), self.dim), dtype="<f4")
        with self.file.opened() as stream:
            for place, first, count in runs(rows, max(1, _CHUNK // numbers)):
                places = starts[first : first + count].tolist()
                text = stream.read(places[0], places[-1] + numbers - places[0])
                for row, begin in enumerate(places):
                    out[place + row] = np.frombuffer(text, "<f4", self.dim, begin - places[0])
        return out.astype(np.float32, copy=False)

    def words(self) -> list[str]:
        """Give the words; bytes that are not UTF-8 become U+FFFD."""
        return list(self._found) if len(self._starts) else []


def is_binary(file: File) -> bool:
    """Tell whether what follows a header of two numbers is no text."""
    said = header(file)
    if said is None:
        return False
    _, dim, begin = said
    lines = first_lines(file, begin)
    if not lines:
        return file.size - begin > 2 * dim
    fields = separated(lines[0], dim)
    if len(fields) == dim + 1 and parsed(fields[1:]) is not None:
        return False
    return any(byte < 9 or 13 < byte < 32 for byte in file.read(begin, min(4 * dim + 100, 4096, file.size - begin)))


def open_binary_vectors(path: str | Path) -> Contents:
    """Open a file of words and their vectors."""
    file = File(path)
    rows, dim, begin = said = header(file) or (0, 0, 0)
    check_header(file, said, rows * (4 * dim + 1))
    reader = BinaryVectors(file, rows, dim, begin)
    entry = Entry(NAME, (rows, dim), "float32", 4 * rows * dim, file.path)
    return Contents("word2vec-binary", {NAME: entry}, reader, words=reader.words, token_table=NAME)
