"""Cosine and sine of positions times frequencies, in one pass: angles in float64, results rounded to float32 once.

The PyTorch implementation is `cos_sin` of `angles`, in where/frequencies.py. Both are as exact as
float32 can be; where a float64 angle is about halfway between two float32 results, they may round differently.
"""

from collections.abc import Callable
from struct import Struct

import torch
from jaxtyping import Float32, Float64, Int64, Num
from torch import Tensor

from whatwhere.kernels import backend

_STREAM = 16 << 20  # bytes from which a table is written past the caches
_JOB = Struct("5Pd12q").pack  # the kernel's argument: ctypes passes one string of bytes faster than 18 numbers


def _kernel(index: Tensor, frequencies: Tensor) -> Callable[..., None] | None:
    if index.dtype != torch.int64 or frequencies.dtype != torch.float64 or frequencies.requires_grad:
        return None
    return backend.kernel_for("cos_sin", index, frequencies)


def tables(
    index: Num[Tensor, "axes batch tokens"],
    frequencies: Float64[Tensor, "*#batch_tokens pairs"],
    magnitude: float = 1.0,
    axis_of_pair: tuple[int, ...] | None = None,
) -> tuple[Float32[Tensor, "rows 1 tokens pairs"], Float32[Tensor, "rows 1 tokens pairs"]] | None:
    """Return magnitude times cosine and sine of each pair's angle, for all heads; None if the kernel cannot be used."""
    if (kernel := _kernel(index, frequencies)) is None:
        return None
    _, rows, tokens = index.shape
    pairs = frequencies.shape[-1]
    if frequencies.dim() > 1:
        rows, tokens = torch.broadcast_shapes((rows, tokens), frequencies.shape[:-1])
        index, frequencies = index.expand(-1, rows, tokens), frequencies.expand(rows, tokens, pairs)
    cos = torch.empty((rows, 1, tokens, pairs), dtype=torch.float32, device=index.device)
    sin = torch.empty_like(cos)
    axes = None if axis_of_pair is None else torch.tensor(axis_of_pair, device="cpu")
    if axes is not None and index.is_cuda:
        axes = axes.to(index.device, non_blocking=True)  # memory of any kind is read before the call returns
    _fill(kernel, index, frequencies, cos, sin, pairs, magnitude, axes)
    return cos, sin


def sinusoid(
    index: Num[Tensor, "*batch tokens"], frequencies: Float64[Tensor, " pairs"], interleaved: bool
) -> Float32[Tensor, "*batch tokens dim"] | None:
    """Return the sinusoidal vector of each position, by frequencies in radians; None if the kernel cannot be used."""
    if (kernel := _kernel(index, frequencies)) is None:
        return None
    pairs = frequencies.shape[0]
    vectors = torch.empty((*index.shape, 2 * pairs), dtype=torch.float32, device=index.device)
    rows = vectors.view(-1, 2 * pairs)
    _fill(kernel, index.reshape(1, 1, -1), frequencies, rows[:, pairs:], rows, 2 * pairs, interleaved=interleaved)
    return vectors


def _fill(
    kernel: Callable[..., None],
    index: Int64[Tensor, "axes batch tokens"],
    frequencies: Tensor,
    cos: Tensor,
    sin: Tensor,
    row: int,
    magnitude: float = 1.0,
    axis_of_pair: Tensor | None = None,
    interleaved: bool = False,
) -> None:
    """Fill tables whose rows are `row` numbers apart."""
    _, rows, tokens = index.shape
    pairs, steps = frequencies.shape[-1], frequencies.stride()
    if steps[-1] != 1:
        frequencies = frequencies.contiguous()
        steps = frequencies.stride()
    if index.is_cuda:
        kernel(index, frequencies, cos, sin, row, magnitude, axis_of_pair, interleaved)
        return
    large = 4 * rows * tokens * row >= _STREAM
    if large:
        backend.in_huge_pages(sin)
        backend.in_huge_pages(cos)
    # Whole cache lines, of 16 numbers each.
    stream = large and pairs % 16 == 0 and not (cos.data_ptr() | sin.data_ptr()) % 64
    job = _JOB(
        *(0 if x is None else x.data_ptr() for x in (index, frequencies, axis_of_pair, cos, sin)),
        *(magnitude, interleaved, stream, rows, tokens, pairs, *index.stride()),
        *(*(steps[:2] if len(steps) > 1 else (0, 0)), row, torch.get_num_threads()),
    )
    kernel(job)
