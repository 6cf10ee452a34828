"""Biases by distance: as a matrix, as curves, and how far each head reaches; the open model's own first."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.bias_range import effective_range
from whatwhere.errors import SettingError
from whatwhere.studio.api.distance import as_weights
from whatwhere.studio.api.parameters import Parameter, Value, turned, values
from whatwhere.studio.api.settings import flag, known, one_of, text, whole
from whatwhere.studio.api.static_tables import ExportedView, Sheet
from whatwhere.studio.schemes import model_biases
from whatwhere.studio.session import Session

LOOKED_AT = 4096
MOST_TOKENS = 256
_POINTS = 160
SHARES = ("0.5", "0.1", "0.01", "0.001")

PARAMETERS: Mapping[str, tuple[Parameter, ...]] = {
    "alibi": (),
    "t5": (
        Parameter("num_buckets", 32, 4, 128, 2, 1024, steps=0.5, words="rows of the learned table"),
        Parameter("max_distance", 128, 16, 4096, 2, 1 << 20, base=2, steps=2, words="from here on one bucket"),
        Parameter("std", 0.5, 0.02, 2, 1e-6, 100, base=10, steps=10, words="spread of the draw"),
    ),
    "kerple": (Parameter("kind", "log", choices=("log", "power"), words="how a key fades"),),
    "fire": (
        Parameter("threshold", 512.0, 16, 4096, 1e-3, 1e6, base=2, steps=2, words="up to here distances alone count"),
        Parameter("c", 0.1, 0.01, 10, 1e-6, 1e3, base=10, steps=10, words="how soon distances crowd together"),
        Parameter("width", 32, 4, 128, 1, 1024, base=2, steps=2, words="features inside of the MLP"),
    ),
    "sandwich": (
        Parameter("sinusoid_dim", 128, 4, 512, 2, 4096, steps=0.5, words="features of the sinusoid"),
        Parameter("theta", 10_000.0, 100, 1e6, 1e-3, 1e12, base=10, steps=10, words="of its frequencies"),
    ),
}
"""Rows of the catalogue whose bias positions alone decide, and what can be turned of each."""

_BEGIN: Mapping[str, Any] = {
    "scheme": "", "options": "", "heads": 8, "head": 0, "tokens": 64, "weights": False, "share": "0.01", "seed": 0,
}  # fmt: skip
_LEARNED = ("t5", "kerple", "fire")


def shown(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return one bias: the matrix of a head, the curves of all, and how far each looks.

    Args:
        settings: scheme, "" for the model's own or ALiBi; options, such as "num_buckets=16"; heads (8); head (0);
            tokens of the matrix (64); weights in place of biases; share that ends a head's reach ("0.01"); seed (0).
    """
    known(settings, "scheme", "options", "heads", "head", "tokens", "weights", "share", "seed")
    mine, missing = model_biases(session)
    offered = {f"own-{n}": bias for n, bias in enumerate(mine) if bias.scheme is not None}
    names = (*offered, *PARAMETERS)
    name = names[0] if settings.get("scheme", "") == "" else one_of(settings, "scheme", names)
    parameters = PARAMETERS.get(name, ())
    held = values(parameters, turned(text(settings, "options", ""), parameters))
    scheme, python = (offered[name].scheme, None) if name in offered else _built(settings, name, held)
    head = min(whole(settings, "head", 0, 0, 1023), scheme.num_heads - 1)
    tokens = whole(settings, "tokens", 64, 2, MOST_TOKENS)
    weights, share = flag(settings, "weights"), float(one_of(settings, "share", SHARES, "0.01"))
    return {
        "missing": missing if not mine else None,
        "left_out": [{"said": bias.title, "missing": bias.missing} for bias in mine if bias.scheme is None],
        "choices": [{"name": key, "said": bias.title} for key, bias in offered.items()] + _offered(),
        "scheme": name,
        "python": python or str(scheme),
        "tensor": offered[name].tensor if name in offered else None,
        "drawn": name in _LEARNED,
        "parameters": [parameter.told(held[parameter.name]) for parameter in parameters],
        "heads": scheme.num_heads,
        "head": head,
        "matrix": _matrix(scheme, tokens, head, weights),
        "looked_at": LOOKED_AT,
        **_by_head(scheme, weights, share),
    }


def exported(session: Session) -> ExportedView:
    """Leave the first bias on an exported page, as numbers and as weights."""
    found = shown(session, _BEGIN)
    far = f"beyond {found['looked_at']:,}"
    reached = found["reach"]
    cells = [
        (str(head), *(far if row[head] < 0 else f"{row[head]:,}" for row in (reached["distance"], reached["half"])))
        for head in range(found["heads"])
    ]
    head = ("head", "reach, to 1 % of the greatest weight", "half of the greatest weight")
    sheets = [Sheet(f"How far each head looks: {found['python']}", head, cells)]
    return ExportedView("Biases", [("biases.shown", _BEGIN), ("biases.shown", {**_BEGIN, "weights": True})], sheets)


def _built(settings: Mapping[str, Any], name: str, held: Mapping[str, Value]) -> tuple[Any, str]:
    """Build a row of the catalogue with as many heads as are asked for; give also how that is written."""
    from whatwhere.analysis.walkthrough import random_scheme

    heads, seed = whole(settings, "heads", 8, 1, 64), whole(settings, "seed", 0, 0, 1 << 31)
    said = "".join(f", {setting}={value!r}" for setting, value in held.items())
    python = f'random_scheme("{name}", {heads}, {heads}, {LOOKED_AT}, seed={seed}{said}).score'
    return random_scheme(name, heads, heads, LOOKED_AT, seed, **held).score, python


def _offered() -> list[dict[str, Any]]:
    from whatwhere.where.catalogue import catalogue

    return [
        {"name": name, "said": name, "formula": catalogue[name].formula, "url": catalogue[name].url}
        for name in PARAMETERS
    ]


def _matrix(scheme: Any, tokens: int, head: int, weights: bool) -> Float[np.ndarray, "queries keys"]:
    """Return what one head adds for each query and key; later keys are not a number where it says nothing of them."""
    import torch

    from whatwhere.position import positions

    with torch.no_grad():
        table = scheme(positions(tokens), causal=scheme.causal_only)[0, head].double().numpy()
    table = np.where(np.isfinite(table), table, np.nan)
    return (np.exp(table - np.nanmax(table)) if weights else table).astype(np.float32)


def _by_head(scheme: Any, weights: bool, share: float) -> dict[str, Any]:
    """Return the curves of all heads at distances that are even in their logarithm, and the reach of each."""
    past = _past(scheme)
    distances = np.unique(np.concatenate([np.arange(17), np.geomspace(16, LOOKED_AT - 1, _POINTS).round()]))
    at = distances.astype(np.int64)
    # T5 alone tells earlier from later keys.
    later = _later(scheme) if getattr(scheme, "bidirectional", False) else None
    said = as_weights if weights else np.asarray
    return {
        "distances": at,
        "past": said(past)[:, at].astype(np.float32),
        "later": None if later is None else said(later)[:, at].astype(np.float32),
        "reach": asdict(effective_range(past, share)),
        "reach_later": None if later is None else asdict(effective_range(later, share)),
    }


def _past(scheme: Any) -> Float[np.ndarray, "heads distances"]:
    from whatwhere.analysis.position_similarity import by_distance
    from whatwhere.where.binding import Where

    found = by_distance(Where(score=scheme), LOOKED_AT)
    if found is None:
        raise SettingError(f"{type(scheme).__name__} depends on queries and keys: view Distance shows it.")
    return np.stack([curve.double().numpy() for curve in found.curves.values()])


def _later(scheme: Any) -> Float[np.ndarray, "heads distances"]:
    import torch

    from whatwhere.position import positions

    with torch.no_grad():
        table = scheme(positions(1), positions(LOOKED_AT))
    return np.asarray(table[0, :, 0].double().numpy())
