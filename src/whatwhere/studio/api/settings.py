"""What the views share: settings of a query, checked; parameters of a scheme as one text, `factor=4 theta=500`, and the
controls of the page that set them; and what an exported page holds of a view.
"""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from whatwhere.errors import SettingError
from whatwhere.report.section import Section
from whatwhere.studio.schemes import ShownScheme, scheme_of
from whatwhere.studio.session import Session

Value = float | int | bool | str
Kind = Literal["flag", "choice", "whole", "number"]

LONGEST_TEXT = 20_000
MOST_FEATURES, MOST_HEADS = 1024, 64


@dataclass(frozen=True)
class ExportedView:
    """What an exported page holds of a view.

    Args:
        title: of the view.
        queries: names and settings of the queries and jobs whose answers it holds.
        sections: the same to read without JavaScript.
        begin: the settings that the view begins with there; None for those of the live page.
        text: sentences above the sections, the answer first.
    """

    title: str
    queries: Sequence[tuple[str, Mapping[str, Any]]]
    sections: Sequence[Section] = ()
    begin: Mapping[str, Any] | None = None
    text: Sequence[str] = ()


def known(settings: Mapping[str, Any], *names: str) -> None:
    """Raise SettingError for settings that a query does not have."""
    if other := sorted(set(settings) - set(names)):
        raise SettingError(f"this query has no setting {other[0]!r}; it has: {', '.join(names) or 'none'}.")


def text(settings: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a bounded length."""
    value = settings.get(name, default)
    if not isinstance(value, str):
        raise SettingError(f"{name} must be a text, but is {_short(value)}.")
    if len(value) > LONGEST_TEXT:
        raise SettingError(f"{name} has {len(value):,} characters; at most {LONGEST_TEXT:,} are taken.")
    if any(0xD800 <= ord(char) < 0xE000 for char in value):
        raise SettingError(f"{name} has half a character (a lone surrogate), which no text has.")
    return value


def whole(settings: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    """Return a whole number within its range."""
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SettingError(f"{name} must be a whole number from {low:,} to {high:,}, but is {_short(value)}.")
    return value


def number(settings: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """Return a number within its range."""
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SettingError(f"{name} must be a number from {low:,} to {high:,}, but is {_short(value)}.")
    return float(value)


def flag(settings: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a yes or no."""
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise SettingError(f"{name} must be true or false, but is {_short(value)}.")
    return value


def one_of(settings: Mapping[str, Any], name: str, choices: Sequence[str], default: str | None = None) -> str:
    """Return one of some words."""
    value = settings.get(name, choices[0] if default is None else default)
    if value not in choices:
        raise SettingError(f"{name} must be one of {', '.join(choices)}, but is {_short(value)}.")
    return str(value)


def scheme(session: Session, settings: Mapping[str, Any], max_length: int, dim: int | None = None) -> ShownScheme:
    """Build the scheme that the settings scheme, dim, heads and seed name; a 0 takes what the open model has.

    Args:
        source: what is open.
        settings: of the question.
        max_length: positions of a learned table of the catalogue.
        dim: features in place of the setting.
    """
    features = whole(settings, "dim", 0, 0, MOST_FEATURES)
    heads = whole(settings, "heads", 0, 0, MOST_HEADS)
    seed = whole(settings, "seed", 0, 0, 1 << 31)
    name = text(settings, "scheme")
    return scheme_of(
        session, name, dim=dim or features or None, num_heads=heads or None, max_length=max_length, seed=seed
    )


def _short(value: Any) -> str:
    return reprlib.repr(value)[:80]  # which does not descend into what is nested deeply


@dataclass(frozen=True)
class Control:
    """A control of the page.

    Args:
        name: of the parameter.
        kind: a box, a choice, or a slider for whole or other numbers.
        value: the current one.
        low, high: the ends of the slider.
        base: of a logarithmic slider; None for a linear one.
        steps: of the slider, for each power of the base, or for each 1.
        choices: the texts that a choice offers.
        help: what the parameter does.
        rare: whether it is folded away.
    """

    name: str
    kind: Kind
    value: Value
    low: float | int
    high: float | int
    base: int | None
    steps: float | int
    choices: Sequence[str]
    help: str
    rare: bool


@dataclass(frozen=True)
class Parameter:
    """A parameter of a scheme, and its range.

    Args:
        name: as the scheme calls it.
        default: its value where none is set; its type is that of the parameter.
        low, high: the ends of the slider.
        least, most: the range of valid numbers; None is the slider's end.
        base: of a logarithmic slider; None for a linear one.
        steps: of the slider, for each power of the base, or for each 1.
        choices: valid texts.
        help: what it does.
        rare: whether its control is folded away.
    """

    name: str
    default: Value
    low: float | int = 0
    high: float | int = 0
    least: float | int | None = None
    most: float | int | None = None
    base: int | None = None
    steps: float | int = 1
    choices: tuple[str, ...] = ()
    help: str = ""
    rare: bool = False

    @property
    def kind(self) -> Kind:
        """The kind of its values, by the default."""
        if isinstance(self.default, bool):
            return "flag"
        if isinstance(self.default, str):
            return "choice"
        return "whole" if isinstance(self.default, int) else "number"

    def read(self, text: str) -> Value:
        """Return the value that a text means, or raise SettingError."""
        if self.kind == "flag" and text in ("true", "false"):
            return text == "true"
        if self.kind == "choice" and text in self.choices:
            return text
        if self.kind in ("whole", "number"):
            least = self.low if self.least is None else self.least
            most = self.high if self.most is None else self.most
            number = _number(text)
            if number is not None and least <= number <= most and (self.kind == "number" or number.is_integer()):
                return int(number) if self.kind == "whole" else number
            kind = "whole number" if self.kind == "whole" else "number"
            raise SettingError(f"{self.name} must be a {kind} from {least:,g} to {most:,g}, but is {text[:40]!r}.")
        known = ", ".join(self.choices or ("true", "false"))
        raise SettingError(f"{self.name} must be one of {known}, but is {text[:40]!r}.")

    def control(self, value: Value, high: float | int | None = None) -> Control:
        """Return the control that shows a value."""
        return Control(
            name=self.name,
            kind=self.kind,
            value=value,
            low=self.low,
            high=self.high if high is None else high,
            base=self.base,
            steps=self.steps,
            choices=self.choices,
            help=self.help,
            rare=self.rare,
        )


def parse(text: str, parameters: Sequence[Parameter]) -> dict[str, Value]:
    """Return the values that a text sets.

    Examples:
        >>> parse("factor=8", [Parameter("factor", 4.0, 1, 64)])
        {'factor': 8.0}
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Value] = {}
    for piece in text.split():
        name, equals, value = piece.partition("=")
        if not equals or name not in by_name:
            raise SettingError(f"{piece[:40]!r} sets nothing here: write name=value, of {', '.join(by_name)}.")
        values[name] = by_name[name].read(value)
    return values


def with_defaults(parameters: Sequence[Parameter], *values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the value of each parameter: the last one that is set, else the default."""
    merged: dict[str, Value] = {parameter.name: parameter.default for parameter in parameters}
    for some in values:
        merged |= some
    return merged


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
