"""The variance split: which part of the first layer's input is the token's, and which the position's."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whatwhere.analysis.input_variance import variance_split
from whatwhere.errors import SettingError, WhatWhereError
from whatwhere.inspection.position_encodings import first_norm
from whatwhere.studio.api.pipeline import TOKENS
from whatwhere.studio.api.settings import MOST_FEATURES, flag, known, number, one_of, scheme, text, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.schemes import DEFAULT_DIM, MODEL, DoorScheme, default_scheme, runs, token_factor, token_tensor
from whatwhere.studio.session import Session

MOST_ROWS = 4096
DRAWN, FEW = 512, 96
"""Tokens of a fresh table; tokens and positions behind each point of a curve, which then is right to a percent."""
WINDOWS = (0, 8, 32, 128, 512, 2048)
SCALES = tuple(float(2**n) for n in range(-7, 8))
_AROUND = ("gain", "shift", "norm", "added")
_SETTINGS = ("tokens", "scheme", "dim", "heads", "rows", "scale", "normalize", "seed")


def begin(session: Session) -> dict[str, Any]:
    """Return the settings that the view begins with."""
    loaded = session.kind != "fresh" and bool(session.tables)
    added = [run for run in runs(session) if run.startswith(("learned", "sinusoidal"))]
    return {
        "tokens": "loaded" if loaded else "words",
        "scheme": added[0] if added else default_scheme(session, "sinusoidal", for_odd="learned"),
        "rows": 512,
        "scale": 1,
        "normalize": True,
        "dim": 0 if loaded else 64,
        "heads": 0,
        "seed": 0,
    }


def exported(session: Session) -> ExportedView | None:
    """Leave the first split on an exported page."""
    first = begin(session)
    try:
        found = shares(session, first)
    except WhatWhereError:
        return None
    sheets = []
    if found["missing"] is None:
        names = ("token", "position", "interaction")
        windows = [f"positions {a} to {b - 1}" for a, b in found["windows"]]
        parts = [[found[name] for name in names], *found["by_window"].tolist()]
        told = zip(["all positions", *windows], parts, strict=True)
        cells = [(window, *(f"{100 * share:.1f} %" for share in row)) for window, row in told]
        sheets.append(Sheet("Shares of the variance", ("among", "token", "position", "both"), cells))
    return ExportedView("Variance split", [("schemes.list", {}), ("variance.shares", first)], sheets)


def shares(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Split the variance of the first layer's input into the token's share, the position's, and that of both.

    Args:
        settings: tokens ("loaded" or "words", which draws a table); scheme ("model", a run, or a name of the
            catalogue); rows (512), at most so many positions; scale, by which token vectors are multiplied besides
            what the model does (1); normalize, to mean 0 and variance 1 by vector (true); dim; heads; seed.
    """
    known(settings, *_SETTINGS)
    loaded = one_of(settings, "tokens", TOKENS) == "loaded"
    name, seed = text(settings, "scheme"), whole(settings, "seed", 0, 0, 1 << 31)
    wanted = whole(settings, "rows", 512, 2, MOST_ROWS)
    times, normalize = number(settings, "scale", 1.0, 1e-6, 1e6), flag(settings, "normalize", True)
    tensor = token_tensor(session, name) if loaded else None
    width = None if tensor is None else session.checkpoint.entry(tensor).shape[1]
    here = scheme(session, settings, wanted, width or whole(settings, "dim", 0, 0, MOST_FEATURES) or DEFAULT_DIM)
    facts: dict[str, Any] = {
        "title": here.title,
        "doors": here.doors(),
        "notes": list(here.notes),
        "tensor": tensor,
        "dim": here.dim,
    }
    if here.where.input is None:
        return facts | {"missing": _without(facts["doors"])}
    tokens, places = _tokens(session, tensor, here.dim, seed), _places(here, min(wanted, here.max_length or wanted))
    _require_sum(tokens, places)
    own = _around(session, here.dim, normalize) if name == MODEL and loaded else dict.fromkeys(_AROUND)
    factor = token_factor(session) if loaded else 1.0
    given: dict[str, Any] = {key: own[key] for key in ("gain", "shift", "added")} | {"normalize": normalize}
    return facts | {
        "missing": None,
        "norm": own["norm"],
        "added": own["added"] is not None,
        "factor": factor,
        "scale": times,
        "tokens": min(512, len(tokens)),
        "rows": len(places),
        "python": _in_python(settings),
        **_split(tokens, places, factor * times, given, seed),
    }


def _in_python(settings: Mapping[str, Any]) -> str:
    return (
        "from whatwhere.studio.api.variance import shares\nfrom whatwhere.studio.session import Session\n"
        f"found = shares(Session.open(PATH), {dict(sorted(settings.items()))!r})\n"
        'found["token"], found["position"], found["interaction"]'
    )


def _require_sum(tokens: np.ndarray, places: np.ndarray) -> None:
    if tokens.shape[1] != places.shape[1]:
        raise SettingError(
            f"tokens have {tokens.shape[1]} features and positions {places.shape[1]}: a projection is between them, "
            "and they are never added as they are."
        )
    if not np.isfinite(places).all(axis=1).any() or not np.isfinite(tokens).all(axis=1).any():
        raise SettingError("no row holds finite numbers, so there is nothing to split.")


def _split(tokens: np.ndarray, places: np.ndarray, scale: float, given: dict[str, Any], seed: int) -> dict[str, Any]:
    def parts(rows: np.ndarray, at: np.ndarray, factor: float, **more: Any) -> list[float]:
        found = variance_split(rows, at, scale=factor, seed=seed, **given | more)
        return [found.token, found.position, found.interaction]

    all_of_it = variance_split(tokens, places, scale=scale, seed=seed, **given)
    few, spread = _some(tokens, seed), _some(places, seed)
    edges = [edge for edge in WINDOWS if edge < len(places)]
    windows = [(first, min(last, len(places))) for first, last in zip(edges, [*edges[1:], len(places)], strict=True)]
    windows = [(first, last) for first, last in windows if last - first > 1]
    if len(places) > 2:
        windows.append((1, len(places)))
    return {
        "token": all_of_it.token,
        "position": all_of_it.position,
        "interaction": all_of_it.interaction,
        "angle": all_of_it.mean_abs_cosine,
        "windows": np.array(windows),
        "by_window": np.array([parts(few, _some(places[a:b], seed), scale) for a, b in windows]),
        "scales": np.array(SCALES),
        "by_scale": np.array([parts(few, spread, scale * more) for more in SCALES]),
        "lengths": {"token": scale * _length(tokens), "position": _length(places)},
    }


def _tokens(session: Session, tensor: str | None, dim: int, seed: int) -> np.ndarray:
    if tensor is None:
        from whatwhere.analysis.walkthrough import random_embedding

        return np.asarray(random_embedding(DRAWN, dim, seed).weight.detach().numpy())
    if session.tables and tensor == session.checkpoint.token_table:
        return session.table().weight
    return session.once(("array", tensor), lambda: np.asarray(session.checkpoint.array(tensor), np.float32))


def _places(here: Any, rows: int) -> np.ndarray:
    from whatwhere.position import positions

    return np.asarray(here.where.input(positions(rows))[0].detach().float().numpy())


def _around(session: Session, dim: int, normalize: bool) -> dict[str, Any]:
    """Find what stands around the sum in the model: the first norm, and the row of the first kind of sentence."""
    found = dict(zip(_AROUND, first_norm(session.subject, dim) if normalize else (None,) * 3, strict=False))
    kinds = session.checkpoint.segment_table
    fits = kinds is not None and session.checkpoint.entry(kinds).shape[1:] == (dim,)
    return {**found, "added": session.checkpoint.array(str(kinds), rows=[0])[0] if fits else None}


def _without(found: Sequence[DoorScheme]) -> str:
    names = " and ".join(door.name for door in found)
    told = f"where it stands is told in the attention, by {names}" if names else "nothing tells where it stands"
    return f"no position is added to the token vectors: the first layer sees nothing but what a token is; {told}."


def _some(rows: np.ndarray, seed: int) -> np.ndarray:
    sound = np.flatnonzero(np.isfinite(rows).all(axis=1))
    if len(sound) > FEW:
        sound = np.sort(np.random.default_rng(seed).choice(sound, FEW, replace=False))
    return rows[sound]


def _length(rows: np.ndarray) -> float:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    return float(np.median(lengths[np.isfinite(lengths)]))
