"""Checks of what callers hand in: exact where values can be read, asynchronous where reading would stall a device."""

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from whatwhere.errors import SettingError, ShapeError


def readable(values: Tensor) -> bool:
    """Tell whether the values may be read here: on the CPU, eagerly, outside of any transform.

    Elsewhere a read costs a synchronization (accelerators) or breaks the trace (compile, export, vmap).

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
        error: makes the error from the first offending value and its place.

    Where the values cannot be read, the check runs on the device and stops the program there.

    >>> require_range(torch.tensor([0, 7]), 5, lambda value, place: IndexError(f"{value} at {place}"))
    Traceback (most recent call last):
    IndexError: 7 at (1,)
    """
    if values.device.type == "meta" or isinstance(values, FakeTensor):
        return
    # Under vmap no check can run; the lookup itself refuses what lies outside, in its own words.
    # The question cannot itself be compiled, hence the order.
    if not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(values):
        return
    if readable(values):
        if values.numel() == 0:
            return
        low, high = values.aminmax()
        if low < 0 or high >= limit:
            place = tuple(int(n) for n in ((values < 0) | (values >= limit)).nonzero()[0])
            raise error(int(values[place]), place)
        return
    inside = ((values >= 0) & (values < limit)).all()
    torch._assert_async(inside, f"a value lies outside 0..{limit - 1}" if isinstance(limit, int) else "out of range")


def require_device(name: str, x: Tensor, device: torch.device) -> None:
    """Raise SettingError unless a tensor lies where the positions do.

    >>> require_device("q", torch.empty(1, device="meta"), torch.device("cpu"))
    Traceback (most recent call last):
    whatwhere.errors.SettingError: q lies on meta, but the positions on cpu.
    Make them there, or move them: positions.to(q.device).
    """
    if x.device != device:
        raise SettingError(
            f"{name} lies on {x.device}, but the positions on {device}.\n"
            f"Make them there, or move them: positions.to({name}.device)."
        )


def require_whole(owner: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is a whole number of at least 1.

    >>> require_whole("ALiBi", num_heads=0)
    Traceback (most recent call last):
    whatwhere.errors.ShapeError: ALiBi got num_heads=0, but needs a whole number of at least 1.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShapeError(f"{owner} got {name}={size!r}, but needs a whole number of at least 1.")


def require_floating(owner: str, **tensors: Tensor) -> None:
    """Raise ShapeError unless every tensor holds real floating-point numbers: whole ones would be cut off in silence.

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


def require_even(owner: str, reason: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is even.

    >>> require_even("Rotary", "it turns pairs of features", head_dim=5)
    Traceback (most recent call last):
    whatwhere.errors.ShapeError: Rotary got head_dim=5, but needs an even number: it turns pairs of features.
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

    >>> require_positive("Sinusoidal", theta=-1.0)
    Traceback (most recent call last):
    whatwhere.errors.SettingError: Sinusoidal got theta=-1.0, but needs a finite number above 0.
    """
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < float("inf"):
            raise SettingError(f"{owner} got {name}={value!r}, but needs a finite number above 0.")


def require_magnitude(owner: str, **settings: float) -> None:
    """Raise SettingError unless every setting is above zero and its square, which scores hold, a float32 number.

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

    >>> require_choice("attention", "engine", "fast", ("auto", "dense"))
    Traceback (most recent call last):
    whatwhere.errors.SettingError: attention got engine='fast', but knows only: auto, dense.
    """
    if value not in choices:
        raise SettingError(f"{owner} got {setting}={value!r}, but knows only: {', '.join(choices)}.")
