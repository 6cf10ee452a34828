"""Keys of the input layer: learned and sinusoidal positions, and the scale of the token vectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from whatwhere.errors import SettingError, ShapeError
from whatwhere.models.configuration.description import EmbeddingScale
from whatwhere.models.configuration.keys import Json, Keys
from whatwhere.models.configuration.model_type import Position, Sizes
from whatwhere.models.configuration.plan import Plan, Setting


@dataclass(frozen=True)
class LearnedKeys:
    """Read a learned position table.

    Args:
        offset: row of position 0; `padding` makes it pad_token_id + 1, as in RoBERTa.
        counted: whether the length in the configuration includes the rows before it.
        key: of the length, for writing.
        by_tokens: whether the table has the features of the token table, if they differ from the model's.
        unless: a flag without which there is no table.
        only: a key and the value of it for which the table is the only encoding of positions.
    """

    offset: int | Literal["padding"] = 0
    counted: bool = False
    key: str = "max_position_embeddings"
    by_tokens: bool = True
    unless: str | None = None
    only: tuple[str, str] | None = None

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of the table."""
        if self.only is not None:
            bias = "other values add a bias to the scores of each layer."
            jina = "'rotary' is that of 'jina_embeddings_v3': write this as the model_type."
            keys.require(*self.only, reason=jina if keys.values.get(self.only[0]) == "rotary" else bias)
        if self.unless is not None and not keys.flag(self.unless, default=True):
            return Position()
        if sizes.max_length is None:
            raise SettingError(f"{keys.path}{self.key} is missing: the number of rows of the position table.")
        offset = self.offset_after(sizes.padding_idx)
        if offset is None:
            raise SettingError("pad_token_id is missing: positions start at the row after it.")
        length = sizes.max_length - offset if self.counted else sizes.max_length
        if length < 1:
            raise SettingError(f"{keys.path}{self.key} is {sizes.max_length}, of which {offset} rows come before 0.")
        dim = sizes.token_dim if self.by_tokens else sizes.dim
        plan = Plan("learned", {"dim": dim, "max_length": length, "offset": offset})
        return Position(input=plan, max_length=length)

    def offset_after(self, padding_idx: int | None) -> int | None:
        """Return the row of position 0; None if it depends on a padding id that is None."""
        if self.offset != "padding":
            return self.offset
        return None if padding_idx is None else padding_idx + 1


@dataclass(frozen=True)
class SinusoidalKeys:
    """Read sinusoidal positions, whose layout and offset the model type implies.

    Args:
        layout: as in Sinusoidal.
        offset: added to every position; `padding` makes it pad_token_id + 1.
        cosines_first: as in Sinusoidal.
    """

    layout: Literal["interleaved", "half", "tensor2tensor"]
    offset: int | Literal["padding"] = 0
    cosines_first: bool = False

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of the sinusoidal encoding."""
        least = 4 if self.layout == "tensor2tensor" else 2
        if sizes.dim % 2 or sizes.dim < least:
            raise ShapeError(
                f"{sizes.dim} features cannot hold sinusoidal positions: a sine and a cosine share one frequency, so "
                f"an even number of at least {least} is needed."
            )
        offset = (sizes.padding_idx or 0) + 1 if self.offset == "padding" else self.offset
        settings: dict[str, Setting] = {"dim": sizes.dim, "layout": self.layout, "offset": offset}
        if self.cosines_first:
            settings["cosines_first"] = True
        return Position(input=Plan("sinusoidal", settings))


@dataclass(frozen=True)
class LearnedOrSinusoidalKeys:
    """Read a learned position table, or sinusoidal positions in its place if a flag is off, as in TrOCR.

    Args:
        learned: reader of the table.
        sinusoidal: reader of the other positions.
        key: of the flag.
    """

    learned: LearnedKeys
    sinusoidal: SinusoidalKeys = SinusoidalKeys("tensor2tensor", "padding")
    key: str = "use_learned_position_embeddings"

    def read(self, keys: Keys, sizes: Sizes) -> Position:
        """Return the plan of the table, or of the sinusoidal encoding."""
        reader = self.learned if keys.flag(self.key, default=True) else self.sinusoidal
        return reader.read(keys, sizes)


def position_offset(reader: LearnedKeys, config: Json, defaults: Mapping[str, object]) -> int | None:
    """Return the row of position 0 in a learned position table, of a configuration that may be incomplete.

    Args:
        reader: of the table.
        config: of which only pad_token_id is read.
        defaults: those of transformers for absent keys.

    Returns:
        The row, or None if it depends on a padding id that the configuration does not have.

    Examples:
        >>> position_offset(LearnedKeys("padding"), {"pad_token_id": 1}, {})
        2
    """
    padding_idx = config.get("pad_token_id", defaults.get("pad_token_id"))
    known = isinstance(padding_idx, int) and not isinstance(padding_idx, bool) and padding_idx >= 0
    return reader.offset_after(padding_idx if known else None)


@dataclass(frozen=True)
class SqrtDimScale:
    """Multiply token vectors by sqrt(dim), as the model type implies.

    Args:
        rounded: whether the factor is rounded to the dtype of the table, as in Gemma.
    """

    rounded: bool = False

    def read(self, keys: Keys, sizes: Sizes) -> EmbeddingScale:
        """Return the name of the factor."""
        return "sqrt_dim_rounded" if self.rounded else "sqrt_dim"


@dataclass(frozen=True)
class FlaggedSqrtDimScale:
    """Multiply token vectors by sqrt(dim) if a flag is set.

    Args:
        key: of the flag.
        default: if it is absent.
    """

    key: str = "scale_embedding"
    default: bool = False

    def read(self, keys: Keys, sizes: Sizes) -> EmbeddingScale | None:
        """Return the name of the factor, or None."""
        return "sqrt_dim" if keys.flag(self.key, default=self.default) else None


@dataclass(frozen=True)
class MaskedTokenScale:
    """Multiply token vectors by 1 less the share of masked tokens in training, 0.12, if a flag is set, as in ESM-2."""

    KEY, SCALE = "token_dropout", 1 - 0.15 * 0.8

    def read(self, keys: Keys, sizes: Sizes) -> float | None:
        """Return the factor of a text without masked tokens, or None."""
        return self.SCALE if keys.flag(self.KEY, default=False) else None


@dataclass(frozen=True)
class EmbeddingScaleKey:
    """Multiply token vectors by a number of the configuration.

    Args:
        key: of the number.
        default: if it is absent.
    """

    key: str
    default: float = 1.0

    def read(self, keys: Keys, sizes: Sizes) -> float | None:
        """Return the number, or None for 1."""
        factor = keys.number(self.key, default=self.default)
        return None if factor == 1.0 else factor
