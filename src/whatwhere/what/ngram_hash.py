"""Hashed n-gram embeddings: rows of tables that a token and those before it choose together, by a hash in 64 bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isqrt
from typing import Literal, final

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor, nn

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import SettingError, ShapeError
from whatwhere.position.positions import Positions
from whatwhere.tensor_checks import require_ids
from whatwhere.what.embedding import Init, TokenEmbedding, require_equal_shape

Merge = Literal["concatenate", "sum"]
MERGES: tuple[Merge, ...] = ("concatenate", "sum")
Combine = Literal["xor", "sum"]
COMBINES: tuple[Combine, ...] = ("xor", "sum")
_WORD, _GOLDEN = 1 << 64, 0x9E3779B97F4A7C15

BLT_PRIMES = (
    1_000_000_007, 5_915_587_277, 1_500_450_271, 3_267_000_013, 5_754_853_343, 4_093_082_899, 9_576_890_767,
    3_628_273_133, 2_860_486_313, 5_463_458_053, 3_367_900_313,
)  # fmt: skip
"""The bases of BLT's hash functions, in order."""


@final
@dataclass(frozen=True)
class NGramHash:
    """One hash of the n-gram that ends at a token: the row that it reads in a table of its own.

        row = (m_0 t_i  op  m_1 t_(i-1)  op ... op  m_(n-1) t_(i-n+1)) mod rows        op: xor, or +

    Products and sums wrap around at 64 bits, as signed integers; the rest of the division is never negative.

    Args:
        rows: of its table; a prime spreads products best.
        multipliers: m, one for each token of the n-gram, that of the token itself first; n is their number.
        combine: `xor`, as Engram and Qwen4-Exp combine the products; or `sum`, as BLT.

    Raises:
        ShapeError: If rows is not a whole number of at least 1.
        SettingError: If there are no multipliers, one does not fit into 64 bits, or `combine` is unknown.

    Examples:
        >>> hashed = HashedNGramEmbedding([NGramHash(rows=7, multipliers=(3, 5))], dim=1, padding_id=0)
        >>> hashed.rows_of(torch.tensor([4, 2])).tolist()  # (3 * 4) xor (5 * 2) = 12 xor 10 = 6
        [6]
    """

    rows: int
    multipliers: tuple[int, ...]
    combine: Combine = "xor"

    def __post_init__(self) -> None:
        """Check the settings; multipliers from 2^63 on become the negative number of the same 64 bits."""
        require_whole("NGramHash", rows=self.rows)
        require_choice("NGramHash", "combine", self.combine, COMBINES)
        if not self.multipliers or not all(-_WORD // 2 <= m < _WORD for m in self.multipliers):
            raise SettingError(
                f"NGramHash needs multipliers of 64 bits, one for each token, but got {self.multipliers}.\n"
                "Pass multipliers=(m_0, ..., m_(n-1)), that of the token itself first."
            )
        signed = tuple((m + _WORD // 2) % _WORD - _WORD // 2 for m in self.multipliers)
        object.__setattr__(self, "multipliers", signed)

    @property
    def n(self) -> int:
        """The length of the n-gram."""
        return len(self.multipliers)


def xor_hashes(multipliers: Sequence[int], rows_of: Sequence[Sequence[int]]) -> tuple[NGramHash, ...]:
    """Return the hashes of Engram and of Qwen4-Exp: for n = 2, 3, ..., several tables that differ by their sizes.

    Args:
        multipliers: for the token itself, the one before it, and so on; a hash of n tokens has the first n.
        rows_of: for n = 2, 3, ..., the rows of each of its tables: different primes.

    Raises:
        SettingError: If there are fewer multipliers than tokens in the longest n-gram.
    """
    if len(multipliers) < len(rows_of) + 1:
        raise SettingError(
            f"n-grams of up to {len(rows_of) + 1} tokens need as many multipliers, but got {len(multipliers)}.\n"
            "Pass one for each token, or rows for fewer n."
        )
    each = [(n, rows) for n, sizes in enumerate(rows_of, 2) for rows in sizes]
    return tuple(NGramHash(rows, tuple(multipliers[:n])) for n, rows in each)


def polynomial_hashes(
    lengths: Sequence[int], rows: int, primes: Sequence[int] = BLT_PRIMES[:1]
) -> tuple[NGramHash, ...]:
    """Return the hashes of BLT: for each prime p and each n, the sum of t_(i-k) p^(n-1-k), so the oldest token has p^0.

    Args:
        lengths: n, such as 3 to 8 bytes.
        primes: p; BLT has eleven, one for each of its hash functions; those of the first come first.
    """
    return tuple(
        NGramHash(rows, tuple(pow(prime, n - 1 - k, _WORD) for k in range(n)), "sum")
        for prime in primes
        for n in lengths
    )


def longcat_hashes(vocab_size: int, rows_of: Sequence[Sequence[int]]) -> tuple[NGramHash, ...]:
    """Return the hashes of LongCat-Flash-Lite: an n-gram is a number of base V, and its row the rest of the division.

        row = (t_i + V t_(i-1) + ... + V^(n-1) t_(i-n+1)) mod rows        each power modulo rows, so nothing wraps

    `rows_of` are the rows of each table, for n = 2, 3, ....
    """
    each = [(n, rows) for n, sizes in enumerate(rows_of, 2) for rows in sizes]
    return tuple(NGramHash(rows, tuple(pow(vocab_size, k, rows) for k in range(n)), "sum") for n, rows in each)


def multipliers_of_qwen4_exp(vocab_size: int, n: int, layer: int, seed: int = 1234) -> tuple[int, ...]:
    """Return the multipliers of a layer's table in Qwen4-Exp: odd, and so small that no product leaves 63 bits.

    They are SplitMix64's numbers from a state of the seed and the layer, which is 0 for the first that has a table.
    """
    half = max(1, ((1 << 63) - 1) // max(vocab_size, 1) // 2)
    states = [seed + 10_007 * layer + _GOLDEN * (k + 1) for k in range(n)]
    return tuple(2 * (_split_mix(state) % half) + 1 for state in states)


def _split_mix(state: int) -> int:
    """Return the number of SplitMix64 after a state: Steele, Lea and Flood 2014."""
    z = (state + _GOLDEN) % _WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % _WORD
    return z ^ z >> 31


def primes_from(start: int, count: int, skip: int = 0) -> tuple[int, ...]:
    """Return primes, by trial division: sizes of hashed tables. The first `skip` are those of earlier layers."""
    primes: list[int] = []
    number = max(start, 2)
    while len(primes) < skip + count:
        if number == 2 or (number % 2 and all(number % d for d in range(3, isqrt(number) + 1, 2))):
            primes.append(number)
        number += 1
    return tuple(primes[skip:])


@final
class HashedNGramEmbedding(nn.Module):
    """Store tables whose rows belong to n-grams; look up those that end at each token, by their hashes.

        y_i = concat_h T_h[hash_h(t_i, t_(i-1), ..., t_(i-n_h+1))]        or the sum over h

    The tables lie in one, one after another. Engram (https://arxiv.org/abs/2601.07372) and Qwen4-Exp concatenate, with
    `xor_hashes`; BLT sums, with `polynomial_hashes`, and adds the bytes' own rows. What a layer does with y is part of
    the layer: in Engram and Qwen4-Exp a gate by the hidden state and a short convolution, which are not built here.

    The n-gram of a token ends where its document begins: tokens of another segment count as `padding_id`, and so do
    those before the first, and those up to a `border_id`. Tokens are neighbors by slot, whatever their coordinates.

    Args:
        hashes: of the tables, see NGramHash.
        dim: features of a row.
        padding_id: the id that stands for a missing token: the end of text in Qwen4-Exp, 0 in BLT.
        border_id: a token after which a document begins: the end of text in Qwen4-Exp. None: segments alone count.
        merge: `concatenate` the rows of a token, in the order of the hashes, or `sum` them.
        num_embeddings: rows of all tables together, where unused rows follow; None is the sum of theirs.
        init: how rows are sampled, see TokenEmbedding.
        table: whose rows are looked up, such as a FileTokenEmbedding; None is a new TokenEmbedding.

    Learned: `table`, one TokenEmbedding, so RowAdamW trains the rows of the batch.

    Raises:
        SettingError: If there are no hashes, or `merge` is unknown.
        ShapeError: If a size is not a whole number of at least 1, or num_embeddings is too small.

    Examples:
        >>> hashed = HashedNGramEmbedding(xor_hashes((3, 5, 9), [[7, 11], [13]]), dim=4, padding_id=0)
        >>> ids = torch.tensor([[8, 2, 8, 2]])
        >>> hashed.rows(ids)[0, :, :2].tolist()  # of 2 tokens: slots 1 and 3 end the same
        [[3, 9], [4, 9], [4, 14], [4, 9]]
        >>> hashed(ids).shape
        torch.Size([1, 4, 12])
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        hashes: Sequence[NGramHash],
        dim: int,
        padding_id: int,
        *,
        border_id: int | None = None,
        merge: Merge = "concatenate",
        num_embeddings: int | None = None,
        init: Init | float = "normal",
        table: TokenEmbedding | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        require_whole("HashedNGramEmbedding", dim=dim)
        require_choice("HashedNGramEmbedding", "merge", merge, MERGES)
        if not hashes:
            raise SettingError("HashedNGramEmbedding got no hashes.\nPass those of xor_hashes or polynomial_hashes.")
        super().__init__()
        self.hashes = tuple(hashes)
        self.offsets = (0, *accumulate(each.rows for each in self.hashes))
        if table is not None:
            require_equal_shape("HashedNGramEmbedding", table, num_embeddings, dim)
            num_embeddings = table.num_embeddings
        rows = self.offsets[-1] if num_embeddings is None else num_embeddings
        if rows < self.offsets[-1]:
            raise ShapeError(
                f"the hashes have {self.offsets[-1]:,} rows together, but num_embeddings is {rows:,}.\n"
                "Pass that many or more, or None."
            )
        self.table = table or TokenEmbedding(rows, dim, init=init, device=device, dtype=dtype)
        self.padding_id, self.border_id, self.merge = padding_id, border_id, merge

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialize the rows again; SettingError if the generator is on another device."""
        self.table.reset_parameters(generator)

    @property
    def context(self) -> int:
        """How many tokens before a token its rows depend on: n - 1 of the longest n-gram."""
        return max(each.n for each in self.hashes) - 1

    def rows(
        self, ids: Integer[Tensor, "batch tokens"], positions: Positions | None = None
    ) -> Int64[Tensor, "batch tokens hashes"]:
        """Compute the rows of the table that each token reads, exactly; arguments and errors are those of `ngrams`."""
        return self.rows_of(self.ngrams(ids, positions))

    def rows_of(self, ngrams: Integer[Tensor, "*shape n"]) -> Int64[Tensor, "*shape hashes"]:
        """Compute the rows of the table that n-grams read: ids, that of the token itself first.

        Raises:
            ShapeError: If there are fewer ids than the longest n-gram has.
        """
        if ngrams.shape[-1] <= self.context:
            raise ShapeError(
                f"the hashes read {self.context + 1} tokens, but these n-grams have {ngrams.shape[-1]}.\n"
                "Pass those that `ngrams` returns."
            )
        before = ngrams.long().unbind(-1)
        sums: dict[tuple[tuple[int, ...], str], Tensor] = {}  # tables of one n often differ by their sizes alone
        for each in self.hashes:
            key = (each.multipliers, each.combine)
            if key not in sums:
                total = before[0] * each.multipliers[0]
                for k in range(1, each.n):
                    product = before[k] * each.multipliers[k]
                    total = total + product if each.combine == "sum" else total ^ product
                sums[key] = total
        found = [
            sums[each.multipliers, each.combine].remainder(each.rows) + offset
            for each, offset in zip(self.hashes, self.offsets, strict=False)
        ]
        return torch.stack(found, dim=-1)

    def forward(
        self, ids: Integer[Tensor, "batch tokens"], positions: Positions | None = None, last: int | None = None
    ) -> Float[Tensor, "batch last_tokens features"]:
        """Look up the rows of each token: dim features for each hash, or dim where they are summed.

        Args:
            ids: of the tokens, 0 or more. In decoding, the new tokens behind the `context` tokens before them, or all
                there are.
            positions: of the same tokens; their segments are the documents. None: each sequence is one document.
            last: return the vectors of so many last tokens alone: in decoding, those of the new ones.

        Raises:
            ShapeError: If ids are not (batch, tokens), positions have another number of tokens, or `last` more.
            TokenError: If ids are not whole numbers.
        """
        if last is not None and not 0 <= last <= ids.shape[-1]:
            raise ShapeError(f"last={last} of {ids.shape[-1]} tokens.\nPass 0 to {ids.shape[-1]}, or None for all.")
        rows = self.rows(ids, positions)
        vectors = self.table(rows if last is None else rows[:, rows.shape[1] - last :])
        return vectors.flatten(-2) if self.merge == "concatenate" else vectors.sum(-2)

    def ngrams(
        self, ids: Integer[Tensor, "batch tokens"], positions: Positions | None = None
    ) -> Int64[Tensor, "batch tokens n"]:
        """Return the n-gram that ends at each token: its id, that of the token before it, and so on.

        What is not of the same document is `padding_id`; positions are those of `forward`.

        Raises:
            ShapeError: If ids are not (batch, tokens), or positions have another number of tokens.
            TokenError: If ids are not whole numbers.
        """
        require_ids(ids)
        if ids.dim() != 2:
            raise ShapeError(f"n-grams need ids (batch, tokens), but got {tuple(ids.shape)}.\nPass ids[None].")
        ids = ids.long()
        batch, tokens = ids.shape
        segment = None if positions is None else positions.segment
        if positions is not None and (positions.tokens != tokens or positions.batch not in (1, batch)):
            raise ShapeError(
                f"ids are {batch} sequences of {tokens} tokens, but positions are {positions.batch} of "
                f"{positions.tokens}.\nPass positions of the same tokens."
            )
        inside = torch.ones_like(ids, dtype=torch.bool)
        found = [ids]
        for k in range(1, self.context + 1):
            earlier = _shifted(ids, k, self.padding_id)
            inside = inside & _shifted(torch.ones_like(inside), k, False)
            if segment is not None:
                inside = inside & (segment == _shifted(segment, k, -1))
            if self.border_id is not None:
                inside = inside & (earlier != self.border_id)
            found.append(torch.where(inside, earlier, self.padding_id))
        return torch.stack(found, dim=-1)

    def extra_repr(self) -> str:
        """Return the settings, for `repr`."""
        lengths = sorted({each.n for each in self.hashes})
        border = "" if self.border_id is None else f", border_id={self.border_id}"
        return f"hashes={len(self.hashes)}, n={lengths}, padding_id={self.padding_id}{border}, merge={self.merge!r}"


def _shifted(x: Tensor, k: int, fill: int | bool) -> Tensor:
    tokens = x.shape[-1]
    return torch.cat([x.new_full((*x.shape[:-1], min(k, tokens)), fill), x[..., : max(tokens - k, 0)]], dim=-1)
