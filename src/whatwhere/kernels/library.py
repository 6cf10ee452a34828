"""The compiled library: found and loaded, on PyTorch's own threads.

The kernels are C++ files of this folder, compiled when the package is installed, if there is a compiler. Without the
library PyTorch's own operations compute.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from whatwhere.errors import SettingError

CHOICES = ("auto", "pytorch", "baseline", "avx2", "avx512")
VARIABLE = "WHATWHERE_KERNELS"

LEVELS = ("baseline", "avx2", "avx512")
"""Of processors, as the kernels are compiled for; a processor can do its own level and all before it."""

FILE = Path(__file__).with_name("_native.so")


class Library:
    """The loaded library, at one level.

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
        """Return a kernel of this level, with the types of its arguments; it returns nothing."""
        return self.shared(f"{name}_{self.level}", *arguments)

    def shared(self, name: str, *arguments: type) -> Callable[..., None]:
        """Return a function that all levels share."""
        found: Any = getattr(self._loaded, name)
        found.argtypes, found.restype = list(arguments), None
        kernel: Callable[..., None] = found
        return kernel


def chosen() -> str:
    """Return what the environment requests: `auto`, `pytorch` for no kernels, or a level of the compiled library.

    Examples:
        >>> chosen() in CHOICES
        True
    """
    given = os.environ.get(VARIABLE, "auto") or "auto"
    if given not in CHOICES:
        raise SettingError(f"{VARIABLE} is {given!r}, but knows only: {', '.join(CHOICES)}.")
    return given


@cache
def library() -> Library | None:
    """Return the compiled library; None where it was not built or does not load here."""
    level = chosen()
    if level == "pytorch" or not FILE.exists():
        return None
    try:
        return Library(FILE, None if level == "auto" else level)
    except OSError:  # built for another system
        return None


def _pool() -> int | None:
    """Return the address of the function that runs work on PyTorch's threads; None where it cannot be found."""
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
