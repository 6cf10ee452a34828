"""Checks of tensors: exact where values can be read, asynchronous where reading would stall a device."""

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from whatwhere.errors import SettingError, ShapeError, TokenError

T = TypeVar("T")


def readable(values: Tensor) -> bool:
    """Return whether the values may be read here: on the CPU, eagerly, outside of any transform.

    Elsewhere a read costs a synchronization (accelerators) or breaks the trace (compile, export, vmap).
    """
    return (
        values.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not isinstance(values, FakeTensor)
        and not torch._C._functorch.is_functorch_wrapped_tensor(values)
    )


def require_range(values: Tensor, limit: int, error: Callable[[int, tuple[int, ...]], Exception]) -> None:
    """Raise unless 0 <= value < limit for every value; where they cannot be read, stop the program on the device.

    `error` makes the error from the first offending value and its index.
    """
    if values.device.type == "meta" or isinstance(values, FakeTensor):
        return
    # Under vmap no check can run, but a lookup raises its own error. `is_functorch_wrapped_tensor` cannot be
    # compiled, hence the order of the two.
    if not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(values):
        return
    if readable(values):
        if values.numel() == 0:
            return
        if not values.is_signed() and values.dtype != torch.uint8:
            values = values.long()  # PyTorch has no aminmax of its wider unsigned dtypes
        low, high = values.aminmax()
        if low < 0 or high >= limit:
            values = values.full_tensor() if hasattr(values, "full_tensor") else values  # a DTensor has no nonzero()
            slot = tuple(int(n) for n in ((values < 0) | (values >= limit)).nonzero()[0])
            raise error(int(values[slot]), slot)
        return
    inside = ((values >= 0) & (values < limit)).all()
    torch._assert_async(inside, f"a value lies outside 0..{limit - 1}" if isinstance(limit, int) else "out of range")


def require_device(name: str, x: Tensor, device: torch.device) -> None:
    """Raise SettingError unless a tensor is on the device of the positions."""
    if x.device != device:
        raise SettingError(
            f"{name} is on {x.device}, but the positions on {device}.\n"
            f"Make them there, or move them: positions.to({name}.device)."
        )


def require_generator(owner: str, generator: torch.Generator | None, parameter: Tensor) -> None:
    """Raise SettingError unless a generator can sample a parameter: both on one device, or the parameter on meta.

    None is PyTorch's global random state, which each device has.
    """
    if generator is None or parameter.is_meta or generator.device.type == parameter.device.type:
        return
    raise SettingError(
        f"{owner} has its parameters on {parameter.device}, but got a generator on {generator.device}.\n"
        f"Pass torch.Generator({parameter.device.type!r}), or sample on {generator.device} and move them afterwards."
    )


def require_tensors(**given: object) -> None:
    """Raise SettingError unless arguments are tensors, or what torch.fx traces with."""
    for name, x in given.items():
        if not hasattr(x, "is_floating_point"):
            way = f"torch.from_numpy({name})" if hasattr(x, "__array__") else f"torch.tensor({name})"
            raise SettingError(f"{name} is of type {type(x).__name__}, but a tensor is needed.\nPass {way}.")


def require_returned(owner: str, given: T, needed: str = "a tensor") -> T:
    """Return what a scheme's own code returned, if it is a tensor, or where that is needed a function."""
    if hasattr(given, "is_floating_point") if needed == "a tensor" else callable(given):
        return given
    raise SettingError(f"{owner} returned a {type(given).__name__}, but needs {needed}.")


def require_floating(owner: str, **tensors: Tensor) -> None:
    """Raise ShapeError unless every tensor is floating-point: into integers, results would be truncated silently."""
    for name, x in tensors.items():
        if not x.is_floating_point():
            raise ShapeError(
                f"{owner} got {name} of dtype {x.dtype}, but needs a floating-point dtype.\nPass {name}.float()."
            )


def require_ids(ids: Any, name: str = "ids") -> None:
    """Raise TokenError unless token ids are a tensor of whole numbers."""
    # What torch.fx traces with is not a Tensor, but has its methods.
    if not hasattr(ids, "is_floating_point"):
        raise TokenError(
            f"{name} were given as {type(ids).__name__}, but must be a tensor of whole numbers.\n"
            f"Pass torch.tensor({name}), with a row for each sequence."
        )
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TokenError(f"{name} are whole numbers, but these have dtype {ids.dtype}.\nPass {name}.long().")


def as_whole(value: object) -> int | None:
    """Return an integer of any type (NumPy's, a tensor of one number) as a Python int; None for anything else.

    A symbolic size of a trace is returned as it is.
    """
    # A tuple of types and no union: torch.compile of PyTorch 2.9 cannot trace one.
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return value  # type: ignore[return-value]
    # Nor can that of 2.11 catch the TypeError of what is None.
    if value is None or isinstance(value, bool) or getattr(value, "dtype", None) in (bool, torch.bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # PyTorch raises the latter for a tensor of several numbers
        return None
