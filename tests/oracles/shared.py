"""What several oracles use: samples, heads, and comparisons."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

LENGTH = 512
ANGLES = LENGTH * 1.2e-7
"""Error of angles in float32, as theirs are: p * 6e-8 from the rounding of the angle, as much from the frequency."""


def queries_and_keys(head_dim: int, tokens: int = LENGTH, heads: int = 6, key_heads: int = 2) -> tuple[Tensor, Tensor]:
    """Sample queries and keys of two sequences."""
    return torch.randn(2, heads, tokens, head_dim), torch.randn(2, key_heads, tokens, head_dim)


def split(x: Tensor, head_dim: int = 8) -> Tensor:
    """Split features into heads, (..., tokens, features) -> (..., heads, tokens, head_dim)."""
    return x.unflatten(-1, (-1, head_dim)).transpose(-2, -3)


def merge(y: Tensor) -> Tensor:
    """Merge heads, the inverse of `split`."""
    return y.transpose(-2, -3).flatten(-2)


def table_of(element: Callable[..., Tensor], batch: int, heads: int, queries: int, keys: int) -> Tensor:
    """Evaluate a bias at all pairs."""
    b, h, i, j = (torch.arange(size) for size in (batch, heads, queries, keys))
    return element(b[:, None, None, None], h[:, None, None], i[:, None], j)


def require_close(ours: Iterable[Tensor], theirs: Iterable[Tensor], atol: float, rtol: float = 0.0) -> None:
    """Compare queries and keys, or cosines and sines."""
    for mine, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=rtol, atol=atol)
