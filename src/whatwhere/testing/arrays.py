"""Functions of other arrays than PyTorch's, such as NumPy's, JAX's or MLX's, as the checks take them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack


def of_arrays(fn: Callable[..., Any], convert: Callable[[np.ndarray], Any] = np.asarray) -> Callable[..., Tensor]:
    """Return a function of tensors from a function of other arrays, for `check_rotary` and the other checks.

    What NumPy cannot hold, bfloat16 and gradients, is not asked of it: the laws about these then do not apply.

    Args:
        fn: takes and returns arrays: of NumPy, or of a library whose arrays NumPy or DLPack can read.
        convert: makes such arrays from those of NumPy: `jax.numpy.asarray`, `mlx.core.array`; NumPy's own stay as they
            are.

    Examples:
        >>> from whatwhere.testing import check_rotary
        >>> def rotate(x, positions):
        ...     angles = positions[:, None] * 10_000.0 ** (-np.arange(0, 8, 2) / 8)
        ...     cos, sin, (a, b) = np.cos(angles), np.sin(angles), np.split(x.astype(np.float64), 2, axis=-1)
        ...     return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)
        >>> report = check_rotary(of_arrays(rotate), head_dim=8)
        >>> report.passed, report["formula"].outcome
        (True, 'passes')
    """

    def of_tensors(*inputs: Tensor) -> Tensor:
        for x in inputs:
            if x.requires_grad:
                raise NotImplementedError("arrays record no gradients for PyTorch")
            if x.dtype == torch.bfloat16:
                raise NotImplementedError("NumPy has no bfloat16")
        result: Tensor = _as_tensor(fn(*(convert(x.detach().cpu().numpy()) for x in inputs)))
        return result  # what is not a tensor is named by the check

    return of_tensors


def _as_tensor(result: Any) -> Any:
    """Return an array as a tensor of its own memory; what is not an array is left to the check, which names it."""
    if isinstance(result, Tensor | str | bytes) or result is None:
        return result
    if hasattr(result, "__array__") or isinstance(result, np.ndarray):
        return torch.from_numpy(np.array(result))
    return from_dlpack(result).clone() if hasattr(result, "__dlpack__") else result
