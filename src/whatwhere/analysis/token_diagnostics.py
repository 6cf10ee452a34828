"""The suspicious rows of a token table by name, with the evidence for each: what terminal, page and JSON show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int64

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
    """A row that is among the nearest neighbors of unusually many, and how often."""

    times: int


@dataclass(frozen=True)
class NotFiniteRow(TokenRow):
    """A row with NaN or infinity, and how many of its numbers are the one and the other."""

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
    """Suspicious rows of one cause: how many, the ids of all, and the first rows with their evidence."""

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
    """Rows that are equal to the last bit, in groups, of which the first ones are described."""

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
    """Rows behind the last token of the tokenizer, and the median of their norms; None without."""

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
    found, usable, rows = subject.diagnostics, subject.usable, _Rows(subject)
    distances, reasons, numbers = found.distances, found.far, subject.table
    lost = _unreachable(subject, rows)
    lost_ids = None if isinstance(lost, Missing) else set(lost.ids.tolist())
    hubs, queries, expected = subject.hubs

    def of_under_trained(n: int) -> Evidence:
        reachable = None if lost_ids is None else n not in lost_ids
        return {"cosine": float(found.cosine[n]), "proximity": float(found.proximity[n]), "reachable": reachable}

    def of_far(n: int) -> Evidence:
        return {"distance": float(distances[n]), "why": reasons.get(n)}

    def of_not_finite(n: int) -> Evidence:
        return {"nan": int(np.isnan(numbers[n]).sum()), "infinite": int(np.isinf(numbers[n]).sum())}

    def extreme(values: Float[np.ndarray, " usable"]) -> list[FarRow]:
        first = usable[np.argsort(values, kind="stable")[:EXTREMES]]
        return [rows.described(n, FarRow, of_far) for n in first.tolist()]

    return TokenDiagnostics(
        rows=len(found.norms),
        under_trained=UnderTrained(
            **rows.listed(found.under_trained, UnderTrainedRow, of_under_trained),
            reference=found.reference_rows,
            threshold=found.threshold,
            decisive=found.decisive,
            highest=found.highest,
            also_unreachable=None if lost_ids is None else len(lost_ids.intersection(found.under_trained.tolist())),
        ),
        far=FarRows(
            **rows.listed(np.array([*reasons], np.int64), FarRow, of_far),
            median_norm=_median(found.norms[usable]),
            median_distance=_median(distances[usable]),
            lowest=extreme(found.norms[usable]),
            farthest=extreme(-distances[usable]),
        ),
        unreachable=lost,
        duplicates=Duplicates(
            groups=len(found.duplicates),
            rows=sum(map(len, found.duplicates)),
            ids=found.duplicates,
            examples=[
                [rows.described(n, TokenRow) for n in group[:_IN_GROUP]] for group in found.duplicates[: subject.listed]
            ],
        ),
        hubs=Hubs(
            queries=queries,
            neighbors=HUB_NEIGHBORS,
            expected=expected,
            rows=[rows.described(n, HubRow, lambda _, times=times: {"times": times}) for n, times in hubs],  # type: ignore[misc]
        ),
        zero=RowList(**rows.listed(found.zero, TokenRow)),
        not_finite=RowList(**rows.listed(found.non_finite, NotFiniteRow, of_not_finite)),
        beyond_vocabulary=Missing("the number of tokens is not known: there is no tokenizer and no list of tokens")
        if subject.checkpoint.words is None
        else BeyondVocabulary(
            **rows.listed(found.beyond_vocabulary, TokenRow), median_norm=_median(found.norms[found.beyond_vocabulary])
        ),
        unmoved=_unmoved(subject, rows),
    )


Evidence = dict[str, Any]
"""The fields of a type of row beside those of `TokenRow`."""


class _Rows:
    """The rows of a table with their names."""

    def __init__(self, subject: Subject) -> None:
        try:
            self._words: Sequence[str] = subject.words
        except Absent:
            self._words = ()
        self._marking, self._norms, self._most = marking(self._words), subject.norms, subject.listed

    def described(self, n: int, kind: type[Row], evidence: Callable[[int], Evidence] = lambda _: {}) -> Row:
        word = self._words[n] if self._words else ""
        (text,), (type_,) = texts([word], self._marking), token_types([word], self._marking)
        decoded = text if isinstance(text, str) and text else None
        row: Evidence = {
            "token": word or f"#{n}",
            "id": n,
            "text": decoded,
            "type": type_,
            "norm": float(self._norms[n]),
        }
        return kind(**row, **evidence(n))

    def listed(
        self, ids: Int64[np.ndarray, " ids"], kind: type[Row], evidence: Callable[[int], Evidence] = lambda _: {}
    ) -> Evidence:
        """Return the fields of a RowList."""
        examples = [self.described(n, kind, evidence) for n in ids[: self._most].tolist()]
        return {"count": len(ids), "ids": ids, "examples": examples}


def _median(values: Float[np.ndarray, " some"]) -> float | None:
    return float(np.median(values)) if len(values) else None


def _unmoved(subject: Subject, rows: _Rows) -> RowList[UnmovedRow] | None:
    """Return the rows that are a multiple of what they were before training: no gradient reached them."""
    start = subject.start
    if start is None or start.shape != subject.table.shape:
        return None
    now, before = subject.table.astype(np.float64), start.astype(np.float64)
    factor = (now * before).sum(axis=1) / np.maximum((before**2).sum(axis=1), np.finfo(float).tiny)
    moved = np.linalg.norm(now - factor[:, None] * before, axis=1)
    ids = np.flatnonzero(moved <= _ROUNDING * np.linalg.norm(before, axis=1))
    return RowList(**rows.listed(ids, UnmovedRow, lambda n: {"factor": float(factor[n])}))


def _unreachable(subject: Subject, rows: _Rows) -> RowList[UnreachableRow] | Missing:
    try:
        tokenizer = subject.tokenizer
    except Absent as problem:
        return Missing(str(problem))

    def read_again(n: int) -> Evidence:
        text = tokenizer.decode([n], skip_special_tokens=False)
        return {"tried": text, "read_as": tokenizer.encode(text, add_special_tokens=False).tokens[:8]}

    subject.progress("encoding the text of every token")
    try:
        return RowList(**rows.listed(unreachable(tokenizer, range(len(subject.table))), UnreachableRow, read_again))
    except Exception as problem:
        if type(problem) is not Exception:  # the tokenizers library raises no other
            raise
        return Missing(f"the tokenizer cannot encode some texts: {problem}")
