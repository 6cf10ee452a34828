"""Cosine and sine of positions times frequencies, in one pass: angles in float64, results rounded to float32 once.

The plain twin is `cos_sin` of `angles`, in where/frequencies.py. Both are as exact as float32 can be; where float64
angles leave it open which float32 number is next, they may take different ones.
"""

from collections.abc import Callable
from ctypes import c_char_p
from functools import cache
from struct import Struct

import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from whatwhere.kernels import native

_STREAM = 16 << 20
"""Bytes from which a table is written past the caches."""
_JOB = Struct("5Pd12q").pack
"""The kernel's argument: one string of bytes is handed over faster than 18 numbers."""


def serves(index: Tensor, frequencies: Tensor) -> bool:
    """Tell whether the kernel may make a table of these.

    >>> serves(torch.zeros(1, 2), torch.ones(1, dtype=torch.float64))  # positions are whole numbers
    False
    """
    return (
        native.serves(index, frequencies)
        and index.dtype == torch.int64
        and frequencies.dtype == torch.float64
        and not frequencies.requires_grad
    )


def tables(
    index: Int64[Tensor, "axes batch tokens"],
    frequencies: Float64[Tensor, "*#batch_tokens pairs"],
    magnitude: float = 1.0,
    axis_of_pair: tuple[int, ...] | None = None,
) -> tuple[Float32[Tensor, "rows 1 tokens pairs"], Float32[Tensor, "rows 1 tokens pairs"]]:
    """Give magnitude times cosine and sine of each pair's angle, for all heads.

    Args:
        index: positions; of one axis, unless axis_of_pair says which axis each pair turns by.
        frequencies: of each pair, or of each token and pair.
        magnitude: a factor of both.
        axis_of_pair: of several axes, the one of each pair.

    >>> cos, sin = tables(torch.tensor([[[0, 1]]]), torch.ones(1, dtype=torch.float64))
    >>> cos.flatten(), sin.flatten()
    (tensor([1.0000, 0.5403]), tensor([0.0000, 0.8415]))
    """
    _, rows, tokens = index.shape
    pairs = frequencies.shape[-1]
    if frequencies.dim() > 1:
        rows, tokens = torch.broadcast_shapes((rows, tokens), frequencies.shape[:-1])
        index, frequencies = index.expand(-1, rows, tokens), frequencies.expand(rows, tokens, pairs)
    cos = torch.empty((rows, 1, tokens, pairs), dtype=torch.float32, device="cpu")
    sin = torch.empty_like(cos)
    axes = None if axis_of_pair is None else torch.tensor(axis_of_pair, device="cpu")
    _fill(index, frequencies, cos, sin, pairs, magnitude, axes)
    return cos, sin


def sinusoid(
    index: Int64[Tensor, "*batch tokens"], frequencies: Float64[Tensor, " pairs"], interleaved: bool
) -> Float32[Tensor, "*batch tokens dim"]:
    """Give the sinusoidal vector of each position: sines and cosines side by side, or all sines first.

    >>> sinusoid(torch.tensor([0, 1]), torch.ones(1, dtype=torch.float64), interleaved=True)
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]])
    """
    pairs = frequencies.shape[0]
    vectors = torch.empty((*index.shape, 2 * pairs), dtype=torch.float32, device="cpu")
    rows = vectors.view(-1, 2 * pairs)
    _fill(index.reshape(1, 1, -1), frequencies, rows[:, pairs:], rows, 2 * pairs, interleaved=interleaved)
    return vectors


def _fill(
    index: Int64[Tensor, "axes batch tokens"],
    frequencies: Tensor,
    cos: Tensor,
    sin: Tensor,
    row: int,
    magnitude: float = 1.0,
    axis_of_pair: Tensor | None = None,
    interleaved: bool = False,
) -> None:
    """Fill tables whose rows have so many numbers."""
    _, rows, tokens = index.shape
    pairs, steps = frequencies.shape[-1], frequencies.stride()
    if steps[-1] != 1:
        frequencies = frequencies.contiguous()
        steps = frequencies.stride()
    large = 4 * rows * tokens * row >= _STREAM
    if large:
        native.in_huge_pages(sin)
        native.in_huge_pages(cos)
    job = _JOB(
        index.data_ptr(),
        frequencies.data_ptr(),
        0 if axis_of_pair is None else axis_of_pair.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        magnitude,
        interleaved,
        # Whole lines of the caches, in each of which 16 numbers stand.
        large and pairs % 16 == 0 and not (cos.data_ptr() | sin.data_ptr()) % 64,
        rows,
        tokens,
        pairs,
        *index.stride(),
        *(steps[:2] if len(steps) > 1 else (0, 0)),
        row,
        torch.get_num_threads(),
    )
    _kernel()(job)


@cache
def _kernel() -> Callable[[bytes], None]:
    library = native.library()
    assert library is not None  # as `serves` has found
    return library.function("turns", c_char_p)
