"""Line figures for a paper, drawn by matplotlib: SVG, PDF or PNG of a chosen width, with the legend below the axes.

Series differ by color (safe for the color-blind), stroke and marker, so that a copy in grey can be read too.
"""

import io
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whatwhere.errors import MissingExtra, SettingError
from whatwhere.escape import cut, visible
from whatwhere.report.html import COLORS
from whatwhere.report.section import Chart, Series
from whatwhere.report.text import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMATS = ("svg", "pdf", "png")
NARROWEST, WIDEST = 60.0, 400.0  # widths of a figure, in millimeters
Number = int | float

_INCH = 25.4  # millimeters
_GREY = "#666666"
_DASHES = ((), (5, 2), (1.5, 1.5), (5, 2, 1.5, 2), (8, 2), (3, 2), (1, 2.5))
_REFERENCES = ((4, 3), (1, 2), (8, 2, 1, 2), (2, 1))
_MARKERS = "os^Dh"
_MOST_TICKS = 16
_MOST_MARKED = 40  # values of a line that has markers; more would cover it
_STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": _GREY, "axes.linewidth": 0.6,
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#dddddd", "grid.linewidth": 0.5, "axes.axisbelow": True,
    "lines.dash_capstyle": "round", "text.parse_math": False, "figure.constrained_layout.use": True, "savefig.dpi": 300,
    "svg.fonttype": "none", "svg.hashsalt": "whatwhere", "pdf.fonttype": 42,
    "font.sans-serif": ["DejaVu Sans"],
}  # fmt: skip
"""Names are text, never mathematics; a file is the same each time it is written."""


SCHEMES = ("none", "sinusoidal", "learned", "rotary", "alibi", "t5", "kerple")
"""The schemes that are compared most, by look: as many as figures have colors."""


def looks(schemes: Sequence[str]) -> dict[str, int]:
    """Return the look of each scheme, a number that figures turn into color, strokes and marker.

    A common scheme has the same look in every figure. Others take the looks that these leave free.

    Examples:
        >>> looks(["fope", "rotary", "rotary@dim=16", "none"])
        {'fope': 1, 'rotary': 3, 'rotary@dim=16': 2, 'none': 0}
    """
    common = {scheme: SCHEMES.index(scheme) for scheme in schemes if scheme in SCHEMES}
    free = (number for number in range(len(SCHEMES) + len(schemes)) if number not in common.values())
    return {scheme: common[scheme] if scheme in common else next(free) for scheme in schemes}


def to_file(figure: Chart, format: str, width: Number = 84.0) -> bytes:
    """Draw a figure as "svg", "pdf" or "png", and return the contents of its file; equal figures give equal bytes."""
    drawn, out = draw(figure, width), io.BytesIO()
    # Without what says when, or by which version, a file was written.
    unsaid = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer"), "png": ("Software",)}[format]
    from matplotlib import rc_context

    with rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # its font draws a box instead
        drawn.savefig(out, format=format, metadata={"Title": visible(figure.title), **dict.fromkeys(unsaid)})
    return out.getvalue()


def draw(figure: Chart, width: Number = 84.0) -> "Figure":
    """Return a figure of matplotlib, to change before it is saved, of a width in millimeters."""
    if not NARROWEST <= width <= WIDEST:
        raise SettingError(f"a figure got width={width:g} mm, but needs {NARROWEST:g} to {WIDEST:g}, as in --width 84.")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra(
            "figures are drawn by matplotlib, which is not installed: pip install 'whatwhere[plots]'."
        ) from None
    with rc_context(_STYLE):
        drawn = Figure()
        axes = drawn.add_subplot(xlabel=_shown(figure.x_label), ylabel=_shown(figure.y_label))
        if figure.y_range is not None:  # a range of None would be that of the empty axes
            axes.set_ylim(figure.y_range)
        if figure.log_x:
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(lambda value, _: "")
        elif len(figure.x) <= _MOST_TICKS:
            axes.set_xticks(_ticks(figure.x, width))
        for axis in (axes.xaxis, axes.yaxis):  # a tick at 0 may be 1e-17
            axis.set_major_formatter(lambda value, _: number(round(value, 12), 10))
        for at, text in figure.marks:
            axes.axvline(at, color="#111111", linewidth=0.8, dashes=(3, 2))
            left = at - min(figure.x) < 0.2 * (max(figure.x) - min(figure.x))  # the text would cover the numbers there
            side, top = "left" if left else "center", ("data", "axes fraction")
            axes.annotate(_shown(text), (at, 1), (0, 3), top, textcoords="offset points", ha=side, fontsize=7)
        opacity = min(0.13, 0.7 / max(len(figure.series), 1))  # all bands together must not hide the lines
        lines = [_draw_curve(axes, curve, n, figure.x, opacity) for n, curve in _numbered(figure.series)]
        names = [_name(curve, figure.x) for curve in figure.series]
        columns = max(1, int(width / _INCH * 72 / (40 + 4.6 * max(map(len, names), default=1))))
        drawn.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)
        rows = math.ceil(len(names) / columns)
        drawn.set_size_inches(width / _INCH, min(0.6 * width / _INCH, 3.2) + 0.3 + 0.16 * rows)
    return drawn


def _ticks(x: Sequence[Number], width: Number) -> list[Number]:
    """Return those of the tested values whose labels have room, the greatest always."""
    kept: list[Number] = []
    for at in reversed(x):
        needed = 1.5 + 0.8 * sum(len(f"{each:,.10g}") for each in (at, *kept[-1:]))  # mm, of digits of 7 points
        if not kept or (kept[-1] - at) * (width - 22) > needed * (max(x) - min(x)):
            kept.append(at)
    return kept[::-1]


def _draw_curve(axes: "Axes", curve: Series, n: int, x: Sequence[Number], opacity: float) -> "Line2D":
    """Draw a curve with its band, and return what stands for it in the legend."""
    values, color = curve.values, COLORS[1 + n % (len(COLORS) - 1)]
    if n >= len(COLORS) - 1:  # halfway to white: no two of fourteen share a color
        color = "#" + "".join(f"{(int(color[k : k + 2], 16) + 255) // 2:02x}" for k in (1, 3, 5))
    if curve.reference:
        (line,) = axes.plot(x, values, color=_GREY, linewidth=0.7, dashes=_REFERENCES[n % len(_REFERENCES)])
        known = [False, *map(math.isfinite, values), False]
        alone = [k for k in range(len(x)) if known[k + 1] and not known[k] and not known[k + 2]]
        axes.plot([x[k] for k in alone], [values[k] for k in alone], "_", color=_GREY)  # a line needs two points
        return line
    marker = _MARKERS[n % len(_MARKERS)] if len(values) <= _MOST_MARKED else None
    dashes = _DASHES[(n + n // (len(COLORS) - 1)) % len(_DASHES)]
    (line,) = axes.plot(x, values, color=color, linewidth=1.4, marker=marker, markersize=3.5)
    line.set_linestyle((0, dashes) if dashes else "-")
    if curve.low:
        axes.fill_between(x, curve.low, curve.high, color=color, alpha=opacity, linewidth=0)
    if (last := _early_end(curve, x)) is not None:  # others may hide it
        axes.plot(x[last], values[last], "o", markersize=9, markerfacecolor="none", color=color)
    return line


def _numbered(curves: Sequence[Series]) -> list[tuple[int, Series]]:
    """Return the curves with their looks, or their numbers; references are counted by themselves."""
    numbers = [sum(other.reference == each.reference for other in curves[:n]) for n, each in enumerate(curves)]
    return [(n if each.look is None else each.look, each) for n, each in zip(numbers, curves, strict=True)]


def _early_end(curve: Series, x: Sequence[Number]) -> int | None:
    """Return the index of the last value of a curve that ends before the others; else None."""
    last = max((n for n, value in enumerate(curve.values) if math.isfinite(value)), default=None)
    return None if curve.reference or last == len(x) - 1 else last


def _name(curve: Series, x: Sequence[Number]) -> str:
    last, name = _early_end(curve, x), _shown(curve.name)
    name = f" {name}" if name.startswith("_") else name  # matplotlib leaves such names out of a legend
    return name if last is None else f"{name} (ends at {x[last]:,.10g})"


def _shown(text: str) -> str:
    return cut(visible(text), 40)
