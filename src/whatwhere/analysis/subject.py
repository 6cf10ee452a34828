"""The checkpoint that is inspected: tables that several sections need, each read once, or why they are not there."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.diagnostics import Diagnostics, diagnostics, hubs, row_norms
from whatwhere.errors import WhatWhereError
from whatwhere.escape import quoted
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.gguf_architectures import why_unread
from whatwhere.models.checkpoint.lookup import BEFORE, read_rows
from whatwhere.models.checkpoint.names import is_encoder
from whatwhere.models.model_text import Marking, marking, scripts, token_types
from whatwhere.records import Missing

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from whatwhere.models.configuration.description import Description
    from whatwhere.models.load_where import LoadedWhere

Progress = Callable[[str], None]  # a function that is called with each step that takes a while, in words
Result = TypeVar("Result")

EXAMPLES, EXAMPLES_ON_PAGE = 100, 5000
"""Suspicious rows of each cause that come with their evidence, in a terminal and on a page; the ids are complete."""
LARGE = 1 << 27  # numbers in a token table, from which on fewer rows are sampled for hubs: 512 MB of float32
HUB_QUERIES, HUB_QUERIES_OF_LARGE = 4096, 512
OF_ANOTHER = "the configuration that is read is not of the model whose token table is {}"
NONE_ADDED = "this model adds no position embedding to its token embeddings"
_SHOWN = "for its angles: whatwhere encode TEXT --from RESULTS --run {}, or whatwhere studio RESULTS"


class NoData(Exception):
    """A section cannot be computed; the message is the reason, a sentence without its full stop."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A checkpoint and what several sections need of it, each computed when it is first read."""

    checkpoint: Checkpoint  # what is inspected
    seed: int  # random seed for samples of rows
    progress: Progress  # called with each step that takes a while
    texts: tuple[str, ...] = ()  # documents, whose n-grams are looked up in tables of hashed n-grams
    listed: int = EXAMPLES  # rows of each list of suspicious rows that are described

    @cached_property
    def table(self) -> Float[np.ndarray, "rows dim"]:
        """The token table, float32 or float64."""
        name = self.checkpoint.token_table
        if self.checkpoint.format == "configuration":
            raise NoData("a configuration has no weights")
        if name is None:
            if self.checkpoint.adapter:
                raise NoData(f"this is {self.checkpoint.adapter}, whose tables are not in it")
            known = ", ".join(list(self.checkpoint.tensors)[:4])
            raise NoData(f"no tensor was found to be the token table, by name or by its rows; there are {known} ...")
        self.progress(f"reading {name}")
        return self._read(name)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the token table: of the file, or of a configuration without weights; None without a table."""
        name = self.checkpoint.token_table
        if name is not None:
            return self.checkpoint.entry(name).shape
        if self.checkpoint.format != "configuration":
            return None
        try:
            return self.description.vocab_size, self.description.token_dim
        except NoData:
            return None

    @cached_property
    def start(self) -> Float[np.ndarray, "rows dim"] | None:
        """The token table before training, which runs of a comparison keep; None of other checkpoints."""
        name = f"{self.checkpoint.token_table}{BEFORE}"
        return self._read(name) if self.checkpoint.format == "run" and name in self.checkpoint.tensors else None

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The diagnostics of the token table, but for hubs."""
        self.progress("looking for under-trained, duplicate, zero and NaN rows")
        words = self.checkpoint.words
        return diagnostics(self.table, None if words is None else len(words))

    @cached_property
    def hubs(self) -> tuple[list[tuple[int, int]], int, float]:
        """The rows that are nearest neighbors of unusually many, as `hubs` returns them."""
        self.progress("looking for hubs")
        queries = HUB_QUERIES_OF_LARGE if self.table.size > LARGE else HUB_QUERIES
        return hubs(self.table, self.usable, self.seed, queries)

    @cached_property
    def usable(self) -> Int64[np.ndarray, " usable"]:
        """Ids of the rows that hold finite numbers, not all of them 0."""
        return np.flatnonzero(np.isfinite(self.norms) & (self.norms > 0))

    @cached_property
    def norms(self) -> Float[np.ndarray, " rows"]:
        """The norm of each row of the token table."""
        return row_norms(self.table)

    @cached_property
    def words(self) -> list[str]:
        """The tokens as strings, one for each row of the table; "" for a row without one."""
        words = self.checkpoint.words
        if words is None:
            raise NoData("the tokens of the rows are not known: there is no tokenizer and no list of tokens")
        rows = len(self.table)
        return words[:rows] + [""] * (rows - len(words))

    @cached_property
    def marking(self) -> Marking:
        """How the vocabulary marks the beginnings of words."""
        return marking(self.checkpoint.words or [])

    @cached_property
    def token_types(self) -> list[str]:
        """The type of each token: word, special, number ..."""
        return token_types(self.words, self.marking)

    @cached_property
    def scripts(self) -> list[str]:
        """The script of each token."""
        return scripts(self.words, self.marking)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer of the checkpoint."""
        own = self.checkpoint.tokenizer
        if own is None:
            raise NoData(f"{self.checkpoint.why_no_tokenizer}, so no text can be encoded")
        return own

    @cached_property
    def description(self) -> "Description":
        """The tokens and positions that the configuration describes."""
        if self.checkpoint.format == "run":
            shown = _SHOWN.format(self.checkpoint.path.name)
            raise NoData(f"runs have no configuration; this one's scheme is {self.run[0].title}; {shown}")
        if self.checkpoint.config is None:
            unknown = "there is no configuration, so the positional encoding of this model is not known"
            raise NoData(why_unread(self.checkpoint.metadata) or unknown)
        self.progress("reading the configuration")
        try:
            return self.checkpoint.description
        except WhatWhereError as problem:
            raise NoData(f"the configuration is not understood: {reason_of(problem)}") from None

    @cached_property
    def positions(self) -> Float[np.ndarray, "positions dim"]:
        """The vector added at each position: a row of the learned table, from position 0 on, or a fixed scheme's."""
        name = self.checkpoint.position_table
        if name is not None:
            self.progress(f"reading {name}")
            return self._read(name)[self.offset :]
        if not self.checkpoint.describes_table:
            raise NoData(OF_ANOTHER.format(self.checkpoint.token_table))
        scheme: Any
        if self.checkpoint.format == "run":
            loaded, length = self.run
            scheme = loaded.where.input
        else:
            plan, most = self.description.input, self.description.max_length
            if plan is not None and (most is None or "max_length" in plan.settings):
                known = "" if most is None else f" of {most:,} positions"
                raise NoData(f"its position embedding is {plan.class_name}{known}, but no table of it is in the file")
            scheme, length = None if plan is None else plan.build(), min(most or 0, 4096)
        if scheme is None:
            raise NoData(NONE_ADDED)
        from whatwhere.position.positions import positions

        added = scheme(positions(length))
        return np.asarray(added.reshape(-1, added.shape[-1]).detach().numpy())

    @cached_property
    def run(self) -> "tuple[LoadedWhere, int]":
        """The positional encoding of a run of a comparison, as trained, and the number of positions in training."""
        from whatwhere.models.load_where import load_where, run_length

        path = self.checkpoint.path
        self.progress(f"building the scheme of {path.name}")
        results = Checkpoint.open(path.parent)
        results.builds = self.checkpoint.builds
        try:
            return load_where(results, path.name), run_length(results, path.name)
        except WhatWhereError as problem:
            raise NoData(reason_of(problem)) from None

    @property
    def offset(self) -> int:
        """The row of the position table that position 0 reads; 0 where that is not known."""
        return self.checkpoint.position_offset or 0

    def optional(self, end: str) -> Float[np.ndarray, "*shape"] | None:
        """Return the first tensor of this name, or whose name ends with a dot and it; None where the model has none."""
        names = [name for name in self.checkpoint.tensors if name == end or name.endswith(f".{end}")]
        names = [name for name in names if name == end or self.checkpoint.names.is_of_model(name)]
        first = min(names, key=lambda name: (is_encoder(name), len(name)), default=None)
        return None if first is None else self._read(first)

    def _read(self, name: str) -> Float[np.ndarray, "*shape"]:
        if (why := self.checkpoint.why_unread(name)) is not None:
            raise NoData(f"{quoted(name)} {why}")
        array = read_rows(self.checkpoint, name)
        if array.ndim == 2 and 0 in array.shape:
            raise NoData(f"the tensor {quoted(name)} is empty: its shape is {array.shape}")
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def reason_of(problem: Exception) -> str:
    """Format an error as a part of a sentence: on one line, without its full stop; a question is put in brackets."""
    text = " ".join(str(problem).splitlines()).removesuffix(".")
    if not text.endswith("?"):
        return text
    said, _, question = text.rpartition(". ")  # a full stop is to follow
    return f"{said} ({question[0].lower()}{question[1:]})" if said else text.removesuffix("?")


def or_missing(
    part: Callable[..., Result], *given: object, also: type[WhatWhereError] | tuple[()] = ()
) -> Result | Missing:
    """Compute a part of some findings, or return why it cannot be computed: NoData, or what is caught `also`."""
    try:
        return part(*given)
    except NoData as problem:
        return Missing(str(problem))
    except also as problem:
        return Missing(reason_of(problem))
