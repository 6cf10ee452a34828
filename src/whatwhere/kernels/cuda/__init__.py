"""The kernels for an NVIDIA GPU, in Triton.

They are compared with the PyTorch implementations on a GPU, and in Triton's interpreter where there is none; tests also
compile them for compute capability 8.0 and 9.0. Every kernel reads and writes each number once, so a program handles a
few thousand numbers, in accesses of 16 bytes; docs/speed.md has what was measured on an H200.

This file loads neither Triton nor a kernel; the others of this folder do, so kernels/backend.py imports them when used.
"""

from contextlib import nullcontext
from typing import Any

import torch


def launch(kernel: Any, grid: tuple[int, ...], device: torch.device, *arguments: object, **constants: object) -> None:
    """Run a kernel on the device of its tensors; an empty grid runs nothing.

    Products and sums are rounded separately, as PyTorch's eager operations do: kernels compute the same numbers to the
    bit.
    """
    if 0 in grid:
        return
    # Triton launches on the current device, wherever its arguments are.
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[grid](*arguments, enable_fp_fusion=False, **constants)


def covering(size: int, most: int) -> int:
    """Return the smallest power of two, as blocks must be, that covers a size, at most `most`."""
    return min(most, 1 << max(size - 1, 0).bit_length())
