"""Word vectors: text of word2vec, fastText and GloVe, and the binary files of word2vec.

    text       each line has a word and its numbers, separated by spaces or tabs
    binary     each row has a word, a space, and its float32 values

word2vec and fastText begin with a header of two numbers, rows and dimensions; GloVe has none. A word in text may
contain spaces itself, such as ". . ." in GloVe's 840B, so numbers are counted from the end of the line. Before anything
is allocated, the numbers of the header are compared with the size of the file.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float32, Int64

from whatwhere.errors import CheckpointError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint.base import Chosen, Contents, Entry, Reader, contiguous_runs
from whatwhere.models.checkpoint.files import File, Stream

NAME = "vectors"
_CHUNK = 1 << 20
_PARSED = 1 << 16
"""Numbers that are parsed at once."""
_ROW, _NUMBER = 120, 64
"""Bytes of memory of a word and the offset of its line, and of a number as text."""
_MAX_WORD_BYTES, _MAX_BINARY_WORD_BYTES = 1 << 16, 10_000
_SAMPLED_LINES = 100
_MAX_DIGITS = 15
_WHITESPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
"""The byte order mark that editors write before UTF-8; it belongs to no word."""
_DAMAGED = "It is truncated or damaged: create or download it again."


@final
class TextVectors(Reader):
    """A reader of vectors in text, one on each line.

    Args:
        file: of text.
        rows: number of vectors; None counts the lines.
        dim: number of values on each line.
        begin: the offset of the first line, after the byte order mark and the header.
        words: whether each line begins with a word.
    """

    def __init__(self, file: File, rows: int | None, dim: int, begin: int = 0, words: bool = True) -> None:
        self.file, self.dim, self._begin, self._claimed, self._has_words = file, dim, begin, rows, words

    @property
    def rows(self) -> int:
        """The number of vectors."""
        return len(self._starts) - 1 if self._claimed is None else self._claimed

    @cached_property
    def _starts(self) -> Int64[np.ndarray, " lines"]:
        """The offset of each line, and the end of the last one, from one scan of the file."""
        starts = [np.array([self._begin], dtype=np.int64)]
        offset, lines = self._begin, 0
        with self.file.opened() as stream:
            end = _end_of_text(stream, self._begin)
            while offset < end:
                chunk = np.frombuffer(stream.read(offset, min(_CHUNK, end - offset)), dtype=np.uint8)
                ends = np.flatnonzero(chunk == 10) + offset + 1
                starts.append(ends)
                lines, offset = lines + len(ends), offset + len(chunk)
                if lines * 2 * self.dim > offset - self._begin:
                    raise self._wrong(f"lines up to here are too short for {self.dim:,} numbers each", lines - 1)
                self.file.require_memory(lines * _ROW, f"{lines:,} lines of words")
        starts.append(np.array([end] if end > self._begin else [], dtype=np.int64))
        offsets = np.concatenate(starts)
        if self._claimed is not None and len(offsets) - 1 != self._claimed:
            raise self.file.wrong(
                f"its header claims {self._claimed:,} vectors, but {len(offsets) - 1:,} lines follow",
                "It is truncated, or the header is of another file: correct the first line.",
            )
        longest_line = int(np.diff(offsets).argmax()) if len(offsets) > 1 else 0
        if len(offsets) > 1 and offsets[longest_line + 1] - offsets[longest_line] > 64 * self.dim + _MAX_WORD_BYTES:
            raise self._wrong(f"it is too long for {self.dim:,} numbers", longest_line)
        return offsets

    def array(self, name: str, rows: Chosen | None) -> Float32[np.ndarray, "rows dim"]:
        """Parse the lines of rows."""
        rows = range(self.rows) if rows is None else rows
        out = np.empty((len(rows), self.dim), dtype=np.float32)
        lines, done = self._lines(rows), 0
        # Many lines are parsed at once, and one by one only to find that which is wrong.
        while block := list(islice(lines, max(1, _PARSED // self.dim))):
            numbers = [number for row, line in block for number in self._split(line, row)[1]]
            values = parsed(numbers)
            if values is None:
                values = np.concatenate([self._numbers(line, row) for row, line in block])
            out[done : done + len(block)] = values.reshape(-1, self.dim)
            done += len(block)
        return out

    def words(self) -> list[str]:
        """Return the words; bytes that are not UTF-8 become U+FFFD."""
        lines = self._lines(range(len(self._starts) - 1))
        return [self._split(line, row)[0].decode("utf-8", "replace") for row, line in lines]

    def _lines(self, rows: Chosen) -> Iterator[tuple[int, bytes]]:
        """Yield rows and their lines, reading several lines at once."""
        starts = self._starts
        max_rows = max(1, _CHUNK * (len(starts) - 1) // self.file.size)
        with self.file.opened() as stream:
            for _, first, count in contiguous_runs(rows, max_rows):
                offsets = starts[first : first + count + 1].tolist()
                text = stream.read(offsets[0], offsets[-1] - offsets[0])
                for row in range(count):
                    yield first + row, text[offsets[row] - offsets[0] : offsets[row + 1] - offsets[0]]

    def _split(self, line: bytes, row: int) -> tuple[bytes, list[bytes]]:
        fields = separated(line, self.dim)
        if len(fields) != self.dim + self._has_words:
            raise self._wrong(f"it has {len(fields) - self._has_words:,} numbers, and others {self.dim:,}", row)
        inside = fields[0].split(b" ")[1:] if self._has_words and b"\t" not in line else []
        # Words may contain spaces, but a number after one is the sign of too many numbers, or of two lines in one.
        if any(parsed([part]) is not None for part in inside):
            raise self._wrong(f"it has more than {self.dim:,} numbers", row)
        return (fields[0], fields[1:]) if self._has_words else (b"", fields)

    def _numbers(self, line: bytes, row: int) -> Float32[np.ndarray, " dim"]:
        _, numbers = self._split(line, row)
        values = parsed(numbers)
        if values is None:
            bad = next(number for number in numbers if parsed([number]) is None)
            raise self._wrong(f"{quoted(bad.decode('utf-8', 'replace'), 40)} is not a number", row)
        return values

    def _wrong(self, what: str, row: int) -> CheckpointError:
        line = row + 1 + (self._claimed is not None)  # the header is line 1
        return self.file.wrong(f"line {line:,}: {what}", "Correct or remove this line.")


def _end_of_text(stream: Stream, begin: int) -> int:
    """Return the end of the last line that is not blank."""
    end = stream.file.size
    while end > begin:
        start = max(begin, end - _CHUNK)
        text = stream.read(start, end - start)
        if kept := text.rstrip(_WHITESPACE):
            return start + len(kept)
        end = start
    return end


def separated(line: bytes, dim: int) -> list[bytes]:
    """Split a line into a word, which may contain spaces, and at most `dim` values.

    Examples:
        >>> separated(b". . . 0.1 0.2 \\n", 2)
        [b'. . .', b'0.1', b'0.2']
    """
    line = line.rstrip(_WHITESPACE)
    return line.rsplit(b"\t" if b"\t" in line else b" ", dim)


def parsed(numbers: list[bytes]) -> Float32[np.ndarray, " dim"] | None:
    """Parse numbers; return None if one is not a number, such as 1_0, which only Python reads as 10."""
    if any(b"_" in number for number in numbers):
        return None
    try:
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, which is kept
            return np.array(numbers, dtype=np.float32)
    except ValueError:
        return None


def first_byte(file: File) -> int:
    """Return the offset of the text, behind a byte order mark if there is one."""
    return len(BOM) if file.head(len(BOM)) == BOM else 0


def first_lines(file: File, begin: int) -> list[bytes]:
    """Return the first complete lines that are not blank, up to 100."""
    text = file.read(begin, min(_CHUNK, file.size - begin))
    lines = text.split(b"\n", _SAMPLED_LINES)
    return [
        line for line in lines[: _SAMPLED_LINES if len(text) + begin == file.size else -1] if line.strip(_WHITESPACE)
    ]


def read_counts(file: File) -> tuple[int, int, int] | None:
    """Read the header: rows, dimensions, and the offset behind it; None without a header."""
    start = first_byte(file)
    line, line_break, _ = file.head(64)[start:].partition(b"\n")
    fields = line.split()
    if not line_break or len(fields) != 2 or not all(field.isdigit() and len(field) <= _MAX_DIGITS for field in fields):
        return None
    return int(fields[0]), int(fields[1]), start + len(line) + 1


def open_text_vectors(path: str | Path) -> Contents:
    """Read the header of a text file of words and their vectors."""
    file = File(path)
    counts = read_counts(file)
    if counts is None:
        return vectors("glove", TextVectors(file, None, _width(file), first_byte(file)))
    rows, dim, begin = counts
    check_header(file, counts, rows * 2 * dim)
    return vectors("fasttext" if file.path.suffix == ".vec" else "word2vec", TextVectors(file, rows, dim, begin))


def check_header(file: File, counts: tuple[int, int, int], min_bytes: int) -> None:
    """Raise CheckpointError unless the file can hold what its header claims."""
    rows, dim, begin = counts
    if not rows or not dim:
        raise file.wrong(f"its header claims {rows:,} vectors of {dim:,} numbers", "Create it again: it is empty.")
    if min_bytes > file.size - begin:
        raise file.wrong(
            f"its header claims {rows:,} vectors of {dim:,} numbers, which take at least {min_bytes:,} bytes, but "
            f"{file.size - begin:,} follow",
            "It is truncated, or its first line is not a header: remove that line.",
        )
    file.require_memory(rows * _ROW + dim * _NUMBER, f"{rows:,} words with {dim:,} numbers each")


def vectors(format: str, reader: TextVectors) -> Contents:
    """Return the contents of a text file of vectors."""
    entry = Entry(NAME, (reader.rows, reader.dim), "float32", 0, reader.file.path)
    return Contents(format, {NAME: entry}, reader, words=reader.words, token_table=NAME)


def _width(file: File) -> int:
    """Return the number of values of a line: the minimum over the first lines, because words may contain spaces."""
    lines = first_lines(file, first_byte(file))
    widths = [len(separated(line, len(line))) - 1 for line in lines]
    dim = min(widths, default=0)
    numbers = [parsed(separated(line, dim)[1:]) for line in lines] if dim > 1 else [None]
    if any(values is None for values in numbers):
        raise file.wrong(
            "its format is not known: it does not begin as a file of tensors does, and its lines are not words, "
            "each with its numbers",
            "Supported are safetensors, GGUF, word2vec, GloVe, fastText .vec, .npy, .npz, projector TSV, and folders.",
        )
    return dim


# Binary files


@final
class BinaryVectors(Reader):
    """A reader of binary vectors, between words of variable length.

    Args:
        file: of word2vec.
        rows, dim: from its header.
        begin: the offset behind the header.
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
                end = chunk.find(b" ", at, at + _MAX_BINARY_WORD_BYTES) if at <= len(chunk) else -1
                if end < 0:
                    chunk_begin, at = offset, 0
                    chunk = stream.read(offset, min(_CHUNK, self.file.size - offset))
                    end = chunk.find(b" ", 0, _MAX_BINARY_WORD_BYTES)
                starts[row] = chunk_begin + end + 1
                offset = int(starts[row]) + row_bytes
                if end < 0 or offset > self.file.size:
                    raise self.file.wrong(f"no word and {self.dim:,} numbers are left for row {row:,}", _DAMAGED)
                # The original program ends each row with a line break, others do not.
                words.append(chunk[at:end].lstrip(b"\r\n").decode("utf-8", "replace"))
            left = self.file.size - offset
            if left > _CHUNK or stream.read(offset, left).strip():
                raise self.file.wrong(
                    f"{left:,} bytes follow the {self.rows:,} vectors that its header claims", _DAMAGED
                )
        self._words = words
        return starts

    def array(self, name: str, rows: Chosen | None) -> Float32[np.ndarray, "rows dim"]:
        """Read rows; the first call scans the whole file for the offsets of its rows."""
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
        return self._words if len(self._starts) else []


def is_binary(file: File) -> bool:
    """Return whether a file of word vectors is binary, behind a header of two numbers."""
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
    """Read the header of a binary file of words and their vectors."""
    file = File(path)
    rows, dim, begin = counts = read_counts(file) or (0, 0, 0)
    check_header(file, counts, rows * (4 * dim + 1))
    reader = BinaryVectors(file, rows, dim, begin)
    entry = Entry(NAME, (rows, dim), "float32", 4 * rows * dim, file.path)
    return Contents("word2vec-binary", {NAME: entry}, reader, words=reader.words, token_table=NAME)
