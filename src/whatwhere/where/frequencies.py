"""Frequencies and angles: pure functions of integer positions, in float64.

Angles come from integer positions and float64 frequencies; only their cosine and sine are rounded, to float32. In
float32 throughout, the error of a cosine is 5e-2 at position 1,000,000; this way it is 3e-8.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Float32, Float64, Num
from torch import Tensor

from whatwhere.checks import require_choice, require_even, require_positive, require_whole
from whatwhere.errors import ShapeError
from whatwhere.kernels import cos_sin as kernel

Layout = Literal["interleaved", "half", "tensor2tensor"]
LAYOUTS: tuple[Layout, ...] = ("interleaved", "half", "tensor2tensor")


def inverse_frequencies(
    dim: int, theta: float = 10_000.0, device: torch.device | str | None = None
) -> Float64[Tensor, " pairs"]:
    """Return the angle by which each pair of features is rotated per position, in radians.

        w_i = theta ** (-2 i / dim)        i = 0 .. dim/2 - 1

    Args:
        dim: features, even.
        theta: base of the frequencies, above 0; the slowest pair has a wavelength of nearly 2 pi theta positions.

    Examples:
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
    """Return the frequencies of tensor2tensor and fairseq, whose slowest one is exactly 1 / theta.

        w_i = theta ** (-i / (dim/2 - 1))        i = 0 .. dim/2 - 1

    Args:
        dim: features, even and at least 4.
        theta: above 0.

    Examples:
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
    """Return the frequencies used by a layout of the sinusoidal encoding.

    Examples:
        >>> layout_frequencies(4, 10_000.0, "half")
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    require_choice("sinusoid", "layout", layout, LAYOUTS)
    if layout == "tensor2tensor":
        return tensor2tensor_frequencies(dim, theta, device)
    return inverse_frequencies(dim, theta, device)


def angles(
    index: Num[Tensor, "*batch tokens"], frequencies: Float64[Tensor, "*#batch_tokens pairs"]
) -> Float64[Tensor, "... tokens pairs"]:
    """Multiply positions by frequencies, in float64; frequencies may differ between tokens.

    A broadcast product, never a matrix product: under autocast `@` rounds position 257 to 256.

    Args:
        index: positions.
        frequencies: for each pair, or for each token and pair.

    Examples:
        >>> angles(torch.tensor([0, 2]), inverse_frequencies(2))
        tensor([[0.],
                [2.]], dtype=torch.float64)
    """
    return index.to(torch.float64)[..., None] * frequencies


def cos_sin(
    angles: Float64[Tensor, "*batch tokens pairs"], magnitude: float = 1.0, dtype: torch.dtype = torch.float32
) -> tuple[Float[Tensor, "*batch tokens pairs"], Float[Tensor, "*batch tokens pairs"]]:
    """Return magnitude times cosine and sine, rounded once.

    Args:
        angles: in radians.
        magnitude: factor of both.
        dtype: of the results.

    Examples:
        >>> cos_sin(torch.zeros(1, 1, dtype=torch.float64))
        (tensor([[1.]]), tensor([[0.]]))
    """
    cos, sin = angles.cos(), angles.sin()
    cos, sin = (cos, sin) if magnitude == 1 else (magnitude * cos, magnitude * sin)
    return cos.to(dtype), sin.to(dtype)


def to_device(
    values: Sequence[int] | Sequence[float], device: torch.device | str | None, dtype: torch.dtype | None = None
) -> Num[Tensor, " values"]:
    """Return numbers as a tensor on a device, without synchronizing with it.

    `torch.tensor(values, device=device)` waits for a GPU. A copy from pageable memory has read its source when the call
    returns, so it needs no synchronization.
    """
    if device is None:
        return torch.tensor(values, dtype=dtype)
    return torch.tensor(values, dtype=dtype, device="cpu").to(device, non_blocking=True)


def rotary_tables(
    index: Num[Tensor, "axes batch tokens"],
    frequencies: Float64[Tensor, "*#batch_tokens pairs"],
    magnitude: float = 1.0,
    axis_of_pair: tuple[int, ...] | None = None,
) -> tuple[Float32[Tensor, "rows 1 tokens pairs"], Float32[Tensor, "rows 1 tokens pairs"]]:
    """Return magnitude times cosine and sine of every angle: one pair of tables for all heads and layers.

    Args:
        index: positions; of one axis, unless axis_of_pair is passed.
        frequencies: for each pair, or for each token and pair.
        magnitude: factor of both tables.
        axis_of_pair: for each pair, the axis whose coordinate rotates it.

    Examples:
        >>> index = torch.tensor([[[0]], [[1]]])
        >>> cos, sin = rotary_tables(index, torch.ones(2, dtype=torch.float64), axis_of_pair=(0, 1))
        >>> cos.flatten()
        tensor([1.0000, 0.5403])
    """
    if (tables := kernel.tables(index, frequencies, magnitude, axis_of_pair)) is not None:
        return tables
    if axis_of_pair is None:
        radians = angles(index[0], frequencies)
    else:  # (axes, batch, tokens) -> (batch, tokens, pairs): each pair takes the coordinate of its axis
        radians = index[to_device(axis_of_pair, index.device)].movedim(0, -1).to(torch.float64) * frequencies
    cos, sin = cos_sin(radians, magnitude)
    return cos[:, None], sin[:, None]


def sinusoid(
    index: Num[Tensor, "*batch tokens"], dim: int, theta: float = 10_000.0, layout: Layout = "interleaved"
) -> Float32[Tensor, "*batch tokens dim"]:
    """Return the sinusoidal vector of each position.

        interleaved     PE[p, 2i] = sin(p w_i)   PE[p, 2i+1] = cos(p w_i)        w_i = theta ** (-2i / dim)
        half            PE[p, i]  = sin(p w_i)   PE[p, dim/2 + i] = cos(p w_i)   the same w_i
        tensor2tensor   as half                                                  w_i = theta ** (-i / (dim/2 - 1))

    Args:
        index: positions.
        dim: features, even.
        theta: base of the frequencies, above 0.
        layout: `interleaved`, `half` or `tensor2tensor`.

    Examples:
        >>> sinusoid(torch.tensor([1]), 4)
        tensor([[0.8415, 0.5403, 0.0100, 0.9999]])
    """
    frequencies = layout_frequencies(dim, theta, layout, index.device)
    if (vectors := kernel.sinusoid(index, frequencies, interleaved=layout == "interleaved")) is not None:
        return vectors
    cos, sin = cos_sin(angles(index, frequencies))
    if layout == "interleaved":
        return torch.stack([sin, cos], dim=-1).flatten(-2)  # (..., pairs, 2) -> (..., dim)
    return torch.cat([sin, cos], dim=-1)


def offset_map(k: int, dim: int, theta: float = 10_000.0, layout: Layout = "interleaved") -> Float64[Tensor, "dim dim"]:
    """Return the matrix M that shifts every sinusoidal vector by k positions, whatever the position.

        PE(p + k) = M PE(p)        each pair (sin, cos) is rotated by k w_i

    Args:
        k: the offset, negative towards earlier positions.
        dim, theta, layout: as for `sinusoid`.

    Examples:
        >>> p = sinusoid(torch.tensor([5, 12]), 8).double()
        >>> torch.allclose(offset_map(7, 8) @ p[0], p[1], atol=1e-6)
        True
    """
    radians = k * layout_frequencies(dim, theta, layout)
    pairs = torch.arange(dim // 2)
    sines = 2 * pairs if layout == "interleaved" else pairs
    cosines = sines + 1 if layout == "interleaved" else sines + dim // 2
    matrix = torch.zeros(dim, dim, dtype=torch.float64)
    matrix[sines, sines] = matrix[cosines, cosines] = radians.cos()
    matrix[sines, cosines], matrix[cosines, sines] = radians.sin(), -radians.sin()
    return matrix


def wavelengths(frequencies: Float[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
    """Return the number of positions in which each pair completes one rotation, 2 pi / w_i.

    Args:
        frequencies: in radians per position.

    Examples:
        >>> wavelengths(inverse_frequencies(4))
        tensor([  6.2832, 628.3185], dtype=torch.float64)
    """
    return 2 * torch.pi / frequencies
