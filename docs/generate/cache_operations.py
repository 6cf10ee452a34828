"""The table of what can be done with a KV cache under each scheme, tried out."""

from collections.abc import Callable

import torch

import whatwhere as ww
from whatwhere.errors import SettingError
from whatwhere.where.catalogue import Scheme, catalogue

_SIZES, _TOKENS, _LENGTH = (64, 4, 16), 8, 64
_REFUSED = {"inside its hidden vector": "refused¹", "sum over all tokens": "refused²"}
_NOTES = (
    "¹ The position of a token is inside its hidden vector, which is computed again at the new position. ² Each key is "
    'rotated by a sum over the tokens before it, which are others then. "Whole model" is whether shifting all tokens '
    'changes no score; "in one regime": for one `regime_length`.'
)
_OPERATIONS: dict[str, Callable[[ww.KVCache], ww.KVCache]] = {
    "crop": lambda cache: cache.crop(5),
    "fork": lambda cache: cache.fork([0, 0]),
    "forget": lambda cache: cache.forget(),
    "shift": lambda cache: cache.shift(9),
    "drop": lambda cache: cache.drop(2, 4),
    "paste": lambda cache: cache.paste(cache.fork()),
    "regime": lambda cache: cache.regime(_LENGTH),
}


def table() -> str:
    """Return a row for each scheme: what each operation does with its keys."""
    columns = [
        "scheme",
        "append, crop, slices, fork, select",
        "forget",
        "shift",
        "drop",
        "paste",
        "regime",
        "whole model: shift",
    ]
    rows = [columns, ["---"] * len(columns), *(_row(entry) for entry in catalogue.values())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + f"\n\n{_NOTES}"


def _row(entry: Scheme) -> list[str]:
    cells = [_cell(entry, name) for name in _OPERATIONS]
    either = cells[0] if cells[0] == cells[1] else f"{cells[0]}, {cells[1]}"
    return [f"`{entry.name}`", either, *cells[2:], "no" if cells[3].startswith("refused") else entry.shift_invariance]


def _cell(entry: Scheme, operation: str) -> str:
    """Return what an operation did with the keys of a scheme, which are compared with those of a forward pass."""
    where = entry.build(*_SIZES)
    if operation == "forget":
        where = ww.Where(input=where.input, query_key=where.query_key, score=where.score, window=3)
    dim, heads, _ = _SIZES
    x, k = torch.randn(1, _TOKENS, dim), torch.randn(1, heads, _TOKENS, dim // heads)
    cache = where.cache(regime_length=_LENGTH // 4 if entry.follows_length else None)
    here = cache.at(_TOKENS)
    increments, gates = here.increments(x), here.gates(x)
    cache.append(here, here.query_key(k, k, increments=increments)[1], k, gates=gates, increments=increments)
    try:
        changed = _OPERATIONS[operation](cache)
    except SettingError as refusal:
        return next(words for reason, words in _REFUSED.items() if reason in str(refusal))
    if operation == "regime" and not entry.follows_length:
        return "nothing to do"
    if where.query_key is not None and not where.query_key.by_content:
        _require_equal(changed, k)
    idle = operation in ("shift", "drop", "paste") and (where.query_key is None or where.query_key.by_content)
    return "nothing to do" if idle else "yes"


def _require_equal(cache: ww.KVCache, k: torch.Tensor) -> None:
    """Raise ValueError unless the keys are those of a forward pass; values are the keys before the map."""
    here = cache.where.at(cache.positions, regime_length=cache.regime_length)
    fresh = here.query_key(cache.v, cache.v)[1]
    if not torch.allclose(cache.k, fresh, rtol=0, atol=1e-4 * float(k.abs().max())):
        raise ValueError(f"{cache.where} has other keys in its cache than a forward pass.")
