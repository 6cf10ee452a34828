"""The Embedding Projector's pair, both ways; and the folders of our own comparisons."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.models.checkpoint import Checkpoint, write_projector
from whatwhere.records import with_checksum

from .damage import refused
from .samples import WEIGHT, WORDS, lines


def test_there_and_back_to_the_bit(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
    weight[0] = [np.float32(1) / 3, 1e-45, 3.4028235e38, -0.0, 0.1, 16777217, 1e-38]
    words = [f"word {n}" for n in range(50)]
    vectors, labels = write_projector(tmp_path / "new" / "pair", weight, words)
    assert (vectors.name, labels.name) == ("vectors.tsv", "metadata.tsv")
    for path in (vectors, vectors.parent):
        checkpoint = Checkpoint.open(path)
        assert (checkpoint.format, checkpoint.token_table) == ("projector", "vectors")
        assert checkpoint.array("vectors").tobytes() == weight.tobytes()
        assert checkpoint.words == words
    assert not list(vectors.parent.glob("*.part"))


def test_labels_stay_one_to_a_line(tmp_path: Path) -> None:
    words = ["\t", "a\nb", "", "  ", "\r", "x\u2028y", "\ud800", "\\t", "\0"]
    _, labels = write_projector(tmp_path, np.ones((9, 2)), words)
    assert labels.read_text(encoding="utf-8").split("\n") == [
        "\\t", "a\\nb", "\\x00", "\\x20\\x20", "\\r", "x\u2028y", "\\ud800", "\\t", "\\x00", "",
    ]  # fmt: skip
    assert len(Checkpoint.open(tmp_path).words or []) == 9


def test_what_cannot_be_written(tmp_path: Path, our_own_checks: None) -> None:
    for shape in ((3, 2), (2,)):
        with pytest.raises(ww.errors.ShapeError, match="a table of 2 words is needed, but this has the shape"):
            write_projector(tmp_path, np.ones(shape), ["a", "b"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ww.errors.CheckpointError, match="cannot be written"):
        write_projector(tmp_path / "file", np.ones((2, 2)), ["a", "b"])


@pytest.mark.parametrize(
    ("vectors", "labels"),
    [
        ("vectors.tsv", "metadata.tsv"),
        ("tensors.tsv", "labels.tsv"),
        ("mine.tsv", "mine_metadata.tsv"),
        ("mine.tsv", None),
    ],
)
def test_labels_are_read_from_the_same_folder(vectors: str, labels: str | None, tmp_path: Path) -> None:
    (tmp_path / vectors).write_bytes(lines(separator="\t"))
    if labels is not None:
        (tmp_path / labels).write_text("\n".join(["word\tid", *(f"{word}\t{n}" for n, word in enumerate(WORDS))]))
    checkpoint = Checkpoint.open(tmp_path / vectors)
    assert checkpoint.words == (None if labels is None else WORDS)
    assert np.array_equal(checkpoint.array("vectors"), WEIGHT)


def test_pairs_that_do_not_fit(tmp_path: Path) -> None:
    write_projector(tmp_path, WEIGHT, WORDS)
    (tmp_path / "metadata.tsv").write_text("a\nb\n")
    assert np.array_equal(Checkpoint.open(tmp_path).array("vectors"), WEIGHT)
    words = "metadata.tsv: it has 2 labels for 7 vectors"
    refused(tmp_path, words, read=lambda path: Checkpoint.open(path).words)
    for content in (lines(separator="\t").replace(b"-", b"/", 1), b"a\tb\nc\td\n"):  # one damaged number is not a label
        (tmp_path / "vectors.tsv").write_bytes(content)
        refused(tmp_path, "its first line holds no numbers between tabs")


# Our own results


def test_results(results: Path) -> None:
    """Tables and positions of each run are those that were saved; tokens are those of the task."""
    table, positions = "input.tokens.weight", "input.where.input.weight"
    for path in (results, results / "results.json"):
        checkpoint = ww.read(path)
        assert isinstance(checkpoint, Checkpoint)
        assert (checkpoint.format, checkpoint.metadata["format"]) == ("results", "whatwhere-results")
        assert (checkpoint.token_table, checkpoint.position_table) == (f"learned-0/{table}", f"learned-0/{positions}")
    layer = Checkpoint.open(results / "models" / "learned-1.safetensors")
    assert (layer.token_table, layer.position_table) == (table, positions)
    for name in layer.tensors:
        assert np.array_equal(checkpoint.array(f"learned-1/{name}"), layer.array(name))
    assert checkpoint.words == json.loads((results / "results.json").read_text())["task"]["tokens"]
    assert len(checkpoint.words) == checkpoint.tensors[f"learned-0/{table}"].shape[0]


def test_a_first_run_without_a_table_of_positions_has_none(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "models", tmp_path / "models")
    said = json.loads((results / "results.json").read_text())
    (tmp_path / "results.json").write_text(json.dumps(with_checksum(said | {"runs": said["runs"][::-1]})))
    checkpoint = Checkpoint.open(tmp_path)
    assert (checkpoint.token_table or "").startswith("rotary_alibi")
    assert checkpoint.position_table is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "has the format 'other'"),
        ({"version": 1}, "has version 1, but this whatwhere reads version 4"),
        *(({"runs": runs}, "has no list of runs") for runs in ({}, [3])),
        *(({"runs": [{"file": file}]}, "only a plain name in its own folder")
          for file in ("models/../../secret.safetensors", "/etc/passwd", 3)),
        ({"runs": [{"file": "models/gone.safetensors"}]}, "cannot be read: No such file"),
    ],
)  # fmt: skip
def test_results_that_claim_otherwise(change: dict[str, object], message: str, results: Path, tmp_path: Path) -> None:
    said = json.loads((results / "results.json").read_text()) | change
    (tmp_path / "results.json").write_text(json.dumps(with_checksum(said)))
    (tmp_path / "models").mkdir()
    (tmp_path.parent / "secret.safetensors").write_bytes((results / "models" / "learned-0.safetensors").read_bytes())
    refused(tmp_path, message)


def test_results_without_their_layers_are_there_without_tensors(results: Path, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes((results / "results.json").read_bytes())
    result = ww.read(tmp_path)
    assert (dict(result.tensors), result.token_table) == ({}, None)
    assert result.words is not None
