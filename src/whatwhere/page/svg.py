"""Turn a matplotlib figure into SVG that belongs to the page: its colors, its font, its width, its ids.

Matplotlib draws with stand-in colors, and `to_svg` puts the page's CSS variables in their place, so one drawing serves
light and dark. Text stays text.
"""

import functools
import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from xml.etree import ElementTree

from whatwhere.errors import MissingExtra
from whatwhere.page.markup import Markup, element

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, SHADE, PAGE = "#0a0001", "#0a0002", "#0a0003", "#0a0004", "#0a0005"
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", SHADE: "--shade", PAGE: "--page"}
_VARIABLES |= {f"#0b000{index}": f"--c{index}" for index in range(8)}

P = ParamSpec("P")
R = TypeVar("R")


def require_matplotlib() -> None:
    """Raise MissingExtra if the drawings cannot be made, before anything is written."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "the figures of a page are drawn by matplotlib, which is not installed.\n"
            "Nothing but the page is missing. "
            'Install it: pip install "whatwhere[report]"'
        ) from error


@contextmanager
def _style() -> Iterator[None]:
    """Set matplotlib up for one drawing: its own defaults, so that a reader's matplotlibrc does not change the page."""
    import matplotlib

    settings = dict(matplotlib.rcParamsDefault)
    del settings["backend"]  # setting it, even to what it is, could start another
    # Text stays text, and "$x$" is a token like any other.
    settings |= {"svg.fonttype": "none", "text.parse_math": False, "image.composite_image": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser has fonts of its own
        yield


def drawing(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function that draws under settings of our own of matplotlib."""

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        require_matplotlib()
        with _style():
            return function(*args, **kwargs)

    return inside


def color(index: int) -> str:
    """Name the stand-in of a line's color."""
    return f"#0b000{index % 8}"


def canvas(width: int, height: int, left: int, right: int, bottom: int, top: int) -> "tuple[Figure, Axes]":
    """Make a figure in CSS pixels, with margins in pixels, so that panels side by side line up."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), dpi=72)  # matplotlib's SVG has 72 units to the inch
    figure.patch.set_visible(False)
    inner = (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
    axes = figure.add_axes(inner)
    axes.patch.set_visible(False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MUTED)
    axes.tick_params(colors=MUTED, labelcolor=INK, labelsize=12, length=3)
    return figure, axes


def to_svg(figure: "Figure", name: str, title: str, description: str) -> Markup:
    """Turn a figure into an <svg> of the page, with its title and description read by screen readers.

    Args:
        name: a word of our own, unique on the page; ids inside the drawing start with it.
        title, description: text; escaped.
    """
    import matplotlib

    silent = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    written = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(written, format="svg", metadata=silent)
    root = ElementTree.fromstring(written.getvalue())
    used = set(re.findall(r"#(\w+)", " ".join(v for node in root.iter() for v in _references(node))))
    parts = [_node(child, name, used) for child in root]
    names = element("title", title, id=f"{name}-title"), element("desc", description, id=f"{name}-desc")
    size = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-labelledby": f"{name}-title {name}-desc"}
    # At its own size a figure's text is 12 px, like the small text of the page; wider it would shout.
    width = {"style": f"max-width: {float(root.attrib['viewBox'].split()[2]) * 1.1:.0f}px"}
    return element("svg", *names, *parts, attributes=size | width)


def _references(node: ElementTree.Element) -> list[str]:
    return [value for name, value in node.attrib.items() if name.endswith("href") or value.startswith("url(#")]


def _node(node: ElementTree.Element, name: str, used: set[str]) -> Markup:
    """Rewrite one element: its ids become the page's own, and stand-in colors become variables."""
    tag = node.tag.rpartition("}")[2]
    if tag in {"style", "metadata"}:
        return Markup("")
    attributes = {}
    for key, value in node.attrib.items():
        short = key.rpartition("}")[2]
        if short == "id":
            value = f"{name}-{value}" if value in used else ""
        elif short == "href" and value.startswith("#"):
            value = f"#{name}-{value[1:]}"
        elif value.startswith("url(#"):
            value = f"url(#{name}-{value[5:]}"
        elif short == "style":
            value = _restyle(value)
        elif short == "transform":
            value = re.sub(r"rotate\(-?0 [^)]*\)", "", value)
        value = " ".join(value.split()) if short != "href" else "".join(value.split())
        if value:
            attributes[short] = value
    children = [_node(child, name, used) for child in node]
    if tag in {"g", "defs"} and not any(children):
        return Markup("")
    text = (node.text or "") if tag == "text" else ""
    return element(tag, text, *children, attributes=attributes)


def _restyle(style: str) -> str:
    for stand_in, variable in _VARIABLES.items():
        style = style.replace(stand_in, f"var({variable})")
    style = re.sub(r"font: (\S+) [^;]*", r"font-size: \1", style)  # matplotlib before 3.9 writes the short form
    return re.sub(r"font-family:[^;]*;?", "", style)
