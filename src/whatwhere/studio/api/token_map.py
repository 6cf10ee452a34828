"""The token map: the coordinates of each row on a plane, what can color it, and the true neighbors of one token."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Integer, UInt8, UInt16

from whatwhere.analysis.token_map import (
    METHODS,
    MINIMUM_ROWS,
    PACKAGES,
    Method,
    NeighborsKept,
    make_map,
    neighbors_to_compare,
    rows_for_half_a_minute,
)
from whatwhere.errors import SettingError
from whatwhere.large_arrays import sample_rows
from whatwhere.models.checkpoint.lookup import find_token
from whatwhere.models.token_types import TOKEN_TYPES
from whatwhere.report.section import Section, Table
from whatwhere.report.text import percent
from whatwhere.studio.api.named_tokens import NamedTokens, example, named_tokens
from whatwhere.studio.api.settings import ExportedView, known, one_of, text, whole
from whatwhere.studio.jobs import Report, run_in_subprocess
from whatwhere.studio.session import Session

FEWEST = 100
"""Tokens of a model whose map begins as t-SNE; fewer are seen well enough by PCA."""
MOST_NEIGHBORS = 50
MOST_EXPORTED = 60_000
"""Rows whose neighbors an exported page holds: 0.8 MB for 30,000 tokens."""
SEED = 0
_KEPT = 8
"""Maps of named tokens that are kept."""


@dataclass(frozen=True)
class MapPoints:
    """A map of the tokens.

    Args:
        table: "input" or "output".
        name: of the tensor.
        rows: of the table.
        shown: how many of them are on the map.
        not_finite: how many have numbers that are not finite, and are on no map.
        missing: the extra to install, by method whose package is not installed.
        kept, ids, coordinates: of the map; None where it is not computed yet.
        explained: share of the variance along each axis of PCA; None for t-SNE and UMAP.
        named: of a named set of tokens; None for a map of the whole table.
    """

    method: Method
    table: str
    name: str
    rows: int
    shown: int
    not_finite: int
    missing: Mapping[Method, str]
    kept: NeighborsKept | None
    explained: tuple[float, float] | None
    ids: Int[np.ndarray, " shown"] | None
    coordinates: Float[np.ndarray, "shown 2"] | None
    named: NamedTokens | None


@dataclass(frozen=True)
class PackedTexts:
    """Texts in UTF-8, one after the other.

    Args:
        bytes: of all texts.
        ends: where each text ends in them.
    """

    bytes: UInt8[np.ndarray, " bytes"]
    ends: Int[np.ndarray, " texts"]


@dataclass(frozen=True)
class TokenLabels:
    """How each row of a table is named and colored.

    Args:
        words: as the vocabulary writes them.
        texts: empty where the text is the word.
        kinds: the token type of each row, as an index of kind_names.
        scripts: likewise, of script_names.
        norms: NaN for a row that is not finite.
    """

    words: PackedTexts
    texts: PackedTexts
    kinds: UInt16[np.ndarray, " rows"]
    kind_names: Sequence[str]
    scripts: UInt16[np.ndarray, " rows"]
    script_names: Sequence[str]
    norms: Float[np.ndarray, " rows"]


@dataclass(frozen=True)
class TokenFrequencies:
    """How often each token occurs in the corpus.

    Args:
        corpus: its name; None where there is none.
        whole: whether all of it was read.
        counts: by id.
        total: of all counts.
    """

    corpus: str | None
    whole: bool
    counts: Int[np.ndarray, " rows"] | None
    total: int


@dataclass(frozen=True)
class MapNeighbors:
    """The nearest rows of a token in the full space.

    Args:
        ids: nearest first.
        cosines: of each; None on an exported page.
    """

    id: int
    ids: Int[np.ndarray, " k"]
    cosines: Float[np.ndarray, " k"] | None


@dataclass(frozen=True)
class AllNeighbors:
    """The nearest rows of every token in the full space.

    Args:
        of: the ids of the tokens.
        ids: of their neighbors, nearest first.
    """

    of: Int[np.ndarray, " rows"]
    ids: Integer[np.ndarray, "rows k"]


def begin(session: Session) -> dict[str, str]:
    """Return the settings that the view begins with: of a model the map that keeps neighbors, where it can be made."""
    large = session.kind == "checkpoint" and bool(session.tables) and _rows(session) >= FEWEST
    method = "tsne" if large and _missing_extra("tsne") is None else "pca"
    return {"method": method, "table": "input", "example": example(session)}


def points(session: Session, settings: Mapping[str, Any]) -> MapPoints:
    """Return a map: of a named set of tokens or by PCA at once, by another method once a job has computed it."""
    known(settings, "method", "table", "tokens")
    method, which = _method(settings), _which(session, settings)
    table = session.table(which)
    written = text(settings, "tokens", "")
    named, made = None, None
    if written:
        used, named = named_tokens(session, table, written)
        enough = len(used) >= MINIMUM_ROWS[method] and _missing_extra(method) is None
        method = method if enough and method == "tsne" else "pca"
        k, key = neighbors_to_compare(len(used)), ("named map", which, method, tuple(used.tolist()))
        made = session.once(key, lambda: make_map(table.weight[used], method, k, seed=SEED), most=_KEPT)
    elif method == "pca":
        used = np.arange(len(table.weight))
        k = neighbors_to_compare(len(used))
        made = session.once(("map", which, method), lambda: make_map(table.weight, method, k, seed=SEED))
    else:
        used = _sample(table.weight)
        made = session.kept(("map", which, method))
    return MapPoints(
        method=method,
        table=which,
        name=table.name,
        rows=table.rows,
        shown=len(used),
        not_finite=len(table.broken),
        missing={each: extra for each in METHODS if (extra := _missing_extra(each)) is not None},
        kept=None if made is None else made.kept,
        explained=None if made is None else made.explained_variance_ratio,
        ids=None if made is None else table.ids[used],
        coordinates=None if made is None else made.coordinates.astype(np.float32),
        named=named,
    )


def draw(session: Session, settings: Mapping[str, Any], report: Report) -> MapPoints:
    """Compute a map by t-SNE or UMAP in a process of its own, and keep it for `points`."""
    known(settings, "method", "table")
    method, which = _method(settings), _which(session, settings)
    report(0.0, "reading the table")
    table = session.table(which).weight
    rows, k = table[_sample(table)], neighbors_to_compare(len(table))
    session.once(
        ("map", which, method),
        lambda: run_in_subprocess(make_map, report, table=rows, method=method, k=k, seed=SEED),
    )
    return points(session, settings)


def labels(session: Session, settings: Mapping[str, Any]) -> TokenLabels:
    """Return the word, text, type, script and norm of every row."""
    known(settings, "table")
    which = _which(session, settings)
    table = session.table(which)
    norms = np.full(table.rows, np.nan)
    norms[table.ids] = session.norms(which)
    scripts = sorted(set(session.scripts))
    return TokenLabels(
        words=_packed(session.words[: table.rows]),
        texts=_packed([_text(session, n) for n in range(min(len(session.words), table.rows))]),
        kinds=_numbered(session.kinds, TOKEN_TYPES, table.rows, TOKEN_TYPES.index("no token")),
        kind_names=list(TOKEN_TYPES),
        scripts=_numbered(session.scripts, scripts, table.rows, len(scripts)),
        script_names=[*scripts, "no token"],
        norms=norms.astype(np.float32),
    )


def frequencies(session: Session, settings: Mapping[str, Any]) -> TokenFrequencies:
    """Return how often each token occurs in the corpus."""
    known(settings, "table")
    rows = session.table(_which(session, settings)).rows
    corpus, tokenizer = session.corpus, session.tokenizer
    if corpus is None or tokenizer is None:
        return TokenFrequencies(None, True, None, 0)
    counts = session.once(("counts", rows), lambda: corpus.counts(tokenizer, rows))
    return TokenFrequencies(corpus.path.name, corpus.whole, counts, int(counts.sum()))


def near(session: Session, settings: Mapping[str, Any]) -> MapNeighbors:
    """Return the nearest rows of a token by cosine in the full space."""
    known(settings, "token", "k", "table")
    number, which = find_token(session.checkpoint, text(settings, "token")), _which(session, settings)
    table = session.table(which)
    k = whole(settings, "k", neighbors_to_compare(len(table.weight)), 1, MOST_NEIGHBORS)
    row = table.row(number)
    nearest = session.search(which).nearest(table.weight[row][None], k, without=[[row]])
    return MapNeighbors(number, table.ids[nearest.ids[0]], nearest.scores[0])


def neighbors(session: Session, settings: Mapping[str, Any]) -> AllNeighbors:
    """Return the nearest rows of every token, for an exported page; half a minute for 30,000 tokens.

    Args:
        session: what is open.
        settings: table ("input", "output").
    """
    known(settings, "table")
    which = _which(session, settings)
    table = session.table(which)

    def search() -> Int[np.ndarray, "rows k"]:
        own, k = np.arange(len(table.weight))[:, None], neighbors_to_compare(len(table.weight))
        return np.asarray(table.ids[session.search(which).nearest(table.weight, k, without=own).ids])

    ids = session.once(("all neighbors", which), search)
    return AllNeighbors(table.ids, ids.astype(np.uint16) if table.rows <= 1 << 16 else ids)


def exported(session: Session) -> ExportedView | None:
    """Return the map by PCA, others that were computed, and the neighbors of all tokens, for an exported page."""
    if not session.tables or session.table().rows < MINIMUM_ROWS["pca"]:
        return None
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
    columns = ("method", "tokens", "nearest kept", "by chance", "tokens sampled")
    rows = [
        (each.method, f"{each.shown:,}", percent(kept.share), percent(kept.chance), f"{kept.queries:,}")
        for each, kept in made
    ]
    counts = Counter(session.kinds)
    kinds = [(kind, f"{counts[kind]:,}") for kind in TOKEN_TYPES if counts[kind]]
    tables = [
        Table(
            f"Share of the {made[0][1].k} nearest tokens of the full space that the map keeps",
            columns,
            rows,
            (1, 2, 3, 4),
        ),
        Table("Tokens by type", ("type", "tokens"), kinds, (1,)),
    ]
    # Whoever computed another map wants to see it.
    first = {"method": made[-1][0].method, "table": "input", "example": written}
    return ExportedView("Token map", queries, begin=first, sections=[Section("map", "Map", tables)])


def _method(settings: Mapping[str, Any]) -> Method:
    return METHODS[METHODS.index(one_of(settings, "method", METHODS))]


def _missing_extra(method: Method) -> str | None:
    """Return the extra to install for a method, or None where its package is installed."""
    module, extra = PACKAGES.get(method, (None, None))
    return extra if module is not None and find_spec(module) is None else None


def _sample(table: np.ndarray) -> Int[np.ndarray, " sample"]:
    """Return the rows of a map by t-SNE or UMAP: as many as half a minute allows, sampled at random."""
    return sample_rows(len(table), rows_for_half_a_minute(*table.shape), SEED)


def _rows(session: Session) -> int:
    table = session.checkpoint.token_table
    return 0 if table is None else session.checkpoint.entry(table).shape[0]


def _which(session: Session, settings: Mapping[str, Any]) -> str:
    if not session.tables:
        raise SettingError("there is no token table here, so there is no map.\nOpen a model.")
    return one_of(settings, "table", session.tables)


def _text(session: Session, number: int) -> str:
    meant = session.texts[number]
    return meant if isinstance(meant, str) and meant != session.words[number] else ""


def _packed(texts: Sequence[str]) -> PackedTexts:
    """Concatenate texts as bytes, with the end of each: a list of so many is slow to read."""
    written = [each.encode("utf-8", "replace") for each in texts]
    ends = np.cumsum([len(each) for each in written], dtype=np.int64)
    return PackedTexts(np.frombuffer(b"".join(written), np.uint8), ends)


def _numbered(
    names: Sequence[str], known_names: Sequence[str], rows: int, otherwise: int
) -> UInt16[np.ndarray, " rows"]:
    numbers = {name: n for n, name in enumerate(known_names)}
    numbered = np.full(rows, otherwise, np.uint16)
    numbered[: len(names)] = [numbers[name] for name in names[:rows]]
    return numbered
