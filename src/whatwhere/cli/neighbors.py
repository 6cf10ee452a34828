"""neighbors, analogy and similarity: compare the rows of a token table."""

import functools
from collections.abc import Callable
from inspect import Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from whatwhere.cli.app import READ, AsJson, Model, Pickles, Run, Which, app, print_json
from whatwhere.report.terminal import new_console, print_parts, progress

if TYPE_CHECKING:
    from whatwhere.analysis.analogies import Rule
    from whatwhere.analysis.nearest_neighbors import Metric
    from whatwhere.analysis.token_neighbors import AnalogyAnswers, Neighbors, SearchedTable, TokenSimilarity

Token = typer.Argument(help="Token by its text, or by its id as in '#123'.")
Count = Annotated[int, typer.Option("-k", help="Number of results.", min=1)]


def _on_a_table(search: Callable[..., "SearchedTable"]) -> Callable[..., None]:
    """Make a command of a function: it gets the path and options of all searches, and its result is printed."""

    def command(
        path: Model,
        centered: Annotated[bool, typer.Option("--centered", help="Subtract the mean embedding first.")] = False,
        table: Which = "input",
        run: Run = None,
        allow_pickle: Pickles = False,
        as_json: AsJson = False,
        **own: Any,
    ) -> None:
        with progress() as show:
            options = {"centered": centered, "table": table, "run": run, "allow_pickle": allow_pickle, "progress": show}
            result = search(path, options, **own)
        if as_json:
            print_json(result)
            return
        from whatwhere.report.neighbors import parts

        print_parts(parts(result), new_console())

    # Typer reads the signature: the path, what the command alone takes, and the options of all.
    path, *options, _ = signature(command).parameters.values()
    _, _, *own = signature(search).parameters.values()
    parameters = [path, *own, *options]
    functools.update_wrapper(command, search)
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return app.command(rich_help_panel=READ)(command)


@_on_a_table
def neighbors(
    path: Model,
    options: dict[str, Any],
    tokens: Annotated[list[str], Token],
    k: Count = 10,
    metric: Annotated[str, typer.Option(help="Metric: cosine, dot or euclidean.")] = "cosine",
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
    tokens: Annotated[list[str], typer.Argument(help="Three tokens, as in man woman king, or king - man + woman.")],
    k: Count = 10,
    rule: Annotated[str, typer.Option(help="Scoring: add (3CosAdd) or multiply (3CosMul).")] = "add",
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
    tokens: Annotated[tuple[str, str], typer.Argument(help="Two tokens, as text or as '#123'.")],
) -> "TokenSimilarity":
    """Print the cosine similarity of two tokens.

    Example: whatwhere similarity path/to/model king queen
    """
    from whatwhere.analysis.token_neighbors import token_similarity

    return token_similarity(path, tokens, **options)
