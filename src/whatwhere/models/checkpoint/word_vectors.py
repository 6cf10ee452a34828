"""Word vectors: text of word2vec, fastText and GloVe, binary files of word2vec, and the Embedding Projector's pair.

    text       each line has a word and its numbers, separated by spaces or tabs
    binary     each row has a word, a space, and its float32 values
    projector  one file of numbers, one of labels: https://projector.tensorflow.org

word2vec and fastText begin with a header of two numbers, rows and dimensions; GloVe has none. A word in text may
contain spaces itself, such as ". . ." in GloVe's 840B, so numbers are counted from the end of the line. Before anything
is allocated, the numbers of the header are compared with the size of the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Int64

from whatwhere.atomic import atomic_file
from whatwhere.errors import CheckpointError, ShapeError
from whatwhere.escape import quoted
from whatwhere.large_arrays import row_blocks
from whatwhere.models.checkpoint.base import Chosen, Computed, Contents, contiguous_runs
from whatwhere.models.checkpoint.files import File, Stream

NAME = "vectors"
_CHUNK = 1 << 20
_ROW, _NUMBER = 120, 64  # bytes of memory of a word and the offset of its line, and of a number as text
_MAX_WORD_BYTES, _MAX_BINARY_WORD_BYTES = 1 << 16, 10_000
_SAMPLED_LINES = 100
_MAX_DIGITS = 15
_WHITESPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"  # the byte order mark that editors write before UTF-8; it belongs to no word


def _contents(format: str, reader: "_Text | _Binary", size: int = 0) -> Contents:
    shape = (reader.rows, reader.dim)

    def read(rows: Chosen | None) -> np.ndarray:
        return reader.array(range(shape[0]) if rows is None else rows)

    entry = Computed(NAME, shape, "float32", size, reader.file.path, read)
    return Contents(format, {NAME: entry}, words=reader.words, token_table=NAME)


class _Text:
    """Vectors in text, one on each line, which may begin with a word; without a header lines are counted."""

    def __init__(self, file: File, rows: int | None, dim: int, begin: int = 0, words: bool = True) -> None:
        self.file, self.dim, self._begin, self._claimed, self._has_words = file, dim, begin, rows, words

    @property
    def rows(self) -> int:
        return len(self._starts) - 1 if self._claimed is None else self._claimed

    @cached_property
    def _starts(self) -> Int64[np.ndarray, " lines"]:
        """The offset of each line, and the end of the last one, from one scan of the file."""
        starts = [np.array([self._begin], dtype=np.int64)]
        offset, lines = self._begin, 0
        with self.file.stream() as stream:
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

    def array(self, rows: Chosen) -> Float32[np.ndarray, "rows dim"]:
        out = np.empty((len(rows), self.dim), dtype=np.float32)
        for target, (row, line) in zip(out, self._lines(rows), strict=True):
            numbers = self._split(line, row)[1]
            if (values := _parsed(numbers)) is None:
                bad = next(number for number in numbers if _parsed([number]) is None)
                raise self._wrong(f"{quoted(bad.decode('utf-8', 'replace'), 40)} is not a number", row)
            target[:] = values
        return out

    def words(self) -> list[str]:
        lines = self._lines(range(len(self._starts) - 1))
        return [self._split(line, row)[0].decode("utf-8", "replace") for row, line in lines]

    def _lines(self, rows: Chosen) -> Iterator[tuple[int, bytes]]:
        """Yield rows and their lines, reading several lines at once."""
        starts = self._starts
        max_rows = max(1, _CHUNK * (len(starts) - 1) // self.file.size)
        with self.file.stream() as stream:
            for _, first, count in contiguous_runs(rows, max_rows):
                offsets = starts[first : first + count + 1].tolist()
                text = stream.read(offsets[0], offsets[-1] - offsets[0])
                for row in range(count):
                    yield first + row, text[offsets[row] - offsets[0] : offsets[row + 1] - offsets[0]]

    def _split(self, line: bytes, row: int) -> tuple[bytes, list[bytes]]:
        fields = _separated(line, self.dim)
        if len(fields) != self.dim + self._has_words:
            raise self._wrong(f"it has {len(fields) - self._has_words:,} numbers, and others {self.dim:,}", row)
        inside = fields[0].split(b" ")[1:] if self._has_words and b"\t" not in line else []
        # Words may contain spaces, but a number after one is the sign of too many numbers, or of two lines in one.
        if any(_parsed([part]) is not None for part in inside):
            raise self._wrong(f"it has more than {self.dim:,} numbers", row)
        return (fields[0], fields[1:]) if self._has_words else (b"", fields)

    def _wrong(self, what: str, row: int) -> CheckpointError:
        line = row + 1 + (self._claimed is not None)  # the header is line 1
        return self.file.wrong(f"line {line:,}: {what}", "Correct or remove this line.")


def _end_of_text(stream: Stream, begin: int) -> int:
    end = stream.file.size
    while end > begin:
        start = max(begin, end - _CHUNK)
        text = stream.read(start, end - start)
        if kept := text.rstrip(_WHITESPACE):
            return start + len(kept)
        end = start
    return end


def _separated(line: bytes, dim: int) -> list[bytes]:
    """Split a line into a word, which may contain spaces, and at most `dim` values."""
    line = line.rstrip(_WHITESPACE)
    return line.rsplit(b"\t" if b"\t" in line else b" ", dim)


def _parsed(numbers: list[bytes]) -> Float32[np.ndarray, " dim"] | None:
    """Parse numbers; return None if one is not a number, such as 1_0, which only Python reads as 10."""
    if any(b"_" in number for number in numbers):
        return None
    try:
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, which is kept
            return np.array(numbers, dtype=np.float32)
    except ValueError:
        return None


def _first_byte(file: File) -> int:
    return len(_BOM) if file.head(len(_BOM)) == _BOM else 0


def _first_lines(file: File, begin: int) -> list[bytes]:
    """Return the first complete lines that are not blank, up to 100."""
    text = file.read(begin, min(_CHUNK, file.size - begin))
    lines = text.split(b"\n", _SAMPLED_LINES)
    complete = lines[: _SAMPLED_LINES if len(text) + begin == file.size else -1]
    return [line for line in complete if line.strip(_WHITESPACE)]


def _read_counts(file: File) -> tuple[int, int, int] | None:
    """Read the header: rows, dimensions, and the offset behind it; None without a header."""
    start = _first_byte(file)
    line, line_break, _ = file.head(64)[start:].partition(b"\n")
    fields = line.split()
    if not line_break or len(fields) != 2 or not all(field.isdigit() and len(field) <= _MAX_DIGITS for field in fields):
        return None
    return int(fields[0]), int(fields[1]), start + len(line) + 1


def open_text_vectors(file: File) -> Contents:
    """Read the header of a text file of words and their vectors."""
    counts = _read_counts(file)
    if counts is None:
        return _contents("glove", _Text(file, None, _width(file), _first_byte(file)))
    rows, dim, begin = counts
    _check_header(file, counts, rows * 2 * dim)
    return _contents("fasttext" if file.path.suffix == ".vec" else "word2vec", _Text(file, rows, dim, begin))


def _check_header(file: File, counts: tuple[int, int, int], min_bytes: int) -> None:
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


def _width(file: File) -> int:
    """Return the number of values of a line: the minimum over the first lines, because words may contain spaces."""
    lines = _first_lines(file, _first_byte(file))
    widths = [len(_separated(line, len(line))) - 1 for line in lines]
    dim = min(widths, default=0)
    numbers = [_parsed(_separated(line, dim)[1:]) for line in lines] if dim > 1 else [None]
    if any(values is None for values in numbers):
        raise file.wrong(
            "its format is not known: it does not begin as a file of tensors, and its lines are not words with numbers",
            "Supported are safetensors, GGUF, word2vec, GloVe, fastText .vec, .npy, .npz, projector TSV, and folders.",
        )
    return dim


# Binary files


class _Binary:
    """Binary vectors, between words of variable length; the first reading scans the whole file for their offsets."""

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
        with self.file.stream() as stream:
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
                    raise self.file.damaged(f"no word and {self.dim:,} numbers are left for row {row:,}")
                # The original program ends each row with a line break, others do not.
                words.append(chunk[at:end].lstrip(b"\r\n").decode("utf-8", "replace"))
            left = self.file.size - offset
            if left > _CHUNK or stream.read(offset, left).strip():
                raise self.file.damaged(f"{left:,} bytes follow the {self.rows:,} vectors that its header claims")
        self._words = words
        return starts

    def array(self, rows: Chosen) -> Float32[np.ndarray, "rows dim"]:
        starts, row_bytes = self._starts, 4 * self.dim
        out = np.empty((len(rows), self.dim), dtype="<f4")
        with self.file.stream() as stream:
            for target, first, count in contiguous_runs(rows, max(1, _CHUNK // row_bytes)):
                offsets = starts[first : first + count].tolist()
                text = stream.read(offsets[0], offsets[-1] + row_bytes - offsets[0])
                for row, begin in enumerate(offsets):
                    out[target + row] = np.frombuffer(text, "<f4", self.dim, begin - offsets[0])
        return out.astype(np.float32, copy=False)

    def words(self) -> list[str]:
        return self._words if len(self._starts) else []


def is_binary(file: File) -> bool:
    """Return whether a file of word vectors is binary, behind a header of two numbers."""
    counts = _read_counts(file)
    if counts is None:
        return False
    _, dim, begin = counts
    lines = _first_lines(file, begin)
    if not lines:
        return file.size - begin > 2 * dim
    fields = _separated(lines[0], dim)
    if len(fields) == dim + 1 and _parsed(fields[1:]) is not None:
        return False
    return any(byte < 9 or 13 < byte < 32 for byte in file.read(begin, min(4 * dim + 100, 4096, file.size - begin)))


def open_binary_vectors(file: File) -> Contents:
    """Read the header of a binary file of words and their vectors."""
    rows, dim, begin = counts = _read_counts(file) or (0, 0, 0)
    _check_header(file, counts, rows * (4 * dim + 1))
    return _contents("word2vec-binary", _Binary(file, rows, dim, begin), 4 * rows * dim)


# The Embedding Projector: a single column of labels has no header, several columns have one

VECTORS, LABELS = "vectors.tsv", "metadata.tsv"
_VECTOR_NAMES = ("vectors.tsv", "tensors.tsv", "vecs.tsv", "embeddings.tsv")
_LABEL_NAMES = ("metadata.tsv", "meta.tsv", "labels.tsv")
_MAX_LABEL_BYTES = 1 << 30
_ROWS = 1024


def is_projector(folder: Path) -> bool:
    """Return whether a folder has a file of vectors for the projector."""
    return _first(folder, _VECTOR_NAMES) is not None


def open_projector(path: Path) -> Contents:
    """Read the shape of a file of vectors; its labels are in metadata.tsv, or in a file with the suffix _metadata."""
    path = (_first(path, _VECTOR_NAMES) or path) if path.is_dir() else path
    file = File(path)
    begin = _first_byte(file)
    lines = _first_lines(file, begin)
    width = len(lines[0].rstrip(b"\r\n").split(b"\t")) if lines else 0
    # A label may be a number, and a number may be damaged: most of the lines decide.
    labelled = sum(_parsed([line.split(b"\t")[0]]) is None for line in lines) > len(lines) // 2
    if width - labelled < 1 or _parsed(_separated(lines[0], width - labelled)[labelled:]) is None:
        raise file.wrong("its first line holds no numbers between tabs", "Pass the file of vectors, not of labels.")
    reader = _Text(file, None, width - labelled, begin, words=labelled)
    contents = _contents("projector", reader)
    if labelled:
        return contents
    labels = _labels_of(path)
    return replace(contents, words=lambda: None if labels is None else _read_labels(labels, reader.rows))


def write_projector(
    folder: str | Path, weight: Float[np.ndarray, "rows dim"], words: Sequence[str]
) -> tuple[Path, Path]:
    r"""Write a table for the Embedding Projector: vectors.tsv and metadata.tsv.

    Numbers have nine digits, from which float32 is restored exactly. Tabs, line breaks, and labels of spaces alone
    would break the lines of labels, so they are written as escapes, such as \t and \x20.

    The folder is created if it does not exist; files of these names in it are replaced atomically.

    Examples:
        >>> from tempfile import mkdtemp
        >>> vectors, labels = write_projector(mkdtemp(), np.array([[0.5, 0.1], [2, 3]], dtype=np.float32), ["a", "\n"])
        >>> vectors.read_text(), labels.read_text()
        ('0.5\t0.100000001\n2\t3\n', 'a\n\\n\n')
    """
    weight = np.asarray(weight)
    if weight.ndim != 2 or len(weight) != len(words) or not weight.shape[1] or weight.dtype.kind not in "fiu":
        raise ShapeError(
            f"a table of {len(words):,} words is needed, but this has the shape {weight.shape}, type {weight.dtype}.\n"
            "Pass weight[: len(words)] if rows are padded."
        )
    folder = Path(folder)
    line = "\t".join(["%.9g"] * weight.shape[1]) + "\n"
    paths = folder / VECTORS, folder / LABELS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rows = (line % tuple(row) for part in row_blocks(len(weight), _ROWS) for row in weight[part])
        for path, lines in zip(paths, (rows, map(_label, words)), strict=True):
            with atomic_file(path, follow=False) as new, new.open("w", encoding="utf-8", newline="\n") as out:
                out.writelines(lines)
    except OSError as problem:
        raise CheckpointError(f"{folder} cannot be written: {problem.strerror}.\nChoose another folder.") from None
    return paths


def _label(word: str) -> str:
    if not word.strip():
        word = "".join(f"\\x{ord(char):02x}" if char == " " else char for char in word) or "\\x00"
    for char, escape in (("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\x00")):
        word = word.replace(char, escape)
    return word.encode("utf-8", "backslashreplace").decode() + "\n"


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _labels_of(path: Path) -> Path | None:
    own = [f"{path.stem}_{name}" for name in _LABEL_NAMES]
    return _first(path.parent, [*own, *_LABEL_NAMES] if path.name in _VECTOR_NAMES else own)


def _read_labels(path: Path, rows: int) -> list[str]:
    file = File(path)
    if file.size > _MAX_LABEL_BYTES:
        raise file.wrong(f"it has {file.size:,} bytes, but labels have at most {_MAX_LABEL_BYTES:,}", "Pass fewer.")
    text = file.head(file.size).removeprefix(_BOM)
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    if len(lines) == rows + 1 and b"\t" in lines[0]:
        lines = lines[1:]
    if len(lines) != rows:
        raise file.wrong(
            f"it has {len(lines):,} labels for {rows:,} vectors", "Both files must have as many lines, in one order."
        )
    return [line.rstrip(b"\r").split(b"\t")[0].decode("utf-8", "replace") for line in lines]
