"""Effective range (attention span) of each head of a bias that depends on the distance."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from whatwhere.errors import SettingError, ShapeError


@dataclass(frozen=True, eq=False)
class EffectiveRange:
    """The effective range of each head, for scores that consist of the bias alone.

    Args:
        distance: the first distance from which on every weight is below `share` of the largest one; -1 if there is
            none among the distances of the bias.
        half: the same for a share of one half.
        peak: the distance of the largest weight.
        mean: the mean distance of a key, weighted.
    """

    distance: Int64[np.ndarray, " heads"]
    half: Int64[np.ndarray, " heads"]
    peak: Int64[np.ndarray, " heads"]
    mean: Float64[np.ndarray, " heads"]


def effective_range(bias: Float[np.ndarray, "heads distances"], share: float = 0.01) -> EffectiveRange:
    """Compute the distance from which on the attention weight of a key is negligible, for each head.

        weight(h, d) = exp(bias(h, d))        range(h) = min {d : weight(h, e) < share * max weight(h)  for all e >= d}

    For ALiBi this is the first distance above ln(1 / share) / slope. T5's curves rise and fall; for them it is the last
    fall. A large dot product of query and key can outweigh the bias, so a key beyond this range can still matter.

    Args:
        bias: added to the score at distances 0, 1, 2, ....
        share: of the largest weight, above 0 and below 1.

    Returns:
        The range of each head, and further statistics.

    Raises:
        ShapeError: If the bias is not (heads, distances).
        SettingError: If share is out of range, or a head has no finite maximum.

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
        raise SettingError("a head's bias is not finite, so it has no largest weight.")
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
    first = count - significant[:, ::-1].argmax(axis=1)  # after the last one; the largest weight is always significant
    return np.where(first < count, first, -1).astype(np.int64)
