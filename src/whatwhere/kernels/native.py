"""The compiled library: found, loaded, and run on PyTorch's own threads.

The kernels are C++ files of this folder, compiled when the package is installed, if there is a compiler. Without the
library every call takes its plain twin.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from whatwhere.kernels.switch import chosen, plain

LEVELS = ("baseline", "avx2", "avx512")
"""Of processors, as the kernels are compiled for; a processor can do its own level and all before it."""

_FILE = Path(__file__).with_name("_native.so")


class Library:
    """Hold the loaded library, at one level.

    Args:
        level: of LEVELS; functions are taken from there.
    """

    def __init__(self, file: Path, level: str | None = None) -> None:
        self._loaded = ctypes.CDLL(str(file))
        best = self._loaded.whatwhere_level()
        self.level = LEVELS[best] if level is None or level not in LEVELS[: best + 1] else level
        self._loaded.whatwhere_sources.restype = ctypes.c_char_p
        self.sources = self._loaded.whatwhere_sources().decode()
        self._loaded.whatwhere_use_pool.argtypes = [ctypes.c_void_p]
        self._loaded.whatwhere_use_pool(_pool())

    def function(self, name: str, *arguments: type) -> Callable[..., None]:
        """Give a kernel of this level, with the types of its arguments; it returns nothing."""
        return self.shared(f"{name}_{self.level}", *arguments)

    def shared(self, name: str, *arguments: type) -> Callable[..., None]:
        """Give a function that all levels share."""
        found: Any = getattr(self._loaded, name)
        found.argtypes, found.restype = list(arguments), None
        kernel: Callable[..., None] = found
        return kernel


@cache
def library() -> Library | None:
    """Give the compiled library; None where it was not built or does not load here."""
    level = chosen()
    if level == "plain" or not _FILE.exists():
        return None
    try:
        return Library(_FILE, None if level == "auto" else level)
    except OSError:  # built for another system
        return None


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


_PLAIN = (Tensor, torch.nn.Parameter)

_FRESH = 32 << 20
"""Bytes from which glibc takes memory from the system each time."""


def _pool() -> int | None:
    """Give the address of the function that runs work on PyTorch's threads; None where it cannot be found."""
    home = Path(torch.__file__).parent / "lib"
    shipped = [str(path) for path in sorted(home.glob("lib*omp*")) if ".so" in path.name or path.suffix == ".dylib"]
    shared = {"linux": ["libgomp.so.1", "libiomp5.so"], "darwin": ["libomp.dylib"]}
    for name in [*shipped, *shared.get(sys.platform, [])]:
        try:
            # Only a library that is in this process already: another pool is what must not be.
            loaded = ctypes.CDLL(name, mode=_ONLY_LOADED)
            return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    return None


_ONLY_LOADED = 4 if sys.platform == "linux" else 0x10  # RTLD_NOLOAD
