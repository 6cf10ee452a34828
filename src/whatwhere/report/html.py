"""Reports as HTML and scatter plots as SVG, in which every text is escaped: markup and text are different types."""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from whatwhere.escape import visible, visible_token
from whatwhere.report.section import Chart, Part, Section, Table

_VOID = frozenset({"meta", "br"})
_OPEN_ROWS = 25  # rows of a table that is shown open; a longer one is folded

_WIDTH, _HEIGHT, _MARGIN, _TOP, _LEGEND = 1200, 900, 24, 76, 190
COLORS = ("#5d6068", "#e0530a", "#02239f", "#0f9162", "#a03eb4", "#462900", "#673dfc", "#0a98f3")
"""Gray, and seven that the color-blind can tell apart: those of the studio's page (studio/web/src/studio.css)."""
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1a1a1a } .title { font-size: 18px; font-weight: 600 }
.name { font-size: 11px; text-anchor: middle; paint-order: stroke; stroke: #fff; stroke-width: 3px }
.back { fill: #fff } path { fill: none; stroke-linecap: round; stroke-opacity: .7 }
@media (prefers-color-scheme: dark) { text { fill: #eee } .name { stroke: #161616 } .back { fill: #161616 } }
"""
_CELLS = (12, 10)  # across and down: the point nearest to the middle of each cell is named
_NAME = 24


class Markup(str):
    """Text that is HTML already. Only `element` and `join` make it; a plain str is text and is escaped."""

    __slots__ = ()


def join(*children: str) -> Markup:
    """Return children one after the other: markup stays, text is escaped."""
    return Markup("".join(c if isinstance(c, Markup) else html.escape(visible(c), quote=True) for c in children))


def element(tag: str, *children: str, attributes: Mapping[str, str] | None = None, **more: str) -> Markup:
    """Return one element of markup and text, which is escaped; its attribute `aria_label` is written aria-label."""
    named = dict(attributes or {}) | {name.rstrip("_").replace("_", "-"): value for name, value in more.items()}
    written = "".join(f' {name}="{html.escape(visible(value), quote=True)}"' for name, value in named.items())
    return Markup(f"<{tag}{written}>" if tag in _VOID else f"<{tag}{written}>{join(*children)}</{tag}>")


def sections(written: Iterable[Section], level: int = 2, prefix: str = "") -> Iterator[Markup]:
    """Yield each section as an element with its heading of a level; a prefix begins the ids of the elements."""
    known: set[str] = set()
    for section in written:
        parts = [element(f"h{level}", section.title), *(written_part(part, known) for part in section.parts)]
        if section.folded:
            parts = [element("details", element("summary", parts[0]), *parts[1:])]
        yield element("section", *parts, id=f"{prefix}{section.name}")


def written_part(part: Part, known: set[str]) -> Markup:
    """Write a paragraph, a table, or the table of a chart with those of its texts that are not known from others."""
    if isinstance(part, Markup):
        return part
    if isinstance(part, str):
        return paragraph(part)
    if isinstance(part, Chart):
        note, method = ("" if text in known else text for text in (part.note, part.method))
        known |= {part.note, part.method}
        how = element("details", element("summary", "How was this computed?"), paragraph(method))
        table = [folded(part.table)] if part.table.columns else []
        return join(*([paragraph(note)] if note else []), *table, *([how] if method and table else []))
    return folded(part)


def paragraph(*children: str) -> Markup:
    """Return a paragraph."""
    return element("p", *children)


def table(shown: Table) -> Markup:
    """Write a table, whose first column names its rows, as HTML. A wide one scrolls, also with the keyboard."""
    top = element("tr", *(element("th", cell, scope="col") for cell in shown.columns))
    whole = element(
        "table",
        element("caption", element("span", shown.caption)),
        element("thead", top),
        element("tbody", *(_row(row, shown.numeric) for row in shown.rows)),
    )
    return element("div", whole, class_="scroll", role="region", aria_label=shown.caption, tabindex="0")


def folded(shown: Table) -> Markup:
    """Write a table as HTML; a long one is hidden below its caption, which opens it."""
    if len(shown.rows) <= _OPEN_ROWS:
        return table(shown)
    return element("details", element("summary", shown.caption), table(shown))


def _row(cells: Sequence[str], numeric: Sequence[int]) -> Markup:
    first = element("th", cells[0], scope="row")
    kinds = [{"class": "number"} if n in numeric else None for n in range(len(cells))]
    rest = (element("td", cell, attributes=kind) for cell, kind in zip(cells[1:], kinds[1:], strict=True))
    return element("tr", first, *rest)


def scatter(
    points: Float[np.ndarray, "points 2"], names: Sequence[str], groups: Sequence[str], title: str, lines: Sequence[str]
) -> Markup:
    """Return a scatter plot, colored by group, as one SVG document that loads nothing; the second axis points up.

    One name is written in each part of the picture; lines stay with the picture wherever it is copied.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.array([_WIDTH - 2 * _MARGIN - _LEGEND, _HEIGHT - _TOP - 2 * _MARGIN])
    scale = float(np.min(room / np.where(high > low, high - low, np.inf))) or 1.0  # one for both axes
    middle = np.array([_MARGIN + room[0] / 2, _TOP + _MARGIN + room[1] / 2])
    spots = middle + (points - (low + high) / 2) * [scale, -scale]
    labels, group, sizes = np.unique(
        np.array(groups, dtype=object).astype(str), return_inverse=True, return_counts=True
    )
    radius = float(np.clip(200 / np.sqrt(len(points)), 1.8, 6))
    dots, legend, x = list[Markup](), list[Markup](), _WIDTH - _LEGEND
    for n, label in enumerate(np.argsort(-sizes, kind="stable")):
        color = COLORS[n if n < len(COLORS) else 0]  # the smallest share the gray of the largest, as in the studio
        # Strokes of length zero with round ends: ten bytes each, where a circle takes forty.
        steps = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in spots[group == label].tolist())
        dots.append(element("path", d=steps, stroke=color, stroke_width=f"{radius:.1f}"))
        y = _TOP + 20 * n + _MARGIN
        legend.append(element("path", d=f"M{x} {y}h0", stroke=color, stroke_width="11"))
        legend.append(element("text", f"{labels[label]} ({sizes[label]:,})", x=str(x + 12), y=str(y + 4)))
    return element(
        "svg",
        element("title", title),
        element("desc", " ".join(lines)),
        element("style", Markup(_STYLE)),
        element("rect", class_="back", width=str(_WIDTH), height=str(_HEIGHT)),
        element("text", title, class_="title", x=str(_MARGIN), y="30"),
        *(element("text", line, x=str(_MARGIN), y=str(50 + 17 * n)) for n, line in enumerate(lines)),
        *dots,
        *_names(spots, names),
        *legend,
        attributes={"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img"},
    )


def _names(spots: np.ndarray, names: Sequence[str]) -> list[Markup]:
    """Return the name of the point that is nearest to the middle of each cell."""
    low, high = spots.min(axis=0), spots.max(axis=0)
    scaled = (spots - low) / np.where(high > low, high - low, 1.0) * _CELLS
    cell = np.minimum(scaled.astype(np.int64), np.array(_CELLS) - 1)
    from_middle = np.linalg.norm(scaled - cell - 0.5, axis=1)
    nearest: dict[tuple[int, ...], int] = {}
    for point in np.argsort(from_middle, kind="stable").tolist():
        nearest.setdefault(tuple(cell[point].tolist()), point)
    named = ((visible_token(names[point], _NAME), *spots[point].tolist()) for point in sorted(nearest.values()))
    return [element("text", name, class_="name", x=f"{x:.1f}", y=f"{y:.1f}") for name, x, y in named]
