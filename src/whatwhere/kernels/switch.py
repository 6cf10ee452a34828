"""Fast paths or plain twins: one switch for all of them.

Every fast path stands beside a plain twin that gives the same numbers: in PyTorch's own operations, or in NumPy's. The
environment variable WHATWHERE_KERNELS and the context manager `plain_kernels` choose. What they ask for is held in
choice.py, which needs no PyTorch.
"""

import torch

from whatwhere.kernels import choice
from whatwhere.kernels.choice import PLAIN_BY_ENVIRONMENT as _PLAIN_BY_ENVIRONMENT
from whatwhere.kernels.choice import plain_kernels as plain_kernels


def plain() -> bool:
    """Tell whether the plain twins are asked for; this may be asked in a trace.

    >>> with plain_kernels():
    ...     plain()
    True
    """
    if torch.compiler.is_compiling():  # which asks no context variable, but compiles anew when a number has changed
        return _PLAIN_BY_ENVIRONMENT or choice.contexts > 0
    return _PLAIN_BY_ENVIRONMENT or choice.plain_here()
