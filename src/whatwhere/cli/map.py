"""map: the rows of a token table as points on a plane."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from whatwhere.atomic import write_atomic
from whatwhere.cli.app import (
    READ,
    AsJson,
    Model,
    Pickles,
    Run,
    Which,
    app,
    exit_on_error,
    nothing_resumed,
    print_json,
    to_path,
)
from whatwhere.errors import SettingError
from whatwhere.escape import visible
from whatwhere.report.terminal import new_console, progress
from whatwhere.report.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from jaxtyping import Int64

    from whatwhere.analysis.token_map import Method, TokenMap
    from whatwhere.analysis.token_neighbors import NamedRow
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.models.checkpoint.lookup import Table

MOST, MOST_BY_PCA = 50_000, 500_000
"""Tokens by default for t-SNE and UMAP, of which more take many minutes; and for PCA, more than vocabularies have."""
_SUFFIXES = (".svg", ".tsv", ".json")


@dataclass(frozen=True)
class NamedGroups:
    """The nearest neighbors of tokens that were named, among these.

    Args:
        names: of the groups.
        tokens: number of tokens.
        stay: tokens whose nearest of the others is of their own group.
        compared: tokens whose group has another one.
        within: least and greatest cosine of two tokens of one group; None without such a pair.
        between: likewise, of two tokens of different groups.
    """

    names: "Sequence[str]"
    tokens: int
    stay: int
    compared: int
    within: tuple[float, float] | None
    between: tuple[float, float] | None


@dataclass(frozen=True)
class MapFacts:
    """A map of a token table: what it shows, and how many true neighbors it keeps.

    Args:
        path: of the checkpoint.
        table: name of the tensor.
        rows, dim: its shape.
        not_finite: rows that are ignored, for they hold NaN or infinity.
        method: "pca", "tsne" or "umap".
        kept: share of the k nearest neighbors in the table that are among the k nearest on the map.
        k: neighbors that are compared.
        queries: rows whose neighbors are compared.
        chance: the share that random positions would keep.
        share: of the variance, along both axes; None where axes have no meaning.
        shown: points of the map.
        seed: random seed.
        files: that were written.
        groups: of the tokens that were named; None of a sample of the table.
    """

    path: str
    table: str
    rows: int
    dim: int
    not_finite: "Sequence[NamedRow]"
    method: str
    kept: float
    k: int
    queries: int
    chance: float
    share: tuple[float, float] | None
    shown: int
    seed: int
    files: "Sequence[str]"
    groups: "NamedGroups | None"


@dataclass(frozen=True)
class MapPoint:
    """A token of a map.

    Args:
        id, token: which one.
        type: of the token, such as "word".
        x, y: its coordinates.
    """

    id: int
    token: str
    type: str
    x: float
    y: float


@dataclass(frozen=True)
class MapFile(MapFacts):
    """The content of a map that is written as .json."""

    points: "Sequence[MapPoint]"


@app.command(name="map", rich_help_panel=READ)
@exit_on_error
def draw(
    path: Model,
    method: Annotated[
        str, typer.Option(help="Method: pca, tsne (needs the extra map) or umap (needs the extra umap).")
    ] = "pca",
    out: Annotated[
        Path, typer.Option(parser=to_path, help="File to write: .svg a picture, .tsv or .json coordinates.")
    ] = Path("map.svg"),
    tsv: Annotated[
        Path | None,
        typer.Option(parser=to_path, help="Folder to write the table to as well, for the Embedding Projector."),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(help="Map these tokens alone, as in king,queen,man; semicolons separate groups."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help=f"Tokens to sample. Default: all, at most {MOST_BY_PCA:,}; {MOST:,} for tsne and umap.", min=1
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", help="Nearest neighbors to compare. Default: 10; of few tokens a quarter of them.", min=1),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.", min=0)] = 0,
    table: Which = "input",
    run: Run = None,
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Project the token embeddings onto a plane, and measure how many nearest neighbors the map keeps.

    Nothing is resumed: a map by tsne or umap that is interrupted starts over.

    Named tokens, in groups: whatwhere map path/to/model --tokens "animals: cat,dog,kitten,puppy; royalty:
    king,queen,prince,princess; actions: ran,walked,ate,drank; places: city,town,country,nation"

    Example: whatwhere map path/to/model --out map.svg

    For scripts: whatwhere map path/to/model --method umap --out map.tsv --json
    """
    from whatwhere.analysis.table_difference import sample_rows
    from whatwhere.analysis.token_map import make_map, neighbors_to_compare
    from whatwhere.analysis.token_neighbors import Source
    from whatwhere.large_arrays import selected_rows
    from whatwhere.long_work import by_share
    from whatwhere.models.checkpoint import write_projector
    from whatwhere.models.checkpoint.lookup import read_table

    with progress() as show_step:
        checkpoint = Source(path, table, allow_pickle, run=run).checkpoint
        _check_targets(out, tsv, checkpoint)
        show_step("reading")
        source = read_table(checkpoint, table)
        titles: list[str] = []
        if tokens is None:
            used = sample_rows(len(source.weight), rows or (MOST_BY_PCA if method == "pca" else MOST), seed)
        else:
            used, titles = _named_rows(checkpoint, source, tokens, rows)
        show_step(f"computing the map of {count(len(used), 'token')} by {method}")
        weight = selected_rows(source.weight, used)
        chosen, nearest = cast("Method", method), k or neighbors_to_compare(len(used))
        with nothing_resumed():
            if method == "pca":  # whose loops over rows report themselves
                token_map = make_map(weight, chosen, nearest, seed=seed)
            else:
                with by_share() as report:
                    token_map = make_map(weight, chosen, nearest, seed=seed, progress=report)
        names = [source.word(row) for row in used.tolist()]
        files = [str(file) for file in (out, tsv) if file is not None]
        facts = _facts(checkpoint.path, source, token_map, seed, files, _groups(source, used, titles))
        _write(out, facts, names, source.ids[used].tolist(), token_map, source, titles)
        if tsv is not None:
            show_step("writing the table")
            write_projector(tsv, weight, names)
    if as_json:
        print_json(facts)
        return
    console = new_console()
    for line in describe(facts):
        console.print(visible(line), soft_wrap=True)
    for file in files:
        console.print(f"Written: {visible(Path(file).resolve())}", soft_wrap=True)


def describe(facts: MapFacts) -> list[str]:
    """Describe in lines what a map shows, and how far it can be trusted."""
    of = f" of {facts.rows:,}" if facts.shown < facts.rows else ""
    nearest = "nearest neighbors" if facts.k == 1 else f"{facts.k} nearest neighbors"
    lines = [
        f"{facts.shown:,}{of} tokens by {facts.method}; seed {facts.seed}",
        f"{percent(facts.kept)} of the {nearest} in the table are nearest neighbors on the map, of "
        f"{count(facts.queries, 'token')} sampled; random positions would keep {percent(facts.chance)}",
    ]
    if facts.share is not None:
        across, up = map(percent, facts.share)
        lines.append(f"The horizontal axis shows {across} of the variance, the vertical one {up}")
    if facts.groups is not None:
        lines += _describe_groups(facts.groups)
    if facts.not_finite:
        lines.append(f"{count(len(facts.not_finite), 'row')} with NaN or infinity ignored")
    return lines


def _describe_groups(groups: NamedGroups) -> list[str]:
    if len(groups.names) < 2 or groups.within is None or groups.between is None:
        return []
    within, between = (" to ".join(f"{cosine:.2f}" for cosine in pair) for pair in (groups.within, groups.between))
    return [
        f"{groups.stay} of {groups.compared} tokens have their nearest of the other {groups.tokens - 1}, by cosine in "
        f"the table, in their own group; cosines within groups {within}, between groups {between}"
    ]


def _named_rows(
    checkpoint: "Checkpoint", source: "Table", tokens: str, rows: int | None
) -> "tuple[Int64[np.ndarray, ' rows'], list[str]]":
    """Return the rows of tokens that were named, and the group of each."""
    import numpy as np

    from whatwhere.analysis.token_groups import parse_groups
    from whatwhere.models.checkpoint.lookup import find_token

    if rows is not None:
        raise SettingError("map got --tokens and --rows, but --rows samples the table.\nPass one of them.")
    named = [(title, token) for title, group in parse_groups(tokens).items() for token in group]
    used = [source.row(find_token(checkpoint, token, source.rows)) for _, token in named]
    if len(set(used)) < len(used):
        twice = next(token for n, (_, token) in enumerate(named) if used[n] in used[:n])
        raise SettingError(f"--tokens names the row of {twice!r} twice.\nName each token once.")
    return np.array(used, np.int64), [title for title, _ in named]


def _groups(source: "Table", used: "Int64[np.ndarray, ' rows']", titles: list[str]) -> NamedGroups | None:
    from whatwhere.analysis.token_groups import group_neighbors

    if not titles:
        return None
    names = list(dict.fromkeys(titles))
    found = group_neighbors(source.weight[used], [names.index(title) for title in titles])
    return NamedGroups(names, len(used), found.stay, found.compared, found.within, found.between)


def _facts(
    path: Path,
    source: "Table",
    token_map: "TokenMap",
    seed: int,
    files: "Sequence[str]",
    groups: NamedGroups | None,
) -> MapFacts:
    from whatwhere.analysis.token_neighbors import named_rows
    from whatwhere.models.token_types import marking

    return MapFacts(
        path=str(path),
        table=source.name,
        rows=source.rows,
        dim=source.weight.shape[1],
        not_finite=named_rows(source.words, source.broken.tolist(), marking(source.words)),
        method=token_map.method,
        kept=float(token_map.kept),
        k=token_map.k,
        queries=token_map.queries,
        chance=float(token_map.chance),
        share=token_map.explained_variance_ratio,
        shown=len(token_map.coordinates),
        seed=seed,
        files=files,
        groups=groups,
    )


def _check_targets(out: Path, tsv: Path | None, checkpoint: "Checkpoint") -> None:
    """Raise SettingError for a file that cannot be written, or that would overwrite the model."""
    from whatwhere.models.checkpoint.embedding_projector import VECTORS

    if out.suffix.lower() not in _SUFFIXES:
        raise SettingError(f"--out got {str(out)!r}, but writes {', '.join(_SUFFIXES)}: map.svg is a picture.")
    if out.is_dir():
        raise SettingError(f"--out got {str(out)!r}, which is a folder.\nName a file.")
    sources = {entry.file for entry in checkpoint.tensors.values()}
    for target in (out, *(() if tsv is None else (tsv / VECTORS,))):
        if target.exists() and any(target.samefile(source) for source in sources):
            raise SettingError(f"{target} is the model itself, which is not overwritten.\nName another file.")


def _write(
    out: Path,
    facts: MapFacts,
    names: list[str],
    ids: list[int],
    token_map: "TokenMap",
    source: "Table",
    groups: list[str],
) -> None:
    from whatwhere.models.token_types import marking, token_types
    from whatwhere.records import to_json

    words = list(source.words)
    types = groups or (
        token_types([words[n] if n < len(words) else "" for n in ids], marking(words))
        if words
        else ["token"] * len(ids)
    )
    points = zip(ids, names, types, token_map.coordinates.tolist(), strict=True)
    if out.suffix.lower() == ".svg":
        from whatwhere.report.html import scatter

        text: str = scatter(
            token_map.coordinates, names, types, f"{Path(facts.path).name}: {facts.table}", describe(facts)
        )
    elif out.suffix.lower() == ".tsv":
        lines = (f"{n}\t{visible(name)}\t{kind}\t{x:.6g}\t{y:.6g}\n" for n, name, kind, (x, y) in points)
        text = "id\ttoken\ttype\tx\ty\n" + "".join(lines)
    else:
        listed = [MapPoint(n, name, kind, x, y) for n, name, kind, (x, y) in points]
        text = json.dumps(to_json(MapFile(**vars(facts), points=listed), digits=None)) + "\n"
    try:
        write_atomic(out, text.encode("utf-8", "replace"))
    except OSError as problem:
        raise SettingError(f"{out} cannot be written: {problem.strerror}.\nChoose another file.") from None
