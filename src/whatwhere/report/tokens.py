"""Tokens that were found, walked or mapped: the results of neighbors, analogy, similarity, encode and map."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from whatwhere.analysis.token_map import GroupNeighbors, NeighborsKept
from whatwhere.analysis.token_neighbors import (
    AnalogyAnswers,
    NamedRow,
    Neighbor,
    Neighbors,
    SearchedTable,
    TokenSimilarity,
)
from whatwhere.escape import shown_token, visible
from whatwhere.models.model_text import marking, token_types
from whatwhere.records import to_json
from whatwhere.report.html import scatter
from whatwhere.report.section import Part, Table
from whatwhere.report.text import count, percent

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.analysis.token_map import TokenMap
    from whatwhere.analysis.walkthrough import Walkthrough
    from whatwhere.models.checkpoint.lookup import Table as TokenTable

_NAMED = 5
_MOST = 9  # numbers of a row that are shown
SUFFIXES = (".svg", ".tsv", ".json")  # of the files that `map_text` writes


def found_rows(result: SearchedTable) -> Iterator[Part]:
    """Return what was found, and which rows were excluded."""
    match result:
        case Neighbors():
            measure = "distance" if result.metric == "euclidean" else "score"
            for token in result.tokens:
                yield f"{_shown(token)} (#{token.id})"
                yield _columns({result.metric: token.neighbors}, measure)
        case AnalogyAnswers():
            a, b, c = map(_shown, result.question)
            yield f"{a} is to {b} as {c} is to"
            yield _columns({"without the three words": result.without_inputs, "all rows": result.with_inputs}, "score")
        case TokenSimilarity():
            one, other = map(_shown, result.tokens)
            yield f"cosine of {one} and {other}: {result.cosine:.4f}"
    if result.not_finite:
        some = ", ".join(f"{_shown(row)} (#{row.id})" for row in result.not_finite[:_NAMED])
        more = f" and {len(result.not_finite) - _NAMED:,} more" if len(result.not_finite) > _NAMED else ""
        yield f"Excluded, because they contain NaN or infinity: {some}{more}."
    yield from of_other_models(result.table, result.others)


def of_other_models(table: str, tables: Sequence[str]) -> Iterator[str]:
    """Return which of the tables of several models in one file was read."""
    if others := [name for name in tables if name != table]:
        yield f"This is of {table}; --table takes those of other models in the file: {', '.join(others[:3])}."


def _columns(found: Mapping[str, Sequence[Neighbor]], measure: str) -> Table:
    """Return lists of neighbors side by side."""
    columns = [name for head in found for name in (head, "id", measure)]
    rows = []
    for answers in zip_longest(*found.values()):
        cells = (["", "", ""] if one is None else [_shown(one), str(one.id), f"{one.score:.4f}"] for one in answers)
        rows.append([cell for three in cells for cell in three])
    return Table("", columns, rows, [n for n in range(len(columns)) if n % 3], shorten="never")


def _shown(row: NamedRow) -> str:
    return shown_token(row.token, row.text)


def walk_steps(steps: "Walkthrough", seed: int | None = None) -> Iterator[Part]:
    """Return where ids and rows come from, then a table for each step; the seed is that of random rows."""
    from whatwhere.what.expressions import RECOGNIZED

    other = "; --tokenizer words numbers its words instead" if steps.tokenizer == RECOGNIZED else ""
    yield f"tokenizer: {steps.tokenizer}{other}" if steps.tokenizer else ""
    seeded = "" if seed is None else f", seed {seed}"
    random = f"random samples of N(0, 1){seeded}, which nothing has trained; --from takes those of a model"
    yield f"rows: {random if steps.table is None else f'{steps.table}, as trained'}"
    for note in steps.notes:
        yield f"note: {note}"
    tokens = steps.tokens or [""] * len(steps.ids)
    shown = [visible(shown_token(*pair)) for pair in zip(tokens, steps.texts or tokens, strict=True)]
    places = [[str(n), *pair] for n, pair in enumerate(zip(shown, map(str, steps.ids), strict=True))]
    row = "E[id]" if steps.factor == 1 else f"{steps.factor:.6g} E[id]"
    if steps.position_rows is None:
        yield _numbers(f"tokens, ids, and their vectors: x_i = {row}", places, steps.rows)
    else:
        yield _numbers(f"tokens, ids, and the row of each: {row}", places, steps.rows)
        yield _numbers(f"position: {steps.scheme}, the vector added at each", places, steps.position_rows)
        yield _numbers(f"sum: x_i = {row.replace('id', 'id_i')} + position_i", places, steps.vectors)
    if steps.angles is not None:
        title = "queries and keys at this position are rotated by these angles (radians), one column for each frequency"
        yield _numbers(title, places, steps.angles, "pair")
    if steps.bias is not None:
        title = "the score of a key at this distance gets this bias, one column for each head"
        yield _numbers(title, [[place[0]] for place in places], steps.bias, "head", "distance")
    if steps.position_rows is None:
        yield f"No position is added to the vectors.{_without_sum(steps)}"


def _without_sum(steps: "Walkthrough") -> str:
    from whatwhere.where.catalogue import catalogue

    names = [part.strip() for part in steps.scheme.split("+")]
    if all(name in catalogue and catalogue[name].door is None for name in names):
        return " Without a positional encoding, only the causal mask depends on the order of the tokens."
    if steps.angles is None and steps.bias is None and steps.scheme != "not known":
        return " The scheme acts in the attention, by queries and keys, which a text alone does not have."
    return ""


def _numbers(
    title: str, places: Sequence[Sequence[str]], values: "Tensor", column: str = "feature", row: str = "position"
) -> Table:
    """Return a row of numbers for each place, the first of many; what a column and a row are is in the heading."""
    shown = _MOST if values.shape[-1] <= _MOST else _MOST - 1
    more = f"; and {values.shape[-1] - shown} more columns" if shown < values.shape[-1] else ""
    rows = [
        [*place, *(f"{value + 0.0:.4f}" for value in numbers[:shown])]
        for place, numbers in zip(places, values.tolist(), strict=True)
    ]
    names = [row, "token", "id"][: len(places[0])]
    columns = [*names, *(f"{'' if n else f'{column} '}{n}" for n in range(min(shown, values.shape[-1])))]
    return Table(f"{title}{more}", columns, rows, [n for n, name in enumerate(columns) if name != "token"])


@dataclass(frozen=True, eq=False)
class MapFacts:
    """A map of a token table: what it shows, and how many true neighbors it keeps."""

    path: str  # of the checkpoint
    table: str  # name of the tensor
    rows: int  # of the table
    dim: int  # of the table
    not_finite: Sequence[NamedRow]  # rows that are ignored, for they hold NaN or infinity
    method: str  # "pca", "tsne" or "umap"
    kept: NeighborsKept  # how many of the nearest neighbors in the table are nearest neighbors on the map
    explained_variance_ratio: tuple[float, float] | None  # of both axes; None where axes have no meaning
    shown: int  # points of the map
    seed: int  # random seed
    files: Sequence[str]  # that were written
    groups: GroupNeighbors | None  # how the tokens that were named lie among each other; None of a sample of the table


Point = tuple[int, str, str, float, float]
POINT = ("id", "token", "type", "x", "y")
"""What a point of a map has; its type is that of its token, such as "word", or its group where tokens were named."""


def map_points(made: "TokenMap", table: "TokenTable", rows: Sequence[int], groups: Sequence[str]) -> list[Point]:
    """Return the points of a map of some rows, with their groups or else with the types of their tokens."""
    ids = [int(table.ids[row]) for row in rows]
    words = list(table.words)
    kinds: Sequence[str] = groups or ["token"] * len(ids)
    if words and not groups:
        kinds = token_types([words[n] if n < len(words) else "" for n in ids], marking(words))
    points = zip(ids, rows, kinds, made.coordinates.tolist(), strict=True)
    return [(n, table.word(row), kind, x, y) for n, row, kind, (x, y) in points]


def map_text(suffix: str, facts: MapFacts, points: Sequence[Point], made: "TokenMap") -> str:
    """Return the content of a file with one of SUFFIXES."""
    if suffix == ".svg":
        _, names, kinds, *_ = zip(*points, strict=True)
        return scatter(made.coordinates, names, kinds, f"{Path(facts.path).name}: {facts.table}", describe(facts))
    if suffix == ".tsv":
        lines = (f"{n}\t{visible(token)}\t{kind}\t{x:.6g}\t{y:.6g}\n" for n, token, kind, x, y in points)
        return "\t".join(POINT) + "\n" + "".join(lines)
    named = [dict(zip(POINT, point, strict=True)) for point in points]
    return json.dumps(to_json(facts, digits=None) | {"points": named}) + "\n"


def describe(facts: MapFacts) -> list[str]:
    """Describe in lines what a map shows, and how far it can be trusted."""
    of, kept = f" of {facts.rows:,}" if facts.shown < facts.rows else "", facts.kept
    nearest = "nearest neighbors" if kept.k == 1 else f"{kept.k} nearest neighbors"
    sampled = " sampled" if kept.queries < facts.shown else ""
    seed = f"; seed {facts.seed}" if sampled or facts.method != "pca" else ""
    lines = [
        f"{facts.shown:,}{of} tokens by {facts.method}{seed}",
        f"{percent(kept.share)} of the {nearest} in the table are nearest neighbors on the map, of "
        f"{count(kept.queries, 'token')}{sampled}; random positions would keep {percent(kept.chance)}",
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
