"""Binary word vectors of word2vec: a header of two numbers, then each word, a space, and its float32 values."""

from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float32, Int64

from whatwhere.models.checkpoint.base import Chosen, Contents, Entry, Reader, contiguous_runs
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.text_vectors import NAME, check_header, first_lines, parsed, read_counts, separated

_CHUNK = 1 << 20
_MAX_WORD_BYTES = 10_000
_DAMAGED = "It is truncated or damaged: create or download it again."


@final
class BinaryVectors(Reader):
    """Read vectors between words of variable length.

    Args:
        file: of word2vec.
        rows, dim: from its header.
        begin: the offset after the header.
    """

    def __init__(self, file: File, rows: int, dim: int, begin: int) -> None:
        self.file, self.rows, self.dim, self._begin = file, rows, dim, begin
        self._words: list[str] = []

    @cached_property
    def _starts(self) -> Int64[np.ndarray, " rows"]:
        """The offset of the values of each row; the words are collected in the same scan."""
        starts = np.empty(self.rows, dtype=np.int64)
        words: list[str] = []
        offset, row_bytes = self._begin, 4 * self.dim
        chunk, chunk_begin = b"", offset
        with self.file.opened() as stream:
            for row in range(self.rows):
                at = offset - chunk_begin
                end = chunk.find(b" ", at, at + _MAX_WORD_BYTES) if at <= len(chunk) else -1
                if end < 0:
                    chunk_begin, at = offset, 0
                    chunk = stream.read(offset, min(_CHUNK, self.file.size - offset))
                    end = chunk.find(b" ", 0, _MAX_WORD_BYTES)
                starts[row] = chunk_begin + end + 1
                offset = int(starts[row]) + row_bytes
                if end < 0 or offset > self.file.size:
                    raise self.file.wrong(f"no word and {self.dim:,} numbers are left for row {row:,}", _DAMAGED)
                # The authors' program ends each row with a line break, others do not.
                words.append(chunk[at:end].lstrip(b"\r\n").decode("utf-8", "replace"))
            left = self.file.size - offset
            if left > _CHUNK or stream.read(offset, left).strip():
                raise self.file.wrong(
                    f"{left:,} bytes follow the {self.rows:,} vectors that its header claims", _DAMAGED
                )
        self._words = words
        return starts

    def array(self, name: str, rows: Chosen | None) -> Float32[np.ndarray, "rows dim"]:
        """Read rows; the first call scans the whole file for the offsets of its rows.

        Args:
            name: there is one table.
            rows: to read; None is all.

        Raises:
            CheckpointError: the file is damaged.
        """
        rows = range(self.rows) if rows is None else rows
        starts, row_bytes = self._starts, 4 * self.dim
        out = np.empty((len(rows), self.dim), dtype="<f4")
        with self.file.opened() as stream:
            for target, first, count in contiguous_runs(rows, max(1, _CHUNK // row_bytes)):
                offsets = starts[first : first + count].tolist()
                text = stream.read(offsets[0], offsets[-1] + row_bytes - offsets[0])
                for row, begin in enumerate(offsets):
                    out[target + row] = np.frombuffer(text, "<f4", self.dim, begin - offsets[0])
        return out.astype(np.float32, copy=False)

    def words(self) -> list[str]:
        """Return the words; bytes that are not UTF-8 become U+FFFD."""
        return list(self._words) if len(self._starts) else []


def is_binary(file: File) -> bool:
    """Return whether a file is binary after a header of two numbers.

    Args:
        file: of word vectors.
    """
    counts = read_counts(file)
    if counts is None:
        return False
    _, dim, begin = counts
    lines = first_lines(file, begin)
    if not lines:
        return file.size - begin > 2 * dim
    fields = separated(lines[0], dim)
    if len(fields) == dim + 1 and parsed(fields[1:]) is not None:
        return False
    return any(byte < 9 or 13 < byte < 32 for byte in file.read(begin, min(4 * dim + 100, 4096, file.size - begin)))


def open_binary_vectors(path: str | Path) -> Contents:
    """Read the header of a binary file of words and their vectors.

    Args:
        path: of the file.

    Raises:
        CheckpointError: the header claims more than the file can hold.
    """
    file = File(path)
    rows, dim, begin = counts = read_counts(file) or (0, 0, 0)
    check_header(file, counts, rows * (4 * dim + 1))
    reader = BinaryVectors(file, rows, dim, begin)
    entry = Entry(NAME, (rows, dim), "float32", 4 * rows * dim, file.path)
    return Contents("word2vec-binary", {NAME: entry}, reader, words=reader.words, token_table=NAME)
