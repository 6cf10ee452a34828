"""The rotary lab: two configurations, the rotations of their pairs, and their agreement by distance."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from whatwhere.analysis.rotary import RotarySpectrum, rotary_agreement, rotary_spectrum
from whatwhere.errors import WhatWhereError
from whatwhere.report.section import Section, Table
from whatwhere.report.text import number
from whatwhere.studio.api.settings import (
    Control,
    ExportedView,
    Parameter,
    Value,
    known,
    parse,
    text,
    whole,
    with_defaults,
)
from whatwhere.studio.schemes import ModelRotary, layer_names, model_rotaries
from whatwhere.studio.session import Session

if TYPE_CHECKING:
    from whatwhere.where.query_key.rotary import Rotary

MAX_LENGTH = 10_000_000
_POINTS = 240

SCALINGS = ("none", "linear", "ntk", "dynamic-ntk", "yarn", "longrope", "llama3", "proportional")
"""As the catalogue names them, less "rotary-"."""

_COMMON = (
    Parameter("head_dim", 64, 8, 512, 2, 4096, steps=0.5, help="features of a head"),
    Parameter("rotary_dim", 0, 2, 512, 0, 4096, steps=0.5, help="features that are rotated"),
    Parameter(
        "theta", 10_000.0, 100, 1e8, 1e-3, 1e15, base=10, steps=10, help="the slowest pair needs about 2 pi theta"
    ),
    Parameter("original_length", 4096, 32, 1 << 20, 1, MAX_LENGTH, base=2, steps=2, help="the trained length"),
)
_OWN = (
    Parameter("factor", 4.0, 1, 64, 1e-6, 1e6, base=2, steps=4, help="by which the length is extended"),
    Parameter("beta_fast", 32.0, 1, 256, 1e-6, 1e6, base=2, steps=2, help="pairs with more rotations are kept"),
    Parameter(
        "beta_slow", 1.0, 1 / 16, 32, 1e-6, 1e6, base=2, steps=2, help="pairs with fewer rotations are interpolated"
    ),
    Parameter(
        "low_frequency_factor",
        1.0,
        1 / 16,
        16,
        1e-6,
        1e6,
        base=2,
        steps=2,
        help="rotations below which a pair is interpolated",
    ),
    Parameter(
        "high_frequency_factor", 4.0, 1 / 8, 64, 1e-6, 1e6, base=2, steps=2, help="rotations from which a pair is kept"
    ),
    Parameter("share", 0.5, 0.02, 1, 1e-6, 1, steps=50, help="of the pairs that are rotated"),
    Parameter("attention_factor", 0.0, 0, 2, 0, 1e6, steps=20, help="magnitude; 0 takes the formula", rare=True),
    Parameter("mscale", 0.0, 0, 2, 0, 1e6, steps=20, help="DeepSeek's magnitude, with the next; 0 is none", rare=True),
    Parameter("mscale_all_dim", 0.0, 0, 2, 0, 1e6, steps=20, help="0 is none", rare=True),
    Parameter("truncate", True, help="ramp between whole pairs", rare=True),
    Parameter("doubling", False, help="the length is rounded up to a power of 2 of the trained one, as in Qwen"),
)
_OPTIONAL = ("attention_factor", "mscale", "mscale_all_dim")


@dataclass(frozen=True)
class RotaryPreset:
    """A rotary that a configuration can begin with.

    Args:
        name: in settings, as in "from=plain".
        title: a short name to read.
    """

    name: str
    title: str


@dataclass(frozen=True)
class ScalingEntry:
    """A RoPE scaling of the catalogue."""

    name: str
    formula: str
    paper: str
    url: str
    used_by: Sequence[str]


@dataclass(frozen=True, eq=False)
class PairRotations:
    """The pairs of one configuration, in their order.

    Args:
        python: an expression that builds the rotary.
        follows_length: whether the frequencies depend on the length; they are those of the claimed one.
        magnitude: factor of queries and keys.
        trained: the trained length.
        pairs: how many.
        frequencies: radians per position.
        unscaled_frequencies: the same without the scaling.
        spectrum: wavelengths and rotations.
        partial_count: pairs without a full rotation in the trained length.
        partial_claimed_count: the same in the claimed length.
        unseen_count: pairs that reach new angles.
        constant_count: pairs that never rotate.
    """

    python: str
    follows_length: bool
    magnitude: float
    trained: int
    pairs: int
    frequencies: Float[np.ndarray, " pairs"]
    unscaled_frequencies: Float[np.ndarray, " pairs"]
    spectrum: RotarySpectrum
    partial_count: int
    partial_claimed_count: int
    unseen_count: int
    constant_count: int


@dataclass(frozen=True, eq=False)
class RotaryConfiguration:
    """One of the two configurations.

    Args:
        preset: the name of what it begins with.
        title: of that.
        lengths: how its lengths are known; "" for a plain rotary.
        scaling: the name of its scaling, or "none".
        parameters: their controls.
        own_lists: whether the factors of each pair are the model's own.
        problem: why it cannot be built, or None.
        rotations: of its pairs; None where it cannot be built.
    """

    preset: str
    title: str
    lengths: str
    scaling: str
    parameters: Sequence[Control]
    own_lists: bool
    problem: str | None
    rotations: PairRotations | None


@dataclass(frozen=True, eq=False)
class RotaryAgreement:
    """Cosines by distance between vectors that are rotated by one rotary and by another.

    Args:
        between: of the two configurations; None where their pairs differ in number.
        a, b: of each with itself unscaled; None where it cannot be built.
    """

    between: Float[np.ndarray, " distances"] | None
    a: Float[np.ndarray, " distances"] | None
    b: Float[np.ndarray, " distances"] | None


@dataclass(frozen=True, eq=False)
class RotaryLab:
    """Two configurations of rotary.

    Args:
        missing: why the open model has none; None where it has one.
        presets: what a configuration can begin with.
        scalings: of the catalogue.
        claimed: the length of the text.
        sides: the two configurations.
        distances: those of the cosines.
        cosines: how far they agree.
    """

    missing: str | None
    presets: Sequence[RotaryPreset]
    scalings: Sequence[ScalingEntry]
    claimed: int
    sides: tuple[RotaryConfiguration, RotaryConfiguration]
    distances: Int[np.ndarray, " distances"]
    cosines: RotaryAgreement


@dataclass(frozen=True)
class _Preset:
    """The values that a configuration begins with."""

    name: str
    title: str
    values: Mapping[str, Value] = field(default_factory=dict)
    claimed: int = 16_384
    lengths: str = ""
    lists: tuple[tuple[float, ...], tuple[float, ...]] | None = None


_PLAIN = _Preset("plain", "a plain rotary")


def lab(session: Session, settings: Mapping[str, Any]) -> RotaryLab:
    """Compare two configurations of rotary; parameters that are not set are those of the open model, or plain.

    Args:
        settings: a and b, texts such as "from=plain scaling=yarn factor=4"; claimed, the length of the text, 0 for
            what the model claims.
    """
    known(settings, "a", "b", "claimed")
    rotaries, missing = model_rotaries(session)
    presets = [_preset(n, rotary) for n, rotary in enumerate(rotaries)] + [_PLAIN]
    by_name = {preset.name: preset for preset in presets}
    choice = Parameter("from", presets[0].name, choices=tuple(by_name))
    first, second = (
        _values(text(settings, side, ""), default, choice) for side, default in zip("ab", _begin(presets), strict=True)
    )
    chosen = by_name[str(first["from"])], by_name[str(second["from"])]
    claimed = whole(settings, "claimed", 0, 0, MAX_LENGTH) or max(preset.claimed for preset in chosen)
    a, b = _configuration(chosen[0], first, claimed), _configuration(chosen[1], second, claimed)
    distances = np.unique(np.geomspace(1, max(claimed - 1, 1), _POINTS).round()).astype(np.int64)
    return RotaryLab(
        missing=missing,
        presets=[RotaryPreset(preset.name, preset.title) for preset in presets],
        scalings=_scalings(),
        claimed=claimed,
        sides=(a, b),
        distances=distances,
        cosines=_agreement(a.rotations, b.rotations, distances),
    )


def exported(session: Session) -> ExportedView:
    """Return the two configurations that the view begins with, for an exported page."""
    begin = {"a": "", "b": "", "claimed": 0}
    columns = (
        "pair", "wavelength in positions", "slowdown", "rotations in the trained length", "rotations in the text",
    )  # fmt: skip
    tables = []
    for name, side in zip("AB", lab(session, begin).sides, strict=True):
        if (pairs := side.rotations) is not None:
            of = pairs.spectrum
            numbers = zip(of.wavelengths, of.slowdown, of.rotations_trained, of.rotations_claimed, strict=True)
            rows = [(str(pair), *(number(float(value)) for value in row)) for pair, row in enumerate(numbers)]
            tables.append(Table(f"{name}: {pairs.python}", columns, rows, numeric=range(5), shorten="evenly"))
    return ExportedView("Rotary lab", [("rotary.lab", begin)], sections=[Section("rotary", "Pairs", tables)])


def _begin(presets: Sequence[_Preset]) -> tuple[str, str]:
    """Return the two configurations to begin with: two groups of layers, or with and without a scaling."""
    first = presets[0]
    if len(presets) > 2:
        return f"from={first.name}", f"from={presets[1].name}"
    other = "yarn" if first.values.get("scaling", "none") == "none" else "none"
    return f"from={first.name}", f"from={first.name} scaling={other}"


def _preset(number: int, rotary: ModelRotary) -> _Preset:
    scheme, scaling, group = rotary.scheme, rotary.scheme.scaling, rotary.group
    values: dict[str, Value] = {"head_dim": scheme.head_dim, "theta": float(scheme.theta)}
    if scheme.rotary_dim != scheme.head_dim:
        values["rotary_dim"] = scheme.rotary_dim
    values["original_length"] = group.trained
    lists = None
    if scaling is not None:
        values["scaling"] = next((name for name, kind in _kinds().items() if type(scaling) is kind), "none")
        of_scaling = asdict(scaling)
        if "short_factor" in of_scaling:
            lists = (of_scaling.pop("short_factor"), of_scaling.pop("long_factor"))
        values |= {name: _typed(name, value) for name, value in of_scaling.items() if value is not None}
    title = f"this model, {layer_names(list(group.layers))}"
    return _Preset(str(number), title, values, group.claimed, group.lengths, lists)


def _typed(name: str, value: Any) -> Value:
    default = next(parameter.default for parameter in (*_COMMON, *_OWN) if parameter.name == name)
    return type(default)(value)


def _values(settings: str, default: str, choice: Parameter) -> dict[str, Value]:
    """Return the values that a configuration sets, beside the default ones unless it names what it begins with."""
    parameters = (choice, Parameter("scaling", "none", choices=SCALINGS), *_COMMON, *_OWN)
    values = parse(settings, parameters)
    return values if "from" in values else parse(default, parameters) | values


def _configuration(preset: _Preset, set_values: Mapping[str, Value], claimed: int) -> RotaryConfiguration:
    values = with_defaults((*_COMMON, *_OWN), {"scaling": "none"}, preset.values, set_values)
    values["rotary_dim"] = values["rotary_dim"] or values["head_dim"]
    kind = str(values["scaling"])
    names = {"original_length"} | {each.name for each in fields(_kinds()[kind])} if kind != "none" else set()
    parameters = [*_COMMON, *(parameter for parameter in _OWN if parameter.name in names)]
    ends = {"rotary_dim": float(values["head_dim"])}
    problem: str | None = None
    rotations: PairRotations | None = None
    try:
        rotary = _built(values, [parameter.name for parameter in parameters], preset.lists)
        rotations = _rotations(rotary, int(values["original_length"]), claimed)
    except WhatWhereError as error:
        problem = str(error)
    return RotaryConfiguration(
        preset=preset.name,
        title=preset.title,
        lengths=preset.lengths,
        scaling=kind,
        parameters=[each.control(values[each.name], ends.get(each.name)) for each in parameters],
        own_lists=kind == "longrope" and preset.lists is not None,
        problem=problem,
        rotations=rotations,
    )


def _built(values: Mapping[str, Value], names: list[str], lists: Any) -> "Rotary":
    """Build a rotary by the catalogue, which knows the stand-in for factors that only a search finds."""
    from whatwhere.where.catalogue import scheme
    from whatwhere.where.query_key.rotary import Rotary

    kind, trained = str(values["scaling"]), values["original_length"]
    options: dict[str, Any] = {name: values[name] for name in ("theta", "rotary_dim")}
    if kind != "none":
        own_fields = {each.name for each in fields(_kinds()[kind])}
        options |= {name: values[name] for name in names if name in own_fields}
        options |= {name: options[name] or None for name in _OPTIONAL if name in options}
        if kind == "longrope" and lists is not None:
            options |= {"short_factor": lists[0], "long_factor": lists[1]}
    row = "rotary" if kind == "none" else f"rotary-{kind}"
    built = scheme(row, dim=values["head_dim"], num_heads=1, max_length=trained, **options).query_key  # type: ignore[arg-type]
    assert isinstance(built, Rotary)
    return built


def _rotations(rotary: "Rotary", trained: int, claimed: int) -> PairRotations:
    from torch import tensor

    from whatwhere.where.frequencies import inverse_frequencies

    frequencies = rotary.frequencies(tensor(claimed) if rotary.follows_length else None).numpy()
    unscaled = inverse_frequencies(rotary.rotary_dim, rotary.theta).numpy()
    spectrum = rotary_spectrum(frequencies, unscaled, trained, claimed)
    return PairRotations(
        python=_python(rotary),
        follows_length=rotary.follows_length,
        magnitude=rotary.magnitude,
        trained=trained,
        pairs=len(frequencies),
        frequencies=frequencies,
        unscaled_frequencies=unscaled,
        spectrum=spectrum,
        partial_count=int(spectrum.partial.sum()),
        partial_claimed_count=int((spectrum.rotations_claimed < 1).sum()),
        unseen_count=int(spectrum.unseen.sum()),
        constant_count=int(spectrum.constant.sum()),
    )


def _python(rotary: "Rotary") -> str:
    """Return an expression that builds a rotary, in public names.

    Examples:
        >>> from whatwhere import Rotary, scaling
        >>> _python(Rotary(4, scaling=scaling.Linear(2.0)))
        'ww.Rotary(head_dim=4, theta=10000.0, interleaved=False, rotary_dim=4, scaling=ww.scaling.Linear(factor=2.0))'
    """
    return "ww." + re.sub(r"scaling=(?=\w+\()", "scaling=ww.scaling.", str(rotary))


def _agreement(
    a: PairRotations | None, b: PairRotations | None, distances: Int[np.ndarray, " distances"]
) -> RotaryAgreement:
    """Return how far two rotaries agree, and how far each agrees with itself unscaled."""
    own = [
        None if side is None else rotary_agreement(side.frequencies, side.unscaled_frequencies, distances)
        for side in (a, b)
    ]
    between = None
    if a is not None and b is not None and a.pairs == b.pairs:
        between = rotary_agreement(a.frequencies, b.frequencies, distances)
    return RotaryAgreement(between, *own)


def _scalings() -> list[ScalingEntry]:
    from whatwhere.where.catalogue import catalogue

    entries = {name: catalogue["rotary" if name == "none" else f"rotary-{name}"] for name in SCALINGS}
    return [ScalingEntry(name, entry.formula, entry.paper, entry.url, entry.used_by) for name, entry in entries.items()]


def _kinds() -> dict[str, Any]:
    """Return the class of each scaling, by its name in the catalogue."""
    from whatwhere.where import scaling

    kinds = (
        scaling.Linear, scaling.NTK, scaling.DynamicNTK, scaling.YaRN, scaling.LongRoPE, scaling.Llama3,
        scaling.Proportional,
    )  # fmt: skip
    return dict(zip(SCALINGS[1:], kinds, strict=True))
