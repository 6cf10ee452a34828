"""Draw what several pages show: curves, bars, and the signs of their keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whatwhere.page.markup import Markup, visible
from whatwhere.page.svg import GRID, MUTED, PAGE, canvas, color, drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^DvPX"  # 7 shapes, 8 colors and 5 dashes: no two of the first 280 lines agree in all three
_DASHES: list[Any] = ["solid", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)), (0, (9, 3, 3, 3))]


@drawing
def swatch(name: str, index: int) -> Markup:
    """Draw a line's sign for the key; the name beside it says all, so screen readers skip the drawing."""
    figure, axes = canvas(44, 14, 0, 0, 0, 0)
    axes.set_axis_off()
    axes.plot([0.0, 2.0], [0.0, 0.0], **line(index) | {"marker": ""})
    axes.plot([1.0], [0], **line(index))
    axes.set(xlim=(0, 2), ylim=(-1, 1))
    return _unnamed(to_svg(figure, f"{name}-sign-{index}", "", ""))


def line(index: int) -> dict[str, Any]:
    """Give how a line is drawn: its color, its dashes and its sign."""
    dash = _DASHES[index % len(_DASHES)]
    style = {"color": color(index), "linestyle": dash, "linewidth": 2, "marker": MARKERS[index % len(MARKERS)]}
    return style | {"markersize": 7, "markeredgecolor": PAGE, "markeredgewidth": 0.8}


@drawing
def mark(name: str, index: int) -> Markup:
    """Draw a point's sign for the key."""
    figure, axes = canvas(14, 14, 0, 0, 0, 0)
    axes.set_axis_off()
    axes.plot([0.0], [0.0], **line(index))
    return _unnamed(to_svg(figure, f"{name}-sign-{index}", "", ""))


def _unnamed(drawn: Markup) -> Markup:
    """Take the names from a drawing that only decorates the text beside it."""
    size = drawn[: drawn.index(" role=")]
    return Markup(f'{size} aria-hidden="true">{drawn[drawn.index("</desc>") + len("</desc>") :]}')


@drawing
def curve_chart(
    name: str,
    distances: Sequence[float],
    curves: Sequence[Sequence[float]],
    texts: tuple[str, str] = ("", ""),
) -> Markup:
    """Draw curves over distance."""
    figure, axes = canvas(330, 220, 52, 8, 44, 10)
    every = max(len(distances) // 6, 1)
    for index, curve in enumerate(curves):
        style = line(index) | {"linewidth": 1.6, "markersize": 5, "markevery": (index % every, every)}
        axes.plot(distances[: len(curve)], curve, **style)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.locator_params(nbins=6)
    axes.set_xlabel("distance (tokens back)", color=MUTED, fontsize=12)
    return to_svg(figure, name, *texts)


Numbers = Sequence[int] | Sequence[float]


@dataclass(frozen=True)
class Axis:
    """Say what an axis shows.

    Args:
        label: its name.
        log: whether it goes by powers of ten.
        bounds: its ends; None leaves them to the numbers.
    """

    label: str
    log: bool = False
    bounds: tuple[float, float] | None = None


@drawing
def bar_chart(name: str, edges: Numbers, counts: Numbers, across: Axis, up: Axis, texts: tuple[str, str]) -> Markup:
    """Draw bars that stand between edges, as a histogram has them."""
    figure, axes = canvas(330, 220, 58, 8, 44, 10)
    axes.stairs(counts, edges, fill=True, color=color(2), linewidth=0)
    _finish(axes, across, up)
    return to_svg(figure, name, *texts)


@drawing
def line_chart(
    name: str,
    places: Numbers,
    lines: Sequence[Numbers | Sequence[float | None]],
    across: Axis,
    up: Axis,
    texts: tuple[str, str],
    upright: Sequence[tuple[float, str]] = (),
    level: Sequence[tuple[float, str]] = (),
) -> Markup:
    """Draw lines over places; None leaves a gap.

    Args:
        upright, level: dotted lines at these places, each with its name.
    """
    figure, axes = canvas(330, 220, 58, 8, 44, 10)
    for index, values in enumerate(lines):
        sign = line(index) if len(lines) > 1 else {"color": color(2)}  # one line needs no sign to be told by
        sign |= {"linewidth": 1.6, "markersize": 5, "markevery": (index % 8, max(len(places) // 8, 1))}
        axes.plot(places, [float("nan") if value is None else value for value in values], **sign)
    _finish(axes, across, up)
    dotted: dict[str, Any] = {"color": MUTED, "linestyle": (0, (2, 2)), "linewidth": 1.2}
    for place, words in upright:
        axes.axvline(place, **dotted)
        axes.annotate(words, (place, 0.02), xycoords=axes.get_xaxis_transform(), color=MUTED, fontsize=11, rotation=90,
                      xytext=(-3, 0), textcoords="offset points", ha="right", va="bottom")  # fmt: skip
    for place, words in level:
        axes.axhline(place, **dotted)
        axes.annotate(words, (0.01, place), xycoords=axes.get_yaxis_transform(), color=MUTED, fontsize=11,
                      xytext=(0, 3), textcoords="offset points", va="bottom")  # fmt: skip
    return to_svg(figure, name, *texts)


def _finish(axes: "Axes", across: Axis, up: Axis) -> None:
    for axis, scale, bounds in ((across, axes.set_xscale, axes.set_xlim), (up, axes.set_yscale, axes.set_ylim)):
        if axis.log:
            scale("log")
        if axis.bounds is not None:
            bounds(*axis.bounds)
    for axis, drawn in ((across, axes.xaxis), (up, axes.yaxis)):
        if axis.log:
            drawn.set_major_formatter(_power)  # matplotlib's own is TeX
    axes.minorticks_off()
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(visible(across.label), color=MUTED, fontsize=12)
    axes.set_ylabel(visible(up.label), color=MUTED, fontsize=12)
    if not across.log:
        axes.locator_params(axis="x", nbins=5)
    if not up.log:
        axes.locator_params(axis="y", nbins=5)


def _power(value: float, place: float) -> str:
    """Write a power of ten in as few signs as an axis has room for."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
