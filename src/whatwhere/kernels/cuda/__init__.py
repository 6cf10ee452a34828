"""The kernels for an NVIDIA GPU, in Triton.

They are compared with the PyTorch implementations on a GPU, and in Triton's interpreter where there is none; tests also
compile them for compute capability 8.0 and 9.0. Every kernel but attention's reads and writes each number once, so a
program handles a few thousand numbers, in accesses of 16 bytes; docs/speed.md has what was measured on an H200.

This file loads neither Triton nor a kernel; the others of this folder do, so kernels/backend.py imports them when used.
"""

from typing import Any

import torch
from torch import Tensor

_compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
"""Kernels that ran before, and their constants in order, by device, constants and `_kind` of each argument."""


def launch(kernel: Any, grid: tuple[int, ...], device: torch.device, *arguments: object, **constants: object) -> None:
    """Run a kernel on the device of its tensors; an empty grid runs nothing.

    Products and sums are rounded separately, as PyTorch's eager operations do: kernels compute the same numbers to the
    bit.
    """
    if 0 in grid:
        return
    # Triton launches on the current device, wherever its arguments are.
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        _run(kernel, grid, device, arguments, constants)
    else:
        with torch.cuda.device(device):
            _run(kernel, grid, device, arguments, constants)


def _run(
    kernel: Any, grid: tuple[int, ...], device: torch.device, arguments: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    """Run a kernel: one that was compiled before starts without Triton's reading all arguments and settings again."""
    key = (kernel.fn, device.index, *map(_kind, arguments), *constants.values())
    if (known := _compiled.get(key)) is not None:
        made, rest = known
        made[(*grid, 1, 1)[:3]](*arguments, *rest)
        return
    made = kernel[grid](*arguments, enable_fp_fusion=False, **constants)
    # Triton's interpreter returns nothing; AMD's kernels depend on the sizes of their tensors, too.
    if hasattr(made, "packed_metadata") and device.type == "cuda" and torch.version.hip is None:
        names = kernel.arg_names[len(arguments) :]
        if all(name in constants for name in names):
            _compiled[key] = made, tuple(constants[name] for name in names)


def _kind(x: object) -> object:
    """Return all that Triton compiles a kernel anew for: of a tensor the dtype and if 16 divides its address, of a
    whole number if it is 1, if 16 divides it, and if it needs 64 bits."""
    if isinstance(x, Tensor):
        return x.dtype, x.data_ptr() % 16 == 0
    if isinstance(x, int):
        return 1 if x == 1 else (x % 16 == 0, -(2**31) <= x < 2**31, x < 2**63)
    return type(x)


def covering(size: int, most: int) -> int:
    """Return the smallest power of two, as blocks must be, that covers a size, at most `most`."""
    return min(most, 1 << max(size - 1, 0).bit_length())
