"""Write the sections of the report that show positions: fingerprints, and similarity by distance."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from whatwhere.comparison.page.figures import heat_map, scale_bar
from whatwhere.comparison.page.reading import Results, number
from whatwhere.page.charts import curve_chart, swatch
from whatwhere.page.markup import Markup, element, folded, join, paragraph, section, table
from whatwhere.page.wording import code, listed, plain

_COLUMNS, _ROWS = 16, 80
_AXES = {
    "rows by dimension": ("dimension", "position", "a row of numbers, added to the token's"),
    "cos of the angle of each pair": (
        "pair of dimensions",
        "position",
        "an angle for each pair of dimensions, shown as its cosine",
    ),
    "bias by distance, one column a head": (
        "head",
        "distance",
        "a number for each distance and head, added to the attention score",
    ),
}
_DOORS = {  # for one scheme, for several
    "input": ("adds to the token's vector", "add to the token's vector"),
    "query_key": ("turns queries and keys", "turn queries and keys"),
    "score": ("adds to attention scores", "add to attention scores"),
}
_NOTHING = ("gives a position nothing", "give a position nothing")


def fingerprints(results: Results) -> Markup:
    """Write section 5: what each scheme gives a position."""
    told = paragraph(
        "Each scheme marks a position in its own way. Below, one line of the picture is one position (or one "
        "distance), read from the trained model of the first seed. Positions that look alike are hard to tell apart."
    )
    panels, numbers, without = [], [], []
    for index, scheme in enumerate(results.schemes):
        found = (results.data["schemes"].get(scheme) or {}).get("fingerprint")
        if not found or not found["values"]:
            without.append(code(scheme))
            continue
        panel, rows = _fingerprint(index, scheme, found)
        panels.append(panel)
        numbers.append(rows)
    parts = [told, element("div", *panels, class_="panels")]
    if without:
        has = "has no picture of its own." if len(without) == 1 else "have no picture of their own."
        parts.append(paragraph(listed(without), f" {has}", kind="note"))
    if numbers:
        parts.append(folded("The numbers of these figures", *numbers))
    return section("fingerprints", "5. The fingerprint of a position", _doors_seen(results), *parts)


def _doors_seen(results: Results) -> Markup:
    """Say through which door each scheme passes, door by door."""
    doors = {s: tuple((results.data["schemes"].get(s) or {}).get("door") or ()) for s in results.schemes}
    parts: list[str] = []
    for door in dict.fromkeys(doors.values()):
        names = [code(scheme) for scheme, passed in doors.items() if passed == door]
        several = int(len(names) > 1)
        does = [_DOORS[str(name)][several] if name in _DOORS else str(name) for name in door]
        parts += ["; " if parts else "", listed(names), " ", " and ".join(does or [_NOTHING[several]])]
    return join(*parts, ".")


def _fingerprint(index: int, scheme: str, found: Mapping[str, Any]) -> tuple[Markup, Markup]:
    values = _array(found["values"])
    label = str(found["label"])
    columns, rows, words = _AXES.get(label, ("column", "row", label))
    limit = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    texts = (
        f"Fingerprint of {scheme}",
        f"{len(values)} lines ({rows}) by {values.shape[1]} columns ({columns}): {words}",
    )
    drawn = heat_map(f"fingerprint-{index}", values, (columns, rows), limit, texts=texts)
    panel = element(
        "figure",
        element("figcaption", element("b", code(scheme)), f": {words}"),
        element("div", drawn, class_="drawing"),
        scale_bar(f"fingerprint-key-{index}", limit, values),
    )
    shown = values[:_ROWS, :_COLUMNS]
    head = [rows, *(f"{columns.split()[0]} {i}" for i in range(shown.shape[1]))]
    lines = [[str(i), *(plain(float(v)) for v in row)] for i, row in enumerate(shown)]
    cut = f" The first {len(shown)} by {shown.shape[1]} of {len(values)} by {values.shape[1]}; all are in results.json."
    return panel, table(f"{scheme}: {words}.{cut if shown.size < values.size else ''}", head, lines)


def _array(values: list[list[float | None]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([[number(value) for value in row] for row in values], dtype=np.float64)


def by_distance(results: Results) -> Markup:
    """Write section 6: how alike two positions are, by the distance between them."""
    told = paragraph(
        "How alike does a scheme make two positions that lie a given number of tokens apart? A curve that falls "
        "steadily tells near from far. One that rises again makes a far position look like a near one."
    )
    panels, numbers, judged = [], [], []
    for index, scheme in enumerate(results.schemes):
        found = (results.data["schemes"].get(scheme) or {}).get("by_distance")
        if not found or not found["curves"]:
            continue
        panels.append(_curves(index, scheme, found))
        curves = {str(name): [number(v) for v in curve] for name, curve in found["curves"].items()}
        numbers.append(_curve_table(scheme, found, curves))
        judged.append((scheme, _first_rise([number(d) for d in found["distances"]], next(iter(curves.values())))))
    if not panels:
        return section(
            "distance", "6. Similarity by distance", join("No scheme of this run has a curve over distance."), told
        )
    body = element("div", *panels, class_="panels"), folded("The numbers of these figures", *numbers)
    return section("distance", "6. Similarity by distance", _distance_seen(judged), told, *body)


def _curves(index: int, scheme: str, found: Mapping[str, Any]) -> Markup:
    names = [str(name) for name in found["curves"]]
    curves = [[number(v) for v in curve] for curve in found["curves"].values()]
    texts = (f"{found['label']}, {scheme}", f"{len(curves)} curves over distances 0 to {found['distances'][-1]}")
    drawn = curve_chart(f"distance-{index}", [number(d) for d in found["distances"]], curves, texts=texts)
    items = [element("li", swatch(f"distance-{index}", i), name) for i, name in enumerate(names)]
    named = element("ul", *items, class_="key", aria_label=f"Key to the curves of {scheme}")
    alone = f", {names[0]}" if len(names) == 1 else ""
    caption = element("figcaption", element("b", code(scheme)), f": {found['label']}{alone}")
    return element("figure", caption, element("div", drawn, class_="drawing"), *([] if alone else [named]))


def _curve_table(scheme: str, found: Mapping[str, Any], curves: Mapping[str, list[float]]) -> Markup:
    rows = [
        [str(distance), *(plain(curve[i]) if i < len(curve) else "" for curve in curves.values())]
        for i, distance in enumerate(found["distances"])
    ]
    return table(f"{scheme}: {found['label']}, by distance in tokens.", ["distance", *curves], rows)


def _first_rise(distances: list[float], curve: list[float]) -> float | None:
    """Find the first distance at which a curve rises, by more than rounding."""
    slack = 1e-4 * (np.ptp(curve) or 1.0)
    rises = [d for d, before, after in zip(distances[1:], curve, curve[1:], strict=False) if after > before + slack]
    return rises[0] if rises else None


def _distance_seen(judged: list[tuple[str, float | None]]) -> Markup:
    falling = [code(scheme) for scheme, rise in judged if rise is None]
    rising = [join(code(scheme), f" (first at {rise:g})") for scheme, rise in judged if rise is not None]
    parts: list[str] = []
    if falling:
        parts += ["Never rising with distance: ", listed(falling)]
    if rising:
        parts += ["; rising again: " if falling else "Rising again with distance: ", listed(rising)]
    return join(*parts, ".")
