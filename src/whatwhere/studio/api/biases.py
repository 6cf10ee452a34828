"""Biases by distance: as a matrix, as curves, and the effective range of each head; the open model's own first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from whatwhere.analysis.biases import EffectiveRange, effective_range
from whatwhere.errors import SettingError
from whatwhere.report.section import Section
from whatwhere.studio.api.pipeline import is_causal
from whatwhere.studio.api.settings import ExportedView, Parameter, Seed, columns, parse, query, with_values
from whatwhere.studio.schemes import catalogue_python, model_biases
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.where.score_bias import ScoreBias

EXAMINED = 4096
_POINTS = 160
Share = Literal["0.5", "0.1", "0.01", "0.001"]

PARAMETERS: Mapping[str, tuple[Parameter, ...]] = {
    "alibi": (),
    "t5": (
        Parameter("num_buckets", "whole", 32, 4, 128, 2, 1024, steps=0.5, help="rows of the learned table"),
        Parameter("max_distance", "whole", 128, 16, 4096, 2, 1 << 20, base=2, steps=2, help="from here on one bucket"),
        Parameter("std", "number", 0.5, 0.02, 2, 1e-6, 100, base=10, steps=10, help="of the random table"),
    ),
    "kerple": (Parameter("kind", "choice", "log", choices=("log", "power"), help="the curve by distance"),),
    "fire": (
        Parameter(
            "threshold", "number", 512.0, 16, 4096, 1e-3, 1e6, base=2, steps=2, help="up to here distances alone count"
        ),
        Parameter(
            "c", "number", 0.1, 0.01, 10, 1e-6, 1e3, base=10, steps=10, help="how soon large distances are compressed"
        ),
        Parameter("width", "whole", 32, 4, 128, 1, 1024, base=2, steps=2, help="hidden features of the MLP"),
    ),
    "sandwich": (
        Parameter("sinusoid_dim", "whole", 128, 4, 512, 2, 4096, steps=0.5, help="features of the sinusoid"),
        Parameter("theta", "number", 10_000.0, 100, 1e6, 1e-3, 1e12, base=10, steps=10, help="of its frequencies"),
    ),
}
"""Schemes of the catalogue whose bias depends on positions alone, with their parameters."""

_LEARNED = ("t5", "kerple", "fire")


@dataclass(frozen=True)
class BiasChoice:
    """A bias that can be shown: its name for the settings, and of a scheme of the catalogue formula and source."""

    name: str
    title: str
    formula: str = ""
    url: str = ""


@dataclass(frozen=True, eq=False)
class BiasFindings:
    """One bias, of the open model or of the catalogue."""

    missing: str | None  # why there is no bias of the open model
    unavailable: Mapping[str, str]  # biases of the open model that cannot be shown, by their titles, and why
    choices: Sequence[BiasChoice]
    scheme: str
    repr: str
    python: str  # lines that build it as `scheme`; PATH is the path of what is open
    tensor: str | None  # the learned table of the open model
    random: bool
    parameters: Sequence[Parameter]
    causal: bool
    heads: int
    head: int
    matrix: Float[np.ndarray, "queries keys"]  # bias or weight; NaN for keys that the scheme or its run excludes
    examined: int  # distances, from 0 on; of the curves `distances`
    distances: Int[np.ndarray, " distances"]
    past: Float[np.ndarray, "heads distances"]
    later: Float[np.ndarray, "heads distances"] | None  # for later keys; None where as for earlier ones, or excluded
    ranges: EffectiveRange
    ranges_later: EffectiveRange | None


@query("biases.shown")
def shown(
    session: Session,
    *,
    scheme: str = "",  # the model's own, or ALiBi
    options: str = "",  # such as "num_buckets=16"
    heads: Annotated[int, 1, 64] = 8,
    head: Annotated[int, 0, 1023] = 0,
    tokens: Annotated[int, 2, 256] = 64,
    weights: bool = False,  # in the matrix and the curves, in place of biases
    share: Share = "0.01",  # of the largest weight, at which a head's range ends
    seed: Seed = 0,
) -> BiasFindings:
    """Return one bias: the matrix of a head, the curves of all, and the effective range of each."""
    from whatwhere.where.catalogue import catalogue, random_scheme

    biases, missing = model_biases(session)
    own = {f"own-{n}": bias for n, bias in enumerate(biases) if bias.scheme is not None}
    choices = [BiasChoice(key, bias.title) for key, bias in own.items()]
    choices += [BiasChoice(name, name, catalogue[name].formula, catalogue[name].url) for name in PARAMETERS]
    name = scheme or choices[0].name
    if name not in {choice.name for choice in choices}:
        listed = ", ".join(choice.name for choice in choices)
        raise SettingError(f"scheme must be one of {listed}, but is {name[:40]!r}.")
    parameters = PARAMETERS.get(name, ())
    values = parse(options, parameters)
    built: Any
    if name in own:
        built, python = own[name].scheme, own[name].python
    else:
        built = random_scheme(name, heads, heads, EXAMINED, seed, **values).score
        python = catalogue_python(name, heads, heads, EXAMINED, seed, learned=name in _LEARNED, **values)
        python += "\nscheme = where.score"
    head = min(head, built.num_heads - 1)
    as_shown = _as_weights if weights else np.asarray
    at = np.unique([*range(17), *np.geomspace(16, EXAMINED - 1, _POINTS).round().astype(int).tolist()])
    causal = built.causal_only or (session.kind == "results" and name in own and is_causal(session))
    past = _past(built)
    # T5 alone has other numbers for later keys.
    later = _later(built) if getattr(built, "bidirectional", False) else None
    return BiasFindings(
        missing=None if biases else missing,
        unavailable={bias.title: bias.missing or "" for bias in biases if bias.scheme is None},
        choices=choices,
        scheme=name,
        repr=str(built),
        python=python,
        tensor=own[name].tensor if name in own else None,
        random=name in _LEARNED,
        parameters=with_values(parameters, values),
        causal=causal,
        heads=built.num_heads,
        head=head,
        matrix=_matrix(built, tokens, head, weights, causal),
        examined=EXAMINED,
        distances=at,
        past=as_shown(past)[:, at].astype(np.float32),
        later=None if later is None else as_shown(later)[:, at].astype(np.float32),
        ranges=effective_range(past, float(share)),
        ranges_later=None if later is None else effective_range(later, float(share)),
    )


def exported(session: Session) -> ExportedView:
    """Return the first bias, as numbers and as weights, for an exported page."""
    first = {name: each.default for name, each in signature(shown).parameters.items() if name != "session"}
    bias = shown(session, first)
    ends = {"1 % of the largest weight": bias.ranges.distance, "half of the largest weight": bias.ranges.half}
    texts = {
        f"range, to {end}": [f"beyond {bias.examined:,}" if each < 0 else f"{each:,}" for each in values]
        for end, values in ends.items()
    }
    table = columns(f"Effective range of each head: {bias.repr}", {"head": range(bias.heads), **texts})
    queries = [("biases.shown", first), ("biases.shown", {**first, "weights": True})]
    return ExportedView(queries, sections=[Section("biases", "Effective ranges", [table])])


def _matrix(scheme: "ScoreBias", tokens: int, head: int, weights: bool, causal: bool) -> Float[np.ndarray, "q k"]:
    """Return what one head adds for each query and key; NaN for later keys that are excluded."""
    import torch

    from whatwhere.position.positions import positions

    with torch.no_grad():
        table = scheme(positions(tokens), causal=causal)[0, head].double().numpy()
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
    assert curves is not None  # biases that depend on queries and keys are not among the choices
    return np.stack([curve.double().numpy() for curve in curves.curves.values()])


def _later(scheme: "ScoreBias") -> Float[np.ndarray, "heads distances"]:
    import torch

    from whatwhere.position.positions import positions

    with torch.no_grad():
        table = scheme(positions(1), positions(EXAMINED))
    return np.asarray(table[0, :, 0].double().numpy())
