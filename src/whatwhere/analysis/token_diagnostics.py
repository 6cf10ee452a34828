"""The suspicious rows of a token table by name, with the evidence for each: what terminal, page and JSON show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int64

from whatwhere.analysis.diagnostics import HUB_NEIGHBORS, unreachable
from whatwhere.analysis.subject import Subject, or_missing
from whatwhere.analysis.token_neighbors import NamedRow, named_rows
from whatwhere.models.model_text import token_types
from whatwhere.records import Missing

EXTREMES = 20  # rows of lowest norm and farthest from the mean that are listed, whether or not they are suspicious
_IN_GROUP = 10  # rows that are named of a group of equal ones
_ROUNDING = 1e-5
"""Of a row's norm: thousands of steps of weight decay in float32 move a row by less beside its own direction."""


@dataclass(frozen=True)
class TokenRow(NamedRow):
    """A row of the token table with its norm, and the type of its token; "no token" where the row has none."""

    type: str
    norm: float


Row = TypeVar("Row", bound=TokenRow)


@dataclass(frozen=True)
class UnderTrainedRow(TokenRow):
    """A row that is suspected of being under-trained."""

    cosine: float  # to the mean of the reference rows, both less the mean of all rows
    proximity: float  # 1 - distance to that mean / median distance
    reachable: bool | None  # whether some text is encoded to this token; None without a tokenizer


@dataclass(frozen=True)
class UnreachableRow(TokenRow):
    """A row whose token no text is encoded to: the text that was tried, and the first tokens that it is read as."""

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
    """A row with its distance from the mean of the rows that are not suspicious."""

    distance: float
    why: str | None  # what lies far from the others': "low norm", "high norm", "near the mean"; None where none


@dataclass(frozen=True)
class UnmovedRow(TokenRow):
    """A row that training did not move, but for the factor by which weight decay shrank it."""

    factor: float


@dataclass(frozen=True, eq=False)
class RowList(Generic[Row]):
    """Suspicious rows of one cause: how many, the ids of all, and the first rows with their evidence."""

    count: int
    ids: Int64[np.ndarray, " ids"]
    examples: Sequence[Row]


@dataclass(frozen=True, eq=False)
class UnderTrained(RowList[UnderTrainedRow]):
    """Rows suspected of being under-trained by their cosine to the mean of those of lowest norm, the highest first."""

    reference: Int64[np.ndarray, " reference"]  # ids of the rows of lowest norm
    threshold: float  # of the cosine, above which a row is suspected
    decisive: bool  # whether any cosine could exceed the threshold
    highest: float | None  # the largest cosine; None without reference rows
    also_unreachable: int | None  # how many of them no text is encoded to; None without a tokenizer


@dataclass(frozen=True, eq=False)
class FarRows(RowList[FarRow]):
    """Rows far from the others by their norm or their distance from the mean, apart from those of one direction."""

    median_norm: float | None  # of the rows that are finite and not 0; None without such rows
    median_distance: float | None  # of these rows
    lowest: Sequence[FarRow]  # the first rows by norm, suspicious or not
    farthest: Sequence[FarRow]  # the last rows by distance, suspicious or not


@dataclass(frozen=True)
class Duplicates:
    """Rows that are equal to the last bit, in groups, of which the first ones are described."""

    groups: int
    rows: int
    ids: Sequence[Sequence[int]]
    examples: Sequence[Sequence[TokenRow]]


@dataclass(frozen=True)
class Hubs:
    """Rows that are among the nearest neighbors of unusually many, most frequent first."""

    queries: int  # rows whose neighbors were searched
    neighbors: int  # that were searched of each
    expected: float  # how often a row is a neighbor on average
    rows: Sequence[HubRow]


@dataclass(frozen=True, eq=False)
class BeyondVocabulary(RowList[TokenRow]):
    """Rows behind the last token of the tokenizer, and the median of their norms; None without."""

    median_norm: float | None


@dataclass(frozen=True, eq=False)
class TokenDiagnostics:
    """The suspicious rows of a token table."""

    rows: int
    under_trained: UnderTrained
    far: FarRows
    unreachable: RowList[UnreachableRow] | Missing
    duplicates: Duplicates
    hubs: Hubs
    zero: RowList[TokenRow]
    not_finite: RowList[NotFiniteRow]
    beyond_vocabulary: BeyondVocabulary | Missing
    unmoved: RowList[UnmovedRow] | None = None  # by training, but for weight decay; None where the start is not stored


def token_diagnostics(subject: Subject) -> TokenDiagnostics:
    """Return the suspicious rows of the token table, list by list; the first `subject.listed` of each are described."""
    found, usable, table = subject.diagnostics, subject.usable, subject.table
    distances, reasons = found.distances, found.far
    described, listed = partial(_described, subject), partial(_listed, subject)
    lost = _unreachable(subject)
    lost_ids = None if isinstance(lost, Missing) else set(lost.ids.tolist())
    hubs, queries, expected = subject.hubs

    def of_under_trained(ids: list[int]) -> Evidence:
        reachable = [None if lost_ids is None else n not in lost_ids for n in ids]
        return {"cosine": found.cosine[ids], "proximity": found.proximity[ids], "reachable": reachable}

    def of_far(ids: list[int]) -> Evidence:
        return {"distance": distances[ids], "why": [reasons.get(n) for n in ids]}

    def of_not_finite(ids: list[int]) -> Evidence:
        return {"nan": np.isnan(table[ids]).sum(axis=1), "infinite": np.isinf(table[ids]).sum(axis=1)}

    def extreme(values: Float[np.ndarray, " usable"]) -> list[FarRow]:
        first = usable[np.argsort(values, kind="stable")[:EXTREMES]].tolist()
        return described(first, FarRow, of_far(first))

    return TokenDiagnostics(
        rows=len(found.norms),
        under_trained=UnderTrained(
            **listed(found.under_trained, UnderTrainedRow, of_under_trained),
            reference=found.reference_rows,
            threshold=found.threshold,
            decisive=found.decisive,
            highest=found.highest,
            also_unreachable=None if lost_ids is None else len(lost_ids.intersection(found.under_trained.tolist())),
        ),
        far=FarRows(
            **listed(np.array([*reasons], np.int64), FarRow, of_far),
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
            examples=[described(group[:_IN_GROUP], TokenRow) for group in found.duplicates[: subject.listed]],
        ),
        hubs=Hubs(
            queries=queries,
            neighbors=HUB_NEIGHBORS,
            expected=expected,
            rows=described([n for n, _ in hubs], HubRow, {"times": [times for _, times in hubs]}),
        ),
        zero=RowList(**listed(found.zero, TokenRow)),
        not_finite=RowList(**listed(found.non_finite, NotFiniteRow, of_not_finite)),
        beyond_vocabulary=Missing("the number of tokens is not known: there is no tokenizer and no list of tokens")
        if subject.checkpoint.words is None
        else BeyondVocabulary(
            **listed(found.beyond_vocabulary, TokenRow), median_norm=_median(found.norms[found.beyond_vocabulary])
        ),
        unmoved=_unmoved(subject),
    )


Evidence = dict[str, Sequence[Any] | np.ndarray]
"""The fields of a type of row beside those of `TokenRow`, each with one value for each row."""


def _described(subject: Subject, ids: Sequence[int], kind: type[Row], evidence: Evidence | None = None) -> list[Row]:
    words, marked = subject.checkpoint.words or [], subject.marking
    types = token_types([words[n] if n < len(words) else "" for n in ids], marked)
    columns = {"type": types, "norm": subject.norms[list(ids)], **(evidence or {})}
    values = zip(*(np.asarray(column, object).tolist() for column in columns.values()), strict=True)
    named = named_rows(words, ids, marked)
    return [kind(**vars(row), **dict(zip(columns, own, strict=True))) for row, own in zip(named, values, strict=True)]


def _listed(
    subject: Subject,
    ids: Int64[np.ndarray, " ids"],
    kind: type[TokenRow],
    evidence: Callable[[list[int]], Evidence] = lambda _: {},
) -> dict[str, Any]:
    """Return the fields of a RowList; the evidence is computed for the rows that are described."""
    first = ids[: subject.listed].tolist()
    return {"count": len(ids), "ids": ids, "examples": _described(subject, first, kind, evidence(first))}


def _median(values: Float[np.ndarray, " some"]) -> float | None:
    return float(np.median(values)) if len(values) else None


def _unmoved(subject: Subject) -> RowList[UnmovedRow] | None:
    """Return the rows that are a multiple of what they were before training: no gradient reached them."""
    start = subject.start
    if start is None or start.shape != subject.table.shape:
        return None
    now, before = subject.table.astype(np.float64), start.astype(np.float64)
    factor = (now * before).sum(axis=1) / np.maximum((before**2).sum(axis=1), np.finfo(float).tiny)
    moved = np.linalg.norm(now - factor[:, None] * before, axis=1)
    ids = np.flatnonzero(moved <= _ROUNDING * np.linalg.norm(before, axis=1))
    return RowList(**_listed(subject, ids, UnmovedRow, lambda ids: {"factor": factor[ids]}))


def _unreachable(subject: Subject) -> RowList[UnreachableRow] | Missing:
    tokenizer = or_missing(lambda: subject.tokenizer)
    if isinstance(tokenizer, Missing):
        return tokenizer

    def read_again(ids: list[int]) -> Evidence:
        texts = [tokenizer.decode([n], skip_special_tokens=False) for n in ids]
        return {
            "tried": texts,
            "read_as": [tokenizer.encode(text, add_special_tokens=False).tokens[:8] for text in texts],
        }

    subject.progress("encoding the text of every token")
    try:
        return RowList(
            **_listed(subject, unreachable(tokenizer, range(len(subject.table))), UnreachableRow, read_again)
        )
    except Exception as problem:
        if type(problem) is not Exception:  # the tokenizers library raises no other
            raise
        return Missing(f"the tokenizer cannot encode some texts: {problem}")
