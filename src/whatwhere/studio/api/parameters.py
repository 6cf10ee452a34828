"""Parameters of a scheme as one text, `factor=4 original_length=4096`, and the controls of the page that set them.

A view lists its parameters; the page draws a control for each, and sends back those that were changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from whatwhere.errors import SettingError

Value = float | int | bool | str
Kind = Literal["flag", "choice", "whole", "number"]


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
        """Return the control that shows a value.

        Args:
            value: the current one.
            high: another end of the slider.
        """
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
