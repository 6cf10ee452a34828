"""Draw many points as an SVG file of its own: a path for each group, and names here and there."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from whatwhere.errors import ShapeError
from whatwhere.page.markup import Markup, element

_WIDTH, _HEIGHT, _EDGE, _TOP, _KEY = 1200, 900, 24, 76, 190
_COLORS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#7a5195", "#6b8e23", "#a0522d", "#708090",
    "#b22222",
)  # fmt: skip
"""Okabe and Ito's, which the color-blind can tell apart, and some more."""
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1a1a1a } .title { font-size: 18px; font-weight: 600 }
.name { font-size: 11px; text-anchor: middle; paint-order: stroke; stroke: #fff; stroke-width: 3px }
.back { fill: #fff } path { fill: none; stroke-linecap: round; stroke-opacity: .7 }
@media (prefers-color-scheme: dark) { text { fill: #eee } .name { stroke: #161616 } .back { fill: #161616 } }
"""
_CELLS = (10, 12)
"""Down and across: a name for the point nearest to the middle of each cell."""


def scatter(
    places: Float[np.ndarray, "points 2"],
    names: Sequence[str],
    groups: Sequence[str],
    title: str,
    told: Sequence[str],
) -> Markup:
    """Draw points, colored by group, as one SVG document that loads nothing.

    Args:
        places: of the points, at least one; up is greater.
        names: of the points; one is written in each part of the picture that has any.
        groups: of the points; the key lists them, the largest first.
        title: first line of the picture, and its name for screen readers.
        told: further lines, which belong to the picture wherever it goes.
    """
    if not len(places) or not len(places) == len(names) == len(groups):
        raise ShapeError(f"{len(places)} places, {len(names)} names and {len(groups)} groups do not fit each other.")
    spots = _on_paper(places)
    kinds, group, count = np.unique(np.array(groups, dtype=object).astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(-count, kind="stable")
    radius = float(np.clip(200 / np.sqrt(len(places)), 1.8, 6))
    drawn = [_points(spots[group == kind], _COLORS[n % len(_COLORS)], radius) for n, kind in enumerate(order)]
    key = [
        part
        for n, kind in enumerate(order)
        for part in _key(n, f"{_clean(str(kinds[kind]))} ({count[kind]:,})", _COLORS[n % len(_COLORS)])
    ]
    lines = [element("text", _clean(line), x=str(_EDGE), y=str(50 + 17 * n)) for n, line in enumerate(told)]
    return element(
        "svg",
        element("title", _clean(title)),
        element("desc", _clean(" ".join(told))),
        element("style", Markup(_STYLE)),
        element("rect", class_="back", width=str(_WIDTH), height=str(_HEIGHT)),
        element("text", _clean(title), class_="title", x=str(_EDGE), y="30"),
        *lines,
        *drawn,
        *_names(spots, names),
        *key,
        attributes={
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_WIDTH} {_HEIGHT}",
            "role": "img",
        },
    )


def _on_paper(places: np.ndarray) -> np.ndarray:
    """Fit places into the frame, one unit as long down as across."""
    low, high = places.min(axis=0), places.max(axis=0)
    room = np.array([_WIDTH - 2 * _EDGE - _KEY, _HEIGHT - _TOP - 2 * _EDGE])
    size = high - low
    scale = float(np.min(room / np.where(size > 0, size, np.inf)))
    scale = scale if scale > 0 else 1.0
    middle = np.array([_EDGE + room[0] / 2, _TOP + _EDGE + room[1] / 2])
    spots: np.ndarray = middle + (places - (low + high) / 2) * [scale, -scale]
    return spots


def _points(spots: np.ndarray, color: str, radius: float) -> Markup:
    """Draw points as strokes of no length with round ends: ten bytes each."""
    steps = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in spots.tolist())
    return element("path", d=steps, stroke=color, stroke_width=f"{radius:.1f}")


def _names(spots: np.ndarray, names: Sequence[str]) -> list[Markup]:
    low, high = spots.min(axis=0), spots.max(axis=0)
    cells = np.array([_CELLS[1], _CELLS[0]])
    scaled = (spots - low) / np.where(high > low, high - low, 1.0) * cells
    cell = np.minimum(scaled.astype(np.int64), cells - 1)
    away = np.linalg.norm(scaled - cell - 0.5, axis=1)
    nearest: dict[tuple[int, ...], int] = {}
    for point in np.argsort(away, kind="stable").tolist():
        nearest.setdefault(tuple(cell[point].tolist()), point)
    return [
        element(
            "text", _clean(names[point])[:24], class_="name", x=f"{spots[point, 0]:.1f}", y=f"{spots[point, 1]:.1f}"
        )
        for point in sorted(nearest.values())
    ]


def _key(row: int, name: str, color: str) -> tuple[Markup, Markup]:
    x, y = _WIDTH - _KEY, _TOP + 20 * row + _EDGE
    dot = element("path", d=f"M{x} {y}h0", stroke=color, stroke_width="11")
    return dot, element("text", name, x=str(x + 12), y=str(y + 4))


def _clean(text: str) -> str:
    """Replace the two signs that XML forbids; control characters are replaced where text becomes markup."""
    return text.replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
