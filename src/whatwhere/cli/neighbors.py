"""neighbors, analogy and similarity: compare the rows of a token table."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from whatwhere.cli.app import AsJson, app, exit_on_error
from whatwhere.errors import SettingError, TextError
from whatwhere.escape import visible
from whatwhere.records import to_json
from whatwhere.report.section import Table as ReportTable
from whatwhere.report.terminal import new_console, print_table, progress
from whatwhere.report.text import count, percent

if TYPE_CHECKING:
    from rich.console import Console

    from whatwhere.analysis.nearest_neighbors import Metric, Nearest, Search
    from whatwhere.analysis.word_benchmarks import Rule
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.models.checkpoint.lookup import Table

Model = Annotated[Path, typer.Argument(help="File or folder of a model, in any format.")]
Token = typer.Argument(help="Token by its text, or by its id as in '#123'.")
Count = Annotated[int, typer.Option("-k", help="Number of results.", min=1)]
Centered = Annotated[bool, typer.Option("--centered", help="Subtract the mean embedding first.")]
Which = Annotated[str, typer.Option(help="Table: input, output (lm_head), or the name of a tensor.")]
Pickles = Annotated[
    bool, typer.Option("--allow-pickle", help="Read pickles too, which can run code: only if you trust the author.")
]


@dataclass(frozen=True)
class NamedRow:
    """A row of a table, by its token.

    Args:
        token: its text, or #id.
        id: of the token.
    """

    token: str
    id: int


@dataclass(frozen=True)
class Neighbor(NamedRow):
    """A row that was found by its score."""

    score: float


@dataclass(frozen=True)
class TokenNeighbors(NamedRow):
    """A token and its nearest rows, the nearest first."""

    neighbors: Sequence[Neighbor]


@dataclass(frozen=True)
class SearchedTable:
    """The table that was searched.

    Args:
        path: of the checkpoint.
        table: name of the tensor.
        rows, dim: its shape.
        dtype: the stored type.
        not_finite: rows that are excluded, for they hold NaN or infinity.
        centered: whether the mean row was subtracted first.
    """

    path: str
    table: str
    rows: int
    dim: int
    dtype: str
    not_finite: Sequence[NamedRow]
    centered: bool


@dataclass(frozen=True)
class Neighbors(SearchedTable):
    """What `neighbors --json` prints."""

    metric: str
    tokens: Sequence[TokenNeighbors]


@dataclass(frozen=True)
class AnalogyAnswers(SearchedTable):
    """What `analogy --json` prints: a, b and c, and the best answers without these three and among all rows."""

    rule: str
    question: Sequence[NamedRow]
    without_inputs: Sequence[Neighbor]
    with_inputs: Sequence[Neighbor]


@dataclass(frozen=True)
class TokenSimilarity(SearchedTable):
    """What `similarity --json` prints of two tokens."""

    tokens: Sequence[NamedRow]
    cosine: float


@dataclass(frozen=True)
class RatedPairs(SearchedTable):
    """What `similarity --benchmark --json` prints of rated pairs.

    Args:
        benchmark: the file.
        pairs: in the file.
        scored: pairs whose words are both in the vocabulary.
        spearman, pearson: correlation of cosine and rating; None where it is not defined.
    """

    benchmark: str
    pairs: int
    scored: int
    spearman: float | None
    pearson: float | None


@dataclass(frozen=True)
class SectionAccuracy:
    """Answers to the questions of a section.

    Args:
        name: of the section.
        questions: in the file.
        scored: questions whose words are all in the vocabulary.
        correct: of those scored.
        accuracy: correct / scored; None where none is scored.
    """

    name: str
    questions: int
    scored: int
    correct: int
    accuracy: float | None


@dataclass(frozen=True)
class AnalogyAccuracy(SearchedTable):
    """What `similarity --benchmark --json` prints of analogies, section by section."""

    benchmark: str
    rule: str
    sections: Sequence[SectionAccuracy]
    total: SectionAccuracy


@app.command()
@exit_on_error
def neighbors(
    path: Model,
    tokens: Annotated[list[str], Token],
    k: Count = 10,
    metric: Annotated[str, typer.Option(help="Metric: cosine, dot or euclidean.")] = "cosine",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Print the nearest neighbors of tokens: exact, in all dimensions.

    Example: whatwhere neighbors path/to/model king paris -k 5
    """
    from whatwhere.analysis.nearest_neighbors import Search

    with progress() as show:
        checkpoint, matrix = _read(path, table, allow_pickle)
        rows = _rows(checkpoint, matrix, tokens)
        show("searching")
        search = Search(matrix.weight, cast("Metric", metric), centered)
        near = search.nearest(matrix.weight[rows], k, [[row] for row in rows])
    listed = [
        TokenNeighbors(token.token, token.id, _neighbors_of(near, n, matrix))
        for n, token in enumerate(_named(matrix, rows))
    ]
    result = Neighbors(**vars(_searched(path, matrix, centered)), metric=metric, tokens=listed)
    if as_json:
        print(json.dumps(to_json(result, digits=None)))
        return
    console = new_console()
    for n, token in enumerate(result.tokens):
        console.print(f"{'' if n == 0 else chr(10)}{visible(token.token)} (#{token.id})", soft_wrap=True)
        _print_columns(console, [metric], [token.neighbors])
    _print_excluded(console, result)


@app.command()
@exit_on_error
def analogy(
    path: Model,
    a: Annotated[str, Token],
    b: Annotated[str, Token],
    c: Annotated[str, Token],
    k: Count = 10,
    rule: Annotated[str, typer.Option(help="Scoring: add (3CosAdd) or multiply (3CosMul).")] = "add",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Complete "A is to B as C is to ...": with the three words excluded from the answers, and with all rows.

    Example: whatwhere analogy path/to/model man woman king
    """
    from whatwhere.analysis.word_benchmarks import analogy as complete

    with progress() as show:
        checkpoint, matrix = _read(path, table, allow_pickle)
        if len(matrix.weight) < 4:
            raise SettingError(
                f"an analogy needs an answer beside its three words, but {path} has {len(matrix.weight)} rows.\n"
                "Choose a larger table."
            )
        rows = _rows(checkpoint, matrix, (a, b, c))
        show("searching")
        one, other, third = rows
        answer = complete(matrix.weight, one, other, third, k, rule=cast("Rule", rule), centered=centered)
    result = AnalogyAnswers(
        **vars(_searched(path, matrix, centered)),
        rule=rule,
        question=_named(matrix, rows),
        without_inputs=_neighbors_of(answer.without_inputs, 0, matrix),
        with_inputs=_neighbors_of(answer.with_inputs, 0, matrix),
    )
    if as_json:
        print(json.dumps(to_json(result, digits=None)))
        return
    console = new_console()
    names = [visible(token.token) for token in result.question]
    console.print(f"{names[0]} is to {names[1]} as {names[2]} is to", soft_wrap=True)
    _print_columns(console, ["without the three words", "all rows"], [result.without_inputs, result.with_inputs])
    _print_excluded(console, result)


@app.command()
@exit_on_error
def similarity(
    path: Model,
    tokens: Annotated[list[str] | None, typer.Argument(help="Two tokens, as text or as '#123'.")] = None,
    benchmark: Annotated[
        Path | None, typer.Option(help="File of analogies (questions-words) or rated pairs (WordSim-353, SimLex-999).")
    ] = None,
    rule: Annotated[str, typer.Option(help="Scoring of analogies: add (3CosAdd) or multiply (3CosMul).")] = "add",
    centered: Centered = False,
    table: Which = "input",
    allow_pickle: Pickles = False,
    as_json: AsJson = False,
) -> None:
    """Print the cosine similarity of two tokens, or score the table on a file of analogies or rated pairs.

    Example: whatwhere similarity path/to/model --benchmark questions-words.txt
    """
    from whatwhere.analysis.nearest_neighbors import Search

    if (benchmark is None) == (not tokens) or (tokens and len(tokens) != 2):
        raise SettingError(
            "similarity takes two tokens, or a file.\nRun whatwhere similarity path/to/model king queen, or "
            "whatwhere similarity path/to/model --benchmark questions-words.txt"
        )
    with progress() as show:
        checkpoint, matrix = _read(path, table, allow_pickle)
        show("comparing")
        search = Search(matrix.weight, "cosine", centered)
        if benchmark is not None:
            result: AnalogyAccuracy | RatedPairs | TokenSimilarity
            result = _scored(search, matrix, benchmark, rule, _searched(path, matrix, centered))
        else:
            rows = _rows(checkpoint, matrix, tokens or ())
            named, cosine = _named(matrix, rows), _cosine(search, *rows)
            result = TokenSimilarity(**vars(_searched(path, matrix, centered)), tokens=named, cosine=cosine)
    if as_json:
        print(json.dumps(to_json(result, digits=None)))
        return
    console = new_console()
    _print_similarity(console, result)
    _print_excluded(console, result)


def _read(path: Path, which: str, allow_pickle: bool) -> "tuple[Checkpoint, Table]":
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.models.checkpoint.lookup import read_table

    checkpoint = Checkpoint.open(path, allow_pickle=allow_pickle)
    return checkpoint, read_table(checkpoint, which)


def _rows(checkpoint: "Checkpoint", matrix: "Table", tokens: Sequence[str]) -> list[int]:
    from whatwhere.models.checkpoint.lookup import find_token

    return [matrix.row(find_token(checkpoint, text, matrix.rows)) for text in tokens]


def _searched(path: Path, matrix: "Table", centered: bool) -> SearchedTable:
    from whatwhere.models.checkpoint.lookup import word_of

    return SearchedTable(
        path=str(path),
        table=matrix.name,
        rows=matrix.rows,
        dim=matrix.weight.shape[1],
        dtype=matrix.dtype,
        not_finite=[NamedRow(word_of(matrix.words, n), n) for n in matrix.broken.tolist()],
        centered=centered,
    )


def _named(matrix: "Table", rows: Sequence[int]) -> list[NamedRow]:
    return [NamedRow(matrix.word(row), int(matrix.ids[row])) for row in rows]


def _neighbors_of(near: "Nearest", query: int, matrix: "Table") -> list[Neighbor]:
    named = _named(matrix, near.ids[query].tolist())
    scores = near.scores[query].tolist()
    return [Neighbor(row.token, row.id, score) for row, score in zip(named, scores, strict=True)]


def _cosine(search: "Search", a: int, b: int) -> float:
    from whatwhere.analysis.table_difference import movement

    one, other = (search.table[[row]] - search.mean for row in (a, b))
    return float(movement(one, other).cosine[0])


def _scored(
    search: "Search", matrix: "Table", file: Path, rule: str, searched: SearchedTable
) -> AnalogyAccuracy | RatedPairs:
    from whatwhere.analysis.word_benchmarks import is_analogies, score_analogies, score_similarity

    if not matrix.words:
        raise TextError(
            "a benchmark needs words, but this table comes without tokens as strings.\n"
            "Put the tokenizer's files beside the weights."
        )
    try:
        if not is_analogies(file):
            scores = score_similarity(search, matrix.plain_words(), file)
            return RatedPairs(**vars(searched), benchmark=str(file), **vars(scores))
        score = score_analogies(search, matrix.plain_words(), file, cast("Rule", rule))
    except OSError as problem:
        raise TextError(f"{file} cannot be read: {problem.strerror}.\nPass a text file.") from None
    *sections, total = (
        SectionAccuracy(**vars(part), accuracy=part.accuracy) for part in (*score.sections, score.total)
    )
    return AnalogyAccuracy(**vars(searched), benchmark=str(file), rule=rule, sections=sections, total=total)


def _print_columns(console: "Console", heads: Sequence[str], lists: Sequence[Sequence[Neighbor]]) -> None:
    """Print lists of neighbors side by side."""
    columns = [name for head in heads for name in (head, "id", "score")]
    numeric = [n for n in range(len(columns)) if n % 3]
    rows = []
    for answers in zip_longest(*lists):
        cells = (["", "", ""] if one is None else [one.token, str(one.id), f"{one.score:.4f}"] for one in answers)
        rows.append([cell for three in cells for cell in three])
    print_table(ReportTable("", columns, rows, numeric, shorten="never"), console)


def _print_similarity(console: "Console", result: AnalogyAccuracy | RatedPairs | TokenSimilarity) -> None:
    match result:
        case TokenSimilarity():
            one, other = (visible(token.token) for token in result.tokens)
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


def _print_excluded(console: "Console", searched: SearchedTable) -> None:
    if not searched.not_finite:
        return
    some = ", ".join(visible(row.token) for row in searched.not_finite[:5])
    more = f" and {len(searched.not_finite) - 5:,} more" if len(searched.not_finite) > 5 else ""
    console.print(f"\nExcluded, because they contain NaN or infinity: {some}{more}.", soft_wrap=True)
