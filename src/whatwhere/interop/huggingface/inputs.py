"""The input layer in a configuration: learned and sinusoidal positions, and what token vectors are multiplied by."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

from whatwhere.errors import SettingError
from whatwhere.interop.huggingface.description import Description, Plan
from whatwhere.interop.huggingface.family import Position, Sizes
from whatwhere.interop.huggingface.keys import Keys
from whatwhere.what.embedding import Scale
from whatwhere.where.frequencies import Layout
from whatwhere.where.input.learned import Learned
from whatwhere.where.input.sinusoidal import Sinusoidal


@dataclass(frozen=True)
class LearnedKeys:
    """Read a learned table of positions.

    Args:
        offset: rows before that of position 0. `padding` makes it pad_token_id + 1, as RoBERTa does.
        counted: the length that the configuration names counts these rows in.
        key: of the length, for writing.
        by_tokens: the table has the features of the token table, where they differ from the model's.
        unless: a key that, being false, leaves the table out.
        only: a key and its one value with which there is this table and nothing else.
        notes: what is added besides.
    """

    offset: int | Literal["padding"] = 0
    counted: bool = False
    key: str = "max_position_embeddings"
    by_tokens: bool = True
    unless: str | None = None
    only: tuple[str, str] | None = None

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan of the table."""
        if self.only is not None:
            keys.require(*self.only, reason="other values have terms of their own in each layer.")
        if self.unless is not None and not keys.flag(self.unless, default=True):
            return Position()
        if sizes.max_length is None:
            raise SettingError(f"{keys.place}{self.key} is missing: the rows of the position table.")
        offset = self._offset(sizes)
        length = sizes.max_length - offset if self.counted else sizes.max_length
        if length < 1:
            raise SettingError(f"{keys.place}{self.key} is {sizes.max_length}, of which {offset} rows come before 0.")
        dim = sizes.token_dim if self.by_tokens else sizes.dim
        plan = Plan(Learned, {"dim": dim, "max_length": length, "offset": offset})
        return Position(input=plan, max_length=length)

    def write(self, description: Description) -> dict[str, Any]:
        """Give the length, with the rows that are counted in."""
        if description.input is None:
            return {} if self.unless is None else {self.unless: False}
        length = description.input.settings["max_length"]
        written: dict[str, Any] = {self.key: length + description.position_offset if self.counted else length}
        if self.unless is not None:
            written[self.unless] = True
        return written

    def _offset(self, sizes: Sizes) -> int:
        if self.offset != "padding":
            return self.offset
        if sizes.padding_id is None:
            raise SettingError("pad_token_id is missing: positions start at the row after it.")
        return sizes.padding_id + 1


@dataclass(frozen=True)
class SinusoidalKeys:
    """Read sinusoidal positions, which no key describes: each model type has its own.

    Args:
        layout: as Sinusoidal has it.
        offset: added to every position.
    """

    layout: Layout
    offset: int | Literal["padding"] = 0

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Give the plan of the sinusoid."""
        offset = self.offset
        if offset == "padding":
            offset = (sizes.padding_id or 0) + 1
        return Position(input=Plan(Sinusoidal, {"dim": sizes.dim, "layout": self.layout, "offset": offset}))

    def write(self, description: Description) -> dict[str, Any]:
        """Give nothing: no key says it."""
        return {}


@dataclass(frozen=True)
class Always:
    """Multiply token vectors by sqrt(dim), which no key says.

    Args:
        rounded: in the type of the table, as Gemma does.
    """

    rounded: bool = False

    def read(self, keys: Keys, sizes: Sizes) -> Scale:
        """Give the rule."""
        return "sqrt_dim_rounded" if self.rounded else "sqrt_dim"

    def write(self, description: Description) -> dict[str, Any]:
        """Give nothing: no key says it."""
        return {}


@dataclass(frozen=True)
class IfFlagged:
    """Multiply token vectors by sqrt(dim) where a key says so."""

    key: str = "scale_embedding"
    default: bool = False

    def read(self, keys: Keys, sizes: Sizes) -> Scale | None:
        """Give the rule, or None."""
        return "sqrt_dim" if keys.flag(self.key, default=self.default) else None

    def write(self, description: Description) -> dict[str, Any]:
        """Give the flag."""
        return {self.key: description.embedding_scale is not None}


@dataclass(frozen=True)
class ByKey:
    """Multiply token vectors by a number."""

    key: str
    default: float = 1.0

    def read(self, keys: Keys, sizes: Sizes) -> float | None:
        """Give the number, or None for 1."""
        number: float = keys.number(self.key, default=self.default)
        return None if number == 1.0 else number

    def write(self, description: Description) -> dict[str, Any]:
        """Give the number."""
        return {self.key: 1.0 if description.embedding_scale is None else description.embedding_scale}


def as_factor(scale: float | Scale | None, dim: int) -> float:
    """Give the number that an embedding scale means, before any rounding.

    >>> as_factor("sqrt_dim", 64), as_factor(None, 64)
    (8.0, 1.0)
    """
    if scale is None:
        return 1.0
    return sqrt(dim) if isinstance(scale, str) else scale
