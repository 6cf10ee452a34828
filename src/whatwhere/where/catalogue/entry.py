"""One entry of the catalogue: the facts of a scheme, and how to build it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from whatwhere.errors import ShapeError
from whatwhere.where.base import InputEncoding, QueryKeyMap
from whatwhere.where.binding import Where
from whatwhere.where.score_bias import ScoreBias

Door = Literal["input", "query_key", "score"]
_ANY = 1_000_000  # positions up to which schemes that are defined everywhere are tested
authors = cache(lambda: dict[str, str](json.loads(Path(__file__).with_name("authors.json").read_text("utf-8"))))
"""All authors of papers, by their number at arXiv: read when they are first needed."""


@dataclass(frozen=True, kw_only=True)
class SchemeFacts:
    """The facts of one scheme: what it is, and which properties it has."""

    name: str  # that `scheme(name)` takes
    door: Door | None  # where it enters; None for no scheme
    formula: str  # the equation, in one line
    paper: str  # the source, as the next two
    url: str  # of the source
    year: int  # of the source
    used_by: tuple[str, ...]  # models that were trained with it
    learned: bool = False  # it has parameters
    relative: bool = False  # shifting all positions by the same offset changes no score
    relative_below: int = 0  # where it is not relative: shifting changes no score while all positions stay below this
    any_length: bool = True  # it is defined at every position; whether a model is good there is a different question
    causal_only: bool = False  # it supports causal attention only
    follows_length: bool = False  # it depends on the length of the text; its properties hold for one `regime_length`
    keeps_norms: bool = True  # it changes the norms of queries and keys by one constant at most, its `magnitude`
    tested_up_to: int = _ANY  # the laws are tested for positions up to here
    distinct_up_to: int | None = None  # distances up to here have different biases in bfloat16; None without a table


@dataclass(frozen=True, kw_only=True)
class SchemeDescription(SchemeFacts):
    """The facts of a scheme, and those that follow from them in words: see the properties of Scheme."""

    shift_invariance: str
    length: str
    bibtex: str


@dataclass(frozen=True, kw_only=True)
class Scheme(SchemeFacts):
    """An entry of the catalogue: the facts of one scheme, and how to build it."""

    build: Callable[..., Where]  # (dim, num_heads, max_length, **options) -> Where

    @property
    def shift_invariance(self) -> str:
        """Whether shifting all positions changes no score, in words."""
        return "no" if not self.relative else "in one regime" if self.follows_length else "yes"

    @property
    def length(self) -> str:
        """The length up to which it is defined, in words."""
        if not self.any_length:
            return "max_length"
        return "any" if self.tested_up_to >= _ANY else f"{self.tested_up_to:,}"

    @property
    def bibtex(self) -> str:
        """The source as an entry of BibTeX, under the name of its first author and the year."""
        (author, title), arxiv = self.paper.split(", ", 1), self.url.partition("arxiv.org/abs/")[2]
        key = f"{''.join(c for c in author.removesuffix(' et al.').lower() if c.isalnum())}-{self.year}"
        # A single name in lower case, or of several words, is an organization or an alias, never given and family name.
        names = authors().get(arxiv, author.replace("et al.", "and others")) if " et al." in author else f"{{{author}}}"
        lines = [f"author = {{{names}}}", f"title = {{{{{title}}}}}", f"year = {{{self.year}}}"]
        lines += [f"eprint = {{{arxiv}}}", "archivePrefix = {arXiv}"] if arxiv else []
        return "@misc{" + ",\n  ".join([key, *lines, f"url = {{{self.url}}}"]) + ",\n}"


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model that schemes are built from, as in `scheme`."""

    dim: int
    num_heads: int
    max_length: int

    @property
    def head_dim(self) -> int:
        """Features of a head; raises ShapeError where dim does not divide."""
        if self.dim % self.num_heads:
            below = self.dim - self.dim % self.num_heads
            raise ShapeError(
                f"dim={self.dim} does not divide into num_heads={self.num_heads}: each head needs the same number of "
                f"features.\nThe nearest dims that do are {below} and {below + self.num_heads}."
            )
        return self.dim // self.num_heads


def _no_defaults(sizes: Sizes) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Builder:
    """Build a scheme from the sizes of a model."""

    make: Callable[..., InputEncoding | QueryKeyMap | ScoreBias]  # a class, or a function that returns one
    sizes: tuple[str, ...]  # which of dim, head_dim, num_heads and max_length are its first arguments, in this order
    defaults: Callable[[Sizes], Mapping[str, Any]] = _no_defaults  # options override them

    def __call__(self, dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
        sizes = Sizes(dim, num_heads, max_length)
        floats = _float_options(self.make)
        typed = {key: float(x) if key in floats and type(x) is int else x for key, x in options.items()}
        scheme = self.make(*(getattr(sizes, name) for name in self.sizes), **{**self.defaults(sizes), **typed})
        if isinstance(scheme, InputEncoding):
            return Where(input=scheme)
        _ = sizes.head_dim  # a scheme at the heads needs heads of equal size, even if it does not use their size
        return Where(query_key=scheme) if isinstance(scheme, QueryKeyMap) else Where(score=scheme)


@cache
def _float_options(make: Callable[..., object]) -> frozenset[str]:
    """Return the arguments that are declared as numbers with a fraction: a name writes 4 for 4.0 too."""
    if isinstance(make, Builder):
        return _float_options(make.make)
    if isinstance(make, partial):  # of a function and of the class of a scaling, or of another builder
        return _float_options(make.func).union(*(_float_options(part) for part in make.args if callable(part)))
    hints = get_type_hints(make.__init__ if isinstance(make, type) else make)  # type: ignore[misc]  # of this class
    built = hints.pop("return", None)
    own = {name for name, hint in hints.items() if hint is float or float in get_args(hint)}
    return frozenset(own | (_float_options(built) if isinstance(built, type) and built is not type(None) else set()))
