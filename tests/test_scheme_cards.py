"""The cards of the schemes: one for each, from one template; links lead somewhere, numbers are the runs'."""

import ast
import itertools
import re
import statistics
from pathlib import Path

import pytest

pytest.importorskip("docs.generate.scheme_cards", reason="the pages are written in a checkout")

from docs.book.pages import illustrated
from docs.generate.scheme_cards import TRAPS, card
from docs.generate.scheme_figures import drawn, measurements, values_by_distance
from experiments.record import Evidence
from experiments.suite import read_evidence
from experiments.tutorials.all_claims import claim
from whatwhere.where.catalogue import catalogue

ROOT = Path(__file__).parents[1]
PARTS = ["Equation", "Picture", "Who uses it", "Our curve", "Traps", "Paper"]


@pytest.fixture(scope="module")
def evidence() -> list[Evidence]:
    """Read the committed evidence."""
    return read_evidence(ROOT / "evidence")


def test_each_scheme_has_a_card_and_a_trap() -> None:
    cards = {file.stem for file in (ROOT / "docs" / "schemes").glob("*.md")}
    assert cards == set(catalogue) == set(TRAPS)
    assert list(TRAPS) == list(catalogue)


@pytest.mark.parametrize("name", catalogue)
def test_a_card_has_the_parts_of_the_template(name: str, evidence: list[Evidence]) -> None:
    text = card(catalogue[name], evidence)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    bodies = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(body.strip() for body in bodies)
    assert catalogue[name].formula in bodies[0]
    assert catalogue[name].url in bodies[-1]
    assert all(user.split()[-1] in bodies[2] for user in catalogue[name].used_by)


@pytest.mark.parametrize("id", sorted({id for traps in TRAPS.values() for trap in traps for id in trap["shown_by"]}))
def test_what_shows_a_trap_is_there(id: str) -> None:
    if re.fullmatch(r"\d\.\d+[a-z]?", id):
        assert f'<a id="{claim(id).anchor}">' in (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    elif match := re.fullmatch(r"(E\d+)\.\d+", id):
        page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
        assert f'<a id="{match[1].lower()}"></a>' in page
        assert f"| {id} |" in page
    else:
        file, _, name = id.partition("::")
        tests = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        assert name in {node.name for node in tests if isinstance(node, ast.FunctionDef)}


def test_the_curve_is_that_of_the_runs(evidence: list[Evidence]) -> None:
    (measured,) = (each for each in measurements(evidence) if each.evidence.id == "E1")
    compared = 0
    for name, length in itertools.product(set(measured.comparison.schemes) & set(catalogue), measured.lengths):
        runs = [run.scores.get(length, {}).get("all") for run in measured.comparison.runs if run.scheme == name]
        scores = [score for score in runs if score is not None]
        if scores:
            middle, least, greatest = (f"{100 * of(scores):.1f}" for of in (statistics.median, min, max))
            shown = middle if least == greatest else f"{middle} ({least} to {greatest})"
            assert f"| {shown} |" in card(catalogue[name], evidence)
            compared += 1
    assert compared >= 13


def test_a_picture_has_the_schemes_own_values() -> None:
    alibi = values_by_distance(catalogue["alibi"])
    assert alibi is not None
    assert [float(curve[8]) for curve in alibi.curves.values()] == [-8 * 2.0 ** (-2 * head) for head in (1, 2, 3, 4)]


def test_every_figure_of_a_card_is_drawn_and_no_other(evidence: list[Evidence]) -> None:
    files = [file for file, _ in drawn(evidence)]
    texts = [card(entry, evidence) for entry in catalogue.values()]
    named = [match for text in texts for match in re.findall(r"^<!-- figure: (\S+) ", text, re.MULTILINE)]
    assert sorted(named) == sorted(files)
    assert len(set(files)) == len(files) >= 28
    page = illustrated(texts[list(catalogue).index("alibi")], frozenset(files))
    assert "![alibi: bias added to the score " in page
    assert "<!-- figure" not in page
    with pytest.raises(KeyError, match="was not drawn"):
        illustrated("<!-- figure: gone.svg a figure -->", frozenset(files))
