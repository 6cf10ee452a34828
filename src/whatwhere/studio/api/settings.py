"""What the views share: settings of a query, checked, and what an exported page holds of a view."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whatwhere.errors import SettingError
from whatwhere.report.section import Section
from whatwhere.studio.schemes import ShownScheme, scheme_of
from whatwhere.studio.session import Session

LONGEST_TEXT = 20_000
MOST_FEATURES, MOST_HEADS = 1024, 64


@dataclass(frozen=True)
class ExportedView:
    """What an exported page holds of a view.

    Args:
        title: of the view.
        queries: names and settings of the queries and jobs whose answers it holds.
        sections: the same to read without JavaScript.
        begin: the settings that the view begins with there; None for those of the live page.
        text: sentences above the sections, the answer first.
    """

    title: str
    queries: Sequence[tuple[str, Mapping[str, Any]]]
    sections: Sequence[Section] = ()
    begin: Mapping[str, Any] | None = None
    text: Sequence[str] = ()


def known(settings: Mapping[str, Any], *names: str) -> None:
    """Raise SettingError for settings that a query does not have."""
    if other := sorted(set(settings) - set(names)):
        raise SettingError(f"this query has no setting {other[0]!r}; it has: {', '.join(names) or 'none'}.")


def text(settings: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a bounded length."""
    value = settings.get(name, default)
    if not isinstance(value, str):
        raise SettingError(f"{name} must be a text, but is {_short(value)}.")
    if len(value) > LONGEST_TEXT:
        raise SettingError(f"{name} has {len(value):,} characters; at most {LONGEST_TEXT:,} are taken.")
    if any(0xD800 <= ord(char) < 0xE000 for char in value):
        raise SettingError(f"{name} has half a character (a lone surrogate), which no text has.")
    return value


def whole(settings: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    """Return a whole number within its range."""
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SettingError(f"{name} must be a whole number from {low:,} to {high:,}, but is {_short(value)}.")
    return value


def number(settings: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """Return a number within its range."""
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SettingError(f"{name} must be a number from {low:,} to {high:,}, but is {_short(value)}.")
    return float(value)


def flag(settings: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a yes or no."""
    value = settings.get(name, default)
    if not isinstance(value, bool):
        raise SettingError(f"{name} must be true or false, but is {_short(value)}.")
    return value


def one_of(settings: Mapping[str, Any], name: str, choices: Sequence[str], default: str | None = None) -> str:
    """Return one of some words."""
    value = settings.get(name, choices[0] if default is None else default)
    if value not in choices:
        raise SettingError(f"{name} must be one of {', '.join(choices)}, but is {_short(value)}.")
    return str(value)


def scheme(session: Session, settings: Mapping[str, Any], max_length: int, dim: int | None = None) -> ShownScheme:
    """Build the scheme that the settings scheme, dim, heads and seed name; a 0 takes what the open model has.

    Args:
        source: what is open.
        settings: of the question.
        max_length: positions of a learned table of the catalogue.
        dim: features in place of the setting.
    """
    features = whole(settings, "dim", 0, 0, MOST_FEATURES)
    heads = whole(settings, "heads", 0, 0, MOST_HEADS)
    seed = whole(settings, "seed", 0, 0, 1 << 31)
    name = text(settings, "scheme")
    return scheme_of(
        session, name, dim=dim or features or None, num_heads=heads or None, max_length=max_length, seed=seed
    )


def _short(value: Any) -> str:
    return reprlib.repr(value)[:80]  # which does not descend into what is nested deeply
