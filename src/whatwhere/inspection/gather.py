"""Gather everything about one checkpoint into one plain dictionary."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
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


def check_sections(sections: Sequence[str] | None) -> tuple[str, ...]:
    """Give the sections that are asked for, in their order; SettingError where one is unknown, or none is asked for."""
    asked = tuple(SECTIONS if sections is None else sections)
    for name in asked:
        if name not in _WRITTEN:
            raise SettingError(f"there is no section {name!r}; there are: {', '.join(SECTIONS)}.")
    if not asked:
        raise SettingError(f"no section is asked for; there are: {', '.join(SECTIONS)}.")
    return tuple(name for name in SECTIONS if name in asked)


def gather(
    subject: Subject, sections: Sequence[str] = SECTIONS, known: Mapping[str, dict[str, Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """Give what there is to say of a checkpoint, section by section, as JSON holds it.

    A section holds its numbers, or {"missing": why}. Those that are known need not be found again.
    """
    found = {name: known.get(name) or tried(_WRITTEN[name], subject) for name in sections}
    checkpoint = subject.checkpoint
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "whatwhere": __version__,
        "path": str(checkpoint.path),
        "checkpoint": checkpoint.format,
        "seed": subject.seed,
    }
    table = checkpoint.token_table
    shape = None if table is None else checkpoint.entry(table).shape
    return {**about, "answer": answer(found, shape), "sections": found}
