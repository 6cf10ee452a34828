"""Positions: the vector or bias that a scheme, or the loaded table, has for each position, and their similarity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from whatwhere.errors import PositionError, SettingError, WhatWhereError
from whatwhere.records import Missing
from whatwhere.report.section import Section, Table
from whatwhere.report.text import decimals, number
from whatwhere.studio.api.settings import ExportedView, known, scheme, text, whole
from whatwhere.studio.schemes import DOORS, FOR_IMAGES, DoorScheme, default_scheme, has_own, of_first_runs, runs
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.where.binding import Where
    from whatwhere.where.catalogue.entry import Door

MOST_ROWS = 2048
MOST_COMPARED = 256
"""Positions of which all pairs are compared; of more, evenly spaced ones."""
MOST_EXPORTED = 128
"""Positions on an exported page: a whole table would be a third of the file of a small model."""
AXES = 3


@dataclass(frozen=True)
class CatalogueEntry:
    """A scheme of the catalogue."""

    name: str
    door: "Door | None"
    formula: str
    learned: bool
    url: str


@dataclass(frozen=True)
class SchemeList:
    """The schemes that a view offers.

    Args:
        schemes: the entries of the catalogue.
        runs: of a comparison, such as "rotary-0".
    """

    schemes: Sequence[CatalogueEntry]
    runs: Sequence[str]


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """Numbers of a scheme by position, or by distance.

    Args:
        label: what the columns are.
        values: a row for each position.
    """

    label: str
    values: Float[np.ndarray, "rows columns"]


@dataclass(frozen=True, eq=False)
class DistanceCurves:
    """Numbers of a scheme by distance.

    Args:
        label: what they are.
        names: of the curves.
        values: at distance 0, 1, 2, ...
    """

    label: str
    names: Sequence[str]
    values: Float[np.ndarray, "curves distances"]


@dataclass(frozen=True, eq=False)
class PositionVectors:
    """How the vectors of positions compare.

    Args:
        compared: positions of which all pairs are compared.
        cosines: of these.
        norms: of the vectors.
        outliers: positions unlike the others by norm, distance from the mean row, or cosine to both neighbors.
        mean_by_distance: mean cosine of two positions by their distance.
        shift: share of variance of the next row that one linear map explains; None for few rows.
        trained: the position from which on rows resemble no neighbor, or the number of rows.
        participation: participation ratio of the variance along principal axes.
        axes_for_90: principal axes that explain 90 % of the variance; None where that is not known.
        path: coordinates along the principal axes.
        variance_explained: by each of these axes, as a share.
    """

    compared: Int[np.ndarray, " compared"]
    cosines: Float[np.ndarray, "compared compared"]
    norms: Float[np.ndarray, " rows"]
    outliers: Int[np.ndarray, " outliers"]
    mean_by_distance: Float[np.ndarray, " distances"]
    shift: float | None
    trained: int
    participation: float
    axes_for_90: int | None
    path: Float[np.ndarray, "rows axes"]
    variance_explained: Float[np.ndarray, " axes"]


@dataclass(frozen=True, eq=False)
class PositionFindings:
    """The positions of a scheme.

    Args:
        title: of the scheme.
        notes: sentences on what differs from the model.
        doors: its schemes.
        door: the one that is shown; None where no position enters.
        rows: positions that are shown.
        max_length: number of positions that a table or a configuration has; None for any number.
        num_heads: of the attention.
        python: lines that build the encoding as `where`; PATH is the path of what is open.
        fingerprint: None where the scheme depends on queries and keys.
        by_distance: None where nothing depends on the distance alone.
        vectors: None where positions have no vectors.
        wavelengths: of the pairs of features of a sinusoid, in positions; None for other schemes.
    """

    title: str
    notes: Sequence[str]
    doors: Sequence[DoorScheme]
    door: "Door | None"
    rows: int
    max_length: int | None
    num_heads: int
    python: str
    fingerprint: Fingerprint | None
    by_distance: DistanceCurves | None
    vectors: PositionVectors | Missing | None
    wavelengths: Float[np.ndarray, " pairs"] | None


def schemes(session: Session, settings: Mapping[str, Any]) -> SchemeList:
    """Return the entries of the catalogue for text, and the runs of a comparison."""
    known(settings)
    from whatwhere.where.catalogue import catalogue

    entries = [
        CatalogueEntry(entry.name, entry.door, entry.formula, entry.learned, entry.url)
        for entry in catalogue.values()
        if entry.name not in FOR_IMAGES
    ]
    return SchemeList(entries, runs(session))


def begin(session: Session) -> dict[str, str | int]:
    """Return the settings that the view begins with."""
    own = has_own(session)
    catalogue = not own and not runs(session)
    return {
        "scheme": default_scheme(session, "sinusoidal"),
        "door": "",
        "rows": 512 if own and session.checkpoint.position_table is not None else 128,
        "dim": 64 if catalogue else 0,
        "heads": 2 if catalogue else 0,
        "seed": 0,
    }


def exported(session: Session) -> ExportedView | None:
    """Return the first figures, for an exported page."""
    first = begin(session)
    first["rows"] = min(int(first["rows"]), MOST_EXPORTED)
    try:
        shown = positions(session, first)
    except WhatWhereError:
        return None
    each_run = [{**first, "scheme": each["scheme"]} for each in of_first_runs(session, first)]
    queries = [("schemes.list", {}), *(("positions.shown", settings) for settings in each_run)]
    parts = []
    if isinstance(shown.vectors, PositionVectors):
        near = shown.vectors.mean_by_distance
        cells = [(str(n), number(norm), decimals(near[n], 4)) for n, norm in enumerate(shown.vectors.norms.tolist())]
        columns = ("position, or distance", "norm of the vector", "mean cosine at this distance")
        parts.append(Table(f"Positions: {shown.title}", columns, cells, numeric=(0, 1, 2), shorten="evenly"))
    return ExportedView("Positions", queries, begin=first, sections=[Section("positions", "Positions", parts)])


def positions(session: Session, settings: Mapping[str, Any]) -> PositionFindings:
    """Return what a scheme has for positions 0, 1, ...: numbers, cosines, norms, and their path.

    Args:
        session: what is open.
        settings: scheme ("model", a run, or a name of the catalogue); door ("" takes the first in use); rows (128), at
            most so many positions; dim, heads (0 takes those of the open model); seed.
    """
    known(settings, "scheme", "door", "rows", "dim", "heads", "seed")
    wanted = whole(settings, "rows", 128, 2, MOST_ROWS)
    shown = scheme(session, settings, wanted)
    rows = min(wanted, shown.max_length or wanted)
    if rows < 2:
        raise PositionError("this table has one position: there is nothing to compare it with.")
    doors = shown.doors()
    door = _door(text(settings, "door", ""), [each.door for each in doors])
    fingerprint, by_distance, vectors = _computed(shown.where, door, rows)
    return PositionFindings(
        title=shown.title,
        notes=shown.notes,
        doors=doors,
        door=door,
        rows=rows,
        max_length=shown.max_length,
        num_heads=shown.num_heads,
        python=shown.python,
        fingerprint=fingerprint,
        by_distance=by_distance,
        vectors=vectors,
        wavelengths=_wavelengths(shown.where) if door == "input" else None,
    )


def _wavelengths(where: "Where") -> Float[np.ndarray, " pairs"] | None:
    """Return the positions of one full oscillation of each pair of features, if a sinusoid is added."""
    from whatwhere.where.frequencies import layout_frequencies, wavelengths
    from whatwhere.where.input.sinusoidal import Sinusoidal

    scheme = where.input
    if not isinstance(scheme, Sinusoidal):
        return None
    return wavelengths(layout_frequencies(scheme.dim, scheme.theta, scheme.layout)).numpy()


def _door(name: str, used: "Sequence[Door]") -> "Door | None":
    """Return a door by its name, or the first in use; None where none is."""
    if name and name not in DOORS:
        raise SettingError(f"door must be one of {', '.join(DOORS)}, but is {name[:80]!r}.")
    return next((door for door in used if door == name), used[0] if used else None)


def _computed(
    where: "Where", door: "Door | None", rows: int
) -> tuple[Fingerprint | None, DistanceCurves | None, PositionVectors | Missing | None]:
    from whatwhere.analysis.position_similarity import by_distance, fingerprint, vectors
    from whatwhere.where.binding import Where

    alone = Where(getattr(where, door)) if door else Where()
    image, curves, table = fingerprint(alone, rows), by_distance(alone, rows), vectors(alone, rows)
    return (
        None if image is None else Fingerprint(image.label, image.values.float().numpy()),
        None
        if curves is None
        else DistanceCurves(
            curves.label, list(curves.curves), np.stack([curve.numpy() for curve in curves.curves.values()])
        ),
        None if table is None else _vectors(table.double().numpy()),
    )


def _vectors(table: Float[np.ndarray, "rows dim"]) -> PositionVectors | Missing:
    """Return how the vectors of positions compare, and their path along the axes on which they differ most."""
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(broken):
        return Missing(f"{len(broken)} rows hold numbers that are not finite, the first at position {broken[0]}")
    from torch import from_numpy

    from whatwhere.analysis.added_positions import trained_positions
    from whatwhere.analysis.pca import principal_components
    from whatwhere.analysis.position_similarity import similarity

    compared = np.arange(0, len(table), -(-len(table) // MOST_COMPARED))
    some = from_numpy(table[compared])
    cosines = np.concatenate([similarity(row[None], some)[None].numpy() for row in some]).astype(np.float32)
    trained, path = trained_positions(table), principal_components(table, AXES)
    return PositionVectors(
        compared=compared,
        cosines=cosines,
        norms=trained.norms,
        outliers=trained.outliers,
        mean_by_distance=trained.by_distance,
        shift=trained.shift,
        trained=trained.trained,
        participation=trained.spectrum.participation_ratio,
        axes_for_90=trained.spectrum.axes_for_90,
        path=path.coordinates,
        variance_explained=path.explained_variance_ratio,
    )
