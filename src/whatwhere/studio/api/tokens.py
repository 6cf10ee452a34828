"""The token card: what one token is, what its row is like, and which rows are near it."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from whatwhere.analysis.diagnostics import unreachable
from whatwhere.analysis.nearest_neighbors import Rule
from whatwhere.analysis.token_neighbors import AnalogyAnswers, answered_analogy
from whatwhere.models.checkpoint.lookup import Table, find_token, spellings, word_of
from whatwhere.report.section import Section
from whatwhere.studio.api.settings import ExportedView, Which, columns, query
from whatwhere.studio.session import Session

MOST_NEIGHBORS, MOST_FOUND = 200, 200
MOST_ROWS = 20  # neighbors whose rows are sent: more than a picture shows
_MOST_BINS, _MOST_EXAMPLES = 60, 6


@dataclass(frozen=True)
class Tokens:
    """Tokens by id: words as the vocabulary writes them, texts where their bytes are any, and token types."""

    ids: Int[np.ndarray, " tokens"]
    words: Sequence[str]
    texts: Sequence[str | None]
    kinds: Sequence[str]


@dataclass(frozen=True)
class FirstTokens(Tokens):
    """The first of `count` tokens: of a text, or of those that match a search, best first."""

    count: int


@dataclass(frozen=True)
class RowInTable:
    """The row of a token in one table, None where it is not finite, and the histogram of the norms of all rows."""

    name: str
    dtype: str
    rows: int
    counts: Int[np.ndarray, " bins"]
    edges: Float[np.ndarray, " edges"]
    median: float
    norm: float | None
    percentile: float | None  # how many of 100 rows have a lower norm
    row: Float[np.ndarray, " dim"] | None


@dataclass(frozen=True)
class TokenCard:
    """What a token is; no text and script where its bytes are not text."""

    id: int
    word: str
    text: str | None
    kind: str
    script: str | None
    bytes: UInt8[np.ndarray, " bytes"]  # of its text, the first 256
    byte_count: int
    characters: Sequence[tuple[str, str]]  # the first 64: the code point of each, such as "U+0041", and its name
    reachable: bool | None  # whether a text is encoded to it; None without a tokenizer
    tables: Mapping[Which, RowInTable]


@dataclass(frozen=True)
class NeighborList(Tokens):
    """The nearest rows of a token, nearest first, perhaps less the mean row; and the numbers of it and of the first."""

    table: str
    name: str
    centered: bool
    cosines: Float[np.ndarray, " tokens"]
    norms: Float[np.ndarray, " tokens"]
    rows: Float[np.ndarray, "shown dim"]


@dataclass(frozen=True)
class TokenNeighbors:
    """The nearest rows of a token in each table, as it is and centered; `mean` is the norm of the mean row of each."""

    id: int
    word: str
    text: str | None
    mean: Mapping[Which, float]
    lists: Sequence[NeighborList]


@query("tokens.find")
def find(session: Session, *, text: str, most: Annotated[int, 1, MOST_FOUND] = 30) -> FirstTokens:
    """Search tokens by a part of their text: equal ones first, then prefixes, then any that contain it."""
    wanted = text.strip()
    folded = session.once("folded", lambda: [_bare(session, n) for n in range(len(session.words))])
    rows = session.table().rows
    if wanted.startswith("#") and wanted[1:].isdigit() and len(wanted) < 12:
        matches = [n for n in [int(wanted[1:])] if n < rows]
    else:
        inside = [n for n, word in enumerate(folded[:rows]) if wanted and wanted.casefold() in word]
        matches = sorted(inside, key=lambda n: _distance(session.words[n], folded[n], wanted, n))
    return FirstTokens(**vars(_tokens(session, matches[:most])), count=len(matches))


@query("tokens.card")
def card(session: Session, *, token: str) -> TokenCard:
    """Return what a token is: its text, bytes, type, whether it is reachable, and the norm of its row among all."""
    number = find_token(session.checkpoint, token)
    meant = session.texts[number] if number < len(session.texts) else ""
    raw = meant.encode() if isinstance(meant, str) else meant
    named = _tokens(session, [number])
    return TokenCard(
        id=number,
        word=named.words[0],
        text=named.texts[0],
        kind=named.kinds[0],
        script=session.scripts[number] if number < len(session.scripts) else None,
        bytes=np.frombuffer(raw[:256], np.uint8),
        byte_count=len(raw),
        characters=[
            (f"U+{ord(char):04X}", unicodedata.name(char, "no name"))
            for char in ("" if isinstance(meant, bytes) else meant[:64])
        ],
        reachable=_reachable(session, number),
        tables={which: _row(session.table(which), session.norms(which), number) for which in session.tables},
    )


@query("tokens.neighbors")
def neighbors(session: Session, *, token: str, k: Annotated[int, 1, MOST_NEIGHBORS] = 10) -> TokenNeighbors:
    """Return the nearest rows by cosine in the full space: of each table, as it is and less its mean row."""
    number = find_token(session.checkpoint, token)
    lists = [_neighbors(session, number, k, which, centered) for which in session.tables for centered in (False, True)]
    named = _tokens(session, [number])
    # How much there is to center.
    mean = {which: float(np.linalg.norm(session.search(which, centered=True).mean)) for which in session.tables}
    return TokenNeighbors(number, named.words[0], named.texts[0], mean, lists)


def _neighbors(session: Session, number: int, k: int, which: Which, centered: bool) -> NeighborList:
    table = session.table(which)
    row = table.row(number)
    near = session.search(which, centered).nearest(table.weight[row][None], k, without=[[row]])
    rows = near.ids[0]
    return NeighborList(
        **vars(_tokens(session, table.ids[rows].tolist())),
        table=which,
        name=table.name,
        centered=centered,
        cosines=near.scores[0],
        norms=session.norms(which)[rows],
        rows=table.weight[[row, *rows[:MOST_ROWS]]].astype(np.float32),
    )


@query("tokens.analogy")
def analogy(
    session: Session,
    *,
    a: str,
    b: str,
    c: str,
    k: Annotated[int, 1, MOST_NEIGHBORS] = 10,
    rule: Rule = "add",
    centered: bool = False,
) -> AnalogyAnswers:
    """Complete `a is to b as c is to ...`, with the words of the question among the answers and without."""
    words = [find_token(session.checkpoint, word) for word in (a, b, c)]
    table = session.table()
    search, question = session.search("input", centered), [table.row(number) for number in words]
    return answered_analogy(session.checkpoint, table, search, question, k, rule)


def exported(session: Session) -> ExportedView:
    """Return the cards of the examples, and one analogy, for an exported page."""
    queries: list[tuple[str, Mapping[str, Any]]] = []
    tables = []
    usable = set(session.table().ids.tolist())
    for token in examples(session):
        number = find_token(session.checkpoint, token)
        if number not in usable:
            continue
        for written in (token, f"#{number}"):  # as it is typed, and as in links
            queries += [("tokens.card", {"token": written}), ("tokens.neighbors", {"token": written, "k": 10})]
        near = neighbors(session, {"token": token, "k": 10}).lists[0]
        numbers = {"id": map(str, near.ids), "cosine": near.cosines, "norm": near.norms}
        tables.append(columns(f"Nearest to {token}", {"token": near.words, **numbers}))
    words = usual_analogy(session)
    if words and usable.issuperset(find_token(session.checkpoint, word) for word in words):
        named = dict(zip("abc", words, strict=True))
        queries.append(("tokens.analogy", {**named, "rule": "add", "centered": False, "k": 5}))
    return ExportedView(queries, sections=[Section("neighbors", "Nearest neighbors", tables)])


def examples(session: Session) -> list[str]:
    """Return a few tokens of the vocabulary to begin with; ids where it has none of the usual ones."""
    words = ("king", "Paris", "paris")
    usual = [*chain.from_iterable(map(spellings, words)), "##ing", "ing", "1999", "Max", "First", "("]
    vocabulary = set(session.words)
    tokens = [word for word in usual if word in vocabulary][:_MOST_EXAMPLES]
    if tokens or not session.tables:
        return tokens
    table = session.table()  # of finite rows; the first is often that of padding, of zeros
    first = np.flatnonzero(table.weight[: 2 * _MOST_EXAMPLES].any(axis=1))
    return [f"#{n}" for n in table.ids[first][:_MOST_EXAMPLES].tolist()]


def usual_analogy(session: Session) -> list[str]:
    """Return the three tokens of an analogy that the vocabulary has, spelled alike, or none."""
    vocabulary = set(session.words)
    for words in (("man", "woman", "king"), ("First", "Last", "Max")):
        for tokens in zip(*map(spellings, words), strict=True):
            if vocabulary.issuperset(tokens):
                return list(tokens)
    return []


def _distance(word: str, bare: str, query: str, number: int) -> tuple[bool, bool, bool, int, int]:
    """Return the key that sorts matches: the word itself, its other spellings, prefixes; short ones first."""
    wanted = query.casefold()
    return word != query, bare != wanted, not bare.startswith(wanted), len(bare), number


def _bare(session: Session, number: int) -> str:
    meant = session.texts[number]
    return meant.strip().casefold() if isinstance(meant, str) else session.words[number].casefold()


def _tokens(session: Session, ids: Sequence[int]) -> Tokens:
    meant = [session.texts[n] if n < len(session.texts) else "" for n in ids]
    return Tokens(
        ids=np.array(ids, np.int64),
        words=[word_of(session.words, n) for n in ids],
        texts=[each if isinstance(each, str) else None for each in meant],
        kinds=[session.kinds[n] if n < len(session.kinds) else "no token" for n in ids],
    )


def _reachable(session: Session, number: int) -> bool | None:
    tokenizer = session.tokenizer
    if tokenizer is None or tokenizer.id_to_token(number) is None:
        return None
    return not len(unreachable(tokenizer, [number]))


def _row(table: Table, norms: Float[np.ndarray, " rows"], number: int) -> RowInTable:
    bins = min(_MOST_BINS, int(np.ceil(2 * len(norms) ** (1 / 3))))  # Rice's rule: few tokens make no comb
    counts, edges = np.histogram(norms, bins)
    head = (table.name, table.dtype, table.rows, counts, edges, float(np.median(norms)))
    if number in table.broken:
        return RowInTable(*head, None, None, None)
    row = table.row(number)
    below = np.count_nonzero(norms < norms[row]) / len(norms)
    return RowInTable(*head, float(norms[row]), 100 * below, table.weight[row])
