"""neighbors, analogy and similarity: compare the rows of a token table."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Signature, signature
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from whatwhere.cli.app import AsJson, Model, Pickles, Which, app, exit_on_error, print_json, to_path
from whatwhere.errors import SettingError, TextError
from whatwhere.escape import visible
from whatwhere.report.section import Table as ReportTable
from whatwhere.report.terminal import new_console, print_table, progress
from whatwhere.report.text import count, percent

if TYPE_CHECKING:
    from rich.console import Console

    from whatwhere.analysis.nearest_neighbors import Metric, Nearest, Search
    from whatwhere.analysis.word_benchmarks import Rule
    from whatwhere.models.checkpoint import Checkpoint
    from whatwhere.models.checkpoint.lookup import Table

Token = typer.Argument(help="Token by its text, or by its id as in '#123'.")
Count = Annotated[int, typer.Option("-k", help="Number of results.", min=1)]


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


@dataclass(frozen=True)
class Source:
    """The table that a command searches; it is read when it is first used, after the arguments were checked.

    Args:
        path: of the checkpoint.
        which: "input", "output" or the name of a tensor.
        allow_pickle: read pickles too.
        centered: subtract the mean row first.
        show: called with each step that takes a while, in words.
    """

    path: Path
    which: str
    allow_pickle: bool
    centered: bool
    show: Callable[[str], None]

    @cached_property
    def checkpoint(self) -> "Checkpoint":
        """The checkpoint."""
        from whatwhere.models.checkpoint import Checkpoint

        return Checkpoint.open(self.path, allow_pickle=self.allow_pickle)

    @cached_property
    def table(self) -> "Table":
        """Its table."""
        from whatwhere.models.checkpoint.lookup import read_table

        return read_table(self.checkpoint, self.which)

    def searched(self) -> SearchedTable:
        """Return what is printed of the table."""
        from whatwhere.models.checkpoint.lookup import word_of

        table = self.table
        return SearchedTable(
            path=str(self.path),
            table=table.name,
            rows=table.rows,
            dim=table.weight.shape[1],
            dtype=table.dtype,
            not_finite=[NamedRow(word_of(table.words, n), n) for n in table.broken.tolist()],
            centered=self.centered,
        )

    def rows(self, tokens: Sequence[str]) -> list[int]:
        """Return the rows of tokens."""
        from whatwhere.models.checkpoint.lookup import find_token

        return [self.table.row(find_token(self.checkpoint, text, self.table.rows)) for text in tokens]

    def named(self, rows: Sequence[int]) -> list[NamedRow]:
        """Return the tokens of rows."""
        return [NamedRow(self.table.word(row), int(self.table.ids[row])) for row in rows]

    def neighbors(self, near: "Nearest", query: int = 0) -> list[Neighbor]:
        """Return the rows that were found for a query."""
        named, scores = self.named(near.ids[query].tolist()), near.scores[query].tolist()
        return [Neighbor(row.token, row.id, score) for row, score in zip(named, scores, strict=True)]


def _on_a_table(search: Callable[..., SearchedTable]) -> Callable[..., None]:
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
    source: Source,
    tokens: Annotated[list[str], Token],
    k: Count = 10,
    metric: Annotated[str, typer.Option(help="Metric: cosine, dot or euclidean.")] = "cosine",
) -> Neighbors:
    """Print the nearest neighbors of tokens: exact, in all dimensions.

    Example: whatwhere neighbors path/to/model king paris -k 5
    """
    from whatwhere.analysis.nearest_neighbors import Search

    rows, weight = source.rows(tokens), source.table.weight
    source.show("searching")
    near = Search(weight, cast("Metric", metric), source.centered).nearest(weight[rows], k, [[row] for row in rows])
    listed = [
        TokenNeighbors(token.token, token.id, source.neighbors(near, n)) for n, token in enumerate(source.named(rows))
    ]
    return Neighbors(**vars(source.searched()), metric=metric, tokens=listed)


@_on_a_table
def analogy(
    source: Source,
    a: Annotated[str, Token],
    b: Annotated[str, Token],
    c: Annotated[str, Token],
    k: Count = 10,
    rule: Annotated[str, typer.Option(help="Scoring: add (3CosAdd) or multiply (3CosMul).")] = "add",
) -> AnalogyAnswers:
    """Complete "A is to B as C is to ...": with the three words excluded from the answers, and with all rows.

    Example: whatwhere analogy path/to/model man woman king
    """
    from whatwhere.analysis.word_benchmarks import analogy as complete

    weight = source.table.weight
    if len(weight) < 4:
        raise SettingError(
            f"an analogy needs an answer beside its three words, but {source.path} has {len(weight)} rows.\n"
            "Choose a larger table."
        )
    rows = source.rows((a, b, c))
    source.show("searching")
    one, other, third = rows
    answer = complete(weight, one, other, third, k, rule=cast("Rule", rule), centered=source.centered)
    return AnalogyAnswers(
        **vars(source.searched()),
        rule=rule,
        question=source.named(rows),
        without_inputs=source.neighbors(answer.without_inputs),
        with_inputs=source.neighbors(answer.with_inputs),
    )


@_on_a_table
def similarity(
    source: Source,
    tokens: Annotated[list[str] | None, typer.Argument(help="Two tokens, as text or as '#123'.")] = None,
    benchmark: Annotated[
        Path | None,
        typer.Option(
            parser=to_path, help="File of analogies (questions-words) or rated pairs (WordSim-353, SimLex-999)."
        ),
    ] = None,
    rule: Annotated[str, typer.Option(help="Scoring of analogies: add (3CosAdd) or multiply (3CosMul).")] = "add",
) -> AnalogyAccuracy | RatedPairs | TokenSimilarity:
    """Print the cosine similarity of two tokens, or score the table on a file of analogies or rated pairs.

    Example: whatwhere similarity path/to/model --benchmark questions-words.txt
    """
    from whatwhere.analysis.nearest_neighbors import Search

    if (benchmark is None) == (not tokens) or (tokens and len(tokens) != 2):
        raise SettingError(
            "similarity takes two tokens, or a file.\nRun whatwhere similarity path/to/model king queen, or "
            "whatwhere similarity path/to/model --benchmark questions-words.txt"
        )
    weight = source.table.weight
    source.show("comparing")
    search = Search(weight, "cosine", source.centered)
    if benchmark is not None:
        return _scored(search, source, benchmark, rule)
    rows = source.rows(tokens or ())
    return TokenSimilarity(**vars(source.searched()), tokens=source.named(rows), cosine=_cosine(search, *rows))


def _cosine(search: "Search", a: int, b: int) -> float:
    from whatwhere.analysis.table_difference import movement

    one, other = (search.table[[row]] - search.mean for row in (a, b))
    return float(movement(one, other).cosine[0])


def _scored(search: "Search", source: Source, file: Path, rule: str) -> AnalogyAccuracy | RatedPairs:
    from whatwhere.analysis.word_benchmarks import is_analogies, score_analogies, score_similarity

    if not source.table.words:
        raise TextError(
            "a benchmark needs words, but this table comes without tokens as strings.\n"
            "Put the tokenizer's files beside the weights."
        )
    words, searched = source.table.plain_words(), source.searched()
    try:
        if not is_analogies(file):
            scores = score_similarity(search, words, file)
            return RatedPairs(**vars(searched), benchmark=str(file), **vars(scores))
        score = score_analogies(search, words, file, cast("Rule", rule))
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


def _print(result: SearchedTable) -> None:
    """Print what was found, and which rows were excluded."""
    console = new_console()
    match result:
        case Neighbors():
            for n, token in enumerate(result.tokens):
                console.print(f"{'' if n == 0 else chr(10)}{visible(token.token)} (#{token.id})", soft_wrap=True)
                _print_columns(console, [result.metric], [token.neighbors])
        case AnalogyAnswers():
            a, b, c = (visible(token.token) for token in result.question)
            console.print(f"{a} is to {b} as {c} is to", soft_wrap=True)
            heads = ["without the three words", "all rows"]
            _print_columns(console, heads, [result.without_inputs, result.with_inputs])
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
    if result.not_finite:
        some = ", ".join(visible(row.token) for row in result.not_finite[:5])
        more = f" and {len(result.not_finite) - 5:,} more" if len(result.not_finite) > 5 else ""
        console.print(f"\nExcluded, because they contain NaN or infinity: {some}{more}.", soft_wrap=True)
