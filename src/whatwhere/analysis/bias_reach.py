"""How far each head of a bias by distance reaches."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from whatwhere.errors import SettingError, ShapeError


@dataclass(frozen=True, eq=False)
class Reach:
    """Hold how far heads look, where nothing but the distance counts.

    Args:
        distance: of each head, the first from which on every weight is below the share of the greatest one; -1 where
            that does not happen within the distances that were given.
        half: likewise for one half.
        greatest: the distance of each head's greatest weight.
        middle: the mean distance of a key, weighted, among those given.
    """

    distance: Int64[np.ndarray, " heads"]
    half: Int64[np.ndarray, " heads"]
    greatest: Int64[np.ndarray, " heads"]
    middle: Float64[np.ndarray, " heads"]


def reach(bias: Float[np.ndarray, "heads distances"], share: float = 0.01) -> Reach:
    """Find the distance at which a bias leaves a key no weight that matters.

        weight(h, d) = exp(bias(h, d))        reach(h) = min {d : weight(h, e) < share * max weight(h)  for all e >= d}

    Of ALiBi that is the first whole distance above ln(1 / share) / slope; of T5, whose curves rise and fall, the last
    fall. What queries and keys say comes on top: a strong match is seen farther.

    Args:
        bias: what is added to the score at distance 0, 1, 2, ....
        share: of the greatest weight, above 0 and below 1.

    >>> slopes = np.array([[0.5], [0.25]])
    >>> reach(-slopes * np.arange(100)).distance
    array([10, 19])
    """
    if bias.ndim != 2 or 0 in bias.shape:
        raise ShapeError(f"a bias by distance has shape (heads, distances), but this one {bias.shape}.")
    if not 0 < share < 1:
        raise SettingError(f"reach got share={share}, but needs a number between 0 and 1.")
    logs = bias.astype(np.float64)
    if np.isnan(logs).any() or (logs == np.inf).any() or (logs.max(axis=1) == -np.inf).any():
        raise SettingError("a head's bias is not finite, so that it has no greatest weight.")
    below_greatest = logs - logs.max(axis=1, keepdims=True)
    weights = np.exp(below_greatest)
    return Reach(
        _last_fall(below_greatest, share),
        _last_fall(below_greatest, 0.5),
        logs.argmax(axis=1).astype(np.int64),
        (weights * np.arange(logs.shape[1])).sum(axis=1) / weights.sum(axis=1),
    )


def _last_fall(below_greatest: np.ndarray, share: float) -> Int64[np.ndarray, " heads"]:
    seen = below_greatest >= np.log(share)  # (heads, distances)
    count = seen.shape[1]
    first = count - seen[:, ::-1].argmax(axis=1)  # behind the last that is seen; each head sees its greatest
    return np.where(first < count, first, -1).astype(np.int64)
