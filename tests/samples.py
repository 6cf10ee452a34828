"""Random tensors, and the whole table of a bias that depends on queries and keys."""

import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.where.score_bias import tabulate


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sample standard normal numbers in float32, and cast them."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def draw_float64(*shape: int, seed: int = 0) -> Tensor:
    """Sample standard normal numbers in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def table(
    scheme: ww.ScoreBias,
    queries: ww.Positions,
    keys: ww.Positions,
    q: Tensor | None = None,
    k: Tensor | None = None,
    gates: Tensor | None = None,
) -> Tensor:
    """Return every element of a bias, (batch, heads, queries, keys)."""
    content = gates if q is None else q
    assert content is not None
    element = scheme.bind(queries, keys, q=q, k=k, gates=gates)
    return tabulate(element, len(content), scheme.num_heads, queries.tokens, keys.tokens, content.device)
