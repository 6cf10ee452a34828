"""Checks of settings, without PyTorch."""

from numbers import Real

from whatwhere.errors import SettingError, ShapeError


def require_whole(owner: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShapeError(f"{owner} got {name}={size!r}, but needs a whole number of at least 1.")


def require_even(owner: str, reason: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is even."""
    for name, size in sizes.items():
        if size % 2:
            raise ShapeError(
                f"{owner} got {name}={size}, but needs an even number: {reason}.\n"
                + (f"The nearest even numbers are {size - 1} and {size + 1}." if size > 1 else "The smallest is 2.")
            )


def require_positive(owner: str, **settings: float) -> None:
    """Raise SettingError unless every setting is a finite number above zero."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < float("inf"):
            raise SettingError(f"{owner} got {name}={value!r}, but needs a finite number above 0.")


def require_magnitude(owner: str, **settings: float) -> None:
    """Raise SettingError unless every setting is above zero and its square, a factor of the scores, fits float32."""
    require_positive(owner, **settings)
    for name, value in settings.items():
        if not 1e-18 <= value <= 1e18:
            raise SettingError(
                f"{owner} got {name}={value!r}, but needs a number from 1e-18 to 1e18.\n"
                "Queries and keys are both multiplied by it, in float32. The authors take some number between 1 and 2."
            )


def require_choice(owner: str, setting: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise SettingError unless the value is one of the choices."""
    if value not in choices:
        raise SettingError(f"{owner} got {setting}={value!r}, but knows only: {', '.join(choices)}.")
