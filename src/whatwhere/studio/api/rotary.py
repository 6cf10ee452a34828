"""The rotary lab: two configurations, how far their pairs turn, and how far they agree by distance."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from whatwhere.analysis.rotary_frequencies import rotary_agreement, rotary_spectrum
from whatwhere.errors import WhatWhereError
from whatwhere.studio.api.parameters import Parameter, Value, turned, values
from whatwhere.studio.api.settings import known, text, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.schemes import ModelRotary, layer_names, model_rotaries
from whatwhere.studio.session import Session

LONGEST = 10_000_000
_POINTS = 240

SCALINGS = ("none", "linear", "ntk", "dynamic-ntk", "yarn", "longrope", "llama3", "proportional")
"""As the catalogue names them, less "rotary-"."""

_COMMON = (
    Parameter("head_dim", 64, 8, 512, 2, 4096, steps=0.5, words="features of a head"),
    Parameter("rotary_dim", 0, 2, 512, 0, 4096, steps=0.5, words="features that turn"),
    Parameter(
        "theta", 10_000.0, 100, 1e8, 1e-3, 1e15, base=10, steps=10, words="the slowest pair needs about 2 pi theta"
    ),
    Parameter("original_length", 4096, 32, 1 << 20, 1, LONGEST, base=2, steps=2, words="the trained length"),
)
_OWN = (
    Parameter("factor", 4.0, 1, 64, 1e-6, 1e6, base=2, steps=4, words="how far the length is stretched"),
    Parameter("beta_fast", 32.0, 1, 256, 1e-6, 1e6, base=2, steps=2, words="pairs that turn more often are kept"),
    Parameter("beta_slow", 1.0, 1 / 16, 32, 1e-6, 1e6, base=2, steps=2, words="pairs that turn less often are divided"),
    Parameter(
        "low_frequency_factor", 1.0, 1 / 16, 16, 1e-6, 1e6, base=2, steps=2, words="turns below which a pair slows"
    ),
    Parameter(
        "high_frequency_factor", 4.0, 1 / 8, 64, 1e-6, 1e6, base=2, steps=2, words="turns from which a pair is kept"
    ),
    Parameter("share", 0.5, 0.02, 1, 1e-6, 1, steps=50, words="of the pairs that turn"),
    Parameter("attention_factor", 0.0, 0, 2, 0, 1e6, steps=20, words="the magnitude; 0 takes the formula", rare=True),
    Parameter("mscale", 0.0, 0, 2, 0, 1e6, steps=20, words="DeepSeek's magnitude, with the next; 0 is none", rare=True),
    Parameter("mscale_all_dim", 0.0, 0, 2, 0, 1e6, steps=20, words="0 is none", rare=True),
    Parameter("truncate", True, words="ramp between whole pairs", rare=True),
)
_OPTIONAL = ("attention_factor", "mscale", "mscale_all_dim")


@dataclass(frozen=True)
class _Start:
    """What a configuration begins with.

    Args:
        name: what the address calls it; `said` what the reader reads.
        given: settings that are not the usual ones.
        claimed: the length that the model claims.
        lists: LongRoPE's own factors, short and long, which no slider holds.
    """

    name: str
    said: str
    given: Mapping[str, Value] = field(default_factory=dict)
    claimed: int = 16_384
    lengths: str = ""
    lists: tuple[tuple[float, ...], tuple[float, ...]] | None = None


_PLAIN = _Start("plain", "a plain rotary")


def lab(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Compare two configurations of rotary; what is not said is as in the open model, or plain.

    Args:
        settings: a and b, texts such as "from=plain scaling=yarn factor=4"; claimed, the length of the text, 0 for
            what the model claims.
    """
    known(settings, "a", "b", "claimed")
    rotaries, missing = model_rotaries(session)
    starts = [_started(n, rotary) for n, rotary in enumerate(rotaries)] + [_PLAIN]
    choice = Parameter("from", starts[0].name, choices=tuple(start.name for start in starts))
    said = [_said(text(settings, side, ""), usual, choice) for side, usual in zip("ab", _usual(starts), strict=True)]
    chosen = [next(start for start in starts if start.name == each["from"]) for each in said]
    claimed = whole(settings, "claimed", 0, 0, LONGEST) or max(start.claimed for start in chosen)
    sides = [_side(start, each, claimed) for start, each in zip(chosen, said, strict=True)]
    distances = np.unique(np.geomspace(1, max(claimed - 1, 1), _POINTS).round()).astype(np.int64)
    return {
        "missing": missing,
        "starts": [{"name": start.name, "said": start.said} for start in starts],
        "scalings": _scalings(),
        "claimed": claimed,
        "sides": [facts for facts, _ in sides],
        "distances": distances,
        "cosines": _cosines([frequencies for _, frequencies in sides], distances),
    }


def exported(session: Session) -> ExportedView:
    """Leave the two configurations that the view begins with on an exported page."""
    begin = {"a": "", "b": "", "claimed": 0}
    found = lab(session, begin)
    names = ("wavelengths", "slowed", "turns_trained", "turns_claimed")
    head = ("pair", "positions for a turn", "times slower", "turns in the trained length", "turns in the text")
    sheets = []
    for name, side in zip("AB", found["sides"], strict=True):
        if side["problem"] is None:
            numbers = zip(*(side[column] for column in names), strict=True)
            cells = [(str(pair), *(f"{number:.4g}" for number in row)) for pair, row in enumerate(numbers)]
            sheets.append(Sheet(f"{name}: {side['python']}", head, cells))
    return ExportedView("Rotary lab", [("rotary.lab", begin)], sheets)


def _usual(starts: list[_Start]) -> tuple[str, str]:
    """Return the two configurations to begin with: kinds of layers, or with and without a scaling."""
    first = starts[0]
    if len(starts) > 2:
        return f"from={first.name}", f"from={starts[1].name}"
    other = "yarn" if first.given.get("scaling", "none") == "none" else "none"
    return f"from={first.name}", f"from={first.name} scaling={other}"


def _started(number: int, rotary: ModelRotary) -> _Start:
    scheme, scaling = rotary.scheme, rotary.scheme.scaling
    given: dict[str, Value] = {"head_dim": scheme.head_dim, "theta": float(scheme.theta)}
    if scheme.rotary_dim != scheme.head_dim:
        given["rotary_dim"] = scheme.rotary_dim
    given["original_length"] = rotary.group.trained
    lists = None
    if scaling is not None:
        given["scaling"] = next((name for name, kind in _kinds().items() if type(scaling) is kind), "none")
        told = asdict(scaling)
        lists = (told.pop("short_factor"), told.pop("long_factor")) if "short_factor" in told else None
        given |= {name: _typed(name, value) for name, value in told.items() if value is not None}
    said = f"this model, {layer_names(list(rotary.group.layers))}"
    return _Start(str(number), said, given, rotary.group.claimed, rotary.group.lengths, lists)


def _typed(name: str, value: Any) -> Value:
    usual = next(parameter.usual for parameter in (*_COMMON, *_OWN) if parameter.name == name)
    return type(usual)(value)


def _said(given: str, usual: str, choice: Parameter) -> dict[str, Value]:
    """Read what one side is, on top of what it usually is, unless it says itself what it begins with."""
    parameters = (choice, Parameter("scaling", "none", choices=SCALINGS), *_COMMON, *_OWN)
    then = turned(given, parameters)
    return then if "from" in then else turned(usual, parameters) | then


def _side(start: _Start, said: Mapping[str, Value], claimed: int) -> tuple[dict[str, Any], list[np.ndarray] | None]:
    every = (*_COMMON, *_OWN)
    held = values(every, {"scaling": "none"}, start.given, said)
    held["rotary_dim"] = held["rotary_dim"] or held["head_dim"]
    kind = str(held["scaling"])
    names = {"original_length"} | {each.name for each in fields(_kinds()[kind])} if kind != "none" else set()
    parameters = [*_COMMON, *(parameter for parameter in _OWN if parameter.name in names)]
    facts: dict[str, Any] = {
        "from": start.name,
        "said": start.said,
        "lengths": start.lengths,
        "scaling": kind,
        "parameters": [_told(parameter, held) for parameter in parameters],
        "own_lists": kind == "longrope" and start.lists is not None,
        "problem": None,
    }
    try:
        rope = _built(held, [parameter.name for parameter in parameters], start.lists)
        return _examined(facts, rope, int(held["original_length"]), claimed)
    except WhatWhereError as problem:
        return facts | {"problem": str(problem)}, None


def _told(parameter: Parameter, held: Mapping[str, Value]) -> dict[str, Any]:
    told = parameter.told(held[parameter.name])
    return told | {"high": held["head_dim"]} if parameter.name == "rotary_dim" else told


def _built(held: Mapping[str, Value], names: list[str], lists: Any) -> Any:
    """Build a rotary by the catalogue, which knows what stands in for factors that only a search finds."""
    from whatwhere.where.catalogue import scheme

    kind, trained = str(held["scaling"]), held["original_length"]
    options: dict[str, Any] = {name: held[name] for name in ("theta", "rotary_dim")}
    if kind != "none":
        own_fields = {each.name for each in fields(_kinds()[kind])}
        options |= {name: held[name] for name in names if name in own_fields}
        options |= {name: options[name] or None for name in _OPTIONAL if name in options}
        if kind == "longrope" and lists is not None:
            options |= {"short_factor": lists[0], "long_factor": lists[1]}
    row = "rotary" if kind == "none" else f"rotary-{kind}"
    return scheme(row, dim=held["head_dim"], num_heads=1, max_length=trained, **options).query_key  # type: ignore[arg-type]


def _examined(
    facts: dict[str, Any], rope: Any, trained: int, claimed: int
) -> tuple[dict[str, Any], list[np.ndarray] | None]:
    from torch import tensor

    from whatwhere.where.frequencies import inverse_frequencies

    unscaled = inverse_frequencies(rope.rotary_dim, rope.theta).numpy()
    used = rope.frequencies(tensor(claimed) if rope.follows_length else None).numpy()
    seen = rotary_spectrum(used, unscaled, trained, claimed)
    return facts | {
        "python": str(rope),
        "follows_length": rope.follows_length,
        "magnitude": rope.magnitude,
        "trained": trained,
        "pairs": len(used),
        "frequencies": used,
        "wavelengths": seen.wavelengths,
        "unscaled": seen.unscaled,
        "slowed": seen.slowdown,
        "turns_trained": seen.rotations_trained,
        "turns_claimed": seen.rotations_claimed,
        "beyond": seen.unseen,
        "unfinished": int(seen.partial.sum()),
        "unfinished_claimed": int((seen.rotations_claimed < 1).sum()),
        "beyond_count": int(seen.unseen.sum()),
        "still": int(seen.constant.sum()),
    }, [used, unscaled]


def _cosines(sides: list[list[np.ndarray] | None], distances: np.ndarray) -> dict[str, np.ndarray | None]:
    """Return how far the two agree, and how far each agrees with itself unscaled."""
    one, other = sides
    alike = one is not None and other is not None and len(one[0]) == len(other[0])
    return {
        "between": rotary_agreement(one[0], other[0], distances) if one and other and alike else None,
        "a": rotary_agreement(one[0], one[1], distances) if one else None,
        "b": rotary_agreement(other[0], other[1], distances) if other else None,
    }


def _scalings() -> list[dict[str, Any]]:
    from whatwhere.where.catalogue import catalogue

    rows = {name: catalogue["rotary" if name == "none" else f"rotary-{name}"] for name in SCALINGS}
    return [
        {"name": name, "formula": row.formula, "paper": row.paper, "url": row.url, "used_by": row.used_by}
        for name, row in rows.items()
    ]


def _kinds() -> dict[str, Any]:
    """Return the class of each scaling, by its name in the catalogue."""
    from whatwhere.where import scaling

    kinds = (
        scaling.Linear, scaling.NTK, scaling.DynamicNTK, scaling.YaRN, scaling.LongRoPE, scaling.Llama3,
        scaling.Proportional,
    )  # fmt: skip
    return dict(zip(SCALINGS[1:], kinds, strict=True))
