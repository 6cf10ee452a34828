"""docs/speed.md and its figure: written from the results, and from nothing else."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import speed
from benchmarks.cases import CASES
from benchmarks.run import bench
from benchmarks.table import ratio

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """Measure two small cases once."""
    return bench(["position-table", "decoding"], quick=True, threads=1)


def test_the_page_is_what_the_script_writes() -> None:
    assert speed.page(speed.committed()) == (ROOT / "docs" / "speed.md").read_text(encoding="utf-8"), "run make docs"


def test_the_page_has_every_case_and_lists_what_is_not_measured(measured: dict[str, Any]) -> None:
    page = speed.page([measured])
    sections = {part.split(":")[0]: part for part in page.split("\n## ")[1:]}
    for name in CASES:
        assert ("Not measured yet." in sections[name]) is (name not in measured["cases"])
    assert "Not measured: no GPU was at hand." in page
    assert "What was not measured on the GPU" in page
    for row in measured["cases"]["decoding"]["variants"][0]["rows"]:
        (line, *_) = [
            line for line in sections["decoding"].splitlines() if line.startswith("| ") and row["candidate"] in line
        ]
        assert f"{ratio(row['regimes']['fresh']['ratio']['median'])} (" in line
    assert measured["command"] in page
    assert measured["versions"]["torch"] in page


def test_the_figure_has_a_line_for_each_candidate(measured: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (variant,) = measured["cases"]["position-table"]["variants"]
    monkeypatch.setattr(speed, "IN_FIGURE", {"position-table": variant["variant"]})
    text = speed.figure(measured)
    assert "prefers-color-scheme: dark" in text, "it reads in light and dark"
    figure = ElementTree.fromstring(text)
    texts = {node.text for node in figure.iter("{http://www.w3.org/2000/svg}text")}
    assert {row["candidate"] for row in variant["rows"]} <= texts
    assert f"position-table: {variant['variant']}" in texts
