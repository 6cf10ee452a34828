"""One sentence that says what a checkpoint's input layer is."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard


def answer(sections: Mapping[str, Any], shape: Sequence[int] | None = None) -> str:
    """Say the most telling facts of the sections that are there.

    Args:
        sections: by name.
        shape: of the token table, or None.

    >>> answer({"shares": {"token": 0.86, "position": 0.136, "interaction": 0.004}}, (500, 64))
    '500 tokens x 64; 86 % of what the first layer sees is what, 14 % where'
    """
    layer = ", ".join(part for part in (_tokens(shape), _where(sections)) if part)
    parts = [layer, _against(sections), _rows(sections)]
    return "; ".join(part for part in parts if part)


def there(section: Any) -> TypeGuard[Mapping[str, Any]]:
    """Tell whether a section has numbers."""
    return isinstance(section, Mapping) and "missing" not in section


def _tokens(shape: Sequence[int] | None) -> str:
    return "no token table was found" if shape is None else f"{shape[0]:,} tokens x {shape[1]:,}"


def _where(sections: Mapping[str, Any]) -> str:
    parts = []
    positions, rotary, biases = (sections.get(name) for name in ("positions", "rotary", "biases"))
    if there(positions):
        kind = "learned" if positions["learned"] else "fixed"
        parts.append(f"{kind} positions {positions['positions']:,}")
        if positions["trained"] < positions["looked_at"]:
            parts.append(f"trained up to {positions['trained']:,}")
    if there(rotary):
        first = rotary["settings"][0]
        lengths = f"{first['trained']:,} positions"
        if first["claimed"] != first["trained"]:
            lengths += f", claimed {first['claimed']:,}"
        many = "" if len(rotary["settings"]) == 1 else f", one of {len(rotary['settings'])} kinds"
        parts.append(f"{first['scheme']} of theta {first['theta']:,.0f}{many}, trained length {lengths}")
    if there(biases):
        first = biases["settings"][0]
        parts.append(f"{first['scheme']} biases in {first.get('heads', '?')} heads")
    return ", ".join(parts)


def _against(sections: Mapping[str, Any]) -> str:
    shares = sections.get("shares")
    if not there(shares):
        return ""
    what, where = (round(100 * shares[name]) for name in ("token", "position"))
    return f"{what} % of what the first layer sees is what, {where} % where"


def _rows(sections: Mapping[str, Any]) -> str:
    found = sections.get("unhealthy")
    if not there(found):
        return ""
    if there(found["unreachable"]) and found["unreachable"]["count"]:
        count = found["unreachable"]["count"]
        return f"{count:,} {'row' if count == 1 else 'rows'} no text can reach"
    never = found["never_trained"]["count"]
    return f"{never:,} {'row' if never == 1 else 'rows'} that training seems not to have reached" if never else ""
