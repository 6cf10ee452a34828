"""What the catalogue says of one scheme."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from whatwhere.errors import ShapeError
from whatwhere.where.binding import Where

Door = Literal["input", "query_key", "score"]
_ANY = 1_000_000
"""As far as schemes are tested that are defined everywhere."""


@dataclass(frozen=True)
class Scheme:
    """Describe one scheme: what it is, what it promises, and how to build it.

    Args:
        name: what `scheme(name)` takes.
        door: where it enters; None for no scheme.
        formula: the equation, in one line.
        paper, url, year: the source.
        used_by: models that were trained with it.
        build: (dim, num_heads, max_length, **options) -> Where.
        learned: it has parameters.
        relative: moving all positions by one offset changes no score.
        relative_below: where it is not relative: while all positions stay below this, moving them changes no score.
        any_length: no table ends it (whether a model is good there is another question).
        causal_only: it has no meaning for keys later than the query.
        follows_length: it depends on how long the sequence is; its promises hold within one stated `regime_length`.
        keeps_norms: it changes no length of a query or key, but by the one factor that it states, its `magnitude`.
        longest: the laws hold for positions up to here.
        near: distances up to here are told apart in bfloat16; None where the door has no table of its own.
        variants: further options that the laws test.
    """

    name: str
    door: Door | None
    formula: str
    paper: str
    url: str
    year: int
    used_by: tuple[str, ...]
    build: Callable[..., Where]
    learned: bool = False
    relative: bool = False
    relative_below: int = 0
    any_length: bool = True
    causal_only: bool = False
    follows_length: bool = False
    keeps_norms: bool = True
    longest: int = _ANY
    near: int | None = None
    variants: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def moves(self) -> str:
        """Whether it is relative, in words."""
        return "no" if not self.relative else "in one regime" if self.follows_length else "yes"

    @property
    def length(self) -> str:
        """How far it is defined, in words; whether a model is good there is another question."""
        if not self.any_length:
            return "max_length"
        return "any" if self.longest >= _ANY else f"{self.longest:,}"


def head_dim(dim: int, num_heads: int) -> int:
    """Give the features of a head, of which there must be a whole number."""
    if dim % num_heads:
        raise ShapeError(
            f"dim={dim} does not divide into num_heads={num_heads}: each head needs the same number of features.\n"
            f"The nearest dims that do are {dim - dim % num_heads} and {dim - dim % num_heads + num_heads}."
        )
    return dim // num_heads
