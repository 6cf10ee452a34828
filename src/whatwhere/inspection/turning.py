"""Rotary: the wavelength of each pair against the trained and the claimed length, and what a scaling does."""

from typing import TYPE_CHECKING, Any

import numpy as np

from whatwhere.analysis.rotary_spectrum import agreement, rotary_spectrum
from whatwhere.inspection.subject import Absent, Subject, plain

if TYPE_CHECKING:
    from whatwhere.interop.huggingface import Description, Plan

_POINTS = 96


def rotary(subject: Subject) -> dict[str, Any]:
    """Examine each rotary of a model, and how much those of different layers differ."""
    description = subject.description
    layers = layers_of(description.query_key)
    turning = [(plan, own) for plan, own in layers if hasattr(plan.scheme, "inverse_frequencies")]
    if not turning:
        raise Absent("no layer of this model turns queries and keys")
    subject.tell("examining rotary")
    found = [_examined(plan, own, description) for plan, own in turning]
    settings = [facts for facts, _ in found]
    return plain({
        "layers": description.layers,
        "without": [n for n, plan in enumerate(description.query_key) if plan is None],
        "settings": settings,
        "between": _between(found),
    })  # fmt: skip


def layers_of(plans: "tuple[Plan | None, ...]") -> "list[tuple[Plan, list[int]]]":
    """Give each distinct plan with the layers that have it."""
    found: list[tuple[Plan, list[int]]] = []
    for layer, plan in enumerate(plans):
        if plan is None:
            continue
        own = next((layers for other, layers in found if other == plan), None)
        if own is None:
            found.append((plan, [layer]))
        else:
            own.append(layer)
    return found


def _examined(plan: "Plan", layers: list[int], description: "Description") -> tuple[dict[str, Any], np.ndarray]:
    from torch import tensor

    from whatwhere.where.frequencies import inverse_frequencies

    scheme: Any = plan.build()
    trained, claimed, said = _lengths(scheme.scaling, description.max_length)
    plain_ones = inverse_frequencies(scheme.rotary_dim, scheme.theta).numpy()
    used = scheme.frequencies(tensor(claimed)) if scheme.follows_length else scheme.inverse_frequencies
    frequencies = used.numpy()
    seen = rotary_spectrum(frequencies, plain_ones, trained, claimed)
    distances = _distances(claimed)
    facts = {
        "layers": layers,
        "scheme": plan.scheme.__name__,
        "theta": scheme.theta,
        "head_dim": scheme.head_dim,
        "rotary_dim": scheme.rotary_dim,
        "interleaved": scheme.interleaved,
        "scaling": None if scheme.scaling is None else repr(scheme.scaling),
        "magnitude": scheme.magnitude,
        "trained": trained,
        "claimed": claimed,
        "lengths": said,
        "pairs": len(frequencies),
        "wavelength": seen.wavelengths,
        "unscaled": seen.unscaled,
        "slowed": seen.slowed,
        "turns_trained": seen.turns_trained,
        "turns_claimed": seen.turns_claimed,
        "unfinished_trained": int(seen.partial.sum()),
        "unfinished_claimed": int((seen.turns_claimed < 1).sum()),
        "unfinished_claimed_unscaled": int((claimed * plain_ones < 2 * np.pi).sum()),
        "beyond": np.flatnonzero(seen.beyond),
        "still": np.flatnonzero(seen.still),
        "effect": {"distances": distances, "cosine": agreement(frequencies, plain_ones, distances)},
    }
    return facts, frequencies


def _lengths(scaling: Any, max_length: int | None) -> tuple[int, int, str]:
    """Give the trained and the claimed length, and how they are known."""
    factor = getattr(scaling, "factor", 1.0)
    original = getattr(scaling, "original_length", None)
    if original is not None:
        claimed = max(max_length or 0, original if scaling is None else round(original * factor))
        return original, claimed, "the scaling names the trained length"
    if max_length is None:
        return 2048, 2048, "no length is named; 2,048 is taken"
    if factor > 1:
        trained = max(1, round(max_length / factor))
        return trained, max_length, "the trained length is not named; it is taken to be the claimed one over the factor"
    return max_length, max_length, "the configuration names one length, taken for the trained one"


def _between(found: list[tuple[dict[str, Any], np.ndarray]]) -> list[dict[str, Any]]:
    """Compare the rotary of each kind of layer with that of the first, by distance."""
    compared = []
    for n, (facts, frequencies) in enumerate(found[1:], 1):
        first, own = found[0]
        if len(own) != len(frequencies):
            continue
        distances = _distances(max(first["claimed"], facts["claimed"]))
        compared.append(
            {"one": 0, "other": n, "distances": distances, "cosine": agreement(own, frequencies, distances)}
        )
    return compared


def _distances(last: int) -> list[int]:
    """Give distances that are even in their logarithm, with 1, 8, 10, 80, 100, ... among them."""
    even = {round(n) for n in np.geomspace(1, last, _POINTS)}
    return sorted(even | {n for power in range(9) for n in (10**power, 8 * 10**power) if n <= last})
