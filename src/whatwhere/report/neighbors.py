"""Rows that were found by their token, as text and tables: the result of neighbors, analogy and similarity."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from whatwhere.analysis.token_neighbors import (
    AnalogyAnswers,
    NamedRow,
    Neighbor,
    Neighbors,
    SearchedTable,
    TokenSimilarity,
)
from whatwhere.escape import shown_token
from whatwhere.report.section import Paragraph, Part, Table

_NAMED = 5


def parts(result: SearchedTable) -> list[Part]:
    """Return what was found, and which rows were excluded."""
    written = _found(result)
    if result.not_finite:
        some = ", ".join(f"{_shown(row)} (#{row.id})" for row in result.not_finite[:_NAMED])
        more = f" and {len(result.not_finite) - _NAMED:,} more" if len(result.not_finite) > _NAMED else ""
        written.append(Paragraph(f"Excluded, because they contain NaN or infinity: {some}{more}."))
    return written


def _found(result: SearchedTable) -> list[Part]:
    match result:
        case Neighbors():
            return [part for token in result.tokens for part in _neighbors(token, token.neighbors, result.metric)]
        case AnalogyAnswers():
            a, b, c = map(_shown, result.question)
            heads = ["without the three words", "all rows"]
            found = [result.without_inputs, result.with_inputs]
            return [Paragraph(f"{a} is to {b} as {c} is to"), _columns(heads, found)]
        case TokenSimilarity():
            one, other = map(_shown, result.tokens)
            return [Paragraph(f"cosine of {one} and {other}: {result.cosine:.4f}")]
    return []


def _neighbors(token: NamedRow, found: Sequence[Neighbor], metric: str) -> list[Part]:
    if metric == "euclidean":  # its score is minus the distance, so that the greatest is the nearest
        found = [replace(one, score=-one.score) for one in found]
    measure = "distance" if metric == "euclidean" else "score"
    return [Paragraph(f"{_shown(token)} (#{token.id})"), _columns([metric], [found], measure)]


def _columns(heads: Sequence[str], lists: Sequence[Sequence[Neighbor]], measure: str = "score") -> Table:
    """Return lists of neighbors side by side."""
    columns = [name for head in heads for name in (head, "id", measure)]
    numeric = [n for n in range(len(columns)) if n % 3]
    rows = []
    for answers in zip_longest(*lists):
        cells = (["", "", ""] if one is None else [_shown(one), str(one.id), f"{one.score:.4f}"] for one in answers)
        rows.append([cell for three in cells for cell in three])
    return Table("", columns, rows, numeric, shorten="never")


def _shown(row: NamedRow) -> str:
    return shown_token(row.token, row.text)
