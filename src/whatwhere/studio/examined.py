"""The inspection of the open checkpoint, shared by several views: each part is computed once, with its progress."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from whatwhere.inspection import SECTIONS, Inspection, examine
from whatwhere.inspection.diagnostics import TokenDiagnostics
from whatwhere.inspection.diagnostics import diagnostics as diagnose
from whatwhere.inspection.subject import Progress, Subject, tried
from whatwhere.records import Missing
from whatwhere.studio.session import Source

SEED = 0
_OF_RESULTS = ("norms", "spectrum", "diagnostics")
"""Sections of a results folder: its tables are several runs', and the positions of one belong to no other."""


@final
class _ProgressByThread:
    """A progress function that calls the one that the thread has set."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def __call__(self, step: str) -> None:
        if (progress := getattr(self._of_thread, "progress", None)) is not None:
            progress(step)

    @contextmanager
    def to(self, progress: Progress) -> Iterator[None]:
        """Send the steps of this thread to a function inside of the block."""
        before = getattr(self._of_thread, "progress", None)
        self._of_thread.progress = progress
        try:
            yield
        finally:
            self._of_thread.progress = before


def subject(source: Source) -> Subject:
    """Return the subject of inspections, on the table that is already read."""
    return _subject(source)[0]


def diagnostics(source: Source, progress: Progress) -> TokenDiagnostics | Missing:
    """Return the diagnostics of the token table, or why there are none."""
    made, by_thread = _subject(source)
    with by_thread.to(progress):
        return source.once("diagnostics", lambda: tried(diagnose, made))


def inspection(source: Source, progress: Progress) -> Inspection:
    """Return the inspection of what is open, of the sections that apply to it."""
    made, by_thread = _subject(source)

    def make() -> Inspection:
        known = diagnostics(source, progress) if source.tables else None
        return examine(made, _OF_RESULTS if source.kind == "results" else SECTIONS, known)

    with by_thread.to(progress):
        return source.once("inspection", make)


def keep(source: Source, found: Inspection) -> None:
    """Store an inspection that was computed before, so that no view computes it again.

    Args:
        source: what is open.
        found: its inspection.
    """
    source.once("inspection", lambda: found)
    known = found.diagnostics
    if found.seed == SEED and known is not None:
        source.once("diagnostics", lambda: known)


def _subject(source: Source) -> tuple[Subject, _ProgressByThread]:
    def make() -> tuple[Subject, _ProgressByThread]:
        progress = _ProgressByThread()
        made = Subject(source.checkpoint, SEED, progress)
        # The cache of a cached property: one copy of the table in memory serves both.
        if source.tables and not len(source.table().broken) and source.table().weight.dtype.kind == "f":
            vars(made)["table"] = source.table().weight
        if source.checkpoint.tokenizer is None and source.tokenizer is not None:
            vars(made)["tokenizer"] = source.tokenizer  # where nothing is a file, the source has one of its own
        return made, progress

    return source.once("subject", make)
