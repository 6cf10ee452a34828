"""Read the keys of a configuration: each one that bears on position is read, or refused; none is passed over."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from whatwhere.errors import CheckpointError, SettingError

MATTERS = re.compile(
    "alibi|attention_multiplier|attn_scale|base_freq|embedding_multiplier|embedding_scale|logn|mscale|no_rope|ntk|"
    "per_layer_config|pos_att|pos_emb|(?<!com)position|query_pre_attn|relative|(?<!p)rope|rotary|scale_attn|scale_emb|"
    "scaling|sinusoid|softmax_scale|temperature_tuning|theta|yarn"
)
"""Parts of names: a key that has one of them may change where a token stands, or how it is looked up."""

ELSEWHERE = (
    "logits_scaling", "moe_routed_scaling_factor", "moe_router_scaling_factor", "mtp_loss_scaling_factor",
    "routed_scaling_factor", "router_scaling_factor", "scale_attention_softmax_in_fp32",
)  # fmt: skip
"""Keys whose names look so, and which concern experts, logits or arithmetic."""

REQUIRED = object()
ANY = object()


class Keys:
    """Hand out the values of a configuration, and remember which were asked for.

    Args:
        values: the configuration, or a dictionary in it.
        defaults: what transformers takes where a key is absent.
        owner: the model type, for messages.
        place: where the values stand in the configuration, such as `text_config.`.
    """

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any], owner: str, place: str = "") -> None:
        self.values, self.defaults, self.owner, self.place = values, defaults, owner, place
        self.known: set[str] = set()
        self.used: list[str] = []
        self.assumed: list[str] = []

    def take(self, *names: str, default: Any = REQUIRED) -> Any:
        """Give a value by its name, or by another name that it goes by.

        Absent, it is what transformers takes; null, it is the default that the reader names, if it names one.
        """
        self.known |= set(names)
        given = {name: self.values[name] for name in names if self.values.get(name) is not None}
        if len({repr(value) for value in given.values()}) > 1:
            raise SettingError(
                f"this configuration of {self.owner!r} says one thing by {len(given)} names, and differently: "
                + ", ".join(f"{self.place}{name}={value!r}" for name, value in given.items())
                + ".\nKeep one of them."
            )
        if given:
            name, value = next(iter(given.items()))
            self._note(self.used, self.place + name)
            return value
        name = next((name for name in names if name in self.defaults), names[0])
        null = any(name in self.values for name in names) and default is not REQUIRED
        value = default if null else self.defaults.get(name, default)
        if value is REQUIRED:
            raise CheckpointError(
                f"this configuration of {self.owner!r} has no {self.place}{names[0]}, which nothing can stand in for."
                + self._near(names[0], (key for key in self.values if key not in self.known))
            )
        if value is not None:
            self._note(self.assumed, f"{self.place}{name}={value!r}")
        return value

    def whole(self, *names: str, default: Any = REQUIRED, least: int = 1, most: int | None = None) -> Any:
        """Give a whole number of at least `least` and at most `most`, or None where that is the default."""
        value = self.take(*names, default=default)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SettingError(f"{self.place}{names[0]} is {value!r}, but must be a whole number of at least {least}.")
        if most is not None and value > most:
            raise SettingError(f"{self.place}{names[0]} is {value:,}, but at most {most:,} are read.")
        return value

    def number(self, *names: str, default: Any = REQUIRED) -> Any:
        """Give a finite number above zero, or None where that is the default."""
        value = self.take(*names, default=default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise SettingError(f"{self.place}{names[0]} is {value!r}, but must be a finite number above 0.")
        return float(value)

    def flag(self, *names: str, default: Any = REQUIRED) -> bool:
        """Give true or false."""
        value = self.take(*names, default=default)
        if not isinstance(value, bool):
            raise SettingError(f"{self.place}{names[0]} is {value!r}, but must be true or false.")
        return value

    def choice(self, *names: str, choices: tuple[str, ...], default: Any = REQUIRED) -> str:
        """Give one of some words."""
        value = self.take(*names, default=default)
        if value not in choices:
            hint = self._near(value, choices) if isinstance(value, str) else ""
            raise SettingError(
                f"{self.place}{names[0]} is {value!r}, but whatwhere reads only: {', '.join(choices)}.{hint}"
            )
        return str(value)

    def require(self, name: str, wanted: Any, reason: str) -> None:
        """Raise SettingError unless a key is absent or has the one value that can be read."""
        value = self.take(name, default=wanted)
        if value != wanted:
            raise SettingError(
                f"{self.place}{name} is {value!r}, but whatwhere reads {self.owner!r} with {wanted!r} only: {reason}"
            )

    def inside(self, name: str, defaults: Mapping[str, Any] | None = None) -> "Keys":
        """Open a dictionary in this one."""
        values = self.take(name)
        if not isinstance(values, Mapping):
            raise SettingError(f"{self.place}{name} is {values!r}, but must be a dictionary.")
        return Keys(values, defaults or {}, self.owner, f"{self.place}{name}.")

    def absorb(self, other: "Keys") -> None:
        """Remember what was read of a dictionary in this one."""
        for name in other.used:
            self._note(self.used, name)
        for name in other.assumed:
            self._note(self.assumed, name)

    def finish(self, beside: Mapping[str, Any] | None = None) -> None:
        """Raise SettingError if a key is left that bears on position and was not read.

        Args:
            beside: keys of this model type that its code does not read, and the value that they must have, or ANY.
        """
        for name, wanted in (beside or {}).items():
            if wanted is not ANY:
                self.require(name, wanted, "its code does not read the key, but its author may have meant it.")
        passed = {*self.known, *ELSEWHERE, *(beside or {})}
        for name, value in self.values.items():
            if name not in passed and bears_on_position(name, value):
                self.refuse(name)

    def finish_all(self) -> None:
        """Raise SettingError if any key is left: a dictionary of position holds nothing else."""
        for name, value in self.values.items():
            if name not in self.known and value is not None:
                self.refuse(name)

    def refuse(self, name: str) -> None:
        """Raise SettingError for a key that is not known."""
        raise SettingError(
            f"{self.place}{name}={self.values[name]!r} is no key of {self.owner!r} that whatwhere knows, but its name "
            f"is one of position: to pass over it could change every score.{self._near(name, self.known)}\n"
            f"If it has no bearing, take it out: config.pop({name!r})."
        )

    @staticmethod
    def _near(name: str, names: Iterable[str]) -> str:
        near = get_close_matches(name, list(names), n=1, cutoff=0.7)
        return f"\nDid you mean {near[0]!r}?" if near else ""

    @staticmethod
    def _note(notes: list[str], note: str) -> None:
        if note not in notes:
            notes.append(note)


def bears_on_position(name: str, value: Any) -> bool:
    """Tell whether a key may change where a token stands; what is null, false or zero changes nothing.

    >>> bears_on_position("rope_theta", 10_000.0), bears_on_position("use_mrope", False), bears_on_position("d_ff", 8)
    (True, False, False)
    """
    return value not in (None, False) and MATTERS.search(name.lower()) is not None
