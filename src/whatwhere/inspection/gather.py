"""Gather everything about one checkpoint into one plain dictionary."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whatwhere import __version__
from whatwhere.errors import SettingError
from whatwhere.inspection.answer import answer
from whatwhere.inspection.biases import biases
from whatwhere.inspection.places import against, positions
from whatwhere.inspection.rows import unhealthy
from whatwhere.inspection.subject import Subject, tried
from whatwhere.inspection.tokens import filled, norms, sizes
from whatwhere.inspection.turning import rotary
from whatwhere.interop.checkpoint import Checkpoint

FORMAT, VERSION = "whatwhere-inspection", 1

_WRITTEN: dict[str, Callable[[Subject], dict[str, Any]]] = {
    "sizes": sizes,
    "shares": against,
    "norms": norms,
    "spectrum": filled,
    "unhealthy": unhealthy,
    "positions": positions,
    "rotary": rotary,
    "biases": biases,
}
SECTIONS = tuple(_WRITTEN)


def gather(
    path: str | Path,
    sections: Sequence[str] | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Give what there is to say of a checkpoint, section by section, as JSON holds it.

    A section holds its numbers, or {"missing": why}.
    """
    asked = tuple(SECTIONS if sections is None else sections)
    for name in asked:
        if name not in _WRITTEN:
            raise SettingError(f"there is no section {name!r}; there are: {', '.join(SECTIONS)}.")
    if not asked:
        raise SettingError(f"no section is asked for; there are: {', '.join(SECTIONS)}.")
    tell("opening")
    subject = Subject(Checkpoint.open(path, allow_pickle=allow_pickle), seed, tell)
    found = {name: tried(_WRITTEN[name], subject) for name in SECTIONS if name in asked}
    about: dict[str, Any] = {"format": FORMAT, "version": VERSION, "whatwhere": __version__, "path": str(path)}
    about |= {"checkpoint": subject.checkpoint.format, "seed": seed}
    table = subject.checkpoint.token_table
    shape = None if table is None else subject.checkpoint.entry(table).shape
    return {**about, "answer": answer(found, shape), "sections": found}
