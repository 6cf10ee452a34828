"""Positions: the vector or bias that a scheme, or the loaded table, has for each position, and their similarity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Float, Int

from whatwhere.analysis.added_positions import TrainedPositions, trained_positions
from whatwhere.analysis.pca import principal_components
from whatwhere.errors import PositionError, SettingError, WhatWhereError
from whatwhere.models.load_where import run_length
from whatwhere.records import Missing
from whatwhere.report.section import Section
from whatwhere.report.text import count
from whatwhere.studio.api.settings import ExportedView, Features, Heads, Seed, columns, query
from whatwhere.studio.schemes import DOORS, FOR_IMAGES, SchemeSummary, default_scheme, has_own, of_first_runs, scheme_of
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.analysis.position_similarity import ByDistance, Fingerprint
    from whatwhere.where.binding import Where
    from whatwhere.where.catalogue.entry import Door, SchemeDescription

MOST_ROWS = 2048
MOST_COMPARED = 256  # positions of which all pairs are compared; of more, evenly spaced ones
MOST_EXPORTED = 128  # positions on an exported page: a whole table would be a third of the file of a small model
AXES = 3


@dataclass(frozen=True)
class SchemeList:
    """The schemes of the catalogue that a view offers."""

    schemes: "Sequence[SchemeDescription]"


@dataclass(frozen=True, eq=False)
class PositionVectors(TrainedPositions):
    """How the vectors of positions compare: cosines of all pairs of some, and the path of all along principal axes."""

    compared: Int[np.ndarray, " compared"]
    cosines: Float[np.ndarray, "compared compared"]
    path: Float[np.ndarray, "rows axes"]
    variance_explained: Float[np.ndarray, " axes"]


@dataclass(frozen=True, eq=False)
class PositionFindings(SchemeSummary):
    """The positions of a scheme."""

    door: "Door | None"  # the one that is shown; None where no position enters
    rows: int
    fingerprint: "Fingerprint | None"  # None where the scheme depends on queries and keys
    by_distance: "ByDistance | None"  # None where nothing depends on the distance alone
    vectors: PositionVectors | Missing | None
    wavelengths: Float[np.ndarray, " pairs"] | None  # of the pairs of features of a sinusoid, in positions
    trained: int | None  # positions of the longest sequence that a run was trained with


@query("schemes.list")
def schemes(session: Session) -> SchemeList:
    """Return the entries of the catalogue for text."""
    from whatwhere.where.catalogue import catalogue, describe

    return SchemeList([describe(entry) for entry in catalogue.values() if entry.name not in FOR_IMAGES])


def begin(session: Session) -> dict[str, str | int]:
    """Return the settings that the view begins with."""
    own = has_own(session)
    catalogue = not own and not session.runs
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
    tables = []
    if isinstance(shown.vectors, PositionVectors):
        norms = shown.vectors.norms
        values = {"position, or distance": range(len(norms)), "norm of the vector": norms}
        values["mean cosine at this distance"] = shown.vectors.by_distance
        tables.append(columns(f"Positions: {shown.title}", values, shorten="evenly"))
    return ExportedView(queries, begin=first, sections=[Section("positions", "Positions", tables)])


@query("positions.shown")
def positions(
    session: Session,
    *,
    scheme: str,  # "model", a run, or a name of the catalogue
    door: str = "",  # the first in use
    rows: Annotated[int, 2, MOST_ROWS] = 128,
    dim: Features = 0,
    heads: Heads = 0,
    seed: Seed = 0,
) -> PositionFindings:
    """Return what a scheme has at one door for positions 0, 1, ...: numbers, cosines, norms, and their path."""
    from whatwhere.analysis import position_similarity as similarity
    from whatwhere.where.binding import Where

    shown = scheme_of(session, scheme, dim=dim, num_heads=heads, max_length=rows, seed=seed)
    rows = min(rows, shown.max_length or rows)
    if rows < 2:
        raise PositionError("this table has one position: there is nothing to compare it with.")
    if door and door not in DOORS:
        raise SettingError(f"door must be one of {', '.join(DOORS)}, but is {door[:80]!r}.")
    summary = shown.summary()
    used = [each.door for each in summary["doors"]]
    chosen = next((each for each in used if each == door), used[0] if used else None)
    alone = Where(getattr(shown.where, chosen)) if chosen else Where()
    table = similarity.vectors(alone, rows)
    trained = run_length(session.checkpoint, scheme) if scheme in session.runs else None
    if trained is not None:
        summary["notes"] = [*shown.notes, f"trained with up to {count(trained, 'token')}"]
    return PositionFindings(
        **summary,
        door=chosen,
        rows=rows,
        fingerprint=similarity.fingerprint(alone, rows),
        by_distance=similarity.by_distance(alone, rows),
        vectors=None if table is None else _vectors(table.double().numpy()),
        wavelengths=_wavelengths(alone),
        trained=trained,
    )


def _wavelengths(where: "Where") -> Float[np.ndarray, " pairs"] | None:
    from whatwhere.where.frequencies import layout_frequencies, wavelengths
    from whatwhere.where.input.sinusoidal import Sinusoidal

    scheme = where.input
    if not isinstance(scheme, Sinusoidal):
        return None
    return wavelengths(layout_frequencies(scheme.dim, scheme.theta, scheme.layout)).numpy()


def _vectors(table: Float[np.ndarray, "rows dim"]) -> PositionVectors | Missing:
    """Return how the vectors of positions compare, and their path along the axes on which they differ most."""
    broken = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(broken):
        return Missing(f"{len(broken)} rows hold numbers that are not finite, the first at position {broken[0]}")
    from torch import from_numpy

    from whatwhere.analysis.position_similarity import similarity

    compared = np.arange(0, len(table), -(-len(table) // MOST_COMPARED))
    some, path = from_numpy(table[compared]), principal_components(table, AXES)
    return PositionVectors(
        **vars(trained_positions(table)),
        compared=compared,
        cosines=np.stack([similarity(row[None], some).numpy() for row in some]).astype(np.float32),
        path=path.coordinates,
        variance_explained=path.explained_variance_ratio,
    )
