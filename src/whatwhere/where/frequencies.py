"""Frequencies and angles: pure functions from whole-number positions, in float64.

Angles come from integer positions and float64 frequencies; only their cosine and sine are rounded, to float32. In
float32 throughout, the cosine is off by 5e-2 at position 1,000,000; this way by 3e-8.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Float32, Float64, Int64, Integer, Num
from torch import Tensor

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.kernels import turns

Layout = Literal["interleaved", "halves", "tensor2tensor"]
LAYOUTS: tuple[Layout, ...] = ("interleaved", "halves", "tensor2tensor")


def inverse_frequencies(
    dim: int, theta: float = 10_000.0, device: torch.device | str | None = None
) -> Float64[Tensor, " pairs"]:
    """Give how far each pair of features turns per position, in radians.

        w_i = theta ** (-2 i / dim)        i = 0 .. dim/2 - 1

    Args:
        dim: features, even.
        theta: above 0; the slowest pair needs nearly 2 pi theta positions for one turn.

    >>> inverse_frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    require_whole("inverse_frequencies", dim=dim)
    require_even("inverse_frequencies", "one frequency serves two features", dim=dim)
    require_positive("inverse_frequencies", theta=theta)
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=device) / dim
    return theta**-exponents


def tensor2tensor_frequencies(
    dim: int, theta: float = 10_000.0, device: torch.device | str | None = None
) -> Float64[Tensor, " pairs"]:
    """Give the frequencies of tensor2tensor and fairseq, whose slowest one is exactly 1 / theta.

        w_i = theta ** (-i / (dim/2 - 1))        i = 0 .. dim/2 - 1

    >>> tensor2tensor_frequencies(6)
    tensor([1.0000e+00, 1.0000e-02, 1.0000e-04], dtype=torch.float64)
    """
    require_whole("tensor2tensor_frequencies", dim=dim)
    require_even("tensor2tensor_frequencies", "one frequency serves two features", dim=dim)
    require_positive("tensor2tensor_frequencies", theta=theta)
    pairs = dim // 2
    if pairs < 2:
        raise ShapeError("tensor2tensor's frequencies divide by dim/2 - 1, so dim must be at least 4, not 2.")
    exponents = torch.arange(pairs, dtype=torch.float64, device=device) / (pairs - 1)
    return theta**-exponents


def layout_frequencies(
    dim: int, theta: float, layout: Layout, device: torch.device | str | None = None
) -> Float64[Tensor, " pairs"]:
    """Give the frequencies that a layout of the sinusoid uses.

    >>> layout_frequencies(4, 10_000.0, "halves")
    tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    require_choice("sinusoid", "layout", layout, LAYOUTS)
    if layout == "tensor2tensor":
        return tensor2tensor_frequencies(dim, theta, device)
    return inverse_frequencies(dim, theta, device)


def angles(
    index: Integer[Tensor, "*batch tokens"], frequencies: Float64[Tensor, "*#batch_tokens pairs"]
) -> Float64[Tensor, "... tokens pairs"]:
    """Multiply positions by frequencies, in float64; tokens may have frequencies of their own.

    A broadcast product, never a matrix product: under autocast `@` rounds position 257 to 256.

    >>> angles(torch.tensor([0, 2]), inverse_frequencies(2))
    tensor([[0.],
            [2.]], dtype=torch.float64)
    """
    return index.to(torch.float64)[..., None] * frequencies


def cos_sin(
    angles: Float64[Tensor, "*batch tokens pairs"], magnitude: float = 1.0
) -> tuple[Float32[Tensor, "*batch tokens pairs"], Float32[Tensor, "*batch tokens pairs"]]:
    """Give magnitude times cosine and sine, each rounded to float32 once.

    >>> cos_sin(torch.zeros(1, 1, dtype=torch.float64))
    (tensor([[1.]]), tensor([[0.]]))
    """
    cos, sin = angles.cos(), angles.sin()
    return (cos.float(), sin.float()) if magnitude == 1 else ((magnitude * cos).float(), (magnitude * sin).float())


def sent(
    values: Sequence[int] | Sequence[float], device: torch.device | str | None, dtype: torch.dtype | None = None
) -> Num[Tensor, " values"]:
    """Give numbers as a tensor on a device, without waiting for that to finish what it does.

    torch.tensor(values, device=device) waits for a GPU. These few numbers are read before the call returns, so nothing
    needs to wait.

    >>> sent((1.0, 0.5), "cpu")
    tensor([1.0000, 0.5000])
    """
    if device is None:
        return torch.tensor(values, dtype=dtype)
    return torch.tensor(values, dtype=dtype, device="cpu").to(device, non_blocking=True)


def turn_tables(
    index: Int64[Tensor, "axes batch tokens"],
    frequencies: Float64[Tensor, "*#batch_tokens pairs"],
    magnitude: float = 1.0,
    axis_of_pair: tuple[int, ...] | None = None,
) -> tuple[Float32[Tensor, "rows 1 tokens pairs"], Float32[Tensor, "rows 1 tokens pairs"]]:
    """Give magnitude times cosine and sine of every angle: one table for all heads and layers.

    Args:
        index: positions; of one axis, unless axis_of_pair says which axis each pair turns by.
        frequencies: of each pair, or of each token and pair.
        magnitude: a factor of both.
        axis_of_pair: of several axes, the one of each pair.

    >>> turn_tables(torch.tensor([[[0]], [[1]]]), torch.ones(2, dtype=torch.float64), axis_of_pair=(0, 1))[0].flatten()
    tensor([1.0000, 0.5403])
    """
    if turns.serves(index, frequencies):
        return turns.tables(index, frequencies, magnitude, axis_of_pair)
    if axis_of_pair is None:
        turned = angles(index[0], frequencies)
    else:  # (axes, batch, tokens) -> (batch, tokens, pairs): each pair takes the coordinate of its axis
        turned = index[sent(axis_of_pair, index.device)].movedim(0, -1).to(torch.float64) * frequencies
    cos, sin = cos_sin(turned, magnitude)
    return cos[:, None], sin[:, None]


def sinusoid(
    index: Integer[Tensor, "*batch tokens"], dim: int, theta: float = 10_000.0, layout: Layout = "interleaved"
) -> Float32[Tensor, "*batch tokens dim"]:
    """Give the sinusoidal vector of each position.

    interleaved     PE[p, 2i] = sin(p w_i)   PE[p, 2i+1] = cos(p w_i)        w_i = theta ** (-2i / dim)
    halves          PE[p, i]  = sin(p w_i)   PE[p, dim/2 + i] = cos(p w_i)   the same w_i
    tensor2tensor   as halves                                                w_i = theta ** (-i / (dim/2 - 1))

    >>> sinusoid(torch.tensor([1]), 4)
    tensor([[0.8415, 0.5403, 0.0100, 0.9999]])
    """
    frequencies = layout_frequencies(dim, theta, layout, index.device)
    if turns.serves(index, frequencies):
        return turns.sinusoid(index, frequencies, interleaved=layout == "interleaved")
    cos, sin = cos_sin(angles(index, frequencies))
    if layout == "interleaved":
        return torch.stack([sin, cos], dim=-1).flatten(-2)  # (..., pairs, 2) -> (..., dim)
    return torch.cat([sin, cos], dim=-1)


def offset_map(k: int, dim: int, theta: float = 10_000.0, layout: Layout = "interleaved") -> Float64[Tensor, "dim dim"]:
    """Give the matrix M that moves every sinusoidal vector by k positions, whatever the position.

        PE(p + k) = M PE(p)        each pair (sin, cos) turns by k w_i

    Args:
        k: the offset, negative for the past.

    >>> p = sinusoid(torch.tensor([5, 12]), 8).double()
    >>> torch.allclose(offset_map(7, 8) @ p[0], p[1], atol=1e-6)
    True
    """
    turn = k * layout_frequencies(dim, theta, layout)
    pairs = torch.arange(dim // 2)
    sines = 2 * pairs if layout == "interleaved" else pairs
    cosines = sines + 1 if layout == "interleaved" else sines + dim // 2
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    matrix[sines, sines] = matrix[cosines, cosines] = turn.cos()
    matrix[sines, cosines], matrix[cosines, sines] = turn.sin(), -turn.sin()
    return matrix


def wavelengths(frequencies: Float[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
    """Give how many positions each pair needs for one full turn, 2 pi / w_i.

    >>> wavelengths(inverse_frequencies(4))
    tensor([  6.2832, 628.3185], dtype=torch.float64)
    """
    return 2 * torch.pi / frequencies
