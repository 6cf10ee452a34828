"""Distance: what each scheme of the catalogue makes of how far two tokens are apart, on one axis."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from whatwhere.errors import WhatWhereError
from whatwhere.studio.api.settings import known, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.schemes import layer_names, model_biases, model_positions, model_rotaries
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.where.binding import Where

LONGEST = 4096
MOST_HEADS = 64
_ByHead = tuple[str, Float[np.ndarray, "heads distances"]]
_DOORS = ("input", "query_key", "score")
_BEGIN = {"head": 3, "heads": 8, "head_dim": 64, "distances": 1024, "seed": 0}
_READ = ("sinusoidal", "rotary", "alibi", "sandwich")
"""Rows of the catalogue on a page without JavaScript: those that the view shows at first, besides the model's own."""


def curves(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the open model and each scheme of the catalogue give at distance 0, 1, 2, ....

    Learned schemes are as they are drawn, before any training; those of the open model are its own.

    Args:
        settings: head_dim (64), heads (8), head (0), distances (1024), seed (0).
    """
    known(settings, "head_dim", "heads", "head", "distances", "seed")
    heads = whole(settings, "heads", 8, 1, MOST_HEADS)
    head = min(whole(settings, "head", 0, 0, MOST_HEADS - 1), heads - 1)
    features = whole(settings, "head_dim", 64, 2, 512)
    distances = whole(settings, "distances", 1024, 2, LONGEST)
    seed = whole(settings, "seed", 0, 0, 1 << 31)
    found = [{"id": f"own-{n}"} | each for n, each in enumerate(_of_source(session, distances, head))]
    found += [_of_scheme(name, features * heads, heads, head, distances, seed) for name in _catalogue()]
    return {
        "dim": features * heads,
        "heads": heads,
        "head": head,
        "distances": distances,
        "seed": seed,
        "schemes": found,
    }


def exported(session: Session) -> ExportedView:
    """Leave all curves on an exported page, in the sizes that the view begins with."""
    found = curves(session, _BEGIN)
    schemes = [each for each in found["schemes"] if "values" in each and (each["own"] or each["id"] in _READ)]
    at = [0, *(1 << n for n in range(found["distances"].bit_length() - 1))]
    cells = [(str(d), *(_cell(each["values"], d) for each in schemes)) for d in at]
    head = ("distance", *(f"{scheme['name']}: {scheme['label']}" for scheme in schemes))
    return ExportedView("Distance", [("distance.curves", _BEGIN)], [Sheet("By distance", head, cells)])


def _cell(values: Float[np.ndarray, " distances"], distance: int) -> str:
    return f"{values[distance] + 0.0:.4g}" if distance < len(values) else ""  # without the sign of a zero


def as_weights(bias: Float[np.ndarray, "*heads distances"]) -> Float[np.ndarray, "*heads distances"]:
    """Return the weights that a bias leaves, each head's greatest being 1: exp(bias - greatest)."""
    finite = np.where(np.isfinite(bias), bias, -np.inf)
    return np.asarray(np.exp(bias - finite.max(axis=-1, keepdims=True)))


def _catalogue() -> Mapping[str, Any]:
    from whatwhere.where.catalogue import catalogue

    return catalogue


def _of_scheme(name: str, dim: int, heads: int, head: int, distances: int, seed: int) -> dict[str, Any]:
    """Return the curve of a row of the catalogue, or why there is none."""
    row = _catalogue()[name]
    facts = {"id": name, "name": name, "door": row.door, "formula": row.formula, "url": row.url, "learned": row.learned}
    return facts | {"own": False} | _of_head(_drawn(name, dim, heads, distances, seed), head)


@lru_cache(maxsize=128)  # so that another head is there at once
def _drawn(name: str, dim: int, heads: int, distances: int, seed: int) -> _ByHead | str:
    from whatwhere.analysis.walkthrough import random_scheme

    try:
        return _by_head(random_scheme(name, dim, heads, distances, seed), distances)
    except WhatWhereError as problem:
        return str(problem)


def _by_head(where: "Where", distances: int) -> _ByHead | str:
    """Return what each head makes of each distance, or why nothing does."""
    from whatwhere.analysis.position_similarity import by_distance

    found = by_distance(where, distances)
    if found is not None:
        return found.label, np.stack([curve.double().numpy() for curve in found.curves.values()])
    if where.score is None:
        return "no score depends on where a token stands"
    return "bias for a query, keys and vectors of ones", _with_content(where.score, distances)


def _of_head(found: _ByHead | str, head: int) -> dict[str, Any]:
    if isinstance(found, str):
        return {"missing": found}
    label, rows = found
    return _told(label, rows[min(head, len(rows) - 1)])


def _with_content(score: Any, distances: int) -> Float[np.ndarray, "heads distances"]:
    """Query a bias that depends on queries and keys what it adds where all of them are ones."""
    import torch

    from whatwhere.position import positions
    from whatwhere.where.score_bias import tabulate

    keys, last = positions(distances), positions(1, start=distances - 1)
    heads, features = score.num_heads, getattr(score, "head_dim", 1)
    with torch.no_grad():
        gates = score.gates(torch.ones(1, distances, score.dim)) if hasattr(score, "dim") else None
        q, k = torch.ones(1, heads, 1, features), torch.ones(1, heads, distances, features)
        element = score.bind(last, keys, q=q, k=k, gates=gates)
        table = tabulate(element, 1, heads, 1, distances, torch.device("cpu"))
    return np.asarray(table[0, :, 0].flip(-1).double().numpy())


def _of_source(session: Session, distances: int, head: int) -> Iterator[dict[str, Any]]:
    """Yield what the open model itself says, or what a comparison has made of the schemes that it trained."""
    from whatwhere.where.binding import Where

    facts: dict[str, Any] = {"formula": "", "url": None, "learned": True, "own": True}
    if (found := model_positions(session, LONGEST)) is not None:
        name, cosines = found
        told = _told("mean cosine of two rows", cosines[:distances])
        yield facts | {"name": f"this model: {name}", "door": "input"} | told
    for rotary in model_rotaries(session)[0]:
        name = f"this model: {type(rotary.scheme).__name__}, {layer_names(list(rotary.group.layers))}"
        told = _of_head(_by_head(Where(query_key=rotary.scheme), distances), head)
        yield facts | {"name": name, "door": "query_key", "learned": False, "formula": str(rotary.scheme)[:200]} | told
    for bias in model_biases(session)[0] if session.kind == "checkpoint" else ():
        told = {"missing": bias.missing}
        if bias.scheme is not None:
            told = _of_head(_by_head(Where(score=bias.scheme), distances), head)
        yield facts | {"name": bias.title, "door": "score", "learned": bias.tensor is not None} | told
    if session.kind == "results":
        yield from _trained(session.checkpoint.metadata.get("schemes"), facts, distances, head)


def _trained(schemes: Any, facts: dict[str, Any], distances: int, head: int) -> Iterator[dict[str, Any]]:
    """Yield the curves that a comparison wrote down after training: of the first layer of each scheme."""
    for name, scheme in schemes.items() if isinstance(schemes, dict) else ():
        kept = scheme.get("by_distance") if isinstance(scheme, dict) else None
        found = kept if isinstance(kept, dict) else {}
        curves = found.get("curves")
        rows = [row for row in curves.values() if isinstance(row, list)] if isinstance(curves, dict) else []
        doors = [door for door in _DOORS if rows and door in scheme.get("doors", ())]
        if doors:
            row = [value if isinstance(value, int | float) else np.nan for value in rows[min(head, len(rows) - 1)]]
            told = _told(str(found.get("label", "")), np.array(row[:distances], np.float64))
            yield facts | {"name": f"trained: {name}", "door": doors[0]} | told


def _told(label: str, values: Float[np.ndarray, " distances"]) -> dict[str, Any]:
    """Return a curve as it is, and as a share of its greatest: of a bias the weights that it leaves, exp(bias)."""
    if label.startswith("bias"):
        relative = as_weights(values)
    else:
        relative = values / (np.abs(values[np.isfinite(values)]).max(initial=0.0) or 1.0)
    return {"label": label, "values": values.astype(np.float32), "relative": relative.astype(np.float32)}
