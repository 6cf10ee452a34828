"""Markup: text is escaped, whatever it says, and what cannot be shown is marked."""

import html
from xml.etree import ElementTree

import pytest

from whatwhere.page.markup import Markup, element, folded, join, table, visible


def test_text_is_escaped_and_markup_is_not() -> None:
    assert join("<", Markup("<b>"), '"', "'", "&") == "&lt;<b>&quot;&#x27;&amp;"
    assert element("p", "a < b", element("b", "&")) == "<p>a &lt; b<b>&amp;</b></p>"
    assert isinstance(join("<"), Markup)


def test_joining_twice_escapes_once() -> None:
    assert element("p", join("<")) == element("p", "<")


def test_an_edited_markup_is_text_again() -> None:
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


@pytest.mark.parametrize("char", ["\x00", "\x1b", "\x7f", "\x9f", "\ud800", "\u202e", "\u2066", "\u200f"])
def test_what_cannot_be_shown_is_marked(char: str) -> None:
    assert visible(f"a{char}b") == "a\ufffdb"
    assert element("p", char, title=char) == '<p title="\ufffd">\ufffd</p>'
    element("p", char).encode("utf-8")


@pytest.mark.parametrize("text", ["θ", "\U0001f600", "é", "日本", "a\u00a0b"])
def test_other_letters_stay(text: str) -> None:
    assert visible(text) == text


def test_a_table_names_its_rows_and_columns() -> None:
    root = ElementTree.fromstring(table("what <it> shows", ["a", "b"], [["x", "1"], ["y", join("2")]], "words"))
    assert root.attrib == {"class": "scroll", "role": "region", "aria-label": "what <it> shows", "tabindex": "0"}
    assert [(cell.tag, cell.get("scope"), cell.text) for cell in root.iter() if cell.tag in {"th", "td"}] == [
        ("th", "col", "a"), ("th", "col", "b"), ("th", "row", "x"), ("td", None, "1"),
        ("th", "row", "y"), ("td", None, "2"),
    ]  # fmt: skip


def test_a_folded_part_opens_on_demand() -> None:
    root = ElementTree.fromstring(folded("more", element("p", "all")))
    assert [child.tag for child in root] == ["summary", "p"]
