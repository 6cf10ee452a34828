"""Options in a name: rotary@theta=500000 is the entry rotary with theta=500000."""

from collections.abc import Mapping

from whatwhere.errors import SettingError

Scalar = bool | int | float | str


def split_options(name: str) -> tuple[str, dict[str, Scalar | None]]:
    """Split a name such as "rotary@theta=500000" into its entry and its options.

    Args:
        name: of one entry, without "+" and "/".

    Returns:
        The entry, and its options by name; None of a word that stands alone.

    Raises:
        SettingError: If an option is empty or occurs twice.

    Examples:
        >>> split_options("rotary@theta=5e5,interleaved=true")
        ('rotary', {'theta': 500000, 'interleaved': True})
    """
    entry, at, text = name.partition("@")
    options: dict[str, Scalar | None] = {}
    for part in text.split(",") if at else ():
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key or (equals and not value):
            raise SettingError(f"the scheme {name!r} has an empty option: write them as in rotary@theta=500000.")
        if key in options:
            raise SettingError(f"the scheme {name!r} has the option {key} twice: write it once.")
        options[key] = scalar(value) if equals else None
    return entry.strip(), options


def join_options(entry: str, options: Mapping[str, Scalar | None]) -> str:
    """Return the name of an entry with options, in their order; the inverse of `split_options`.

    Examples:
        >>> join_options("rotary", {"theta": 500_000.0, "interleaved": True})
        'rotary@theta=500000,interleaved=true'
    """
    parts = (key if value is None else f"{key}={scalar_text(value)}" for key, value in options.items())
    return f"{entry}@{','.join(parts)}" if options else entry


def scalar(text: str) -> Scalar:
    """Return the value that a text writes: true, false, a number or a word; whole numbers become int.

    Examples:
        >>> scalar("true"), scalar("64"), scalar("5e5"), scalar("0.5"), scalar("cosine")
        (True, 64, 500000, 0.5, 'cosine')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def scalar_text(value: Scalar) -> str:
    """Return the one way in which a value is written in a name.

    Examples:
        >>> scalar_text(True), scalar_text(64.0), scalar_text(1e-5)
        ('true', '64', '1e-05')
    """
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    exact = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
    return repr(exact).replace("e+", "e")  # a plus joins schemes
