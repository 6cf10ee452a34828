"""The difference between two checkpoints: tokens matched by their text, positions, and configurations."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from whatwhere.analysis.configuration_difference import ConfigurationDifference, configurations
from whatwhere.analysis.subject import Absent, Progress, reason_of
from whatwhere.analysis.table_difference import (
    Alignment,
    DifferenceSettings,
    NeighborsDifference,
    RotatedDifference,
    RowsDifference,
    align,
    movement,
    neighbors_difference,
    rotated_difference,
    rows_difference,
    token_keys,
)
from whatwhere.errors import CheckpointError, MissingExtra, SettingError
from whatwhere.large_arrays import selected_rows
from whatwhere.models.checkpoint import Checkpoint, read
from whatwhere.models.checkpoint.lookup import Table, read_table, word_of
from whatwhere.records import Missing

Part = TypeVar("Part")
LISTED = 10_000
"""Names that a difference lists of each kind, at most; it counts all."""


@dataclass(frozen=True)
class Side:
    """One of the two checkpoints that are compared.

    Args:
        path: of the file or folder.
        format: of the checkpoint; "configuration" for a configuration alone.
    """

    path: str
    format: str


@dataclass(frozen=True)
class ComparedTable:
    """One of two tables that are compared: the name of its tensor, the stored type and its shape.

    Args:
        not_finite_count: rows that are ignored, for they hold NaN or infinity.
        not_finite: the first of them.
    """

    name: str
    dtype: str
    rows: int
    dim: int
    not_finite_count: int
    not_finite: Sequence[str]


@dataclass(frozen=True)
class TokensDifference:
    """The difference between two token tables.

    Args:
        matched_by: "text", or "id" where one of the two has no tokens.
        shared: tokens of both.
        removed_count, removed: number of tokens of the first alone, and the first of them.
        new_count, new: the same of the second.
        rows: matched row by row.
        rotated: the same after a rotation.
        neighbors: of the matched tokens.
    """

    matched_by: str
    tables: tuple[ComparedTable, ComparedTable]
    shared: int
    removed_count: int
    removed: Sequence[str]
    new_count: int
    new: Sequence[str]
    rows: RowsDifference | Missing
    rotated: RotatedDifference | Missing
    neighbors: NeighborsDifference | Missing


@dataclass(frozen=True)
class PositionsDifference:
    """The difference between two position tables.

    Args:
        offsets: the row that position 0 reads, in both.
        shared: positions of both.
        removed, new: how many positions one of them alone has.
        rows: matched position by position.
    """

    tables: tuple[ComparedTable, ComparedTable]
    offsets: tuple[int, int]
    shared: int
    removed: int
    new: int
    rows: RowsDifference | Missing


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference between two checkpoints: of their token tables, position tables and configurations."""

    first: Side
    second: Side
    tokens: TokensDifference | Missing
    positions: PositionsDifference | Missing
    configuration: ConfigurationDifference | Missing


def difference(
    first: str | Path,
    second: str | Path,
    *,
    table: str = "input",
    k: int = 10,
    queries: int = 512,
    rows: int = 10,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = lambda _: None,
) -> Difference:
    """Compare the input layers of two checkpoints of any formats.

    Tokens are matched by their text, or by id where one of the two has no tokens. A part that cannot be compared is
    Missing, with the reason.

    Args:
        first, second: files, folders, or configurations alone.
        table: "input", "output" for the output projection, or the name of a tensor that both have.
        allow_pickle: read pickles too; pass True only where you trust the author.

    Returns:
        The findings. Print them with `whatwhere diff`; `whatwhere.records.to_json` writes them as JSON.

    Raises:
        SettingError: If k or queries is below 1, or rows below 0.
        CheckpointError: If a file cannot be read, or nothing can be compared.

    Examples:
        >>> from tempfile import mkdtemp
        >>> folder = Path(mkdtemp())
        >>> for name, offset in (("a", 0.0), ("b", 1.0)):
        ...     np.save(folder / f"{name}.npy", offset + np.eye(4))
        >>> changes = difference(folder / "a.npy", folder / "b.npy")
        >>> changes.tokens.shared, changes.tokens.rows.equal, changes.positions.missing[:26]
        (4, 0, 'there is no position table')
    """
    if k < 1 or queries < 1 or rows < 0:
        raise SettingError(
            f"a difference got k={k}, queries={queries} and rows={rows}, but needs 1 or more, 1 or more, and 0 or more."
        )
    settings = DifferenceSettings(table, k, queries, rows, seed)
    one, other = read(first, allow_pickle=allow_pickle), read(second, allow_pickle=allow_pickle)
    tokens: TokensDifference | Missing
    positions: PositionsDifference | Missing
    if isinstance(one, Checkpoint) and isinstance(other, Checkpoint):
        files = one, other
        tokens = _tried(lambda: _tokens(*files, settings, progress))
        positions = _tried(lambda: _positions(*files, settings, progress))
    else:
        tokens = positions = Missing("one of the two is a configuration alone, which holds no tables")
    progress("comparing configurations")
    configuration = _tried(lambda: configurations(one, other))
    if isinstance(tokens, Missing) and isinstance(positions, Missing) and isinstance(configuration, Missing):
        raise CheckpointError(f"{first} and {second} have nothing that could be compared: {tokens.missing}.")
    sides = [
        Side(str(path), source.format if isinstance(source, Checkpoint) else "configuration")
        for path, source in ((first, one), (second, other))
    ]
    return Difference(sides[0], sides[1], tokens, positions, configuration)


def _tried(part: Callable[[], Part]) -> Part | Missing:
    try:
        return part()
    except Absent as problem:
        return Missing(str(problem))
    except (CheckpointError, MissingExtra) as problem:
        return Missing(f"this cannot be read: {reason_of(problem)}")


def _tokens(
    first: Checkpoint, second: Checkpoint, settings: DifferenceSettings, progress: Progress
) -> TokensDifference:
    progress(f"reading {first.path}")
    one = read_table(first, settings.table)
    progress(f"reading {second.path}")
    other = read_table(second, settings.table)
    matched_by, alignment = _aligned(one, other)

    def name(row: int) -> str:
        return one.readable(int(alignment.first[row]))

    x, y = selected_rows(one.weight, alignment.first), selected_rows(other.weight, alignment.second)
    rows: RowsDifference | Missing
    rotated: RotatedDifference | Missing
    neighbors: NeighborsDifference | Missing
    if not len(x):
        rows = rotated = neighbors = Missing(f"no token is in both: they were matched by {matched_by}")
    else:
        if x.shape != y.shape:
            rows = rotated = _apart(x, y)
        else:
            progress("comparing rows")
            moved = movement(x, y)
            ids = _ids(one, other, alignment)
            rows = rows_difference(moved, name, ids, settings.rows)
            rotated = rotated_difference(moved, x, y, name, ids, settings, progress)
        neighbors = neighbors_difference(x, y, name, settings, progress)
    return TokensDifference(
        matched_by=matched_by,
        tables=(_described(one), _described(other)),
        shared=len(x),
        removed_count=len(alignment.removed),
        removed=[one.readable(row) for row in alignment.removed[:LISTED].tolist()],
        new_count=len(alignment.new),
        new=[other.readable(row) for row in alignment.new[:LISTED].tolist()],
        rows=rows,
        rotated=rotated,
        neighbors=neighbors,
    )


def _positions(
    first: Checkpoint, second: Checkpoint, settings: DifferenceSettings, progress: Progress
) -> PositionsDifference:
    one, other = (_position_table(checkpoint, progress) for checkpoint in (first, second))
    start, begin = first.position_offset or 0, second.position_offset or 0
    alignment = align(
        [n - start if n >= start else "" for n in one.ids.tolist()],
        [n - begin if n >= begin else "" for n in other.ids.tolist()],
    )
    x, y = one.weight[alignment.first], other.weight[alignment.second]
    ids = _ids(one, other, alignment)
    rows: RowsDifference | Missing
    if not len(x):
        rows = Missing("no position is in both")
    elif x.shape != y.shape:
        rows = _apart(x, y)
    else:
        rows = rows_difference(movement(x, y), lambda row: f"position {ids[row, 0] - start}", ids, settings.rows)
    return PositionsDifference(
        tables=(_described(one), _described(other)),
        offsets=(start, begin),
        shared=len(x),
        removed=len(alignment.removed),
        new=len(alignment.new),
        rows=rows,
    )


def _apart(x: np.ndarray, y: np.ndarray) -> Missing:
    return Missing(f"rows have {x.shape[1]:,} and {y.shape[1]:,} features, so they have no distance")


def _position_table(checkpoint: Checkpoint, progress: Progress) -> Table:
    name = checkpoint.position_table
    if name is None:
        raise Absent(f"there is no position table in {checkpoint.path}")
    progress(f"reading {name} of {checkpoint.path}")
    return read_table(checkpoint, name)


def _aligned(one: Table, other: Table) -> tuple[str, Alignment]:
    if not one.words or not other.words:
        _, first_rows, second_rows = np.intersect1d(one.ids, other.ids, assume_unique=True, return_indices=True)
        removed, new = (np.flatnonzero(~np.isin(a.ids, b.ids)) for a, b in ((one, other), (other, one)))
        return "id", Alignment(first_rows, second_rows, removed, new)
    first, second = token_keys(one.words, other.words)
    return "text", align(_keys(one, first), _keys(other, second))


def _keys(table: Table, keys: Sequence[Hashable]) -> list[Hashable]:
    """Return the key of each row; "" for one that no token has, or a token without text."""
    words = table.words
    return [keys[n] if n < len(keys) and words[n] else "" for n in table.ids.tolist()]


def _ids(one: Table, other: Table, alignment: Alignment) -> Int64[np.ndarray, "shared 2"]:
    return np.stack([one.ids[alignment.first], other.ids[alignment.second]], axis=1)


def _described(table: Table) -> ComparedTable:
    not_finite = [word_of(table.words, n) for n in table.broken[:LISTED].tolist()]
    return ComparedTable(table.name, table.dtype, table.rows, table.weight.shape[1], len(table.broken), not_finite)
