"""Wavelengths of rotary pairs, their rotations within a length, and the effect of RoPE scaling on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64

from whatwhere.errors import SettingError, ShapeError


@dataclass(frozen=True, eq=False)
class RotarySpectrum:
    """Wavelengths and rotations of rotary pairs, in their order.

    Args:
        wavelengths: positions for one rotation, 2 pi / w; infinite for a frequency of 0.
        unscaled: the same without the scaling.
        slowdown: unscaled frequency divided by the scaled one; infinite if the scaled one is 0.
        rotations_trained: rotations within the trained length, at the frequencies of training.
        rotations_claimed: rotations within the claimed length, at the frequencies used there.
        partial: pairs without a full rotation in training, for which larger angles are out of distribution.
        unseen: pairs whose angles within the claimed length exceed those of training: those of `partial` that rotate
            farther than in training.
        constant: pairs of frequency 0, which never rotate.
    """

    wavelengths: Float64[np.ndarray, " pairs"]
    unscaled: Float64[np.ndarray, " pairs"]
    slowdown: Float64[np.ndarray, " pairs"]
    rotations_trained: Float64[np.ndarray, " pairs"]
    rotations_claimed: Float64[np.ndarray, " pairs"]
    partial: Bool[np.ndarray, " pairs"]
    unseen: Bool[np.ndarray, " pairs"]
    constant: Bool[np.ndarray, " pairs"]


def rotary_spectrum(
    frequencies: Float[np.ndarray, " pairs"],
    unscaled: Float[np.ndarray, " pairs"],
    trained: int,
    claimed: int | None = None,
    in_training: Float[np.ndarray, " pairs"] | None = None,
) -> RotarySpectrum:
    """Compute the wavelength of each pair, and its rotations within the trained and the claimed length.

        wavelength = 2 pi / w        rotations(L) = L w / (2 pi)

    A pair that makes a full rotation within the trained length takes every angle in training. Any other pair takes new
    angles beyond that length, which RoPE scaling is meant to prevent: Peng et al. 2023,
    https://arxiv.org/abs/2309.00071.

    Args:
        frequencies: radians per position, as used at the claimed length.
        unscaled: the same without the scaling.
        trained: the trained length.
        claimed: the length in the configuration; None is the trained length.
        in_training: as used in training, before the model was extended; None is `unscaled`.

    Returns:
        One value for each pair.

    Raises:
        ShapeError: If there is not one frequency for each pair.
        SettingError: If a frequency is negative or not finite, or a length is below 1.

    Examples:
        >>> spectrum = rotary_spectrum(np.array([1.0, 0.001]), np.array([1.0, 0.01]), trained=100, claimed=1000)
        >>> spectrum.slowdown.tolist(), spectrum.partial.tolist(), spectrum.unseen.tolist()
        ([1.0, 10.0], [False, True], [False, False])
    """
    claimed = trained if claimed is None else claimed
    before = unscaled if in_training is None else in_training
    now, plain, then = (_checked(values, len(frequencies)) for values in (frequencies, unscaled, before))
    if trained < 1 or claimed < 1:
        raise SettingError(f"rotary_spectrum got trained={trained}, claimed={claimed}, but needs lengths of 1 or more.")
    rotations_trained, rotations_claimed = trained * then / (2 * np.pi), claimed * now / (2 * np.pi)
    partial = rotations_trained < 1
    # 1e-6 more: factor and length often cancel up to rounding.
    unseen = partial & (rotations_claimed > rotations_trained * (1 + 1e-6))
    return RotarySpectrum(
        _divided(2 * np.pi, now),
        _divided(2 * np.pi, plain),
        _divided(plain, now),
        rotations_trained,
        rotations_claimed,
        partial,
        unseen,
        now == 0,
    )


def rotary_agreement(
    one: Float[np.ndarray, " pairs"],
    other: Float[np.ndarray, " pairs"],
    distances: Sequence[int] | Sequence[float] | np.ndarray,
) -> Float64[np.ndarray, " distances"]:
    """Compute the cosine between a vector rotated at one set of frequencies and at another, at each distance.

        cos(R_d x, R'_d x) = mean_i cos(d (w_i - w'_i))        for x with equal norm in each pair

    It is 1 if both rotate by the same angles; near 0 the scores are as different as those of unrelated distances.

    Args:
        one, other: radians per position, of as many pairs.
        distances: any numbers.

    Returns:
        The cosine at each distance.

    Raises:
        ShapeError: If the two differ in the number of pairs.
        SettingError: If a frequency is negative or not finite.

    Examples:
        >>> rotary_agreement(np.array([1.0, 0.01]), np.array([1.0, 0.02]), [0, 100]).round(4).tolist()
        [1.0, 0.7702]
    """
    first, second = _checked(one, len(one)), _checked(other, len(one))
    angles = np.asarray(distances, np.float64)[:, None] * (first - second)
    return np.asarray(np.cos(angles).mean(axis=1))


def _checked(frequencies: np.ndarray, pairs: int) -> Float64[np.ndarray, " pairs"]:
    values = np.asarray(frequencies, dtype=np.float64)
    if values.shape != (pairs,) or not pairs:
        raise ShapeError(f"one frequency for each of {pairs} pairs is needed, but these have the shape {values.shape}.")
    if not np.isfinite(values).all() or (values < 0).any():
        raise SettingError("frequencies must be finite and 0 or more, but some of these are not.")
    return values


def _divided(above: float | np.ndarray, below: np.ndarray) -> Float64[np.ndarray, " pairs"]:
    top = np.broadcast_to(np.asarray(above, np.float64), below.shape)
    return np.asarray(np.divide(top, below, out=np.where(top > 0, np.inf, 1.0), where=below > 0))
