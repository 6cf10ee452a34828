"""The parts of the page: markup that escapes, numbers in words, colors that can be read, drawings in bounds."""

import html
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from whatwhere.comparison.page.reading import Results, number, optional, spread
from whatwhere.comparison.page.wording import NO_ROW, measure, run_of, score_cell, score_text, spread_cell, spread_of
from whatwhere.errors import MissingExtra
from whatwhere.page.markup import Markup, document, element, folded, join, section, table, text_of, visible
from whatwhere.page.wording import code, count, listed, plain, small

STYLE = files("whatwhere.page").joinpath("report.css").read_text(encoding="utf-8")


def results(**task: Any) -> Results:
    described = {"name": "expressions", "unit": "arguments", "trained": [1, 2, 3], "measure": "accuracy"}
    described |= {"better": "higher", **task}
    scores = {str(length): {"all": {"median": 0.5, "min": 0.4, "max": 0.6}} for length in (1, 3, 16, 8)}
    summary = {"scores": scores | {"32": {"all": None}}, "in_length": {"median": 1.0, "min": 1.0, "max": 1.0}}
    shift = {"10": {"score": None}, "2": {"score": {"median": 0.5, "min": 0.4, "max": 0.6}}}
    found = {"b": summary | {"shift": shift}, "a": summary | {"shift": {}}}
    return Results(Path(), {"task": described, "summary": found, "settings": {"schemes": ["a", "gone"]}, "runs": []})


class TestMarkup:
    def test_text_is_escaped_and_markup_is_not(self) -> None:
        assert join("<", Markup("<b>"), '"', "'", "&") == "&lt;<b>&quot;&#x27;&amp;"
        assert element("p", "a < b", element("b", "&")) == "<p>a &lt; b<b>&amp;</b></p>"
        assert isinstance(join("<"), Markup)

    def test_joining_twice_escapes_once(self) -> None:
        assert element("p", join("<")) == element("p", "<")

    def test_an_edited_markup_is_text_again(self) -> None:
        # Only what element and join made is trusted: a piece cut out of it may be half a tag.
        assert join(Markup("<b>x</b>")[:4]) == "&lt;b&gt;x"
        assert join(Markup("<b>") + "<i>") == "&lt;b&gt;&lt;i&gt;"

    @pytest.mark.parametrize("value", ['" onclick="alert(1)', "' x", "<>", "&quot;"])
    def test_attributes_cannot_be_left(self, value: str) -> None:
        written = element("td", title=value)
        assert written.count('"') == 2
        assert html.unescape(written.split('"')[1]) == value

    def test_attribute_names_are_written_as_in_python(self) -> None:
        assert element("p", class_="a", aria_label="b", attributes={"http-equiv": "c"}) == (
            '<p http-equiv="c" class="a" aria-label="b"></p>'
        )
        assert element("meta", charset="utf-8") == '<meta charset="utf-8">'

    @pytest.mark.parametrize("char", ["\x00", "\x1b", "\x7f", "\x9f", "\ud800", "\u202e", "\u2066", "\u200f"])
    def test_what_cannot_be_shown_is_marked(self, char: str) -> None:
        assert visible(f"a{char}b") == "a\ufffdb"
        assert element("p", char, title=char) == '<p title="\ufffd">\ufffd</p>'
        element("p", char).encode("utf-8")

    @pytest.mark.parametrize("text", ["θ", "\U0001f600", "é", "日本", "a\u00a0b"])
    def test_other_letters_stay(self, text: str) -> None:
        assert visible(text) == text

    def test_the_text_of_markup(self) -> None:
        assert text_of(element("p", "1 < 2 & ", element("code", "<b>"))) == "1 < 2 & <b>"

    def test_a_table_names_its_rows_and_columns(self) -> None:
        root = ElementTree.fromstring(table("what <it> shows", ["a", "b"], [["x", "1"], ["y", join("2")]], "words"))
        assert root.attrib == {"class": "scroll", "role": "region", "aria-label": "what <it> shows", "tabindex": "0"}
        assert [(cell.tag, cell.get("scope"), cell.text) for cell in root.iter() if cell.tag in {"th", "td"}] == [
            ("th", "col", "a"), ("th", "col", "b"), ("th", "row", "x"), ("td", None, "1"),
            ("th", "row", "y"), ("td", None, "2"),
        ]  # fmt: skip

    def test_sections_and_folded_parts(self) -> None:
        root = ElementTree.fromstring(section("here", "T", "seen", folded("more", element("p", "all"))))
        assert root.attrib == {"id": "here", "aria-labelledby": "here-title"}
        assert [child.tag for child in root] == ["h2", "p", "details"]
        assert root[0].get("id") == "here-title"

    def test_a_style_cannot_be_left_by_a_title(self) -> None:
        written = document("</title><script>", element("p", "x"))
        assert "<script>" not in written
        assert written.startswith('<!DOCTYPE html>\n<html lang="en">')


class TestWording:
    @pytest.mark.parametrize(
        ("value", "digits", "written"),
        [
            (0.5, 3, "0.500"), (-0.5, 1, "−0.5"), (-0.0004, 3, "0.000"), (-0.0, 2, "0.00"), (1234.5, 0, "1234"),
            (math.nan, 3, "not finite"), (-math.inf, 3, "not finite"),
        ],
    )  # fmt: skip
    def test_plain(self, value: float, digits: int, written: str) -> None:
        assert plain(value, digits) == written

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (0.0, "0"), (12.0, "12"), (250.0, "250"), (0.012, "0.012"), (7.04e-6, "7.0 × 10<sup>−6</sup>"),
            (2.5e7, "2.5 × 10<sup>7</sup>"), (math.inf, "not finite"),
        ],
    )  # fmt: skip
    def test_small(self, value: float, written: str) -> None:
        assert small(value) == written

    @pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [4.0, 1.0, 3.0], [0.1, 0.2, 0.7, 0.4]])
    def test_the_spread_is_that_of_numpy(self, values: list[float]) -> None:
        expected = float(np.median(values)), min(values), max(values)
        assert spread_of(values) == pytest.approx(expected)
        assert spread_of([None, *values, None]) == spread_of(values)

    def test_a_spread_of_nothing_is_nothing(self) -> None:
        assert spread_of([]) is None
        assert spread_of([None]) is None

    def test_spread_cells(self) -> None:
        assert spread_cell(None) is NO_ROW
        assert text_of(NO_ROW) == "no row"
        assert spread_cell((0.25, 0.25, 0.25), 100.0, 1) == "25.0"
        assert spread_cell((0.5, -0.25, 1.0), 1.0, 2) == "0.50<small>−0.25 to 1.00</small>"

    def test_a_spread_that_rounding_hides_is_left_out(self) -> None:
        assert spread_cell((0.5, 0.49996, 0.50004), 1.0, 3) == "0.500"

    @pytest.mark.parametrize(
        ("lengths", "written"),
        [([1], "1"), ([1, 2], "1 and 2"), ([1, 2, 3], "1 to 3"), ([2, 4, 6], "2, 4 and 6"), ([3, 2, 1], "3, 2 and 1")],
    )
    def test_lengths(self, lengths: list[int], written: str) -> None:
        assert run_of(lengths) == written

    def test_lists_and_counts(self) -> None:
        assert listed([]) == ""
        assert listed(["<", code("b")]) == "&lt; and <code>b</code>"
        assert (count(1, "seed"), count(0, "seed"), count(1200, "run")) == ("1 seed", "0 seeds", "1,200 runs")
        assert count(2, "index", "indices") == "2 indices"

    def test_the_middle_of_a_long_name_is_left_out(self) -> None:
        assert text_of(code("a" * 48)) == "a" * 48
        shown = text_of(code("start" + "x" * 200 + "the end"))
        assert shown.startswith("start")
        assert shown.endswith("the end")
        assert len(shown) == 48
        assert "…" in shown

    def test_scores_in_the_unit_of_the_task(self) -> None:
        assert score_text(results(), 0.9912) == "99.1\u00a0%"
        assert score_text(results(measure="nats per byte"), 1.2345) == "1.234"
        assert score_text(results(measure="nats per byte"), 1.2345, unit=True) == "1.234\u00a0nats per byte"
        assert score_text(results(), math.nan) == "not finite"
        assert score_cell(results(), (0.5, 0.25, 0.75)) == "50.0<small>25.0 to 75.0</small>"
        assert score_cell(results(measure="nats per byte"), (0.5, 0.5, 0.5)) == "0.500"
        assert measure(results()) == "accuracy in %; higher is better"
        assert measure(results(measure="nats per byte", better="lower")) == "nats per byte; lower is better"


class TestReading:
    def test_schemes_stand_as_they_were_asked_for(self) -> None:
        assert results().schemes == ["a", "b"]

    def test_lengths_are_sorted_as_numbers(self) -> None:
        assert results().trained == [1, 3]
        assert results().beyond == [8, 16, 32]
        assert results().shifts == [2, 10]

    def test_scores(self) -> None:
        assert results().score("a", 16) == (0.5, 0.4, 0.6)
        assert results().score("a", None) == (1.0, 1.0, 1.0)
        assert results().score("a", 32) is None
        assert results().score("a", 16, "Max") is None
        assert results().shift("b", 2, "score") == (0.5, 0.4, 0.6)
        assert results().shift("b", 10, "score") is None

    def test_numbers_that_are_missing(self) -> None:
        assert math.isnan(number(None))
        assert optional(None) is None
        assert spread(None) is None
        assert optional(1) == number(1) == 1.0


def luminance(color: str) -> float:
    """Compute the relative luminance of WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-relative-luminance."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes() -> dict[str, dict[str, str]]:
    light, _, rest = STYLE.partition("@media (prefers-color-scheme: dark)")
    dark = rest.partition("* {")[0]
    return {name: dict(re.findall(r"(--\w+): (#\w{6})", text)) for name, text in (("light", light), ("dark", dark))}


class TestStyle:
    def test_every_variable_has_a_light_and_a_dark_value(self) -> None:
        light, dark = themes()["light"], themes()["dark"]
        assert light.keys() == dark.keys() >= set(re.findall(r"var\((--\w+)\)", STYLE))
        assert light["--page"] != dark["--page"]

    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_words_and_lines_can_be_told_from_the_page(self, theme: str) -> None:
        colors = themes()[theme]
        assert contrast("#ffffff", "#000000") == pytest.approx(21.0)
        for name in ("ink", "muted", "link", "good", "bad", "open"):
            assert contrast(colors[f"--{name}"], colors["--page"]) >= 4.5, name
        for name in ("ink", "muted"):
            assert contrast(colors[f"--{name}"], colors["--shade"]) >= 4.5, name
        for index in range(8):
            assert contrast(colors[f"--c{index}"], colors["--page"]) >= 3.0, index

    def test_the_page_asks_for_nothing(self) -> None:
        assert not re.search(r"@import|url\(|</", STYLE)


class TestDrawings:
    @pytest.fixture(autouse=True)
    def _needs_matplotlib(self) -> None:
        pytest.importorskip("matplotlib")

    def test_a_heat_map_is_transparent_at_zero_and_colored_by_sign(self) -> None:
        import base64
        import io

        from matplotlib.image import imread

        from whatwhere.comparison.page.figures import heat_map

        values = np.array([[0.0, 1.0], [-1.0, 2.0], [np.nan, 0.5]])
        drawn = heat_map("x", values, ("a", "b"), 1.0)
        found = re.search(r'href="data:image/png;base64,([^"]*)"', drawn)
        assert found
        picture = imread(io.BytesIO(base64.b64decode(found[1])))
        colors = {tuple(color) for color in np.round(picture.reshape(-1, 4) * 255).astype(int).tolist()}
        assert {color[3] for color in colors} >= {0, 255}
        assert all(color[2] > color[0] or color[0] > color[2] for color in colors if color[3])

    def test_a_curve_with_a_gap_is_not_joined_across_it(self) -> None:
        from whatwhere.comparison.page.charts import Chart, Scale, score_chart

        whole = [(0.9, 0.8, 1.0)] * 4
        for missing, moves in ((None, 1), (1, 2)):
            line = [None if place == missing else found for place, found in enumerate(whole)]
            drawn = score_chart("x", Chart(list("abcd"), [line], Scale("accuracy"), "length"))
            lines = [path for path in re.findall(r'<path d="([^"]*)"[^>]*var\(--c0\)', drawn) if path.count(" ") > 6]
            assert [path.count("M") for path in lines] == [moves], f"missing: {missing}"
            assert (">no row<" in drawn) == (missing is not None)

    def test_two_drawings_share_no_id(self) -> None:
        from whatwhere.page.charts import curve_chart

        ids = [
            set(re.findall(r' id="([^"]*)"', curve_chart(name, [0.0, 1.0], [[1.0, 0.0]]))) for name in ("one", "two")
        ]
        assert ids[0]
        assert not ids[0] & ids[1]

    def test_names_on_a_map_do_not_cover_each_other(self) -> None:
        from whatwhere.comparison.page.figures import token_map

        draw = np.random.default_rng(0)
        drawn = token_map("x", draw.normal(size=(60, 2)), ["token"] * 60, [0] * 60)
        spots = re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)">token<', drawn)
        places = np.array(spots, dtype=float)
        assert 10 < len(places) <= 60
        apart = np.abs(places[:, None] - places[None])
        touching = (apart[..., 0] < 30) & (apart[..., 1] < 11)
        assert touching.sum() == len(places), "each name meets itself alone"

    def test_figures_tell_their_story_to_screen_readers(self) -> None:
        from whatwhere.comparison.page.figures import number_line

        root = ElementTree.fromstring(number_line("n", np.arange(3.0), "abc", texts=("A <title>", "what & how")))
        assert root.get("role") == "img"
        assert [child.text for child in root][:2] == ["A <title>", "what & how"]
        assert root.get("aria-labelledby") == "n-title n-desc"

    def test_without_matplotlib_each_drawing_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sys

        from whatwhere.page.charts import swatch

        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(MissingExtra, match="report"):
            swatch("x", 0)
