"""What is inspected: one checkpoint, its tables read once, and why something is not there."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.health import Health, health, hubs, row_norms
from whatwhere.analysis.kinds import kinds, scripts
from whatwhere.errors import WhatWhereError
from whatwhere.interop.checkpoint import Checkpoint

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.interop.huggingface import Description

LARGE = 1 << 27
"""Numbers in a token table, from where on fewer rows are asked for their neighbors: 512 MB of float32."""
ASKED, ASKED_OF_LARGE = 4096, 512


class Absent(Exception):
    """Say why a section has no numbers."""


@dataclass(frozen=True, eq=False)
class Subject:
    """Hold a checkpoint and what several sections need of it, each worked out when it is first asked for.

    Args:
        checkpoint: what is inspected.
        seed: of samples.
        tell: is called with what is being done.
    """

    checkpoint: Checkpoint
    seed: int
    tell: Callable[[str], None]

    @cached_property
    def table(self) -> Float[np.ndarray, "rows dim"]:
        """The token table, float32 or float64."""
        name = self.checkpoint.token_table
        if name is None:
            known = ", ".join(list(self.checkpoint.tensors)[:4])
            raise Absent(f"no tensor was found to be the token table, by name or by its rows; there are {known} ...")
        self.tell(f"reading {name}")
        return self._read(name)

    @cached_property
    def health(self) -> Health:
        """What looks wrong with the rows of the token table, but for hubs."""
        self.tell("looking for rows that are not well")
        words = self.checkpoint.words
        return health(self.table, None if words is None else len(words), self.seed, ask=0)

    @cached_property
    def hubs(self) -> tuple[int, tuple[tuple[int, int], ...]]:
        """How many rows were asked for their nearest, and the rows that are named most."""
        self.tell("looking for hubs")
        return hubs(self.table, self.sound, self.seed, ASKED_OF_LARGE if self.table.size > LARGE else ASKED)

    @cached_property
    def sound(self) -> Int64[np.ndarray, " sound"]:
        """Ids of the rows that hold finite numbers, not all of them 0."""
        return np.flatnonzero(np.isfinite(self.norms) & (self.norms > 0))

    @cached_property
    def norms(self) -> Float[np.ndarray, " rows"]:
        """The length of each row of the token table."""
        return row_norms(self.table)

    @cached_property
    def words(self) -> list[str]:
        """The tokens as strings, one for each row of the table; "" for a row without one."""
        words = self.checkpoint.words
        if words is None:
            raise Absent("nothing beside the table names its rows: there is no tokenizer and no list of tokens")
        rows = len(self.table)
        return words[:rows] + [""] * (rows - len(words))

    @cached_property
    def kinds(self) -> list[str]:
        """The kind of each token."""
        return kinds(self.words)

    @cached_property
    def scripts(self) -> list[str]:
        """The script of each token."""
        return scripts(self.words)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """A copy of the tokenizer that neither cuts nor pads."""
        found = self.checkpoint.tokenizer
        if found is None:
            raise Absent("there is no tokenizer.json beside the table, so nothing turns a text into ids")
        copy = type(found).from_str(found.to_str())
        copy.no_truncation()
        copy.no_padding()
        return copy

    @cached_property
    def description(self) -> "Description":
        """What the configuration says of tokens and positions; imports torch."""
        if self.checkpoint.config is None:
            raise Absent("there is no configuration, so nothing says where the tokens of this model stand")
        self.tell("reading the configuration")
        try:
            return self.checkpoint.description
        except WhatWhereError as problem:
            words = str(problem).removesuffix(".")  # the sentence that it becomes a part of has its own
            raise Absent(f"the configuration is not understood: {words}") from None

    @cached_property
    def positions(self) -> Float[np.ndarray, "places dim"]:
        """What is added at each position: the learned table less the rows before position 0, or the fixed scheme's."""
        name = self.checkpoint.position_table
        if name is not None:
            self.tell(f"reading {name}")
            return self._read(name)[self.offset :]
        plan = self.description.input
        if plan is None:
            raise Absent("this model adds no position to its token vectors")
        if self.description.max_length is None or "max_length" in plan.settings:
            raise Absent(f"its positions are {plan.scheme.__name__}'s, but no table of them is in the file")
        from whatwhere.ruler import positions

        scheme: Any = plan.build()
        return np.asarray(scheme(positions(min(self.description.max_length, 4096)))[0].detach().numpy())

    @property
    def offset(self) -> int:
        """How many rows of the position table stand before that of position 0; 0 where it is not known."""
        return self.checkpoint.position_offset or 0

    def optional(self, ends: Iterable[str]) -> Float[np.ndarray, "*shape"] | None:
        """Give the first tensor whose name has one of some ends, or None."""
        for end in ends:
            found = [name for name in self.checkpoint.tensors if name == end or name.endswith(f".{end}")]
            if found:
                return self._read(min(found, key=lambda name: ("decoder" not in name and "encoder" in name, len(name))))
        return None

    def _read(self, name: str) -> Float[np.ndarray, "*shape"]:
        array = self.checkpoint.array(name)
        if array.ndim == 2 and 0 in array.shape:
            raise Absent(f"{name} is empty: its shape is {array.shape}")
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def tried(section: Callable[[Subject], dict[str, Any]], subject: Subject) -> dict[str, Any]:
    """Give the numbers of a section, or why there are none."""
    try:
        return section(subject)
    except Absent as problem:
        return {"missing": str(problem)}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Give values as JSON holds them: arrays as lists, what is not finite as None, six digits that count.

    >>> plain({"a": np.array([1.0, np.nan, 1 / 3])})
    {'a': [1.0, None, 0.333333]}
    """
    return {str(name): _plain(part) for name, part in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value
