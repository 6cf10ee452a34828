"""What inspects the open checkpoint, asked by several views: each thing is worked out once, and told as it is done."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

from whatwhere.inspection.gather import gather
from whatwhere.inspection.rows import unhealthy as rows
from whatwhere.inspection.subject import Subject, tried
from whatwhere.studio.sources import Source

SEED = 0
_RESULTS = ("norms", "spectrum", "unhealthy")
"""What is said of a results folder: its tables are several runs', and one run's positions are no other's."""


@final
class _Teller:
    """Tell whoever listens in this thread what is done."""

    def __init__(self) -> None:
        self._here = threading.local()

    def __call__(self, said: str) -> None:
        if (tell := getattr(self._here, "tell", None)) is not None:
            tell(said)

    @contextmanager
    def to(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Have what this thread does told, for as long as this lasts."""
        before = getattr(self._here, "tell", None)
        self._here.tell = tell
        try:
            yield
        finally:
            self._here.tell = before


def subject(source: Source) -> Subject:
    """Give what inspection asks, on the table that is already read."""
    return _subject(source)[0]


def unhealthy(source: Source, tell: Callable[[str], None]) -> dict[str, Any]:
    """Give the rows that are not well, or why there are none to look at."""
    found, teller = _subject(source)
    with teller.to(tell):
        return source.once("rows that are not well", lambda: tried(rows, found))


def inspection(source: Source, tell: Callable[[str], None]) -> dict[str, Any]:
    """Give what `whatwhere.inspection.inspect` says, as far as it makes sense of what is open."""
    found, teller = _subject(source)

    def make() -> dict[str, Any]:
        known = {"unhealthy": unhealthy(source, tell)} if source.tables else {}
        return gather(found, _RESULTS, known) if source.kind == "results" else gather(found, known=known)

    with teller.to(tell):
        return source.once("inspection", make)


def keep(source: Source, data: dict[str, Any]) -> None:
    """Take what an inspection found before, so that no view looks for it again."""
    source.once("inspection", lambda: data)
    if data["seed"] == SEED and (found := data["sections"].get("unhealthy")) is not None:
        source.once("rows that are not well", lambda: found)


def _subject(source: Source) -> tuple[Subject, _Teller]:
    def make() -> tuple[Subject, _Teller]:
        teller = _Teller()
        made = Subject(source.checkpoint, SEED, teller)
        # The cache of a cached property: one copy of the table in memory serves both.
        if source.tables and not len(source.table().broken) and source.table().weight.dtype.kind == "f":
            vars(made)["table"] = source.table().weight
        if source.checkpoint.tokenizer is None and source.tokenizer is not None:
            vars(made)["tokenizer"] = source.tokenizer  # where nothing is a file, the source has one of its own
        return made, teller

    return source.once("subject", make)
