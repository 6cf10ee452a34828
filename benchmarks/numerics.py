"""Sampled inputs, and errors against float64."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.case import Run
from whatwhere import pytorch_only


def fallback(run: Run) -> Run:
    """Wrap a run so that it uses PyTorch's or NumPy's own operations instead of compiled kernels.

    Args:
        run: a run of whatwhere.

    Returns:
        The same run, with kernels disabled.
    """

    def run_without_kernels() -> Any:
        with pytorch_only():
            return run()

    return run_without_kernels


def largest_difference(results: Any, truth: Sequence[Tensor]) -> float:
    """Return the largest absolute difference from the truth, over all tensors.

    Args:
        results: a tensor, or several; only as many rows are compared as the truth has.
        truth: float64, a tensor for each result.

    Returns:
        max |result - truth|.

    Raises:
        RuntimeError: If a result has another number of elements than its truth.
        ValueError: If there are more or fewer results than truths.

    Examples:
        >>> largest_difference(torch.tensor([1.0, 2.5, 9.0]), [torch.tensor([1.0, 2.0], dtype=torch.float64)])
        0.5
    """
    return max(difference for difference, _ in _differences(results, truth))


def largest_relative_difference(results: Any, truth: Sequence[Tensor]) -> float:
    """Return the largest difference of any tensor from the truth, divided by the largest number in that tensor.

    Args:
        results: a tensor, or several; only as many rows are compared as the truth has.
        truth: float64, a tensor for each result.

    Returns:
        The maximum over tensors of max |result - truth| / max |truth|.

    Raises:
        RuntimeError: If a result has another number of elements than its truth.
        ValueError: If there are more or fewer results than truths.

    Examples:
        >>> largest_relative_difference([torch.tensor([1.0, 2.5])], [torch.tensor([1.0, 2.0], dtype=torch.float64)])
        0.25
    """
    return max(difference / largest for difference, largest in _differences(results, truth))


def _differences(results: Any, truth: Sequence[Tensor]) -> list[tuple[float, float]]:
    parts = [results] if isinstance(results, Tensor) else list(results)
    pairs = []
    for part, true in zip(parts, truth, strict=True):
        # A shape that differs is an error of its own: broadcasting would hide it.
        rows = part.detach()[: len(true)] if true.dim() else part.detach()
        away = rows.cpu().double().view(true.shape) - true
        pairs.append((float(away.abs().max()), float(true.abs().max())))
    return pairs


def sampled(*shape: int, seed: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Float[Tensor, "*shape"]:
    """Return samples of N(0, 1), the same on every device.

    Args:
        shape: sizes of the tensor.
        seed: of the generator.
        dtype: to which float32 samples are rounded.
        device: where the tensor is put.

    Returns:
        The tensor.

    Examples:
        >>> torch.equal(sampled(3, seed=1), sampled(3, seed=1))
        True
    """
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    return values.to(device=device, dtype=dtype)
