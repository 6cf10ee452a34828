"""Initial values from a generator, and the one lock around PyTorch's global random state.

All random numbers of this library come from a `torch.Generator`, so that they depend on the seed alone. A user's own
code may know the global state only: it runs inside of `seeded`, one thread at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from math import sqrt
from threading import RLock

import torch
from torch import nn

from whatwhere.errors import SettingError

_GLOBAL_STATE = RLock()  # reentrant: a scheme that is built within another one seeds again


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's global random state within a block, one thread at a time; restore it afterwards.

    Args:
        seed: as `torch.manual_seed` takes it.

    Examples:
        >>> with seeded(7):
        ...     first = torch.rand(3)
        >>> torch.equal(first, torch.rand(3, generator=torch.Generator().manual_seed(7)))
        True
    """
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _GLOBAL_STATE, torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def reset(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Sample all parameters of a module anew, by the `reset_parameters` of each part that has some.

    Args:
        module: its parts come before itself. A part without parameters of its own that has `reset_parameters` resets
            all parts of its own by that.
        generator: to sample with; None is PyTorch's global random state. A part whose `reset_parameters` takes no
            generator samples with the global state, seeded from this one.

    Raises:
        SettingError: If a part has parameters, but no `reset_parameters`.

    Examples:
        >>> first, second = nn.Linear(2, 2), nn.Linear(2, 2)
        >>> for layer in (first, second):
        ...     reset(layer, torch.Generator().manual_seed(0))
        >>> torch.equal(first.weight, second.weight)
        True
    """
    reset_parameters = getattr(module, "reset_parameters", None)
    owns = next(module.parameters(recurse=False), None) is not None
    if owns or reset_parameters is None:
        for part in module.children():
            reset(part, generator)
    if reset_parameters is None:
        if owns:
            raise SettingError(
                f"{type(module).__name__} has parameters, but no reset_parameters, so they cannot be sampled anew.\n"
                "Write one: def reset_parameters(self, generator=None)."
            )
    elif generator is None:
        reset_parameters()
    elif "generator" in signature(reset_parameters).parameters:
        reset_parameters(generator=generator)
    else:
        with seeded(int(torch.randint(1 << 62, (), generator=generator, device=generator.device))):
            reset_parameters()


def reset_linear(layer: nn.Linear, generator: torch.Generator | None = None) -> None:
    """Sample a linear layer anew, as PyTorch does: weight and bias from U(-a, a), a = 1 / sqrt(in_features).

    Args:
        layer: its weight is sampled before its bias.
        generator: to sample with; None is PyTorch's global random state.
    """
    nn.init.kaiming_uniform_(layer.weight, a=sqrt(5), generator=generator)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -(layer.in_features**-0.5), layer.in_features**-0.5, generator=generator)
