"""How far each pair turns per position under the scalings of rotary.

Each function gives w'_i, made of the unscaled w_i = theta ** (-2i / dim), and some schemes have a magnitude beside it.
"""

import math
from collections.abc import Sequence

from whatwhere.reference.frequencies import inverse_frequencies


def linear_frequencies(dim: int, theta: float, factor: float) -> list[float]:
    """Slow every pair alike.

        w'_i = w_i / s

    Chen et al. 2023, https://arxiv.org/abs/2306.15595.

    >>> linear_frequencies(4, 10_000.0, factor=4.0)
    [0.25, 0.0025]
    """
    return [w / factor for w in inverse_frequencies(dim, theta)]


def ntk_frequencies(dim: int, theta: float, factor: float) -> list[float]:
    """Raise theta, so that the slowest pair is slowed by the factor and the fastest stays.

        w'_i = (theta s ** (dim / (dim - 2))) ** (-2i / dim)

    bloc97 2023, in Peng et al. 2023, section 3.1, https://arxiv.org/abs/2309.00071.

    >>> [round(w, 6) for w in ntk_frequencies(4, 10_000.0, factor=4.0)]
    [1.0, 0.0025]
    """
    return inverse_frequencies(dim, theta * factor ** (dim / (dim - 2)))


def dynamic_ntk_frequencies(dim: int, theta: float, factor: float, original_length: int, length: int) -> list[float]:
    """Raise theta as far as the length asks for.

        w'_i = (theta (s L / L_0 - (s - 1)) ** (dim / (dim - 2))) ** (-2i / dim)        L = max(length, L_0)

    emozilla 2023, in Peng et al. 2023, section 3.3.

    >>> dynamic_ntk_frequencies(4, 10_000.0, factor=2.0, original_length=100, length=70)
    [1.0, 0.01]
    """
    reached = max(length, original_length)
    return ntk_frequencies(dim, theta, factor * reached / original_length - (factor - 1))


def yarn_frequencies(
    dim: int,
    theta: float,
    factor: float,
    original_length: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> list[float]:
    """Keep the pairs that turn often within the trained length, divide those that turn seldom, blend between.

        w'_i = w_i (1 - r_i) + w_i / s r_i        r_i = (i - low) / (high - low), within 0..1
        c(n) = dim ln(L_0 / (2 pi n)) / (2 ln theta): the number of the pair that turns n times within L_0
        low = c(beta_fast), high = c(beta_slow), rounded outward and kept within 0..dim-1

    Peng et al. 2023, equations 17 to 20, as their code has it: a ramp over the pair's number.

    >>> [round(w, 5) for w in yarn_frequencies(8, 10_000.0, factor=4.0, original_length=64)]
    [1.0, 0.0625, 0.0025, 0.00025]
    """

    def pair_that_turns(n: float) -> float:
        return dim * math.log(original_length / (2 * math.pi * n)) / (2 * math.log(theta))

    low, high = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high = low + 0.001  # a step, where the ramp has no width
    out = []
    for i, w in enumerate(inverse_frequencies(dim, theta)):
        r = min(max((i - low) / (high - low), 0.0), 1.0)
        out.append(w * (1 - r) + w / factor * r)
    return out


def yarn_magnitude(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """Give what queries and keys are multiplied by.

        g(mscale) / g(mscale_all_dim)        g(m) = 0.1 m ln(s) + 1 if s > 1, else 1

    Peng et al. 2023, equation 22, with mscale = 1 and no divisor; the quotient is DeepSeek's.

    >>> yarn_magnitude(math.e), yarn_magnitude(0.5)
    (1.1, 1.0)
    """
    if factor <= 1:
        return 1.0
    return (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all_dim * math.log(factor) + 1)


def longrope_frequencies(
    dim: int, theta: float, short: Sequence[float], long: Sequence[float], original_length: int, length: int
) -> list[float]:
    """Divide each pair by a factor of its own, from one list up to the trained length and from another beyond.

        w'_i = w_i / short_i if length <= L_0, else w_i / long_i

    Ding et al. 2024, https://arxiv.org/abs/2402.13753, as Phi-3 has it.

    >>> longrope_frequencies(4, 10_000.0, [1.0, 1.0], [1.0, 4.0], original_length=100, length=101)
    [1.0, 0.0025]
    """
    factors = short if length <= original_length else long
    return [w / f for w, f in zip(inverse_frequencies(dim, theta), factors, strict=True)]


def longrope_magnitude(factor: float, original_length: int) -> float:
    """Give what queries and keys are multiplied by.

        sqrt(1 + ln(s) / ln(L_0)) if s > 1, else 1

    >>> longrope_magnitude(factor=8.0, original_length=2) == math.sqrt(4.0)
    True
    """
    return math.sqrt(1 + math.log(factor) / math.log(original_length)) if factor > 1 else 1.0


def llama3_frequencies(
    dim: int, theta: float, factor: float, original_length: int, low: float = 1.0, high: float = 4.0
) -> list[float]:
    """Keep short wavelengths, divide long ones, go over smoothly.

        w'_i = w_i                              2 pi / w_i < L_0 / high
        w'_i = w_i / s                          2 pi / w_i > L_0 / low
        w'_i = (1 - t) w_i / s + t w_i          else, t = (L_0 w_i / (2 pi) - low) / (high - low)

    Dubey et al. 2024, https://arxiv.org/abs/2407.21783; the formula is in Meta's code.

    >>> [round(w, 6) for w in llama3_frequencies(4, 10_000.0, factor=8.0, original_length=100)]
    [1.0, 0.00125]
    """
    out = []
    for w in inverse_frequencies(dim, theta):
        wavelength = 2 * math.pi / w
        if wavelength < original_length / high:
            out.append(w)
        elif wavelength > original_length / low:
            out.append(w / factor)
        else:
            t = (original_length / wavelength - low) / (high - low)
            out.append((1 - t) * w / factor + t * w)
    return out


def proportional_frequencies(dim: int, theta: float, share: float, factor: float = 1.0) -> list[float]:
    """Turn only the fastest share of the pairs.

        w'_i = w_i / s for i < floor(share dim / 2), else 0

    Barbero et al. 2024, https://arxiv.org/abs/2410.06205.

    >>> proportional_frequencies(4, 10_000.0, share=0.5)
    [1.0, 0.0]
    """
    turning = math.floor(share * dim / 2)
    return [w / factor if i < turning else 0.0 for i, w in enumerate(inverse_frequencies(dim, theta))]
