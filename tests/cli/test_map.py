"""map: a picture that says how far it can be trusted, places for machines, the table for the Embedding Projector."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from whatwhere.analysis.token_map import make_map
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.records import to_json
from whatwhere.report.html import scatter

from ..running import json_of, whatwhere
from .conftest import Saved
from .test_neighbors import named

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.every_nth(3)
def test_every_model(saved: Saved, tmp_path: Path) -> None:
    result = json_of("map", saved.path, "--out", tmp_path / "map.json", "-k", "5")
    written, right = json.loads((tmp_path / "map.json").read_text()), make_map(saved.table, k=5)
    points = written.pop("points")
    assert written == result
    assert [point["token"] for point in points] == [named(n) for n in range(37)]
    assert {point["type"] for point in points} <= {"word", "no token", "special"}
    np.testing.assert_allclose([[point["x"], point["y"]] for point in points], right.coordinates, atol=1e-6)
    assert result["explained_variance_ratio"] == pytest.approx(right.explained_variance_ratio)
    assert (result["shown"], result["files"]) == (37, [str(tmp_path / "map.json")])
    assert result["kept"] == pytest.approx(to_json(right.kept), abs=1e-6)


@pytest.mark.every_nth(3)
def test_the_picture_states_how_many_neighbors_it_preserves(saved: Saved, tmp_path: Path) -> None:
    said = whatwhere("map", saved.path, "--out", tmp_path / "map.svg")
    result = json_of("map", saved.path, "--out", tmp_path / "again.svg")
    root = ElementTree.parse(tmp_path / "map.svg").getroot()
    texts = [node.text or "" for node in root.iter(f"{SVG}text")]
    share = f"{100 * result['kept']['share']:.1f}\u00a0%"
    kept = f"{share} of the 9 nearest neighbors in the table are nearest neighbors on the map"
    assert any(text.startswith(kept) for text in texts)
    assert kept in said.out
    drawn = [path.attrib["d"].count("M") for path in root.iter(f"{SVG}path")]
    groups = len(drawn) // 2
    assert sum(drawn[:groups]) == 37
    assert sum(int(n) for text in texts for n in re.findall(r"^[a-z ]+ \((\d+)\)$", text)) == 37
    assert (tmp_path / "map.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()


def test_coordinates_as_tsv_and_a_sample(minilm: Path, tmp_path: Path) -> None:
    result = json_of("map", minilm, "--out", tmp_path / "map.tsv", "--rows", "200", "--seed", "3")
    lines = [line.split("\t") for line in (tmp_path / "map.tsv").read_text().splitlines()]
    assert lines[0] == ["id", "token", "type", "x", "y"]
    words = Checkpoint.open(minilm).words or []
    assert len(lines) == 201 == result["shown"] + 1
    assert all(words[int(line[0])] == line[1] for line in lines[1:])
    assert {"word start", "continuation"} <= {line[2] for line in lines[1:]}


@pytest.mark.every_nth(3)
def test_the_table_for_the_projector_is_read_back(saved: Saved, tmp_path: Path) -> None:
    result = json_of("map", saved.path, "--out", tmp_path / "map.svg", "--tsv", tmp_path / "projector")
    assert result["files"] == [str(tmp_path / "map.svg"), str(tmp_path / "projector")]
    again = Checkpoint.open(tmp_path / "projector")
    assert again.words == [named(n) for n in range(37)]
    assert np.array_equal(again.array("vectors"), saved.table)


def test_names_that_would_break_a_picture() -> None:
    names = ["<script>", "]]>", "\x00\x1b[2J", "\ufffe", "\u202eabc", "&amp;", "\ud800", "x" * 500]
    points = np.random.default_rng(0).standard_normal((len(names), 2))
    drawn = scatter(points, names, names, "<title>", names)
    root = ElementTree.fromstring(drawn.encode("utf-8"))
    assert not root.findall(f".//{SVG}script")
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ufffe\ud800]", drawn)


@pytest.mark.parametrize("points", [np.zeros((1, 2)), np.zeros((5, 2)), np.array([[0.0, 0], [1, 0], [2, 0]])])
def test_points_in_one_spot_or_on_a_line(points: np.ndarray) -> None:
    names = ["a"] * len(points)
    root = ElementTree.fromstring(scatter(points, names, names, "t", []))
    spots = re.findall(r"M(\S+) (\S+)h0", next(root.iter(f"{SVG}path")).attrib["d"])
    assert len(spots) == len(points)
    assert all(0 <= float(x) <= 1200 and 0 <= float(y) <= 900 for x, y in spots)


def test_the_picture_is_to_scale() -> None:
    """One unit is as long up as across, and up is greater."""
    drawn = scatter(np.array([[0.0, 0], [2, 0], [0, 1]]), list("abc"), ["one"] * 3, "t", [])
    spots = re.findall(r"M(\S+) (\S+)h0", next(ElementTree.fromstring(drawn).iter(f"{SVG}path")).attrib["d"])
    corner, right, top = np.array(spots, float)
    assert (right - corner)[0] == pytest.approx(2 * (corner - top)[1], abs=0.3)
    assert (corner - top)[1] > 100
    assert [(right - corner)[1], (top - corner)[0]] == [0, 0]
