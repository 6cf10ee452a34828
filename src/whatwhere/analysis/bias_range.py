"""Effective range (attention span) of each head of a bias by distance."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from whatwhere.errors import SettingError, ShapeError


@dataclass(frozen=True, eq=False)
class EffectiveRange:
    """The effective range of each head, if scores depended on the bias alone.

    Args:
        distance: the first distance from which on every weight is below `share` of the largest one; -1 where that
            does not happen within the given distances.
        half: likewise for one half.
        peak: the distance of the largest weight.
        mean: the weighted mean distance of a key, among those given.
    """

    distance: Int64[np.ndarray, " heads"]
    half: Int64[np.ndarray, " heads"]
    peak: Int64[np.ndarray, " heads"]
    mean: Float64[np.ndarray, " heads"]


def effective_range(bias: Float[np.ndarray, "heads distances"], share: float = 0.01) -> EffectiveRange:
    """Return the distance from which on a bias leaves a key no significant weight.

        weight(h, d) = exp(bias(h, d))        range(h) = min {d : weight(h, e) < share * max weight(h)  for all e >= d}

    For ALiBi that is the first whole distance above ln(1 / share) / slope; for T5, whose curves rise and fall, the last
    fall. The dot product of query and key comes on top: a strong match reaches farther.

    Args:
        bias: added to the score at distance 0, 1, 2, ....
        share: of the largest weight, above 0 and below 1.

    Raises:
        ShapeError: the bias is not (heads, distances).
        SettingError: share is out of range, or a head has no finite maximum.

    Examples:
        >>> slopes = np.array([[0.5], [0.25]])
        >>> effective_range(-slopes * np.arange(100)).distance
        array([10, 19])
    """
    if bias.ndim != 2 or 0 in bias.shape:
        raise ShapeError(f"a bias by distance has shape (heads, distances), but this one {bias.shape}.")
    if not 0 < share < 1:
        raise SettingError(f"effective_range got share={share}, but needs a number between 0 and 1.")
    logs = bias.astype(np.float64)
    if np.isnan(logs).any() or (logs == np.inf).any() or (logs.max(axis=1) == -np.inf).any():
        raise SettingError("a head's bias is not finite, so that it has no largest weight.")
    relative = logs - logs.max(axis=1, keepdims=True)
    weights = np.exp(relative)
    return EffectiveRange(
        _last_fall(relative, share),
        _last_fall(relative, 0.5),
        logs.argmax(axis=1).astype(np.int64),
        (weights * np.arange(logs.shape[1])).sum(axis=1) / weights.sum(axis=1),
    )


def _last_fall(relative: np.ndarray, share: float) -> Int64[np.ndarray, " heads"]:
    significant = relative >= np.log(share)  # (heads, distances)
    count = significant.shape[1]
    first = count - significant[:, ::-1].argmax(axis=1)  # after the last; the largest weight always is significant
    return np.where(first < count, first, -1).astype(np.int64)
