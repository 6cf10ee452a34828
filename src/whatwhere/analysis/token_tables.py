"""Tables that token ids select beside the token table: sizes, norms by layer, and occupancy of hashed n-grams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from whatwhere.analysis.diagnostics import row_norms
from whatwhere.analysis.ngram_occupancy import MAX_TOKENS, NGramOccupancy, ngram_occupancy
from whatwhere.analysis.subject import Absent, Subject, reason_of
from whatwhere.errors import WhatWhereError
from whatwhere.models.checkpoint.names import TokenTable
from whatwhere.models.token_tables import ngram_embedding
from whatwhere.records import Missing
from whatwhere.what.text import encodings

SAMPLED_ROWS = 4096
_MAX_NUMBERS = 1 << 24
"""Numbers that are read of a table: 64 MB of float32."""
_MAX_CHARACTERS = 16 * MAX_TOKENS


@dataclass(frozen=True)
class SampledNorms:
    """The Euclidean norms of a sample of rows, of all columns or of those of one layer.

    Args:
        layer: counted from 0; None for all columns.
        zero: sampled rows that are 0, whose tokens add nothing.
        p5, median, p95: percentiles of the norms of the other rows; None where there is no other.
    """

    layer: int | None
    zero: int
    p5: float | None
    median: float | None
    p95: float | None


@dataclass(frozen=True)
class SiblingTable:
    """One table beside the token table.

    Args:
        table: what the headers say.
        num_layers: layers that its columns are divided into; None where they are not.
        factors: numbers of the table and its projection, and of a plain table of their product; None without factors.
        sampled: rows that were sampled for norms.
        norms: of the sample; by layer where the columns are divided.
        occupancy: what the texts read in a table of hashed n-grams, or why that is not known; None without texts.
    """

    table: TokenTable
    num_layers: int | None
    factors: tuple[int, int] | None
    sampled: int
    norms: Sequence[SampledNorms] | Missing
    occupancy: NGramOccupancy | Missing | None


@dataclass(frozen=True)
class SiblingTables:
    """The tables that token ids select beside the token table.

    Args:
        tables: of each kind, in the order of the file.
    """

    tables: Sequence[SiblingTable]


def token_tables(subject: Subject) -> SiblingTables:
    """Return the tables beside the token table, and what the subject's texts read of those of hashed n-grams."""
    found = subject.checkpoint.token_tables
    if not found:
        raise Absent("token ids select rows of no other table than the token table")
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
    sampled = _sample(subject, table)
    norms: Sequence[SampledNorms] | Missing
    if isinstance(sampled, Missing):
        norms = sampled
    elif columns is None or width is None:
        norms = [_norms(sampled, None)]
    else:
        norms = [_norms(sampled[:, at * width : (at + 1) * width], at) for at in range(columns)]
    return SiblingTable(
        table=table,
        num_layers=columns,
        factors=factors,
        sampled=0 if isinstance(sampled, Missing) else len(sampled),
        norms=norms,
        occupancy=_occupancy(subject, table) if table.kind == "hashed n-grams" and subject.texts else None,
    )


def _width(subject: Subject, table: TokenTable) -> int | None:
    """Return the features for each layer; None where the columns are not divided, or the file does not show it."""
    if table.kind != "per layer" or "norm" not in table.others:
        return None
    shape = subject.checkpoint.entry(table.others["norm"]).shape
    return shape[0] if len(shape) == 1 and shape[0] and table.features % shape[0] == 0 else None


def _sample(subject: Subject, table: TokenTable) -> Float[np.ndarray, "rows features"] | Missing:
    """Return evenly spaced rows, of a table in parts from each of its parts."""
    most = min(SAMPLED_ROWS, max(_MAX_NUMBERS // max(table.features, 1), 1))
    parts = []
    try:
        for name in table.tensors:
            rows = subject.checkpoint.entry(name).shape[0]
            some = min(rows, -(-most * rows // max(table.rows, 1)))
            numbers = np.unique(np.linspace(0, max(rows - 1, 0), some).astype(np.int64))
            parts.append(np.asarray(subject.checkpoint.array(name, numbers), np.float32))
        return np.concatenate(parts)
    except WhatWhereError as problem:
        return Missing(reason_of(problem))


def _norms(rows: Float[np.ndarray, "rows features"], layer: int | None) -> SampledNorms:
    norms = row_norms(np.ascontiguousarray(rows))
    some = norms[np.isfinite(norms) & (norms > 0)]
    p5, median, p95 = np.percentile(some, (5, 50, 95)).tolist() if len(some) else (None, None, None)
    return SampledNorms(layer, int((norms == 0).sum()), p5, median, p95)


def _occupancy(subject: Subject, table: TokenTable) -> NGramOccupancy | Missing:
    try:
        embedding = ngram_embedding(subject.checkpoint, table)
        counted = ngram_occupancy(embedding, _documents(subject), max_tokens=MAX_TOKENS, progress=subject.progress)
        return replace(counted, left_out=counted.left_out or any(len(text) > _MAX_CHARACTERS for text in subject.texts))
    except (Absent, WhatWhereError) as problem:
        return Missing(reason_of(problem))


def _documents(subject: Subject) -> Iterator[Sequence[int]]:
    """Yield the ids of each text; of a long one, of its beginning."""
    for text in subject.texts:
        subject.progress("encoding the text")
        yield encodings(subject.tokenizer, [text[:_MAX_CHARACTERS]])[0].ids
