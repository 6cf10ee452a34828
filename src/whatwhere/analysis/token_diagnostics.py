"""Diagnostics of the token table: suspicious rows, with the evidence for each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Int64

from whatwhere.analysis.diagnostics import unreachable
from whatwhere.analysis.subject import Absent, Subject
from whatwhere.models.token_types import marking, texts
from whatwhere.records import Missing

EXAMPLES = 100
"""Rows of each list that come with their evidence; the ids are complete."""
EXTREMES = 20
"""Rows of lowest norm and farthest from the mean that are listed, whether or not they are suspicious."""
NEIGHBORS = 10
_ROUNDING = 1e-5
"""Of a row's norm: thousands of steps of weight decay in float32 move a row by less beside its own direction."""


@dataclass(frozen=True)
class TokenRow:
    """A row of the token table.

    Args:
        id: of the token.
        token: as the vocabulary writes it; None where the row has none.
        text: that the token decodes to, with its leading space; None where its bytes are no text, or there is no token.
        norm: of the row.
    """

    id: int
    token: str | None
    text: str | None
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
class HubTokens:
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


@dataclass(frozen=True)
class BeyondVocabulary:
    """Rows behind the last token of the tokenizer.

    Args:
        count: how many.
        first: id of the first; None without.
        median_norm: of these rows.
    """

    count: int
    first: int | None
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
    hubs: HubTokens
    zero: RowList[TokenRow]
    not_finite: RowList[NotFiniteRow]
    beyond_vocabulary: BeyondVocabulary | Missing
    unmoved: RowList[UnmovedRow] | None = None


def diagnostics(subject: Subject) -> TokenDiagnostics:
    """Return the suspicious rows of the token table, list by list."""
    computed, hubs = subject.diagnostics, subject.hubs
    lost = _unreachable(subject)
    row = _reader(subject)
    return TokenDiagnostics(
        rows=len(computed.norms),
        under_trained=_under_trained(subject, lost),
        far=_far(subject),
        unreachable=lost,
        duplicates=Duplicates(
            groups=len(computed.duplicates),
            rows=sum(map(len, computed.duplicates)),
            ids=computed.duplicates,
            examples=[[row(n) for n in group[:10]] for group in computed.duplicates[:EXAMPLES]],
        ),
        hubs=HubTokens(
            queries=hubs.queries,
            neighbors=NEIGHBORS,
            expected=hubs.expected,
            rows=[HubRow(**vars(row(n)), times=times) for n, times in hubs.rows],
        ),
        zero=RowList(len(computed.zero), computed.zero, [row(n) for n in computed.zero[:EXAMPLES].tolist()]),
        not_finite=_not_finite(subject),
        beyond_vocabulary=_beyond(subject),
        unmoved=_unmoved(subject),
    )


def _unmoved(subject: Subject) -> RowList[UnmovedRow] | None:
    """Return the rows that are a multiple of what they were before training: no gradient reached them."""
    start = subject.start
    if start is None or start.shape != subject.table.shape:
        return None
    now, before = subject.table.astype(np.float64), start.astype(np.float64)
    factor = (now * before).sum(axis=1) / np.maximum((before**2).sum(axis=1), np.finfo(float).tiny)
    moved = np.linalg.norm(now - factor[:, None] * before, axis=1)
    ids = np.flatnonzero(moved <= _ROUNDING * np.linalg.norm(before, axis=1))
    row = _reader(subject)
    examples = [UnmovedRow(**vars(row(n)), factor=float(factor[n])) for n in ids[:EXAMPLES].tolist()]
    return RowList(len(ids), ids, examples)


def _beyond(subject: Subject) -> BeyondVocabulary | Missing:
    if subject.checkpoint.words is None:
        return Missing("the number of tokens is not known: there is no tokenizer and no list of tokens")
    beyond, norms = subject.diagnostics.beyond_vocabulary, subject.diagnostics.norms
    if not len(beyond):
        return BeyondVocabulary(0, None, None)
    return BeyondVocabulary(len(beyond), int(beyond[0]), float(np.median(norms[beyond])))


def _under_trained(subject: Subject, lost: RowList[UnreachableRow] | Missing) -> UnderTrained:
    computed, row = subject.diagnostics, _reader(subject)
    ids = None if isinstance(lost, Missing) else set(lost.ids.tolist())
    return UnderTrained(
        count=len(computed.under_trained),
        ids=computed.under_trained,
        reference=computed.reference_rows,
        threshold=computed.threshold,
        decisive=computed.decisive,
        highest=computed.highest,
        also_unreachable=None if ids is None else len(ids.intersection(computed.under_trained.tolist())),
        examples=[
            UnderTrainedRow(
                **vars(row(n)),
                cosine=float(computed.cosine[n]),
                proximity=float(computed.proximity[n]),
                reachable=None if ids is None else n not in ids,
            )
            for n in computed.under_trained[:EXAMPLES].tolist()
        ],
    )


def _far(subject: Subject) -> FarRows:
    computed, row, usable = subject.diagnostics, _reader(subject), subject.usable
    reasons = computed.far

    def described(ids: Int64[np.ndarray, " ids"]) -> list[FarRow]:
        return [FarRow(**vars(row(n)), distance=float(computed.distances[n]), why=reasons.get(n)) for n in ids.tolist()]

    ids = np.array([*reasons], np.int64)
    return FarRows(
        count=len(ids),
        ids=ids,
        examples=described(ids[:EXAMPLES]),
        median_norm=float(np.median(computed.norms[usable])) if len(usable) else None,
        median_distance=float(np.median(computed.distances[usable])) if len(usable) else None,
        lowest=described(usable[np.argsort(computed.norms[usable], kind="stable")[:EXTREMES]]),
        farthest=described(usable[np.argsort(-computed.distances[usable], kind="stable")[:EXTREMES]]),
    )


def _unreachable(subject: Subject) -> RowList[UnreachableRow] | Missing:
    try:
        tokenizer = subject.tokenizer
    except Absent as problem:
        return Missing(str(problem))
    subject.progress("encoding the text of every token")
    try:
        ids = unreachable(tokenizer, len(subject.table))
        texts = [tokenizer.decode([n], skip_special_tokens=False) for n in ids[:EXAMPLES].tolist()]
        back = [tokenizer.encode(text, add_special_tokens=False).tokens[:8] for text in texts]
    except Exception as problem:
        if type(problem) is not Exception:  # the tokenizers library raises no other
            raise
        return Missing(f"the tokenizer cannot encode some texts: {problem}")
    row = _reader(subject)
    evidence = zip(ids.tolist(), texts, back, strict=False)
    examples = [UnreachableRow(**vars(row(n)), tried=text, read_as=tokens) for n, text, tokens in evidence]
    return RowList(len(ids), ids, examples)


def _not_finite(subject: Subject) -> RowList[NotFiniteRow]:
    ids, row = subject.diagnostics.non_finite, _reader(subject)
    examples = []
    for n in ids[:EXAMPLES].tolist():
        values = subject.table[n]
        nan, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        examples.append(NotFiniteRow(**vars(row(n)), nan=nan, infinite=infinite))
    return RowList(len(ids), ids, examples)


def _reader(subject: Subject) -> Callable[[int], TokenRow]:
    """Return a function that describes a row by its id."""
    try:
        words: Sequence[str] = subject.words
    except Absent:
        words = ()
    marked = marking(words)

    def row(n: int) -> TokenRow:
        token = words[n] if words else ""
        (text,) = texts([token], marked)
        decoded = text if isinstance(text, str) and text else None
        return TokenRow(n, token or None, decoded, float(subject.norms[n]))

    return row
