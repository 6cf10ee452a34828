"""What differs between two configurations: rotary above all, by position."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.analysis.rotary_spectrum import agreement
from whatwhere.errors import WhatWhereError
from whatwhere.inspection.subject import Absent
from whatwhere.interop.checkpoint import Checkpoint

if TYPE_CHECKING:
    from whatwhere.interop.huggingface import Description, Plan

_FACTS = (
    "model_type", "vocab_size", "dim", "token_dim", "num_heads", "key_heads", "head_dim", "layers", "input",
    "embedding_scale", "tied", "padding_id", "max_length", "scales",
)  # fmt: skip
_UNTOLD = ("_name_or_path", "transformers_version")
_DISTANCES = (1, 10, 100, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000)
_SAME = 1e-9
"""Of a frequency: formulas that say one thing in two ways differ by less."""


def configurations(first: "Checkpoint | Description", second: "Checkpoint | Description") -> dict[str, Any]:
    """Compare two configurations, in this library's words and, where both are Hugging Face's own, key by key.

    Layers whose queries and keys are mapped otherwise are told in groups. Of two rotaries the frequencies are compared
    pair by pair, and by distance: the cosine of a vector turned by the one and by the other.
    """
    keys = _keys(first, second)
    if keys == [] and _raw(first) is not None:
        return {"facts": [], "keys": [], "query_key": [], "score": []}  # one configuration: no need to read it
    try:
        one, other = _described(first), _described(second)
    except (WhatWhereError, NotImplementedError) as problem:
        if keys is None:
            raise Absent(str(problem)) from None
        return {"keys": keys, "facts": [], "query_key": [], "score": [], "not_understood": str(problem)}
    longest = max((side.max_length or 0 for side in (one, other)), default=0) or _DISTANCES[-1]
    return {
        "facts": [
            {"name": name, "first": _said(getattr(one, name)), "second": _said(getattr(other, name))}
            for name in _FACTS
            if getattr(one, name) != getattr(other, name)
        ],
        "keys": keys or [],
        "query_key": [
            {"layers": layers, "first": _said(a), "second": _said(b), "rotary": _rotary(a, b, longest)}
            for a, b, layers in _differing(one.query_key, other.query_key)
        ],
        "score": [
            {"layers": layers, "first": _said(a), "second": _said(b)}
            for a, b, layers in _differing(one.score, other.score)
        ],
    }


def _described(side: "Checkpoint | Description") -> "Description":
    return side.description if isinstance(side, Checkpoint) else side


def _raw(side: "Checkpoint | Description") -> Mapping[str, Any] | None:
    return side.config if isinstance(side, Checkpoint) else None


def _keys(first: "Checkpoint | Description", second: "Checkpoint | Description") -> list[dict[str, Any]] | None:
    """Compare the keys of two configurations of Hugging Face; None where one is made from something else."""
    sides = [_raw(side) for side in (first, second)]
    if any(side is None for side in sides) or "gguf" in (getattr(side, "format", "") for side in (first, second)):
        return None
    one, other = (dict(_flat(side or {})) for side in sides)
    names = [name for name in {**one, **other} if name.split(".")[-1] not in _UNTOLD]
    absent = object()
    return [
        {"name": name, "first": _said(one.get(name)), "second": _said(other.get(name))}
        for name in names
        if one.get(name, absent) != other.get(name, absent)
    ]


def _flat(config: Mapping[str, Any], front: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{front}{name}.")
        else:
            yield f"{front}{name}", value


def _said(value: Any) -> Any:
    """Give a value that JSON holds, else its words; one number for equal ones in a row."""
    if isinstance(value, tuple) and len(set(map(repr, value))) == 1:
        value = value[0]
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def _differing(
    first: "tuple[Plan | None, ...]", second: "tuple[Plan | None, ...]"
) -> "list[tuple[Plan | None, Plan | None, list[int]]]":
    """Group the layers that both have, and whose plans differ, by these plans."""
    found: list[tuple[Plan | None, Plan | None, list[int]]] = []
    for layer, (a, b) in enumerate(zip(first, second, strict=False)):
        if a == b:
            continue
        own = next((layers for x, y, layers in found if x == a and y == b), None)
        if own is None:
            found.append((a, b, [layer]))
        else:
            own.append(layer)
    return found


def _rotary(first: "Plan | None", second: "Plan | None", longest: int) -> dict[str, Any] | None:
    """Compare two rotaries; None where one is none, or they have not as many pairs."""
    if first is None or second is None:
        return None
    schemes: list[Any] = [plan.build() for plan in (first, second)]
    if not all(hasattr(scheme, "follows_length") and hasattr(scheme, "rotary_dim") for scheme in schemes):
        return None
    if schemes[0].rotary_dim != schemes[1].rotary_dim:
        return None
    one, other = (_frequencies(scheme, longest) for scheme in schemes)
    ratio = np.divide(other, one, out=np.full(len(one), np.nan), where=one > 0)
    distances = [n for n in _DISTANCES if n < longest] + [longest]
    # Where frequencies follow the length, each distance is met in a text that is just long enough for it.
    cosine = [agreement(_frequencies(schemes[0], d + 1), _frequencies(schemes[1], d + 1), [d])[0] for d in distances]
    return {
        "pairs": len(one),
        "differing": int((np.abs(other - one) > _SAME * np.maximum(one, other)).sum()),
        "length": longest,
        "frequencies": [one, other],
        "ratio": ratio,
        "magnitudes": [scheme.magnitude for scheme in schemes],
        "interleaved": [scheme.interleaved for scheme in schemes],
        "distances": distances,
        "cosine": cosine,
    }


def _frequencies(scheme: Any, length: int) -> np.ndarray:
    """Give the frequencies in a text of some length."""
    from torch import tensor

    found: np.ndarray = scheme.frequencies(tensor(length) if scheme.follows_length else None).numpy()
    return found
