"""A token map in words, and as a file: what it shows, how far it can be trusted, and its points."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whatwhere.analysis.token_map import GroupNeighbors, NeighborsKept
from whatwhere.analysis.token_neighbors import NamedRow, named_rows
from whatwhere.escape import visible
from whatwhere.models.token_types import marking, token_types
from whatwhere.records import to_json
from whatwhere.report.html import scatter
from whatwhere.report.text import count, percent

if TYPE_CHECKING:
    from whatwhere.analysis.token_map import TokenMap
    from whatwhere.models.checkpoint.lookup import Table

SUFFIXES = (".svg", ".tsv", ".json")
"""Of the files that `map_text` writes."""


@dataclass(frozen=True, eq=False)
class MapFacts:
    """A map of a token table: what it shows, and how many true neighbors it keeps.

    Args:
        path: of the checkpoint.
        table: name of the tensor.
        rows, dim: its shape.
        not_finite: rows that are ignored, for they hold NaN or infinity.
        method: "pca", "tsne" or "umap".
        kept: how many of the nearest neighbors in the table are nearest neighbors on the map.
        explained_variance_ratio: of both axes; None where axes have no meaning.
        shown: points of the map.
        seed: random seed.
        files: that were written.
        groups: how the tokens that were named lie among each other; None of a sample of the table.
    """

    path: str
    table: str
    rows: int
    dim: int
    not_finite: Sequence[NamedRow]
    method: str
    kept: NeighborsKept
    explained_variance_ratio: tuple[float, float] | None
    shown: int
    seed: int
    files: Sequence[str]
    groups: GroupNeighbors | None


@dataclass(frozen=True)
class MapPoint:
    """A token of a map.

    Args:
        id, token: which one.
        type: of the token, such as "word"; its group where tokens were named.
        x, y: its coordinates.
    """

    id: int
    token: str
    type: str
    x: float
    y: float


@dataclass(frozen=True, eq=False)
class MapFile(MapFacts):
    """The content of a map that is written as .json."""

    points: Sequence[MapPoint]


def map_facts(
    path: Path, table: "Table", made: "TokenMap", seed: int, files: Sequence[str], groups: GroupNeighbors | None
) -> MapFacts:
    """Return what is printed of a map."""
    return MapFacts(
        path=str(path),
        table=table.name,
        rows=table.rows,
        dim=table.weight.shape[1],
        not_finite=named_rows(table.words, table.broken.tolist(), table.marking),
        method=made.method,
        kept=made.kept,
        explained_variance_ratio=made.explained_variance_ratio,
        shown=len(made.coordinates),
        seed=seed,
        files=files,
        groups=groups,
    )


def map_points(made: "TokenMap", table: "Table", rows: Sequence[int], groups: Sequence[str]) -> list[MapPoint]:
    """Return the points of a map of some rows, with their groups or else with the types of their tokens."""
    ids = [int(table.ids[row]) for row in rows]
    words = list(table.words)
    kinds: Sequence[str] = groups or ["token"] * len(ids)
    if words and not groups:
        kinds = token_types([words[n] if n < len(words) else "" for n in ids], marking(words))
    points = zip(ids, rows, kinds, made.coordinates.tolist(), strict=True)
    return [MapPoint(n, table.word(row), kind, x, y) for n, row, kind, (x, y) in points]


def map_text(suffix: str, facts: MapFacts, points: Sequence[MapPoint], made: "TokenMap") -> str:
    """Return the content of a file with one of SUFFIXES."""
    if suffix == ".svg":
        names, kinds = [point.token for point in points], [point.type for point in points]
        return scatter(made.coordinates, names, kinds, f"{Path(facts.path).name}: {facts.table}", describe(facts))
    if suffix == ".tsv":
        lines = (f"{p.id}\t{visible(p.token)}\t{p.type}\t{p.x:.6g}\t{p.y:.6g}\n" for p in points)
        return "id\ttoken\ttype\tx\ty\n" + "".join(lines)
    return json.dumps(to_json(MapFile(**vars(facts), points=points), digits=None)) + "\n"


def describe(facts: MapFacts) -> list[str]:
    """Describe in lines what a map shows, and how far it can be trusted."""
    of, kept = f" of {facts.rows:,}" if facts.shown < facts.rows else "", facts.kept
    nearest = "nearest neighbors" if kept.k == 1 else f"{kept.k} nearest neighbors"
    lines = [
        f"{facts.shown:,}{of} tokens by {facts.method}; seed {facts.seed}",
        f"{percent(kept.share)} of the {nearest} in the table are nearest neighbors on the map, of "
        f"{count(kept.queries, 'token')} sampled; random positions would keep {percent(kept.chance)}",
    ]
    if facts.explained_variance_ratio is not None:
        across, up = map(percent, facts.explained_variance_ratio)
        lines.append(f"The horizontal axis shows {across} of the variance, the vertical one {up}")
    groups = facts.groups
    if groups is not None and groups.within is not None and groups.between is not None:
        within, between = (" to ".join(f"{cosine:.2f}" for cosine in each) for each in (groups.within, groups.between))
        lines.append(
            f"{groups.stay} of {groups.compared} tokens have their nearest of the other {facts.shown - 1}, by cosine "
            f"in the table, in their own group; cosines within groups {within}, between groups {between}"
        )
    if facts.not_finite:
        lines.append(f"{count(len(facts.not_finite), 'row')} with NaN or infinity ignored")
    return lines
