"""Tokens and their nearest rows by name: neighbors, analogies and similarities of a checkpoint's table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.analysis.nearest_neighbors import Metric, Nearest, Rule, Search, answers
from whatwhere.analysis.subject import Progress
from whatwhere.errors import SettingError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import Table, find_token, read_table, word_of
from whatwhere.models.load_where import of_run
from whatwhere.models.model_text import Marking, marking, texts


@dataclass(frozen=True)
class NamedRow:
    """A row of a table, by its id and its token as the vocabulary spells it, or #id."""

    token: str
    id: int
    text: str | None  # of the token, with its leading space; None where its bytes are not text, or there is no token


def named_rows(words: Sequence[str], ids: Sequence[int], marked: Marking | None = None) -> list[NamedRow]:
    """Return the names and texts of some tokens of a vocabulary, which is `marked` so if that is known."""
    known = [words[n] if n < len(words) else "" for n in ids]
    decoded = [text if isinstance(text, str) and text else None for text in texts(known, marked or marking(words))]
    return [NamedRow(word_of(words, n), n, text) for n, text in zip(ids, decoded, strict=True)]


@dataclass(frozen=True)
class Neighbor(NamedRow):
    """A row that was found by its score: its cosine, dot product or, of the metric euclidean, distance."""

    score: float


@dataclass(frozen=True)
class TokenNeighbors(NamedRow):
    """A token and its nearest rows, the nearest first."""

    neighbors: Sequence[Neighbor]


@dataclass(frozen=True)
class SearchedTable:
    """The table that was searched."""

    path: str
    table: str
    others: Sequence[str]  # token tables of other models in the file
    rows: int
    dim: int
    dtype: str
    not_finite: Sequence[NamedRow]  # rows that are excluded, for they hold NaN or infinity
    centered: bool  # whether the mean row was subtracted first


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


def neighbors(
    source: Checkpoint | str | Path,
    tokens: str | Sequence[str],
    k: int = 10,
    *,
    metric: Metric = "cosine",
    centered: bool = False,
    table: str = "input",
    run: str | None = None,
    allow_pickle: bool = False,
    progress: Progress = lambda _: None,
) -> Neighbors:
    """Return the nearest neighbors of tokens, by their text: exact, in all dimensions, the nearest first.

    For rows of an array: `whatwhere.analysis.neighbors`.

    Args:
        source: a checkpoint, or its path.
        tokens: one or several, by text or by id as in "#123".
        k: number of neighbors of each.
        metric: "cosine", "dot" or "euclidean".
        centered: subtract the mean row first.
        table: "input", "output", "change" (of a run: what training changed, E - E0) or the name of a tensor.
        run: of a comparison, such as "rotary-0"; it may be None where there is only one.
        allow_pickle: read pickles too; pass True only where you trust the author.
        progress: called with each step that takes a while, in words.

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
    given = [tokens] if isinstance(tokens, str) else tokens
    checkpoint, opened, rows = _rows(source, table, run, allow_pickle, given, metric == "cosine" and not centered)
    progress("searching")
    near = Search(opened.weight, metric, centered).nearest(opened.weight[rows], k, [[row] for row in rows])
    near = replace(near, scores=abs(near.scores)) if metric == "euclidean" else near
    listed = [
        TokenNeighbors(**vars(row), neighbors=_found(opened, near, n)) for n, row in enumerate(_named(opened, rows))
    ]
    return Neighbors(**_searched(checkpoint, opened, centered), metric=metric, tokens=listed)


def analogy(
    source: Checkpoint | str | Path,
    *tokens: str,
    k: int = 10,
    rule: Rule = "add",
    centered: bool = False,
    table: str = "input",
    run: str | None = None,
    allow_pickle: bool = False,
    progress: Progress = lambda _: None,
) -> AnalogyAnswers:
    """Return what completes "a is to b as c is to ...", by the text of tokens: without these three, and among all rows.

    Args:
        source: a checkpoint, or its path.
        tokens: "man", "woman", "king", or the same as one text: "king - man + woman".
        k: number of answers.
        rule: "add" (3CosAdd) or "multiply" (3CosMul).
        centered, table, run, allow_pickle, progress: as in `neighbors`.

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
    terms = _terms(tokens[0].split() if len(tokens) == 1 else tokens)
    checkpoint, opened, rows = _rows(source, table, run, allow_pickle, terms, not centered)
    if len(opened.weight) < 4:
        raise SettingError(
            f"an analogy needs an answer beside its three words, but {checkpoint.path} has {len(opened.weight)} rows.\n"
            "Choose a larger table."
        )
    progress("searching")
    return answered_analogy(checkpoint, opened, Search(opened.weight, "cosine", centered), rows, k, rule)


def answered_analogy(
    checkpoint: Checkpoint, table: Table, search: Search, rows: Sequence[int], k: int, rule: Rule
) -> AnalogyAnswers:
    """Return the answers of an analogy of three rows, by a search in their table."""
    return AnalogyAnswers(
        **_searched(checkpoint, table, search.centered), rule=rule, question=_named(table, rows),
        without_inputs=_found(table, answers(search, rows, k, rule)),
        with_inputs=_found(table, answers(search, rows, k, rule, inputs=True)),
    )  # fmt: skip


def token_similarity(
    source: Checkpoint | str | Path,
    tokens: tuple[str, str],
    *,
    centered: bool = False,
    table: str = "input",
    run: str | None = None,
    allow_pickle: bool = False,
    progress: Progress = lambda _: None,
) -> TokenSimilarity:
    """Return the cosine similarity of two tokens; the settings are those of `neighbors`."""
    checkpoint, opened, rows = _rows(source, table, run, allow_pickle, tokens, not centered)
    progress("searching")
    one, other = Search(opened.weight, "cosine", centered).unit_rows(np.array(rows))
    cosine = min(max(float(one @ other), -1.0), 1.0)
    return TokenSimilarity(**_searched(checkpoint, opened, centered), tokens=_named(opened, rows), cosine=cosine)


def open_run(
    source: Checkpoint | str | Path, table: str, run: str | None = None, allow_pickle: bool = False
) -> Checkpoint:
    """Open a checkpoint, or the run of a comparison that has the table; a table by its full name needs no run."""
    opened = source if isinstance(source, Checkpoint) else Checkpoint.open(source, allow_pickle=allow_pickle)
    return opened if run is None and table in opened.tensors else of_run(opened, run)


def _rows(
    source: Checkpoint | str | Path,
    table: str,
    run: str | None,
    allow_pickle: bool,
    tokens: Sequence[str],
    directed: bool,
) -> tuple[Checkpoint, Table, list[int]]:
    """Open a checkpoint; return it, a table, and its rows of some tokens, none of them 0 where they need directions."""
    checkpoint = open_run(source, table, run, allow_pickle)
    opened = read_table(checkpoint, table)
    rows = [opened.row(find_token(checkpoint, text, opened.rows)) for text in tokens]
    for row in rows if directed else ():
        if not opened.weight[row].any():
            raise SettingError(
                f"the row of token #{row} is 0, so it has no direction, and no cosine with another row.\n"
                "Choose another token; its neighbors by distance are found with the metric euclidean."
            )
    return checkpoint, opened, rows


def _terms(words: Sequence[str]) -> tuple[str, str, str]:
    """Return a, b and c of "a is to b as c is to ...", from these or from an equation: b - a + c, or b + c - a."""
    if len(words) == 5 and sorted((words[1], words[3])) == ["+", "-"]:
        b, second, third = words[::2]
        return (second, b, third) if words[1] == "-" else (third, b, second)
    if len(words) != 3:
        raise SettingError(
            f"an analogy takes three tokens, but got {' '.join(words)!r}.\nPass man woman king, or king - man + woman."
        )
    a, b, c = words
    return a, b, c


def _searched(checkpoint: Checkpoint, table: Table, centered: bool) -> dict[str, Any]:
    """Return the fields of `SearchedTable`."""
    return {
        "path": str(checkpoint.path), "table": table.name, "others": checkpoint.names.others, "rows": table.rows,
        "dim": table.weight.shape[1], "dtype": table.dtype, "centered": centered,
        "not_finite": named_rows(table.words, table.broken.tolist(), table.marking),
    }  # fmt: skip


def _found(table: Table, near: Nearest, query: int = 0) -> list[Neighbor]:
    named = _named(table, near.ids[query])
    return [Neighbor(**vars(row), score=score) for row, score in zip(named, near.scores[query].tolist(), strict=True)]


def _named(table: Table, rows: Sequence[int] | np.ndarray) -> list[NamedRow]:
    return named_rows(table.words, table.ids[np.asarray(rows, np.int64)].tolist(), table.marking)
