"""Fast paths or plain twins: one switch for all of them.

Every fast path stands beside a plain twin in PyTorch's own operations that gives the same numbers. The environment
variable WHATWHERE_KERNELS and the context manager `plain_kernels` choose.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from whatwhere.errors import SettingError

CHOICES = ("auto", "plain", "baseline", "avx2", "avx512")
VARIABLE = "WHATWHERE_KERNELS"

_plain: ContextVar[bool] = ContextVar("plain", default=False)
_open = 0  # contexts, of any thread


def chosen() -> str:
    """Give what the environment asks for: `auto`, `plain`, or a level of the compiled library.

    >>> chosen() in CHOICES
    True
    """
    given = os.environ.get(VARIABLE, "auto") or "auto"
    if given not in CHOICES:
        raise SettingError(f"{VARIABLE} is {given!r}, but knows only: {', '.join(CHOICES)}.")
    return given


def plain() -> bool:
    """Tell whether the plain twins are asked for.

    >>> with plain_kernels():
    ...     plain()
    True
    """
    if torch.compiler.is_compiling():  # which asks no context variable, but compiles anew when a number has changed
        return _PLAIN_BY_ENVIRONMENT or _open > 0
    return _PLAIN_BY_ENVIRONMENT or _plain.get()


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Compute with the plain twins of all fast paths, to compare them or to rule them out.

    WHATWHERE_KERNELS=plain does the same for a whole program; it is read when whatwhere is imported.

    >>> import torch
    >>> from whatwhere import Rotary, positions
    >>> rope, q = Rotary(head_dim=64), torch.randn(1, 2, 5, 64)
    >>> fast, _ = rope(q, q, positions(5))
    >>> with plain_kernels():
    ...     slow, _ = rope(q, q, positions(5))
    >>> torch.equal(fast, slow)
    True
    """
    global _open
    token = _plain.set(True)
    _open += 1
    try:
        yield
    finally:
        _open -= 1
        _plain.reset(token)


_PLAIN_BY_ENVIRONMENT = chosen() == "plain"
