"""The compiled library: found and loaded, without PyTorch, but on PyTorch's own threads where PyTorch is.

The kernels are C++ files of this folder, compiled when the package is installed, if there is a compiler. Without the
library every call takes its plain twin.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from whatwhere.kernels.choice import chosen

LEVELS = ("baseline", "avx2", "avx512")
"""Of processors, as the kernels are compiled for; a processor can do its own level and all before it."""

FILE = Path(__file__).with_name("_native.so")


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
        self.use_pool()

    def use_pool(self) -> None:
        """Run kernels on PyTorch's threads from now on, if it is loaded."""
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
    if level == "plain" or not FILE.exists():
        return None
    try:
        return Library(FILE, None if level == "auto" else level)
    except OSError:  # built for another system
        return None


def threads() -> int:
    """Give how many threads a kernel takes: PyTorch's number where it is loaded, else OMP_NUM_THREADS, else the cores.

    >>> threads() >= 1
    True
    """
    asked = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if asked is not None:
        return int(asked())
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if first.isdecimal() and int(first):
        return int(first)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _pool() -> int | None:
    """Give the address of the function that runs work on PyTorch's threads; None where it cannot be found."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if torch is None:
        return None
    home = Path(torch).parent / "lib"
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
