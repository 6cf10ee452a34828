"""Tables that token ids select beside the token table: sizes, norms by layer, and occupancy of hashed n-grams."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import expm1, log1p
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.diagnostics import row_norms
from whatwhere.analysis.subject import NoData, Subject, or_missing
from whatwhere.errors import TextError, WhatWhereError
from whatwhere.models.checkpoint.names import TokenTable
from whatwhere.records import Missing
from whatwhere.what.text import encodings

if TYPE_CHECKING:
    from whatwhere.what.ngram_hash import HashedNGramEmbedding

MAX_TOKENS = 1 << 20
"""Tokens that are counted, unless others are requested: with 16 hashes of up to 3 tokens, measured, in 0.7 GB."""


@dataclass(frozen=True)
class HashOccupancy:
    """What the different n-grams of n tokens of a text read in the table of one hash, and the mean of a random hash."""

    n: int
    rows: int
    ngrams: int
    occupied: int  # rows that at least one of them reads
    expected_occupied: float
    sharing: int  # n-grams whose row another one reads too
    expected_sharing: float
    fullest: int  # the most n-grams that read one row


@dataclass(frozen=True)
class JointOccupancy:
    """What a text reads in all tables of one n together: n-grams are confused only if they share their row in each.

    `expected_confused` is the mean if each had rows at random.
    """

    n: int
    tables: int
    ngrams: int
    confused: int
    expected_confused: float


@dataclass(frozen=True)
class NGramOccupancy:
    """Which rows of hashed tables a text reads."""

    documents: int
    tokens: int
    left_out: bool  # whether the text has more tokens than were counted
    rows: int  # of all tables
    occupied: int  # of these, those that the text reads
    hashes: tuple[HashOccupancy, ...]
    joint: tuple[JointOccupancy, ...]  # of all tables of each n


def ngram_occupancy(
    embedding: "HashedNGramEmbedding",
    documents: Iterable[Sequence[int]],
    *,
    max_tokens: int = MAX_TOKENS,
    progress: Callable[[str], None] = lambda _: None,
) -> NGramOccupancy:
    """Count the rows that the n-grams of documents of ids read, and share; the rows themselves are not read."""
    import torch

    parts, left, count, cut = [], max_tokens, 0, False
    for document in documents:
        ids = document[:left]
        cut |= len(ids) < len(document)
        if len(ids):
            parts.append(embedding.ngrams(torch.tensor(np.asarray(ids))[None])[0].numpy())
            count += 1
        left -= len(ids)
        if left <= 0 and cut:
            break
    if not parts:
        raise TextError("the text has no tokens, so no n-grams.\nPass a longer text.")
    ngrams = np.concatenate(parts)
    hashes: dict[int, HashOccupancy] = {}
    joint = []
    for n in sorted({each.n for each in embedding.hashes}):
        progress(f"counting n-grams of {n} tokens")
        # One of each n-gram by its n last tokens; token by token, since they do not fit into one number.
        _, first = np.unique(_numbered([ngrams[:, k] for k in range(n)]), return_index=True)
        rows = embedding.rows_of(torch.from_numpy(ngrams[first])).numpy()
        own = [at for at, each in enumerate(embedding.hashes) if each.n == n]
        hashes |= {at: _of_hash(n, embedding.hashes[at].rows, rows[:, at]) for at in own}
        counts = np.bincount(_numbered(list(rows[:, own].T)))
        product = float(np.prod([float(embedding.hashes[at].rows) for at in own]))
        confused = int(counts[counts > 1].sum())
        joint.append(JointOccupancy(n, len(own), len(rows), confused, expected_sharing(len(rows), product)))
    ordered = tuple(hashes[at] for at in range(len(embedding.hashes)))
    return NGramOccupancy(
        documents=count, tokens=len(ngrams), left_out=cut, rows=sum(each.rows for each in ordered),
        occupied=sum(each.occupied for each in ordered), hashes=ordered, joint=tuple(joint),
    )  # fmt: skip


def expected_occupied(ngrams: int, rows: int | float) -> float:
    """Return how many rows n-grams are expected to read if each has one at random: rows (1 - (1 - 1/rows)^ngrams)."""
    return 1.0 if rows <= 1 else -rows * expm1(ngrams * log1p(-1 / rows))


def expected_sharing(ngrams: int, rows: int | float) -> float:
    """Return how many n-grams are expected to share random rows: ngrams (1 - (1 - 1/rows)^(ngrams - 1))."""
    return float(ngrams if ngrams > 1 else 0) if rows <= 1 else -ngrams * expm1((ngrams - 1) * log1p(-1 / rows))


def _numbered(columns: Sequence[Int64[np.ndarray, " many"]]) -> Int64[np.ndarray, " many"]:
    """Return the number of each combination of columns: the same for equal ones; products stay below many^2."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        ids, index = np.unique(column, return_inverse=True)
        _, number = np.unique(number * len(ids) + index, return_inverse=True)
    return number


def _of_hash(n: int, size: int, rows: Int64[np.ndarray, " different"]) -> HashOccupancy:
    _, counts = np.unique(rows, return_counts=True)
    return HashOccupancy(
        n=n, rows=size, ngrams=len(rows), occupied=len(counts), expected_occupied=expected_occupied(len(rows), size),
        sharing=int(counts[counts > 1].sum()), expected_sharing=expected_sharing(len(rows), size),
        fullest=int(counts.max()),
    )  # fmt: skip


SAMPLED_ROWS = 4096
_MAX_NUMBERS = 1 << 24  # numbers that are read of a table: 64 MB of float32
_MAX_CHARACTERS = 16 * MAX_TOKENS


@dataclass(frozen=True)
class SampledNorms:
    """The Euclidean norms of a sample of rows, of all columns or of those of one layer, counted from 0."""

    layer: int | None
    zero: int  # sampled rows that are 0, whose tokens add nothing
    p5: float | None  # of the norms of the other rows; None where there is no other
    median: float | None
    p95: float | None


@dataclass(frozen=True)
class SiblingTable:
    """One table beside the token table."""

    table: TokenTable
    num_layers: int | None  # layers that its columns are divided into; None where they are not
    factors: tuple[int, int] | None  # numbers of table and projection, and of their product; None without factors
    sampled: int  # rows
    norms: Sequence[SampledNorms] | Missing  # of the sampled rows; by layer where the columns are divided
    occupancy: NGramOccupancy | Missing | None  # what texts read of hashed n-grams; None without texts


@dataclass(frozen=True)
class SiblingTables:
    """The tables that token ids select beside the token table, of each kind in the order of the file."""

    tables: Sequence[SiblingTable]


def token_tables(subject: Subject) -> SiblingTables:
    """Return the tables beside the token table, and what the subject's texts read of those of hashed n-grams."""
    found = subject.checkpoint.token_tables
    if not found:
        names, why = subject.checkpoint.names, "token ids select rows of no other table than the token table"
        listed = f"{', '.join(names.others)} (--run {' or '.join(names.models[1:])})"
        raise NoData(f"{why}; of other models in the file there are {listed}" if names.others else why)
    return SiblingTables([_examined(subject, table) for table in found])


def _examined(subject: Subject, table: TokenTable) -> SiblingTable:
    checkpoint = subject.checkpoint
    width = _width(subject, table)
    columns = None if width is None else table.features // width
    factors = None
    if table.kind == "factorized" and "projection" in table.others:
        dim = checkpoint.entry(table.others["projection"]).shape[0]
        factors = (table.parameters + dim * table.features, table.rows * dim)
    subject.progress(f"sampling rows of {table.name}")
    sampled = or_missing(_sample, subject, table, also=WhatWhereError)
    read = table.kind == "hashed n-grams" and bool(subject.texts)
    norms: Sequence[SampledNorms] | Missing
    if isinstance(sampled, Missing):
        norms = sampled
    elif columns is None or width is None:
        norms = [_norms(sampled, None)]
    else:
        norms = [_norms(sampled[:, at * width : (at + 1) * width], at) for at in range(columns)]
    return SiblingTable(
        table=table, num_layers=columns, factors=factors, sampled=0 if isinstance(sampled, Missing) else len(sampled),
        norms=norms, occupancy=or_missing(_occupancy, subject, table, also=WhatWhereError) if read else None,
    )  # fmt: skip


def _width(subject: Subject, table: TokenTable) -> int | None:
    """Return the features for each layer; None where the columns are not divided, or the file does not show it."""
    if table.kind != "per layer" or "norm" not in table.others:
        return None
    shape = subject.checkpoint.entry(table.others["norm"]).shape
    return shape[0] if len(shape) == 1 and shape[0] and table.features % shape[0] == 0 else None


def _sample(subject: Subject, table: TokenTable) -> Float[np.ndarray, "rows features"]:
    """Return evenly spaced rows, of a table in parts from each of its parts."""
    most = min(SAMPLED_ROWS, max(_MAX_NUMBERS // max(table.features, 1), 1))
    parts = []
    for name in table.tensors:
        rows = subject.checkpoint.entry(name).shape[0]
        some = min(rows, -(-most * rows // max(table.rows, 1)))
        numbers = np.unique(np.linspace(0, max(rows - 1, 0), some).astype(np.int64))
        parts.append(np.asarray(subject.checkpoint.array(name, numbers), np.float32))
    return np.concatenate(parts)


def _norms(rows: Float[np.ndarray, "rows features"], layer: int | None) -> SampledNorms:
    norms = row_norms(np.ascontiguousarray(rows))
    some = norms[np.isfinite(norms) & (norms > 0)]
    p5, median, p95 = np.percentile(some, (5, 50, 95)).tolist() if len(some) else (None, None, None)
    return SampledNorms(layer, int((norms == 0).sum()), p5, median, p95)


def _occupancy(subject: Subject, table: TokenTable) -> NGramOccupancy:
    from whatwhere.models.token_tables import ngram_embedding  # which imports torch

    embedding = ngram_embedding(subject.checkpoint, table)
    subject.progress("encoding the text")
    # Of a long text, its beginning; one after another, because later ones may not be needed.
    documents = (encodings(subject.tokenizer, [text[:_MAX_CHARACTERS]])[0].ids for text in subject.texts)
    counted = ngram_occupancy(embedding, documents, max_tokens=MAX_TOKENS, progress=subject.progress)
    return replace(counted, left_out=counted.left_out or any(len(text) > _MAX_CHARACTERS for text in subject.texts))
