"""Rotary frequencies, in radians per position: unscaled (w_i), and under each RoPE scaling (w'_i)."""

import math
from collections.abc import Sequence

from whatwhere.reference.checks import require_even


def inverse_frequencies(dim: int, theta: float = 10_000.0) -> list[float]:
    """Return the angle by which each pair of features rotates per position, in radians.

        w_i = theta ** (-2 i / dim)        i = 0 .. dim/2 - 1

    Vaswani et al. 2017, section 3.5; Su et al. 2021, equation 15.

    Examples:
        >>> inverse_frequencies(4)
        [1.0, 0.01]
    """
    require_even("dim", dim)
    return [theta ** (-2 * i / dim) for i in range(dim // 2)]


def tensor2tensor_frequencies(dim: int, theta: float = 10_000.0) -> list[float]:
    """Return the frequencies of tensor2tensor and fairseq: the slowest one is exactly 1 / theta.

        w_i = theta ** (-i / (dim/2 - 1))        i = 0 .. dim/2 - 1

    Vaswani et al. 2018, https://arxiv.org/abs/1803.07416, as in its code.
    """
    require_even("dim", dim)
    if dim < 4:
        raise ValueError(
            "tensor2tensor frequencies got dim=2, but need at least 4: they divide by dim/2 - 1.\n"
            "Use inverse_frequencies for a single pair."
        )
    return [theta ** (-i / (dim // 2 - 1)) for i in range(dim // 2)]


def linear_frequencies(dim: int, theta: float, factor: float) -> list[float]:
    """Return frequencies under position interpolation: every pair divided by one factor.

        w'_i = w_i / s

    Chen et al. 2023, https://arxiv.org/abs/2306.15595.
    """
    return [w / factor for w in inverse_frequencies(dim, theta)]


def ntk_frequencies(dim: int, theta: float, factor: float) -> list[float]:
    """Return NTK-aware frequencies: theta raised until the slowest pair is divided by the factor; the fastest is kept.

        w'_i = (theta s ** (dim / (dim - 2))) ** (-2i / dim)

    bloc97 2023, in Peng et al. 2023, section 3.1, https://arxiv.org/abs/2309.00071.
    """
    return inverse_frequencies(dim, theta * factor ** (dim / (dim - 2)))


def dynamic_ntk_frequencies(
    dim: int, theta: float, factor: float, original_length: int, length: int, doubling: bool = False
) -> list[float]:
    """Return dynamic NTK frequencies: theta is raised with the current length.

        w'_i = (theta (s L / L_0 - (s - 1)) ** (dim / (dim - 2))) ** (-2i / dim)        L = max(length, L_0)

    emozilla 2023, in Peng et al. 2023, section 3.3. With doubling, L is the first of L_0, 2 L_0, 4 L_0, ... that is
    not smaller than the length, as in the first Qwen.

    Examples:
        >>> dynamic_ntk_frequencies(4, 10_000.0, factor=2.0, original_length=100, length=70)
        [1.0, 0.01]
    """
    context = max(length, original_length)
    if doubling:
        context = original_length
        while context < length:
            context *= 2
    return ntk_frequencies(dim, theta, factor * context / original_length - (factor - 1))


def yarn_frequencies(
    dim: int,
    theta: float,
    factor: float,
    original_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> list[float]:
    """Return YaRN frequencies: pairs of many rotations within the trained length kept, of few divided, blended between.

        w'_i = w_i (1 - r_i) + w_i / s r_i        r_i = (i - low) / (high - low), within 0..1
        c(n) = dim ln(L_0 / (2 pi n)) / (2 ln theta): the index of the pair that makes n rotations within L_0
        low = c(beta_fast), high = c(beta_slow), rounded outward and kept within 0..dim-1

    Peng et al. 2023, equations 17 to 20, as in their code: a linear ramp over the pair's index.

    Examples:
        >>> [round(w, 5) for w in yarn_frequencies(8, 10_000.0, factor=4.0, original_length=64)]
        [1.0, 0.0625, 0.0025, 0.00025]
    """

    def pair_of_rotations(n: float) -> float:
        return dim * math.log(original_length / (2 * math.pi * n)) / (2 * math.log(theta))

    low, high = pair_of_rotations(beta_fast), pair_of_rotations(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high = low + 0.001  # a ramp of no width would divide by 0: this makes it a step
    out = []
    for i, w in enumerate(inverse_frequencies(dim, theta)):
        r = min(max((i - low) / (high - low), 0.0), 1.0)
        out.append(w * (1 - r) + w / factor * r)
    return out


def yarn_magnitude(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """Return YaRN's factor for queries and keys, by which the softmax gets sharper.

        g(mscale) / g(mscale_all_dim)        g(m) = 0.1 m ln(s) + 1 if s > 1, else 1

    Peng et al. 2023, equation 22, with mscale = 1 and no divisor; the quotient is from DeepSeek's code.

    Examples:
        >>> yarn_magnitude(math.e), yarn_magnitude(0.5)
        (1.1, 1.0)
    """
    if factor <= 1:
        return 1.0
    return (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all_dim * math.log(factor) + 1)


def longrope_frequencies(
    dim: int, theta: float, short: Sequence[float], long: Sequence[float], original_length: int, length: int
) -> list[float]:
    """Return LongRoPE frequencies: each pair divided by its own factor, from another list beyond the trained length.

        w'_i = w_i / short_i if length <= L_0, else w_i / long_i

    Ding et al. 2024, https://arxiv.org/abs/2402.13753, as in Phi-3.
    """
    factors = short if length <= original_length else long
    return [w / f for w, f in zip(inverse_frequencies(dim, theta), factors, strict=True)]


def longrope_magnitude(factor: float, original_length: int) -> float:
    """Return LongRoPE's factor for queries and keys: sqrt(1 + ln(s) / ln(L_0)) if s > 1, else 1."""
    return math.sqrt(1 + math.log(factor) / math.log(original_length)) if factor > 1 else 1.0


def llama3_frequencies(
    dim: int, theta: float, factor: float, original_length: int, low: float = 1.0, high: float = 4.0
) -> list[float]:
    """Return Llama 3 frequencies: short wavelengths kept, long ones divided, blended between.

        w'_i = w_i                              2 pi / w_i <= L_0 / high
        w'_i = w_i / s                          2 pi / w_i > L_0 / low
        w'_i = (1 - t) w_i / s + t w_i          else, t = (L_0 w_i / (2 pi) - low) / (high - low)

    Dubey et al. 2024, https://arxiv.org/abs/2407.21783; the formula is in Meta's code. With low = high it is a step.
    """
    out = []
    for w in inverse_frequencies(dim, theta):
        wavelength = 2 * math.pi / w
        if wavelength <= original_length / high:
            out.append(w)
        elif wavelength > original_length / low:
            out.append(w / factor)
        else:
            t = (original_length / wavelength - low) / (high - low)
            out.append((1 - t) * w / factor + t * w)
    return out


def proportional_frequencies(dim: int, theta: float, share: float, factor: float = 1.0) -> list[float]:
    """Return frequencies of a proportional rotary: only the fastest share of the pairs rotates.

        w'_i = w_i / s for i < floor(share dim / 2), else 0

    Barbero et al. 2024, https://arxiv.org/abs/2410.06205.
    """
    rotating = math.floor(share * dim / 2)
    return [w / factor if i < rotating else 0.0 for i, w in enumerate(inverse_frequencies(dim, theta))]
