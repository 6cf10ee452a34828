"""What is open: the line at the head of the page, and which views have something to show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whatwhere import __version__
from whatwhere.studio.api import pipeline, positions, variance
from whatwhere.studio.api.settings import known
from whatwhere.studio.schemes import has_own, runs
from whatwhere.studio.session import Kind, Session

Which = Literal["input", "readout"]


@dataclass(frozen=True)
class TableHeader:
    """A token table as the header of its file describes it.

    Args:
        name: of the tensor.
        rows, dim: its shape.
        dtype: the stored type.
    """

    name: str
    rows: int
    dim: int
    dtype: str


@dataclass(frozen=True)
class About:
    """What is open.

    Args:
        version: of whatwhere.
        kind: a model, the results of a comparison, or random vectors where nothing was opened.
        name: for headings.
        path: of the file or folder; "" where nothing was opened, and in an exported page.
        format: of the checkpoint.
        model: the model type of the configuration.
        tables: the token tables, input and output.
        tied: whether both are the same; null where that is unknown.
        guessed: whether the token table was chosen by its size, for no name is known.
        positions: the shape of the position table.
        begin: the settings that some views begin with, by the names of the views.
        own: whether the file itself describes positions, by a configuration or a table.
        runs: of a comparison, such as "rotary-0".
        other: the path of a second checkpoint, which the first is compared with.
        words: the number of tokens whose text is known.
        tokenizer: whether there is one.
        examples: tokens to begin with.
        analogy: three tokens of an analogy, or none.
        exported: in an exported page the views that it holds; null elsewhere.
        first: in an exported page the view that it opens on.
    """

    version: str
    kind: Kind
    name: str
    path: str
    format: str
    model: str | None
    tables: Mapping[Which, TableHeader]
    tied: bool | None
    guessed: bool
    positions: Sequence[int] | None
    begin: Mapping[str, Mapping[str, str | int | float | bool]]
    own: bool
    runs: Sequence[str]
    other: str | None
    words: int
    tokenizer: bool
    examples: Sequence[str]
    analogy: Sequence[str]
    exported: Sequence[str] | None = None
    first: str | None = None


def about(session: Session, settings: Mapping[str, Any]) -> About:
    """Describe the source from headers alone."""
    known(settings)
    checkpoint = session.checkpoint
    positions_name = checkpoint.position_table
    model = (checkpoint.config or {}).get("model_type")
    return About(
        version=__version__,
        kind=session.kind,
        name=session.name,
        path="" if session.kind == "fresh" else str(checkpoint.path),
        format=checkpoint.format,
        model=model if isinstance(model, str) else None,
        tables=_tables(session),
        tied=checkpoint.tied,
        guessed=checkpoint.names.guessed,
        positions=None if positions_name is None else checkpoint.entry(positions_name).shape,
        begin={
            "pipeline": pipeline.begin(session),
            "positions": positions.begin(session),
            "variance": variance.begin(session),
        },
        own=has_own(session),
        runs=runs(session),
        other=None if session.other is None else str(session.other.path),
        words=len(session.words),
        tokenizer=session.tokenizer is not None,
        examples=examples(session),
        analogy=analogy(session),
    )


def _tables(session: Session) -> dict[Which, TableHeader]:
    checkpoint = session.checkpoint
    names: dict[Which, str | None] = {"input": checkpoint.token_table, "readout": checkpoint.output_projection}
    entries = {
        which: checkpoint.entry(name) for which, name in names.items() if which in session.tables and name is not None
    }
    return {
        which: TableHeader(entry.name, entry.shape[0], entry.shape[1], entry.dtype) for which, entry in entries.items()
    }


def examples(session: Session) -> list[str]:
    """Return some tokens to begin with, all of which the vocabulary has."""
    asked = [*_written("king"), *_written("Paris"), *_written("paris"), "##ing", "ing", "1999", "Max", "First", "("]
    known_words = set(session.words)
    found = [word for word in asked if word in known_words][:6]
    if found or not session.tables:
        return found
    return [f"#{n}" for n in session.table().ids[:6].tolist()]  # rows that hold numbers


def analogy(session: Session) -> list[str]:
    """Return the three words of an analogy that the vocabulary has, in one way of writing, or none."""
    known_words = set(session.words)
    for words in (("man", "woman", "king"), ("First", "Last", "Max")):
        for written in zip(*map(_written, words), strict=True):
            if known_words.issuperset(written):
                return list(written)
    return []


def _written(word: str) -> tuple[str, ...]:
    """Return a word as vocabularies write the beginning of one."""
    return (f"Ġ{word}", f"▁{word}", word)
