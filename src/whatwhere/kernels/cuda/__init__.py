"""The fast paths on an NVIDIA GPU: kernels in Triton, each beside the plain twin that serves everywhere.

They have been compared with their twins in Triton's interpreter, and compiled for compute capability 8.0 and 9.0; none
has run on a GPU yet. The sizes of blocks are reasoned, not measured: every kernel reads and writes each number once, so
a program takes a few thousand numbers in accesses of 16 bytes.

This file loads neither Triton nor a kernel; the others of this folder do, so they are imported where they are used.
"""

from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from whatwhere.kernels.switch import plain

_PLAIN = (Tensor, torch.nn.Parameter)
_OLDEST = (8, 0)
"""Compute capability with bfloat16."""


def serves(*tensors: Tensor) -> bool:
    """Tell whether the kernels may take these tensors: plain ones on one GPU, nothing traced, not asked not to.

    >>> serves(torch.ones(2))
    False
    """
    if torch.compiler.is_compiling():  # first: what follows cannot be traced
        return False
    first = tensors[0]
    return (
        first.is_cuda
        and not plain()
        and all(
            type(x) in _PLAIN and x.device == first.device and torch._C._has_storage(x) and not x.is_neg()
            for x in tensors
        )
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._is_tracing()
        and forward_ad._current_level < 0
        and _runs_on(first.device)
    )


@cache
def _runs_on(device: torch.device) -> bool:
    fits = torch.version.hip is not None or torch.cuda.get_device_capability(device) >= _OLDEST
    return fits and find_spec("triton") is not None


def launch(kernel: Any, grid: tuple[int, ...], device: torch.device, *arguments: object, **constants: object) -> None:
    """Run a kernel where its tensors lie; a grid with no program runs nothing.

    Products and sums are rounded separately, as PyTorch's eager operations do: kernels equal their twins to the bit.
    """
    if 0 in grid:
        return
    # Triton launches on the current device, whatever its arguments lie on.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](*arguments, enable_fp_fusion=False, **constants)


def covering(size: int, most: int) -> int:
    """Give the smallest power of two, as blocks must be, that covers a size, or the most that is allowed.

    >>> covering(48, 512), covering(1, 512), covering(5000, 512)
    (64, 1, 512)
    """
    return min(most, 1 << max(size - 1, 0).bit_length())
