"""The catalogue: one row for each way of saying where; nothing else in the library knows a list of schemes."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, UnknownScheme
from whatwhere.where.binding import Where
from whatwhere.where.catalogue.input import ROWS as _INPUT
from whatwhere.where.catalogue.query_key import ROWS as _QUERY_KEY
from whatwhere.where.catalogue.row import Scheme as Scheme
from whatwhere.where.catalogue.score import ROWS as _SCORE

catalogue: Mapping[str, Scheme] = MappingProxyType({row.name: row for row in (*_INPUT, *_QUERY_KEY, *_SCORE)})


def scheme(name: str, dim: int, num_heads: int, max_length: int, **options: Any) -> Where:
    """Build a scheme by name, or a mixture such as "rotary+alibi", one scheme a door.

    Args:
        name: a row of the catalogue, or rows joined by "+".
        dim: features of a token vector.
        num_heads: heads of the attention; must divide dim for schemes at the heads.
        max_length: rows of schemes that learn a table.
        options: further settings of the scheme, such as theta=500_000.0; not for mixtures.

    >>> scheme("rotary", dim=64, num_heads=4, max_length=128)
    Where(query_key=Rotary(head_dim=16, theta=10000.0, interleaved=False, rotary_dim=16))
    """
    require_whole("scheme", dim=dim, num_heads=num_heads, max_length=max_length)
    if not isinstance(name, str):
        raise UnknownScheme(
            f"a scheme is asked for by name, but got {name!r}.\nThe catalogue holds: {', '.join(catalogue)}."
        )
    names = [part.strip() for part in name.split("+")]
    if len(names) > 1 and options:
        raise SettingError(
            f"options {sorted(options)} cannot be told apart in the mixture {name!r}: build it with Where(...)."
        )
    parts = []
    for part in names:
        try:
            parts.append(_row(part).build(dim, num_heads, max_length, **options))
        except TypeError as problem:
            raise SettingError(f"{part!r} does not take these options: {problem}.") from problem
    return parts[0] if len(parts) == 1 else _mix(name, parts)


def describe(row: Scheme) -> dict[str, Any]:
    """Give the facts of a row as JSON holds them.

    >>> describe(catalogue["alibi"])["door"]
    'score'
    """
    facts = {
        field.name: list(value) if isinstance(value := getattr(row, field.name), tuple) else value
        for field in fields(row)
        if field.name not in ("build", "variants")
    }
    return facts | {"moves": row.moves, "length": row.length}


def _row(name: str) -> Scheme:
    if name in catalogue:
        return catalogue[name]
    near = get_close_matches(name.lower(), catalogue, n=3)
    hint = f"Did you mean {' or '.join(near)}?\n" if near else ""
    raise UnknownScheme(f"the catalogue holds no scheme {name!r}.\n{hint}It holds: {', '.join(catalogue)}.")


def _mix(name: str, parts: list[Where]) -> Where:
    doors: dict[str, Any] = {}
    for part in parts:
        for door in ("input", "query_key", "score"):
            taken = getattr(part, door)
            if taken is not None and door in doors:
                raise SettingError(f"the mixture {name!r} has two schemes at the door {door!r}; each door takes one.")
            if taken is not None:
                doors[door] = taken
    return Where(**doors)
