"""Argument checks of the reference: ranks, whole numbers, shapes, row indices."""

import functools
import inspect
from collections.abc import Callable
from types import EllipsisType
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray
Result = TypeVar("Result")
Rank = int | EllipsisType | tuple[int, ...]

_SINGLE = (int, float, bool, str, int | None, float | None)
_WHOLE = ("positions", "query_positions", "key_positions", "ids")


def arrays(**ranks: Rank) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Decorate a function so that its arguments are converted with np.asarray and checked."""

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Result:
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                owner = f"{function.__name__}({', '.join(signature.parameters)}) got {name}"
                annotation = signature.parameters[name].annotation
                if name in ranks:
                    bound.arguments[name] = _array(owner, value, ranks[name], annotation, name in _WHOLE)
                elif annotation in _SINGLE and np.ndim(value):
                    raise ValueError(
                        f"{owner} of shape {np.shape(value)}, but needs a single value: is the order right?"
                    )
            return function(*bound.args, **bound.kwargs)

        return checked

    return decorate


def _array(owner: str, value: Any, rank: Rank, annotation: Any, whole: bool) -> Any:
    """Return an array, or a tuple of arrays, that has been checked."""
    if isinstance(rank, tuple):
        if not isinstance(value, tuple | list) or len(value) != len(rank):
            raise ValueError(f"{owner} as {type(value).__name__}, but needs {len(rank)} arrays in a tuple.")
        return tuple(_array(owner, each, of, Array, whole) for each, of in zip(value, rank, strict=True))
    if value is None and annotation != Array:
        return None
    try:
        x = np.asarray(value)
    except ValueError:  # rows of unequal lengths
        raise ValueError(f"{owner} with rows of unequal lengths, but needs an array.") from None
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{owner} of type {x.dtype}, but needs real numbers.")
    if rank is not ... and x.ndim != rank:
        raise ValueError(f"{owner} of shape {x.shape}, but needs {rank} dimensions: is the order right?")
    if whole and x.dtype.kind not in "iu":
        if x.dtype.kind == "b" or not np.array_equal(x, np.floor(x)):
            raise ValueError(f"{owner} of type {x.dtype}, but needs whole numbers.")
        x = x.astype(np.int64)
    return x


def require_rows(what: str, index: Array, rows: int) -> None:
    """Raise IndexError unless every index is a row of the table."""
    # NumPy would silently read row -1 as the last one.
    for value in np.ravel(index):
        if not 0 <= value < rows:
            raise IndexError(f"{what} {value} is outside the table, which has {rows} rows (0..{rows - 1}).")


def require_even(name: str, value: int) -> None:
    """Raise ValueError unless the number of features is even."""
    if not isinstance(value, int | np.integer) or value < 2 or value % 2:
        raise ValueError(
            f"{name} is {value!r}, but must be even and at least 2: a sine and a cosine share one frequency."
        )


def require_shape(name: str, x: Array, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the array has the given shape."""
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}, but {shape} is needed.")
