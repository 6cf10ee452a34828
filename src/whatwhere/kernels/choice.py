"""What the user asks for, fast paths or plain twins: without PyTorch, for kernels that serve NumPy."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from whatwhere.errors import SettingError

CHOICES = ("auto", "plain", "baseline", "avx2", "avx512")
VARIABLE = "WHATWHERE_KERNELS"

_plain: ContextVar[bool] = ContextVar("plain", default=False)
contexts = 0
"""Of `plain_kernels` that are open, in any thread."""


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
    return PLAIN_BY_ENVIRONMENT or plain_here()


def plain_here() -> bool:
    """Tell whether a context of this thread asks for them.

    >>> plain_here()
    False
    """
    return _plain.get()


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
    global contexts
    token = _plain.set(True)
    contexts += 1
    try:
        yield
    finally:
        contexts -= 1
        _plain.reset(token)


PLAIN_BY_ENVIRONMENT = chosen() == "plain"
