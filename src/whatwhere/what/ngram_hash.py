"""Hashes of n-grams: exact integer functions of a token's id and of those before it, in 64 bits."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Literal, final

from whatwhere.checks import require_choice, require_whole
from whatwhere.errors import SettingError

Combine = Literal["xor", "sum"]
COMBINES: tuple[Combine, ...] = ("xor", "sum")
_WORD = 1 << 64

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
        >>> NGramHash(rows=7, multipliers=(3, 5)).row([4, 2])  # (3 * 4) xor (5 * 2) = 12 xor 10 = 6
        6
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
        object.__setattr__(self, "multipliers", tuple(map(_signed, self.multipliers)))

    @property
    def n(self) -> int:
        """The length of the n-gram."""
        return len(self.multipliers)

    def row(self, ids: Sequence[int]) -> int:
        """Return the row of one n-gram, by Python's integers.

        Raises:
            SettingError: If there are not n.
        """
        if len(ids) != self.n:
            raise SettingError(f"a hash of {self.n} tokens got {len(ids)}.\nPass the token and those before it.")
        products = [m * t for m, t in zip(self.multipliers, ids, strict=True)]
        total = 0
        for product in products:
            total = _signed(total + product) if self.combine == "sum" else _signed(total ^ product)
        return total % self.rows


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


_GOLDEN = 0x9E3779B97F4A7C15


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


def _signed(number: int) -> int:
    number %= _WORD
    return number - _WORD if number >= _WORD // 2 else number
