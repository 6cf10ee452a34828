"""Word vectors as text: word2vec and fastText with a header of two numbers, GloVe without.

Each line has a word and its numbers, between blanks or tabs. A word may hold blanks itself: GloVe's 840B has ". . .",
so numbers are counted from the end of the line. Nothing is allocated on the word of a header: what it claims is
compared with the size of the file.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float32, Int64

from whatwhere.errors import CheckpointError
from whatwhere.interop.checkpoint.contents import Chosen, Contents, Entry, Reader, runs
from whatwhere.interop.checkpoint.files import File, Stream, shown

NAME = "vectors"
_CHUNK = 1 << 20
_LONGEST_WORD = 1 << 16
_TRIED_LINES = 100
_DIGITS = 15
_BLANK = b" \t\r\n"


@final
class TextVectors(Reader):
    """Read lines of numbers.

    Args:
        file: of text.
        rows: how many lines have a vector; None where only counting tells.
        dim: numbers of a line.
        begin: of the first line, behind the header.
        words: whether a word stands before the numbers.
    """

    def __init__(self, file: File, rows: int | None, dim: int, begin: int = 0, words: bool = True) -> None:
        self.file, self.dim, self._begin, self._claimed, self._has_words = file, dim, begin, rows, words

    @property
    def rows(self) -> int:
        """How many vectors there are."""
        return len(self._starts) - 1 if self._claimed is None else self._claimed

    @cached_property
    def _starts(self) -> Int64[np.ndarray, " lines"]:
        """Where each line begins, and where the last one ends; found in one pass over the file."""
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
        starts.append(np.array([end] if end > self._begin else [], dtype=np.int64))
        found = np.concatenate(starts)
        if self._claimed is not None and len(found) - 1 != self._claimed:
            raise self.file.wrong(
                f"its header claims {self._claimed:,} vectors, but {len(found) - 1:,} lines follow",
                "It is cut off, or the header is of another file: correct the first line.",
            )
        longest = int(np.diff(found).argmax()) if len(found) > 1 else 0
        if len(found) > 1 and found[longest + 1] - found[longest] > 64 * self.dim + _LONGEST_WORD:
            raise self._wrong(f"it is too long for {self.dim:,} numbers", longest)
        return found

    def array(self, name: str, rows: Chosen | None) -> Float32[np.ndarray, "rows dim"]:
        """Parse the lines that are asked for."""
        rows = range(self.rows) if rows is None else rows
        out = np.empty((len(rows), self.dim), dtype=np.float32)
        for place, (row, line) in enumerate(self._lines(rows)):
            out[place] = self._numbers(line, row)
        return out

    def words(self) -> list[str]:
        """Give the words; bytes that are not UTF-8 become U+FFFD."""
        lines = self._lines(range(len(self._starts) - 1))
        return [self._split(line, row)[0].decode("utf-8", "replace") for row, line in lines]

    def _lines(self, rows: Chosen) -> Iterator[tuple[int, bytes]]:
        """Give lines with their rows, read some at a time."""
        starts = self._starts
        at_once = max(1, _CHUNK * (len(starts) - 1) // self.file.size)
        with self.file.opened() as stream:
            for _, first, count in runs(rows, at_once):
                places = starts[first : first + count + 1].tolist()
                text = stream.read(places[0], places[-1] - places[0])
                for row in range(count):
                    yield first + row, text[places[row] - places[0] : places[row + 1] - places[0]]

    def _split(self, line: bytes, row: int) -> tuple[bytes, list[bytes]]:
        fields = separated(line, self.dim)
        if len(fields) != self.dim + self._has_words:
            raise self._wrong(f"it has {len(fields) - self._has_words:,} numbers, and others {self.dim:,}", row)
        return (fields[0], fields[1:]) if self._has_words else (b"", fields)

    def _numbers(self, line: bytes, row: int) -> Float32[np.ndarray, " dim"]:
        _, numbers = self._split(line, row)
        found = parsed(numbers)
        if found is None:
            bad = next(number for number in numbers if parsed([number]) is None)
            raise self._wrong(f"{shown(bad.decode('utf-8', 'replace'), 40)} is no number", row)
        return found

    def _wrong(self, what: str, row: int) -> CheckpointError:
        line = row + 1 + (self._begin > 0)
        return self.file.wrong(f"line {line:,}: {what}", "Correct or remove this line.")


def _end_of_text(stream: Stream, begin: int) -> int:
    """Find where the last line ends that is not blank."""
    end = stream.file.size
    while end > begin:
        start = max(begin, end - _CHUNK)
        text = stream.read(start, end - start)
        if kept := text.rstrip(_BLANK):
            return start + len(kept)
        end = start
    return end


def separated(line: bytes, dim: int) -> list[bytes]:
    """Split a line into a word, which may hold blanks, and at most `dim` numbers.

    >>> separated(b". . . 0.1 0.2 \\n", 2)
    [b'. . .', b'0.1', b'0.2']
    """
    line = line.rstrip(_BLANK)
    return line.rsplit(b"\t" if b"\t" in line else b" ", dim)


def parsed(numbers: list[bytes]) -> Float32[np.ndarray, " dim"] | None:
    """Give numbers from text; None if one of them is none."""
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, which is for the reader to see
            return np.array(numbers, dtype=np.float32)
    except ValueError:
        return None


def first_lines(file: File, begin: int = 0) -> list[bytes]:
    """Give some whole lines, those that begin the file."""
    text = file.read(begin, min(_CHUNK, file.size - begin))
    lines = text.split(b"\n", _TRIED_LINES)
    return [line for line in lines[: _TRIED_LINES if len(text) + begin == file.size else -1] if line.strip(_BLANK)]


def header(file: File) -> tuple[int, int, int] | None:
    """Give rows, dimensions and length of a first line that has these two numbers and nothing else."""
    line, found, _ = file.head(64).partition(b"\n")
    fields = line.split()
    if not found or len(fields) != 2 or not all(field.isdigit() and len(field) <= _DIGITS for field in fields):
        return None
    return int(fields[0]), int(fields[1]), len(line) + 1


def open_text_vectors(path: str | Path) -> Contents:
    """Open a file of words and their vectors."""
    file = File(path)
    said = header(file)
    if said is None:
        return vectors("glove", TextVectors(file, None, _width(file)))
    rows, dim, begin = said
    check_header(file, said, rows * 2 * dim)
    return vectors("fasttext" if file.path.suffix == ".vec" else "word2vec", TextVectors(file, rows, dim, begin))


def check_header(file: File, said: tuple[int, int, int], least: int) -> None:
    """Raise CheckpointError unless a header claims something that the file can hold.

    Args:
        said: rows, dimensions, and where the header ends.
        least: the bytes that this takes.
    """
    rows, dim, begin = said
    if not rows or not dim:
        raise file.wrong(
            f"its header claims {rows:,} vectors of {dim:,} numbers", "Make it anew: there is nothing in it."
        )
    if least > file.size - begin:
        raise file.wrong(
            f"its header claims {rows:,} vectors of {dim:,} numbers, which take {least:,} bytes at the least, but "
            f"{file.size - begin:,} follow",
            "It is cut off, or its first line is no header: remove that line.",
        )


def vectors(format: str, reader: TextVectors) -> Contents:
    """Describe one table of text."""
    entry = Entry(NAME, (reader.rows, reader.dim), "float32", 0, reader.file.path)
    return Contents(format, {NAME: entry}, reader, words=reader.words, token_table=NAME)


def _width(file: File) -> int:
    """Count the numbers of a line, from the lines that begin the file: the least, for words may hold blanks."""
    lines = first_lines(file)
    widths = [len(separated(line, len(line))) - 1 for line in lines]
    dim = min(widths, default=0)
    numbers = [parsed(separated(line, dim)[1:]) for line in lines] if dim > 1 else [None]
    if any(found is None for found in numbers):
        raise file.wrong(
            "it is no file that is known: no magic number, and its lines are no words with numbers behind them",
            "Read are safetensors, GGUF, word2vec, GloVe, fastText .vec, .npy, .npz, projector TSV, and folders.",
        )
    return dim
