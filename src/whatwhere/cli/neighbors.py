"""neighbors, analogy and similarity: compare the rows of a token table."""

from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from whatwhere.cli.app import READ, Model, Pickles, Printed, Run, Which, command, with_parameters

if TYPE_CHECKING:
    from whatwhere.analysis.analogies import Rule
    from whatwhere.analysis.nearest_neighbors import Metric
    from whatwhere.analysis.token_neighbors import AnalogyAnswers, Neighbors, SearchedTable, TokenSimilarity

Count = Annotated[int, Option("-k", help="Number of results.", min=1)]


def _on_a_table(search: Callable[..., "SearchedTable"]) -> Callable[..., None]:
    """Make a command of a function: it gets the path and options of all searches."""

    def run(
        path: Model,
        show_step: Any,
        centered: Annotated[bool, Option("--centered", help="Subtract the mean embedding first.")] = False,
        table: Which = "input",
        run: Run = None,
        allow_pickle: Pickles = False,
        **own: Any,
    ) -> Printed:
        from whatwhere.report.tokens import found_rows

        options = {
            "centered": centered,
            "table": table,
            "run": run,
            "allow_pickle": allow_pickle,
            "progress": show_step,
        }
        result = search(path, options, **own)
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
