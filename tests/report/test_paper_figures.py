"""Figures for a paper: the data can be read back from the picture, nothing is printed over anything, names are text."""

import itertools
import json
import re
import sys
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from whatwhere.comparison import paired_differences, read_results
from whatwhere.comparison.statistics import PairedDifferences
from whatwhere.errors import MissingExtra, SettingError
from whatwhere.report.comparison_figures import differences_figure, figures
from whatwhere.report.figures import draw, to_file
from whatwhere.report.paper import write_figures
from whatwhere.report.section import Chart, Series

from ..comparison.made_up import GROUPS, change, hostile_folder, made_up_folder
from ..running import whatwhere

SVG = "{http://www.w3.org/2000/svg}"
matplotlib = pytest.importorskip("matplotlib")


@pytest.mark.parametrize("width", [60.0, 174.0])
@pytest.mark.parametrize("task", ["expressions", "text"])
def test_nothing_is_printed_over_anything(tmp_path: Path, task: str, width: float) -> None:
    names = ("none", "sinusoidal", "learned", "rotary", "alibi", "rotary@dim=16/rotary@randomized+alibi")
    for figure in figures(read_results(made_up_folder(tmp_path, task, names, seeds=2))):
        drawn = draw(figure, width)
        drawn.draw_without_rendering()
        (axes,), (legend,) = drawn.axes, drawn.legends
        texts = [axes.xaxis.label, axes.yaxis.label, *axes.texts, *legend.texts]
        ticks, near = (*axes.get_xticklabels(), *axes.get_yticklabels()), axes.bbox.padded(30)
        texts += [t for t in ticks if near.contains(*t.get_window_extent().min)]
        boxes = {text: text.get_window_extent() for text in texts if text.get_text()}
        for one, other in itertools.combinations(boxes, 2):
            apart = not boxes[one].padded(-0.5).overlaps(boxes[other].padded(-0.5))
            assert apart, f"{one.get_text()!r} and {other.get_text()!r} overlap in {figure.name}"
        assert legend.get_window_extent().y1 <= boxes[axes.xaxis.label].y0, "the legend is below the axes"
        assert drawn.get_size_inches()[0] == pytest.approx(width / 25.4)


def lines(x: list[float], *series: Series, y_range: tuple[float, float] | None = None) -> Chart:
    return Chart("lines", "title", "bytes", "loss", x, series, y_range=y_range)


def test_the_data_can_be_read_from_the_picture() -> None:
    x, values = [1.0, 2.0, 4.0, 8.0, 16.0], [1.62, 1.6, nan, 1.58, 1.61]
    low, high = ([v + by for v in values] for by in (-0.01, 0.02))
    (axes,) = draw(lines(x, Series("alibi", values, None, low, high))).axes
    np.testing.assert_equal(axes.lines[0].get_xydata(), np.array([x, values]).T)
    assert axes.get_xticks().tolist() == x, "what was tested"
    bottom, top = axes.get_ylim()
    assert 1.5 < bottom < np.nanmin(low) < np.nanmax(high) < top < 1.7, "all of it is on the axes"
    corners = np.concatenate([path.vertices for path in axes.collections[0].get_paths()])
    ends = {(n, round(side[n], 2)) for side in (low, high) for n in (0, 1, 3, 4)}
    assert {(x.index(int(a)), round(b, 2)) for a, b in corners.tolist()} == ends
    svg = ElementTree.fromstring(to_file(lines(x, Series("alibi", values)), "svg"))
    assert {"bytes", "loss", "alibi"} <= {text.text for text in svg.iter(f"{SVG}text")}


def test_numbers_of_both_axes_are_grouped_and_the_longest_length_keeps_its_own() -> None:
    x = [float(n) for n in (*range(1000, 1014), 1015)]
    drawn = draw(lines(x, Series("alibi", [100.0 * each for each in x])))
    drawn.draw_without_rendering()
    (axes,) = drawn.axes
    assert axes.get_xticklabels()[-1].get_text() == "1,015"
    assert 1 < len(axes.get_xticks()) < len(x)
    assert "100,000" in [label.get_text() for label in axes.get_yticklabels()]


def test_differences_from_one_scheme_are_those_of_the_tables(tmp_path: Path) -> None:
    results = read_results(made_up_folder(tmp_path, seeds=6))
    figure = differences_figure(results, "none")
    assert figure is not None
    assert figure.y_label == "gain over none, points"
    assert [each.name for each in figure.series] == ["sinusoidal", "learned", "rotary", "alibi", "none"]
    for n, length in enumerate([*results.trained, *results.beyond]):
        found = paired_differences(results, length, "none")
        assert isinstance(found, PairedDifferences)
        for pair in found.pairs:
            scheme, sign = (pair.second, -1) if pair.first == "none" else (pair.first, 1)
            series = next(each for each in figure.series if each.name == scheme)
            assert series.values[n] == pytest.approx(100 * sign * pair.mean)
            ends = [nan, nan] if pair.interval is None else [pair.interval.low, pair.interval.high]  # of equal gains
            low, high = sorted(100 * sign * end for end in ends)
            assert not series.low or (series.low[n], series.high[n]) == pytest.approx((low, high), nan_ok=True)
        # A scheme without a score at some length has no difference there.
        assert np.isnan(figure.series[1].values[n]) == ("learned" in found.left_out)
    assert sum(bool(each.low) for each in figure.series) >= 3
    assert write_figures(results, tmp_path / "out", ["svg"], against="none").files[-1] == "differences.svg"
    written = write_figures(results, tmp_path / "out", ["pdf"], against="none")
    included = (tmp_path / "out" / "figures.tex").read_text()
    assert written.files == (*(f"{name}.pdf" for name in re.findall(r"{fig:(.*)}", included)), "figures.tex")
    assert included.count("\\caption{") == len(written.files) - 1
    assert "\\caption{Paired differences from none. Means over the seeds" in included


def test_series_differ_without_their_colors() -> None:
    series = [Series(f"scheme {n}", [float(n), n + 1.0]) for n in range(13)]
    series += [Series(f"baseline {n}", [float(n), float(n)], reference=True) for n in range(3)]
    drawn = draw(lines([0.0, 1.0], *series)).legends[0].get_lines()
    dashes = [str(line._dash_pattern) for line in drawn]  # matplotlib has no public name for it
    assert len(set(zip(dashes, [line.get_color() for line in drawn], strict=True))) == 16, "no two look alike"
    assert len(set(dashes[13:])) == 3
    assert len({line.get_color() for line in drawn[:13]}) == 13
    assert len({(dash, line.get_marker()) for dash, line in zip(dashes, drawn, strict=True)}) >= 13


def test_each_series_of_the_legend_is_drawn(tmp_path: Path) -> None:
    series = [Series("_none", [0.5, nan, 0.7]), Series("gone", [nan] * 3)]
    drawn = draw(lines([0.0, 1.0, 2.0], *series, Series("chance", [0.1, nan, 0.2], reference=True)))
    assert [text.get_text() for text in drawn.legends[0].texts] == [" _none", "gone", "chance"]
    strokes = [line.get_xydata().tolist() for line in drawn.axes[0].lines if line.get_marker() == "_"]
    assert strokes == [[[0, 0.1], [2, 0.2]]], "a stroke at each of the two lengths, for there is none between them"
    results = read_results(made_up_folder(tmp_path, seeds=1))
    first = next(figures(results, ["alibi", "none"]))
    assert [curve.name for curve in first.series if not curve.reference] == ["alibi", "none"]
    with pytest.raises(SettingError, match=r"has no scheme 'ropes'\. It has: 'none', 'sinusoidal'"):
        write_figures(results, tmp_path, ["svg"], schemes=["ropes"])
    choices = [{"scheme": "requested", "chosen": "alibi", "losses": {"alibi": 0.5, "rotary": 1.0}}]
    chosen = read_results(change(tmp_path, lambda data: data.update(choices=choices)))
    written = [write_figures(chosen, tmp_path / name, ["svg"], schemes=[name]) for name in ("requested", "alibi")]
    requested, alibi = ([(Path(each.folder) / file).read_bytes() for file in each.files] for each in written)
    assert requested == alibi


def test_a_curve_that_ends_early_has_a_ring_around_its_end() -> None:
    series = [Series("long", [1.0] * 3), Series("short", [1.0, 1.0, nan]), Series("no", [nan] * 3, reference=True)]
    drawn = draw(lines([1.0, 2.0, 3.0], *series, y_range=(0.0, 2.0)))
    assert [text.get_text() for text in drawn.legends[0].texts] == ["long", "short (ends at 2)", "no"]
    rings = [line.get_xydata().tolist() for line in drawn.axes[0].lines if line.get_markerfacecolor() == "none"]
    assert rings == [[[2, 1]]]


@pytest.mark.parametrize("format", ["svg", "pdf", "png"])
def test_a_file_has_its_size_and_the_same_bytes_twice(tmp_path: Path, format: str) -> None:
    figure = next(figures(read_results(made_up_folder(tmp_path, seeds=2))))
    written = to_file(figure, format, 174)
    assert to_file(figure, format, 174) == written
    if format == "pdf":
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", written)
        assert box is not None
        assert float(box[1]) == pytest.approx(174 / 25.4 * 72, abs=0.01)
        assert b"/FontFile2" in written, "the font is embedded"


def test_hostile_names_are_text(tmp_path: Path) -> None:
    for figure in itertools.islice(figures(read_results(hostile_folder(tmp_path))), 2):
        svg = ElementTree.fromstring(to_file(figure, "svg"))
        assert not {each.tag for each in svg.iter()} & {f"{SVG}{tag}" for tag in ("script", "img", "image", "a")}
        to_file(figure, "pdf")


def test_the_command_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made_up_folder(tmp_path / "results", seeds=1)
    out = str(tmp_path / "out")
    done = whatwhere("figures", str(folder), "--format", "svg,png", "--width", "120", "--out", out, "--json")
    files: Any = json.loads(done.out)["files"]
    names = ["scores", *(f"scores-{n}-{group}" for n, group in enumerate(GROUPS, 1)), "shift"]
    assert files == [*(f"{name}.{format}" for name in names for format in ("svg", "png")), "figures.tex"]
    assert 'width="340.1' in (tmp_path / "out/scores.svg").read_text(encoding="utf-8")
    results = read_results(folder)
    with pytest.raises(SettingError, match=r"width=500 mm, but needs 60 to 400"):
        write_figures(results, tmp_path, width=500)
    with pytest.raises(SettingError, match="figures got format='eps', but knows only: svg, pdf, png"):
        write_figures(results, tmp_path, ["eps"])
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'whatwhere\[plots\]'"):
        write_figures(results, tmp_path)


def test_a_legend_says_which_schemes_did_not_learn_the_task(tmp_path: Path) -> None:
    folder = made_up_folder(tmp_path, schemes=("none", "rotary"), seeds=1)
    results = read_results(folder)
    better = {guess: dict.fromkeys(line, 0.0) for guess, line in results.task.baselines.items()}
    worse = {guess: dict.fromkeys(line, 1.0) for guess, line in results.task.baselines.items()}
    for baselines, end in ((better, ""), (worse, " (task not learned)")):
        changed = replace(results, record=replace(results.record, task=replace(results.task, baselines=baselines)))
        names = [curve.name for curve in next(figures(changed)).series if not curve.reference]
        assert names == [f"none{end}", f"rotary{end}"]
