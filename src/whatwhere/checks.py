"""Checks of arguments: exact where values can be read, asynchronous where reading would stall a device."""

import operator
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from whatwhere.errors import SettingError, ShapeError


def readable(values: Tensor) -> bool:
    """Return whether the values may be read here: on the CPU, eagerly, outside of any transform.

    Elsewhere a read costs a synchronization (accelerators) or breaks the trace (compile, export, vmap).

    Examples:
        >>> readable(torch.tensor([1, 2])), readable(torch.empty(2, device="meta"))
        (True, False)
    """
    return (
        values.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not isinstance(values, FakeTensor)
        and not torch._C._functorch.is_functorch_wrapped_tensor(values)
    )


def require_range(values: Tensor, limit: int, error: Callable[[int, tuple[int, ...]], Exception]) -> None:
    """Raise unless 0 <= value < limit for every value.

    Args:
        values: whole numbers, any shape.
        limit: one more than the largest value allowed.
        error: makes the error from the first offending value and its index.

    Where the values cannot be read, the check runs on the device and stops the program there.

    Raises:
        Exception: If a value is out of range; it is what `error` returns.

    Examples:
        >>> require_range(torch.tensor([0, 7]), 5, lambda value, slot: IndexError(f"{value} at {slot}"))
        Traceback (most recent call last):
        IndexError: 7 at (1,)
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
    """Raise SettingError unless a tensor is on the device of the positions.

    Args:
        name: of the tensor, for the error.
        x: the tensor.
        device: of the positions.

    Raises:
        SettingError: If they are on different devices.

    Examples:
        >>> require_device("q", torch.empty(1, device="meta"), torch.device("cpu"))
        Traceback (most recent call last):
        whatwhere.errors.SettingError: q is on meta, but the positions on cpu.
        Make them there, or move them: positions.to(q.device).
    """
    if x.device != device:
        raise SettingError(
            f"{name} is on {x.device}, but the positions on {device}.\n"
            f"Make them there, or move them: positions.to({name}.device)."
        )


def require_generator(owner: str, generator: torch.Generator | None, parameter: Tensor) -> None:
    """Raise SettingError unless a generator can sample a parameter: both on one device, or the parameter on meta.

    Args:
        owner: whose parameter it is.
        generator: None is PyTorch's global random state, which each device has.
        parameter: to be sampled.

    Raises:
        SettingError: If they are on different devices.

    Examples:
        >>> require_generator("Learned", torch.Generator(), torch.empty(2))
    """
    if generator is None or parameter.is_meta or generator.device.type == parameter.device.type:
        return
    raise SettingError(
        f"{owner} has its parameters on {parameter.device}, but got a generator on {generator.device}.\n"
        f"Pass torch.Generator({parameter.device.type!r}), or sample on {generator.device} and move them afterwards."
    )


def require_whole(owner: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is a whole number of at least 1.

    Args:
        owner: named in the error.
        sizes: by name.

    Raises:
        ShapeError: If one is not.

    Examples:
        >>> require_whole("ALiBi", num_heads=0)
        Traceback (most recent call last):
        whatwhere.errors.ShapeError: ALiBi got num_heads=0, but needs a whole number of at least 1.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShapeError(f"{owner} got {name}={size!r}, but needs a whole number of at least 1.")


def require_floating(owner: str, **tensors: Tensor) -> None:
    """Raise ShapeError unless every tensor is floating-point: into integers, results would be truncated silently.

    Args:
        owner: named in the error.
        tensors: by name.

    Raises:
        ShapeError: If one is not.

    Examples:
        >>> require_floating("Rotary", q=torch.tensor([1, 2]))
        Traceback (most recent call last):
        whatwhere.errors.ShapeError: Rotary got q of dtype torch.int64, but needs a floating-point dtype.
        Pass q.float().
    """
    for name, x in tensors.items():
        if not x.is_floating_point():
            raise ShapeError(
                f"{owner} got {name} of dtype {x.dtype}, but needs a floating-point dtype.\nPass {name}.float()."
            )


def as_whole(value: object) -> int | None:
    """Return an integer of any type (NumPy's, a tensor of one number) as a Python int; None for anything else.

    A symbolic size of a trace is returned as it is.

    Examples:
        >>> import numpy as np
        >>> as_whole(np.int64(3)), as_whole(3.0), as_whole(True)
        (3, None, None)
    """
    if isinstance(value, int | torch.SymInt) and not isinstance(value, bool):
        return value  # type: ignore[return-value]
    if isinstance(value, bool) or getattr(value, "dtype", None) == torch.bool:
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # PyTorch raises the latter for a tensor of several numbers
        return None


def require_even(owner: str, reason: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is even.

    Args:
        owner: named in the error.
        reason: why it must be, for the error.
        sizes: by name.

    Raises:
        ShapeError: If one is not.

    Examples:
        >>> require_even("Rotary", "it rotates pairs of features", head_dim=5)
        Traceback (most recent call last):
        whatwhere.errors.ShapeError: Rotary got head_dim=5, but needs an even number: it rotates pairs of features.
        The nearest even numbers are 4 and 6.
    """
    for name, size in sizes.items():
        if size % 2:
            raise ShapeError(
                f"{owner} got {name}={size}, but needs an even number: {reason}.\n"
                + (f"The nearest even numbers are {size - 1} and {size + 1}." if size > 1 else "The smallest is 2.")
            )


def require_positive(owner: str, **settings: float) -> None:
    """Raise SettingError unless every setting is a finite number above zero.

    Args:
        owner: named in the error.
        settings: by name.

    Raises:
        SettingError: If one is not.

    Examples:
        >>> require_positive("Sinusoidal", theta=-1.0)
        Traceback (most recent call last):
        whatwhere.errors.SettingError: Sinusoidal got theta=-1.0, but needs a finite number above 0.
    """
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < float("inf"):
            raise SettingError(f"{owner} got {name}={value!r}, but needs a finite number above 0.")


def require_magnitude(owner: str, **settings: float) -> None:
    """Raise SettingError unless every setting is above zero and its square, a factor of the scores, fits float32.

    Args:
        owner: named in the error.
        settings: by name.

    Raises:
        SettingError: If one is not.

    Examples:
        >>> require_magnitude("YaRN", attention_factor=1e300)
        Traceback (most recent call last):
        whatwhere.errors.SettingError: YaRN got attention_factor=1e+300, but needs a number from 1e-18 to 1e18.
        Queries and keys are both multiplied by it, in float32. The authors take some number between 1 and 2.
    """
    require_positive(owner, **settings)
    for name, value in settings.items():
        if not 1e-18 <= value <= 1e18:
            raise SettingError(
                f"{owner} got {name}={value!r}, but needs a number from 1e-18 to 1e18.\n"
                "Queries and keys are both multiplied by it, in float32. The authors take some number between 1 and 2."
            )


def require_choice(owner: str, setting: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise SettingError unless the value is one of the choices.

    Args:
        owner: named in the error.
        setting: its name.
        value: to check.
        choices: all that are allowed.

    Raises:
        SettingError: If it is not.

    Examples:
        >>> require_choice("attention", "engine", "fast", ("auto", "dense"))
        Traceback (most recent call last):
        whatwhere.errors.SettingError: attention got engine='fast', but knows only: auto, dense.
    """
    if value not in choices:
        raise SettingError(f"{owner} got {setting}={value!r}, but knows only: {', '.join(choices)}.")
