"""Tokens and their nearest rows by name: neighbors, analogies and similarities of a checkpoint's table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from whatwhere.analysis.analogies import Rule, answers
from whatwhere.analysis.nearest_neighbors import Metric, Nearest, Search
from whatwhere.analysis.table_difference import movement
from whatwhere.errors import SettingError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import Table, find_token, read_table, word_of
from whatwhere.models.load_where import of_run
from whatwhere.models.token_types import Marking, marking, texts


@dataclass(frozen=True)
class NamedRow:
    """A row of a table, by its token.

    Args:
        token: as the vocabulary spells it, or #id.
        id: of the token.
        text: of the token, with its leading space; None where its bytes are not text, or there is no token.
    """

    token: str
    id: int
    text: str | None


def named_rows(words: Sequence[str], ids: Sequence[int], marked: Marking | None = None) -> list[NamedRow]:
    """Return the names and texts of some tokens of a vocabulary, which is `marked` so if that is known."""
    known = [words[n] if n < len(words) else "" for n in ids]
    decoded = [text if isinstance(text, str) and text else None for text in texts(known, marked or marking(words))]
    return [NamedRow(word_of(words, n), n, text) for n, text in zip(ids, decoded, strict=True)]


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
class Source:
    """The table that a command searches; it is read when it is first used, after the arguments were checked.

    Args:
        path: of the checkpoint, or the open one.
        which: "input", "output" or the name of a tensor.
        show: called with each step that takes a while, in words.
        run: of a comparison, such as "rotary-0"; it may be None where there is only one.
    """

    path: Path | str | Checkpoint
    which: str = "input"
    allow_pickle: bool = False
    centered: bool = False
    show: Callable[[str], None] = lambda _: None
    run: str | None = None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint."""
        path = self.path
        opened = path if isinstance(path, Checkpoint) else Checkpoint.open(path, allow_pickle=self.allow_pickle)
        return opened if self.run is None and self.which in opened.tensors else of_run(opened, self.run)

    @cached_property
    def table(self) -> Table:
        """Its table."""
        return read_table(self.checkpoint, self.which)

    def search(self, metric: Metric) -> Search:
        """Return the prepared search."""
        weight = self.table.weight
        self.show("searching")
        return Search(weight, metric, self.centered)

    def rows(self, tokens: Sequence[str]) -> list[int]:
        """Return the rows of tokens."""
        return [self.table.row(find_token(self.checkpoint, text, self.table.rows)) for text in tokens]


def searched_table(checkpoint: Checkpoint, table: Table, centered: bool) -> SearchedTable:
    """Return what is printed of a table that was searched."""
    return SearchedTable(
        path=str(checkpoint.path),
        table=table.name,
        rows=table.rows,
        dim=table.weight.shape[1],
        dtype=table.dtype,
        not_finite=named_rows(table.words, table.broken.tolist(), table.marking),
        centered=centered,
    )


def found_rows(table: Table, near: Nearest, query: int = 0) -> list[Neighbor]:
    """Return the rows that were found for a query, with their tokens."""
    ids, scores = table.ids[near.ids[query]].tolist(), near.scores[query].tolist()
    named = named_rows(table.words, ids, table.marking)
    return [Neighbor(**vars(row), score=score) for row, score in zip(named, scores, strict=True)]


def neighbors(
    source: Checkpoint | str | Path,
    tokens: str | Sequence[str],
    k: int = 10,
    *,
    metric: Metric = "cosine",
    centered: bool = False,
    table: str = "input",
    run: str | None = None,
) -> Neighbors:
    """Return the nearest neighbors of tokens, by their text: exact, in all dimensions, the nearest first.

    For rows of an array: `whatwhere.analysis.neighbors`.

    Args:
        source: a checkpoint, or its path.
        tokens: one or several, by text or by id as in "#123".
        k: number of neighbors of each.
        metric: "cosine", "dot" or "euclidean".
        centered: subtract the mean row first.
        table: "input", "output" or the name of a tensor.
        run: of a comparison, such as "rotary-0"; it may be None where there is only one.

    Raises:
        TokenError: If there is no such token.
        CheckpointError, SettingError: If the table cannot be read, or the metric is not known; or a comparison has
            several runs and none is named.

    Examples:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp(), "three.vec")
        >>> _ = path.write_text("3 2\\nking 1 2\\nqueen 1 2.5\\ncar 9 -4\\n")
        >>> [found.token for found in neighbors(path, ["king"], k=1).tokens[0].neighbors]
        ['queen']
    """
    named = [tokens] if isinstance(tokens, str) else tokens
    return nearest_tokens(Source(source, table, centered=centered, run=run), named, k, metric)


def analogy(
    source: Checkpoint | str | Path,
    *tokens: str,
    k: int = 10,
    rule: Rule = "add",
    centered: bool = False,
    table: str = "input",
    run: str | None = None,
) -> AnalogyAnswers:
    """Return what completes "a is to b as c is to ...", by the text of tokens: without these three, and among all rows.

    Args:
        source: a checkpoint, or its path.
        tokens: "man", "woman", "king", or the same as one text: "king - man + woman".
        k: number of answers.
        rule: "add" (3CosAdd) or "multiply" (3CosMul).
        centered, table, run: as in `neighbors`.

    Raises:
        TokenError: If there is no such token.
        CheckpointError, SettingError: If the table cannot be read or is too small, or the tokens are not three; or a
            comparison has several runs and none is named.

    Examples:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp(), "four.vec")
        >>> _ = path.write_text("4 2\\nman 1 0\\nwoman 1 1\\nking 3 0\\nqueen 3 1.8\\n")
        >>> analogy(path, "king - man + woman", k=1).without_inputs[0].token
        'queen'
    """
    words = tokens[0].split() if len(tokens) == 1 else tokens
    return completed_analogy(Source(source, table, centered=centered, run=run), analogy_terms(words), k, rule)


def nearest_tokens(source: Source, tokens: Sequence[str], k: int, metric: Metric) -> Neighbors:
    """Return the nearest neighbors of tokens in the table of a source."""
    rows, table = source.rows(tokens), source.table
    if metric == "cosine":
        _require_direction(source, rows)
    near = source.search(metric).nearest(table.weight[rows], k, [[row] for row in rows])
    listed = [
        TokenNeighbors(**vars(token), neighbors=found_rows(table, near, n))
        for n, token in enumerate(_named(table, rows))
    ]
    searched = vars(searched_table(source.checkpoint, table, source.centered))
    return Neighbors(**searched, metric=metric, tokens=listed)


def analogy_terms(words: Sequence[str]) -> tuple[str, str, str]:
    """Return a, b and c of "a is to b as c is to ...", from these or from an equation: b - a + c, or b + c - a.

    Raises:
        SettingError: If they are neither.
    """
    if len(words) == 5 and sorted((words[1], words[3])) == ["+", "-"]:
        b, second, third = words[::2]
        return (second, b, third) if words[1] == "-" else (third, b, second)
    if len(words) != 3:
        raise SettingError(
            f"an analogy takes three tokens, but got {' '.join(words)!r}.\nPass man woman king, or king - man + woman."
        )
    a, b, c = words
    return a, b, c


def completed_analogy(source: Source, terms: tuple[str, str, str], k: int, rule: Rule) -> AnalogyAnswers:
    """Return the answers of an analogy in the table of a source.

    Raises:
        SettingError: If the table has fewer than four rows.
    """
    table = source.table
    if len(table.weight) < 4:
        raise SettingError(
            f"an analogy needs an answer beside its three words, but {source.checkpoint.path} has {len(table.weight)} "
            "rows.\nChoose a larger table."
        )
    rows = source.rows(terms)
    _require_direction(source, rows)
    return answered_analogy(source.checkpoint, table, source.search("cosine"), rows, k, rule)


def answered_analogy(
    checkpoint: Checkpoint, table: Table, search: Search, rows: Sequence[int], k: int, rule: Rule
) -> AnalogyAnswers:
    """Return the answers of an analogy of three rows, by a search in their table."""
    without, among_all = (answers(search, rows, k, rule, inputs) for inputs in (False, True))
    return AnalogyAnswers(
        **vars(searched_table(checkpoint, table, search.centered)),
        rule=rule,
        question=_named(table, rows),
        without_inputs=found_rows(table, without),
        with_inputs=found_rows(table, among_all),
    )


def compared_tokens(source: Source, one: str, other: str) -> TokenSimilarity:
    """Return the cosine similarity of two tokens."""
    table, rows = source.table, source.rows((one, other))
    _require_direction(source, rows)
    search = source.search("cosine")
    first, second = (search.table[[row]] - search.mean for row in rows)
    cosine = float(movement(first, second).cosine[0])
    searched = vars(searched_table(source.checkpoint, table, source.centered))
    return TokenSimilarity(**searched, tokens=_named(table, rows), cosine=cosine)


def _named(table: Table, rows: Sequence[int]) -> list[NamedRow]:
    return named_rows(table.words, table.ids[list(rows)].tolist(), table.marking)


def _require_direction(source: Source, rows: Sequence[int]) -> None:
    for row in rows:
        if not source.centered and not source.table.weight[row].any():
            raise SettingError(
                f"the row of token #{row} is 0, so it has no direction, and no cosine with another row.\n"
                "Choose another token; its neighbors by distance are found with the metric euclidean."
            )
