"""Settings of a scheme as one text, `factor=4 original_length=4096`: what a slider of the page can turn.

A view says which knobs there are; the page draws them as it is told, and sends back those that were turned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from whatwhere.errors import SettingError

Number = float | int
Value = float | int | bool | str


@dataclass(frozen=True)
class Parameter:
    """Describe what one setting may be.

    Args:
        name: as the scheme calls it.
        usual: its value where nothing says otherwise; its type is that of the setting.
        low, high: the ends of the slider.
        least, most: what is taken at all; None is the slider's end.
        base: of a logarithmic slider; None is a linear one.
        steps: of the slider, for each time the base, or for each 1.
        choices: the words that a text may be.
        words: what it does.
        rare: stands among what is seldom turned.
    """

    name: str
    usual: Value
    low: Number = 0
    high: Number = 0
    least: Number | None = None
    most: Number | None = None
    base: int | None = None
    steps: Number = 1
    choices: tuple[str, ...] = ()
    words: str = ""
    rare: bool = False

    @property
    def kind(self) -> Literal["flag", "choice", "whole", "number"]:
        """What its value is."""
        if isinstance(self.usual, bool):
            return "flag"
        if isinstance(self.usual, str):
            return "choice"
        return "whole" if isinstance(self.usual, int) else "number"

    def read(self, said: str) -> Value:
        """Return the value that a text means, or raise SettingError."""
        if self.kind == "flag" and said in ("true", "false"):
            return said == "true"
        if self.kind == "choice" and said in self.choices:
            return said
        if self.kind in ("whole", "number"):
            least = self.low if self.least is None else self.least
            most = self.high if self.most is None else self.most
            number = _number(said)
            if number is not None and least <= number <= most and (self.kind == "number" or number.is_integer()):
                return int(number) if self.kind == "whole" else number
            kind = "whole number" if self.kind == "whole" else "number"
            raise SettingError(f"{self.name} must be a {kind} from {least:,g} to {most:,g}, but is {said[:40]!r}.")
        known = ", ".join(self.choices or ("true", "false"))
        raise SettingError(f"{self.name} must be one of {known}, but is {said[:40]!r}.")

    def told(self, value: Value) -> dict[str, Any]:
        """Return what the page draws."""
        return {
            "name": self.name,
            "kind": self.kind,
            "value": value,
            "low": self.low,
            "high": self.high,
            "base": self.base,
            "steps": self.steps,
            "choices": self.choices,
            "words": self.words,
            "rare": self.rare,
        }


def turned(text: str, parameters: Sequence[Parameter]) -> dict[str, Value]:
    """Return the values that a text sets.

    Examples:
        >>> turned("factor=8", [Knob("factor", 4.0, 1, 64)])
        {'factor': 8.0}
    """
    by_name = {parameter.name: parameter for parameter in parameters}
    found: dict[str, Value] = {}
    for piece in text.split():
        name, sign, value = piece.partition("=")
        if not sign or name not in by_name:
            raise SettingError(f"{piece[:40]!r} sets nothing here: write name=value, of {', '.join(by_name)}.")
        found[name] = by_name[name].read(value)
    return found


def values(parameters: Sequence[Parameter], *given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the value of each knob: the usual one, unless something given says otherwise; the last one counts."""
    found: dict[str, Value] = {parameter.name: parameter.usual for parameter in parameters}
    for some in given:
        found |= some
    return found


def _number(said: str) -> float | None:
    try:
        number = float(said)
    except ValueError:
        return None
    return number if isfinite(number) else None
