"""Markup: text is escaped, whatever it says, and characters that cannot be seen are shown as their code points."""

import html
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from whatwhere.report import terminal
from whatwhere.report.html import Markup, element, folded, join, sections, table
from whatwhere.report.section import Chart, Section, Series, Table


def test_text_is_escaped_and_markup_is_not() -> None:
    assert join("<", Markup("<b>"), '"', "'", "&") == "&lt;<b>&quot;&#x27;&amp;"
    assert element("p", "a < b", element("b", "&")) == "<p>a &lt; b<b>&amp;</b></p>"
    assert element("p", join("<")) == element("p", "<")
    # Only what element and join made is trusted: a piece cut out of it may be half a tag.
    assert join(Markup("<b>x</b>")[:4]) == "&lt;b&gt;x"
    assert join(Markup("<b>") + "<i>") == "&lt;b&gt;&lt;i&gt;"


@pytest.mark.parametrize("value", ['" onclick="alert(1)', "' x", "<>", "&quot;"])
def test_attributes_cannot_be_left(value: str) -> None:
    written = element("td", title=value)
    assert written.count('"') == 2
    assert html.unescape(written.split('"')[1]) == value


def test_attribute_names_are_written_as_in_python() -> None:
    assert element("p", class_="a", aria_label="b", attributes={"http-equiv": "c"}) == (
        '<p http-equiv="c" class="a" aria-label="b"></p>'
    )
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\x7f", "\x9f", "\ud800", "\u202e", "\u2066", "\u200f", "\ufffe"])
def test_characters_that_cannot_be_seen_are_shown(char: str) -> None:
    code = f"⟨U+{ord(char):04X}⟩"
    assert element("p", char, title=char) == f'<p title="{code}">{code}</p>'
    element("p", char).encode("utf-8")


SECTION = Section(
    "names",
    "What <it> shows",
    [
        "a & \x1b[31mb.",
        Table("few \u202e", ["a", "b"], [["x", "1"], ["y\x1b", "2"]], (1,), bars=[0.5, 1.0]),
        Table("many", ["a"], [[str(n)] for n in range(40)], total=100),
        Chart(
            "lines", "drawn", "x", "y", [1.0, 2.0], [Series("s", [3.0, 4.0])], Table("read", ["x"], [["3"]]), "Note it."
        ),
    ],
)


def test_a_table_names_its_rows_and_columns() -> None:
    root = ElementTree.fromstring(table(Table("what <it> shows", ["a", "b"], [["x", "1"], ["y", "2"]], (1,))))
    assert root.attrib == {"class": "scroll", "role": "region", "aria-label": "what <it> shows", "tabindex": "0"}
    assert [(cell.tag, cell.get("scope"), cell.text) for cell in root.iter() if cell.tag in {"th", "td"}] == [
        ("th", "col", "a"), ("th", "col", "b"), ("th", "row", "x"), ("td", None, "1"),
        ("th", "row", "y"), ("td", None, "2"),
    ]  # fmt: skip
    assert [cell.get("class") for cell in root.iter("td")] == ["number", "number"]


def test_sections_are_written_with_all_their_parts() -> None:
    (written,) = sections([SECTION], level=3, prefix="view-")
    root = ElementTree.fromstring(written)
    assert (root.tag, root.get("id")) == ("section", "view-names")
    assert [part.tag for part in root] == ["h3", "p", "div", "details", "p", "div"]
    assert [node.text for node in root.iter("p")] == ["a & ⟨U+001B⟩[31mb.", "Note it."]
    assert [span.text for span in root.iter("span")] == ["few ⟨U+202E⟩", "many", "read"]


def test_what_charts_share_is_written_once() -> None:
    charts = [Chart("lines", name, "x", "y", [0.0], [], Table(name, ["a"], [["1"]]), name, "How.") for name in "ab"]
    (written,) = sections([Section("two", "Two", charts)])
    root = ElementTree.fromstring(written)
    assert [node.text for node in root.iter("p")] == ["a", "How.", "b"]
    assert [part.tag for part in root] == ["h2", "p", "div", "details", "p", "div"]


def test_a_long_table_opens_on_demand() -> None:
    root = ElementTree.fromstring(folded(Table("more", ["a"], [["x"]] * 26)))
    assert [child.tag for child in root] == ["summary", "div"]
    assert ElementTree.fromstring(folded(Table("few", ["a"], [["x"]] * 25))).tag == "div"


def printed(section: Section, **options: Any) -> str:
    written = StringIO()
    terminal.print_report([section], console=Console(file=written, width=100, markup=False), **options)
    return written.getvalue()


def test_a_terminal_gets_the_same_text_and_no_escape_sequence() -> None:
    shown = printed(SECTION, rows=3)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert " a & ⟨U+001B⟩[31mb.\n" in shown
    assert [line.split()[:2] for line in shown.splitlines() if "█" in line] == [["x", "1"], ["y⟨U+001B⟩", "2"]]
    assert "and 97 more: --json lists them" in shown
    assert "read" in shown


def test_rows_of_a_long_table_are_chosen() -> None:
    rows = [[f"r{n}"] for n in range(50)]
    evenly = printed(Section("s", "t", [Table("", ["row"], rows, shorten="evenly")]), rows=4).split()
    assert [evenly[2], evenly[-1], len(evenly)] == ["r0", "r49", 18]
    assert len(printed(Section("s", "t", [Table("", ["row"], rows, shorten="never")]), rows=4).split()) == 52


def test_a_terminal_without_block_characters_gets_ascii_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, char in (("utf-8", "█"), ("ascii", "#")):
        monkeypatch.setattr(terminal.sys, "stdout", type("Out", (), {"encoding": encoding})())
        shown = printed(Section("s", "t", [Table("", ["row"], [["a"]], bars=[0.7])]))
        monkeypatch.undo()
        assert char in shown
        assert shown.isascii() is (encoding == "ascii")
