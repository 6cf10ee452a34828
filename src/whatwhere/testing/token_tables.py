"""check_ngram_rows and check_lookup: check hashes of n-grams, and lookups in any table, given as functions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from whatwhere import reference
from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.testing import harness
from whatwhere.testing.harness import UNIT, Fault, Measurement, NotSupported, Trial
from whatwhere.testing.report import Report
from whatwhere.what.ngram_hash import NGramHash

Rows = Callable[[Tensor, Tensor], Tensor]
"""(ids, segments) -> rows: (tokens), (tokens) -> (tokens, hashes), of tables that lie in one, one after another."""

_TOKENS = 24
_WHY = "float32 rounds a product with the scale by 2**-24, a sum of rows by that for each, and twice that is allowed"


def check_ngram_rows(
    fn: Rows,
    hashes: Sequence[NGramHash],
    *,
    vocab_size: int,
    padding_id: int,
    border_id: int | None = None,
    device: torch.device | str = "cpu",
) -> Report:
    """Check which rows an implementation of hashed n-grams reads, exactly, against the reference in Python's integers.

    For what the function does not support, such as several documents, it may raise NotImplementedError: the law then
    does not apply. Any other exception is a failure.

    Args:
        fn: (ids, segments) -> rows; both int64 (tokens); rows (tokens, hashes), those of the first hash first, each
            counted from the first row of all. Segments number the documents.
        hashes: that are expected, see whatwhere.what.ngram_hash.
        vocab_size: ids are 0..vocab_size - 1.
        padding_id: stands for tokens before a document.
        border_id: a token after which a document begins, whatever the segments; None: there is none.
        device: of the inputs of fn.

    Returns:
        A report with one finding for each law; positions are slots.

    Raises:
        ShapeError: If vocab_size is not a whole number of at least 1.
        SettingError: If there are no hashes, or the vocabulary is too small to tell tokens apart.

    Examples:
        >>> from whatwhere import HashedNGramEmbedding, Positions
        >>> from whatwhere.what.ngram_hash import polynomial_hashes
        >>> hashes = polynomial_hashes([2, 3], rows=101)
        >>> table = HashedNGramEmbedding(hashes, dim=4, padding_id=0)
        >>> def rows(ids, segments):
        ...     lengths = segments.unique_consecutive(return_counts=True)[1].tolist()
        ...     return table.rows(ids[None], Positions.packed(lengths))[0]
        >>> check_ngram_rows(rows, hashes, vocab_size=260, padding_id=0).passed
        True
    """
    require_whole("check_ngram_rows", vocab_size=vocab_size)
    if not hashes or vocab_size < 8:
        raise SettingError(
            f"check_ngram_rows got {len(hashes)} hashes and vocab_size={vocab_size}, but needs a hash and 8 tokens.\n"
            "Pass those of the model."
        )
    laws = _NGramLaws(fn, _Hashed(tuple(hashes), padding_id, border_id), vocab_size, torch.device(device))
    settings: dict[str, object] = {"hashes": len(hashes), "vocab_size": vocab_size, "padding_id": padding_id}
    settings |= {} if border_id is None else {"border_id": border_id}
    return Report("check_ngram_rows", settings, harness.run_all(laws.trials()))


@dataclass(frozen=True)
class _Hashed:
    """The expected rows, by the reference."""

    hashes: tuple[NGramHash, ...]
    padding_id: int
    border_id: int | None

    def rows(self, ids: Int64[Tensor, " tokens"], segments: Int64[Tensor, " tokens"]) -> Int64[Tensor, "tokens hashes"]:
        if self.border_id is not None:
            ends = (ids == self.border_id).long().cumsum(0)
            segments = segments * (len(ids) + 1) + torch.cat([ends.new_zeros(1), ends[:-1]])
        found, offset = [], 0
        for each in self.hashes:
            rows = reference.ngram_rows(
                ids.numpy(), list(each.multipliers), each.rows, self.padding_id, segments.numpy(), each.combine == "xor"
            )
            found.append(torch.from_numpy(rows) + offset)
            offset += each.rows
        return torch.stack(found, dim=-1)

    @property
    def longest(self) -> int:
        return max(each.n for each in self.hashes)


@dataclass(frozen=True, eq=False)
class _NGramLaws:
    fn: Rows
    hashed: _Hashed
    vocab_size: int
    device: torch.device

    def trials(self) -> Iterator[Trial]:
        yield Trial("formula", "tokens of one document read the rows of the hashes", self.formula)
        yield Trial("64 bits", "products of the largest ids wrap around at 64 bits, as signed integers", self.large)
        yield Trial("own table", "each hash reads rows of its own table", self.own_table)
        yield Trial("documents", "the n-grams of a document end where it begins", self.documents)
        yield Trial("padding", "tokens behind left padding read what they read without it", self.padding)
        yield Trial("border", "a document begins after each border id", self.border)
        yield Trial("decoding", "the last tokens alone give the rows of the last one", self.decoding)
        yield Trial("input kept", "ids are not modified", self.input_kept)

    def ids(self) -> Int64[Tensor, " tokens"]:
        """Sample ids, none of them the border or the padding."""
        special = {self.hashed.padding_id, self.hashed.border_id}
        others = torch.tensor([n for n in range(max(self.vocab_size - 4096, 0), self.vocab_size) if n not in special])
        return others[torch.randint(len(others), (_TOKENS,), generator=torch.Generator().manual_seed(0))]

    def call(self, ids: Tensor, segments: Tensor | None = None) -> Int64[Tensor, "tokens hashes"]:
        documents = torch.zeros_like(ids) if segments is None else segments
        result = harness.call(self.fn, ids.to(self.device, copy=True), documents.to(self.device, copy=True))
        rows = harness.require_shape(result, (len(ids), len(self.hashed.hashes)), "(tokens, hashes)").cpu()
        if rows.is_floating_point() or rows.dtype == torch.bool:
            raise Fault(f"it returned {rows.dtype}, but rows are whole numbers")
        return rows.long()

    def compare(self, ids: Tensor, segments: Tensor | None = None) -> None:
        documents = torch.zeros_like(ids) if segments is None else segments
        rows, wanted = self.call(ids, documents), self.hashed.rows(ids, documents)
        self.require_equal(rows, wanted, lambda: self.explain(ids, documents, rows))

    def require_equal(self, rows: Tensor, wanted: Tensor, note: Callable[[], str] = str) -> None:
        """Raise Fault with the first slot at which rows differ, and in which hashes."""
        wrong = (rows != wanted).any(-1).nonzero().flatten()
        if len(wrong):
            hashes = (rows != wanted).any(0).nonzero().flatten().tolist()
            raise Fault(note() or f"hashes {', '.join(map(str, hashes[:6]))} read other rows", int(wrong[0]))

    def explain(self, ids: Tensor, segments: Tensor, rows: Tensor) -> str:
        """Return the known mistake that explains wrong rows; "" where none fits."""
        hashes = self.hashed.hashes
        other: tuple[tuple[str, _Hashed, Tensor], ...] = (
            ("n-grams reach into the document before", self.hashed, torch.zeros_like(ids)),
            ("the border id is not seen", replace(self.hashed, border_id=None), segments),
            ("missing tokens count as 0", replace(self.hashed, padding_id=0), segments),
            (
                "its multipliers are in the reverse order: that of the token itself comes first",
                replace(self.hashed, hashes=tuple(replace(h, multipliers=h.multipliers[::-1]) for h in hashes)),
                segments,
            ),
        )
        for explanation, mistake, documents in other:
            if torch.equal(rows, mistake.rows(ids, documents)):
                return explanation
        offsets = self.hashed.rows(ids, segments) - torch.tensor([0, *(h.rows for h in hashes[:-1])]).cumsum(0)
        return "rows are counted from the first of each table, not of all" if torch.equal(rows, offsets) else ""

    def formula(self) -> None:
        self.compare(self.ids())

    def large(self) -> None:
        self.compare(torch.arange(self.vocab_size - 1, max(self.vocab_size - 9, -1), -1))

    def own_table(self) -> None:
        rows = self.call(self.ids())
        sizes = torch.tensor([each.rows for each in self.hashed.hashes])
        first = sizes.cumsum(0) - sizes
        outside = ((rows < first) | (rows >= first + sizes)).any(-1).nonzero().flatten()
        harness.require_none(outside, "a row is outside of its table")

    def documents(self) -> None:
        self.compare(self.ids(), torch.tensor([0] * 9 + [1] + [2] * (_TOKENS - 10)))

    def padding(self) -> None:
        ids, before = self.ids(), 6
        padded = torch.cat([ids.flip(0)[:before], ids])  # of any id: the segments alone say which tokens are padding
        segments = torch.tensor([0] * before + [1] * len(ids))
        self.require_equal(self.call(padded, segments)[before:], self.call(ids))

    def border(self) -> None:
        if self.hashed.border_id is None:
            raise NotSupported("there is no border id")
        ids = self.ids()
        ids[[4, 11, 12]] = self.hashed.border_id
        self.compare(ids)

    def decoding(self) -> None:
        ids = self.ids()
        last = ids[-self.hashed.longest :]
        self.require_equal(self.call(last)[-1:], self.call(ids)[-1:])

    def input_kept(self) -> None:
        ids = self.ids().to(self.device)
        harness.call(self.fn, ids, torch.zeros_like(ids))
        harness.require(torch.equal(ids.cpu(), self.ids()), "it modifies the ids that it is called with")


def check_lookup(
    fn: Callable[[Tensor], Tensor],
    weight: nn.Parameter,
    ids: Int64[Tensor, " tokens"],
    rows: Int64[Tensor, "tokens rows_of_each"],
    *,
    scale: float = 1.0,
    merge: Literal["concatenate", "sum"] = "concatenate",
    padding_idx: int | None = None,
) -> Report:
    """Check that a lookup reads the rows that it should, and that gradients reach these alone.

    Args:
        fn: ids -> vectors: (tokens) -> (tokens, features).
        weight: the table that fn reads, float32 or float64; its values are restored, and its gradient is replaced.
        ids: to look up, some of them repeated.
        rows: of the table that each token reads: its id, or those of its n-grams.
        scale: of the vectors.
        merge: how several rows of a token become one vector.
        padding_idx: a row that gets no gradient, and whose vectors are 0; None: there is none.

    Returns:
        A report with one finding for each law; positions are slots, or rows where gradients are meant.

    Raises:
        SettingError: If `merge` is unknown.
        ShapeError: If there is not one line of rows for each id.

    Examples:
        >>> from whatwhere import TokenEmbedding
        >>> table, ids = TokenEmbedding(9, 4), torch.tensor([3, 1, 3])
        >>> check_lookup(table, table.weight, ids, ids[:, None]).passed
        True
    """
    require_choice("check_lookup", "merge", merge, ("concatenate", "sum"))
    if rows.dim() != 2 or len(rows) != len(ids):
        raise ShapeError(
            f"check_lookup got {len(ids)} ids and rows of shape {tuple(rows.shape)}.\nPass rows (tokens, rows of each)."
        )
    laws = _LookupLaws(fn, weight, ids, rows, scale, merge, padding_idx)
    settings: dict[str, object] = {"rows": len(weight), "features": weight.shape[1], "merge": merge}
    return Report("check_lookup", settings, harness.run_all(laws.trials()))


@dataclass(frozen=True, eq=False)
class _LookupLaws:
    fn: Callable[[Tensor], Tensor]
    weight: nn.Parameter
    ids: Int64[Tensor, " tokens"]
    rows: Int64[Tensor, "tokens rows_of_each"]
    scale: float
    merge: str
    padding_idx: int | None

    def trials(self) -> Iterator[Trial]:
        yield Trial("lookup", "vectors are the rows of the table, times the scale", self.lookup, _WHY)
        yield Trial("these rows alone", "rows that no token reads have no effect", self.these_rows_alone)
        yield Trial("gradient", "the gradient of a row is the sum over all tokens that read it", self.gradient, _WHY)
        yield Trial("other rows", "rows that no token reads get no gradient", self.other_rows)
        yield Trial("padding row", "vectors of the padding row are 0, and it gets no gradient", self.padding_row)

    def expected(self, weight: Float[Tensor, "rows dim"]) -> Float64[Tensor, "tokens features"]:
        found = weight.detach().double()[self.rows] * self.scale
        return found.flatten(-2) if self.merge == "concatenate" else found.sum(-2)

    def call(self, gradient: bool = False) -> Float[Tensor, "tokens features"]:
        result = harness.call(self.fn, self.ids.clone(), gradient=gradient)
        return harness.require_shape(result, tuple(self.expected(self.weight).shape), "(tokens, features)")

    def tolerance(self, values: Float64[Tensor, "..."]) -> float:
        """Return what rounding allows for sums as long as these."""
        return float(2 * UNIT * (1 + self.rows.numel()) * values.abs().max().clamp(min=1e-30))

    def lookup(self) -> Measurement:
        wanted = self.expected(self.weight)
        errors = (self.call().detach().double() - wanted).abs().amax(-1)
        return Measurement(errors, torch.arange(len(self.ids)), self.tolerance(wanted))

    def unread(self) -> Int64[Tensor, " rows"]:
        return torch.ones(len(self.weight), dtype=torch.bool).index_fill(0, self.rows.flatten(), False).nonzero()[:, 0]

    def these_rows_alone(self) -> None:
        before, kept = self.call().detach().clone(), self.weight.detach().clone()
        try:
            with torch.no_grad():
                self.weight[self.unread()] = 1e6
            after = self.call().detach()
        finally:
            with torch.no_grad():
                self.weight.copy_(kept)
        harness.require_none((before != after).any(-1).nonzero().flatten(), "it reads other rows too")

    def gradients(self) -> tuple[Float64[Tensor, "rows dim"], Float64[Tensor, "rows dim"]]:
        """Return the gradient of a weighted sum of the vectors, and that which is expected."""
        vectors = self.call(gradient=True)
        factors = harness.sample(*vectors.shape).to(vectors)
        self.weight.grad = None
        if not vectors.requires_grad:
            raise Fault("its vectors have no gradient")
        (vectors * factors).sum().backward()
        if (own := self.weight.grad) is None:
            raise Fault("no gradient reaches the table")
        each = factors.detach().double()
        each = each.unflatten(-1, (self.rows.shape[1], -1)) if self.merge == "concatenate" else each[:, None]
        each = each.expand(*self.rows.shape, self.weight.shape[1]).flatten(0, 1) * self.scale
        wanted = torch.zeros(self.weight.shape, dtype=torch.float64).index_add_(0, self.rows.flatten(), each)
        if self.padding_idx is not None:
            wanted[self.padding_idx] = 0
        return (own.to_dense() if own.is_sparse else own).double(), wanted

    def gradient(self) -> Measurement:
        own, wanted = self.gradients()
        return Measurement((own - wanted).abs().amax(-1), torch.arange(len(own)), self.tolerance(wanted))

    def other_rows(self) -> None:
        own, unread = self.gradients()[0], self.unread()
        harness.require_none(unread[(own[unread] != 0).any(-1)], "a row that no token reads gets a gradient")

    def padding_row(self) -> None:
        if self.padding_idx is None:
            raise NotSupported("there is no padding row")
        reads = (self.rows == self.padding_idx).all(-1)
        if not reads.any():
            raise NotSupported("none of the ids reads the padding row")
        harness.require(~self.call().detach()[reads].any(), "its vectors are not 0", int(reads.nonzero()[0]))
        harness.require(~self.gradients()[0][self.padding_idx].any(), "it gets a gradient")
