"""How far each pair of features turns per position."""

from whatwhere.reference.checks import require_even


def inverse_frequencies(dim: int, theta: float = 10_000.0) -> list[float]:
    """Give how far each pair of features turns per position, in radians.

        w_i = theta ** (-2 i / dim)        i = 0 .. dim/2 - 1

    Vaswani et al. 2017, section 3.5; Su et al. 2021, equation 15.

    >>> inverse_frequencies(4)
    [1.0, 0.01]
    """
    require_even("dim", dim)
    return [theta ** (-2 * i / dim) for i in range(dim // 2)]


def tensor2tensor_frequencies(dim: int, theta: float = 10_000.0) -> list[float]:
    """Give the frequencies of tensor2tensor and fairseq: the slowest one is exactly 1 / theta.

        w_i = theta ** (-i / (dim/2 - 1))        i = 0 .. dim/2 - 1

    Vaswani et al. 2018, https://arxiv.org/abs/1803.07416, as its code has it.

    >>> tensor2tensor_frequencies(4)
    [1.0, 0.0001]
    """
    require_even("dim", dim)
    if dim < 4:
        raise ValueError("tensor2tensor's frequencies divide by dim/2 - 1, so dim must be at least 4, not 2.")
    return [theta ** (-i / (dim // 2 - 1)) for i in range(dim // 2)]
