"""What differs between two checkpoints: tokens by their text, positions, configurations."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.difference import Alignment, Movement, align, movement, overlap, token_keys, turn
from whatwhere.errors import CheckpointError, MissingExtra, SettingError
from whatwhere.inspection.configurations import configurations
from whatwhere.inspection.subject import Absent, plain
from whatwhere.interop.checkpoint import Checkpoint
from whatwhere.interop.checkpoint.asked import Table, read_table, word_of
from whatwhere.interop.reading import read

ALIKE = 0.9
"""Median cosine of the rows, below which the spaces are taken for different ones and turned onto each other."""

Tell = Callable[[str], None]


def difference(
    first: str | Path,
    second: str | Path,
    *,
    table: str = "input",
    k: int = 10,
    asked: int = 512,
    most: int = 10,
    seed: int = 0,
    allow_pickle: bool = False,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Compare the input layers of two checkpoints, of any formats, and give everything as JSON holds it.

    Tokens are matched by their text, or by id where one of the two says no texts. A part that cannot be compared says
    why under "missing".

    Args:
        first, second: files, folders, or configurations alone.
        table: "input", "readout", or the name of a tensor that both have.
        k: neighbors that are compared.
        asked: rows whose neighbors are compared, drawn evenly.
        most: how many of the rows that moved most are named.
        seed: of what is drawn.
        allow_pickle: read pickles too; pass True only where you trust the author.
        tell: is called with what is being done.
    """
    if k < 1 or asked < 1 or most < 0:
        raise SettingError(f"a difference got k={k}, asked={asked} and most={most}, but needs 1, 1 and 0 or more.")
    paths = first, second
    sides = [read(path, allow_pickle=allow_pickle) for path in paths]
    files = [side for side in sides if isinstance(side, Checkpoint)]
    found: dict[str, Any] = {
        name: {"path": str(path), "format": side.format if isinstance(side, Checkpoint) else "configuration"}
        for name, path, side in zip(("first", "second"), paths, sides, strict=True)
    }
    if len(files) == 2:
        one, other = files
        found["tokens"] = _tried(lambda: _tokens(one, other, table, (k, asked, most, seed), tell))
        found["positions"] = _tried(lambda: _positions(one, other, most, tell))
    else:
        why = {"missing": "one of the two is a configuration alone, which holds no tables"}
        found["tokens"] = found["positions"] = why
    tell("comparing configurations")
    found["configuration"] = _tried(lambda: configurations(*sides))
    if all("missing" in found[part] for part in ("tokens", "positions", "configuration")):
        raise CheckpointError(
            f"{first} and {second} have nothing that could be compared: {found['tokens']['missing']}."
        )
    return plain(found)


def _tried(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return part()
    except (Absent, CheckpointError, MissingExtra) as problem:
        return {"missing": str(problem).rstrip(".")}


def _tokens(
    first: Checkpoint, second: Checkpoint, which: str, settings: tuple[int, int, int, int], tell: Tell
) -> dict[str, Any]:
    k, asked, most, seed = settings
    tables = []
    for checkpoint in (first, second):
        tell(f"reading {checkpoint.path}")
        tables.append(read_table(checkpoint, which))
    one, other = tables
    by, found = _aligned(one, other)
    shared = [one.word(row) for row in found.first.tolist()]
    x, y = _taken(one.weight, found.first), _taken(other.weight, found.second)
    facts = {
        "aligned_by": by,
        "tables": [_facts(side) for side in tables],
        "shared": len(shared),
        "removed": [one.word(row) for row in found.removed.tolist()],
        "new": [other.word(row) for row in found.new.tolist()],
    }
    if not shared:
        why = {"missing": f"no token is in both: they were matched by {by}"}
        return facts | {"rows": why, "turned": why, "neighbors": why}
    if x.shape != y.shape:
        why = {"missing": f"rows have {x.shape[1]:,} and {y.shape[1]:,} features, so they have no distance"}
        return facts | {"rows": why, "turned": why, "neighbors": _neighborhoods(x, y, shared, k, asked, seed, tell)}
    tell("comparing rows")
    moved = movement(x, y)
    ids = [(int(one.ids[a]), int(other.ids[b])) for a, b in zip(found.first, found.second, strict=True)]
    facts["rows"] = _rows(moved, shared, ids, most)
    facts["turned"] = _turned(moved, x, y, shared, ids, most, seed, tell)
    facts["neighbors"] = _neighborhoods(x, y, shared, k, asked, seed, tell)
    return facts


def _positions(first: Checkpoint, second: Checkpoint, most: int, tell: Tell) -> dict[str, Any]:
    sides = []
    for checkpoint in (first, second):
        name = checkpoint.position_table
        if name is None:
            raise Absent(f"{checkpoint.path} has no table of positions")
        tell(f"reading {name} of {checkpoint.path}")
        sides.append((read_table(checkpoint, name), checkpoint.position_offset or 0))
    (one, start), (other, begin) = sides
    found = align(
        [n - start if n >= start else "" for n in one.ids.tolist()],
        [n - begin if n >= begin else "" for n in other.ids.tolist()],
    )
    x, y = one.weight[found.first], other.weight[found.second]
    facts = {
        "tables": [_facts(side) for side, _ in sides],
        "offsets": [start, begin],
        "shared": len(x),
        "removed": len(found.removed),
        "new": len(found.new),
    }
    if not len(x) or x.shape != y.shape:
        return facts | {"rows": {"missing": f"rows have {x.shape[1]:,} and {y.shape[1]:,} features"}}
    places = [int(one.ids[row]) - start for row in found.first.tolist()]
    named = [f"position {place}" for place in places]
    ids = [(int(one.ids[a]), int(other.ids[b])) for a, b in zip(found.first, found.second, strict=True)]
    return facts | {"rows": _rows(movement(x, y), named, ids, most)}


def _aligned(one: Table, other: Table) -> tuple[str, Alignment]:
    if not one.words or not other.words:
        return "id", align(one.ids.tolist(), other.ids.tolist())
    first, second = token_keys(one.words, other.words)
    return "text", align(_keys(one, first), _keys(other, second))


def _keys(table: Table, keys: Sequence[Hashable]) -> list[Hashable]:
    """Give the key of each row; "" for one that no token has, or a token without text."""
    words = table.words
    return [keys[n] if n < len(keys) and words[n] else "" for n in table.ids.tolist()]


def _facts(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "dtype": table.dtype,
        "rows": table.rows,
        "dim": table.weight.shape[1],
        "left_out": [word_of(table.words, n) for n in table.broken.tolist()],
    }


def _taken(weight: np.ndarray, rows: Int64[np.ndarray, " rows"]) -> np.ndarray:
    """Take rows; the whole table as it is, without a copy."""
    return weight if np.array_equal(rows, np.arange(len(weight))) else weight[rows]


def _rows(moved: Movement, names: Sequence[str], ids: list[tuple[int, int]], most: int) -> dict[str, Any]:
    order = [row for row in np.argsort(-moved.distance, kind="stable").tolist() if not moved.equal[row]][:most]
    return {
        "equal": int(moved.equal.sum()),
        "relative_error": moved.relative_error,
        "cosine": _spread(moved.cosine),
        "distance": _spread(moved.distance),
        "length_ratio": _spread(moved.ratio[np.isfinite(moved.ratio)]),
        "most_moved": [
            {
                "token": names[row],
                "ids": ids[row],
                "distance": moved.distance[row],
                "cosine": moved.cosine[row],
                "length_ratio": moved.ratio[row],
            }
            for row in order
        ],
    }


def _spread(values: Float[np.ndarray, " values"]) -> dict[str, Any]:
    if not len(values):
        return dict.fromkeys(("least", "median", "mean", "greatest"))
    return {
        "least": values.min(),
        "median": float(np.median(values)),
        "mean": values.mean(),
        "greatest": values.max(),
    }


def _turned(
    moved: Movement,
    x: np.ndarray,
    y: np.ndarray,
    names: Sequence[str],
    ids: list[tuple[int, int]],
    most: int,
    seed: int,
    tell: Tell,
) -> dict[str, Any]:
    if float(np.median(moved.cosine)) >= ALIKE:
        return {"missing": f"the spaces are one: the median cosine is at least {ALIKE}"}
    if len(x) < 4 * x.shape[1]:
        return {"missing": f"{len(x):,} shared rows are too few to tell a rotation of {x.shape[1]:,} features"}
    tell("turning one space onto the other")
    found = turn(x, y, seed)
    held_out = float(np.median(found.movement.cosine[found.held_out]))
    return {"fitted": len(found.fitted), "held_out_cosine": held_out} | _rows(found.movement, names, ids, most)


def _neighborhoods(
    x: np.ndarray, y: np.ndarray, names: Sequence[str], k: int, asked: int, seed: int, tell: Tell
) -> dict[str, Any]:
    if len(x) < 2:
        return {"missing": "there are fewer than two shared tokens"}
    tell("comparing neighborhoods")
    found = overlap(x, y, k, asked, seed)
    order = np.argsort(found.kept, kind="stable")[:10].tolist()
    return {
        "k": found.k,
        "asked": len(found.rows),
        "kept": found.kept.mean(),
        "chance": found.k / (len(x) - 1),
        "least_kept": [{"token": names[int(found.rows[n])], "kept": found.kept[n]} for n in order if found.kept[n] < 1],
    }
