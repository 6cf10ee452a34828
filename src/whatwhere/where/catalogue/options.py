"""Names of schemes: rotary@theta=500000 is the entry rotary with theta=500000, rotary@512*3/none three layers with a
window of 512 and one without positions."""

from collections.abc import Mapping

from whatwhere.errors import SettingError

Scalar = bool | int | float | str


def split_options(name: str) -> tuple[str, dict[str, Scalar | None]]:
    """Split a name such as "rotary@theta=500000" into its entry and its options."""
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


LAYER_OPTIONS = ("window", "chunk", "sink")
"""Options that are those of a layer, not of a scheme."""


def split_layers(name: str) -> list[str]:
    """Split a mixture by layer into one name for each layer of its pattern."""
    return [part for one in name.split("/") for part, count in (split_count(one),) for _ in range(count)]


def split_count(part: str) -> tuple[str, int]:
    """Split a part of a mixture by layer into its scheme and the number of its layers."""
    scheme, star, count = part.partition("*")
    if not star:
        return scheme.strip(), 1
    if not count.strip().isdecimal() or not 1 <= int(count) <= 1000:
        raise SettingError(
            f"{part!r} has {count.strip()!r} layers, but needs a whole number from 1 to 1000, as in rotary*3/none."
        )
    return scheme.strip(), int(count)


def layer_word(word: str) -> tuple[str, Scalar] | None:
    """Return the option of a layer that a word stands for: a number is a window; None where it is another word."""
    if word.isdecimal():
        return "window", int(word)
    return ("sink", True) if word == "sink" else None


def join_options(entry: str, options: Mapping[str, Scalar | None]) -> str:
    """Return the name of an entry with options, in their order; the inverse of `split_options`."""
    parts = (key if value is None else f"{key}={scalar_text(value)}" for key, value in options.items())
    return f"{entry}@{','.join(parts)}" if options else entry


def scalar(text: str) -> Scalar:
    """Return the value that a text writes: true, false, a number or a word; whole numbers become int."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def scalar_text(value: Scalar) -> str:
    """Return the one way in which a value is written in a name."""
    if isinstance(value, bool | str):
        return str(value).lower() if isinstance(value, bool) else value
    exact = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
    return repr(exact).replace("e+", "e")  # a plus joins schemes
