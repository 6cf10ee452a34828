"""The rotary lab: two configurations, the rotations of their pairs, and their agreement by distance."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float, Int

from whatwhere.analysis.rotary import RotarySpectrum, rotary_agreement, rotary_spectrum
from whatwhere.errors import WhatWhereError
from whatwhere.models.load_where import run_length
from whatwhere.report.section import Section
from whatwhere.studio.api.settings import ExportedView, Parameter, Value, columns, parse, query, with_values
from whatwhere.studio.schemes import first_names, is_built, layer_names, model_rotaries, scheme_of
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.where.catalogue.entry import SchemeDescription
    from whatwhere.where.query_key.rotary import Rotary

MAX_LENGTH = 10_000_000
_POINTS = 240
_EXPORTED: Mapping[str, Any] = {"a": "", "b": "", "claimed": 0}

SCALINGS = ("none", "linear", "ntk", "dynamic-ntk", "yarn", "longrope", "llama3", "proportional")
"""As the catalogue names them, less "rotary-"."""


def _ratio(name: str, value: float, low: float | int, high: int, help: str) -> Parameter:
    return Parameter(name, "number", value, low, high, 1e-6, 1e6, base=2, steps=4 if name == "factor" else 2, help=help)


def _magnitude(name: str, help: str) -> Parameter:
    return Parameter(name, "number", 0.0, 0, 2, 0, 1e6, steps=20, help=help, rare=True)


_COMMON = (
    Parameter("head_dim", "whole", 64, 8, 512, 2, 4096, steps=0.5, help="features of a head"),
    Parameter("rotary_dim", "whole", 0, 2, 512, 0, 4096, steps=0.5, help="features that are rotated"),
    Parameter("theta", "number", 1e4, 100, 1e8, 1e-3, 1e15, 10, 10, help="the slowest pair needs about 2 pi theta"),
    Parameter("original_length", "whole", 4096, 32, 1 << 20, 1, MAX_LENGTH, 2, 2, help="the trained length"),
)
_OWN = (
    _ratio("factor", 4.0, 1, 64, "by which the length is extended"),
    _ratio("beta_fast", 32.0, 1, 256, "pairs with more rotations are kept"),
    _ratio("beta_slow", 1.0, 1 / 16, 32, "pairs with fewer rotations are interpolated"),
    _ratio("low_frequency_factor", 1.0, 1 / 16, 16, "rotations below which a pair is interpolated"),
    _ratio("high_frequency_factor", 4.0, 1 / 8, 64, "rotations from which a pair is kept"),
    Parameter("share", "number", 0.5, 0.02, 1, 1e-6, 1, steps=50, help="of the pairs that are rotated"),
    _magnitude("attention_factor", "magnitude; 0 takes the formula"),
    _magnitude("mscale", "DeepSeek's magnitude, with the next; 0 is none"),
    _magnitude("mscale_all_dim", "0 is none"),
    Parameter("truncate", "flag", True, help="ramp between whole pairs", rare=True),
    Parameter(
        "doubling", "flag", False, help="the length is rounded up to a power of 2 of the trained one, as in Qwen"
    ),
)
_OPTIONAL = ("attention_factor", "mscale", "mscale_all_dim")


@dataclass(frozen=True)
class RotaryPreset:
    """The values that a configuration can begin with, as in "from=plain"."""

    name: str
    title: str
    values: Mapping[str, Value] = field(default_factory=dict)
    claimed: int = 16_384
    lengths: str = ""  # how its lengths are known; "" for a plain rotary
    lists: tuple[Sequence[float], Sequence[float]] | None = None  # factors of pairs for short and long texts


@dataclass(frozen=True, eq=False)
class PairRotations:
    """The pairs of one configuration, in their order."""

    python: str
    follows_length: bool  # the frequencies are those of the claimed length
    magnitude: float  # factor of queries and keys
    trained: int
    frequencies: Float[np.ndarray, " pairs"]
    spectrum: RotarySpectrum
    agreement: Float[np.ndarray, " distances"]  # cosines between vectors that are rotated with the scaling and without


@dataclass(frozen=True, eq=False)
class RotaryConfiguration:
    """One of the two configurations, or the problem for which it cannot be built; its scaling may be "none"."""

    preset: RotaryPreset
    scaling: str
    parameters: Sequence[Parameter]
    problem: str | None
    rotations: PairRotations | None


@dataclass(frozen=True, eq=False)
class RotaryLab:
    """Two configurations of rotary."""

    missing: str | None  # why what is open has none
    presets: Sequence[RotaryPreset]
    scalings: "Mapping[str, SchemeDescription]"
    claimed: int
    sides: tuple[RotaryConfiguration, RotaryConfiguration]
    distances: Int[np.ndarray, " distances"]
    agreement: Float[np.ndarray, " distances"] | None  # of both; None where their pairs differ in number


_PLAIN = RotaryPreset("plain", "a plain rotary")


@query("rotary.lab")
def lab(session: Session, *, a: str = "", b: str = "", claimed: Annotated[int, 0, MAX_LENGTH] = 0) -> RotaryLab:
    """Compare two configurations of rotary, as "from=plain scaling=yarn factor=4"; others are those of the open model.

    The length `claimed` of a text is 0 for what the model claims, or four times as much where it was trained with it.
    """
    from whatwhere.where.catalogue import catalogue, describe

    presets, missing = _presets(session)
    by_name = {preset.name: preset for preset in presets}
    choice = Parameter("from", "choice", presets[0].name, choices=tuple(by_name))
    first, second = (_values(text, begin, choice) for text, begin in zip((a, b), _begin(presets), strict=True))
    chosen = by_name[str(first["from"])], by_name[str(second["from"])]
    known = all(preset.claimed == preset.values.get("original_length") for preset in chosen)
    claimed = claimed or min(max(preset.claimed for preset in chosen) * (4 if known else 1), MAX_LENGTH)
    distances = np.unique(np.geomspace(1, max(claimed - 1, 1), _POINTS).round()).astype(np.int64)
    sides = _configuration(chosen[0], first, claimed, distances), _configuration(chosen[1], second, claimed, distances)
    of = [side.rotations.frequencies for side in sides if side.rotations is not None]
    rows = {name: catalogue["rotary" if name == "none" else f"rotary-{name}"] for name in SCALINGS}
    return RotaryLab(
        missing=missing,
        presets=presets,
        scalings={name: describe(row) for name, row in rows.items()},
        claimed=claimed,
        sides=sides,
        distances=distances,
        agreement=rotary_agreement(of[0], of[1], distances) if len(of) == 2 and len(of[0]) == len(of[1]) else None,
    )


def exported(session: Session) -> ExportedView:
    """Return the two configurations that the view begins with, for an exported page."""
    tables = []
    for name, side in zip("AB", lab(session, _EXPORTED).sides, strict=True):
        if (pairs := side.rotations) is not None:
            of = pairs.spectrum
            values = {
                "pair": range(len(pairs.frequencies)),
                "wavelength in positions": of.wavelengths,
                "slowdown": of.slowdown,
                "rotations in the trained length": of.rotations_trained,
                "rotations in the text": of.rotations_claimed,
            }
            tables.append(columns(f"{name}: {pairs.python}", values, shorten="evenly"))
    return ExportedView([("rotary.lab", _EXPORTED)], sections=[Section("rotary", "Pairs", tables)])


def _begin(presets: Sequence[RotaryPreset]) -> tuple[str, str]:
    """Return the two configurations to begin with: two groups of layers, or with and without a scaling."""
    first = presets[0]
    if len(presets) > 2:
        return f"from={first.name}", f"from={presets[1].name}"
    other = "yarn" if first.values.get("scaling", "none") == "none" else "none"
    return f"from={first.name}", f"from={first.name} scaling={other}"


def _presets(session: Session) -> tuple[list[RotaryPreset], str | None]:
    """Return the rotaries of what is open and a plain one, and why there is no other."""
    if session.kind != "results":
        rotaries, missing = model_rotaries(session)
        found = [
            (scheme, f"this model, {layer_names(group.layers)}", group.trained, group.claimed, group.lengths)
            for scheme, group in rotaries
        ]
    else:
        found, missing = _of_runs(session), "no run rotates queries and keys by fixed frequencies"
    own = [_preset(n, *rotary) for n, rotary in enumerate(found)]
    return [*own, _PLAIN], None if own else missing


def _of_runs(session: Session) -> list[tuple[Any, str, int, int, str]]:
    from whatwhere.comparison.answers import task_of
    from whatwhere.where.query_key.rotary import Rotary

    found: list[tuple[Any, str, int, int, str]] = []
    for run in first_names(session):
        shown = scheme_of(session, run) if is_built(session, run) else None
        if shown is None or type(shown.where.query_key) is not Rotary:
            continue
        trained = run_length(session.checkpoint, run)
        try:
            tested = task_of(session.results).token_count(max(session.results.tested))
        except WhatWhereError:  # a task of the user's own
            tested = trained
        lengths = f"trained with up to {trained} tokens, tested with up to {tested}"
        found.append((shown.where.query_key, f"the run {shown.title}", trained, max(trained, tested), lengths))
    return found


def _preset(number: int, scheme: Any, title: str, trained: int, claimed: int, lengths: str) -> RotaryPreset:
    scaling = scheme.scaling
    values: dict[str, Value] = {"head_dim": scheme.head_dim, "theta": float(scheme.theta)}
    if scheme.rotary_dim != scheme.head_dim:
        values["rotary_dim"] = scheme.rotary_dim
    values["original_length"] = trained
    lists = None
    if scaling is not None:
        values["scaling"] = next((name for name, kind in _kinds().items() if type(scaling) is kind), "none")
        of_scaling = asdict(scaling)
        if "short_factor" in of_scaling:
            lists = (of_scaling.pop("short_factor"), of_scaling.pop("long_factor"))
        types = {parameter.name: type(parameter.value) for parameter in (*_COMMON, *_OWN)}
        values |= {name: types[name](value) for name, value in of_scaling.items() if value is not None}
    return RotaryPreset(str(number), title, values, claimed, lengths, lists)


def _values(settings: str, default: str, choice: Parameter) -> dict[str, Value]:
    """Return the values that a configuration sets, beside the default ones unless it names what it begins with."""
    parameters = (choice, Parameter("scaling", "choice", "none", choices=SCALINGS), *_COMMON, *_OWN)
    values = parse(settings, parameters)
    return values if "from" in values else parse(default, parameters) | values


def _configuration(
    preset: RotaryPreset, changed: Mapping[str, Value], claimed: int, distances: Int[np.ndarray, " distances"]
) -> RotaryConfiguration:
    values = {**preset.values, **changed}
    kind = str(values.get("scaling", "none"))
    own = {each.name for each in fields(_kinds()[kind])} if kind != "none" else set()
    parameters = with_values([*_COMMON, *(each for each in _OWN if each.name in own)], values)
    head_dim = parameters[0].value
    parameters[1] = replace(parameters[1], value=parameters[1].value or head_dim, high=int(head_dim))
    problem: str | None = None
    rotations: PairRotations | None = None
    try:
        rotary, trained = _built(kind, {each.name: each.value for each in parameters}, own, preset.lists)
        rotations = _rotations(rotary, trained, claimed, distances)
    except WhatWhereError as error:
        problem = str(error)
    return RotaryConfiguration(preset, kind, parameters, problem, rotations)


def _built(kind: str, values: dict[str, Any], own: set[str], lists: Any) -> tuple["Rotary", int]:
    """Build a rotary by the catalogue, which knows the stand-in for factors that only a search finds."""
    from whatwhere.where.catalogue import scheme

    head_dim, trained = values.pop("head_dim"), values["original_length"]
    if "original_length" not in own:
        del values["original_length"]
    values |= {name: values[name] or None for name in _OPTIONAL if name in values}
    if kind == "longrope" and lists is not None:
        values |= {"short_factor": lists[0], "long_factor": lists[1]}
    row = "rotary" if kind == "none" else f"rotary-{kind}"
    built: Any = scheme(row, dim=head_dim, num_heads=1, max_length=trained, **values).query_key
    return built, trained


def _rotations(rotary: "Rotary", trained: int, claimed: int, distances: Int[np.ndarray, " distances"]) -> PairRotations:
    from torch import tensor

    from whatwhere.where.frequencies import inverse_frequencies

    frequencies = rotary.frequencies(tensor(claimed) if rotary.follows_length else None).numpy()
    unscaled = inverse_frequencies(rotary.rotary_dim, rotary.theta).numpy()
    return PairRotations(
        python="ww." + re.sub(r"scaling=(?=\w+\()", "scaling=ww.scaling.", str(rotary)),
        follows_length=rotary.follows_length,
        magnitude=rotary.magnitude,
        trained=trained,
        frequencies=frequencies,
        spectrum=rotary_spectrum(frequencies, unscaled, trained, claimed),
        agreement=rotary_agreement(frequencies, unscaled, distances),
    )


def _kinds() -> dict[str, Any]:
    """Return the class of each scaling, by its name in the catalogue."""
    from whatwhere.where import scaling

    kinds = (
        scaling.Linear, scaling.NTK, scaling.DynamicNTK, scaling.YaRN, scaling.LongRoPE, scaling.Llama3,
        scaling.Proportional,
    )  # fmt: skip
    return dict(zip(SCALINGS[1:], kinds, strict=True))
