"""Which tensors a kernel may read and write, and memory for those that it makes.

The library itself is loaded by library.py, which needs no PyTorch.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.autograd import forward_ad

from whatwhere.kernels.library import FILE
from whatwhere.kernels.library import LEVELS as LEVELS
from whatwhere.kernels.library import Library as Library
from whatwhere.kernels.library import library as library
from whatwhere.kernels.switch import plain


def serves(*tensors: Tensor) -> bool:
    """Tell whether a kernel may read these tensors' memory: plain tensors on the CPU, nothing traced, not asked not to.

    >>> serves(torch.empty(2, device="meta"))
    False
    """
    # A trace would take the result for a constant, and a dual number would lose its tangent, both in silence.
    if torch.compiler.is_compiling() or torch._C._is_tracing() or forward_ad._current_level >= 0 or plain():
        return False
    # Nor may a mode listen, nor any transform be at work.
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    # A loop, for this is asked at each step of decoding: all(...) costs as much as the questions.
    for x in tensors:
        if type(x) not in _PLAIN or not x.is_cpu or not torch._C._has_storage(x) or x.is_neg():
            return False
    return library() is not None


def in_huge_pages(fresh: Tensor) -> Tensor:
    """Ask for huge pages for a tensor that was just made and has not been written; small ones stay as they are.

    The C library takes memory of this size from the system anew for each tensor, and the system fills it with zeros a
    page at a time. That costs more than the work of a kernel, and less in huge pages.

    >>> in_huge_pages(torch.empty(2, 3)).shape
    torch.Size([2, 3])
    """
    if (size := fresh.numel() * fresh.element_size()) >= _FRESH and fresh.is_cpu:
        _huge()(fresh.data_ptr(), size)
    return fresh


@cache
def _huge() -> Callable[[int, int], None]:
    loaded = library()
    return loaded.shared("whatwhere_huge", ctypes.c_void_p, ctypes.c_int64) if loaded else lambda address, size: None


_FILE = FILE

_PLAIN = (Tensor, torch.nn.Parameter)

_FRESH = 32 << 20
"""Bytes from which glibc takes memory from the system each time."""

if library.cache_info().currsize and (_loaded := library()) is not None:  # before PyTorch was, for NumPy
    _loaded.use_pool()
