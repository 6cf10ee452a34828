"""The catalogue: one entry for each scheme, and the one complete list of them."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from re import sub
from types import MappingProxyType
from typing import Any

import torch

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, UnknownScheme
from whatwhere.where.binding import Where
from whatwhere.where.catalogue.entry import Scheme as Scheme
from whatwhere.where.catalogue.entry import SchemeDescription, SchemeFacts
from whatwhere.where.catalogue.options import split_options
from whatwhere.where.catalogue.schemes import ENTRIES

catalogue: Mapping[str, Scheme] = MappingProxyType({entry.name: entry for entry in ENTRIES})
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "rope": "rotary",
        "nope": "none",
        "absolute": "learned",
        "pi": "rotary-linear",
        "ntk": "rotary-ntk",
        "dynamic-ntk": "rotary-dynamic-ntk",
        "yarn": "rotary-yarn",
        "longrope": "rotary-longrope",
        "llama3": "rotary-llama3",
    }
)
"""Other names of schemes. `absolute` is the learned table that Hugging Face's configurations call so."""


def canonical_name(name: str) -> str:
    """Return a name as the catalogue has it: aliases are replaced, in mixtures too.

    Args:
        name: of a scheme, or a mixture by door "rope+alibi" or by layer "rope/nope"; other names stay as they are.

    Examples:
        >>> canonical_name("rope+alibi"), canonical_name("rope/NoPE"), canonical_name("mine")
        ('rotary+alibi', 'rotary/none', 'mine')
    """
    return sub(r"(?<![^+/\s])[^+/@\s]+", lambda part: ALIASES.get(part[0].lower(), part[0]), name)


def scheme(
    name: str,
    dim: int,
    num_heads: int,
    max_length: int,
    *,
    generator: torch.Generator | None = None,
    **options: Any,
) -> Where:
    """Build a scheme by name, or a mixture such as "rotary+alibi" with one scheme at each door.

    Args:
        name: an entry of the catalogue, an alias such as "rope", or several joined by "+"; each may have options, as in
            "rotary@theta=500000".
        dim: features of a token vector.
        num_heads: heads of the attention; must divide dim for schemes of queries, keys or scores.
        max_length: rows of schemes that learn a table; the trained length of schemes that have one.
        generator: random generator for parameters, which are made on its device, in the order of the name; None is
            PyTorch's global random state.
        options: further settings of the scheme, such as theta=500_000.0; not for mixtures.

    Returns:
        A Where with the scheme at its door.

    Raises:
        UnknownScheme: If the catalogue has no such entry.
        SettingError: If the scheme does not take these options, or two schemes of a mixture have the same door.

    Examples:
        >>> scheme("rotary", dim=64, num_heads=4, max_length=128)
        Where(query_key=Rotary(head_dim=16, theta=10000.0, interleaved=False, rotary_dim=16))
    """
    require_whole("scheme", dim=dim, num_heads=num_heads, max_length=max_length)
    if not isinstance(name, str):
        raise UnknownScheme(f"scheme takes a name, but got {name!r}.\nThe catalogue has: {', '.join(catalogue)}.")
    names = [part.strip() for part in canonical_name(name).split("+")]
    if len(names) > 1 and options:
        raise SettingError(
            f"options {sorted(options)} are ambiguous in the mixture {name!r}: build it with Where(...)."
        )
    parts = []
    for part in names:
        entry, own = split_options(part)
        if both := sorted(own.keys() & options.keys()):
            raise SettingError(f"the option {both[0]} is both in the name {part!r} and passed: leave one out.")
        if alone := [key for key, value in own.items() if value is None]:
            raise SettingError(f"the option {alone[0]!r} of {part!r} has no value: write it as {alone[0]}=....")
        try:
            parts.append(_built(_entry(entry), (dim, num_heads, max_length), {**own, **options}, generator))
        except TypeError as error:
            raise SettingError(f"{part!r} does not take these options: {error}.") from error
    return parts[0] if len(parts) == 1 else _mix(name, parts)


def describe(entry: Scheme) -> SchemeDescription:
    """Return the facts of an entry without what builds it, as `schemes --json` prints them.

    Examples:
        >>> describe(catalogue["alibi"]).shift_invariance
        'yes'
    """
    facts = {field.name: getattr(entry, field.name) for field in fields(SchemeFacts)}
    return SchemeDescription(**facts, shift_invariance=entry.shift_invariance, length=entry.length, traps=entry.traps)


def _built(
    entry: Scheme, sizes: tuple[int, int, int], options: Mapping[str, Any], generator: torch.Generator | None
) -> Where:
    """Build an entry; with a generator, the global random state is not advanced."""
    if generator is None or not entry.learned:
        return entry.build(*sizes, **options)
    where = entry.build(*sizes, **{**options, "device": "meta"})
    where.to_empty(device=options.get("device", generator.device)).reset_parameters(generator)
    return where


def _entry(name: str) -> Scheme:
    if name in catalogue:
        return catalogue[name]
    near = dict.fromkeys(map(canonical_name, get_close_matches(name.lower(), [*catalogue, *ALIASES], n=3)))
    hint = f"Did you mean {' or '.join(near)}?\n" if near else ""
    raise UnknownScheme(f"the catalogue has no scheme {name!r}.\n{hint}It has: {', '.join(catalogue)}.")


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
