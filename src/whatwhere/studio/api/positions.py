"""Positions: what a scheme, or the loaded table, makes of each position, and how alike positions are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from whatwhere.errors import PositionError, SettingError, WhatWhereError
from whatwhere.studio.api.settings import known, scheme, text, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.schemes import default_scheme, has_own, runs
from whatwhere.studio.session import Session

DOORS = ("input", "query_key", "score")
MOST_ROWS = 2048
MOST_COMPARED = 256
"""Positions of which all pairs are compared; of more, evenly spaced ones."""
MOST_LEFT = 128
"""Positions on an exported page: a whole table would be a third of the file of a small model."""
AXES = 3


def begin(session: Session) -> dict[str, Any]:
    """Return the settings that the view begins with."""
    own = has_own(session)
    drawn = not own and not runs(session)
    return {
        "scheme": default_scheme(session, "sinusoidal"),
        "door": "",
        "rows": 512 if own and session.checkpoint.position_table is not None else 128,
        "dim": 64 if drawn else 0,
        "heads": 2 if drawn else 0,
        "seed": 0,
    }


def schemes(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """List the entries of the catalogue, and the runs of a comparison."""
    known(settings)
    from whatwhere.where.catalogue import catalogue

    entries = [
        {"name": entry.name, "door": entry.door, "formula": entry.formula, "learned": entry.learned, "url": entry.url}
        for entry in catalogue.values()
    ]
    return {"schemes": entries, "runs": runs(session)}


def exported(session: Session) -> ExportedView | None:
    """Leave the first pictures on an exported page."""
    first = begin(session)
    first["rows"] = min(first["rows"], MOST_LEFT)
    try:
        found = positions(session, first)
    except WhatWhereError:
        return None
    sheets = []
    seen = found["vectors"]
    if seen is not None and seen["missing"] is None:
        near = seen["mean_by_distance"]
        cells = [(str(n), f"{norm:.4g}", f"{near[n]:.4f}") for n, norm in enumerate(seen["norms"])]
        head = ("position, or distance", "length of the vector", "mean cosine at this distance")
        sheets.append(Sheet(f"Positions: {found['title']}", head, cells))
    return ExportedView("Positions", [("schemes.list", {}), ("positions.shown", first)], sheets, first)


def positions(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Show positions 0, 1, ... as a scheme tells them: their numbers, cosines, lengths, and path.

    Args:
        settings: scheme ("model", a run, or a name of the catalogue); door ("" takes the first in use); rows (128), at
            most so many positions; dim, heads (0 takes what goes with the session); seed.
    """
    known(settings, "scheme", "door", "rows", "dim", "heads", "seed")
    wanted = whole(settings, "rows", 128, 2, MOST_ROWS)
    here = scheme(session, settings, wanted)
    rows = min(wanted, here.max_length or wanted)
    if rows < 2:
        raise PositionError("this table has one position: there is nothing to compare it with.")
    there = [door["door"] for door in here.doors()]
    door = text(settings, "door", "") or (there[0] if there else "")
    if door and door not in DOORS:
        raise SettingError(f"door must be one of {', '.join(DOORS)}, but is {door[:80]!r}.")
    if door and door not in there:
        door = there[0] if there else ""
    return {
        "title": here.title,
        "notes": list(here.notes),
        "doors": here.doors(),
        "door": door or None,
        "rows": rows,
        "longest": here.max_length,
        "num_heads": here.num_heads,
        "python": here.python,
        **_seen(here.where, door, rows),
    }


def _seen(where: Any, door: str, rows: int) -> dict[str, Any]:
    from whatwhere.analysis.position_similarity import by_distance, fingerprint, vectors
    from whatwhere.where.binding import Where

    parts: dict[str, Any] = {door: getattr(where, door)} if door else {}
    alone = Where(**parts)
    print_, curves = fingerprint(alone, rows), by_distance(alone, rows)
    told = vectors(alone, rows)
    table = None if told is None else told.double().numpy()
    return {
        "fingerprint": None if print_ is None else {"label": print_.label, "values": print_.values.float().numpy()},
        "by_distance": None if curves is None else _curves(curves),
        "vectors": None if table is None else _vectors(table),
    }


def _curves(found: Any) -> dict[str, Any]:
    names = list(found.curves)
    return {"label": found.label, "names": names, "values": np.stack([found.curves[name].numpy() for name in names])}


def _vectors(table: np.ndarray) -> dict[str, Any]:
    """Compare the vectors of positions, and follow them along the axes on which they differ most."""
    if not np.isfinite(table).all():
        broken = np.flatnonzero(~np.isfinite(table).all(axis=1))
        return {"missing": f"{len(broken)} rows hold numbers that are not finite, the first at position {broken[0]}."}
    from torch import from_numpy

    from whatwhere.analysis.pca import principal_components
    from whatwhere.analysis.position_similarity import similarity
    from whatwhere.analysis.position_table import trained_positions

    compared = np.arange(0, len(table), -(-len(table) // MOST_COMPARED))
    some = from_numpy(table[compared])
    cosines = np.concatenate([similarity(row[None], some)[None].numpy() for row in some]).astype(np.float32)
    found, path = trained_positions(table), principal_components(table, AXES)
    return {
        "missing": None,
        "compared": compared,
        "cosines": cosines,
        "norms": found.norms,
        "outliers": found.outliers,
        "mean_by_distance": found.by_distance,
        "shift": found.shift,
        "trained": found.trained,
        "participation": found.spectrum.participation_ratio,
        "for_ninety": found.spectrum.axes_for_90,
        "path": path.coordinates,
        "share": path.explained_variance_ratio,
    }
