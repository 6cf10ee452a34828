"""Inputs of attention, and a watcher of how much memory it takes."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class LargestTensor(TorchDispatchMode):
    """Record the size of the largest tensor that any operation returns.

    `numbers` is the number of elements that its storage has room for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and compare the sizes of its results."""
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


def queries_keys_values(
    heads: int, key_heads: int, tokens: int, head_dim: int = 16, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Return sampled queries, keys and values of two sequences, which require gradients."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, n, tokens, head_dim, generator=generator).to(dtype).requires_grad_()
        for n in (heads, key_heads, key_heads)
    ]
