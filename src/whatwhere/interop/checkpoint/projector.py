"""The TSV pair of the Embedding Projector, both ways: one file of numbers, one of labels.

A single column of labels has no header; several have one, as https://projector.tensorflow.org says.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from whatwhere.errors import CheckpointError, ShapeError
from whatwhere.interop.checkpoint.contents import Contents
from whatwhere.interop.checkpoint.files import File
from whatwhere.interop.checkpoint.text_vectors import TextVectors, first_lines, parsed, separated, vectors

VECTORS, LABELS = "vectors.tsv", "metadata.tsv"
_NUMBERS = ("vectors.tsv", "tensors.tsv", "vecs.tsv", "embeddings.tsv")
_NAMES = ("metadata.tsv", "meta.tsv", "labels.tsv")
_LONGEST_LABELS = 1 << 30


def is_projector(folder: Path) -> bool:
    """Tell whether a folder holds the two files."""
    return _first(folder, _NUMBERS) is not None


def open_projector(path: str | Path) -> Contents:
    """Open the numbers, and the labels beside them: metadata.tsv, or the same name with _metadata."""
    path = Path(path)
    path = (_first(path, _NUMBERS) or path) if path.is_dir() else path
    file = File(path)
    lines = first_lines(file)
    width = len(lines[0].rstrip(b"\r\n").split(b"\t")) if lines else 0
    labelled = bool(lines) and parsed([lines[0].split(b"\t")[0]]) is None
    if width - labelled < 1 or parsed(separated(lines[0], width - labelled)[labelled:]) is None:
        raise file.wrong(
            "its first line holds no numbers between tabs", "Pass the file of vectors; its labels stand beside it."
        )
    reader = TextVectors(file, None, width - labelled, words=labelled)
    found = vectors("projector", reader)
    if labelled:
        return found
    beside = _labels_of(path)
    return replace(found, words=lambda: None if beside is None else _read_labels(beside, reader.rows))


def write_projector(
    folder: str | Path, weight: Float[np.ndarray, "rows dim"], words: Sequence[str]
) -> tuple[Path, Path]:
    r"""Write a table for the Embedding Projector, and give the two paths: vectors.tsv and metadata.tsv.

    Numbers have nine digits, from which float32 is read back to the bit. A tab, a line break or a blank alone would
    break the labels' lines, so that these are written as their escapes, such as \t and \x20, and read as such.

    Args:
        folder: made if it is not there; files of these names in it are replaced, each in one step.
        weight: one row for each word.
        words: what the rows are called.

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
        for path, rows in zip(paths, ((line % tuple(row) for row in weight), map(_label, words)), strict=True):
            unfinished = path.with_suffix(".part")
            with unfinished.open("w", encoding="utf-8", newline="\n") as out:
                out.writelines(rows)
            unfinished.replace(path)
    except OSError as problem:
        raise CheckpointError(f"{folder} cannot be written: {problem.strerror}.\nChoose another folder.") from None
    return paths


def _label(word: str) -> str:
    if not word.strip():
        word = "".join(f"\\x{ord(sign):02x}" if sign == " " else sign for sign in word) or "\\x00"
    for sign, escape in (("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"), ("\0", "\\x00")):
        word = word.replace(sign, escape)
    return word.encode("utf-8", "backslashreplace").decode() + "\n"


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _labels_of(path: Path) -> Path | None:
    own = _first(path.parent, [f"{path.stem}_metadata.tsv", f"{path.stem}_meta.tsv", f"{path.stem}_labels.tsv"])
    usual = _first(path.parent, _NAMES) if path.name in _NUMBERS else None
    return next((found for found in (own, usual) if found is not None and found != path), None)


def _read_labels(path: Path, rows: int) -> list[str]:
    """Read one label for each row: the first column."""
    file = File(path)
    if file.size > _LONGEST_LABELS:
        raise file.wrong(f"it has {file.size:,} bytes, but labels have at most {_LONGEST_LABELS:,}", "Pass less.")
    lines = file.head(file.size).removesuffix(b"\n").split(b"\n") if file.size else []
    if len(lines) == rows + 1 and b"\t" in lines[0]:
        lines = lines[1:]
    if len(lines) != rows:
        raise file.wrong(
            f"it has {len(lines):,} labels for {rows:,} vectors", "Both files must have as many lines, in one order."
        )
    return [line.rstrip(b"\r").split(b"\t")[0].decode("utf-8", "replace") for line in lines]
