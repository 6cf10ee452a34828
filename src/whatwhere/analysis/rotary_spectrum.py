"""The spectrum of a rotary: how far its pairs turn within a length, and what a scaling changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64

from whatwhere.errors import SettingError, ShapeError


@dataclass(frozen=True, eq=False)
class RotarySpectrum:
    """Hold how the pairs of a rotary turn, the first pair first.

    Args:
        wavelengths: positions for one full turn, 2 pi / w; infinite where a pair does not turn.
        unscaled: the same without the scaling.
        slowed: how many times slower the scaling makes each pair; infinite where it stops it.
        turns_trained: full turns within the trained length, by the frequencies that training saw.
        turns_claimed: full turns within the claimed length, by the frequencies in use there.
        partial: pairs without a full turn in training, so that angles beyond what was seen come up later.
        beyond: pairs that reach angles within the claimed length that training never showed: those of `partial` that
            turn farther than they did in training.
        still: pairs that never turn at all.
    """

    wavelengths: Float64[np.ndarray, " pairs"]
    unscaled: Float64[np.ndarray, " pairs"]
    slowed: Float64[np.ndarray, " pairs"]
    turns_trained: Float64[np.ndarray, " pairs"]
    turns_claimed: Float64[np.ndarray, " pairs"]
    partial: Bool[np.ndarray, " pairs"]
    beyond: Bool[np.ndarray, " pairs"]
    still: Bool[np.ndarray, " pairs"]


def rotary_spectrum(
    frequencies: Float[np.ndarray, " pairs"],
    unscaled: Float[np.ndarray, " pairs"],
    trained: int,
    claimed: int | None = None,
    in_training: Float[np.ndarray, " pairs"] | None = None,
) -> RotarySpectrum:
    """Compare the wavelength of each pair with the lengths that a model was trained on and claims.

        wavelength = 2 pi / w        turns(L) = L w / (2 pi)

    A pair that made a full turn in training has shown every angle; one that did not meets new angles beyond the
    trained length, which is what a scaling is to prevent: Peng et al. 2023, https://arxiv.org/abs/2309.00071.

    Args:
        frequencies: radians a position, as used at the claimed length.
        unscaled: the same without the scaling.
        trained: positions that training showed.
        claimed: positions that the configuration names; None is the trained length.
        in_training: as used in training, before the model was extended; None is `unscaled`.

    >>> found = rotary_spectrum(np.array([1.0, 0.001]), np.array([1.0, 0.01]), trained=100, claimed=1000)
    >>> found.slowed.tolist(), found.partial.tolist(), found.beyond.tolist()
    ([1.0, 10.0], [False, True], [False, False])
    """
    claimed = trained if claimed is None else claimed
    before = unscaled if in_training is None else in_training
    now, plain, then = (_checked(given, len(frequencies)) for given in (frequencies, unscaled, before))
    if trained < 1 or claimed < 1:
        raise SettingError(f"a rotary's lengths are 1 or more, but these are trained={trained}, claimed={claimed}.")
    turns_trained, turns_claimed = trained * then / (2 * np.pi), claimed * now / (2 * np.pi)
    partial = turns_trained < 1
    # A part in a million: factor and length often undo each other, but for rounding.
    beyond = partial & (turns_claimed > turns_trained * (1 + 1e-6))
    return RotarySpectrum(
        _divided(2 * np.pi, now),
        _divided(2 * np.pi, plain),
        _divided(plain, now),
        turns_trained,
        turns_claimed,
        partial,
        beyond,
        now == 0,
    )


def agreement(
    one: Float[np.ndarray, " pairs"],
    other: Float[np.ndarray, " pairs"],
    distances: Sequence[int] | Sequence[float] | np.ndarray,
) -> Float64[np.ndarray, " distances"]:
    """Give how alike two rotaries are at each distance: the cosine of a vector turned by the one and by the other.

        cos(R_d x, R'_d x) = mean_i cos(d (w_i - w'_i))        for x with equal length in each pair

    1 where both turn alike; near 0 a query meets keys as if at distances that have nothing to do with theirs.

    >>> agreement(np.array([1.0, 0.01]), np.array([1.0, 0.02]), [0, 100]).round(4).tolist()
    [1.0, 0.7702]
    """
    first, second = _checked(one, len(one)), _checked(other, len(one))
    angles = np.asarray(distances, np.float64)[:, None] * (first - second)
    return np.asarray(np.cos(angles).mean(axis=1))


def _checked(given: np.ndarray, pairs: int) -> Float64[np.ndarray, " pairs"]:
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (pairs,) or not pairs:
        raise ShapeError(f"one frequency for each of {pairs} pairs is needed, but these have the shape {values.shape}.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise SettingError("frequencies are numbers of 0 or more, but some of these are not.")
    return values


def _divided(above: float | np.ndarray, below: np.ndarray) -> Float64[np.ndarray, " pairs"]:
    top = np.broadcast_to(np.asarray(above, np.float64), below.shape)
    return np.asarray(np.divide(top, below, out=np.where(top > 0, np.inf, 1.0), where=below > 0))
