"""Biases by distance: as a matrix, as curves, and the effective range of each head; the open model's own first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from whatwhere.analysis.biases import EffectiveRange, effective_range
from whatwhere.errors import SettingError
from whatwhere.report.section import Section, Table
from whatwhere.studio.api.settings import (
    MOST_HEADS,
    Control,
    ExportedView,
    Parameter,
    Value,
    flag,
    known,
    one_of,
    parse,
    text,
    whole,
    with_defaults,
)
from whatwhere.studio.schemes import ModelBias, catalogue_python, model_biases
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.where.score_bias import ScoreBias

EXAMINED = 4096
MAX_TOKENS = 256
_POINTS = 160
SHARES = ("0.5", "0.1", "0.01", "0.001")

PARAMETERS: Mapping[str, tuple[Parameter, ...]] = {
    "alibi": (),
    "t5": (
        Parameter("num_buckets", 32, 4, 128, 2, 1024, steps=0.5, help="rows of the learned table"),
        Parameter("max_distance", 128, 16, 4096, 2, 1 << 20, base=2, steps=2, help="from here on one bucket"),
        Parameter("std", 0.5, 0.02, 2, 1e-6, 100, base=10, steps=10, help="standard deviation of the random table"),
    ),
    "kerple": (Parameter("kind", "log", choices=("log", "power"), help="the curve by distance"),),
    "fire": (
        Parameter("threshold", 512.0, 16, 4096, 1e-3, 1e6, base=2, steps=2, help="up to here distances alone count"),
        Parameter("c", 0.1, 0.01, 10, 1e-6, 1e3, base=10, steps=10, help="how soon large distances are compressed"),
        Parameter("width", 32, 4, 128, 1, 1024, base=2, steps=2, help="hidden features of the MLP"),
    ),
    "sandwich": (
        Parameter("sinusoid_dim", 128, 4, 512, 2, 4096, steps=0.5, help="features of the sinusoid"),
        Parameter("theta", 10_000.0, 100, 1e6, 1e-3, 1e12, base=10, steps=10, help="of its frequencies"),
    ),
}
"""Schemes of the catalogue whose bias depends on positions alone, with their parameters."""

_BEGIN: Mapping[str, Any] = {
    "scheme": "", "options": "", "heads": 8, "head": 0, "tokens": 64, "weights": False, "share": "0.01", "seed": 0,
}  # fmt: skip
_LEARNED = ("t5", "kerple", "fire")


@dataclass(frozen=True)
class BiasChoice:
    """A bias that can be shown.

    Args:
        name: for the settings.
        title: a short name to read.
        formula: of a scheme of the catalogue; "" for the model's own.
        url: its source; "" for the model's own.
    """

    name: str
    title: str
    formula: str = ""
    url: str = ""


@dataclass(frozen=True)
class UnavailableBias:
    """A bias of the open model that cannot be shown.

    Args:
        title: a short name to read.
        missing: why, a sentence without its full stop.
    """

    title: str
    missing: str


@dataclass(frozen=True, eq=False)
class BiasFindings:
    """One bias.

    Args:
        missing: why there is no bias of the open model; None where there is one.
        unavailable: biases of the open model that cannot be shown.
        choices: those that can, and the catalogue's.
        scheme: the name of the one that is shown.
        repr: the scheme as Python writes it.
        python: lines that build it as `scheme`; PATH is the path of what is open.
        tensor: name of the learned table of the open model, or None.
        random: whether its parameters are random.
        parameters: controls of its parameters.
        causal: whether the scheme is for causal attention only.
        heads: how many.
        head: that of the matrix.
        matrix: the bias of each query and key, or the weight; NaN for keys that the scheme excludes.
        examined: distances examined, from 0 on.
        distances: those of the curves.
        past: for earlier keys, by head.
        later: for later keys; None where they are as for earlier ones, or excluded.
        ranges: the effective range of each head.
        ranges_later: the same for later keys.
    """

    missing: str | None
    unavailable: Sequence[UnavailableBias]
    choices: Sequence[BiasChoice]
    scheme: str
    repr: str
    python: str
    tensor: str | None
    random: bool
    parameters: Sequence[Control]
    causal: bool
    heads: int
    head: int
    matrix: Float[np.ndarray, "queries keys"]
    examined: int
    distances: Int[np.ndarray, " distances"]
    past: Float[np.ndarray, "heads distances"]
    later: Float[np.ndarray, "heads distances"] | None
    ranges: EffectiveRange
    ranges_later: EffectiveRange | None


def shown(session: Session, settings: Mapping[str, Any]) -> BiasFindings:
    """Return one bias: the matrix of a head, the curves of all, and the effective range of each.

    Args:
        settings: scheme, "" for the model's own or ALiBi; options, such as "num_buckets=16"; heads (8); head (0);
            tokens of the matrix (64); weights in place of biases; share that ends a head's range ("0.01"); seed (0).
    """
    known(settings, "scheme", "options", "heads", "head", "tokens", "weights", "share", "seed")
    biases, missing = model_biases(session)
    own = {f"own-{n}": bias for n, bias in enumerate(biases) if bias.scheme is not None}
    names = (*own, *PARAMETERS)
    name = names[0] if settings.get("scheme", "") == "" else one_of(settings, "scheme", names)
    parameters = PARAMETERS.get(name, ())
    values = with_defaults(parameters, parse(text(settings, "options", ""), parameters))
    scheme, python = _own(own[name]) if name in own else _of_catalogue(settings, name, values)
    head = min(whole(settings, "head", 0, 0, 1023), scheme.num_heads - 1)
    weights, share = flag(settings, "weights"), float(one_of(settings, "share", SHARES, "0.01"))
    as_shown = _as_weights if weights else np.asarray
    distances = np.unique(np.concatenate([np.arange(17), np.geomspace(16, EXAMINED - 1, _POINTS).round()]))
    at = distances.astype(np.int64)
    past = _past(scheme)
    # T5 alone has other numbers for later keys.
    later = _later(scheme) if getattr(scheme, "bidirectional", False) else None
    return BiasFindings(
        missing=None if biases else missing,
        unavailable=[UnavailableBias(bias.title, bias.missing or "") for bias in biases if bias.scheme is None],
        choices=[BiasChoice(key, bias.title) for key, bias in own.items()] + _catalogue_choices(),
        scheme=name,
        repr=str(scheme),
        python=python,
        tensor=own[name].tensor if name in own else None,
        random=name in _LEARNED,
        parameters=[parameter.control(values[parameter.name]) for parameter in parameters],
        causal=scheme.causal_only,
        heads=scheme.num_heads,
        head=head,
        matrix=_matrix(scheme, whole(settings, "tokens", 64, 2, MAX_TOKENS), head, weights),
        examined=EXAMINED,
        distances=at,
        past=as_shown(past)[:, at].astype(np.float32),
        later=None if later is None else as_shown(later)[:, at].astype(np.float32),
        ranges=effective_range(past, share),
        ranges_later=None if later is None else effective_range(later, share),
    )


def exported(session: Session) -> ExportedView:
    """Return the first bias, as numbers and as weights, for an exported page."""
    bias = shown(session, _BEGIN)
    beyond = f"beyond {bias.examined:,}"
    ends = np.stack([bias.ranges.distance, bias.ranges.half], axis=1)
    rows = [(str(head), *(beyond if end < 0 else f"{end:,}" for end in row)) for head, row in enumerate(ends)]
    columns = ("head", "range, to 1 % of the largest weight", "to half of the largest weight")
    table = Table(f"Effective range of each head: {bias.repr}", columns, rows, numeric=(0, 1, 2))
    queries = [("biases.shown", _BEGIN), ("biases.shown", {**_BEGIN, "weights": True})]
    return ExportedView("Biases", queries, sections=[Section("biases", "Effective ranges", [table])])


def _own(bias: ModelBias) -> "tuple[ScoreBias, str]":
    assert bias.scheme is not None  # those without one are listed, but not shown
    return bias.scheme, bias.python


def _of_catalogue(settings: Mapping[str, Any], name: str, values: Mapping[str, Value]) -> "tuple[ScoreBias, str]":
    """Return a scheme of the catalogue with as many heads as the settings have, and the Python that builds it."""
    from whatwhere.where.catalogue import random_scheme

    heads, seed = whole(settings, "heads", 8, 1, MOST_HEADS), whole(settings, "seed", 0, 0, 1 << 31)
    where = random_scheme(name, heads, heads, EXAMINED, seed, **values)
    python = catalogue_python(name, heads, heads, EXAMINED, seed, learned=name in _LEARNED, options=values)
    assert where.score is not None
    return where.score, f"{python}\nscheme = where.score"


def _catalogue_choices() -> list[BiasChoice]:
    from whatwhere.where.catalogue import catalogue

    return [BiasChoice(name, name, catalogue[name].formula, catalogue[name].url) for name in PARAMETERS]


def _matrix(scheme: "ScoreBias", tokens: int, head: int, weights: bool) -> Float[np.ndarray, "queries keys"]:
    """Return what one head adds for each query and key; NaN for later keys that the scheme excludes."""
    import torch

    from whatwhere.position.positions import positions

    with torch.no_grad():
        table = scheme(positions(tokens), causal=scheme.causal_only)[0, head].double().numpy()
    table = np.where(np.isfinite(table), table, np.nan)
    return (np.exp(table - np.nanmax(table)) if weights else table).astype(np.float32)


def _as_weights(bias: Float[np.ndarray, "heads distances"]) -> Float[np.ndarray, "heads distances"]:
    """Return exp(bias - greatest bias of the head): attention weights where all scores without the bias are equal."""
    finite = np.where(np.isfinite(bias), bias, -np.inf)
    return np.asarray(np.exp(bias - finite.max(axis=-1, keepdims=True)))


def _past(scheme: "ScoreBias") -> Float[np.ndarray, "heads distances"]:
    from whatwhere.analysis.position_similarity import by_distance
    from whatwhere.where.binding import Where

    curves = by_distance(Where(score=scheme), EXAMINED)
    if curves is None:
        raise SettingError(
            f"the bias of {type(scheme).__name__} depends on queries and keys: the view Pipeline shows it for a text."
        )
    return np.stack([curve.double().numpy() for curve in curves.curves.values()])


def _later(scheme: "ScoreBias") -> Float[np.ndarray, "heads distances"]:
    import torch

    from whatwhere.position.positions import positions

    with torch.no_grad():
        table = scheme(positions(1), positions(EXAMINED))
    return np.asarray(table[0, :, 0].double().numpy())
