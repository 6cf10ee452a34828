"""Read and write the TSV pair of the Embedding Projector: one file of numbers, one of labels.

A single column of labels has no header, several columns have one: see https://projector.tensorflow.org.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from whatwhere.atomic import atomic_file
from whatwhere.errors import CheckpointError, ShapeError
from whatwhere.large_arrays import row_blocks
from whatwhere.models.checkpoint.base import Contents
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.word_vectors import (
    BOM,
    TextVectors,
    first_byte,
    first_lines,
    parsed,
    separated,
    vectors,
)

VECTORS, LABELS = "vectors.tsv", "metadata.tsv"
_VECTOR_NAMES = ("vectors.tsv", "tensors.tsv", "vecs.tsv", "embeddings.tsv")
_LABEL_NAMES = ("metadata.tsv", "meta.tsv", "labels.tsv")
_MAX_LABEL_BYTES = 1 << 30
_ROWS = 1024


def is_projector(folder: Path) -> bool:
    """Return whether a folder has a file of vectors for the projector."""
    return _first(folder, _VECTOR_NAMES) is not None


def open_projector(path: str | Path) -> Contents:
    """Read the shape of a file of vectors; its labels are in metadata.tsv, or in a file with the suffix _metadata."""
    path = Path(path)
    path = (_first(path, _VECTOR_NAMES) or path) if path.is_dir() else path
    file = File(path)
    begin = first_byte(file)
    lines = first_lines(file, begin)
    width = len(lines[0].rstrip(b"\r\n").split(b"\t")) if lines else 0
    # A label may be a number, and a number may be damaged: most of the lines decide.
    labelled = sum(parsed([line.split(b"\t")[0]]) is None for line in lines) > len(lines) // 2
    if width - labelled < 1 or parsed(separated(lines[0], width - labelled)[labelled:]) is None:
        raise file.wrong(
            "its first line holds no numbers between tabs", "Pass the file of vectors, not that of its labels."
        )
    reader = TextVectors(file, None, width - labelled, begin, words=labelled)
    contents = vectors("projector", reader)
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

    Args:
        folder: created if it does not exist; files of these names in it are replaced atomically.

    Returns:
        The paths of the two files.

    Raises:
        ShapeError: If the number of words is not that of rows, or the table does not hold real numbers.
        CheckpointError: If the folder cannot be written.

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
            with (
                atomic_file(path, follow=False) as unfinished,
                unfinished.open("w", encoding="utf-8", newline="\n") as out,
            ):
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
    own = _first(path.parent, [f"{path.stem}_metadata.tsv", f"{path.stem}_meta.tsv", f"{path.stem}_labels.tsv"])
    usual = _first(path.parent, _LABEL_NAMES) if path.name in _VECTOR_NAMES else None
    return next((labels for labels in (own, usual) if labels is not None and labels != path), None)


def _read_labels(path: Path, rows: int) -> list[str]:
    """Read one label for each row: the first column."""
    file = File(path)
    if file.size > _MAX_LABEL_BYTES:
        raise file.wrong(f"it has {file.size:,} bytes, but labels have at most {_MAX_LABEL_BYTES:,}", "Pass fewer.")
    text = file.head(file.size).removeprefix(BOM)
    lines = text.removesuffix(b"\n").split(b"\n") if text else []
    if len(lines) == rows + 1 and b"\t" in lines[0]:
        lines = lines[1:]
    if len(lines) != rows:
        raise file.wrong(
            f"it has {len(lines):,} labels for {rows:,} vectors", "Both files must have as many lines, in one order."
        )
    return [line.rstrip(b"\r").split(b"\t")[0].decode("utf-8", "replace") for line in lines]
