"""The token map: the coordinates of each row, or of a named set, on a plane; what can color it; and true neighbors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Integer, UInt16

from whatwhere.analysis.token_map import (
    FOUR_GROUPS,
    METHODS,
    MINIMUM_ROWS,
    PACKAGES,
    GroupNeighbors,
    Method,
    NeighborsKept,
    group_neighbors,
    make_map,
    neighbors_to_compare,
    parse_groups,
    rows_for_half_a_minute,
)
from whatwhere.errors import SettingError, TokenError
from whatwhere.large_arrays import sample_rows
from whatwhere.models.checkpoint.lookup import Table, find_token, spellings
from whatwhere.models.model_text import TOKEN_TYPES
from whatwhere.report.section import Section
from whatwhere.report.text import percent
from whatwhere.studio.api.settings import ExportedView, columns, query
from whatwhere.studio.jobs import Report, run_in_subprocess
from whatwhere.studio.session import Session

FEWEST = 100  # tokens of a model whose map begins as t-SNE; fewer are seen well enough by PCA
MOST_NAMED = 1000
MOST_EXPORTED = 60_000  # rows whose neighbors an exported page holds: 0.8 MB for 30,000 tokens
SEED = 0
_KEPT = 8  # maps of named tokens that are kept
_ENOUGH = 8  # words of the tutorial that a vocabulary must have, for them to be the example


@dataclass(frozen=True)
class NamedTokens:
    """The named tokens of a map in the order of their rows, and their nearest neighbors among each other."""

    groups: Int[np.ndarray, " tokens"]  # of each token, as an index of group_names
    group_names: Sequence[str]
    missing: Mapping[str, str]  # words that are not a token of the table, and why
    neighbors: GroupNeighbors


@dataclass(frozen=True)
class MapPoints:
    """A map of the tokens, without coordinates where it is not computed yet."""

    method: Method
    table: str
    name: str
    rows: int
    shown: int  # rows that are on the map
    not_finite: int  # rows that are on none
    missing: Mapping[Method, str]  # the extra to install, by method whose package is not installed
    kept: NeighborsKept | None
    explained: tuple[float, float] | None  # share of the variance along each axis of PCA
    ids: Int[np.ndarray, " shown"] | None
    coordinates: Float[np.ndarray, "shown 2"] | None
    named: NamedTokens | None  # None for a map of the whole table


@dataclass(frozen=True)
class TokenLabels:
    """How each row of a table is named and colored; no text where it is the word, NaN where a row is broken."""

    words: Sequence[str]
    texts: Sequence[str]
    kinds: UInt16[np.ndarray, " rows"]
    kind_names: Sequence[str]
    scripts: UInt16[np.ndarray, " rows"]
    script_names: Sequence[str]
    norms: Float[np.ndarray, " rows"]


@dataclass(frozen=True)
class TokenFrequencies:
    """How often each token occurs in the corpus, of which perhaps not the `whole` was read; None without one."""

    corpus: str | None
    whole: bool
    counts: Int[np.ndarray, " rows"] | None
    total: int


@dataclass(frozen=True)
class MapNeighbors:
    """The nearest rows of a token in the full space, nearest first."""

    id: int
    ids: Int[np.ndarray, " k"]
    cosines: Float[np.ndarray, " k"]


@dataclass(frozen=True)
class AllNeighbors:
    """The ids of tokens, and of the nearest rows of each in the full space, with their cosines."""

    of: Int[np.ndarray, " rows"]
    ids: Integer[np.ndarray, "rows k"]
    thousandths: Integer[np.ndarray, "rows k"]


def begin(session: Session) -> dict[str, str]:
    """Return the settings that the view begins with: of a model the map that keeps neighbors, where it can be made."""
    table = session.checkpoint.token_table
    large = session.kind == "checkpoint" and table is not None and session.checkpoint.entry(table).shape[0] >= FEWEST
    method = "tsne" if large and _missing_extra("tsne") is None else "pca"
    return {"method": method, "table": "input", "example": example(session)}


@query("maps.points")
def points(session: Session, *, method: Method = "pca", table: str = "input", tokens: str = "") -> MapPoints:
    """Return a map: of a named set of tokens or by PCA at once, by another method once a job has computed it."""
    opened = _table(session, table)
    weight = opened.weight
    named, made = None, None
    if tokens:
        used, named = _named_tokens(session, opened, tokens)
        enough = len(used) >= MINIMUM_ROWS[method] and _missing_extra(method) is None
        method = method if enough and method == "tsne" else "pca"
        k, key = neighbors_to_compare(len(used)), ("named map", table, method, tuple(used.tolist()))
        made = session.once(key, lambda: make_map(weight[used], method, k, seed=SEED), most=_KEPT)
    elif method == "pca":
        used = np.arange(len(weight))
        k = neighbors_to_compare(len(used))
        made = session.once(("map", table, method), lambda: make_map(weight, method, k, seed=SEED))
    else:
        used = _sample(weight)
        made = session.kept(("map", table, method))
    return MapPoints(
        method=method,
        table=table,
        name=opened.name,
        rows=opened.rows,
        shown=len(used),
        not_finite=len(opened.broken),
        missing={each: extra for each in METHODS if (extra := _missing_extra(each)) is not None},
        kept=None if made is None else made.kept,
        explained=None if made is None else made.explained_variance_ratio,
        ids=None if made is None else opened.ids[used],
        coordinates=None if made is None else made.coordinates.astype(np.float32),
        named=named,
    )


@query("maps.draw")
def draw(session: Session, report: Report, *, method: Method = "pca", table: str = "input") -> MapPoints:
    """Compute a map by t-SNE or UMAP in a process of its own, and keep it for `points`."""
    report(0.0, "reading the table")
    weight = _table(session, table).weight
    rows, k = weight[_sample(weight)], neighbors_to_compare(len(weight))
    session.once(
        ("map", table, method),
        lambda: run_in_subprocess(make_map, report, table=rows, method=method, k=k, seed=SEED),
    )
    return points(session, {"method": method, "table": table})


@query("maps.labels")
def labels(session: Session, *, table: str = "input") -> TokenLabels:
    """Return the word, text, type, script and norm of every row."""
    opened = _table(session, table)
    norms = np.full(opened.rows, np.nan)
    norms[opened.ids] = session.norms(table)
    scripts = sorted(set(session.scripts))
    meant = zip(session.texts, session.words[: opened.rows], strict=False)
    return TokenLabels(
        words=session.words[: opened.rows],
        texts=[text if isinstance(text, str) and text != word else "" for text, word in meant],
        kinds=_numbered(session.kinds, TOKEN_TYPES, opened.rows, TOKEN_TYPES.index("no token")),
        kind_names=list(TOKEN_TYPES),
        scripts=_numbered(session.scripts, scripts, opened.rows, len(scripts)),
        script_names=[*scripts, "no token"],
        norms=norms.astype(np.float32),
    )


@query("maps.frequencies")
def frequencies(session: Session, *, table: str = "input") -> TokenFrequencies:
    """Return how often each token occurs in the corpus."""
    rows = _table(session, table).rows
    corpus, tokenizer = session.corpus, session.tokenizer
    if corpus is None or tokenizer is None:
        return TokenFrequencies(None, True, None, 0)
    counts = session.once(("counts", rows), lambda: corpus.counts(tokenizer, rows))
    return TokenFrequencies(corpus.path.name, corpus.whole, counts, int(counts.sum()))


@query("maps.near")
def near(session: Session, *, token: str, table: str = "input") -> MapNeighbors:
    """Return the nearest rows of a token by cosine in the full space, as many as the map compares."""
    number, opened = find_token(session.checkpoint, token), _table(session, table)
    row = opened.row(number)
    k = neighbors_to_compare(len(opened.weight))
    nearest = session.search(table).nearest(opened.weight[row][None], k, without=[[row]])
    return MapNeighbors(number, opened.ids[nearest.ids[0]], nearest.scores[0])


@query("maps.neighbors")
def neighbors(session: Session, *, table: str = "input") -> AllNeighbors:
    """Return the nearest rows of every token, for an exported page; half a minute for 30,000 tokens."""
    opened = _table(session, table)
    own, k = np.arange(len(opened.weight))[:, None], neighbors_to_compare(len(opened.weight))
    nearest = session.search(table).nearest
    near = session.once(("all neighbors", table), lambda: nearest(opened.weight, k, without=own))
    ids = opened.ids[near.ids].astype(np.uint16 if opened.rows <= 1 << 16 else np.int64)
    return AllNeighbors(opened.ids, ids, np.rint(1000 * near.scores).astype(np.int32))


def exported(session: Session) -> ExportedView:
    """Return the map by PCA, others that were computed, and the neighbors of all tokens, for an exported page."""
    table = {"table": "input"}
    maps = [points(session, {"method": method, **table}) for method in METHODS]
    made = [(each, each.kept) for each in maps if each.kept is not None]
    queries: list[tuple[str, Mapping[str, Any]]]
    queries = [("maps.points", {"method": each.method, **table}) for each, _ in made]
    if written := example(session):
        queries.append(("maps.points", {"method": "pca", **table, "tokens": written}))
    queries += [("maps.labels", table), ("maps.frequencies", table)]
    if session.table().rows <= MOST_EXPORTED:
        queries.append(("maps.neighbors", table))
    counts = Counter(session.kinds)
    kinds = [kind for kind in TOKEN_TYPES if counts[kind]]
    shares: dict[str, Sequence[Any]] = {
        "method": [each.method for each, _ in made],
        "tokens": [each.shown for each, _ in made],
        "nearest kept": [percent(kept.share) for _, kept in made],
        "by chance": [percent(kept.chance) for _, kept in made],
        "tokens sampled": [kept.queries for _, kept in made],
    }
    tables = [
        columns(f"Share of the {made[0][1].k} nearest tokens of the full space that the map keeps", shares),
        columns("Tokens by type", {"type": kinds, "tokens": [counts[kind] for kind in kinds]}),
    ]
    # Whoever computed another map wants to see it.
    first = {"method": made[-1][0].method, "table": "input", "example": written}
    return ExportedView(queries, begin=first, sections=[Section("map", "Map", tables)])


def example(session: Session) -> str:
    """Return named tokens to begin with: the fifth tutorial's where the vocabulary has most of them, else a few."""
    vocabulary = frozenset(session.words)
    words = [word for group in FOUR_GROUPS.values() for word in group]
    if sum(not vocabulary.isdisjoint(spellings(word)) for word in words) >= _ENOUGH:
        return "; ".join(f"{name}: {', '.join(group)}" for name, group in FOUR_GROUPS.items())
    if "Max" in session.words[:20]:
        return f"digits: {', '.join('0123456789')}; operators: Max, Min, First, Last"
    return ""


def _named_tokens(session: Session, table: Table, written: str) -> tuple[Int[np.ndarray, " tokens"], NamedTokens]:
    """Return the rows of the tokens that a text names, and the groups that it gives them."""
    groups = parse_groups(written)
    if sum(map(len, groups.values())) > MOST_NAMED:
        raise SettingError(f"more than {MOST_NAMED:,} tokens are named.\nName fewer, or take the map of all.")
    found: dict[int, int] = {}  # row -> group, the first that names it
    missing: dict[str, str] = {}
    for number, words in enumerate(groups.values()):
        for word in words:
            try:
                found.setdefault(table.row(find_token(session.checkpoint, word, table.rows)), number)
            except TokenError as problem:  # its first sentence names the file
                first, *rest = str(problem).split("\n")
                missing[word] = " ".join(rest) or first
    if len(found) < 3:
        known = "; ".join(f"{word}: {reason}" for word, reason in list(missing.items())[:4])
        raise SettingError(f"a map needs three tokens or more, but got {len(found)}.\n{known or 'Name others.'}")
    rows, numbers = np.array(list(found)), list(found.values())
    return rows, NamedTokens(np.array(numbers), list(groups), missing, group_neighbors(table.weight[rows], numbers))


def _missing_extra(method: Method) -> str | None:
    """Return the extra to install for a method, or None where its package is installed."""
    module, extra = PACKAGES.get(method, (None, None))
    return extra if module is not None and find_spec(module) is None else None


def _sample(table: np.ndarray) -> Int[np.ndarray, " sample"]:
    """Return the rows of a map by t-SNE or UMAP: as many as half a minute allows, sampled at random."""
    return sample_rows(len(table), rows_for_half_a_minute(*table.shape), SEED)


def _table(session: Session, which: str) -> Table:
    if not session.tables:
        raise SettingError("there is no token table here, so there is no map.\nOpen a model.")
    if which not in session.tables:
        raise SettingError(f"table must be one of {', '.join(session.tables)}, but is {which[:40]!r}.")
    return session.table(which)


def _numbered(
    names: Sequence[str], known_names: Sequence[str], rows: int, otherwise: int
) -> UInt16[np.ndarray, " rows"]:
    numbers = {name: n for n, name in enumerate(known_names)}
    numbered = np.full(rows, otherwise, np.uint16)
    numbered[: len(names)] = [numbers[name] for name in names[:rows]]
    return numbered
