"""The difference between two checkpoints: tokens matched by their text, positions, and configurations."""

import math
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.configuration_difference import ConfigurationDifference, configurations
from whatwhere.analysis.subject import NoData, Progress, or_missing, reason_of
from whatwhere.analysis.table_difference import Alignment, Movement, align, movement, overlap, procrustes, token_keys
from whatwhere.errors import CheckpointError, MissingExtra, SettingError
from whatwhere.large_arrays import row_blocks, rows_at_a_time, selected_rows
from whatwhere.models.checkpoint import Checkpoint, read
from whatwhere.models.checkpoint.hub import ranges_folder
from whatwhere.models.checkpoint.lookup import Table, read_table, word_of
from whatwhere.records import MaybeNaN, Missing

Part = TypeVar("Part")
LISTED = 10_000  # names that a difference lists of each kind, at most; it counts all
ALIKE = 0.9
"""Median cosine of the rows, below which the embedding spaces count as different, and one is rotated onto the other."""
_LEAST_KEPT = 10


@dataclass(frozen=True)
class Side:
    """One of the two checkpoints that are compared, and its format; "configuration" for a configuration alone."""

    path: str
    format: str


@dataclass(frozen=True)
class ComparedTable:
    """One of two tables that are compared: the name of its tensor, the stored type and its shape."""

    name: str
    dtype: str
    rows: int
    dim: int
    not_finite_count: int  # rows that are ignored, for they hold NaN or infinity
    not_finite: Sequence[str]  # the first of them


@dataclass(frozen=True)
class Summary:
    """A summary of some numbers; NaN where there are none."""

    min: MaybeNaN
    median: MaybeNaN
    mean: MaybeNaN
    max: MaybeNaN


@dataclass(frozen=True)
class MovedRow:
    """A row that differs: its token or position, and its ids in both tables."""

    token: str
    ids: tuple[int, int]
    distance: float  # between the two rows, in units of the median norm of the first table's
    cosine: MaybeNaN  # of the two; NaN where one of them is 0
    norm_ratio: MaybeNaN  # norm of the second / norm of the first; NaN where the first is 0


@dataclass(frozen=True)
class RowsDifference:
    """The difference between matched rows: of how many all numbers are the same, and of the others."""

    equal: int
    relative_error: MaybeNaN  # sqrt(sum |y - x|^2 / sum |x|^2); NaN where all x are 0
    without_cosine: int  # rows that are 0 in one table alone, and so have no cosine
    cosine: Summary  # of matched rows, as in `MovedRow`
    distance: Summary
    norm_ratio: Summary
    moved_most: Sequence[MovedRow]  # the rows of greatest distance


@dataclass(frozen=True)
class RotatedDifference(RowsDifference):
    """The difference that is left once the first table is rotated onto the second as well as a rotation can."""

    fitted: int  # rows that the rotation was fitted to
    held_out_cosine: MaybeNaN  # median cosine of the other rows


@dataclass(frozen=True)
class KeptNeighbors:
    """A token, and the share of its nearest neighbors that is the same in both tables."""

    token: str
    kept: float


@dataclass(frozen=True)
class NeighborsDifference:
    """The difference between the k nearest neighbors of sampled tokens."""

    k: int
    queries: int
    kept: float  # mean share of neighbors that are the same
    chance: float  # the share that random neighbors would keep
    least_kept: Sequence[KeptNeighbors]  # the tokens whose neighbors changed most


@dataclass(frozen=True)
class TokensDifference:
    """The difference between two token tables: tokens of both, of the first alone and of the second alone."""

    matched_by: str  # "text", or "id" where one of the two has no tokens
    tables: tuple[ComparedTable, ComparedTable]
    shared: int
    removed_count: int
    removed: Sequence[str]  # the first of these
    new_count: int
    new: Sequence[str]  # the first of these
    rows: RowsDifference | Missing  # matched row by row
    rotated: RotatedDifference | Missing  # the same after a rotation
    neighbors: NeighborsDifference | Missing


@dataclass(frozen=True)
class PositionsDifference:
    """The difference between two position tables: positions of both, of the first alone and of the second alone."""

    tables: tuple[ComparedTable, ComparedTable]
    offsets: tuple[int, int]  # the row that position 0 reads, in both
    shared: int
    removed: int
    new: int
    rows: RowsDifference | Missing  # matched position by position


@dataclass(frozen=True)
class GroupDifference:
    """The difference between the tensors of one kind, beside the tables that are compared row by row."""

    name: str  # "attention", "MLP", "norms" or "others", by the names of the tensors
    shared: int  # of one name and shape in both
    equal: int  # shared ones whose numbers are all the same
    not_read: int  # shared ones whose numbers cannot be read, or are at huggingface.co
    relative_error: MaybeNaN  # sqrt(sum |y - x|^2 / sum |x|^2) of the shared ones that were read; NaN of none
    other_shape: int  # of one name, and of different shapes
    removed: int  # in the first alone
    new: int  # in the second alone


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference between two checkpoints: of their token and position tables, other tensors and configurations."""

    first: Side
    second: Side
    tokens: TokensDifference | Missing
    positions: PositionsDifference | Missing
    others: Sequence[GroupDifference] | Missing
    configuration: ConfigurationDifference | Missing


def difference(
    first: str | Path | Checkpoint,
    second: str | Path | Checkpoint,
    *,
    table: str = "input",
    k: int = 10,
    queries: int = 512,
    rows: int = 10,
    seed: int = 0,
    allow_pickle: bool = False,
    progress: Progress = lambda _: None,
) -> Difference:
    """Compare the input layers of two checkpoints of any formats, or of two configurations.

    Tokens are matched by their text, or by id where one of the two has no tokens. A part that cannot be compared is
    Missing, with the reason. `table` is "input", "output", or the name of a tensor that both have. `whatwhere diff`
    prints the findings.

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
    one, other = (
        source if isinstance(source, Checkpoint) else read(source, allow_pickle=allow_pickle)
        for source in (first, second)
    )
    tokens: TokensDifference | Missing
    positions: PositionsDifference | Missing
    others: Sequence[GroupDifference] | Missing
    if isinstance(one, Checkpoint) and isinstance(other, Checkpoint):
        files = one, other
        tokens = _tried(lambda: _tokens(*files, table, k, queries, rows, seed, progress))
        positions = _tried(lambda: _positions(*files, rows, progress))
        compared = {side.name for part in (tokens, positions) if not isinstance(part, Missing) for side in part.tables}
        others = _tried(lambda: _others(*files, compared, progress))
    else:
        tokens = positions = others = Missing("one of the two is a configuration alone, which holds no tables")
    progress("comparing configurations")
    configuration = _tried(lambda: configurations(one, other))
    if isinstance(tokens, Missing) and isinstance(positions, Missing) and isinstance(configuration, Missing):
        raise CheckpointError(f"{first} and {second} have nothing that could be compared: {tokens.missing}.")
    sides = [
        Side(str(source.path), source.format) if isinstance(source, Checkpoint) else Side(str(path), "configuration")
        for path, source in ((first, one), (second, other))
    ]
    return Difference(sides[0], sides[1], tokens, positions, others, configuration)


def _tried(part: Callable[[], Part]) -> Part | Missing:
    try:
        return or_missing(part)
    except (CheckpointError, MissingExtra) as problem:
        return Missing(f"this cannot be read: {reason_of(problem)}")


class _Matched:
    """The matched rows of two tables, the ids of each in both, and its name; `absent` is said where there are none."""

    def __init__(self, one: Table, other: Table, alignment: Alignment, absent: str) -> None:
        self.x, self.y = selected_rows(one.weight, alignment.first), selected_rows(other.weight, alignment.second)
        self.ids = np.stack([one.ids[alignment.first], other.ids[alignment.second]], axis=1)
        self.name: Callable[[int], str] = lambda row: one.readable(int(alignment.first[row]))
        self.absent = absent

    @cached_property
    def moved(self) -> Movement:
        if not len(self.x):
            raise NoData(self.absent)
        if self.x.shape != self.y.shape:
            one, other = self.x.shape[1], self.y.shape[1]
            raise NoData(f"rows have {one:,} and {other:,} features, so they have no distance")
        return movement(self.x, self.y)

    def rows(self, moved: Movement, most: int) -> RowsDifference:
        """Summarize how far rows moved, and list those that moved most."""
        order = np.argsort(-moved.distance, kind="stable")
        order = order[~moved.equal[order]][:most]
        return RowsDifference(
            equal=int(moved.equal.sum()),
            relative_error=moved.relative_error,
            without_cosine=int(np.isnan(moved.cosine).sum()),
            cosine=_summary(moved.cosine),
            distance=_summary(moved.distance),
            norm_ratio=_summary(moved.norm_ratio),
            moved_most=[
                MovedRow(
                    token=self.name(row),
                    ids=(int(self.ids[row, 0]), int(self.ids[row, 1])),
                    distance=float(moved.distance[row]),
                    cosine=float(moved.cosine[row]),
                    norm_ratio=float(moved.norm_ratio[row]),
                )
                for row in order.tolist()
            ],
        )

    def rotated(self, most: int, seed: int, progress: Progress) -> RotatedDifference:
        """Rotate one space onto the other and compare again, unless they are alike."""
        if _summary(self.moved.cosine).median >= ALIKE:
            raise NoData(f"the embedding spaces are alike: the median cosine is at least {ALIKE}")
        rows, dim = self.x.shape
        if rows < 4 * dim:
            raise NoData(f"{rows:,} shared rows are too few to fit a rotation of {dim:,} features")
        progress("rotating one space onto the other")
        _, rest, fitted = procrustes(self.x, self.y, seed)
        held_out = _summary(np.delete(rest.cosine, fitted)).median
        return RotatedDifference(**vars(self.rows(rest, most)), fitted=len(fitted), held_out_cosine=held_out)

    def neighbors(self, k: int, queries: int, seed: int, progress: Progress) -> NeighborsDifference:
        if len(self.x) < 2:
            raise NoData("there are fewer than two shared tokens" if len(self.x) else self.absent)
        progress("comparing nearest neighbors")
        shared = overlap(self.x, self.y, k, queries, seed)
        order = np.argsort(shared.kept, kind="stable")[:_LEAST_KEPT]
        least = [(self.name(row), kept) for row, kept in zip(shared.rows[order], shared.kept[order], strict=True)]
        return NeighborsDifference(
            k=shared.k, queries=len(shared.rows), kept=float(shared.kept.mean()), chance=shared.k / (len(self.x) - 1),
            least_kept=[KeptNeighbors(name, float(kept)) for name, kept in least if kept < 1],
        )  # fmt: skip


def _summary(values: Float[np.ndarray, " values"]) -> Summary:
    values = values[np.isfinite(values)]
    if not len(values):
        return Summary(*4 * [float("nan")])
    return Summary(float(values.min()), float(np.median(values)), float(values.mean()), float(values.max()))


def _tokens(
    first: Checkpoint, second: Checkpoint, table: str, k: int, queries: int, most: int, seed: int, progress: Progress
) -> TokensDifference:
    progress(f"reading {first.path}")
    one = read_table(first, table)
    progress(f"reading {second.path}")
    other = read_table(second, table)
    matched_by, alignment = _aligned(one, other)
    matched = _Matched(one, other, alignment, f"no token is in both: they were matched by {matched_by}")
    progress("comparing rows")
    return TokensDifference(
        matched_by=matched_by, tables=(_described(one), _described(other)), shared=len(alignment.first),
        removed_count=len(alignment.removed),
        removed=[one.readable(row) for row in alignment.removed[:LISTED].tolist()], new_count=len(alignment.new),
        new=[other.readable(row) for row in alignment.new[:LISTED].tolist()],
        rows=_tried(lambda: matched.rows(matched.moved, most)),
        rotated=_tried(lambda: matched.rotated(most, seed, progress)),
        neighbors=_tried(lambda: matched.neighbors(k, queries, seed, progress)),
    )  # fmt: skip


def _positions(first: Checkpoint, second: Checkpoint, most: int, progress: Progress) -> PositionsDifference:
    tables, keys = [], []
    offsets = first.position_offset or 0, second.position_offset or 0
    for checkpoint, offset in zip((first, second), offsets, strict=True):
        if (name := checkpoint.position_table) is None:
            raise NoData(f"there is no position table in {checkpoint.path}")
        progress(f"reading {name} of {checkpoint.path}")
        tables.append(read_table(checkpoint, name))
        keys.append([n - offset if n >= offset else "" for n in tables[-1].ids.tolist()])
    alignment = align(*keys)
    matched = _Matched(tables[0], tables[1], alignment, "no position is in both")
    matched.name = lambda row: f"position {matched.ids[row, 0] - offsets[0]}"
    return PositionsDifference(
        tables=(_described(tables[0]), _described(tables[1])), offsets=offsets, shared=len(alignment.first),
        removed=len(alignment.removed), new=len(alignment.new), rows=_tried(lambda: matched.rows(matched.moved, most)),
    )  # fmt: skip


def _aligned(one: Table, other: Table) -> tuple[str, Alignment]:
    if not one.words or not other.words:
        return "id", align(one.ids.tolist(), other.ids.tolist())
    keys = token_keys(one.words, other.words)
    return "text", align(*(_keys(table, own) for table, own in zip((one, other), keys, strict=True)))


def _keys(table: Table, keys: Sequence[Hashable]) -> list[Hashable]:
    """Return the key of each row; "" for one that no token has, or a token without text."""
    words = table.words
    return [keys[n] if n < len(keys) and words[n] else "" for n in table.ids.tolist()]


def _described(table: Table) -> ComparedTable:
    not_finite = [word_of(table.words, n) for n in table.broken[:LISTED].tolist()]
    return ComparedTable(table.name, table.dtype, table.rows, table.weight.shape[1], len(table.broken), not_finite)


_GROUPS = {
    "norms": re.compile(r"norm|(^|[._])ln(_|\d|\.|$)", re.IGNORECASE),
    "attention": re.compile(r"attn|attention|[qkvo]_proj|qkv|query|key|value", re.IGNORECASE),
    "MLP": re.compile(r"mlp|ffn|feed_?forward|fc|dense|intermediate|expert|(gate|up|down)_", re.IGNORECASE),
}
"""Words in the names of tensors; the first group that matches has a tensor."""


def _group(name: str) -> str:
    return next((group for group, words in _GROUPS.items() if words.search(name)), "others")


def _others(first: Checkpoint, second: Checkpoint, compared: set[str], progress: Progress) -> list[GroupDifference]:
    here, there = ({*one.tensors} - compared for one in (first, second))
    if not here | there:
        raise NoData("there are no other tensors")
    if not here & there:
        raise NoData("no other tensor has one name in both, as where two formats name them differently")
    found = []
    for group in (*_GROUPS, "others"):
        one, other = ({name for name in names if _group(name) == group} for names in (here, there))
        if not one | other:
            continue
        both = sorted(one & other)
        shared = [name for name in both if first.tensors[name].shape == second.tensors[name].shape]
        equal = not_read = 0
        change = size = 0.0
        for name in shared:
            progress(f"comparing {name}")
            try:
                changed, of = _change(first, second, name)
            except (CheckpointError, MissingExtra):
                not_read += 1
                continue
            equal += changed == 0
            change, size = change + changed, size + of
        error = math.sqrt(change / size) if size > 0 else math.nan
        alone = len(one - other), len(other - one)
        found.append(GroupDifference(group, len(shared), equal, not_read, error, len(both) - len(shared), *alone))
    return found


def _change(first: Checkpoint, second: Checkpoint, name: str) -> tuple[float, float]:
    """Return the sum of the squared differences of a tensor's numbers, and that of the first one's squares."""
    # NaN in one place of both counts as equal.
    if any(one.tensors[name].file.is_relative_to(ranges_folder()) for one in (first, second)):
        raise CheckpointError("the numbers are at huggingface.co")
    shape, change, size = first.tensors[name].shape, 0.0, 0.0
    blocks = row_blocks(shape[0], rows_at_a_time(math.prod(shape[1:]))) if shape else [None]
    for rows in blocks:
        x, y = (np.asarray(one.array(name, rows), np.float64) for one in (first, second))
        differ = ~((x == y) | (np.isnan(x) & np.isnan(y)))
        # Where both are infinite, and so equal, a difference would be NaN, with a warning.
        change += float(np.square(np.subtract(y, x, where=differ, out=np.zeros_like(x))).sum())
        size += float(np.square(x[np.isfinite(x)]).sum())
    return change, size
