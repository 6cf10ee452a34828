"""Line figures for a paper: laid out once, written as SVG or as PDF.

A figure has a chosen width, ticks at round numbers, and its legend below the axes, where it covers nothing. Series
differ by color (safe for the color-blind), stroke and marker, so that a copy in grey can be read too.
"""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whatwhere.errors import MissingExtra, SettingError
from whatwhere.escape import cut, visible
from whatwhere.report.html import COLORS, Markup, element
from whatwhere.report.ticks import round_ticks, tick_texts

MILLIMETER = 72 / 25.4
"""Points in a millimeter: all sizes are in points."""
Number = int | float
NARROWEST, WIDEST = 60.0, 400.0
"""Widths of a figure, in millimeters."""
_FONT, _SMALL, _GREY = 8.0, 7.0, "#666666"
_CHAR = 0.62
"""Width of a character in font sizes, a little more than that of the fonts that are used."""
_COLORED = len(COLORS) - 1  # the gray is that of references
_DASHES = ((), (5, 2), (1.5, 1.5), (5, 2, 1.5, 2), (8, 2), (3, 2), (1, 2.5))
_REFERENCES = ((4, 3), (1, 2), (8, 2, 1, 2), (2, 1))
_STROKE = 26.0  # of a line in the legend
_MOST_MARKED = 40
"""Values of a line that has markers; more would cover it."""
_MARKERS = "circle", "square", "triangle", "diamond", "hexagon"

NO_REPORTLAB = "PDF is written by reportlab, which is not installed: pip install 'whatwhere[pdf]'"


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Args:
        name: in the legend.
        values: for each x; None where there is none, which leaves a gap.
        low, high: ends of a band around the line, or nothing.
        reference: drawn thin and grey, for a baseline.
        look: of the scheme that it shows (report/scheme_looks.py); None is its number among the curves.
    """

    name: str
    values: Sequence[Number | None]
    low: Sequence[Number | None] = ()
    high: Sequence[Number | None] = ()
    reference: bool = False
    look: int | None = None


@dataclass(frozen=True)
class LineFigure:
    """Lines over a common horizontal axis.

    Args:
        name: of its file.
        title: what it shows, for screen readers and the file's properties; a paper has a caption of its own.
        x_label, y_label: the axes, with units.
        x: where the values are.
        curves: the lines.
        mark: a vertical line, with its label, or None.
        y_range: ends of the vertical axis; None takes those of the values.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    x: Sequence[Number]
    curves: Sequence[Curve]
    mark: tuple[Number, str] | None = None
    y_range: tuple[Number, Number] | None = None


Point = tuple[Number, Number]


@dataclass(frozen=True)
class Path:
    """A line, or a filled area; points are measured from the left and the top.

    Args:
        points: its corners.
        color: of stroke and area.
        width: of the stroke; 0 for an area.
        dash: lengths of strokes and gaps.
        opacity: of an area; 0 for a line.
    """

    points: Sequence[Point]
    color: str
    width: Number = 1.0
    dash: Sequence[Number] = ()
    opacity: float = 0.0


@dataclass(frozen=True)
class Label:
    """A line of text.

    Args:
        text: what is written.
        x, y: of its anchor, on the baseline.
        anchor: which part of the text is there: "start", "middle" or "end".
        size: of the font.
        upward: written from below to above.
    """

    text: str
    x: float
    y: float
    anchor: str = "start"
    size: float = _FONT
    upward: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure that is laid out: its size in points, and what is drawn, from back to front."""

    title: str
    width: float
    height: float
    shapes: Sequence[Path | Label]


@dataclass(frozen=True)
class Axes:
    """The area between the axes in points, and the numbers at its ends."""

    left: float
    top: float
    right: float
    bottom: float
    x: tuple[Number, Number]
    y: tuple[Number, Number]

    def at(self, x: Number, y: Number) -> Point:
        """Return the point of two numbers."""
        across, up = (x - self.x[0]) / (self.x[1] - self.x[0]), (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)


def layout(figure: LineFigure, width: Number = 84.0) -> Drawing:
    """Lay a figure out.

    Args:
        figure: what is drawn.
        width: in millimeters: 84 for a column, 174 for a page of two columns.

    Raises:
        SettingError: If the width is not between 60 and 400.
    """
    if not NARROWEST <= width <= WIDEST:
        raise SettingError(f"a figure got width={width:g} mm, but needs {NARROWEST:g} to {WIDEST:g}, as in --width 84.")
    total = width * MILLIMETER
    y_ticks = round_ticks(*_y_ends(figure), 5)
    x_ticks = [tick for tick in round_ticks(min(figure.x), max(figure.x), int(total / 40)) if _inside(tick, figure.x)]
    y_texts = tick_texts(y_ticks)
    left = _FONT + 10 + max(map(_width_of, y_texts)) * _SMALL / _FONT
    top, right = 18.0, total - 8
    height = max(min(0.62 * (right - left), 220), _width_of(_shown(figure.y_label)))
    axes = Axes(left, top, right, top + height, _x_ends(figure.x), (y_ticks[0], y_ticks[-1]))
    legend, bottom = _legend(figure, axes.left, total - 4, axes.bottom + 31)
    shapes: list[Path | Label] = [Path([(0, 0), (total, 0), (total, bottom), (0, bottom)], "#ffffff", 0, (), 1.0)]
    for tick, text in zip(y_ticks, y_texts, strict=True):
        (x, y), end = axes.at(axes.x[0], tick), axes.at(axes.x[1], tick)
        shapes += [Path([(x, y), end], "#dddddd", 0.5), Label(text, x - 4, y + 0.35 * _SMALL, "end", _SMALL)]
    for tick, text in zip(x_ticks, tick_texts(x_ticks), strict=True):
        x, y = axes.at(tick, axes.y[0])
        shapes += [Path([(x, y), (x, y + 3)], _GREY, 0.6), Label(text, x, y + 4 + _SMALL, "middle", _SMALL)]
    shapes += [Path([(axes.left, axes.top), (axes.left, axes.bottom), (axes.right, axes.bottom)], _GREY, 0.6)]
    shapes += _mark(figure, axes)
    opacity = min(0.13, 0.7 / len(figure.curves))  # of all bands together they must not hide the lines
    shapes += [shape for n, curve in _numbered(figure.curves) for shape in _band(curve, n, figure.x, axes, opacity)]
    shapes += [shape for n, curve in _numbered(figure.curves) for shape in _line(curve, n, figure.x, axes)]
    middle = (axes.left + axes.right) / 2, (axes.top + axes.bottom) / 2
    shapes += [Label(_shown(figure.x_label), middle[0], axes.bottom + 23, "middle")]
    shapes += [Label(_shown(figure.y_label), _FONT + 1, middle[1], "middle", upward=True), *legend]
    return Drawing(figure.title, total, bottom, shapes)


def to_svg(drawing: Drawing) -> str:
    """Write a drawing as an SVG document that loads nothing."""
    size = {"width": f"{drawing.width / MILLIMETER:g}mm", "height": f"{drawing.height / MILLIMETER:g}mm"}
    size |= {"viewBox": f"0 0 {drawing.width:.2f} {drawing.height:.2f}", "xmlns": "http://www.w3.org/2000/svg"}
    font = {"font-family": "Helvetica, Arial, sans-serif", "role": "img"}
    return element("svg", element("title", drawing.title), *map(_svg, drawing.shapes), attributes=size | font) + "\n"


def to_pdf(drawing: Drawing) -> bytes:
    """Write a drawing as a PDF of one page of its size, with its font embedded; equal drawings give equal bytes.

    Raises:
        MissingExtra: If reportlab is not installed.
    """
    try:
        from reportlab.lib.colors import HexColor
        from reportlab.pdfbase import pdfmetrics
        from reportlab.pdfbase.ttfonts import TTFont
        from reportlab.pdfgen.canvas import Canvas
    except ImportError:
        raise MissingExtra(f"{NO_REPORTLAB}; or pass --format svg.") from None
    font = TTFont("Vera", "Vera.ttf")  # a part of reportlab
    pdfmetrics.registerFont(font)
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(drawing.width, drawing.height), invariant=1)
    canvas.setTitle(drawing.title)
    canvas.setLineCap(1)
    for shape in drawing.shapes:
        if isinstance(shape, Label):
            text = "".join(char if ord(char) in font.face.charToGlyph else "?" for char in shape.text)
            canvas.saveState()
            canvas.setFont("Vera", 0.9 * shape.size)  # wider than Helvetica
            canvas.setFillColor(HexColor("#111111"))
            canvas.translate(shape.x, drawing.height - shape.y)
            canvas.rotate(90 if shape.upward else 0)
            {"start": canvas.drawString, "middle": canvas.drawCentredString, "end": canvas.drawRightString}[
                shape.anchor
            ](0, 0, text)
            canvas.restoreState()
            continue
        path = canvas.beginPath()
        for n, (x, y) in enumerate(shape.points):
            (path.lineTo if n else path.moveTo)(x, drawing.height - y)
        canvas.setLineWidth(shape.width)
        canvas.setDash(*([list(shape.dash), 0] if shape.dash else []))
        canvas.setStrokeColor(HexColor(shape.color))
        canvas.setFillColor(HexColor(shape.color), alpha=shape.opacity)
        canvas.drawPath(path, stroke=int(shape.width > 0), fill=int(shape.opacity > 0))
    canvas.save()
    return out.getvalue()


def _svg(shape: Path | Label) -> Markup:
    if isinstance(shape, Label):
        turned = {"transform": f"rotate(-90 {shape.x:.2f} {shape.y:.2f})"} if shape.upward else {}
        place = {"x": f"{shape.x:.2f}", "y": f"{shape.y:.2f}", "font-size": f"{shape.size:g}", "fill": "#111111"}
        return element("text", shape.text, attributes=place | {"text-anchor": shape.anchor} | turned)
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in shape.points)
    if shape.opacity:
        return element(
            "polygon", attributes={"points": points, "fill": shape.color, "fill-opacity": f"{shape.opacity:g}"}
        )
    dash = {"stroke-dasharray": " ".join(f"{part:g}" for part in shape.dash)} if shape.dash else {}
    stroke = {"stroke": shape.color, "stroke-width": f"{shape.width:g}", "stroke-linecap": "round"}
    return element("polyline", attributes={"points": points, "fill": "none"} | stroke | dash)


def _numbered(curves: Sequence[Curve]) -> list[tuple[int, Curve]]:
    """Return the curves with their looks, or their numbers; references are counted by themselves."""
    numbers = [sum(other.reference == each.reference for other in curves[:n]) for n, each in enumerate(curves)]
    return [(n if each.look is None else each.look, each) for n, each in zip(numbers, curves, strict=True)]


def _marked(curve: Curve) -> bool:
    return not curve.reference and len(curve.values) <= _MOST_MARKED


def _look(curve: Curve, n: int) -> tuple[str, tuple[Number, ...], Number]:
    """Return color, dashes and width of the n-th line, or the n-th of the references."""
    if curve.reference:
        return _GREY, _REFERENCES[n % len(_REFERENCES)], 0.7
    return COLORS[1 + n % _COLORED], _DASHES[(n + n // _COLORED) % len(_DASHES)], 1.4


def _band(curve: Curve, n: int, x: Sequence[Number], axes: Axes, opacity: float) -> Iterator[Path]:
    for run in _runs(curve.low, curve.high):
        ends = [axes.at(x[at], low) for at, low, _ in run], [axes.at(x[at], high) for at, _, high in run]
        if len(run) > 1:
            yield Path([*ends[0], *reversed(ends[1])], _look(curve, n)[0], 0, (), opacity)


def _line(curve: Curve, n: int, x: Sequence[Number], axes: Axes) -> Iterator[Path]:
    color, dash, width = _look(curve, n)
    for run in _runs(curve.values, curve.values):
        points = [axes.at(x[at], value) for at, value, _ in run]
        if len(points) > 1:
            yield Path(points, color, width, dash)
        if _marked(curve):
            yield from (_marker(n, point, color) for point in points)
        elif curve.reference and len(points) == 1:  # between two gaps
            yield Path([(points[0][0] - 5, points[0][1]), (points[0][0] + 5, points[0][1])], color, width, dash)
    last = _end(curve, x)
    value = None if last is None else curve.values[last]
    if last is not None and value is not None:
        yield Path(_polygon(axes.at(x[last], value), 24, 0.0, 4.5, closed=True), color, 1.0)


def _runs(first: Sequence[Number | None], second: Sequence[Number | None]) -> list[list[tuple[int, Number, Number]]]:
    """Return the indices and values of contiguous runs in which both are numbers."""
    runs: list[list[tuple[int, Number, Number]]] = [[]]
    for at, (one, other) in enumerate(zip(first, second, strict=True)):
        if one is None or other is None or not (math.isfinite(one) and math.isfinite(other)):
            runs.append([])
        else:
            runs[-1].append((at, one, other))
    return [run for run in runs if run]


def _marker(n: int, center: Point, color: str) -> Path:
    corners, turn, size = {
        "circle": (12, 0.0, 1.9), "square": (4, 0.125, 2.3), "triangle": (3, 0.25, 2.5), "diamond": (4, 0.0, 2.4),
        "hexagon": (6, 0.0, 2.2),
    }[_MARKERS[n % len(_MARKERS)]]  # fmt: skip
    return Path(_polygon(center, corners, turn, size), color, 0, (), 1.0)


def _polygon(center: Point, corners: int, turn: float, size: float, closed: bool = False) -> list[Point]:
    angles = [2 * math.pi * (corner / corners + turn) for corner in range(corners + closed)]
    return [(center[0] + size * math.cos(angle), center[1] - size * math.sin(angle)) for angle in angles]


def _end(curve: Curve, x: Sequence[Number]) -> int | None:
    """Return the index of the last value of a curve that ends before the others, which may hide it; else None."""
    last = max((n for n, value in enumerate(curve.values) if value is not None and math.isfinite(value)), default=None)
    return None if curve.reference or last == len(x) - 1 else last


def _mark(figure: LineFigure, axes: Axes) -> Iterator[Path | Label]:
    if figure.mark is None:
        return
    text = _shown(figure.mark[1])
    (x, bottom), half = axes.at(figure.mark[0], axes.y[0]), _width_of(text) * _SMALL / _FONT / 2
    yield Path([(x, axes.top), (x, bottom)], "#111111", 0.8, (3, 2))
    yield Label(text, min(max(x, axes.left + half), axes.right - half), axes.top - 7, "middle", _SMALL)


def _legend(figure: LineFigure, left: float, right: float, top: float) -> tuple[list[Path | Label], Number]:
    """Return the legend in rows, and where it ends."""
    shapes: list[Path | Label] = []
    x, y = left, top + _FONT
    for n, curve in _numbered(figure.curves):
        last = _end(curve, figure.x)
        name, (color, dash, width) = _shown(curve.name), _look(curve, n)
        name += "" if last is None else f" (ends at {tick_texts([figure.x[last]])[0]})"
        needed = _STROKE + 6 + _width_of(name)
        if x > left and x + needed > right:
            x, y = left, y + _FONT + 4
        shapes.append(Path([(x, y - 0.35 * _FONT), (x + _STROKE, y - 0.35 * _FONT)], color, width, dash))
        if _marked(curve):
            shapes.append(_marker(n, (x + _STROKE / 2, y - 0.35 * _FONT), color))
        shapes.append(Label(name, x + _STROKE + 3, y))
        x += needed + 8
    return shapes, y + 5


def _x_ends(x: Sequence[Number]) -> tuple[Number, Number]:
    low, high = min(x), max(x)
    space = 0.02 * (high - low) or 0.5
    return low - space, high + space


def _y_ends(figure: LineFigure) -> tuple[Number, Number]:
    if figure.y_range is not None:
        return figure.y_range
    ends = [end for curve in figure.curves for part in (curve.values, curve.low, curve.high) for end in part]
    numbers = [end for end in ends if end is not None and math.isfinite(end)] or [0.0, 1.0]
    return min(numbers), max(numbers)


def _inside(tick: Number, x: Sequence[Number]) -> bool:
    return min(x) <= tick <= max(x)


def _shown(text: str) -> str:
    return cut(visible(text), 40)


def _width_of(text: str) -> float:
    return len(text) * _CHAR * _FONT
