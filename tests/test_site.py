"""The site: it builds without warnings, holds every page and public name, and its search finds the field's words."""

import contextlib
import json
import re
from pathlib import Path

import pytest

import whatwhere as ww
from whatwhere.studio.export import PAGE

pytest.importorskip("zensical", reason="the site needs the extra `site`")
pytest.importorskip("mkdocstrings_handlers.python", reason="the site needs the extra `site`")
pytest.importorskip("nbformat", reason="the site needs the extra `site`")

import nbformat

from docs.book.__main__ import build
from docs.book.check import problems_of_navigation, problems_of_site
from docs.book.diagrams import DIAGRAMS, FOLDER
from docs.book.notebooks import notebook
from docs.book.pages import ROOT, site_path

TERMS = ("NoPE", "KV cache", "length generalization", "fine-tune", "glitch token")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning of the builder, a broken link or a page outside the navigation raises."""
    return build(tmp_path_factory.mktemp("site"), full=False)


def test_every_page_of_the_repository_is_built(site: Path) -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if not (site / site_path(page).with_suffix(".html")).is_file()]


def test_machines_get_a_list_of_all_pages_and_the_texts_that_explain(site: Path) -> None:
    listed = re.findall(r"^- \[.+?\]\((\S+?)\)", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"index.html", "how-to/my-model.html", "schemes/rotary.html"} <= {*listed}
    assert not [page for page in listed if not (site / page).is_file()]
    texts = (site / "llms-full.txt").read_text(encoding="utf-8")
    guides = [*(ROOT / "docs" / "how-to").glob("*.md"), *(ROOT / "docs" / "course").glob("*.md")]
    assert not [guide for guide in guides if guide.read_text("utf-8").partition("\n")[0] not in texts]


def test_search_finds_the_words_of_the_field(site: Path) -> None:
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    texts = [f"{item['title']} {re.sub('<[^>]+>', '', item['text'])}".lower() for item in index["items"]]
    assert not [term for term in TERMS if not any(term.lower() in text for text in texts)]


def test_each_public_name_has_an_entry_in_the_reference(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    ids = set(re.findall(r'id="([\w.-]+)"', pages))
    assert not [
        name for name in ww.__all__ if name != "__version__" and not {f"whatwhere.{name}", f"whatwhere{name}"} & ids
    ]


def test_no_outline_is_left_and_live_figures_are_there(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<!-- live:" not in text, page
        assert ":::" not in text or page.parent.name == "live", page
    for name in ("expressions", "training", "evidence"):
        assert (site / "live" / f"{name}.html").is_file() == (PAGE / "studio.js").is_file()


def test_notebooks_have_the_code_of_their_chapters(site: Path) -> None:
    chapters = sorted((ROOT / "docs" / "course").glob("*.md"))
    assert {file.stem for file in (site / "notebooks").iterdir()} == {chapter.stem for chapter in chapters}
    for chapter in chapters:
        written = nbformat.read(site / "notebooks" / f"{chapter.stem}.ipynb", as_version=4)
        code = "\n".join(cell.source for cell in written.cells if cell.cell_type == "code").splitlines()
        text = chapter.read_text(encoding="utf-8")
        blocks = "".join(re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        typed = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", blocks.replace("\n    ...\n", "\n"), re.MULTILINE)
        assert [line for line in code if line] == [line for line in typed if line]
        words = "".join(cell.source for cell in written.cells if cell.cell_type == "markdown")
        assert "](" not in words.replace("](https://", "")
        assert f"notebooks/{chapter.stem}.ipynb" in (site / "course" / f"{chapter.stem}.html").read_text(
            encoding="utf-8"
        )


def test_the_first_notebook_runs() -> None:
    names: dict[str, object] = {}
    for cell in notebook((ROOT / "docs" / "course" / "01-text-to-ids.md").read_text(encoding="utf-8")).cells:
        if cell.cell_type == "code":
            raises = pytest.raises(ww.WhatWhereError) if cell.metadata.get("tags") else contextlib.nullcontext()
            with raises:
                exec(compile(cell.source, cell.id, "exec"), names)
    assert names["reversed_ids"]


def test_diagrams_are_up_to_date_and_described() -> None:
    for name, drawing in DIAGRAMS.items():
        written = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        assert written == drawing.svg(), "run python -m docs.book.diagrams"
        assert len(re.findall(r"<title[^>]*>(.+)</title>", written)[0].split()) > 10
    assert {file.stem for file in FOLDER.iterdir()} == set(DIAGRAMS)


def test_faults_of_a_site_are_named(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "extra.md").write_text("# Extra\n")
    (tmp_path / "zensical.toml").write_text('[project]\nnav = [{ "A" = [{ "B" = "gone.md" }] }]\n')
    assert problems_of_navigation(tmp_path) == [
        "The navigation names gone.md, but no such page was written.",
        "extra.md is a page that the navigation lacks.",
    ]
    page = (
        '<a href="gone.html#x">g</a><img src="https://e.org/a.png"><a href="https://e.org">e</a><a href="a.html">a</a>'
    )
    (tmp_path / "a.html").write_text(page)
    assert problems_of_site(tmp_path) == ["a.html: href gone.html#x is not there", "a.html loads https://e.org/a.png"]
