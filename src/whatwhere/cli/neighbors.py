"""neighbors, analogy, similarity and map: compare the rows of a token table."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from whatwhere.atomic import write_atomic
from whatwhere.cli.app import (
    READ,
    Base,
    Model,
    Pickles,
    Printed,
    Run,
    Which,
    command,
    on_base,
    to_paths,
    with_parameters,
)
from whatwhere.errors import SettingError
from whatwhere.report.text import count

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int64

    from whatwhere.analysis.nearest_neighbors import Metric, Rule
    from whatwhere.analysis.token_map import Method
    from whatwhere.analysis.token_neighbors import AnalogyAnswers, Neighbors, SearchedTable, TokenSimilarity
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.models.checkpoint.lookup import Table

Count = Annotated[int, Option("-k", help="Number of results.", min=1)]


def _on_a_table(search: Callable[..., "SearchedTable"]) -> Callable[..., None]:
    """Make a command of a function: it gets the path and options of all searches."""

    def run(
        path: Model,
        show_step: Any,
        centered: Annotated[bool, Option("--centered", help="Subtract the mean embedding first.")] = False,
        table: Which = "input",
        run: Run = None,
        base: Base = None,
        allow_pickle: Pickles = False,
        **own: Any,
    ) -> Printed:
        from whatwhere.report.tokens import found_rows

        model = on_base(path, base, allow_pickle=allow_pickle)
        options = {"centered": centered, "table": table, "run": run, "allow_pickle": allow_pickle}
        result = search(model, {**options, "progress": show_step}, **own)
        return Printed(result, found_rows(result))

    path, show_step, *options, _ = signature(run).parameters.values()
    _, _, *own = signature(search).parameters.values()
    return command(READ)(with_parameters(run, search, [path, show_step, *own, *options]))


@_on_a_table
def neighbors(
    path: Model,
    options: dict[str, Any],
    tokens: Annotated[list[str], Argument(help="Token by its text, or by its id as in '#123'.")],
    k: Count = 10,
    metric: Annotated[str, Option(help="Metric: cosine, dot or euclidean.")] = "cosine",
) -> "Neighbors":
    """Print the nearest neighbors of tokens: exact, in all dimensions.

    Example: whatwhere neighbors path/to/model king paris -k 5
    """
    from whatwhere.analysis.token_neighbors import neighbors

    return neighbors(path, tokens, k, metric=cast("Metric", metric), **options)


@_on_a_table
def analogy(
    path: Model,
    options: dict[str, Any],
    tokens: Annotated[list[str], Argument(help="Three tokens, as in man woman king, or king - man + woman.")],
    k: Count = 10,
    rule: Annotated[str, Option(help="Scoring: add (3CosAdd) or multiply (3CosMul).")] = "add",
) -> "AnalogyAnswers":
    """Complete "A is to B as C is to ...": with the three words excluded from the answers, and with all rows.

    The same as an equation: whatwhere analogy path/to/model king - man + woman

    Example: whatwhere analogy path/to/model man woman king
    """
    from whatwhere.analysis.token_neighbors import analogy

    return analogy(path, *tokens, k=k, rule=cast("Rule", rule), **options)


@_on_a_table
def similarity(
    path: Model,
    options: dict[str, Any],
    tokens: Annotated[tuple[str, str], Argument(help="Two tokens, as text or as '#123'.")],
) -> "TokenSimilarity":
    """Print the cosine similarity of two tokens.

    Example: whatwhere similarity path/to/model king queen
    """
    from whatwhere.analysis.token_neighbors import token_similarity

    return token_similarity(path, tokens, **options)


MOST, MOST_BY_PCA = 50_000, 500_000
"""Tokens by default for t-SNE and UMAP, of which more take many minutes; and for PCA, more than vocabularies have."""


@command(READ, "map")
def draw(
    path: Model,
    show_step: Any,
    method: Annotated[
        str, Option(help="Method: pca, tsne (needs the extra map) or umap (needs the extra umap).")
    ] = "pca",
    out: Annotated[Path, to_paths("File to write: .svg a picture, .tsv or .json coordinates.")] = Path("map.svg"),
    tsv: Annotated[Path | None, to_paths("Folder to write the table to as well, for the Embedding Projector.")] = None,
    tokens: Annotated[
        str | None, Option(help="Map these tokens alone, as in king,queen,man; semicolons separate groups.")
    ] = None,
    rows: Annotated[
        int | None,
        Option(help=f"Tokens to sample. Default: all, at most {MOST_BY_PCA:,}; {MOST:,} for tsne and umap.", min=1),
    ] = None,
    k: Annotated[
        int | None,
        Option("-k", help="Nearest neighbors to compare. Default: 10; of few tokens a quarter of them.", min=1),
    ] = None,
    seed: Annotated[int, Option(help="Random seed.", min=0)] = 0,
    table: Which = "input",
    run: Run = None,
    base: Base = None,
    allow_pickle: Pickles = False,
) -> Printed:
    """Project the token embeddings onto a plane, and measure how many nearest neighbors the map keeps.

    Nothing is resumed: a map by tsne or umap that is interrupted starts over.

    Named tokens, in groups: whatwhere map path/to/model --tokens "animals: cat,dog,kitten,puppy; royalty:
    king,queen,prince,princess; actions: ran,walked,ate,drank; places: city,town,country,nation"

    Example: whatwhere map path/to/model --out map.svg
    """
    from whatwhere.analysis.token_map import group_neighbors, make_map, neighbors_to_compare
    from whatwhere.analysis.token_neighbors import named_rows, open_run
    from whatwhere.large_arrays import sample_rows, selected_rows
    from whatwhere.long_work import by_share
    from whatwhere.models.checkpoint import write_projector
    from whatwhere.models.checkpoint.lookup import read_table
    from whatwhere.report.tokens import MapFacts, describe, map_points, map_text, of_other_models

    checkpoint = open_run(on_base(path, base, allow_pickle=allow_pickle), table, run, allow_pickle)
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
    if method == "pca":  # whose loops over rows report themselves
        token_map = make_map(weight, chosen, nearest, seed=seed)
    else:
        with by_share() as report:
            token_map = make_map(weight, chosen, nearest, seed=seed, progress=report)
    files = [str(file) for file in (out, tsv) if file is not None]
    groups = group_neighbors(weight, [titles.index(title) for title in titles]) if titles else None
    facts = MapFacts(
        path=str(checkpoint.path),
        table=source.name,
        rows=source.rows,
        dim=source.weight.shape[1],
        not_finite=named_rows(source.words, source.broken.tolist(), source.marking),
        method=token_map.method,
        kept=token_map.kept,
        explained_variance_ratio=token_map.explained_variance_ratio,
        shown=len(token_map.coordinates),
        seed=seed,
        files=files,
        groups=groups,
    )
    points = map_points(token_map, source, used.tolist(), titles)
    try:
        write_atomic(out, map_text(out.suffix.lower(), facts, points, token_map).encode("utf-8", "replace"))
    except OSError as problem:
        raise SettingError(f"{out} cannot be written: {problem.strerror}.\nChoose another file.") from None
    if tsv is not None:
        show_step("writing the table")
        write_projector(tsv, weight, [token for _, token, *_ in points])
    lines = [*describe(facts), *of_other_models(source.name, checkpoint.names.others)]
    return Printed(facts, [*lines, *(f"Written: {Path(file).resolve()}" for file in files)])


def _named_rows(
    checkpoint: "Checkpoint", source: "Table", tokens: str, rows: int | None
) -> "tuple[Int64[np.ndarray, ' rows'], list[str]]":
    """Return the rows of tokens that were named, and the group of each."""
    import numpy as np

    from whatwhere.analysis.token_map import parse_groups
    from whatwhere.models.checkpoint.lookup import find_token

    if rows is not None:
        raise SettingError("map got --tokens and --rows, but --rows samples the table.\nPass one of them.")
    named = [(title, token) for title, group in parse_groups(tokens).items() for token in group]
    used = [source.row(find_token(checkpoint, token, source.rows)) for _, token in named]
    if len(set(used)) < len(used):
        twice = next(token for n, (_, token) in enumerate(named) if used[n] in used[:n])
        raise SettingError(f"--tokens names the row of {twice!r} twice.\nName each token once.")
    return np.array(used, np.int64), [title for title, _ in named]


def _check_targets(out: Path, tsv: Path | None, checkpoint: "Checkpoint") -> None:
    """Raise SettingError for a file that cannot be written, or that would overwrite the model."""
    from whatwhere.models.checkpoint.word_vectors import VECTORS
    from whatwhere.report.tokens import SUFFIXES

    if out.suffix.lower() not in SUFFIXES:
        raise SettingError(f"--out got {str(out)!r}, but writes {', '.join(SUFFIXES)}: map.svg is a picture.")
    if out.is_dir():
        raise SettingError(f"--out got {str(out)!r}, which is a folder.\nName a file.")
    if tsv is not None and tsv.is_file():
        raise SettingError(f"--tsv got {str(tsv)!r}, which is a file.\nName a folder.")
    sources = {entry.file for entry in checkpoint.tensors.values()}
    for target in (out, *(() if tsv is None else (tsv / VECTORS,))):
        if target.exists() and any(target.samefile(source) for source in sources):
            raise SettingError(f"{target} is the model itself, which is not overwritten.\nName another file.")
