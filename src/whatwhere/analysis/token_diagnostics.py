"""The suspicious rows of a token table by name, with the evidence for each: what terminal, page and JSON show."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Int64

from whatwhere.analysis.diagnostics import HUB_NEIGHBORS, unreachable
from whatwhere.analysis.subject import Absent, Subject
from whatwhere.analysis.token_neighbors import NamedRow
from whatwhere.models.token_types import marking, texts, token_types
from whatwhere.records import Missing

EXTREMES = 20
"""Rows of lowest norm and farthest from the mean that are listed, whether or not they are suspicious."""
_IN_GROUP = 10
"""Rows that are named of a group of equal ones."""
_ROUNDING = 1e-5
"""Of a row's norm: thousands of steps of weight decay in float32 move a row by less beside its own direction."""


@dataclass(frozen=True)
class TokenRow(NamedRow):
    """A row of the token table.

    Args:
        type: of the token, such as "word start"; "no token" where the row has none.
        norm: of the row.
    """

    type: str
    norm: float


Row = TypeVar("Row", bound=TokenRow)


@dataclass(frozen=True)
class UnderTrainedRow(TokenRow):
    """A row that is suspected of being under-trained.

    Args:
        cosine: to the mean of the reference rows, both less the mean of all rows.
        proximity: 1 - distance to that mean / median distance.
        reachable: whether some text is encoded to this token; None without a tokenizer.
    """

    cosine: float
    proximity: float
    reachable: bool | None


@dataclass(frozen=True)
class UnreachableRow(TokenRow):
    """A row whose token no text is encoded to.

    Args:
        tried: the text that was encoded again.
        read_as: the first tokens that this text is encoded to.
    """

    tried: str
    read_as: Sequence[str]


@dataclass(frozen=True)
class HubRow(TokenRow):
    """A row that is among the nearest neighbors of unusually many.

    Args:
        times: how often it is among them.
    """

    times: int


@dataclass(frozen=True)
class NotFiniteRow(TokenRow):
    """A row with NaN or infinity.

    Args:
        nan, infinite: how many of its numbers are NaN, and how many infinite.
    """

    nan: int
    infinite: int


@dataclass(frozen=True)
class FarRow(TokenRow):
    """A row with its distance, which may lie far from the others'.

    Args:
        distance: from the mean of the rows that are not suspicious.
        why: what lies far from the others': "low norm", "high norm", "near the mean" by its distance; None where none.
    """

    distance: float
    why: str | None


@dataclass(frozen=True)
class UnmovedRow(TokenRow):
    """A row that training did not move, but for a factor.

    Args:
        factor: by which weight decay shrank it: norm now / norm before.
    """

    factor: float


@dataclass(frozen=True, eq=False)
class RowList(Generic[Row]):
    """Suspicious rows of one cause.

    Args:
        count: how many.
        ids: of all.
        examples: the first rows, with their evidence.
    """

    count: int
    ids: Int64[np.ndarray, " ids"]
    examples: Sequence[Row]


@dataclass(frozen=True, eq=False)
class UnderTrained(RowList[UnderTrainedRow]):
    """Rows suspected of being under-trained, by their cosine to the mean of the rows of lowest norm; the highest first.

    Args:
        reference: ids of the rows of lowest norm.
        threshold: of the cosine, above which a row is suspected.
        decisive: whether any cosine could exceed the threshold.
        highest: the largest cosine; None without reference rows.
        also_unreachable: how many of them no text is encoded to; None without a tokenizer.
    """

    reference: Int64[np.ndarray, " reference"]
    threshold: float
    decisive: bool
    highest: float | None
    also_unreachable: int | None


@dataclass(frozen=True, eq=False)
class FarRows(RowList[FarRow]):
    """Rows far from the others by their norm or their distance from the mean, apart from those of one direction.

    Args:
        median_norm, median_distance: of the rows that are finite and not 0; None without such rows.
        lowest, farthest: the first rows by norm and the last by distance, suspicious or not.
    """

    median_norm: float | None
    median_distance: float | None
    lowest: Sequence[FarRow]
    farthest: Sequence[FarRow]


@dataclass(frozen=True)
class Duplicates:
    """Rows that are equal to the last bit.

    Args:
        groups: number of groups.
        rows: number of rows in all groups.
        ids: of the rows of each group.
        examples: the first rows of the first groups.
    """

    groups: int
    rows: int
    ids: Sequence[Sequence[int]]
    examples: Sequence[Sequence[TokenRow]]


@dataclass(frozen=True)
class Hubs:
    """Rows that are among the nearest neighbors of unusually many.

    Args:
        queries: rows whose neighbors were searched.
        neighbors: of each.
        expected: how often a row is a neighbor on average.
        rows: the hubs, most frequent first.
    """

    queries: int
    neighbors: int
    expected: float
    rows: Sequence[HubRow]


@dataclass(frozen=True, eq=False)
class BeyondVocabulary(RowList[TokenRow]):
    """Rows behind the last token of the tokenizer.

    Args:
        median_norm: of these rows; None without.
    """

    median_norm: float | None


@dataclass(frozen=True, eq=False)
class TokenDiagnostics:
    """The suspicious rows of a token table.

    Args:
        rows: of the table.
        under_trained, far, unreachable, duplicates, hubs, zero, not_finite, beyond_vocabulary: the lists.
        unmoved: rows that training did not move, but for weight decay; None where the table before training is not
            stored, as it is in runs of a comparison.
    """

    rows: int
    under_trained: UnderTrained
    far: FarRows
    unreachable: RowList[UnreachableRow] | Missing
    duplicates: Duplicates
    hubs: Hubs
    zero: RowList[TokenRow]
    not_finite: RowList[NotFiniteRow]
    beyond_vocabulary: BeyondVocabulary | Missing
    unmoved: RowList[UnmovedRow] | None = None


def token_diagnostics(subject: Subject) -> TokenDiagnostics:
    """Return the suspicious rows of the token table, list by list; the first `subject.listed` of each are described."""
    found, row = subject.diagnostics, _reader(subject)
    lost = _unreachable(subject, row)
    duplicates = found.duplicates
    hubs, queries, expected = subject.hubs
    zero = found.zero
    return TokenDiagnostics(
        rows=len(found.norms),
        under_trained=_under_trained(subject, row, lost),
        far=_far(subject, row),
        unreachable=lost,
        duplicates=Duplicates(
            groups=len(duplicates),
            rows=sum(map(len, duplicates)),
            ids=duplicates,
            examples=[[TokenRow(**row(n)) for n in group[:_IN_GROUP]] for group in duplicates[: subject.listed]],
        ),
        hubs=Hubs(queries, HUB_NEIGHBORS, expected, [HubRow(**row(n), times=times) for n, times in hubs]),
        zero=RowList(len(zero), zero, [TokenRow(**row(n)) for n in _first(subject, zero)]),
        not_finite=_not_finite(subject, row),
        beyond_vocabulary=_beyond(subject, row),
        unmoved=_unmoved(subject, row),
    )


Named = Callable[[int], dict[str, Any]]
"""The fields of `TokenRow`, by the id of a row."""


def _first(subject: Subject, ids: Int64[np.ndarray, " ids"]) -> Iterable[int]:
    first: list[int] = ids[: subject.listed].tolist()
    return first


def _reader(subject: Subject) -> Named:
    try:
        words: Sequence[str] = subject.words
    except Absent:
        words = ()
    marked = marking(words)

    def row(n: int) -> dict[str, Any]:
        token = words[n] if words else ""
        (text,), (kind,) = texts([token], marked), token_types([token], marked)
        decoded = text if isinstance(text, str) and text else None
        return {"token": token or f"#{n}", "id": n, "text": decoded, "type": kind, "norm": float(subject.norms[n])}

    return row


def _unmoved(subject: Subject, row: Named) -> RowList[UnmovedRow] | None:
    """Return the rows that are a multiple of what they were before training: no gradient reached them."""
    start = subject.start
    if start is None or start.shape != subject.table.shape:
        return None
    now, before = subject.table.astype(np.float64), start.astype(np.float64)
    factor = (now * before).sum(axis=1) / np.maximum((before**2).sum(axis=1), np.finfo(float).tiny)
    moved = np.linalg.norm(now - factor[:, None] * before, axis=1)
    ids = np.flatnonzero(moved <= _ROUNDING * np.linalg.norm(before, axis=1))
    return RowList(len(ids), ids, [UnmovedRow(**row(n), factor=float(factor[n])) for n in _first(subject, ids)])


def _beyond(subject: Subject, row: Named) -> BeyondVocabulary | Missing:
    if subject.checkpoint.words is None:
        return Missing("the number of tokens is not known: there is no tokenizer and no list of tokens")
    ids, norms = subject.diagnostics.beyond_vocabulary, subject.diagnostics.norms
    median = float(np.median(norms[ids])) if len(ids) else None
    return BeyondVocabulary(len(ids), ids, [TokenRow(**row(n)) for n in _first(subject, ids)], median)


def _under_trained(subject: Subject, row: Named, lost: RowList[UnreachableRow] | Missing) -> UnderTrained:
    found = subject.diagnostics
    ids = None if isinstance(lost, Missing) else set(lost.ids.tolist())
    return UnderTrained(
        count=len(found.under_trained),
        ids=found.under_trained,
        reference=found.reference_rows,
        threshold=found.threshold,
        decisive=found.decisive,
        highest=found.highest,
        also_unreachable=None if ids is None else len(ids.intersection(found.under_trained.tolist())),
        examples=[
            UnderTrainedRow(
                **row(n),
                cosine=float(found.cosine[n]),
                proximity=float(found.proximity[n]),
                reachable=None if ids is None else n not in ids,
            )
            for n in _first(subject, found.under_trained)
        ],
    )


def _far(subject: Subject, row: Named) -> FarRows:
    found, usable = subject.diagnostics, subject.usable
    reasons = found.far

    def described(ids: Iterable[int]) -> list[FarRow]:
        return [FarRow(**row(n), distance=float(found.distances[n]), why=reasons.get(n)) for n in ids]

    ids = np.array([*reasons], np.int64)
    return FarRows(
        count=len(ids),
        ids=ids,
        examples=described(_first(subject, ids)),
        median_norm=float(np.median(found.norms[usable])) if len(usable) else None,
        median_distance=float(np.median(found.distances[usable])) if len(usable) else None,
        lowest=described(usable[np.argsort(found.norms[usable], kind="stable")[:EXTREMES]].tolist()),
        farthest=described(usable[np.argsort(-found.distances[usable], kind="stable")[:EXTREMES]].tolist()),
    )


def _unreachable(subject: Subject, row: Named) -> RowList[UnreachableRow] | Missing:
    try:
        tokenizer = subject.tokenizer
    except Absent as problem:
        return Missing(str(problem))
    subject.progress("encoding the text of every token")
    try:
        ids = unreachable(tokenizer, len(subject.table))
        tried = [tokenizer.decode([n], skip_special_tokens=False) for n in _first(subject, ids)]
        back = [tokenizer.encode(text, add_special_tokens=False).tokens[:8] for text in tried]
    except Exception as problem:
        if type(problem) is not Exception:  # the tokenizers library raises no other
            raise
        return Missing(f"the tokenizer cannot encode some texts: {problem}")
    evidence = zip(ids.tolist(), tried, back, strict=False)
    return RowList(len(ids), ids, [UnreachableRow(**row(n), tried=text, read_as=read) for n, text, read in evidence])


def _not_finite(subject: Subject, row: Named) -> RowList[NotFiniteRow]:
    ids, rows = subject.diagnostics.non_finite, []
    for n in _first(subject, ids):
        values = subject.table[n]
        rows.append(NotFiniteRow(**row(n), nan=int(np.isnan(values).sum()), infinite=int(np.isinf(values).sum())))
    return RowList(len(ids), ids, rows)
