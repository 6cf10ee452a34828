"""Figures for a paper: the data can be read back from the picture, nothing is printed over anything, PDF as SVG."""

import itertools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from whatwhere.comparison import read_results
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.report import paper
from whatwhere.report.line_figure import (
    MILLIMETER,
    Curve,
    Label,
    LineFigure,
    Path,
    layout,
    to_pdf,
    to_svg,
)
from whatwhere.report.paper import figures, write_figures
from whatwhere.report.ticks import round_ticks, tick_texts

from ..comparison.made_up import GROUPS, hostile_folder, made_up_folder
from ..running import whatwhere

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: ElementTree.Element) -> list[tuple[str, float, float, float, float]]:
    """Return text, left, top, right and bottom of each label, as wide as Helvetica writes it, or a little more."""
    written = []
    for label in svg.iter(f"{SVG}text"):
        text, size = label.text or "", float(label.attrib["font-size"])
        width = 0.56 * size * len(text)
        x, y = float(label.attrib["x"]), float(label.attrib["y"])
        x -= {"start": 0.0, "middle": width / 2, "end": width}[label.attrib["text-anchor"]]
        box = (x, y - 0.75 * size, x + width, y + 0.22 * size)
        if "transform" in label.attrib:
            middle = float(label.attrib["y"])
            box = (float(label.attrib["x"]) - 0.75 * size, middle - width / 2, x + width / 2 + 3, middle + width / 2)
        written.append((text, *box))
    return written


def drawn(figure: LineFigure, width: float = 84.0) -> ElementTree.Element:
    return ElementTree.fromstring(to_svg(layout(figure, width)))


@pytest.mark.parametrize("width", [60.0, 84.0, 174.0])
@pytest.mark.parametrize("task", ["expressions", "text"])
def test_nothing_is_printed_over_anything(tmp_path: FilePath, task: str, width: float) -> None:
    names = ("none", "sinusoidal", "learned", "rotary", "alibi", "rotary@dim=16/rotary@randomized+alibi")
    for figure in figures(read_results(made_up_folder(tmp_path, task, names, seeds=2))):
        svg = drawn(figure, width)
        size = [float(number) for number in svg.attrib["viewBox"].split()[2:]]
        assert size[0] == pytest.approx(width * MILLIMETER, abs=0.01)
        labels = boxes(svg)
        for (one, *a), (other, *b) in itertools.combinations(labels, 2):
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, f"{one!r} and {other!r} overlap in {figure.name}"
        for text, left, top, right, bottom in labels:
            inside = left >= 0 and top >= 0 and right <= size[0] + 1 and bottom <= size[1]
            assert inside or len(text) > 30, f"{text!r} is cut"
        rows = {text: top for text, _, top, _, _ in labels}
        assert rows["alibi"] > rows[figure.x_label], "the legend is below the axes"


def test_the_data_can_be_read_from_the_picture() -> None:
    x, values = [1, 2, 4, 8, 16], [1.62, 1.6, None, 1.58, 1.61]
    low, high = ([None if v is None else v + by for v in values] for by in (-0.01, 0.02))
    figure = LineFigure("a", "b", "bytes", "loss", x, [Curve("alibi", values, low, high)])
    shapes = layout(figure).shapes
    ticks = [s for s in shapes if isinstance(s, Label) and s.anchor == "end"]
    feet = [s for s in shapes if isinstance(s, Label) and s.anchor == "middle" and s.size == 7]
    up = np.polyfit([s.y for s in ticks], [float(s.text) for s in ticks], 1)
    across = np.polyfit([s.x for s in feet], [float(s.text) for s in feet], 1)
    lines = [s for s in shapes if isinstance(s, Path) and s.width == 1.4]
    points = [point for line in lines[:2] for point in line.points]
    np.testing.assert_allclose(np.polyval(across, [p[0] for p in points]), [1, 2, 8, 16], atol=0.02)
    read = np.polyval(up, [p[1] + 0.35 * 7 for p in points])
    np.testing.assert_allclose(read, [1.62, 1.6, 1.58, 1.61], atol=1e-4)
    assert [len(line.points) for line in lines] == [2, 2, 2], "a gap where there is no value; then the legend"
    bands = [s for s in shapes if isinstance(s, Path) and 0 < s.opacity < 1]
    read = np.polyval(up, [p[1] + 0.35 * 7 for band in bands for p in band.points])
    np.testing.assert_allclose(read, [1.61, 1.59, 1.62, 1.64, 1.57, 1.6, 1.63, 1.6], atol=1e-4)


def test_series_differ_without_their_colors() -> None:
    curves = [Curve(f"scheme {n}", [n, n + 1]) for n in range(13)]
    curves += [Curve(f"baseline {n}", [n, n], reference=True) for n in range(3)]
    shapes = layout(LineFigure("a", "b", "x", "y", [0, 1], curves)).shapes
    lines = [s for s in shapes if isinstance(s, Path) and s.width in (1.4, 0.7)]
    looks = {(tuple(s.dash), s.color, s.width) for s in lines}
    assert len(looks) == 16, "no two series look alike"
    assert len({dash for dash, _, width in looks if width == 0.7}) == 3


def test_each_series_of_the_legend_is_drawn(tmp_path: FilePath) -> None:
    curves = [Curve("none", [0.5, None, 0.7]), Curve("learned", [0.4, 0.3, None]), Curve("gone", [None, None, None])]
    curves += [Curve("chance", [0.1, None, 0.2], reference=True)]
    shapes = layout(LineFigure("a", "b", "x", "y", [0, 1, 2], curves)).shapes
    legend = max(s.y for s in shapes if isinstance(s, Label)) - 40
    above = [s for s in shapes if isinstance(s, Path) and max(y for _, y in s.points) < legend]
    references = [s for s in above if s.width == 0.7]
    assert len(references) == 2, "a stroke at each of the two lengths, for there is none between them"
    colors = {s.color for s in above if s.opacity == 1 and s.color != "#ffffff"}
    assert len(colors) == 2, "markers of the two schemes that have scores"
    results = read_results(made_up_folder(tmp_path, seeds=1))
    first = next(figures(results, ["alibi", "none"]))
    assert [curve.name for curve in first.curves if not curve.reference] == ["alibi", "none"]
    with pytest.raises(SettingError, match=r"has no scheme 'ropes'\. It has: 'none', 'sinusoidal'"):
        write_figures(results, tmp_path, ["svg"], schemes=["ropes"])


def test_a_curve_that_ends_early_has_a_ring_around_its_end() -> None:
    lines = [Curve("long", [1, 1, 1]), Curve("short", [1, 1, None]), Curve("none", [None] * 3, reference=True)]
    svg = drawn(LineFigure("f", "t", "x", "y", [1, 2, 3], lines, y_range=(0, 2)))
    assert {label.text for label in svg.iter(f"{SVG}text")} >= {"long", "short (ends at 2)", "none"}
    points = [[tuple(map(float, each.split(","))) for each in line.attrib["points"].split()]
              for line in svg.iter(f"{SVG}polyline")]  # fmt: skip
    (ring,) = (line for line in points if len(line) > 20)
    middle = sum(x for x, _ in ring[1:]) / (len(ring) - 1)
    ends = {line[-1][0] for line in points if len(line) == 2 and line[0][1] == line[1][1]}
    assert any(abs(middle - end) < 0.1 for end in ends)


@pytest.mark.parametrize("ends", [(0, 100), (1, 32), (1.571, 1.66), (-3, 3), (5, 5), (0, 0), (2e-7, 9e-7), (0, 5e6)])
def test_ticks_are_round_numbers(ends: tuple[int | float, int | float]) -> None:
    ticks = round_ticks(*ends, 5)
    steps = np.diff(ticks)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    mantissa = steps[0] / 10 ** np.floor(np.log10(steps[0]) + 1e-9)
    assert min(abs(mantissa - good) for good in (1, 2, 5)) < 1e-6
    assert ticks[0] <= ends[0]
    assert ticks[-1] >= ends[1]
    assert 2 <= len(ticks) <= 8
    assert len(set(tick_texts(ticks))) == len(ticks)


def test_pdf_has_the_same_size_and_the_same_bytes_twice(tmp_path: FilePath) -> None:
    pytest.importorskip("reportlab")
    figure = next(figures(read_results(made_up_folder(tmp_path, seeds=2))))
    drawing = layout(figure, 174)
    pdf = to_pdf(drawing)
    assert pdf.startswith(b"%PDF-")
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
    assert box is not None
    assert [float(size) for size in box.groups()] == pytest.approx([drawing.width, drawing.height], abs=0.01)
    assert b"/FontFile2" in pdf, "the font is embedded"
    assert to_pdf(drawing) == pdf


def test_hostile_names_are_text(tmp_path: FilePath) -> None:
    for figure in figures(read_results(hostile_folder(tmp_path))):
        svg = drawn(figure)
        tags = ("svg", "title", "text", "polyline", "polygon")
        assert {each.tag for each in svg.iter()} == {f"{SVG}{tag}" for tag in tags}
        to_pdf(layout(figure))


def test_the_command_writes_them(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made_up_folder(tmp_path / "results", seeds=1)
    out = str(tmp_path / "out")
    done = whatwhere("figures", str(folder), "--format", "svg", "--width", "120", "--out", out, "--json")
    files: Any = json.loads(done.out)["files"]
    assert files == ["scores.svg", *(f"scores-{n}-{group}.svg" for n, group in enumerate(GROUPS, 1)), "shift.svg"]
    assert 'width="120mm"' in (tmp_path / "out/scores.svg").read_text(encoding="utf-8")
    results = read_results(folder)
    with pytest.raises(SettingError, match=r"width=500 mm, but needs 60 to 400"):
        write_figures(results, tmp_path, width=500)
    with pytest.raises(SettingError, match="figures got format='png', but knows only: svg, pdf"):
        write_figures(results, tmp_path, ["png"])
    monkeypatch.setitem(sys.modules, "reportlab.pdfgen.canvas", None)
    with pytest.raises(MissingExtra, match=r"pip install 'whatwhere\[pdf\]'; or pass --format svg"):
        write_figures(results, tmp_path, ["pdf"])


def test_without_reportlab_the_default_is_svg_alone_and_says_so(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made_up_folder(tmp_path / "results", schemes=("none",), seeds=1)
    monkeypatch.setattr(paper, "find_spec", lambda name: None)
    written = write_figures(read_results(folder), tmp_path)
    assert {name.rpartition(".")[2] for name in written.files} == {"svg"}
    assert "whatwhere[pdf]" in written.missing


def test_a_legend_says_which_schemes_did_not_learn_the_task(tmp_path: FilePath) -> None:
    folder = made_up_folder(tmp_path, schemes=("none", "rotary"), seeds=1)
    results = read_results(folder)
    better = {guess: dict.fromkeys(line, 0.0) for guess, line in results.task.baselines.items()}
    worse = {guess: dict.fromkeys(line, 1.0) for guess, line in results.task.baselines.items()}
    for baselines, end in ((better, ""), (worse, " (task not learned)")):
        changed = replace(results, record=replace(results.record, task=replace(results.task, baselines=baselines)))
        names = [curve.name for curve in next(figures(changed)).curves if not curve.reference]
        assert names == [f"none{end}", f"rotary{end}"]


def test_several_formats_may_be_one_list(tmp_path: FilePath) -> None:
    pytest.importorskip("reportlab")
    folder = made_up_folder(tmp_path / "results", "text", ("none",), seeds=1)
    done = whatwhere("figures", str(folder), "--format", "svg,pdf", "--out", str(tmp_path / "out"), "--json")
    assert {name.rpartition(".")[2] for name in json.loads(done.out)["files"]} == {"svg", "pdf"}
