"""neighbors, analogy and similarity: compare the rows of a token table."""

import functools
from collections.abc import Callable, Sequence
from inspect import Signature, signature
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from whatwhere.cli.app import AsJson, Model, Pickles, Which, app, exit_on_error, print_json, to_path
from whatwhere.errors import SettingError
from whatwhere.escape import shown_token
from whatwhere.report.section import Table as ReportTable
from whatwhere.report.terminal import new_console, print_table, progress
from whatwhere.report.text import count, percent

if TYPE_CHECKING:
    from rich.console import Console

    from whatwhere.analysis.nearest_neighbors import Metric
    from whatwhere.analysis.word_benchmarks import Rule
    from whatwhere.inspection.token_neighbors import (
        AnalogyAccuracy,
        AnalogyAnswers,
        NamedRow,
        Neighbor,
        Neighbors,
        RatedPairs,
        SearchedTable,
        Source,
        TokenSimilarity,
    )

Token = typer.Argument(help="Token by its text, or by its id as in '#123'.")
Count = Annotated[int, typer.Option("-k", help="Number of results.", min=1)]


def _on_a_table(search: Callable[..., "SearchedTable"]) -> Callable[..., None]:
    """Make a command of a function: it gets the path and options of all searches, and its result is printed.

    Args:
        search: what the command computes of a Source; its further parameters are the command's own.
    """

    def command(
        path: Model,
        centered: Annotated[bool, typer.Option("--centered", help="Subtract the mean embedding first.")] = False,
        table: Which = "input",
        allow_pickle: Pickles = False,
        as_json: AsJson = False,
        **own: Any,
    ) -> None:
        from whatwhere.inspection.token_neighbors import Source

        with progress() as show:
            result = search(Source(path, table, allow_pickle, centered, show), **own)
        if as_json:
            print_json(result)
        else:
            _print(result)

    # Typer reads the signature: the path, what the command alone takes, and the options of all.
    path, *options, _ = signature(command).parameters.values()
    _, *own = signature(search).parameters.values()
    parameters = [path, *own, *options]
    functools.update_wrapper(command, search)
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return app.command()(exit_on_error(command))


@_on_a_table
def neighbors(
    source: "Source",
    tokens: Annotated[list[str], Token],
    k: Count = 10,
    metric: Annotated[str, typer.Option(help="Metric: cosine, dot or euclidean.")] = "cosine",
) -> "Neighbors":
    """Print the nearest neighbors of tokens: exact, in all dimensions.

    Example: whatwhere neighbors path/to/model king paris -k 5
    """
    from whatwhere.inspection.token_neighbors import nearest_tokens

    return nearest_tokens(source, tokens, k, cast("Metric", metric))


@_on_a_table
def analogy(
    source: "Source",
    tokens: Annotated[list[str], typer.Argument(help="Three tokens, as in man woman king, or king - man + woman.")],
    k: Count = 10,
    rule: Annotated[str, typer.Option(help="Scoring: add (3CosAdd) or multiply (3CosMul).")] = "add",
) -> "AnalogyAnswers":
    """Complete "A is to B as C is to ...": with the three words excluded from the answers, and with all rows.

    The same as an equation: whatwhere analogy path/to/model king - man + woman

    Example: whatwhere analogy path/to/model man woman king
    """
    from whatwhere.inspection.token_neighbors import analogy_terms, completed_analogy

    return completed_analogy(source, analogy_terms(tokens), k, cast("Rule", rule))


@_on_a_table
def similarity(
    source: "Source",
    tokens: Annotated[list[str] | None, typer.Argument(help="Two tokens, as text or as '#123'.")] = None,
    benchmark: Annotated[
        Path | None,
        typer.Option(
            parser=to_path, help="File of analogies (questions-words) or rated pairs (WordSim-353, SimLex-999)."
        ),
    ] = None,
    rule: Annotated[str, typer.Option(help="Scoring of analogies: add (3CosAdd) or multiply (3CosMul).")] = "add",
) -> "AnalogyAccuracy | RatedPairs | TokenSimilarity":
    """Print the cosine similarity of two tokens, or score the table on a file of analogies or rated pairs.

    Example: whatwhere similarity path/to/model --benchmark questions-words.txt
    """
    from whatwhere.inspection.token_neighbors import compared_tokens, scored_benchmark

    words = tokens or []
    if (benchmark is None) == (not words) or len(words) not in (0, 2):
        raise SettingError(
            "similarity takes two tokens, or a file.\nRun whatwhere similarity path/to/model king queen, or "
            "whatwhere similarity path/to/model --benchmark questions-words.txt"
        )
    if benchmark is not None:
        return scored_benchmark(source, benchmark, cast("Rule", rule))
    return compared_tokens(source, words[0], words[1])


def _shown(row: "NamedRow") -> str:
    return shown_token(row.token, row.text)


def _print_columns(console: "Console", heads: Sequence[str], lists: Sequence[Sequence["Neighbor"]]) -> None:
    """Print lists of neighbors side by side."""
    columns = [name for head in heads for name in (head, "id", "score")]
    numeric = [n for n in range(len(columns)) if n % 3]
    rows = []
    for answers in zip_longest(*lists):
        cells = (["", "", ""] if one is None else [_shown(one), str(one.id), f"{one.score:.4f}"] for one in answers)
        rows.append([cell for three in cells for cell in three])
    print_table(ReportTable("", columns, rows, numeric, shorten="never"), console)


def _print(result: "SearchedTable") -> None:
    """Print what was found, and which rows were excluded."""
    from whatwhere.inspection.token_neighbors import (
        AnalogyAccuracy,
        AnalogyAnswers,
        Neighbors,
        RatedPairs,
        TokenSimilarity,
    )

    console = new_console()
    match result:
        case Neighbors():
            for n, token in enumerate(result.tokens):
                console.print(f"{'' if n == 0 else chr(10)}{_shown(token)} (#{token.id})", soft_wrap=True)
                _print_columns(console, [result.metric], [token.neighbors])
        case AnalogyAnswers():
            a, b, c = (_shown(token) for token in result.question)
            console.print(f"{a} is to {b} as {c} is to", soft_wrap=True)
            heads = ["without the three words", "all rows"]
            _print_columns(console, heads, [result.without_inputs, result.with_inputs])
        case TokenSimilarity():
            one, other = (_shown(token) for token in result.tokens)
            console.print(f"cosine of {one} and {other}: {result.cosine:.4f}", soft_wrap=True)
        case RatedPairs():
            spearman, pearson = ("-" if n is None else f"{n:.4f}" for n in (result.spearman, result.pearson))
            console.print(f"{result.scored:,} of {count(result.pairs, 'pair')} are in the vocabulary.")
            console.print(f"Correlation of cosine and rating: Spearman {spearman}, Pearson {pearson}.")
        case AnalogyAccuracy():
            columns = ("section", "questions", "not in vocabulary", "scored", "correct", "accuracy")
            rows = [
                [
                    part.name,
                    *(f"{n:,}" for n in (part.questions, part.questions - part.scored, part.scored, part.correct)),
                    "-" if part.accuracy is None else percent(part.accuracy),
                ]
                for part in (*result.sections, result.total)
            ]
            print_table(ReportTable("", columns, rows, range(1, 6), shorten="never"), console)
    if result.not_finite:
        some = ", ".join(_shown(row) for row in result.not_finite[:5])
        more = f" and {len(result.not_finite) - 5:,} more" if len(result.not_finite) > 5 else ""
        console.print(f"\nExcluded, because they contain NaN or infinity: {some}{more}.", soft_wrap=True)
