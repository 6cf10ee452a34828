"""Distance: similarity, kernel or bias of every scheme as a function of the distance between two tokens."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float32

from whatwhere.errors import WhatWhereError
from whatwhere.records import Missing
from whatwhere.report.section import Section, Table
from whatwhere.report.text import number
from whatwhere.studio.api.settings import MOST_HEADS, ExportedView, known, whole
from whatwhere.studio.schemes import catalogue_python, layer_names, model_biases, model_positions, model_rotaries
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.comparison.results import SchemeView
    from whatwhere.where.binding import Where
    from whatwhere.where.catalogue.entry import Door, Scheme

MAX_DISTANCES = 4096
_OF_ONES = "bias for a query, keys and vectors of ones"
_PRODUCTS_OF_ONES = "inner product of equal query and key, for vectors of ones"
_DEFAULTS = {"head": 3, "heads": 8, "head_dim": 64, "distances": 1024, "seed": 0}
_IN_TABLE = ("sinusoidal", "rotary", "alibi", "sandwich")
"""Entries of the catalogue in the table of an exported page: those that the view shows at first."""


@dataclass(frozen=True, eq=False)
class DistanceCurve:
    """A similarity, kernel or bias by distance.

    Args:
        label: what the values are.
        values: at distance 0, 1, 2, ....
        relative: values divided by the greatest size; of a bias the weights exp(bias - greatest bias).
    """

    label: str
    values: Float32[np.ndarray, " distances"]
    relative: Float32[np.ndarray, " distances"]


@dataclass(frozen=True, eq=False)
class SchemeCurve:
    """A scheme and its curve.

    Args:
        id: names it in the address of the page.
        name: a short name to read.
        door: where the scheme enters the Transformer.
        own: whether it belongs to what is open; else it is an entry of the catalogue.
        learned: whether it has parameters.
        formula: its equation, or "".
        url: its source.
        curve: of one head, or why there is none.
        python: lines that build `where`; "" where the curve is not that of distances alone, or the model's own.
    """

    id: str
    name: str
    door: "Door | None"
    own: bool
    learned: bool
    formula: str
    url: str | None
    curve: DistanceCurve | Missing
    python: str = ""


@dataclass(frozen=True, eq=False)
class SchemeCurves:
    """The curves of all schemes.

    Args:
        dim: features of a token vector, for the schemes of the catalogue.
        heads: for the schemes of the catalogue.
        head: whose curves these are.
        distances: how many there are, from 0 on.
        seed: of the random parameters.
        schemes: those of what is open first.
    """

    dim: int
    heads: int
    head: int
    distances: int
    seed: int
    schemes: Sequence[SchemeCurve]


@dataclass(frozen=True, eq=False)
class _HeadCurves:
    """Curves of all heads, and what their values are."""

    label: str
    values: Float[np.ndarray, "heads distances"]

    def of(self, head: int) -> DistanceCurve:
        """Return the curve of a head, or of the last one."""
        return _curve(self.label, self.values[min(head, len(self.values) - 1)])


def curves(session: Session, settings: Mapping[str, Any]) -> SchemeCurves:
    """Return the curves of the open model and of every scheme of the catalogue.

    Learned schemes of the catalogue are untrained; those of the open model are its own.

    Args:
        session: what is open.
        settings: head_dim (64), heads (8), head (0), distances (1024), seed (0).
    """
    known(settings, "head_dim", "heads", "head", "distances", "seed")
    heads = whole(settings, "heads", 8, 1, MOST_HEADS)
    head = min(whole(settings, "head", 0, 0, MOST_HEADS - 1), heads - 1)
    dim = whole(settings, "head_dim", 64, 2, 512) * heads
    distances = whole(settings, "distances", 1024, 2, MAX_DISTANCES)
    seed = whole(settings, "seed", 0, 0, 1 << 31)
    schemes = [*_of_session(session, distances, head), *_of_catalogue(dim, heads, head, distances, seed)]
    return SchemeCurves(dim, heads, head, distances, seed, schemes)


def exported(session: Session) -> ExportedView:
    """Return what an exported page needs of this view: the curves in the sizes that it begins with."""
    shown = curves(session, _DEFAULTS)
    distances = [0, *(1 << n for n in range(shown.distances.bit_length() - 1))]
    columns, cells = ["distance"], []
    for scheme in shown.schemes:
        if isinstance(scheme.curve, DistanceCurve) and (scheme.own or scheme.id in _IN_TABLE):
            columns.append(f"{scheme.name}: {scheme.curve.label}")
            values = scheme.curve.values.tolist()
            cells.append([number(values[d]) if d < len(values) else "" for d in distances])
    rows = [[str(distance), *row] for distance, row in zip(distances, zip(*cells, strict=True), strict=True)]
    table = Table("By distance", columns, rows, numeric=range(len(columns)))
    return ExportedView("Distance", [("distance.curves", _DEFAULTS)], sections=[Section("curves", "Curves", [table])])


def as_weights(bias: Float[np.ndarray, "*heads distances"]) -> Float[np.ndarray, "*heads distances"]:
    """Return exp(bias - greatest bias of the head): attention weights where all scores without the bias are equal."""
    finite = np.where(np.isfinite(bias), bias, -np.inf)
    return np.asarray(np.exp(bias - finite.max(axis=-1, keepdims=True)))


def _catalogue() -> "Mapping[str, Scheme]":
    from whatwhere.where.catalogue import catalogue

    return catalogue


def _of_catalogue(dim: int, heads: int, head: int, distances: int, seed: int) -> Iterator[SchemeCurve]:
    for name, entry in _catalogue().items():
        of_heads = _untrained(name, dim, heads, distances, seed)
        alone = isinstance(of_heads, _HeadCurves) and of_heads.label != _OF_ONES
        python = catalogue_python(name, dim, heads, distances, seed, learned=entry.learned) if alone else ""
        yield SchemeCurve(
            id=name,
            name=name,
            door=entry.door,
            own=False,
            learned=entry.learned,
            formula=entry.formula,
            url=entry.url,
            curve=of_heads if isinstance(of_heads, Missing) else of_heads.of(head),
            python=python,
        )


@lru_cache(maxsize=128)  # another head needs no other computation
def _untrained(name: str, dim: int, heads: int, distances: int, seed: int) -> _HeadCurves | Missing:
    from whatwhere.where.catalogue import random_scheme

    try:
        return _of_heads(random_scheme(name, dim, heads, distances, seed), distances)
    except WhatWhereError as problem:
        return Missing(str(problem))


def _of_heads(where: "Where", distances: int) -> _HeadCurves | Missing:
    """Return the curves of all heads, or why there are none."""
    from whatwhere.analysis.position_similarity import bias_of_ones, by_distance, products_of_ones

    similarity = by_distance(where, distances)
    if similarity is not None:
        return _HeadCurves(similarity.label, np.stack([each.double().numpy() for each in similarity.curves.values()]))
    if where.query_key is not None:  # a map by content, else it would have a curve
        products = products_of_ones(where.query_key, distances) / where.query_key.head_dim
        return _HeadCurves(_PRODUCTS_OF_ONES, products.double().numpy())
    if where.score is None:
        return Missing("no attention score depends on positions")
    return _HeadCurves(_OF_ONES, bias_of_ones(where.score, distances).double().numpy())


def _of_session(session: Session, distances: int, head: int) -> Iterator[SchemeCurve]:
    """Yield the curves of the open model, or of a comparison's trained schemes."""
    for n, curve in enumerate(_own_curves(session, distances, head)):
        yield replace(curve, id=f"own-{n}")


def _own_curves(session: Session, distances: int, head: int) -> Iterator[SchemeCurve]:
    from whatwhere.where.binding import Where

    if (table := model_positions(session, MAX_DISTANCES)) is not None:
        name, cosines = table
        yield _own(f"this model: {name}", "input", _curve("mean cosine of two rows", cosines[:distances]))
    for rotary in model_rotaries(session)[0]:
        name = f"this model: {type(rotary.scheme).__name__}, {layer_names(list(rotary.group.layers))}"
        curve = _of_head(Where(query_key=rotary.scheme), distances, head)
        yield _own(name, "query_key", curve, learned=False, formula=str(rotary.scheme)[:200])
    if session.kind == "results":
        yield from _trained(session.results.record.schemes, distances, head)
        return
    for bias in model_biases(session)[0]:
        missing = Missing(bias.missing or "")
        bias_curve = missing if bias.scheme is None else _of_head(Where(score=bias.scheme), distances, head)
        yield _own(bias.title, "score", bias_curve, learned=bias.tensor is not None)


def _own(
    name: str, door: "Door", curve: DistanceCurve | Missing, *, learned: bool = True, formula: str = ""
) -> SchemeCurve:
    return SchemeCurve("", name, door, own=True, learned=learned, formula=formula, url=None, curve=curve)


def _of_head(where: "Where", distances: int, head: int) -> DistanceCurve | Missing:
    of_heads = _of_heads(where, distances)
    return of_heads if isinstance(of_heads, Missing) else of_heads.of(head)


def _trained(schemes: "Mapping[str, SchemeView]", distances: int, head: int) -> Iterator[SchemeCurve]:
    """Yield the curves that a comparison measured after training, of the first layer of each scheme."""
    doors: tuple[Door, ...] = ("input", "query_key", "score")
    for name, scheme in schemes.items():
        measured, door = scheme.by_distance, next((each for each in doors if each in scheme.doors), None)
        if measured is None or not measured.curves or door is None:
            continue
        rows = list(measured.curves.values())
        values = np.array(rows[min(head, len(rows) - 1)][:distances], np.float64)
        yield _own(f"trained: {name}", door, _curve(measured.label, values))


def _curve(label: str, values: Float[np.ndarray, " distances"]) -> DistanceCurve:
    if label.startswith("bias"):
        relative = as_weights(values)
    else:
        relative = values / (np.abs(values[np.isfinite(values)]).max(initial=0.0) or 1.0)
    return DistanceCurve(label, values.astype(np.float32), relative.astype(np.float32))
