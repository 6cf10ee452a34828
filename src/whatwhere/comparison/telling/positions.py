"""Tell what each scheme gives a position, and how alike two positions are by the distance between them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from whatwhere.comparison.reading import Results, number
from whatwhere.comparison.telling.wording import listed, named, scheme_named
from whatwhere.page.wording import capital

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


def doors_seen(results: Results) -> str:
    """Say through which door each scheme passes, door by door."""
    doors = {scheme: tuple(_drawn(results, scheme).get("door") or ()) for scheme in results.schemes}
    parts: list[str] = []
    for door in dict.fromkeys(doors.values()):
        names = [scheme_named(scheme) for scheme, passed in doors.items() if passed == door]
        several = int(len(names) > 1)
        does = [_DOORS[str(name)][several] if name in _DOORS else named(str(name)) for name in door]
        parts.append(f"{listed(names)} {' and '.join(does or [_NOTHING[several]])}")
    return f"{'; '.join(parts)}."


def fingerprints(results: Results) -> list[dict[str, Any]]:
    """Give what each scheme gives a position as numbers, with the names of rows and columns; read in the first seed."""
    found = []
    for scheme in results.schemes:
        drawn = _drawn(results, scheme).get("fingerprint")
        if drawn and drawn["values"]:
            label = str(drawn["label"])
            columns, rows, words = _AXES.get(label, ("column", "row", named(label)))
            values = np.array([[number(value) for value in row] for row in drawn["values"]], np.float64)
            named_axes = {"rows": rows, "columns": columns, "words": words}
            found.append({"scheme": named(scheme), **named_axes, "values": values.astype(np.float32)})
    return found


def by_distance(results: Results) -> list[dict[str, Any]]:
    """Give the curves over distance of each scheme that has some."""
    found = []
    for scheme in results.schemes:
        drawn = _drawn(results, scheme).get("by_distance")
        if drawn and drawn["curves"]:
            distances = _array(drawn["distances"])
            curves = [_array(curve)[: len(distances)] for curve in drawn["curves"].values()]
            short = [np.pad(curve, (0, len(distances) - len(curve)), constant_values=np.nan) for curve in curves]
            names = [named(str(name)) for name in drawn["curves"]]
            told = {"label": named(str(drawn["label"])), "names": names, "distances": distances}
            found.append({"scheme": named(scheme), **told, "values": np.stack(short)})
    return found


def distance_seen(curves: Sequence[Mapping[str, Any]]) -> str:
    """Say of which schemes the curve never rises with distance, and where others rise again."""
    judged = [(each["scheme"], _first_rise(each["distances"], each["values"][0])) for each in curves]
    if not judged:
        return "No scheme of this run has a curve over distance."
    falling = [name for name, rise in judged if rise is None]
    rising = [f"{name} (first at {rise:g})" for name, rise in judged if rise is not None]
    parts = [f"never rising with distance: {listed(falling)}"] if falling else []
    parts += [f"rising again{'' if falling else ' with distance'}: {listed(rising)}"] if rising else []
    said = "; ".join(parts)
    return f"{capital(said)}."


def _first_rise(distances: Float[np.ndarray, " n"], curve: Float[np.ndarray, " n"]) -> float | None:
    """Find the first distance at which a curve rises, by more than rounding."""
    known = curve[np.isfinite(curve)]
    slack = 1e-4 * (float(np.ptp(known)) if known.size else 0.0) or 1e-4
    rises = np.flatnonzero(curve[1:] > curve[:-1] + slack)
    return float(distances[1 + rises[0]]) if rises.size else None


def _drawn(results: Results, scheme: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = results.data["schemes"].get(scheme) or {}
    return found


def _array(values: Sequence[float | int | None]) -> Float[np.ndarray, " n"]:
    return np.array([number(value) for value in values], np.float64)
